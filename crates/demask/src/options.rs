//! Options of one generation: one type, whether they come from flags, JSON, a sweep or a program.

use demask_decode::{
    CacheSpec, DecoderSpec, GuideUse, Named, Others, Remasking, Schedule, StopRule,
    names::{UnknownName, same},
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::Value;

use crate::OptionError;

/// A field of [`Options`], for those who build a parser from the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionField {
    /// The name, in JSON and in messages.
    pub name: &'static str,
    /// Records whether the value is `true` or `false`.
    pub switch: bool,
    /// Records whether it holds several values.
    pub many: bool,
    /// Type of its values.
    pub takes: OptionType,
    /// Description, in a sentence or two.
    pub about: &'static str,
}

/// Type of an option's values, for descriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OptionType {
    /// A whole number from 0 on.
    Count,
    /// A number.
    Number,
    /// True or false.
    Switch,
    /// A text.
    Text,
    /// Texts.
    Texts,
    /// Token ids.
    Tokens,
    /// A word out of several.
    Word,
    /// A method with its parameters.
    Method,
}

impl OptionType {
    /// Returns the types of JSON that a value may have, as JSON Schema calls them.
    pub fn json(self) -> &'static [&'static str] {
        match self {
            Self::Count => &["integer"],
            Self::Number => &["number"],
            Self::Switch => &["boolean"],
            Self::Text | Self::Word => &["string"],
            Self::Texts => &["array", "string"],
            Self::Tokens => &["array", "integer"],
            Self::Method => &["string", "object"],
        }
    }
}

/// Type that an option's value is parsed into.
trait OptionValue: Sized {
    const TAKES: OptionType;
    const SWITCH: bool = false;
    const MANY: bool = false;

    /// Reads what is typed behind a flag; the error says what was expected.
    fn from_text(text: &str) -> Result<Self, Unread>;

    /// Reads a value of JSON, which has types of its own.
    fn from_json(value: Value) -> Result<Self, Unread>;

    /// Joins it with what was set before: takes its place, unless there may be several.
    fn join(self, _before: Option<Self>) -> Self {
        self
    }
}

/// Reason why a value could not be read.
enum Unread {
    /// Error: the value has another type than this.
    Expected(&'static str),
    /// Error: the value has the right type and a wrong content.
    Because(String),
}

const COUNT: &str = "a whole number from 0 on";
const NUMBER: &str = "a number";
const IDS: &str = "a token id or a list of them";
const SWITCH: &str = "true or false";
const TEXT: &str = "a text or a list of texts";

/// Returns the whole number that a value of JSON is; one that is written with a point and nothing behind it (`5.0`) is one, too.
#[doc(hidden)]
pub fn whole(value: &Value) -> Option<i128> {
    /// Up to here each whole number has a float of its own.
    const EXACT: f64 = (1_u64 << 53) as f64;
    let written = value.as_u64().map(i128::from).or_else(|| value.as_i64().map(i128::from));
    written
        .or_else(|| value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= EXACT).map(|n| n as i128))
}

macro_rules! counts {
    ($($of:ty),+) => {$(
        impl OptionValue for $of {
            const TAKES: OptionType = OptionType::Count;

            fn from_text(text: &str) -> Result<Self, Unread> {
                text.trim().parse().map_err(|_| Unread::Expected(COUNT))
            }

            fn from_json(value: Value) -> Result<Self, Unread> {
                whole(&value).and_then(|count| count.try_into().ok()).ok_or(Unread::Expected(COUNT))
            }
        }
    )+};
}

counts!(usize, u32, u64);

impl OptionValue for f32 {
    const TAKES: OptionType = OptionType::Number;

    fn from_text(text: &str) -> Result<Self, Unread> {
        text.trim().parse().map_err(|_| Unread::Expected(NUMBER))
    }

    fn from_json(value: Value) -> Result<Self, Unread> {
        // Through its digits: the nearest f32 of 0.1 is not that of the f64 next to 0.1.
        if value.is_number() { Self::from_text(&value.to_string()) } else { Err(Unread::Expected(NUMBER)) }
    }
}

impl OptionValue for bool {
    const TAKES: OptionType = OptionType::Switch;
    const SWITCH: bool = true;

    fn from_text(text: &str) -> Result<Self, Unread> {
        match text.trim() {
            "true" | "on" => Ok(true),
            "false" | "off" => Ok(false),
            _ => Err(Unread::Expected(SWITCH)),
        }
    }

    fn from_json(value: Value) -> Result<Self, Unread> {
        value.as_bool().ok_or(Unread::Expected(SWITCH))
    }
}

impl OptionValue for String {
    const TAKES: OptionType = OptionType::Text;

    fn from_text(text: &str) -> Result<Self, Unread> {
        Ok(text.to_owned())
    }

    fn from_json(value: Value) -> Result<Self, Unread> {
        if let Value::String(text) = value { Ok(text) } else { Err(Unread::Expected("a text")) }
    }
}

/// Token ids: one is read as a list of one.
impl OptionValue for Vec<u32> {
    const TAKES: OptionType = OptionType::Tokens;
    const MANY: bool = true;

    fn from_text(text: &str) -> Result<Self, Unread> {
        text.split(',').map(|id| id.trim().parse().map_err(|_| Unread::Expected(IDS))).collect()
    }

    fn from_json(value: Value) -> Result<Self, Unread> {
        let id = |value: Value| whole(&value).and_then(|id| id.try_into().ok());
        let ids = match value {
            Value::Array(list) => list.into_iter().map(id).collect(),
            one => id(one).map(|id| vec![id]),
        };
        ids.ok_or(Unread::Expected(IDS))
    }

    fn join(self, before: Option<Self>) -> Self {
        [before.unwrap_or_default(), self].concat()
    }
}

/// Texts: one is read as a list of one.
impl OptionValue for Vec<String> {
    const TAKES: OptionType = OptionType::Texts;
    const MANY: bool = true;

    fn from_text(text: &str) -> Result<Self, Unread> {
        Ok(vec![text.to_owned()])
    }

    fn from_json(value: Value) -> Result<Self, Unread> {
        let text = |value: Value| if let Value::String(text) = value { Some(text) } else { None };
        let texts = match value {
            Value::Array(list) => list.into_iter().map(text).collect(),
            one => text(one).map(|text| vec![text]),
        };
        texts.ok_or(Unread::Expected(TEXT))
    }

    fn join(self, before: Option<Self>) -> Self {
        [before.unwrap_or_default(), self].concat()
    }
}

macro_rules! words {
    ($($of:ty, $expected:literal);+) => {$(
        impl OptionValue for $of {
            const TAKES: OptionType = OptionType::Word;

            fn from_text(text: &str) -> Result<Self, Unread> {
                text.parse().map_err(|error: <$of as std::str::FromStr>::Err| Unread::Because(error.to_string()))
            }

            fn from_json(value: Value) -> Result<Self, Unread> {
                match value {
                    Value::String(text) => Self::from_text(&text),
                    _ => Err(Unread::Expected($expected)),
                }
            }
        }
    )+};
}

words!(Remasking, "a name"; Schedule, "a name"; StopRule, "the name of a stop rule");

macro_rules! methods {
    ($($of:ty),+) => {$(
        impl OptionValue for $of {
            const TAKES: OptionType = OptionType::Method;

            fn from_text(text: &str) -> Result<Self, Unread> {
                text.parse().map_err(|error: demask_decode::SpecError| Unread::Because(error.to_string()))
            }

            fn from_json(value: Value) -> Result<Self, Unread> {
                if !value.is_string() && !value.is_object() {
                    return Err(Unread::Expected("name:key=value,key=value, or an object with a \"name\""));
                }
                serde_json::from_value(value).map_err(|error| Unread::Because(error.to_string()))
            }
        }
    )+};
}

methods!(DecoderSpec, CacheSpec);

/// Written form of an option's value.
trait Written {
    fn write<M: SerializeMap>(&self, name: &'static str, map: &mut M) -> Result<(), M::Error>;
}

macro_rules! written {
    ($($of:ty),+; $($text:ty),+) => {
        $(impl Written for $of {
            fn write<M: SerializeMap>(&self, name: &'static str, map: &mut M) -> Result<(), M::Error> {
                map.serialize_entry(name, self)
            }
        })+
        $(impl Written for $text {
            fn write<M: SerializeMap>(&self, name: &'static str, map: &mut M) -> Result<(), M::Error> {
                map.serialize_entry(name, &self.to_string())
            }
        })+
    };
}

written!(usize, u32, u64, f32, bool, String, Vec<String>, Vec<u32>; Remasking, Schedule, DecoderSpec, CacheSpec, StopRule);

/// Options that version 0.1.0 had, each with an advice.
const REMOVED: &[(&str, &str)] = &[("cost_curve", "omit it, freedave drafts as many lanes as are nearly free")];

/// Declares the options once: the fields, their names, and how they are read and written.
macro_rules! options {
    ($(#[doc = $about:literal])+ pub struct $options:ident {$($(#[doc = $doc:literal])+ $name:ident: $of:ty,)+}) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $options {
            $($(#[doc = $doc])+ pub $name: Option<$of>,)+
        }

        impl $options {
            /// All options, in the order in which they are written out.
            pub const FIELDS: &'static [OptionField] = &[$(OptionField {
                name: stringify!($name),
                switch: <$of as OptionValue>::SWITCH,
                many: <$of as OptionValue>::MANY,
                takes: <$of as OptionValue>::TAKES,
                about: concat!($($doc),+).trim_ascii(),
            }),+];

            /// Sets an option by its name from text, as it is typed behind a flag. Of an option with several values it is
            /// one more.
            ///
            /// ```
            /// # use demask::Options;
            /// let mut options = Options::default();
            /// options.set("decoder", "threshold:tau=0.8")?;
            /// let refused = options.set("step", "12").unwrap_err().to_string();
            /// assert!(refused.starts_with("unknown option \"step\", did you mean \"steps\"?"));
            /// # Ok::<(), demask::Error>(())
            /// ```
            ///
            /// # Errors
            /// If there is no such option, or it does not take this value.
            pub fn set(&mut self, name: &str, text: &str) -> Result<(), crate::Error> {
                $(if same(name, stringify!($name)) {
                    let value = <$of>::from_text(text).map_err(|why| refused(stringify!($name), &format!("{text:?}"), why))?;
                    self.$name = Some(value.join(self.$name.take()));
                    return Ok(());
                })+
                Err(unknown(name).into())
            }

            /// Sets an option by its name from a value of JSON; null leaves it as it is.
            ///
            /// # Errors
            /// If there is no such option, or it does not take this value.
            #[doc(hidden)]
            pub fn set_json(&mut self, name: &str, value: Value) -> Result<(), OptionError> {
                $(if same(name, stringify!($name)) {
                    // What is null is left to be chosen, as what is not there.
                    if !value.is_null() {
                        let found = value.to_string();
                        let value = <$of>::from_json(value).map_err(|why| refused(stringify!($name), &found, why))?;
                        self.$name = Some(value);
                    }
                    return Ok(());
                })+
                Err(unknown(name))
            }

            /// Returns the names of the options that are set.
            pub fn given(&self) -> Vec<&'static str> {
                let mut given = Vec::new();
                $(if self.$name.is_some() {
                    given.push(stringify!($name));
                })+
                given
            }
        }

        /// Writes the options that are set, and no others.
        impl Serialize for $options {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                $(if let Some(value) = &self.$name {
                    value.write(stringify!($name), &mut map)?;
                })+
                map.end()
            }
        }
    };
}

options! {
    /// Options of one answer. Fields that are `None` are chosen to fit the model. A decoder or a cache that is not named is the
    /// recommended one, also beside the other; beside a named reference, or steps, schedule, eps, remasking or alg_temp, it is
    /// the reference's.
    ///
    /// ```
    /// # use demask::Options;
    /// let options: Options = serde_json::from_str(r#"{"gen_length": 64, "decoder": "threshold:tau=0.9"}"#)?;
    /// assert_eq!(options, Options {
    ///     gen_length: Some(64),
    ///     decoder: Some("threshold:tau=0.9".parse()?),
    ///     ..Options::default()
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Options {
        /// Positions to decode: the canvas, which under full attention is an input of the answer.
        gen_length: usize,
        /// Tokens that the answer may have at most. It sets the canvas of causal and block-causal models; under full attention
        /// the canvas has the recommended length if that is less, whatever this is.
        max_tokens: usize,
        /// Positions of a block.
        block_length: usize,
        /// Denoising steps over all blocks.
        steps: usize,
        /// Quantity that ranks predictions.
        remasking: Remasking,
        /// Rule by which steps share the masks.
        schedule: Schedule,
        /// End of Dream's time.
        eps: f32,
        /// Temperature of tokens; 0: the most probable one.
        temperature: f32,
        /// Temperature of the order of commits; 0: the best first.
        alg_temp: f32,
        /// Probability kept by top-p filtering.
        top_p: f32,
        /// Tokens kept by top-k filtering.
        top_k: u32,
        /// Scale of classifier-free guidance; 0: none.
        cfg_scale: f32,
        /// Decoder.
        decoder: DecoderSpec,
        /// Cache policy.
        cache: CacheSpec,
        /// Keep the log-probability of each committed token, and of so many of the most probable tokens beside it: 0 to 20.
        top_logprobs: usize,
        /// The guide, by its name, of a model that has several.
        guide: String,
        /// Texts that end the answer; they are not part of it.
        stop: Vec<String>,
        /// Keep the stop text that ended the answer at its end.
        include_stop: bool,
        /// Tokens that end the answer beside the model's own, even with `ignore_eos`; they are part of its tokens.
        stop_token_ids: Vec<u32>,
        /// Decode all positions, whatever end tokens stand there, and keep them in the answer.
        ignore_eos: bool,
        /// Go on behind an end token; the answer still ends there.
        no_early_stop: bool,
        /// Rule for ending before everything is decoded; unset: once no mask stands before an end token.
        stop_rule: StopRule,
        /// Never predict the end-of-text token (LLaDA's `logits_eos_inf`).
        suppress_eos: bool,
        /// Predict end tokens with confidence 0 (LLaDA's `confidence_eos_eot_inf`).
        eos_confidence_zero: bool,
        /// Milliseconds from its preparation on after which the answer ends, with what is settled, at the end of a forward;
        /// never if it is not set.
        deadline_ms: u64,
        /// Read control tokens from the chat template alone; `false`: from the text of messages too.
        split_special: bool,
        /// Key of all randomness; 0 if it is not set.
        seed: u64,
    }
}

impl Options {
    /// Reports whether something is set that belongs to the reference: the methods that are not named are then its own.
    fn sets_reference(&self) -> bool {
        let order = self.remasking.is_some() || self.alg_temp.is_some();
        order || self.steps.is_some() || self.schedule.is_some() || self.eps.is_some()
    }

    /// Returns the methods that are named, and the source of the others where this is the usual one.
    pub(crate) fn named(&self, usual: Others) -> Named {
        let others = if self.sets_reference() { Others::Reference } else { usual };
        Named { decoder: self.decoder.clone(), cache: self.cache.clone(), others }
    }

    /// Returns whether the decoder wants a guide; a model that has one decodes without it too.
    pub fn wants_guide(&self) -> bool {
        self.guide_use().is_some()
    }

    /// Returns how the decoder uses its guide; none if it has none.
    pub(crate) fn guide_use(&self) -> Option<GuideUse> {
        self.decoder.as_ref().and_then(|decoder| decoder.traits().guide)
    }

    /// Returns whether decoding may end at an end token, before everything is decoded.
    pub fn stops_early(&self) -> bool {
        let ends = !self.ignores_eos() || self.stop_token_ids.as_ref().is_some_and(|ids| !ids.is_empty());
        ends && self.early_stop() != StopRule::Never
    }

    /// The stop rule that is asked for, or the usual one.
    pub(crate) fn early_stop(&self) -> StopRule {
        match self.no_early_stop {
            Some(true) => StopRule::Never,
            _ => self.stop_rule.unwrap_or(StopRule::Prefix),
        }
    }

    /// Reports whether what a message spells is text, whatever it spells.
    pub(crate) fn splits_special(&self) -> bool {
        self.split_special != Some(false)
    }

    /// Reports whether end tokens are tokens like any other.
    pub(crate) fn ignores_eos(&self) -> bool {
        self.ignore_eos == Some(true)
    }
}

impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OptionsVisitor)
    }
}

struct OptionsVisitor;

impl<'de> Visitor<'de> for OptionsVisitor {
    type Value = Options;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object of options")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Options, A::Error> {
        let (mut options, mut seen) = (Options::default(), Vec::new());
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            options.set_json(&name, value).map_err(A::Error::custom)?;
            if seen.iter().any(|other: &String| same(other, &name)) {
                return Err(A::Error::custom(format_args!("`{name}` is there twice, give it once")));
            }
            seen.push(name);
        }
        Ok(options)
    }
}

fn unknown(name: &str) -> OptionError {
    if let Some(&(option, instead)) = REMOVED.iter().find(|(option, _)| same(option, name)) {
        return OptionError::Removed { option, version: "0.1.0", instead };
    }
    let known = Options::FIELDS.iter().map(|field| field.name).collect();
    OptionError::Unknown(UnknownName { what: "option", found: name.to_owned(), known })
}

fn refused(option: &'static str, found: &str, why: Unread) -> OptionError {
    match why {
        Unread::Expected(expected) => {
            OptionError::Value { option, found: found.to_owned(), expected: expected.to_owned() }
        }
        Unread::Because(why) => OptionError::Method(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Options, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read_back_and_names_only_what_is_set() {
        let json = r#"{"gen_length":64,"remasking":"entropy","schedule":"dream","temperature":0.1,"top_k":5,
            "decoder":"threshold:tau=0.8","cache":"dual","stop":["a","b"],"ignore_eos":false,"seed":18446744073709551615}"#;
        let options = read(json).unwrap();
        assert_eq!(options.temperature, Some(0.1));
        assert_eq!(serde_json::to_string(&options).unwrap(), json.replace(char::is_whitespace, ""));
        assert_eq!(serde_json::to_string(&Options::default()).unwrap(), "{}");
        assert_eq!(read(r#"{"decoder":{"name":"threshold","tau":0.8},"stop":"a","top_p":null}"#).unwrap().top_p, None);
    }

    #[test]
    fn each_option_is_set_by_its_name_from_text() {
        for field in Options::FIELDS {
            let text = match field.name {
                "remasking" => "margin",
                "schedule" => "even",
                "stop_rule" => "whole-block",
                "decoder" => "static",
                "cache" => "none",
                _ if field.switch => "on",
                _ => "1",
            };
            let mut options = Options::default();
            options.set(&field.name.replace('_', "-"), text).unwrap();
            assert_eq!(options.given(), [field.name]);
            let json = serde_json::to_string(&options).unwrap();
            assert_eq!(read(&json).unwrap(), options, "{json}");
        }
    }

    #[test]
    fn wrong_options_are_refused_in_one_line_that_names_them() {
        for (json, told) in [
            (r#"{"gen_length":64,"gen-length":8}"#, "`gen-length` is there twice, give it once"),
            (r#"{"step":1}"#, "unknown option \"step\", did you mean \"steps\"? (known: gen_length, "),
            (
                r#"{"cost-curve":"shipped"}"#,
                "`cost_curve` was removed, version 0.1.0 had it: omit it, freedave drafts as many lanes as are nearly free",
            ),
            (r#"{"steps":"1"}"#, "`steps` is \"1\", expected a whole number from 0 on"),
            (r#"{"steps":-1}"#, "`steps` is -1, expected a whole number from 0 on"),
            (r#"{"steps":1.5}"#, "`steps` is 1.5, expected a whole number from 0 on"),
            (r#"{"top_k":4294967296}"#, "`top_k` is 4294967296, expected a whole number from 0 on"),
            (r#"{"eps":"x"}"#, "`eps` is \"x\", expected a number"),
            (r#"{"ignore_eos":1}"#, "`ignore_eos` is 1, expected true or false"),
            (r#"{"stop":[1]}"#, "`stop` is [1], expected a text or a list of texts"),
            (r#"{"remasking":1}"#, "`remasking` is 1, expected a name"),
            (r#"{"stop_rule":1}"#, "`stop_rule` is 1, expected the name of a stop rule"),
            (r#"{"stop_rule":"blok"}"#, "unknown stop rule \"blok\", did you mean \"block\"?"),
            (r#"{"decoder":7}"#, "`decoder` is 7, expected name:key=value,key=value, or an object with a \"name\""),
            (r#"{"decoder":"treshold"}"#, "unknown decoder \"treshold\", did you mean \"threshold\"?"),
            (r#"{"decoder":{"name":"threshold","tau":9}}"#, "threshold: tau is \"9\", expected a number from 0 to 1"),
            (r#"{"seed":1,"seed":2}"#, "`seed` is there twice, give it once"),
            (r"[]", "invalid type: sequence, expected an object of options"),
        ] {
            let refused = read(json).unwrap_err();
            assert!(refused.starts_with(told) && !refused.contains('\n'), "{json}: {refused}");
        }
        let mut options = Options::default();
        let refused = options.set("temperature", "hot").unwrap_err().to_string();
        assert_eq!(refused, "`temperature` is \"hot\", expected a number");
    }
}
