//! The built-in model: everything can be tried and tested offline.

use demask_checkpoint::ModelFiles;

use crate::model::Defaults;

/// Lengths that the demo was trained with.
pub(crate) const DEFAULTS: Defaults = Defaults { gen_length: Some(64), block_length: Some(16) };

/// Returns the files of `demo/demo-llada`, which are part of the binary.
pub fn files() -> ModelFiles {
    macro_rules! file {
        ($name:literal) => {
            ($name, include_bytes!(concat!("../demo/demo-llada/", $name)).as_slice())
        };
    }
    static FILES: &[(&str, &[u8])] = &[
        file!("config.json"),
        file!("generation_config.json"),
        file!("model.safetensors"),
        file!("tokenizer.json"),
        file!("tokenizer_config.json"),
    ];
    ModelFiles::memory("demo-llada", FILES)
}
