//! Options of an answer with everything chosen that they leave open, and what chose it.

use demask_checkpoint::Holes;
use demask_decode::{CanvasSpec, Schedule, Session, SessionOptions, StopRule};
use demask_engine::Request;
use demask_settings::Settings as _;
use demask_step::Mask;

use crate::{
    ModelInfo, Options,
    length::{Length, Limit},
};

/// Options that a receipt has beside its `settings`; a guide is there by its model.
const REPORTED: [&str; 8] = ["decoder", "cache", "remasking", "schedule", "steps", "block_length", "seed", "guide"];

/// Options of an answer: each that has a meaning for it, with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// The options. Switches and lists that are off are unset.
    pub options: Options,
    /// Options that were left open, and that the checkpoint's files decided.
    pub by_checkpoint: Vec<&'static str>,
    /// Options that were left open, and that are the family's own.
    pub by_family: Vec<&'static str>,
    /// Records whether the number of steps was set, and is not one for each token.
    sets_steps: bool,
    length: Length,
}

impl Chosen {
    /// Returns the options of a request that a model has prepared; none of a job that is no answer.
    pub fn of(request: &Request) -> Option<&Self> {
        request.note()
    }

    /// Returns how to get a longer answer, for one that is cut by its length.
    pub(crate) fn when_cut(&self) -> Option<String> {
        self.length.when_cut()
    }

    /// Returns the options that a receipt does not have elsewhere.
    pub(crate) fn beside_receipt(&self) -> Options {
        let steps = self.options.steps.filter(|_| self.sets_steps);
        let own = self.options.without(&REPORTED);
        Options { steps, ..own }
    }
}

impl ModelInfo {
    /// Returns the options of a canvas that is laid out.
    pub(crate) fn chosen(&self, session: &Session, options: &Options, length: Length) -> Chosen {
        let own = session.options();
        let infills = matches!(own.canvas, CanvasSpec::Infill { .. });
        let causal = own.facts.mask == Mask::Causal || self.facts().mask == Mask::Causal;
        let greedy = own.temperature == 0.0;
        // What orders predictions: neither a causal model nor a guide takes any order but from left to right.
        let ordered = !causal && own.guide.is_none();
        let timed = matches!(own.schedule, Schedule::Dream | Schedule::DreamTotal);
        let filters = !(causal && greedy);
        let on = |switch: Option<bool>| switch.filter(|on| *on);
        let stops = !infills && !options.ignores_eos();
        let whole = Options {
            gen_length: (!infills).then_some(length.canvas),
            max_tokens: options.max_tokens,
            block_length: (!causal).then(|| session.layout().block_length()),
            steps: ordered.then(|| session.steps()),
            remasking: ordered.then_some(own.remasking),
            schedule: ordered.then_some(own.schedule),
            eps: (ordered && timed).then_some(own.eps),
            temperature: Some(own.temperature),
            alg_temp: ordered.then_some(own.alg_temp),
            top_p: filters.then_some(own.top_p),
            top_k: filters.then_some(own.top_k),
            min_p: Some(own.min_p).filter(|share| *share > 0.0),
            logit_bias: options.logit_bias.clone().filter(|biases| !biases.is_empty()),
            presence_penalty: options.presence_penalty.filter(|penalty| *penalty != 0.0),
            frequency_penalty: options.frequency_penalty.filter(|penalty| *penalty != 0.0),
            repetition_penalty: options.repetition_penalty.filter(|penalty| *penalty != 1.0),
            min_tokens: options.min_tokens.filter(|tokens| *tokens > 0),
            bad_words: options.bad_words.clone().filter(|texts| !texts.is_empty()),
            cfg_scale: Some(own.cfg_scale),
            decoder: own.rule.is_none().then(|| own.decoder.clone()),
            cache: Some(own.cache.clone()),
            top_logprobs: options.top_logprobs,
            guide: options.guide.clone(),
            stop: options.stop.clone().filter(|texts| !texts.is_empty()),
            include_stop: on(options.include_stop),
            stop_token_ids: options.stop_token_ids.clone().filter(|ids| !ids.is_empty()),
            ignore_eos: on(options.ignore_eos),
            no_early_stop: None,
            stop_rule: (stops || own.stop == StopRule::Never).then_some(own.stop),
            suppress_eos: on(options.suppress_eos),
            eos_confidence_zero: on(options.eos_confidence_zero),
            deadline_ms: options.deadline_ms,
            split_special: options.split_special.filter(|splits| !splits),
            regex: options.regex.clone(),
            choice: options.choice.clone().filter(|texts| !texts.is_empty()),
            json_schema: options.json_schema.clone(),
            json_object: on(options.json_object),
            json_space: options.json_space,
            constraint_before: options.constraint_before.clone(),
            constraint_behind: options.constraint_behind.clone(),
            constraint_after: options.constraint_after.clone(),
            constraint_confidence: options.constraint_confidence,
            constraint_forced: options.constraint_forced,
            deadline: options.deadline,
            seed: Some(own.seed),
        };
        let (by_checkpoint, by_family) = self.who_chose(own, options, length, &whole);
        Chosen { options: whole, by_checkpoint, by_family, sets_steps: own.steps.is_some(), length }
    }

    /// Returns the options that were left open and that the checkpoint decided, and those that are its family's.
    fn who_chose(
        &self,
        own: &SessionOptions,
        options: &Options,
        length: Length,
        whole: &Options,
    ) -> (Vec<&'static str>, Vec<&'static str>) {
        let samples = self.sampler(options).is_some();
        let recommended = length.limit == Limit::Recommended;
        let named = self.text.generation.max_new_tokens.is_some_and(|length| length > 0);
        let blocks = own.facts.mask.block().is_some() || self.fitting_block_length(&own.canvas, options).is_some();
        let infills = matches!(own.canvas, CanvasSpec::Infill { .. });
        let holes = infills && !matches!(self.family().decoding().holes, Holes::AsWithoutCache(_));
        let methods = samples || holes || self.guesses_at_masks();
        let by_checkpoint = [("gen_length", recommended && named), ("block_length", blocks)];
        let by_family = [
            ("gen_length", recommended && !named),
            ("steps", samples && own.steps.is_some()),
            ("remasking", samples),
            ("schedule", samples),
            ("temperature", samples),
            ("decoder", methods),
            ("cache", methods),
        ];
        let open = |name: &str| options.json(name).is_none() && whole.json(name).is_some();
        let those = |all: &[(&'static str, bool)]| {
            all.iter().filter(|(name, chose)| *chose && open(name)).map(|(name, _)| *name).collect()
        };
        (those(&by_checkpoint), those(&by_family))
    }
}
