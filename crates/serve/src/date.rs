//! The date, which responses have: the only thing that is read from a clock that somebody may set.
//!
//! Deadlines, rates, time-outs and waits are measured by the monotonic clock, so that no change of the date ends or holds up a
//! request.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the seconds since 1970; 0 if the clock stands before it.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the date as a header has it. It is read each time: a clock that is set back is followed.
pub fn header() -> http::HeaderValue {
    let text = httpdate::fmt_http_date(SystemTime::now());
    http::HeaderValue::try_from(text).unwrap_or_else(|_| http::HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }

    #[test]
    fn nothing_else_reads_a_clock_that_can_be_set() {
        let mut found = Vec::new();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for name in ["serve", "demask", "decode", "step"] {
            sources(&crates.join(name).join("src"), &mut found);
        }
        assert!(found.len() > 100, "{} files", found.len());
        for (path, text) in found {
            let date = text.contains("SystemTime") || text.contains("UNIX_EPOCH");
            assert_eq!(date, path.ends_with("date.rs"), "{path}: measure by Instant, which nobody can set");
        }
    }
}
