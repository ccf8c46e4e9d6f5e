//! Any bytes as a GGUF file: a checkpoint whose tensors are inside the file, or an error of one line.
#![no_main]

use demask_checkpoint::{Checkpoint, ModelFiles};
use demask_model::{WeightSource, expected_tensors};
use demask_tensor::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Checkpoint::open(ModelFiles::gguf_bytes("model.gguf", Bytes::owned(bytes.to_vec()))) {
        Ok(checkpoint) => {
            for tensor in expected_tensors(checkpoint.spec()) {
                let stored = checkpoint.weights().tensor(tensor.role).expect("it was found");
                let mut scratch = Vec::new();
                let (view, _) = stored.take(0..stored.rows(), &mut scratch).expect("it is in memory");
                let mut row = vec![0.0; view.columns()];
                (0..view.rows()).for_each(|index| view.read_row(index, &mut row));
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});
