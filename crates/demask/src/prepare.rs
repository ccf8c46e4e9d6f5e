//! Construction of a session from a request: explicit values are checked, missing ones are chosen to fit the model.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use demask_checkpoint::{Holes, SamplerDefaults, TextStream, Tokenizer};
use demask_decode::{
    CacheSpec, CanvasSpec, DecoderSpec, GuideOptions, Named, OptionsError, Others, Remasking, Schedule, Session,
    SessionOptions, StopRule, complete, transfer::OwnRule,
};
use demask_engine::{Detokenizer, NetworkId, Request, Text};
use demask_step::{Mask, TokenId};

use crate::{
    Error, ModelInfo, Options, Prompt, SettingError, guide,
    info::Guide,
    length::{Length, Limit},
    logprob,
    prompt::Tokens,
};

impl ModelInfo {
    /// Gets a prompt ready to be answered, with the guide if the decoder wants one.
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens, or the options contradict each other or the model.
    pub fn prepare(&self, prompt: &Prompt, options: &Options) -> Result<Request, Error> {
        self.prepare_with(prompt, options, None)
    }

    /// Gets a prompt ready to be answered by a transfer rule in the place of a decoder.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare), and if a decoder is named, or the rule does not go with the model or the cache policy.
    pub fn prepare_by(&self, rule: OwnRule, prompt: &Prompt, options: &Options) -> Result<Request, Error> {
        if let Some(decoder) = &options.decoder {
            return Err(OptionsError::own_rule_beside_decoder(rule.name(), decoder.name()).into());
        }
        self.prepare_with(prompt, options, Some(rule))
    }

    /// Returns the session of a prompt alone, to be run by hand.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn session(&self, prompt: &Prompt, options: &Options) -> Result<Session, Error> {
        let tokens = self.tokenize(prompt, options)?;
        Ok(self.lay_out(prompt, tokens, options, guide::choose(&self.guides, options)?)?.0)
    }

    fn prepare_with(&self, prompt: &Prompt, options: &Options, rule: Option<OwnRule>) -> Result<Request, Error> {
        let started = Instant::now();
        let guide = guide::choose(&self.guides, options)?;
        let tokens = self.tokenize(prompt, options)?;
        let holes = tokens.holes.clone();
        let (mut session, length) = self.lay_out(prompt, tokens, options, guide)?;
        if let Some(rule) = rule {
            session = session.decided_by(rule)?;
        }
        let stops = options.stop.clone().unwrap_or_default();
        if !stops.is_empty() {
            self.tokenizer()?;
        }
        let detokenizer = self.text.tokenizer.as_ref().map(detokenizer);
        let text = if prompt.infills() {
            Text::of_holes(detokenizer, holes)
        } else {
            Text::of_answer(detokenizer, stops, options.include_stop == Some(true))
        };
        let chosen = self.chosen(&session, options, length);
        let request = Request::of_answer(session, text, started.elapsed());
        let mut request = request.guided_by(guide).with_note(chosen);
        request.set_deadline(options.deadline_ms.and_then(|limit| started.checked_add(Duration::from_millis(limit))));
        Ok(request)
    }

    /// Lays out the canvas of a prompt, which is in tokens too, perhaps with a guide.
    fn lay_out(
        &self,
        prompt: &Prompt,
        tokens: Tokens,
        options: &Options,
        guide: Option<usize>,
    ) -> Result<(Session, Length), Error> {
        let guide = guide.map(|index| &self.guides[index]);
        let reads = guide.map(|Guide { info, bridge, .. }| bridge.options(info, prompt, &tokens.ids, options));
        let (mut session_options, length) = self.options(tokens, options, reads.transpose()?)?;
        if let Some(Guide { info, .. }) = guide {
            info.constrain_guide(&mut session_options, options)?;
        }
        let session = Session::new(SessionOptions { max_tokens: length.max_tokens, ..session_options })?;
        Ok((session, length))
    }

    /// Returns the networks that a request runs on: the model's own, and its guide's.
    pub(crate) fn networks(&self, request: &Request) -> Vec<NetworkId> {
        let guide = self.guides.get(request.guide().unwrap_or(0)).map(|guide| &*guide.info);
        let machines = [Some(self), guide].into_iter().flatten().filter_map(|info| info.machine.get());
        machines.map(|machine| machine.network).collect()
    }

    /// Returns the rows that one forward of its network may have; 0 before it is loaded.
    pub(crate) fn rows(&self) -> usize {
        self.machine.get().map_or(0, |machine| machine.rows)
    }

    /// Session options for a prompt, which is in tokens, perhaps with a guide; and the length of
    /// the answer.
    fn options(
        &self,
        tokens: Tokens,
        options: &Options,
        guide: Option<GuideOptions>,
    ) -> Result<(SessionOptions, Length), Error> {
        check_guided(guide.is_some(), options)?;
        let (own, named, length) = self.session_options(tokens, options)?;
        let Some(guide) = guide else { return Ok((complete(&own, named), length)) };
        // The guide's own output ends where the guide ends it.
        let to_guide = options.guide_use().is_some_and(|guide| guide.is_target);
        let end_ids = if to_guide { guide.end_ids.clone() } else { own.end_ids };
        let guided = SessionOptions {
            // Blocks bound no drafts under full attention: nothing is fitted to what the model was made for.
            block_length: options.block_length,
            end_ids,
            guide: Some(guide),
            ..own
        };
        Ok((complete(&guided, named), length))
    }

    /// Session options for a prompt, and the methods that are named in them: explicit values are checked by the session,
    /// missing ones are chosen here, all but the methods.
    fn session_options(&self, tokens: Tokens, options: &Options) -> Result<(SessionOptions, Named, Length), Error> {
        self.check_meaning(&tokens, options)?;
        let infill = tokens.infill();
        let tail = self.tail()?;
        let (canvas, length) = self.canvas(tokens, &tail, options)?;
        let mut defaults = SessionOptions { tail, ..SessionOptions::new(self.facts().clone(), canvas) };
        let sampler = self.sampler(options);
        if let Some(sampler) = sampler {
            sampler.decide(&mut defaults, options);
        }
        let named = options.named(self.usual(sampler.is_some(), infill));
        let decoding = self.family().decoding();
        let temperature = options.temperature.unwrap_or(defaults.temperature);
        let (stop, fill) = self.stop_rule(options)?;
        let chosen = SessionOptions {
            block_length: options.block_length.or_else(|| self.fitting_block_length(&defaults.canvas, options)),
            steps: options.steps.or(defaults.steps),
            remasking: options.remasking.unwrap_or(defaults.remasking),
            schedule: options.schedule.unwrap_or(defaults.schedule),
            eps: options.eps.unwrap_or(defaults.eps),
            temperature,
            top_p: options.top_p.unwrap_or(defaults.top_p),
            top_k: options.top_k.unwrap_or(defaults.top_k),
            min_p: options.min_p.unwrap_or(defaults.min_p),
            adjustments: options.adjustments(),
            alg_temp: options.alg_temp.unwrap_or(defaults.alg_temp),
            cfg_scale: options.cfg_scale.unwrap_or(defaults.cfg_scale),
            // The order of filters and whose probability ranks are the family's own, as in its official code.
            filter_order: decoding.filter_order,
            confidence: decoding.confidence,
            seed: options.seed.unwrap_or(0),
            top_logprobs: self.alternatives("top_logprobs", options.top_logprobs)?,
            end_ids: if options.ignores_eos() { Vec::new() } else { self.end_ids().to_vec() },
            stop_ids: self.stop_ids(options)?,
            stop,
            fill,
            suppress: match (infill, options.suppress_eos == Some(true)) {
                // A hole is filled with text: an end in front of what follows it would be none. No program strikes it out.
                (true, _) => self.end_ids().to_vec(),
                (false, true) => self.eos_ids()?,
                (false, false) => Vec::new(),
            },
            zero_confidence: self.muted(options, temperature)?,
            constraint: options.constraint()?.map(|asked| self.token_constraint(asked, options)).transpose()?,
            ..defaults
        };
        Ok((chosen, named, length))
    }

    /// Returns the source of methods that nobody names, where no option says otherwise.
    fn usual(&self, samples: bool, infill: bool) -> Others {
        match self.family().decoding().holes {
            _ if samples => Others::Reference,
            _ if !infill && self.guesses_at_masks() => Others::Guesses,
            _ if !infill => Others::Recommended,
            Holes::AsWithoutCache(_) => Others::ReferenceOverCache,
            _ => Others::Reference,
        }
    }

    /// Returns the decoder and the cache that answer a prompt where nobody says how.
    pub fn default_methods(&self) -> (DecoderSpec, CacheSpec) {
        self.usual(self.sampler(&Options::default()).is_some(), false).methods(self.facts().mask)
    }

    /// Number of alternatives of a token that an option requests: at most the number of tokens.
    pub(crate) fn alternatives(&self, option: &'static str, wanted: Option<usize>) -> Result<Option<usize>, Error> {
        match wanted {
            Some(found) if found > logprob::MOST => Err(SettingError::Value {
                name: option,
                found: found.to_string(),
                expected: format!("a whole number from 0 to {}", logprob::MOST),
            }
            .into()),
            wanted => Ok(wanted.map(|wanted| wanted.min(self.facts().vocab))),
        }
    }

    /// The tokens that end an answer beside the model's own.
    fn stop_ids(&self, options: &Options) -> Result<Vec<TokenId>, Error> {
        let (ids, vocabulary) = (options.stop_token_ids.clone().unwrap_or_default(), self.facts().vocab);
        match ids.iter().find(|&&id| id as usize >= vocabulary) {
            Some(id) => Err(SettingError::Value {
                name: "stop_token_ids",
                found: id.to_string(),
                expected: format!("ids from 0 to {}", vocabulary - 1),
            }
            .into()),
            None => Ok(ids),
        }
    }

    /// The stop rule, and the token that it fills with.
    fn stop_rule(&self, options: &Options) -> Result<(StopRule, TokenId), Error> {
        let stop = if options.stops_early() { options.early_stop() } else { StopRule::Never };
        let fill = if stop.fills() { self.eos_ids()?.first().copied() } else { None };
        Ok((stop, fill.unwrap_or(0)))
    }

    /// Refuses options that would be ignored.
    fn check_meaning(&self, tokens: &Tokens, options: &Options) -> Result<(), Error> {
        let causal = self.facts().mask == Mask::Causal;
        let even = !matches!(options.schedule, Some(Schedule::Dream | Schedule::DreamTotal));
        let greedy = options.temperature.unwrap_or(0.0) == 0.0;
        let ar = "for autoregressive decoding, which takes one token after the other";
        let rule = options.stop_rule.filter(|rule| *rule != StopRule::Never);
        let with_masks = rule.is_some_and(|rule| rule != StopRule::Prefix);
        let checks = [
            (options.stop_rule.is_some() && options.no_early_stop == Some(true), "no_early_stop", "beside `stop_rule`"),
            (rule.is_some() && options.ignores_eos(), "stop_rule", "with `ignore_eos`, where no token ends anything"),
            (rule.is_some() && tokens.infill(), "stop_rule", "with `infill`, where the text's end is given"),
            (with_masks && causal, "stop_rule", ar),
            (options.eps.is_some() && even, "eps", "without `schedule` dream or dream_total, whose time it ends"),
            (
                options.stop.as_ref().is_some_and(|stop| !stop.is_empty()) && tokens.infill(),
                "stop",
                "with `infill`, where the text's end is given",
            ),
            (options.stop.iter().flatten().any(String::is_empty), "stop", "without a text"),
            (options.bad_words.iter().flatten().any(String::is_empty), "bad_words", "without a text"),
            (
                options.stop_token_ids.as_ref().is_some_and(|ids| !ids.is_empty()) && tokens.infill(),
                "stop_token_ids",
                "with `infill`, where the text's end is given",
            ),
            (
                options.include_stop == Some(true) && options.stop.as_ref().is_none_or(Vec::is_empty),
                "include_stop",
                "without `stop`, whose texts it keeps",
            ),
            (
                options.has_constraint() && options.stop.as_ref().is_some_and(|stop| !stop.is_empty()),
                "stop",
                "beside a constraint, whose text ends where it is complete",
            ),
            (
                options.has_constraint() && options.ignores_eos(),
                "ignore_eos",
                "beside a constraint, whose text ends where it is complete",
            ),
            (
                options.min_tokens.is_some_and(|tokens| tokens > 0) && options.has_constraint(),
                "min_tokens",
                "beside a constraint, whose text ends where it is complete",
            ),
            (
                options.min_tokens.is_some_and(|tokens| tokens > 0) && tokens.infill(),
                "min_tokens",
                "with `infill`, where the text's end is given",
            ),
            (options.deadline.is_some() && options.deadline_ms.is_none(), "deadline", "without `deadline_ms`"),
            (options.deadline_ms == Some(0), "deadline_ms", "as 0, when nothing can be decoded"),
            (options.remasking.is_some() && causal, "remasking", ar),
            (options.schedule.is_some() && causal, "schedule", ar),
            (options.alg_temp.is_some() && causal, "alg_temp", ar),
            (options.top_k.is_some() && causal && greedy, "top_k", "at temperature 0, where the best token is taken"),
            (options.top_p.is_some() && causal && greedy, "top_p", "at temperature 0, where the best token is taken"),
            (
                options.min_p.is_some_and(|share| share > 0.0) && causal && greedy,
                "min_p",
                "at temperature 0, where the best token is taken",
            ),
        ];
        match checks.into_iter().find(|(meaningless, ..)| *meaningless) {
            Some((_, option, why)) => Err(Error::Meaningless { option, why }),
            None => Ok(()),
        }
    }

    /// Tokens without a share of the distribution. LLaDA's `logits_eos_inf` strikes the end of the text out of it. Its
    /// `confidence_eos_eot_inf`, as it acts, takes the weight of both end tokens at temperature 0, of the turn's end alone
    /// above (specs/models.md#trap-7).
    fn muted(&self, options: &Options, temperature: f32) -> Result<Vec<TokenId>, Error> {
        let eos = || self.eos_ids();
        let mut muted = if options.suppress_eos == Some(true) { eos()? } else { Vec::new() };
        if options.eos_confidence_zero == Some(true) {
            let eos = eos()?;
            muted.extend(self.end_ids().iter().filter(|id| temperature == 0.0 || !eos.contains(id)));
        }
        Ok(muted)
    }

    /// Fixed tokens after everything that is decoded, of a family whose canvas ends with one.
    fn tail(&self) -> Result<Vec<TokenId>, Error> {
        if !self.family().decoding().reserves_end || self.facts().mask != Mask::Full {
            return Ok(Vec::new());
        }
        match self.text.special.pad {
            Some(pad) => Ok(vec![pad]),
            None => self.eos_ids(),
        }
    }

    /// The sampler of the family's authors, where nobody names another decoder than the one that it is settings of.
    pub(crate) fn sampler(&self, options: &Options) -> Option<Sampler> {
        let is_static = |decoder: &DecoderSpec| decoder.name() == DecoderSpec::default().name();
        let own = self.family().decoding().sampler.filter(|_| self.facts().mask == Mask::Full)?;
        Sampler::of(&own).filter(|_| options.decoder.as_ref().is_none_or(is_static))
    }

    fn canvas(&self, tokens: Tokens, tail: &[TokenId], options: &Options) -> Result<(CanvasSpec, Length), Error> {
        let (infill, ids) = (tokens.infill(), tokens.ids);
        let context = self.facts().context;
        if infill {
            let lengths = [("gen_length", options.gen_length), ("max_tokens", options.max_tokens)];
            if let Some((option, _)) = lengths.into_iter().find(|(_, length)| length.is_some()) {
                return Err(Error::InfillLength { option });
            }
            return if ids.len() + tail.len() <= context {
                Ok((CanvasSpec::Infill { tokens: ids }, Length::GIVEN))
            } else {
                Err(Error::TooLong { prompt: ids.len(), gen_length: 0, context, option: None })
            };
        }
        let length = self.length(ids.len(), tail.len(), options)?;
        // What the authors ask for includes the tail.
        match length.canvas.checked_sub(tail.len()) {
            Some(0) if !tail.is_empty() => Err(SettingError::Value {
                name: if length.limit == Limit::MaxTokens { "max_tokens" } else { "gen_length" },
                found: length.canvas.to_string(),
                expected: format!(
                    "at least {}: the last position of {} is kept for an end",
                    1 + tail.len(),
                    self.family()
                ),
            }
            .into()),
            decoded => Ok((CanvasSpec::Prompt { tokens: ids, gen_length: decoded.unwrap_or(0) }, length)),
        }
    }

    /// Returns the block length that the model was made for, where nothing given speaks against it; the session fits one
    /// otherwise.
    pub(crate) fn fitting_block_length(&self, canvas: &CanvasSpec, options: &Options) -> Option<usize> {
        let CanvasSpec::Prompt { gen_length, .. } = canvas else { return None };
        let free = options.steps.is_none() && options.schedule.is_none();
        self.recommended_block_length().filter(|length| free && gen_length % length == 0)
    }
}

/// Text of one answer's tokens, by a tokenizer.
struct Words {
    stream: TextStream<Arc<Tokenizer>>,
    tokenizer: Arc<Tokenizer>,
}

impl Detokenizer for Words {
    fn push(&mut self, token: TokenId) -> String {
        self.stream.push(token)
    }

    fn finish(&mut self) -> String {
        self.stream.finish()
    }

    fn decode(&self, tokens: &[TokenId]) -> String {
        self.tokenizer.decode(tokens, true)
    }
}

fn detokenizer(tokenizer: &Arc<Tokenizer>) -> Box<dyn Detokenizer> {
    let tokenizer = Arc::clone(tokenizer);
    Box::new(Words { stream: TextStream::new(Arc::clone(&tokenizer), true), tokenizer })
}

/// A family's own settings of static decoding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sampler {
    schedule: Schedule,
    remasking: Remasking,
    steps: usize,
    temperature: f32,
}

impl Sampler {
    /// Reads a family's; none if it names what there is not, which a test refuses.
    fn of(own: &SamplerDefaults) -> Option<Self> {
        let (schedule, remasking) = (own.schedule.parse().ok()?, own.remasking.parse().ok()?);
        Some(Self { schedule, remasking, steps: own.steps, temperature: own.temperature })
    }

    /// Sets what decodes a canvas where options leave it open.
    fn decide(self, defaults: &mut SessionOptions, options: &Options) {
        let masks = match &defaults.canvas {
            CanvasSpec::Prompt { gen_length, .. } => *gen_length,
            CanvasSpec::Infill { tokens } => {
                tokens.iter().filter(|&&token| Some(token) == defaults.facts.mask_id).count()
            }
        };
        let counts = options.decoder.as_ref().is_some_and(|decoder| decoder.traits().steps.is_some());
        let free = options.block_length.is_none() && !counts;
        // More steps than masks repeat forwards: randomness is keyed by what is written, so that nothing new is drawn.
        defaults.steps = free.then_some(self.steps.min(masks.max(1)));
        (defaults.schedule, defaults.remasking) = (self.schedule, self.remasking);
        defaults.temperature = self.temperature;
    }
}

/// Refuses options that a guide makes pointless.
fn check_guided(guided: bool, options: &Options) -> Result<(), Error> {
    let why = "with a guide, which takes drafts from left to right";
    let checks = [
        (options.steps.is_some(), "steps"),
        (options.remasking.is_some(), "remasking"),
        (options.schedule.is_some(), "schedule"),
        (options.alg_temp.is_some(), "alg_temp"),
    ];
    match checks.into_iter().find(|(given, _)| guided && *given) {
        Some((_, option)) => Err(Error::Meaningless { option, why }),
        None => Ok(()),
    }
}

/// Conversion of a session's errors about options into errors of this crate.
impl From<OptionsError> for Error {
    fn from(error: OptionsError) -> Self {
        Self::Options(error)
    }
}

#[cfg(test)]
mod tests {
    use demask_checkpoint::FAMILIES;

    use super::*;

    #[test]
    fn what_families_say_of_their_samplers_is_known() {
        let named: Vec<_> = FAMILIES.iter().filter_map(|family| family.decoding().sampler).collect();
        let expected =
            Sampler { schedule: Schedule::Rnd1, remasking: Remasking::Entropy, steps: 256, temperature: 0.1 };
        assert_eq!(named.iter().map(Sampler::of).collect::<Vec<_>>(), [Some(expected)]);
    }
}
