//! Methods as people name them: `name` or `name:key=value,key=value`.
//!
//! A method declares its parameters once, as a struct; parsing, canonical text, JSON and documentation all read that
//! declaration, and a spec gives the struct back.
//!
//! ```
//! use demask_decode::{DecoderSpec, methods::Threshold};
//! let spec: DecoderSpec = "threshold:tau=0.8,strict".parse().unwrap();
//! assert_eq!(spec.to_string(), "threshold:tau=0.8,strict=true");
//! assert_eq!(spec, Threshold { tau: 0.8, strict: true, ..Threshold::default() }.into());
//! assert_eq!(spec.parameters::<Threshold>().map(|threshold| threshold.tau), Some(0.8));
//! ```

mod parameters;
mod sound;

use std::{any::TypeId, fmt, str::FromStr};

use demask_step::MaskKind;

use demask_settings::names::{UnknownName, in_a_line, same};

pub use parameters::{Field, Kind, OrAuto, Parameter, Parameters, Preset, Value};
pub(crate) use sound::require_sound;

/// Facts about a method: everything that documentation and parsing need.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// Its effect in one line.
    pub summary: &'static str,
    /// Paper or program, and the section of the specifications.
    pub source: &'static str,
    /// The models it decodes or serves.
    pub attention: &'static [MaskKind],
    /// Parameters of the method, in canonical order.
    pub parameters: &'static [Parameter],
    /// Name and version of the crate that has it.
    pub of_crate: (&'static str, &'static str),
    /// The struct of the parameters.
    pub(crate) of: TypeId,
}

impl About {
    /// Describes a method whose parameters are `P`.
    pub(crate) const fn new<P: Parameters>(
        name: &'static str,
        summary: &'static str,
        source: &'static str,
        attention: &'static [MaskKind],
    ) -> Self {
        Self { name, summary, source, attention, parameters: P::TABLE, of_crate: P::CRATE, of: TypeId::of::<P>() }
    }
}

/// Parameters that version 0.1.0 had: method, parameter, and the value that went, if others stayed.
const REMOVED: &[(&str, &str, Option<&str>)] = &[
    ("dllm", "phase", Some("block")),
    ("dllm", "rows", Some("predicted")),
    ("dllm", "select", None),
    ("dllm", "layer", None),
    ("dllm", "doubt", None),
    ("freecache", "block", Some("auto")),
    ("freecache", "sure", None),
    ("freecache", "hold", None),
    ("guided", "align", Some("table")),
    ("guided", "align", Some("pieces")),
    ("selfspec", "window", None),
];

/// An entry of a registry of methods.
pub trait Method: Sized + fmt::Debug + 'static {
    /// The other registry, in which a name may be that is looked for in this one.
    type Other: Method;

    /// Kind of the registry's entries, for messages: `decoder`, `cache`.
    const WHAT: &'static str;

    /// Returns the methods of this crate, the default first.
    fn built_in() -> &'static [Self];

    /// Returns the methods that the program knows, the default first: those of this crate, unless others were installed.
    fn known() -> &'static [&'static Self];

    /// Makes these the methods that the program knows; false where it knows some already.
    fn install(methods: Vec<&'static Self>) -> bool;

    /// Returns the entry's description.
    fn about(&self) -> &About;
}

/// A method of a registry with a value for each of its parameters.
pub struct Spec<M: Method> {
    method: &'static M,
    values: Vec<Value>,
}

/// The canonical text: the rest of a registry entry is the same everywhere.
impl<M: Method> fmt::Debug for Spec<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", M::WHAT)
    }
}

impl<M: Method> Clone for Spec<M> {
    fn clone(&self) -> Self {
        Self { method: self.method, values: self.values.clone() }
    }
}

impl<M: Method> PartialEq for Spec<M> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.values == other.values
    }
}

impl<M: Method> Default for Spec<M> {
    /// The first method of the registry, with its defaults.
    fn default() -> Self {
        Self::of(&M::built_in()[0])
    }
}

impl<M: Method> Spec<M> {
    /// Returns a method with its defaults.
    pub fn of(method: &'static M) -> Self {
        Self { method, values: method.about().parameters.iter().map(Parameter::default).collect() }
    }

    /// Returns a method with these parameters, which must be its own.
    pub(crate) fn with<P: Parameters>(method: &'static M, parameters: &P) -> Self {
        debug_assert_eq!(method.about().of, TypeId::of::<P>(), "parameters of another method");
        Self { method, values: parameters.values() }
    }

    /// Reads `name` or `name:key=value,key=value`, where the name is one of these methods. A number in front, without a key, is
    /// the value of the first key.
    pub(crate) fn read(text: &str, known: &[&'static M]) -> Result<Self, SpecError> {
        let text = text.trim();
        let (name, pairs) = text.split_once(':').unwrap_or((text, ""));
        let method = named(name.trim(), known).ok_or_else(|| Self::unknown(text, name.trim(), known))?;
        let pairs = pairs.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        let pairs = pairs.enumerate().map(|(place, pair)| match (pair.split_once('='), first_key(method)) {
            (Some(pair), _) => pair,
            (None, Some(first)) if place == 0 && is_number(pair) => (first, pair),
            (None, _) => (pair, "true"),
        });
        Self::of_pairs(method, pairs.map(|(key, value)| (key.trim(), value.trim())))
    }

    /// Returns the refusal of a `name` that no method has. `text` is all that was typed.
    fn unknown(text: &str, name: &str, known: &[&'static M]) -> SpecError {
        if let Some((before, after)) = text.split_once('=')
            && let Some(method) = named(before.trim(), known)
        {
            let (name, after) = (method.about().name, after.trim());
            let write = match first_key(method) {
                Some(first) if is_number(after) => format!("{name}:{first}={after}"),
                Some(_) => format!("{name}:{after}"),
                None => name.to_owned(),
            };
            return SpecError::NoColon { what: M::WHAT, found: text.to_owned(), write };
        }
        if let Some(other) = named(name, M::Other::known()) {
            return SpecError::OfOther { what: M::Other::WHAT, name: other.about().name };
        }
        let known = known.iter().map(|method| method.about().name).collect();
        UnknownName { what: M::WHAT, found: name.to_owned(), known }.into()
    }

    /// Returns a method with its parameters as pairs of key and text.
    fn of_pairs<'a>(
        method: &'static M,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, SpecError> {
        let mut spec = Self::of(method);
        let mut given = vec![false; spec.values.len()];
        for (key, text) in pairs {
            let index = spec.set(key, text)?;
            if std::mem::replace(&mut given[index], true) {
                return Err(SpecError::Twice { method: method.about().name, key: key.to_owned() });
            }
        }
        Ok(spec)
    }

    /// Returns the registry entry.
    pub fn method(&self) -> &'static M {
        self.method
    }

    /// Returns whether the method is one of this crate.
    pub fn is_built_in(&self) -> bool {
        M::built_in().iter().any(|method| method.about().of == self.method.about().of)
    }

    /// Returns the method's name.
    pub fn name(&self) -> &'static str {
        self.method.about().name
    }

    /// Returns the parameters, if the method is the one that has these.
    pub fn parameters<P: Parameters>(&self) -> Option<P> {
        (self.method.about().of == TypeId::of::<P>()).then(|| P::of_values(&self.values))
    }

    /// Returns each parameter with its value, in canonical order.
    pub fn values(&self) -> impl Iterator<Item = (&'static Parameter, Value)> {
        self.method.about().parameters.iter().zip(self.values.iter().copied())
    }

    /// Returns the bare values, in canonical order.
    pub(crate) fn bare(&self) -> &[Value] {
        &self.values
    }

    /// Refuses values out of bounds, which a spec made from a struct may have.
    pub(crate) fn check_bounds(&self) -> Result<(), SpecError> {
        match self.values().find(|(parameter, value)| !parameter.kind.holds(*value)) {
            Some((parameter, value)) => Err(self.bad_value(parameter, value.to_string())),
            None => Ok(()),
        }
    }

    fn bad_value(&self, parameter: &Parameter, found: String) -> SpecError {
        SpecError::BadValue {
            method: self.name(),
            key: parameter.name,
            found,
            expected: parameter.kind.to_string(),
            default: parameter.default().to_string(),
        }
    }

    fn set(&mut self, key: &str, text: &str) -> Result<usize, SpecError> {
        let about = self.method.about();
        let gone = |&&(method, parameter, value): &&(&str, &str, Option<&str>)| {
            method == about.name && same(parameter, key) && value.is_none_or(|value| same(value, text))
        };
        if let Some(&(method, key, value)) = REMOVED.iter().find(gone) {
            return Err(SpecError::Removed { method, key, value });
        }
        let index = about.parameters.iter().position(|parameter| same(parameter.name, key));
        let index = index.ok_or_else(|| SpecError::UnknownKey {
            method: about.name,
            source: UnknownName {
                what: "parameter",
                found: key.to_owned(),
                known: about.parameters.iter().map(|parameter| parameter.name).collect(),
            },
        })?;
        let parameter = &about.parameters[index];
        self.values[index] = parameter.kind.read(text).ok_or_else(|| self.bad_value(parameter, text.to_owned()))?;
        Ok(index)
    }
}

/// Reads the methods that the program knows.
impl<M: Method> FromStr for Spec<M> {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::read(text, M::known())
    }
}

/// Returns the method of a name.
fn named<M: Method>(name: &str, known: &[&'static M]) -> Option<&'static M> {
    known.iter().copied().find(|method| same(method.about().name, name))
}

/// Returns the key that a number without one is the value of.
fn first_key<M: Method>(method: &M) -> Option<&'static str> {
    method.about().parameters.first().map(|parameter| parameter.name)
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// The canonical text, which parses back to the same spec: numbers always, flags and words only where they differ from
/// their default.
impl<M: Method> fmt::Display for Spec<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let mut separator = ':';
        for (parameter, value) in self.values() {
            let told = matches!(value, Value::Count(_) | Value::Number(_));
            if value == Value::Fit || (!told && value == parameter.default()) {
                continue;
            }
            write!(f, "{separator}{}={value}", parameter.name)?;
            separator = ',';
        }
        Ok(())
    }
}

impl<M: Method> serde::Serialize for Spec<M> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads the text, or `{"name": ..., key: value}`.
impl<'de, M: Method> serde::Deserialize<'de> for Spec<M> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpecVisitor(std::marker::PhantomData))
    }
}

struct SpecVisitor<M>(std::marker::PhantomData<M>);

impl<'de, M: Method> serde::de::Visitor<'de> for SpecVisitor<M> {
    type Value = Spec<M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} as text or as an object with a \"name\"", M::WHAT)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Spec<M>, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Spec<M>, A::Error> {
        use serde::de::Error;
        let (mut name, mut pairs) = (None, Vec::new());
        while let Some((key, Scalar(value))) = map.next_entry::<String, Scalar>()? {
            if key == "name" {
                if name.replace(value).is_some() {
                    return Err(A::Error::custom("`name` is there twice, give it once"));
                }
            } else {
                pairs.push((key, value));
            }
        }
        let name = name.ok_or_else(|| A::Error::missing_field("name"))?;
        let (pairs, known) = (pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())), M::known());
        let method = named(&name, known).ok_or_else(|| A::Error::custom(Spec::unknown(&name, &name, known)))?;
        Spec::of_pairs(method, pairs).map_err(A::Error::custom)
    }
}

/// A JSON value of a parameter, as the text that it would be on the command line.
struct Scalar(String);

impl<'de> serde::Deserialize<'de> for Scalar {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl serde::de::Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a word, true or false")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar(value.to_owned()))
    }
}

/// Names of the program's methods of which something is true, as alternatives in a sentence.
pub(crate) fn alternatives<M: Method>(holds: impl Fn(&Spec<M>) -> bool) -> String {
    let names = M::known().iter().filter(|method| holds(&Spec::of(method))).map(|method| method.about().name);
    names.collect::<Vec<_>>().join(" or ")
}

/// A method that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// No such method.
    #[error(transparent)]
    UnknownMethod(#[from] UnknownName),
    /// The name is one of the other registry.
    #[error("{name} is a {what}: give it as `{what}` {name}")]
    OfOther {
        /// Kind that it is.
        what: &'static str,
        /// The name.
        name: &'static str,
    },
    /// The parameters follow an equals sign.
    #[error("unknown {what} \"{}\": write {}", in_a_line(found), in_a_line(write))]
    NoColon {
        /// Kind of method.
        what: &'static str,
        /// Text that was found.
        found: String,
        /// The text that is meant.
        write: String,
    },
    /// The method has no such parameter.
    #[error("{method}: {source}")]
    UnknownKey {
        /// The method.
        method: &'static str,
        /// The key, and the known keys.
        source: UnknownName,
    },
    /// The parameter was given twice.
    #[error("{method}: {key} is set twice, expected once: omit one")]
    Twice {
        /// The method.
        method: &'static str,
        /// The key.
        key: String,
    },
    /// The parameter, or this value of it, was removed.
    #[error("{method}: {key}{} was removed, version 0.1.0 had it: omit it", value.map_or_else(String::new, |value| format!("={value}")))]
    Removed {
        /// The method.
        method: &'static str,
        /// The key.
        key: &'static str,
        /// The value, if others stayed.
        value: Option<&'static str>,
    },
    /// The parameter does not take this value.
    #[error("{method}: {key} is \"{}\", expected {expected} (default: {default})", in_a_line(found))]
    BadValue {
        /// The method.
        method: &'static str,
        /// The key.
        key: &'static str,
        /// Value that was found.
        found: String,
        /// Expected values.
        expected: String,
        /// The default, in words.
        default: String,
    },
}

#[cfg(test)]
mod tests {
    use crate::{CacheSpec, DecoderSpec};

    fn refusal(text: &str) -> String {
        text.parse::<DecoderSpec>().unwrap_err().to_string()
    }

    #[test]
    fn canonical_text_parses_back() {
        for (text, canonical) in [
            ("static", "static"),
            ("Static:", "static"),
            ("static:steps=12", "static:steps=12"),
            (" threshold ", "threshold:tau=0.9"),
            ("threshold: quota , tau = 0.85, strict=true", "threshold:tau=0.85,strict=true,quota=true"),
            ("entropy-bounded:eb=4", "entropy_bounded:eb=4"),
            ("guided:match=TopK-relative,target=dlm", "guided:match=topk_relative,k=2,tau=0.5,verify=32"),
            ("freedave", "freedave"),
            ("freedave:d=Auto", "freedave"),
            ("freedave:mode=Reference,eager,d=4", "freedave:d=4,mode=reference,eager=true"),
            ("freedave:rule=subset,tau=0.5,eager=false", "freedave:eager=false,tau=0.5,rule=subset"),
            ("ar", "ar"),
            ("factor", "factor:f=1"),
            ("factor:rule=Code,f=0.5", "factor:f=0.5,rule=code"),
            ("factor:rule=clean", "factor:f=1"),
            ("threshold:confidence=Tempered", "threshold:tau=0.9,confidence=tempered"),
            ("threshold:confidence=clean", "threshold:tau=0.9"),
        ] {
            let spec: DecoderSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), canonical);
            assert_eq!(canonical.parse::<DecoderSpec>().unwrap(), spec);
        }
        assert_eq!(CacheSpec::default().to_string(), "none");
        assert_eq!(DecoderSpec::default().to_string(), "static");
    }

    #[test]
    fn a_lone_number_is_the_value_of_the_first_key() {
        for (text, canonical) in [
            ("threshold:0.8", "threshold:tau=0.8"),
            ("threshold: 0.8 , strict", "threshold:tau=0.8,strict=true"),
            ("static:12", "static:steps=12"),
            ("factor:2,rule=code", "factor:f=2,rule=code"),
            ("freedave:4", "freedave:d=4"),
        ] {
            assert_eq!(text.parse::<DecoderSpec>().unwrap().to_string(), canonical);
        }
        assert_eq!("dllm:8".parse::<CacheSpec>().unwrap(), "dllm:prompt=8".parse().unwrap());
        assert_eq!(refusal("threshold:7"), "threshold: tau is \"7\", expected a number from 0 to 1 (default: 0.9)");
        assert_eq!(refusal("threshold:0.8,tau=0.9"), "threshold: tau is set twice, expected once: omit one");
        assert!(refusal("threshold:strict,0.8").starts_with("threshold: unknown parameter \"0.8\""));
        assert_eq!(refusal("ar:3"), "ar: unknown parameter \"3\": none exist here");
    }

    #[test]
    fn an_equals_sign_in_place_of_the_colon_is_shown_as_it_should_be() {
        for (text, write) in [
            ("threshold=0.8", "threshold:tau=0.8"),
            ("Threshold = 0.8", "threshold:tau=0.8"),
            ("threshold=tau=0.8,strict", "threshold:tau=0.8,strict"),
            ("ar=1", "ar"),
        ] {
            assert_eq!(refusal(text), format!("unknown decoder \"{text}\": write {write}"));
            assert!(write.parse::<DecoderSpec>().is_ok(), "{write}");
        }
        assert!(refusal("treshold=0.8").starts_with("unknown decoder \"treshold=0.8\""));
    }

    #[test]
    fn a_name_of_the_other_kind_says_which_kind_it_is() {
        assert_eq!(refusal("dual"), "dual is a cache: give it as `cache` dual");
        assert_eq!(refusal("Dual:idle"), "dual is a cache: give it as `cache` dual");
        let refused = "threshold".parse::<CacheSpec>().unwrap_err().to_string();
        assert_eq!(refused, "threshold is a decoder: give it as `decoder` threshold");
        let object = serde_json::from_str::<DecoderSpec>(r#"{"name": "dual"}"#).unwrap_err().to_string();
        assert!(object.starts_with("dual is a cache: "), "{object}");
    }

    #[test]
    fn json_is_read_as_text_and_as_object() {
        let text: DecoderSpec = serde_json::from_str(r#""threshold:tau=0.5""#).unwrap();
        let object: DecoderSpec =
            serde_json::from_str(r#"{"tau": 0.5, "name": "threshold", "strict": false}"#).unwrap();
        assert_eq!(text, object);
        assert_eq!(serde_json::to_string(&object).unwrap(), r#""threshold:tau=0.5""#);
        assert!(serde_json::from_str::<DecoderSpec>(r#"{"tau": 0.5}"#).is_err());
        let twice = serde_json::from_str::<DecoderSpec>(r#"{"name": "static", "name": "threshold"}"#).unwrap_err();
        assert!(twice.to_string().starts_with("`name` is there twice, give it once"), "{twice}");
        assert!(serde_json::from_str::<DecoderSpec>(r#"{"name": "threshold", "tau": [1]}"#).is_err());
    }

    #[test]
    fn what_was_removed_is_refused_by_name_with_the_version_that_had_it() {
        for (text, told) in [
            ("dllm:phase=block", "dllm: phase=block was removed, version 0.1.0 had it: omit it"),
            ("dllm:rows=Predicted", "dllm: rows=predicted was removed, version 0.1.0 had it: omit it"),
            ("dllm:select=layer", "dllm: select was removed, version 0.1.0 had it: omit it"),
            ("dllm:layer=2", "dllm: layer was removed, version 0.1.0 had it: omit it"),
            ("dllm:doubt=0.5", "dllm: doubt was removed, version 0.1.0 had it: omit it"),
            ("freecache:block=auto", "freecache: block=auto was removed, version 0.1.0 had it: omit it"),
            ("freecache:sure=0.5", "freecache: sure was removed, version 0.1.0 had it: omit it"),
            ("freecache:block=4,hold=2", "freecache: hold was removed, version 0.1.0 had it: omit it"),
        ] {
            assert_eq!(text.parse::<CacheSpec>().unwrap_err().to_string(), told);
        }
        assert_eq!(refusal("selfspec:window=adaptive"), "selfspec: window was removed, version 0.1.0 had it: omit it");
        assert_eq!(refusal("guided:align=table"), "guided: align=table was removed, version 0.1.0 had it: omit it");
        assert_eq!(refusal("guided:align=pieces"), "guided: align=pieces was removed, version 0.1.0 had it: omit it");
        // What stays is as it was.
        assert!("dllm:phase=down,rows=drift,count=forwards".parse::<CacheSpec>().is_ok());
        let told = "freecache:block=most".parse::<CacheSpec>().unwrap_err().to_string();
        assert!(told.starts_with("freecache: block is \"most\", expected a whole number from 1"), "{told}");
    }

    #[test]
    fn mistakes_get_one_clear_line() {
        assert_eq!(
            refusal("treshold:tau=0.9"),
            "unknown decoder \"treshold\", did you mean \"threshold\"? (known: static, threshold, factor, entropy_bounded, slowfast, edit, p2, freedave, guided, ar, selfspec, isd)"
        );
        assert_eq!(
            refusal("threshold:tua=0.9"),
            "threshold: unknown parameter \"tua\", did you mean \"tau\"? (known: tau, strict, quota, cap, sub, confidence)"
        );
        assert_eq!(refusal("threshold:tau=2"), "threshold: tau is \"2\", expected a number from 0 to 1 (default: 0.9)");
        assert_eq!(refusal("threshold:tau=0.1,tau=0.2"), "threshold: tau is set twice, expected once: omit one");
        assert_eq!(
            refusal("static:steps=0"),
            "static: steps is \"0\", expected a whole number from 1 on (default: chosen to fit)"
        );
        assert_eq!(
            refusal("guided:align=letters"),
            "guided: align is \"letters\", expected one of ids, bytes (default: chosen to fit)"
        );
        assert_eq!(
            refusal("factor:rule=cold"),
            "factor: rule is \"cold\", expected one of clean, code (default: clean)"
        );
        assert_eq!(
            refusal("freedave:rule=superset"),
            "freedave: rule is \"superset\", expected one of exact, subset (default: exact)"
        );
        assert_eq!(
            refusal("freedave:d=most"),
            "freedave: d is \"most\", expected auto or a whole number from 1 to 256 (default: auto)"
        );
        assert_eq!(refusal("ar:x=1"), "ar: unknown parameter \"x\": none exist here");
        for text in ["", ":", "threshold:tau", "threshold:tau=NaN", "threshold:strict=1", "threshold:tau=inf", "=,=:"] {
            assert!(text.parse::<DecoderSpec>().is_err(), "{text}");
        }
    }
}
