//! Keys of clients: who may ask, how often, and with which share of the machine.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::Refusal;

/// The keys of a server; without any, everybody may ask.
#[derive(Default)]
pub struct Keys {
    keys: Vec<Key>,
}

/// A key: only its hash is kept.
pub struct Key {
    /// Name of its holder, for logs.
    pub name: String,
    hash: [u8; 32],
    /// Share of the rows while requests compete.
    pub weight: f64,
    rate: Option<Rate>,
}

/// Requests that a key may make.
struct Rate {
    per_minute: f64,
    /// Remaining requests, and the time at which they were counted.
    bucket: Mutex<(f64, Instant)>,
}

/// A file of keys that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A line that is none.
    #[error("line {line} of the keys: {what}: expected `NAME KEY [weight=NUMBER] [rate=REQUESTS_PER_MINUTE]`")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Description of the mistake. The key itself is never part of it.
        what: String,
    },
}

impl Keys {
    /// Reads keys, one a line: `NAME KEY [weight=NUMBER] [rate=REQUESTS_PER_MINUTE]`. Empty lines and those that begin with
    /// `#` are left out.
    ///
    /// # Errors
    /// If a line is none, or a name or a key stands there twice.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut keys = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = Key::parse(line).map_err(|what| KeyError::Line { line: index + 1, what })?;
            if keys.keys.iter().any(|other| other.name == key.name || other.hash == key.hash) {
                return Err(KeyError::Line {
                    line: index + 1,
                    what: "its name or its key was there before".to_owned(),
                });
            }
            keys.keys.push(key);
        }
        Ok(keys)
    }

    /// Returns whether nobody needs a key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Finds the key of a request by its `Authorization` header.
    ///
    /// # Errors
    /// If keys are needed, and it has none of them.
    pub fn find(&self, authorization: Option<&[u8]>) -> Result<Option<&Key>, Refusal> {
        if self.keys.is_empty() {
            return Ok(None);
        }
        let Some(header) = authorization else {
            return Err(Refusal::unauthorized("no API key: send it as `Authorization: Bearer KEY`"));
        };
        let Some(given) = header.strip_prefix(b"Bearer ").or_else(|| header.strip_prefix(b"bearer ")) else {
            return Err(Refusal::unauthorized("the Authorization header is no `Bearer KEY`"));
        };
        let hash = Sha256::digest(given.trim_ascii());
        // All are compared, so that the time tells nothing of which one was near.
        let mut found = None;
        for key in &self.keys {
            if bool::from(key.hash.ct_eq(hash.as_slice())) {
                found = Some(key);
            }
        }
        found.map(Some).ok_or_else(|| Refusal::unauthorized("this API key is unknown: check it, or ask for one"))
    }
}

impl Key {
    fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let (Some(name), Some(secret)) = (words.next(), words.next()) else {
            return Err("it has no key behind its name".to_owned());
        };
        if secret.contains('=') && (secret.starts_with("weight=") || secret.starts_with("rate=")) {
            return Err("it has no key behind its name".to_owned());
        }
        let mut key =
            Self { name: name.to_owned(), hash: Sha256::digest(secret.as_bytes()).into(), weight: 1.0, rate: None };
        for word in words {
            let number = |text: &str| text.parse().ok().filter(|number: &f64| *number > 0.0 && number.is_finite());
            let bad = || format!("{word:?} is no number above 0");
            match word.split_once('=') {
                Some(("weight", text)) => key.weight = number(text).ok_or_else(bad)?,
                Some(("rate", text)) => {
                    let per_minute = number(text).ok_or_else(bad)?;
                    // A minute's requests may come at once.
                    key.rate = Some(Rate { per_minute, bucket: Mutex::new((per_minute.max(1.0), Instant::now())) });
                }
                _ => return Err(format!("unknown word {word:?}")),
            }
        }
        Ok(key)
    }

    /// Counts a request against the key's rate.
    ///
    /// # Errors
    /// If it has none left, with the time after which it has.
    pub fn count(&self, now: Instant) -> Result<(), Refusal> {
        let Some(Rate { per_minute, bucket }) = &self.rate else { return Ok(()) };
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, since) = *bucket;
        let passed = now.saturating_duration_since(since).as_secs_f64();
        let left = (left + passed * per_minute / 60.0).min(per_minute.max(1.0));
        if left < 1.0 {
            *bucket = (left, now);
            let wait = ((1.0 - left) * 60.0 / per_minute).ceil().max(1.0) as u64;
            let message =
                format!("the key {} makes {per_minute} requests a minute at most: try again in {wait} s", self.name);
            return Err(Refusal::rate(message, wait));
        }
        *bucket = (left - 1.0, now);
        Ok(())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("name", &self.name).field("weight", &self.weight).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn keys_are_found_by_their_header() {
        let keys = Keys::parse("# who\n\nann secret-1 weight=2\nben secret-2 rate=2\n").unwrap();
        let name = |header: &str| keys.find(Some(header.as_bytes())).map(|key| key.unwrap().name.clone());
        assert_eq!(name("Bearer secret-1").unwrap(), "ann");
        assert_eq!(name("bearer secret-2 ").unwrap(), "ben");
        for header in ["Bearer secret", "Bearer ", "Basic secret-1", "secret-1"] {
            assert_eq!(name(header).unwrap_err().status.as_u16(), 401, "{header}");
        }
        assert_eq!(keys.find(None).unwrap_err().code, Some("invalid_api_key"));
        assert!(Keys::default().find(None).unwrap().is_none());
    }

    #[test]
    fn a_rate_is_kept_and_grows_back() {
        let keys = Keys::parse("ben secret rate=2").unwrap();
        let key = keys.find(Some(b"Bearer secret")).unwrap().unwrap();
        let now = Instant::now();
        key.count(now).unwrap();
        key.count(now).unwrap();
        let refused = key.count(now).unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.retry_after), (429, Some(30)));
        key.count(now + Duration::from_secs(31)).unwrap();
    }

    #[test]
    fn wrong_lines_are_told_without_the_key() {
        for (text, told) in [
            ("ann", "line 1 of the keys: it has no key behind its name"),
            ("ann weight=2", "line 1 of the keys: it has no key behind its name"),
            ("\nann s3cret speed=2", "line 2 of the keys: unknown word \"speed=2\""),
            ("ann s3cret weight=0", "line 1 of the keys: \"weight=0\" is no number above 0"),
            ("ann s3cret\nben s3cret", "line 2 of the keys: its name or its key was there before"),
        ] {
            let error = Keys::parse(text).err().unwrap().to_string();
            assert!(error.starts_with(told) && !error.contains("s3cret"), "{error}");
        }
    }
}
