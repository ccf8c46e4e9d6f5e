//! Guided Diffusion (FlashDLM, section 3.2; specification flashdlm, section 2): the diffusion model drafts every mask in
//! one forward, an autoregressive guide reads the drafts from left to right, and the longest run that it agrees with is
//! taken; if it agrees with none, the first draft alone. The guide never changes a token.
//!
//! With `target=guide` the roles are those of speculative decoding (section 2.7): where the guide disagrees its own
//! token is taken, and with exact matching the output is the guide's own greedy one, whatever is drafted.
//!
//! Commits are a prefix of the masks in order, so that the canvas is always clean text before masks.

use demask_step::{HeadAsk, Judged, MaskKind, NO_TOKEN, Need, Predictions, Request, SequenceNeeds, StepPlan, TokenId};

use super::{
    Answer, Decoder, DecoderMethod, DecoderSpec, Intent, Progress, Promise, Query, Setup, Turn, Turned, View, Whose,
};
use crate::{
    event::Commit,
    guide::{ALIGNMENTS, Alignment, GuideOptions, Judge, RULES, Reader, Rule, Trial, Trials, targets_guide},
    options::CanvasSpec,
    spec::{About, Kind, Parameter, Value},
};

pub(super) const METHOD: DecoderMethod = DecoderMethod {
    about: About {
        name: "guided",
        summary: "the diffusion model drafts all masks, and the run of them that an autoregressive guide agrees with is \
                  taken",
        source: "FlashDLM, Guided Diffusion; specification flashdlm 2",
        parameters: &[
            Parameter {
                name: "match",
                kind: Kind::Choice(RULES),
                default: Value::Choice("exact"),
                doc: "the guide agrees with its own best token; with its k best; with those of them that have at least \
                      tau of the best one's probability",
            },
            Parameter {
                name: "k",
                kind: Kind::Count { least: 1, most: u32::MAX as usize },
                default: Value::Count(2),
                doc: "how many tokens topk and topk_relative agree with",
            },
            Parameter {
                name: "tau",
                kind: Kind::Number { least: 0.0, most: 1.0 },
                default: Value::Number(0.5),
                doc: "the share of topk_relative",
            },
            Parameter {
                name: "verify",
                kind: Kind::Count { least: 1, most: u32::MAX as usize },
                default: Value::Count(32),
                doc: "tokens that the guide judges in one forward; agreement with all of them asks for the next",
            },
            Parameter {
                name: "fallback",
                kind: Kind::Choice(&["dlm", "ar"]),
                default: Value::Choice("dlm"),
                doc: "whose token is taken if the guide agrees with no draft: the diffusion model's or the guide's",
            },
            Parameter {
                name: "target",
                kind: Kind::Choice(&["dlm", "guide"]),
                default: Value::Choice("dlm"),
                doc: "whose output is wanted; guide: its own token follows the run that it agrees with",
            },
            Parameter {
                name: "align",
                kind: Kind::Choice(ALIGNMENTS),
                default: Value::Fit,
                doc: "how the guide reads drafts: as ids of a shared vocabulary, by a table of tokens, by their bytes, \
                      or token by token in pieces; fitted: ids if the vocabulary is shared, else bytes",
            },
        ],
    },
    attention: &[MaskKind::Full, MaskKind::BlockCausal],
    promise: Promise::OfGuide,
    takes_origin: false,
    build,
};

fn build(spec: &DecoderSpec, setup: &Setup<'_>) -> Box<dyn Decoder> {
    let options = setup.options;
    let Some(guide) = &options.guide else {
        // Options without a guide are refused before anything is built.
        unreachable!("decoder guided without a guide");
    };
    let alignment = Alignment::of(spec, guide);
    let to_guide = targets_guide(spec);
    // The guide's own output ends with its own end tokens, which are then ordinary tokens to be agreed with.
    let ends = if to_guide { &[][..] } else { &options.end_ids };
    let most = needs(spec, guide, alignment, setup);
    let width = 1 + guide.end_ids.len();
    Box::new(Guided {
        rule: Rule::of(spec),
        verify: most.predictions,
        to_guide,
        falls_to_guide: spec.choice("fallback") == "ar",
        limit: (alignment == Alignment::Ids && guide.facts.vocab < options.facts.vocab)
            .then_some(guide.facts.vocab as TokenId),
        vocab: options.facts.vocab,
        ends: guide.end_ids.clone(),
        end: options.end_ids.first().copied(),
        trials: Trials::new(alignment, guide, setup.layout.response(), ends),
        reader: Reader::with_capacity(most.positions),
        drafts: Vec::with_capacity(setup.layout.len()),
        trial: Trial::with_capacity(most.positions.max(setup.layout.len())),
        stood: 0,
        verdict: Verdict::Open,
        helpers: [Need { network: 1, sequence: SequenceNeeds { judge_width: width, ..most } }],
    })
}

/// The most that the guide's sequence takes.
fn needs(spec: &DecoderSpec, guide: &GuideOptions, alignment: Alignment, setup: &Setup<'_>) -> SequenceNeeds {
    let layout = setup.layout;
    let verify = spec.count("verify").unwrap_or(1).min(layout.len());
    let drafted = layout.len() - layout.response();
    let text = guide.text.as_ref().map_or(0, |text| text.prompt.len());
    let (positions, rows) = match (alignment, &setup.options.canvas) {
        (Alignment::Ids | Alignment::Table, CanvasSpec::Prompt { .. }) => (layout.len(), layout.response() + verify),
        (Alignment::Ids | Alignment::Table, CanvasSpec::Infill { .. }) => (layout.len(), layout.len()),
        // A text takes about as many tokens in one vocabulary as in the other; drafts beyond twice as many are not
        // judged.
        _ => {
            let positions = text + 2 * drafted + verify;
            (positions, positions)
        }
    };
    let positions = positions.min(guide.facts.context);
    SequenceNeeds { positions, rows: rows.min(positions), predictions: verify, ..SequenceNeeds::default() }
}

/// What the guide has said of the drafts of this step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It agreed with everything that it was asked.
    Open,
    /// It disagreed, and would have said this.
    Rejected(TokenId),
}

#[derive(Debug)]
struct Guided {
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
    reader: Reader,
    /// Predictions of the first masks, in order.
    drafts: Vec<Commit>,
    trial: Trial,
    /// How many of the trial's judged tokens stand.
    stood: usize,
    verdict: Verdict,
    helpers: [Need; 1],
}

impl Guided {
    /// The drafts that stand.
    fn accepted(&self) -> usize {
        self.trial.needs.iter().take_while(|&&needed| needed <= self.stood).count().min(self.drafts.len())
    }

    /// What is taken of this step.
    fn conclude(&self, progress: &mut Progress) {
        let accepted = self.accepted();
        progress.commits.extend_from_slice(&self.drafts[..accepted]);
        progress.accepted = accepted;
        let Some(&next) = self.drafts.get(accepted) else { return };
        let Verdict::Rejected(own) = self.verdict else {
            // The rest was not judged, or could not be: there is always progress.
            progress.commits.extend((accepted == 0).then_some(next));
            return;
        };
        progress.rejected = 1;
        let own = match self.end {
            Some(end) if self.ends.contains(&own) && !self.to_guide => end,
            _ => own,
        };
        if (self.to_guide || (self.falls_to_guide && accepted == 0)) && (own as usize) < self.vocab {
            progress.commits.push(Commit { token: own, confidence: 1.0, ..next });
        } else if accepted == 0 {
            progress.commits.push(next);
        }
    }

    /// Whether a judged token stands; `row` is what the guide said of it.
    fn stands(&self, judge: Judge, row: &[Judged]) -> bool {
        let agrees = |judged: Option<&Judged>| judged.is_some_and(|judged| self.rule.agrees(judged));
        match judge {
            Judge::Given => true,
            Judge::Token(_) => agrees(row.first()),
            Judge::End(own) => {
                (own.is_some() && agrees(row.first())) || row.iter().skip(1).any(|judged| agrees(Some(judged)))
            }
            Judge::Unknown => false,
        }
    }

    /// Takes the predictions of the first masks as drafts, and puts them before the guide.
    fn draft(&mut self, view: &View<'_>, plan: &StepPlan, predictions: &Predictions) {
        self.drafts.clear();
        let masks = view.layout.block(view.block).filter(|&position| view.canvas.is_masked(position));
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
        self.trials.make(view.canvas, &self.drafts, &mut self.trial);
        self.stood = 0;
        self.verdict = Verdict::Open;
    }

    /// Takes what the guide says of the tokens that it was asked about.
    fn heed(&mut self, request: &Request, answer: &Predictions) {
        self.reader.note(request);
        let width = 1 + self.ends.len();
        for (index, _) in request.plan.predict.iter().enumerate() {
            let row = answer.judged.get(index * width..(index + 1) * width).unwrap_or(&[]);
            if !self.stands(self.trial.judged[self.stood], row) {
                self.verdict = Verdict::Rejected(answer.tokens.get(index).copied().unwrap_or(NO_TOKEN));
                return;
            }
            self.stood += 1;
        }
    }

    /// Fills what the guide is to judge next, or completes the progress.
    fn consult(&mut self, request: &mut Request, progress: &mut Progress) -> Turned {
        while self.trial.judged.get(self.stood) == Some(&Judge::Given) {
            self.stood += 1;
        }
        let Trial { ids, first, judged, .. } = &self.trial;
        let start = first + self.stood;
        let room = (self.helpers[0].sequence.positions + 1).saturating_sub(start);
        let count = (judged.len() - self.stood).min(self.verify).min(room);
        if self.verdict != Verdict::Open || count == 0 || start == 0 || start + count > ids.len() + 1 {
            self.conclude(progress);
            return Turned::Settled;
        }
        self.reader.ask(ids, start..start + count, request);
        let ask = &mut request.ask;
        ask.wanted.judge_width = 1 + self.ends.len();
        ask.judge.clear();
        for judge in &judged[self.stood..self.stood + count] {
            let own = match *judge {
                Judge::Token(own) | Judge::End(Some(own)) => own,
                Judge::Given | Judge::End(None) | Judge::Unknown => 0,
            };
            ask.judge.push(own);
            ask.judge.extend_from_slice(&self.ends);
        }
        Turned::Ask
    }
}

impl Decoder for Guided {
    fn ask(&self, ask: &mut HeadAsk) {
        ask.wanted.limit = self.limit;
    }

    fn intend(&mut self, view: &View<'_>, query: &mut Query) -> Intent {
        if view.block >= view.layout.blocks() {
            return Intent::Done;
        }
        view.canvas.masked_positions(view.layout.block(view.block), &mut query.predict);
        query.drafts = true;
        Intent::Predict
    }

    fn helpers(&self) -> &[Need] {
        &self.helpers
    }

    fn absorb(&mut self, view: &View<'_>, answer: &Answer<'_>, turn: &mut Turn<'_>) -> Turned {
        match answer.whose {
            Whose::Canvas => self.draft(view, answer.plan, answer.predictions),
            Whose::Helper => self.heed(turn.helper, answer.predictions),
        }
        self.consult(turn.helper, turn.progress)
    }
}
