//! Guided Diffusion (FlashDLM, section 3.2; specs/flashdlm.md#2): the diffusion model drafts every mask in one forward,
//! an autoregressive guide reads the drafts from left to right, and the longest run that it agrees with is taken; if it
//! agrees with none, the first draft alone. The guide never changes a token.
//!
//! Under full attention every mask is drafted, whatever the block length (appendix C.1 of the paper): blocks only say when
//! a cache policy computes everything anew. A block-causal model drafts its block.
//!
//! With `target=guide` the roles are those of speculative decoding (specs/flashdlm.md#2.7): where the guide disagrees
//! its own token is taken, and with exact matching the output is the guide's own greedy one, whatever is drafted.
//!
//! Commits are a prefix of the masks in order, so that the canvas is always clean text before masks.

use std::{ops::Range, sync::Arc};

use demask_step::{
    ConfidenceOf, ForwardInput, HeadAsk, Mask, MaskKind, NO_TOKEN, Position, SequenceLimits, SequenceSpec, TokenId,
    TokenScore,
};

use crate::{
    choices,
    constraint::{Enforced, GuideRow, LaneOf, Ranks},
    error::{self, OptionsError},
    event::Commit,
    facts::CanvasSpec,
    guide::{Agreement, Alignment, GuideOptions, GuideUse, Judge, Reader, Rule, Trial, Trials},
    layout::Layout,
    method::{DecoderKind, DecoderLoop, DecoderTraits, Promise, SessionOptions, Setup},
    parameters,
    policy::CachePolicy,
    spec::Kind,
    step::{Answer, AnswerSource, Decoder, Judgement, Progress, Proposal, Query, StepContext, StepResult, View},
};

choices! {
    /// Model whose token is taken where the guide agrees with no draft.
    pub enum Writer {
        /// The diffusion model's.
        Dlm = "dlm",
        /// The guide's.
        Ar = "ar",
    }
}

choices! {
    /// Model whose output is wanted.
    pub enum Target {
        /// The diffusion model's.
        Dlm = "dlm",
        /// The guide's own.
        Guide = "guide",
    }
}

parameters! {
    /// Drafts of the diffusion model, taken as far as an autoregressive guide agrees.
    pub struct GuidedDecoding {
        /// the guide agrees with its own best token; with its k best; with those of them that have at least tau of the
        /// best one's probability (the released program's rule); or, confidence, with any token of which the diffusion
        /// model is at least tau times as sure as the guide is of its best (appendix C.4 of the paper as printed, which
        /// the program does not follow)
        pub agreement as "match": Agreement = Agreement::Exact;
        /// how many tokens topk and topk_relative agree with
        pub k: u32 = 2, Kind::count(1, u32::MAX as usize);
        /// the share of topk_relative and confidence
        pub tau: f32 = 0.5, Kind::number(0.0, 1.0);
        /// tokens that the guide judges in one forward; agreement with all of them asks for the next
        pub verify: usize = 32, Kind::count(1, u32::MAX as usize);
        /// whose token is taken if the guide agrees with no draft: the diffusion model's or the guide's
        pub fallback: Writer = Writer::Dlm;
        /// whose output is wanted; guide: its own token follows the run that it agrees with
        pub target: Target = Target::Dlm;
        /// how the guide reads drafts: as ids of a shared vocabulary, or by their bytes; fitted: ids if the vocabulary is
        /// shared, else bytes
        pub align: Option<Alignment> = None;
    }
}

impl DecoderKind for GuidedDecoding {
    const NAME: &'static str = "guided";
    const SUMMARY: &'static str = "the diffusion model drafts all masks, and the run of them that an autoregressive \
                                   guide agrees with is taken";
    const SOURCE: &'static str = "FlashDLM, Guided Diffusion; specs/flashdlm.md#2";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full, MaskKind::BlockCausal];

    fn traits(&self) -> DecoderTraits {
        let is_target = self.target == Target::Guide;
        // Whatever is drafted: what the guide disagrees with is replaced by its own.
        let its_own = is_target && self.agreement == Agreement::Exact;
        DecoderTraits {
            promise: if its_own { Promise::OfRun("ar of the guide, cache causal") } else { Promise::Approximate },
            guide: Some(GuideUse { alignment: self.align, is_target }),
            // Compared with the guide's own distribution.
            confidence: (self.agreement == Agreement::Confidence).then_some(ConfidenceOf::Raw),
            ..DecoderTraits::default()
        }
    }

    fn check(&self, setup: &Setup<'_>) -> Result<(), OptionsError> {
        let (options, layout, decoder) = (setup.options, setup.layout, Self::NAME);
        let Some(guide) = &options.guide else { return Err(OptionsError::guide_missing(decoder)) };
        let alignment = self.alignment(guide);
        if alignment == Alignment::Ids && !guide.shared_vocabulary {
            let text =
                format!("{decoder}: align=ids, and the guide has another vocabulary: omit align, or use align=bytes");
            return Err(error::value("decoder", text));
        }
        check_tokens(guide, options, alignment)?;
        let prompt = match (alignment, &guide.text) {
            (Alignment::Ids, _) => layout.response(),
            (Alignment::Bytes, None) => {
                return Err(error::unfit(format_args!(
                    "{decoder}: the guide has another vocabulary and there are no two tokenizers to go through: \
                     use a guide with the model's vocabulary"
                )));
            }
            (Alignment::Bytes, Some(text)) => text.prompt.len(),
        };
        if prompt == 0 {
            return Err(error::unfit(
                "nothing stands before the first mask, expected at least one token for the guide to start from: \
                 add a prompt",
            ));
        }
        let (needed, available) = (prompt + layout.len() - layout.response(), guide.facts.context);
        if needed > available {
            return Err(error::unfit(format_args!(
                "the guide must read {needed} positions and its context holds {available}: shorten the prompt or \
                 the generation length, or use another guide"
            )));
        }
        let to_guide = self.target == Target::Guide;
        let own = [("fallback=ar", self.fallback == Writer::Ar), ("target=guide", to_guide)];
        match own.into_iter().find(|(_, given)| *given && alignment != Alignment::Ids) {
            Some((parameter, _)) => Err(error::value(
                "decoder",
                format_args!(
                    "{decoder}: {parameter} writes tokens of the guide, which has another vocabulary: omit it"
                ),
            )),
            None if to_guide && options.temperature > 0.0 => Err(error::value(
                "decoder",
                format_args!(
                    "{decoder}: target=guide gives the guide's greedy output, expected temperature 0: omit the temperature"
                ),
            )),
            None => Ok(()),
        }
    }
}

impl DecoderLoop for GuidedDecoding {
    fn build(&self, setup: &Setup<'_>, _cache: &dyn CachePolicy) -> Box<dyn Decoder> {
        let options = setup.options;
        let Some(guide) = &options.guide else {
            // Options without a guide are refused before anything is built.
            unreachable!("decoder guided without a guide");
        };
        let alignment = self.alignment(guide);
        let to_guide = self.target == Target::Guide;
        // The guide's own output ends with its own end tokens, which are then ordinary tokens to be agreed with.
        let ends = if to_guide { &[][..] } else { &options.end_ids };
        let ranks = Self::ranks(guide, options, alignment);
        let most = SequenceLimits { logits: ranks.is_some(), ..self.needs(guide, setup) };
        let width = 1 + guide.end_ids.len();
        let (CanvasSpec::Prompt { tokens, .. } | CanvasSpec::Infill { tokens }) = &options.canvas;
        let response = setup.layout.response();
        let trials = Trials::new(alignment, guide, response, ends);
        let prefix_tokens = trials.prefix_tokens(&tokens[..response.min(tokens.len())]);
        Box::new(Judging {
            rule: Rule { agreement: self.agreement, k: self.k, share: self.tau },
            verify: most.predictions,
            to_guide,
            falls_to_guide: self.fallback == Writer::Ar,
            limit: (alignment == Alignment::Ids && guide.facts.vocab < options.facts.vocab)
                .then_some(guide.facts.vocab as TokenId),
            vocab: options.facts.vocab,
            ends: guide.end_ids.clone(),
            end: options.end_ids.first().copied(),
            trials,
            prefix_tokens,
            settled: 0,
            reader: Reader::with_capacity(most.positions),
            drafts: Vec::with_capacity(setup.layout.len()),
            trial: Trial::with_capacity(most.positions.max(setup.layout.len())),
            stood: 0,
            opinion: Opinion::Open,
            own_confidence: 0.0,
            ranks,
            row: GuideRow { scores: Vec::with_capacity(width), ..GuideRow::default() },
            helpers: [SequenceSpec { network: 1, limits: SequenceLimits { score_width: width, ..most } }],
        })
    }
}

impl GuidedDecoding {
    /// Alignment of this guide's tokens with the canvas's.
    fn alignment(&self, guide: &GuideOptions) -> Alignment {
        Alignment::fitted(self.align, guide.shared_vocabulary)
    }

    /// The constraint over the tokens that the guide reads.
    fn ranks(guide: &GuideOptions, options: &SessionOptions, alignment: Alignment) -> Option<Ranks> {
        let constraint = options.constraint.as_ref()?;
        let automaton = match alignment {
            Alignment::Ids => Some(&constraint.automaton),
            Alignment::Bytes => guide.text.as_ref().and_then(|text| text.automaton.as_ref()),
        };
        let in_holes = matches!(options.canvas, CanvasSpec::Infill { .. });
        Some(Ranks::new(Arc::clone(automaton?), &guide.end_ids, in_holes))
    }

    /// The most that the guide's sequence takes.
    fn needs(&self, guide: &GuideOptions, setup: &Setup<'_>) -> SequenceLimits {
        let layout = setup.layout;
        let verify = self.verify.min(layout.len());
        let drafted = layout.len() - layout.response();
        let text = guide.text.as_ref().map_or(0, |text| text.prompt.len());
        let (positions, rows) = match (self.alignment(guide), &setup.options.canvas) {
            (Alignment::Ids, CanvasSpec::Prompt { .. }) => (layout.len(), layout.response() + verify),
            (Alignment::Ids, CanvasSpec::Infill { .. }) => (layout.len(), layout.len()),
            // A text takes about as many tokens in one vocabulary as in the other; drafts beyond twice as many are not
            // judged.
            (Alignment::Bytes, _) => {
                let positions = text + 2 * drafted + verify;
                (positions, positions)
            }
        };
        let positions = positions.min(guide.facts.context);
        SequenceLimits { positions, rows: rows.min(positions), predictions: verify, ..SequenceLimits::default() }
    }
}

/// Refuses tokens that the guide does not have.
fn check_tokens(guide: &GuideOptions, options: &SessionOptions, alignment: Alignment) -> Result<(), OptionsError> {
    let vocab = guide.facts.vocab;
    let within = |what, tokens: &[TokenId]| match tokens.iter().find(|&&token| token as usize >= vocab) {
        Some(&token) => Err(error::token_out_of_range(what, token, vocab)),
        None => Ok(()),
    };
    within("the guide's end token", &guide.end_ids)?;
    if let Some(text) = &guide.text {
        within("the guide's prompt token", &text.prompt)?;
    }
    if alignment == Alignment::Ids {
        let (CanvasSpec::Prompt { tokens, .. } | CanvasSpec::Infill { tokens }) = &options.canvas;
        let given = tokens.iter().copied().filter(|&token| Some(token) != options.facts.mask_id);
        within("for the guide, token", &given.collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Opinion of the guide on the drafts of this step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opinion {
    /// Agreement with everything so far.
    Open,
    /// Disagreement, with the token that the guide predicts instead.
    Rejected(TokenId),
}

#[derive(Debug)]
struct Judging {
    rule: Rule,
    verify: usize,
    to_guide: bool,
    falls_to_guide: bool,
    /// First of the tokens that the guide could never read.
    limit: Option<TokenId>,
    vocab: usize,
    /// The guide's end tokens, and the canvas's first one.
    ends: Vec<TokenId>,
    end: Option<TokenId>,
    trials: Trials,
    /// Tokens that the guide reads first in every trial.
    prefix_tokens: Vec<TokenId>,
    /// Number of the guide's tokens before all that it will judge.
    settled: usize,
    reader: Reader,
    /// Predictions of the first masks, in order.
    drafts: Vec<Commit>,
    trial: Trial,
    /// Number of the trial's judged tokens that were accepted.
    stood: usize,
    opinion: Opinion,
    /// The probability of the guide's own token where it disagreed.
    own_confidence: f32,
    /// The constraint over the guide's tokens.
    ranks: Option<Ranks>,
    /// The guide's judgement of one token.
    row: GuideRow,
    helpers: [SequenceSpec; 1],
}

impl Judging {
    /// The drafts that stand.
    fn accepted(&self) -> usize {
        self.trial.needs.iter().take_while(|&&needed| needed <= self.stood).count().min(self.drafts.len())
    }

    /// Commits what this step takes.
    fn conclude(&self, view: &View<'_>, constraint: Option<Enforced<'_>>, progress: &mut Progress) {
        let accepted = self.accepted();
        progress.commits.extend_from_slice(&self.drafts[..accepted]);
        progress.accepted = accepted;
        progress.drafted.commits.extend_from_slice(&self.drafts);
        progress.drafted.sizes.extend(0..=self.drafts.len());
        let Some(&next) = self.drafts.get(accepted) else { return };
        let Opinion::Rejected(own) = self.opinion else {
            // The rest was not judged, or could not be: there is always progress.
            progress.commits.extend((accepted == 0).then_some(next));
            return;
        };
        progress.rejected = 1;
        let commit = Commit { token: own, confidence: self.own_confidence, ..next };
        progress.targets.push(Judgement { draft: accepted, commit, by_guide: true });
        let own = match self.end {
            Some(end) if self.ends.contains(&own) && !self.to_guide => end,
            _ => own,
        };
        let lane = LaneOf { canvas: view.canvas, index: 0, filled: &self.drafts[..accepted] };
        let admitted = constraint.is_none_or(|constraint| constraint.admits(lane, next.position, own));
        if (self.to_guide || (self.falls_to_guide && accepted == 0)) && (own as usize) < self.vocab && admitted {
            progress.commits.push(Commit { token: own, confidence: 1.0, ..next });
        } else if accepted == 0 {
            progress.commits.push(next);
        }
    }

    /// The confidence of the draft that a judged token is part of: the lowest, if it is the whole of several.
    fn confidence(&self, judged: usize) -> f32 {
        let needs = &self.trial.needs;
        let first = needs.partition_point(|&needed| needed <= judged);
        let last = needs.partition_point(|&needed| needed <= judged + 1).max(first + 1);
        let drafts = self.drafts.get(first..last.min(self.drafts.len())).unwrap_or(&[]);
        drafts.iter().map(|draft| draft.confidence).fold(1.0, f32::min)
    }

    /// Reports whether the judged token of this index is kept. `row` is the guide's judgement of it.
    fn stands(&self, index: usize, row: &[TokenScore]) -> bool {
        let confidence = if self.rule.reads_tokens() { 0.0 } else { self.confidence(index) };
        let agrees = |judged: Option<&TokenScore>| judged.is_some_and(|judged| self.rule.agrees(judged, confidence));
        match self.trial.scored[index] {
            Judge::Given => true,
            _ if !self.rule.reads_tokens() => agrees(row.first()),
            Judge::Token(_) => agrees(row.first()),
            Judge::End(own) => {
                (own.is_some() && agrees(row.first())) || row.iter().skip(1).any(|judged| agrees(Some(judged)))
            }
            Judge::Unknown => false,
        }
    }

    /// Takes the predictions of the first masks as drafts, and puts them before the guide.
    fn draft(&mut self, view: &View<'_>, answer: &Answer<'_>) {
        let Answer { plan, predictions, .. } = *answer;
        self.drafts.clear();
        let masks = drafted(view).filter(|&position| view.canvas.is_masked(position));
        for position in masks {
            // Drafts are the first masks without a gap: a policy may leave the rows of later ones out. The guide makes
            // a token of a mere hint too.
            let asked = [&plan.predict, &plan.must, &plan.hint].iter().any(|set| set.contains(position));
            let Some(index) = predictions.index(0, position).filter(|_| asked) else { break };
            let token = predictions.tokens.get(index).copied().unwrap_or(NO_TOKEN);
            let confidence = predictions.confidence.get(index).copied().unwrap_or(f32::NEG_INFINITY);
            if token == NO_TOKEN {
                break;
            }
            self.drafts.push(Commit { position, token, confidence });
        }
        if let Some(constraint) = answer.constraint {
            constraint.fit(LaneOf { canvas: view.canvas, index: 0, filled: &[] }, &[], &mut self.drafts);
        }
        self.trials.make(view.canvas, &self.drafts, &mut self.trial);
        self.stood = 0;
        self.opinion = Opinion::Open;
    }

    /// Takes the guide's judgement of the tokens that it was asked about.
    fn heed(&mut self, request: &ForwardInput, answer: &Answer<'_>) {
        self.reader.note(request);
        for (index, _) in request.plan.predict.iter().enumerate() {
            self.read_row(index, request, answer);
            if !self.stands(self.stood, &self.row.scores) {
                self.opinion = Opinion::Rejected(self.row.token.unwrap_or(NO_TOKEN));
                self.own_confidence = self.row.confidence;
                return;
            }
            self.stood += 1;
        }
    }

    /// Reads the row of the next judged token, through the constraint if there is one.
    fn read_row(&mut self, index: usize, request: &ForwardInput, answer: &Answer<'_>) {
        let (predictions, width) = (answer.predictions, 1 + self.ends.len());
        self.row.copy(predictions, index, width);
        if self.ranks.is_none() {
            return;
        }
        let place = self.drafts.get(self.accepted()).map(|draft| draft.position as usize);
        let start = answer.constraint.zip(place).and_then(|(constraint, position)| constraint.start_of(position));
        let token = self.trial.first + self.stood;
        let text = start.and_then(|start| self.trials.text_before(&self.trial, start, token));
        let (Some(ranks), Some(text)) = (&mut self.ranks, text) else { return };
        let vocab = predictions.logits.len() / predictions.tokens.len().max(1);
        let logits = predictions.logits.get(index * vocab..(index + 1) * vocab);
        let asked = request.ask.score.get(index * width..(index + 1) * width);
        if let (Some(logits), Some(asked)) = (logits, asked) {
            ranks.read(text, (logits, asked), &mut self.row);
        }
    }

    /// Fills the guide's next request, or completes the progress.
    fn consult(
        &mut self,
        view: &View<'_>,
        constraint: Option<Enforced<'_>>,
        context: &mut StepContext<'_>,
    ) -> StepResult {
        let request = &mut *context.helper;
        while self.trial.scored.get(self.stood) == Some(&Judge::Given) {
            self.stood += 1;
        }
        let Trial { ids, first, scored: judged, .. } = &self.trial;
        let start = first + self.stood;
        let room = (self.helpers[0].limits.positions + 1).saturating_sub(start);
        let count = (judged.len() - self.stood).min(self.verify).min(room);
        if self.opinion != Opinion::Open || count == 0 || start == 0 || start + count > ids.len() + 1 {
            self.conclude(view, constraint, context.progress);
            return StepResult::Settled;
        }
        // The row before the first draft is read anew by each trial that goes no further.
        let settled = if self.trials.stays() { first.saturating_sub(1) } else { self.prefix_tokens.len() };
        self.settled = self.settled.max(settled);
        self.reader.ask(ids, start..start + count, request);
        let ask = &mut request.ask;
        ask.wanted.score_width = 1 + self.ends.len();
        ask.wanted.logits = self.ranks.is_some();
        ask.score.clear();
        for judge in &judged[self.stood..self.stood + count] {
            let own = match *judge {
                Judge::Token(own) | Judge::End(Some(own)) => own,
                Judge::Given | Judge::End(None) | Judge::Unknown => 0,
            };
            ask.score.push(own);
            ask.score.extend_from_slice(&self.ends);
        }
        StepResult::Ask
    }
}

/// The positions whose masks are drafted: all under full attention, those of the block where later ones are not seen.
fn drafted(view: &View<'_>) -> Range<Position> {
    let Range { start, end } = view.layout.block(view.block);
    match view.layout.attention() {
        Mask::Full => start..view.canvas.len() as Position,
        Mask::BlockCausal { .. } | Mask::Causal | Mask::Context { .. } => start..end,
    }
}

impl Decoder for Judging {
    fn ask(&self, ask: &mut HeadAsk) {
        ask.wanted.limit = self.limit;
    }

    fn reserve(&self, layout: &Layout, needs: &mut SequenceLimits) {
        let drafted =
            if layout.attention() == Mask::Full { layout.len() - layout.start() } else { layout.block_length() };
        needs.predictions = needs.predictions.max(drafted);
    }

    fn propose(&mut self, view: &View<'_>, query: &mut Query) -> Proposal {
        if view.block >= view.layout.blocks() {
            return Proposal::Done;
        }
        view.canvas.open_positions(drafted(view), &mut query.predict);
        query.drafts = true;
        Proposal::Predict
    }

    fn helpers(&self) -> &[SequenceSpec] {
        &self.helpers
    }

    fn prefix_tokens(&self) -> &[TokenId] {
        &self.prefix_tokens
    }

    fn opened(&mut self, filled: Position) {
        self.reader.begin(&self.prefix_tokens[..self.prefix_tokens.len().min(filled as usize)]);
    }

    fn reusable(&self) -> &[TokenId] {
        self.reader.first(self.settled)
    }

    fn accept(&mut self, view: &View<'_>, answer: &Answer<'_>, context: &mut StepContext<'_>) -> StepResult {
        match answer.source {
            AnswerSource::Canvas => self.draft(view, answer),
            AnswerSource::Helper => self.heed(context.helper, answer),
        }
        self.consult(view, answer.constraint, context)
    }
}
