//! Options of an answer, read back from its receipt.

use demask_decode::{Registry, spec::Method as _};
use demask_settings::{SettingError, Settings as _, names::same};
use serde_json::{Map, Value};

use crate::{ModelInfo, Options, receipt::VERSION};

/// Settings of which no token depends, or only by the clock, and the name of a guide among several.
const NOT_OF_TOKENS: [&str; 4] = ["top_logprobs", "deadline_ms", "deadline", "guide"];

/// How an answer was decoded, as its receipt says.
#[derive(Debug, Clone, PartialEq)]
pub struct Like {
    /// Version of the program that wrote the receipt.
    pub version: String,
    /// The model that answered.
    pub model: String,
    /// The guide that it had.
    pub guide: Option<String>,
    /// The options that it had, each with its value.
    options: Options,
}

/// Receipts that no answer can be like.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotAlike {
    /// A text without a receipt.
    #[error(
        "there is no receipt: found {found}, expected what generate --json prints, its receipt, or one line of results.jsonl"
    )]
    None {
        /// The problem.
        found: String,
    },
    /// A version that is none.
    #[error("the receipt has version {found}, expected a text such as \"{VERSION}\": give one that demask wrote")]
    Version {
        /// The version.
        found: Value,
    },
    /// A method that this program does not know, or a rule that no text can name.
    #[error(
        "the {what} {found} of the receipt is none of this program: only the program that has it makes the answer again"
    )]
    Method {
        /// `decoder` or `cache`.
        what: &'static str,
        /// The method.
        found: String,
    },
    /// A field that receipts of this version have.
    #[error(
        "the receipt has no field {field}, which demask {VERSION} reads: expected what `generate --json` of this version prints"
    )]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A value that is none.
    #[error("field {field} of the receipt is not as demask {VERSION} reads it: {error}")]
    Wrong {
        /// The field.
        field: &'static str,
        /// The problem.
        error: SettingError,
    },
    /// The answer of another model.
    #[error("the receipt is of the {what} {was}, and {is} is here: name that one")]
    Model {
        /// Model or guide.
        what: &'static str,
        /// The model of the receipt.
        was: String,
        /// The model that is open.
        is: String,
    },
}

impl Like {
    /// Reads a receipt from JSON: what `generate --json` prints, the receipt alone, or a line of `results.jsonl`.
    ///
    /// # Errors
    /// If it is none, or one that another version wrote without a field that this one reads.
    pub fn read(text: &str) -> Result<Self, NotAlike> {
        let none = |found: String| NotAlike::None { found };
        let value: Value = serde_json::from_str(text).map_err(|error| none(format!("no JSON ({error})")))?;
        let Value::Object(mut whole) = value else { return Err(none("JSON without fields".to_owned())) };
        let receipt = match whole.remove("receipt") {
            Some(Value::Object(receipt)) => receipt,
            Some(other) => return Err(none(format!("`receipt` {other}"))),
            None if ["version", "decoder", "cache", "seed"].iter().any(|field| whole.contains_key(*field)) => whole,
            None => return Err(none("JSON of another kind".to_owned())),
        };
        if let Some(found) = receipt.get("version").filter(|version| !version.is_string()) {
            return Err(NotAlike::Version { found: found.clone() });
        }
        let registry = Registry::of_program();
        let decoders: Vec<&str> = registry.decoders().iter().map(|method| method.about().name).collect();
        let caches: Vec<&str> = registry.caches().iter().map(|method| method.about().name).collect();
        known(&receipt, "decoder", &decoders)?;
        known(&receipt, "cache", &caches)?;
        let settings = receipt.get("settings").ok_or(NotAlike::Missing { field: "settings" })?;
        let settings = settings.as_object().ok_or_else(|| none(format!("`settings` {settings}")))?;
        let mut options = Options::default();
        for (name, value) in settings {
            let set = options.set_json(name, value.clone());
            set.map_err(|error| NotAlike::Wrong { field: "settings", error })?;
        }
        // Where nothing chooses an order, the fields of one have no meaning.
        let ordered = options.alg_temp.is_some();
        for name in ["decoder", "cache", "remasking", "schedule", "block_length", "seed"] {
            let value = receipt.get(name).filter(|value| !value.is_null());
            let value = value.ok_or(NotAlike::Missing { field: name })?.clone();
            options.set_json(name, value).map_err(|error| NotAlike::Wrong { field: name, error })?;
        }
        let guided = options.wants_guide();
        let dropped: &[&str] = match (ordered, guided) {
            (true, _) => &[],
            (false, true) => &["remasking", "schedule"],
            (false, false) => &["remasking", "schedule", "block_length"],
        };
        let options = options.without(&NOT_OF_TOKENS).without(dropped);
        let guide = receipt.get("guide").and_then(|guide| guide["model"].as_str()).map(str::to_owned);
        Ok(Self { version: text_of(&receipt, "version")?, model: text_of(&receipt, "model")?, guide, options })
    }

    /// Returns options with all that they leave open as the answer had it, as far as it has a meaning beside them.
    #[must_use]
    pub fn beside(&self, mut options: Options) -> Options {
        let sets = |names: &[&str]| names.iter().any(|name| options.json(name).is_some());
        let greedy = options.temperature == Some(0.0);
        let groups: [(bool, &[&str]); 3] = [
            // Each rule for an end speaks against the others.
            (sets(&["stop_rule", "no_early_stop", "ignore_eos"]), &["stop_rule", "ignore_eos"]),
            // A number of steps is that of one length and one decoder.
            (sets(&["gen_length", "max_tokens", "block_length", "decoder"]), &["steps"]),
            // The best token is taken of all of them.
            (greedy, &["top_p", "top_k", "min_p"]),
        ];
        let dropped = groups.iter().filter(|(out, _)| *out).flat_map(|(_, names)| *names);
        options.fill(self.options.without(&dropped.copied().collect::<Vec<_>>()));
        options
    }

    /// Refuses another model or guide than the answer had.
    ///
    /// # Errors
    /// If one is another.
    pub fn check(&self, info: &ModelInfo) -> Result<(), NotAlike> {
        let infos = info.infos();
        let guide = infos.get(1).map(|guide| guide.name());
        let both = [("model", Some(self.model.as_str()), Some(info.name())), ("guide", self.guide.as_deref(), guide)];
        match both.into_iter().find(|(_, was, is)| was.is_some() && was != is) {
            Some((what, was, is)) => Err(NotAlike::Model {
                what,
                was: was.unwrap_or_default().to_owned(),
                is: is.unwrap_or("none").to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// Returns what to say of a receipt of another version, whose tokens may be others.
    pub fn note(&self) -> Option<String> {
        let Self { version, .. } = self;
        (version != VERSION)
            .then(|| format!("the receipt is of demask {version}, this is {VERSION}: tokens may differ"))
    }
}

/// Checks that a method of the receipt is one of the program's.
fn known(receipt: &Map<String, Value>, what: &'static str, names: &[&str]) -> Result<(), NotAlike> {
    let Some(found) = receipt.get(what).and_then(Value::as_str) else { return Ok(()) };
    let name = found.split(':').next().unwrap_or_default();
    let is_known = names.iter().any(|known| same(known, name));
    if is_known { Ok(()) } else { Err(NotAlike::Method { what, found: found.to_owned() }) }
}

fn text_of(receipt: &Map<String, Value>, field: &'static str) -> Result<String, NotAlike> {
    let text = receipt.get(field).and_then(Value::as_str);
    text.map(str::to_owned).ok_or(NotAlike::Missing { field })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt() -> Value {
        serde_json::json!({
            "version": VERSION, "model": "demo-llada", "decoder": "static", "cache": "none", "remasking": "low_confidence",
            "schedule": "even", "steps": 8, "block_length": 8, "seed": 7,
            "settings": {"gen_length": 16, "temperature": 0.5, "alg_temp": 0.0},
        })
    }

    #[test]
    fn a_receipt_is_read_from_whatever_holds_it() {
        let one = Like::read(&receipt().to_string()).unwrap();
        assert_eq!(one.options.gen_length, Some(16));
        assert_eq!((one.options.seed, one.options.block_length, one.options.steps), (Some(7), Some(8), None));
        let answer = serde_json::json!({"text": "x", "receipt": receipt()});
        assert_eq!(Like::read(&answer.to_string()).unwrap(), one);
        assert_eq!(one.note(), None);
        let old = Like { version: "0.0.9".to_owned(), ..one };
        assert!(old.note().unwrap().starts_with("the receipt is of demask 0.0.9, this is "));
    }

    #[test]
    fn what_is_given_beside_a_receipt_takes_its_place() {
        let mut steps = receipt();
        steps["settings"]["steps"] = 8.into();
        steps["settings"]["stop_rule"] = "prefix".into();
        let like = Like::read(&steps.to_string()).unwrap();
        let given = Options { gen_length: Some(32), ignore_eos: Some(true), ..Options::default() };
        let options = like.beside(given);
        assert_eq!((options.gen_length, options.ignore_eos, options.temperature), (Some(32), Some(true), Some(0.5)));
        assert_eq!((options.steps, options.stop_rule), (None, None));
        assert_eq!(like.beside(Options::default()).steps, Some(8));
    }

    #[test]
    fn a_receipt_that_says_too_little_is_refused_in_one_line() {
        let without = |name: &str| {
            let mut receipt = receipt();
            receipt.as_object_mut().unwrap().remove(name);
            receipt.to_string()
        };
        let mut other = receipt();
        other["settings"]["step"] = 1.into();
        let mut rule = receipt();
        rule["decoder"] = "custom:mine".into();
        let mut cache = receipt();
        cache["cache"] = "near:rows=2".into();
        let mut version = receipt();
        version["version"] = 3.into();
        for (text, told) in [
            (without("settings"), "the receipt has no field settings, which demask"),
            (without("seed"), "the receipt has no field seed, which demask"),
            (without("model"), "the receipt has no field model, which demask"),
            (other.to_string(), "field settings of the receipt is not as demask"),
            (
                rule.to_string(),
                "the decoder custom:mine of the receipt is none of this program: only the program that has it makes the answer again",
            ),
            (cache.to_string(), "the cache near:rows=2 of the receipt is none of this program: only"),
            (version.to_string(), "the receipt has version 3, expected a text such as \"0."),
            ("{}{}".to_owned(), "there is no receipt: found no JSON (trailing characters"),
            ("{\"a\": 1}".to_owned(), "there is no receipt: found JSON of another kind, expected"),
            ("[1]".to_owned(), "there is no receipt: found JSON without fields"),
            ("{\"receipt\": 1}".to_owned(), "there is no receipt: found `receipt` 1"),
        ] {
            let refused = Like::read(&text).unwrap_err().to_string();
            assert!(refused.starts_with(told) && !refused.contains('\n'), "{refused}");
        }
    }
}
