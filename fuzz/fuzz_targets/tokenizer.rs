//! Any bytes as `tokenizer.json`, behind a line that is encoded: ids that become text again, or an error of one line.
#![no_main]

use std::{fs, path::PathBuf, sync::LazyLock};

use demask_checkpoint::{Family, ModelFiles, Tokenizer};
use libfuzzer_sys::fuzz_target;

/// Readers take directories, so there is one for this process.
static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("demask-fuzz-tokenizer-{}", std::process::id()));
    fs::create_dir_all(&path).expect("a temporary directory");
    path
});

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..end]);
    fs::write(DIRECTORY.join("tokenizer.json"), &bytes[end..]).expect("a temporary file");
    let files = ModelFiles::directory(&*DIRECTORY).expect("a directory");
    let family = Family::named("Qwen3").expect("the family is in the list");
    match Tokenizer::open(&files, family) {
        Ok(tokenizer) => {
            let tokenizer = tokenizer.expect("there is a file");
            if let Ok(ids) = tokenizer.encode(&text, true) {
                assert!(ids.iter().all(|id| *id <= tokenizer.largest_id()), "{ids:?}");
                tokenizer.decode(&ids, true);
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});
