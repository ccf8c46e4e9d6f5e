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
    /// Share of the rows and places while keys compete.
    pub weight: f64,
    /// Number of the key among those of its server, from 0.
    pub(crate) number: usize,
    rate: Option<Rate>,
}

/// Requests that a key may make.
struct Rate {
    per_minute: f64,
    /// Remaining requests, and the time at which they were counted.
    bucket: Mutex<(f64, Instant)>,
}

/// Keys that cannot be taken. No part of a key or of its line is ever in a message: what looks like a slip may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A line that is none.
    #[error("line {line} of the keys: {what}: expected `NAME KEY [weight=NUMBER] [rate=REQUESTS_PER_MINUTE]`")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Description of the mistake.
        what: &'static str,
    },
    /// No line holds a key. Who names keys wants some: a server without any is open to everybody.
    #[error(
        "there is no key: expected a line `NAME KEY [weight=NUMBER] [rate=REQUESTS_PER_MINUTE]` for each; to serve \
         everybody, omit the keys"
    )]
    None,
    /// A key that cannot stand in a header.
    #[error("{what}: expected a key of letters, digits and signs, without spaces")]
    Secret {
        /// Description of the mistake.
        what: &'static str,
    },
}

impl Keys {
    /// Reads keys, one a line: `NAME KEY [weight=NUMBER] [rate=REQUESTS_PER_MINUTE]`. Empty lines and those that begin with
    /// `#` are left out.
    ///
    /// # Errors
    /// If a line is none, or a name or a key is there twice, or there is no key at all.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut keys = Self::default();
        // The mark that some editors begin a file with is no part of a name.
        for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let line = line.trim();
            if !(line.is_empty() || line.starts_with('#')) {
                let added = Key::parse(line).and_then(|key| keys.push(key));
                added.map_err(|what| KeyError::Line { line: index + 1, what })?;
            }
        }
        if keys.is_empty() { Err(KeyError::None) } else { Ok(keys) }
    }

    /// Adds a key of weight 1 without a rate.
    ///
    /// # Errors
    /// If no client could send it, or its name or it is there already.
    pub fn add(&mut self, name: &str, secret: &str) -> Result<(), KeyError> {
        let wrong = |what| KeyError::Secret { what };
        if secret.trim().is_empty() {
            return Err(wrong("the key is empty"));
        }
        if secret.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
            return Err(wrong("the key has a space or a line break"));
        }
        self.push(Key::new(name, secret)).map_err(wrong)
    }

    fn push(&mut self, key: Key) -> Result<(), &'static str> {
        if self.keys.iter().any(|other| other.name == key.name || other.hash == key.hash) {
            return Err("its name or its key was there before");
        }
        self.keys.push(Key { number: self.keys.len(), ..key });
        Ok(())
    }

    /// Returns the weights of the keys, in their order; one weight if everybody may ask.
    pub(crate) fn weights(&self) -> Vec<f64> {
        if self.is_empty() { vec![1.0] } else { self.keys.iter().map(|key| key.weight).collect() }
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
            return Err(Refusal::unauthorized(
                "no API key: send it as `Authorization: Bearer KEY`, or as `x-api-key: KEY`",
            ));
        };
        // The scheme's name has no case.
        let Some((_, given)) = header.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
        else {
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
    fn new(name: &str, secret: &str) -> Self {
        Self {
            name: name.to_owned(),
            hash: Sha256::digest(secret.as_bytes()).into(),
            weight: 1.0,
            number: 0,
            rate: None,
        }
    }

    fn parse(line: &str) -> Result<Self, &'static str> {
        const MISSING: &str = "it has no key after its name";
        let mut words = line.split_whitespace();
        let (Some(name), Some(secret)) = (words.next(), words.next()) else { return Err(MISSING) };
        if secret.starts_with("weight=") || secret.starts_with("rate=") {
            return Err(MISSING);
        }
        let mut key = Self::new(name, secret);
        for word in words {
            let number = |text: &str| text.parse().ok().filter(|number: &f64| *number > 0.0 && number.is_finite());
            match word.split_once('=') {
                Some(("weight", text)) => key.weight = number(text).ok_or("its weight is no number above 0")?,
                Some(("rate", text)) => {
                    let per_minute = number(text).ok_or("its rate is no number above 0")?;
                    // A minute's requests may come at once.
                    key.rate = Some(Rate { per_minute, bucket: Mutex::new((per_minute.max(1.0), Instant::now())) });
                }
                _ => return Err("an unknown word follows its key, which has no spaces"),
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
        for header in ["bearer secret-2 ", "BEARER secret-2", "bEaReR  secret-2"] {
            assert_eq!(name(header).unwrap(), "ben", "{header}");
        }
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
    fn wrong_lines_are_told_without_any_part_of_them() {
        for (text, told) in [
            ("ann", "line 1 of the keys: it has no key after its name"),
            ("ann weight=2", "line 1 of the keys: it has no key after its name"),
            ("\nann s3cret sp33d=2", "line 2 of the keys: an unknown word follows its key"),
            ("ann s3cret weight=s3cret", "line 1 of the keys: its weight is no number above 0"),
            ("ann s3cret rate=0", "line 1 of the keys: its rate is no number above 0"),
            ("ann \"s3cret horse\"", "line 1 of the keys: an unknown word follows its key"),
            ("ann s3cret\nben s3cret", "line 2 of the keys: its name or its key was there before"),
        ] {
            let error = Keys::parse(text).err().unwrap().to_string();
            let quotes = ["ann", "s3cret", "sp33d", "horse", "\""].iter().any(|part| error.contains(part));
            assert!(error.starts_with(told) && !quotes, "{error}");
        }
    }

    #[test]
    fn keys_that_are_named_and_hold_none_open_nothing() {
        for text in ["", "\n", "# the keys come here\n", " \t\n\n#\n", "\u{feff}", "\u{feff}# nothing"] {
            assert_eq!(Keys::parse(text).err(), Some(KeyError::None), "{text:?}");
        }
        let mut keys = Keys::default();
        for secret in ["", " ", "\n", "correct horse-battery", "two\nben lines", "a\u{a0}b", "bell\u{7}"] {
            let error = keys.add("environment", secret).unwrap_err().to_string();
            assert!(
                error.contains("expected a key") && !error.contains("battery") && !error.contains("ben"),
                "{error}"
            );
        }
        assert!(keys.is_empty());
        keys.add("environment", "#weight=2").unwrap();
        assert_eq!(keys.find(Some(b"BEARER #weight=2")).unwrap().unwrap().name, "environment");
        assert_eq!(keys.find(None).unwrap_err().status.as_u16(), 401);
    }
}
