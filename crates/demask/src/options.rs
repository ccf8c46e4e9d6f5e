//! Options of one generation: one type, whether they come from flags, JSON, a sweep or a program.

use std::{convert::Infallible, fmt, str::FromStr};

use demask_decode::{
    Adjustments, CacheSpec, DecoderSpec, GuideUse, Named, Others, Remasking, Schedule, StopRule,
    constraint::{AtDeadline, Forced, Measured, Space},
};
use demask_settings::settings;

settings! {
    /// Options of one answer. Fields that are `None` are chosen to fit the model. A decoder or a cache that is not named is the
    /// recommended one, also beside the other; beside a named reference, or steps, schedule, eps, remasking or alg_temp, it is
    /// the reference's. `max_tokens` sets the canvas of causal and block-causal models; under full attention the canvas has the
    /// recommended length if that is less.
    ///
    /// ```
    /// # use demask::{Options, Settings};
    /// let options: Options = serde_json::from_str(r#"{"gen_length": 64, "decoder": "threshold:tau=0.9"}"#)?;
    /// assert_eq!(options, Options {
    ///     gen_length: Some(64),
    ///     decoder: Some("threshold:tau=0.9".parse()?),
    ///     ..Options::default()
    /// });
    /// let refused = Options::default().set("step", "12").unwrap_err().to_string();
    /// assert!(refused.starts_with("unknown option \"step\", did you mean \"steps\"?"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Options of "option" removed [
        ("cost_curve", "0.1.0", "omit it, freedave drafts as many lanes as are nearly free"),
    ] {
        /// Positions to decode: the canvas, which under full attention is an input of the answer.
        gen_length: usize, "N" or "the model's";
        /// Tokens that the answer may have at most.
        max_tokens: usize, "N";
        /// Positions of a block.
        block_length: usize, "N" or "the model's";
        /// Denoising steps over all blocks.
        steps: usize, "N" or "one for each token";
        /// Ranking of predictions: `low_confidence`, `random`, `margin`, `entropy`, `left_to_right`, ...
        remasking: Remasking as Word, "NAME" or "the model's";
        /// Rule by which steps share the masks: `even`, `dream`, `dream_total`, `linear`, `rnd1`.
        schedule: Schedule as Word, "NAME" or "the model's";
        /// End of the time of schedule `dream`.
        eps: f32, "E" or "0.001";
        /// Temperature of tokens; 0: the most probable one.
        temperature: f32, "T" or "mostly 0";
        /// Temperature of the order of commits; 0: the best first.
        alg_temp: f32, "T" or "0";
        /// Probability kept by top-p filtering.
        top_p: f32, "P" or "1, all";
        /// Tokens kept by top-k filtering.
        top_k: u32, "K" or "0, all";
        /// Keep tokens that are at least this share as probable as the best one, at the temperature.
        min_p: f32, "P" or "0, all";
        /// Numbers from -100 to 100 that are added to the logits of tokens.
        logit_bias: Vec<(u32, f32)>, "ID:BIAS";
        /// Number that is subtracted from the logit of each token that the answer has so far, from -2 to 2.
        presence_penalty: f32, "PENALTY" or "0";
        /// The same, once for each time that the answer has the token so far.
        frequency_penalty: f32, "PENALTY" or "0";
        /// Number that the logit of each token of the prompt and of the answer so far is divided by, or multiplied with if it is below 0.
        repetition_penalty: f32, "FACTOR" or "1";
        /// Tokens that the answer has before it may end.
        min_tokens: usize, "N";
        /// Texts that the answer has nowhere, not in a longer word either.
        bad_words: Vec<String>, "TEXT";
        /// Scale of classifier-free guidance; 0: none.
        cfg_scale: f32, "SCALE" or "0";
        /// Decoder, as `name` or `name:key=value,key=value`.
        decoder: DecoderSpec as Method, "SPEC" or "the model's";
        /// Cache policy, as `name` or `name:key=value,key=value`.
        cache: CacheSpec as Method, "SPEC" or "the model's";
        /// Most probable tokens whose log-probabilities are kept beside each committed token's own: 0 to 20.
        top_logprobs: usize, "N";
        /// The guide, by its name, of a model that has several.
        guide: String, "NAME";
        /// Texts that end the answer; they are not part of it.
        stop: Vec<String>, "TEXT";
        /// Keep the stop text that ended the answer at its end.
        include_stop: bool, "";
        /// Tokens that end the answer beside the model's own, even with `ignore_eos`; they are part of its tokens.
        stop_token_ids: Vec<u32>, "IDS";
        /// Decode all positions, whatever end tokens they hold, and keep them in the answer.
        ignore_eos: bool, "";
        /// Go on after an end token; the answer still ends there.
        no_early_stop: bool, "";
        /// Rule for an early end: `prefix`, `prefix-fill`, `block`, `whole-block`, `fill`, `end-run:run=N`, `never`.
        stop_rule: StopRule as Word, "RULE" or "prefix";
        /// Never predict the end-of-text token (LLaDA's `logits_eos_inf`).
        suppress_eos: bool, "";
        /// Predict end tokens with confidence 0 (LLaDA's `confidence_eos_eot_inf`).
        eos_confidence_zero: bool, "";
        /// Milliseconds after its preparation when the answer ends with its settled tokens, at the end of a forward.
        deadline_ms: u64, "MS" or "never" in (1, 86_400_000);
        /// Read control tokens from the chat template alone; `false`: from the text of messages too.
        split_special: bool, "BOOL" or "true";
        /// Regular expression that the whole answer matches.
        regex: String, "PATTERN";
        /// Texts of which the answer is one.
        choice: Vec<String>, "TEXT";
        /// JSON schema (draft 2020-12) under which the answer is valid JSON; the name of a file, or the schema.
        json_schema: JsonSchema as Document, "FILE";
        /// The answer is a JSON object.
        json_object: bool, "";
        /// Space in JSON: `compact`, `spaced`, `pretty`.
        json_space: Space as Word, "NAME" or "spaced";
        /// Text that the answer has before the constrained text.
        constraint_before: String, "TEXT";
        /// Text that the answer has after the constrained text.
        constraint_behind: String, "TEXT";
        /// Mark before the constrained text, which follows free text: `</think>`.
        constraint_after: String, "MARK";
        /// Confidence under a constraint: `raw` among all tokens, `allowed` among those that fit.
        constraint_confidence: Measured as Word, "NAME" or "raw";
        /// Commits that a constraint forces: `tokens` that every answer has, or `text`, in the tokenizer's own tokens.
        constraint_forced: Forced as Word, "NAME" or "tokens";
        /// Answer under a constraint when `deadline_ms` are over: `settled`, the part that is; `complete`, filled with what fits best of the last predictions.
        deadline: AtDeadline as Word, "NAME" or "settled";
        /// Key of all randomness.
        seed: u64, "N" or "0, in Python drawn where a temperature is above 0";
    }
}

/// A JSON schema as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonSchema(String);

impl fmt::Display for JsonSchema {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl FromStr for JsonSchema {
    type Err = Infallible;

    /// Takes any text: a fault of the schema is found when a constraint is made of it.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
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

    /// The adjustments of logits that are asked for.
    pub(crate) fn adjustments(&self) -> Adjustments {
        let usual = Adjustments::default();
        Adjustments {
            logit_bias: self.logit_bias.clone().unwrap_or_default(),
            presence_penalty: self.presence_penalty.unwrap_or(usual.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(usual.frequency_penalty),
            repetition_penalty: self.repetition_penalty.unwrap_or(usual.repetition_penalty),
            min_tokens: self.min_tokens.unwrap_or(usual.min_tokens),
        }
    }

    /// Reports whether a message is text, whatever it spells.
    pub(crate) fn splits_special(&self) -> bool {
        self.split_special != Some(false)
    }

    /// Reports whether end tokens are tokens like any other.
    pub(crate) fn ignores_eos(&self) -> bool {
        self.ignore_eos == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use demask_settings::{Kind, Settings};

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
    fn help_shows_the_defaults_that_sessions_have() {
        let facts = demask_decode::ModelFacts {
            mask: demask_step::Mask::Full,
            shift: 0,
            mask_id: Some(7),
            vocab: 8,
            context: 8,
            layers: 1,
            blocks: demask_step::BlockRules::default(),
            free_rows: 1,
        };
        let canvas = demask_decode::CanvasSpec::Prompt { tokens: Vec::new(), gen_length: 1 };
        let session = demask_decode::SessionOptions::new(facts, canvas);
        for (name, default) in [
            ("eps", session.eps.to_string()),
            ("alg_temp", session.alg_temp.to_string()),
            ("cfg_scale", session.cfg_scale.to_string()),
            ("top_p", format!("{}, all", session.top_p)),
            ("top_k", format!("{}, all", session.top_k)),
            ("min_p", format!("{}, all", session.min_p)),
            ("presence_penalty", session.adjustments.presence_penalty.to_string()),
            ("frequency_penalty", session.adjustments.frequency_penalty.to_string()),
            ("repetition_penalty", session.adjustments.repetition_penalty.to_string()),
            ("temperature", format!("mostly {}", session.temperature)),
        ] {
            assert_eq!(Options::field(name).unwrap().usual(), default, "{name}");
        }
        for name in ["gen_length", "decoder", "cache", "seed"] {
            assert!(Options::field(name).unwrap().help().contains(" [default: "), "{name}");
        }
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
                "json_schema" => "{}",
                "logit_bias" => "7:-1",
                "json_space" => "compact",
                "constraint_confidence" => "allowed",
                "constraint_forced" => "text",
                "deadline" => "complete",
                _ if field.kind == Kind::Switch => "on",
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
            (r#"{"stop_rule":1}"#, "`stop_rule` is 1, expected a name"),
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
