//! Methods that could not be typed, read and printed do not compile.
//!
//! A method's name, its keys and its words can be typed:
//!
//! ```compile_fail
//! # use demask_decode::{Setup, caches::{CacheKind, CacheMethod, CachePolicy}, parameters};
//! parameters! {
//!     /// No parameters.
//!     pub struct Mine {}
//! }
//! impl CacheKind for Mine {
//!     const NAME: &'static str = "a:b";
//!     const SUMMARY: &'static str = "a name with a colon";
//!     const SOURCE: &'static str = "this example";
//!     const ATTENTION: &'static [demask_step::MaskKind] = &[];
//!     fn build(&self, _setup: &Setup<'_>) -> Box<dyn CachePolicy> { unimplemented!() }
//! }
//! static METHOD: CacheMethod = CacheMethod::of::<Mine>();
//! ```
//!
//! Each key is there once, whatever its case and hyphens, and none is `name`:
//!
//! ```compile_fail
//! # use demask_decode::{methods::{DecoderKind, DecoderMethod}, parameters, transfer::{Candidate, State, Transfer}};
//! parameters! {
//!     /// Two parameters with one key.
//!     pub struct Mine {
//!         /// one
//!         pub a_b: bool = false;
//!         /// the other
//!         pub other as "A-B": bool = false;
//!     }
//! }
//! impl DecoderKind for Mine {
//!     const NAME: &'static str = "mine";
//!     const SUMMARY: &'static str = "a key that is there twice";
//!     const SOURCE: &'static str = "this example";
//!     const ATTENTION: &'static [demask_step::MaskKind] = &[];
//! }
//! impl Transfer for Mine {
//!     fn choose(&self, _state: &State, _candidates: &mut [Candidate]) -> usize { 1 }
//! }
//! static METHOD: DecoderMethod = DecoderMethod::of::<Mine>();
//! ```
//!
//! Bounds hold the default:
//!
//! ```compile_fail
//! # use demask_decode::{parameters, spec::{Kind, Parameters}};
//! parameters! {
//!     /// A default below its bounds.
//!     pub struct Mine {
//!         /// how often
//!         pub every: usize = 0, Kind::count(1, 64);
//!     }
//! }
//! assert_eq!(Mine::TABLE.len(), 1);
//! ```
//!
//! The same compiles once its name, key and default are mended:
//!
//! ```
//! # use demask_decode::{methods::{DecoderKind, DecoderMethod}, parameters, spec::Kind};
//! # use demask_decode::{Setup, caches::{CacheKind, CacheMethod, CachePolicy}, transfer::{Candidate, State, Transfer}};
//! parameters! {
//!     /// Two parameters.
//!     pub struct Mine {
//!         /// how often
//!         pub every: usize = 1, Kind::count(1, 64);
//!         /// the other
//!         pub other as "A-B": bool = false;
//!     }
//! }
//! impl DecoderKind for Mine {
//!     const NAME: &'static str = "mine";
//!     const SUMMARY: &'static str = "a decoder";
//!     const SOURCE: &'static str = "this example";
//!     const ATTENTION: &'static [demask_step::MaskKind] = &[];
//! }
//! impl Transfer for Mine {
//!     fn choose(&self, _state: &State, _candidates: &mut [Candidate]) -> usize { 1 }
//! }
//! impl CacheKind for Mine {
//!     const NAME: &'static str = "mine";
//!     const SUMMARY: &'static str = "a cache";
//!     const SOURCE: &'static str = "this example";
//!     const ATTENTION: &'static [demask_step::MaskKind] = &[];
//!     fn build(&self, _setup: &Setup<'_>) -> Box<dyn CachePolicy> { unimplemented!() }
//! }
//! static DECODER: DecoderMethod = DecoderMethod::of::<Mine>();
//! static CACHE: CacheMethod = CacheMethod::of::<Mine>();
//! ```

use super::parameters::{Kind, Parameter, has_word};
use demask_settings::names::same;

/// Refuses an unsound method where its entry is made: in a constant, so that it does not compile.
pub(crate) const fn require_sound(name: &str, table: &[Parameter]) {
    assert!(can_be_typed(name), "the method's name cannot be typed: use printable ASCII without : , = \" and spaces");
    if let Some(problem) = problem(table) {
        panic!("{}", problem);
    }
}

/// Returns the problem of a method's parameters; none if they can be typed, read and printed.
const fn problem(table: &[Parameter]) -> Option<&'static str> {
    let [others @ .., Parameter { name, kind, .. }] = table else { return None };
    if let Some(problem) = problem(others) {
        return Some(problem);
    }
    if !can_be_typed(name) {
        return Some("a parameter's key cannot be typed: use printable ASCII without : , = \" and spaces");
    }
    if same(name, "name") {
        return Some("a parameter has the key `name`, which names the method in JSON: give it another key");
    }
    if has_key(others, name) {
        return Some("two parameters have one key: give one of them another");
    }
    let is_empty = match kind.of_values() {
        Kind::Count { least, most } => least > most,
        Kind::Number { least, most } => !(least <= most && least.is_finite() && most.is_finite()),
        Kind::Choice(words) => words.is_empty(),
        Kind::Flag | Kind::Or(..) => false,
    };
    if is_empty {
        return Some("a parameter's bounds hold nothing: correct them");
    }
    if let Kind::Choice(words) = kind.of_values() { problem_of_words(words) } else { None }
}

const fn has_key(table: &[Parameter], key: &str) -> bool {
    if let [others @ .., last] = table { same(last.name, key) || has_key(others, key) } else { false }
}

const fn problem_of_words(words: &[&str]) -> Option<&'static str> {
    let [others @ .., word] = words else { return None };
    if !can_be_typed(word) {
        return Some("a word of a parameter cannot be typed: use printable ASCII without : , = \" and spaces");
    }
    if has_word(others, word) {
        return Some("a parameter takes one word twice: give each word once");
    }
    problem_of_words(others)
}

/// Reports whether a word can be part of a spec.
const fn can_be_typed(word: &str) -> bool {
    !word.is_empty() && can_all_be_typed(word.as_bytes())
}

const fn can_all_be_typed(bytes: &[u8]) -> bool {
    match bytes {
        [] => true,
        [b':' | b',' | b'=' | b'"', ..] => false,
        [first, others @ ..] => first.is_ascii_graphic() && can_all_be_typed(others),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Value;

    fn flag(name: &'static str) -> Parameter {
        Parameter::new::<bool>(name, "", || Value::Flag(false))
    }

    fn of_kind(kind: Kind) -> Parameter {
        let mut parameter = flag("key");
        parameter.kind = kind;
        parameter
    }

    #[test]
    fn names_that_cannot_be_typed_are_found() {
        assert!(["static", "free-cache", "x2", "é"].map(can_be_typed) == [true, true, true, false]);
        for name in ["", "a b", "a:b", "a,b", "a=b", "\"a\"", "a\n"] {
            assert!(!can_be_typed(name), "{name:?}");
            assert!(problem(&[flag(name)]).unwrap().contains("cannot be typed"));
        }
    }

    #[test]
    fn unsound_parameters_are_told_in_plain_words() {
        for (table, expected) in [
            (vec![flag("Name")], "a parameter has the key `name`"),
            (vec![flag("a_b"), flag("c"), flag("A-B")], "two parameters have one key"),
            (vec![flag("c"), of_kind(Kind::count(2, 1))], "a parameter's bounds hold nothing"),
            (vec![of_kind(Kind::number(0.0, f32::NAN))], "a parameter's bounds hold nothing"),
            (vec![of_kind(Kind::number(0.0, f32::INFINITY))], "a parameter's bounds hold nothing"),
            (vec![of_kind(Kind::or_auto(&Kind::Count { least: 2, most: 1 }))], "a parameter's bounds hold nothing"),
            (vec![of_kind(Kind::Choice(&[]))], "a parameter's bounds hold nothing"),
            (vec![of_kind(Kind::Choice(&["a", "b", "A"]))], "a parameter takes one word twice"),
            (vec![of_kind(Kind::Choice(&["a", "b c"]))], "a word of a parameter cannot be typed"),
        ] {
            assert!(
                problem(&table).is_some_and(|found| found.starts_with(expected)),
                "{expected}: {:?}",
                problem(&table)
            );
        }
        assert_eq!(problem(&[flag("a_b"), of_kind(Kind::Choice(&["a", "b"]))]), None);
    }

    #[test]
    #[should_panic(expected = "the method's name cannot be typed")]
    fn a_name_that_cannot_be_typed_ends_the_constant() {
        require_sound("a:b", &[]);
    }

    #[test]
    #[should_panic(expected = "two parameters have one key")]
    fn unsound_parameters_end_the_constant() {
        require_sound("mine", &[flag("a"), flag("A")]);
    }
}
