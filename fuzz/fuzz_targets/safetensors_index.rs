//! Any bytes as `model.safetensors.index.json`: shards beside the index, or an error of one line.
#![no_main]

use demask_checkpoint::ShardIndex;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    match ShardIndex::parse(text, "model.safetensors.index.json") {
        Ok(index) => assert!(index.shards().iter().all(|shard| !shard.contains(['/', '\\']))),
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});
