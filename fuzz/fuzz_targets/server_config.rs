//! Any text as the file of `demask serve`, and as its file of keys: settings or an error of one line.
#![no_main]

#[path = "../../crates/cli/src/serve_file.rs"]
mod serve_file;
#[path = "../../crates/cli/src/args/serve.rs"]
#[allow(dead_code)]
mod serve_flags;

use demask_serve::Keys;
use libfuzzer_sys::fuzz_target;
use serve_flags::{ServeArgs, fill_shared, shared_lines};

/// The model's flags, as the command has them.
#[derive(Debug, Default)]
pub struct SharedArgs {
    model: Option<String>,
    family: Option<String>,
    device: Option<String>,
    dtype: Option<String>,
    quantize: Option<String>,
    activations: Option<String>,
    threads: Option<usize>,
}

/// Settings of a file, written as a file; none if it is refused.
fn read(text: &str) -> Option<String> {
    let entries = match serve_file::entries(text) {
        Ok(entries) => entries,
        Err(refused) => {
            assert!(!refused.contains('\n'), "{refused:?}");
            return None;
        }
    };
    let (mut shared, mut args) = (SharedArgs::default(), ServeArgs::default());
    for (name, text) in entries {
        let known = match fill_shared(&mut shared, &name, &text) {
            Ok(false) => args.fill(&name, &text),
            other => other,
        };
        match known {
            Ok(true) => {}
            Ok(false) => return None,
            Err(expected) => {
                assert!(!expected.contains('\n'), "{expected:?}");
                return None;
            }
        }
    }
    Some([shared_lines(&shared), args.lines()].concat().join("\n"))
}

fuzz_target!(|text: &str| {
    // What was read and written down is read as the same.
    if let Some(written) = read(text) {
        assert_eq!(read(&written).as_deref(), Some(&*written), "{text:?}");
    }
    if let Err(error) = Keys::parse(text) {
        assert!(!error.to_string().contains('\n'));
    }
});
