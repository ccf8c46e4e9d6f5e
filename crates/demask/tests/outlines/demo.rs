//! Models and questions that tests share.

use std::path::Path;

use demask::{DeviceOptions, Opened};
use demask::{Model, Prompt};
use demask_checkpoint::ModelFiles;

/// A demo model whose weights are not read yet.
pub fn opened(name: &str) -> Opened {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo").join(name);
    Opened::open(ModelFiles::directory(path).unwrap()).unwrap()
}

pub fn load(name: &str) -> Model {
    opened(name).load(&DeviceOptions::default(), &[], &mut |_| true).unwrap()
}

pub fn question(index: usize) -> Prompt {
    let counted = ["pears", "cards", "boxes of old books"][index % 3];
    Prompt::user(format!("Ada has {} {counted}. Ben gives Ada {index} more. How many in the end?", 3 + index), None)
}
