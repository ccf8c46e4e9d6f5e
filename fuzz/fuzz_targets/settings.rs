//! Any text as the words that name methods, and as options in JSON: the same when written and read again, or an error of one
//! line.
#![no_main]

use std::fmt::Display;

use demask::{CacheSpec, DecoderSpec, Options};
use libfuzzer_sys::fuzz_target;

/// Written form of a parsed value; none if it was refused in one line.
fn written<T: Display, E: Display>(read: Result<T, E>) -> Option<String> {
    match read {
        Ok(value) => Some(value.to_string()),
        Err(error) => {
            let error = error.to_string();
            assert!(!error.contains('\n'), "{error:?}");
            None
        }
    }
}

fuzz_target!(|text: &str| {
    if let Some(decoder) = written(text.parse::<DecoderSpec>()) {
        assert_eq!(written(decoder.parse::<DecoderSpec>()), Some(decoder.clone()), "{text:?}");
    }
    if let Some(cache) = written(text.parse::<CacheSpec>()) {
        assert_eq!(written(cache.parse::<CacheSpec>()), Some(cache.clone()), "{text:?}");
    }
    if let Ok(options) = serde_json::from_str::<Options>(text) {
        let json = serde_json::to_string(&options).expect("options are JSON");
        let again: Options = serde_json::from_str(&json).expect("they were written by the program");
        assert_eq!(serde_json::to_string(&again).expect("options are JSON"), json);
    }
});
