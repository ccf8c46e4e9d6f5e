//! Any bytes as the file that `generate --trace` writes: lines that are written as they were read, or an error of one line.
#![no_main]

use demask::trace::read_trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match read_trace(bytes) {
        Ok(lines) => {
            let mut written = Vec::new();
            lines.iter().for_each(|line| line.write(&mut written).expect("memory takes it"));
            // A number beyond all others is read, and has no form in JSON.
            if let Ok(again) = read_trace(written.as_slice()) {
                assert_eq!(again.len(), lines.len());
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});
