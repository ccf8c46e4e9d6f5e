//! Any bytes as a safetensors file: tensors inside the file, or an error of one line.
#![no_main]

use demask_checkpoint::check_safetensors;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = check_safetensors(bytes, "model.safetensors") {
        assert!(!error.to_string().contains('\n'));
    }
});
