//! The one list of refusals.

use std::{collections::BTreeSet, ops::Range};

use super::*;
use crate::{Drift, HeadAsk, Mask, Positions, Probe, Retain, SequenceLimits};

const LIMITS: PlanLimits = PlanLimits { vocabulary: 70, shift: 1, rows: 24 };

/// One step of a group and the needs that its sequence was opened with.
#[derive(Clone)]
struct Case {
    sequence: u32,
    needs: SequenceLimits,
    shared: Position,
    tokens: Vec<TokenId>,
    plan: StepPlan,
    ask: HeadAsk,
    blend: Option<Blend>,
}

impl Case {
    /// The last four of eight positions, the last two of which were never written.
    fn good() -> Self {
        let needs = SequenceLimits {
            positions: 8,
            rows: 8,
            drafts: 2,
            draft_span: 4,
            predictions: 6,
            top: 1,
            score_width: 2,
            increments: true,
            ..SequenceLimits::default()
        };
        let plan = StepPlan { query: (4..8).into(), kv_len: 8, predict: (5..8).into(), ..StepPlan::default() };
        Self { sequence: 0, needs, shared: 0, tokens: vec![9; 4], plan, ask: HeadAsk::default(), blend: None }
    }

    /// The same of another sequence.
    fn other() -> Self {
        Self { sequence: 1, ..Self::good() }
    }

    fn live(&mut self, live: Range<Position>) {
        self.tokens = vec![9; live.len() * self.plan.lanes.count()];
        self.plan.query.set_range(live);
    }

    fn lanes(&mut self, lanes: Lanes) {
        self.plan.lanes = lanes;
        self.tokens = vec![9; self.plan.rows()];
    }

    fn partial(&mut self, compute: Range<Position>, probe: Option<(Range<Position>, usize)>) {
        let probe = probe.map(|(rows, keep)| Probe { rows: rows.into(), keep, by: Drift::Value });
        self.plan.layers = LayerRows::Partial { compute: compute.into(), probe, first_whole: true };
    }

    fn keep(&mut self, lane: u32, positions: Range<Position>) {
        self.plan.retain = Some(Retain { lane, positions: positions.into() });
    }

    fn guide(&mut self, scale: f32, with: BlendWith) {
        self.blend = Some(Blend { scale, with });
    }

    /// The state after a step of the canvas, then one of two drafts.
    fn state(&self) -> SequenceState {
        let mut state = SequenceState::new(self.needs.clone());
        state.record(&StepPlan { query: (0..6).into(), ..StepPlan::default() });
        state.record(&StepPlan { query: (5..7).into(), lanes: Lanes::Drafts(2), ..StepPlan::default() });
        state.share(self.shared);
        state
    }
}

fn check(group: &[Case]) -> Result<(), PlanError> {
    let states: Vec<_> = group.iter().map(|case| (case.sequence, case.state())).collect();
    let steps: Vec<_> = group
        .iter()
        .map(|Case { sequence, tokens, plan, ask, blend, .. }| SequenceStep {
            sequence: SequenceId(*sequence),
            tokens,
            plan,
            ask,
            blend: *blend,
        })
        .collect();
    let open = |id: SequenceId| states.iter().find(|(sequence, _)| *sequence == id.0 && id.0 < 7);
    LIMITS.check(&steps, |id| open(id).map(|(_, state)| state))
}

type Change = fn(&mut Case);

/// A good step after this change of it, checked before a good one of another sequence.
fn changed(change: Change) -> Vec<Case> {
    let mut group = vec![Case::good(), Case::other()];
    change(&mut group[0]);
    group
}

/// Changes that make a step refused, and the words of the refusal.
const OF_A_STEP: &[(Change, &str)] = &[
    (|step| step.sequence = 7, "sequence 7 is not open"),
    (|step| _ = step.tokens.pop(), "3 tokens for 4 rows"),
    (|step| step.live(0..0), "a step without rows"),
    (|step| step.lanes(Lanes::Drafts(0)), "a step without rows"),
    (|step| step.tokens[3] = 70, "token 70 is outside the vocabulary"),
    (|step| step.plan.kv_len = 9, "position 8 of 8 reserved"),
    (|step| step.live(4..9), "position 8 of 8 reserved"),
    (|step| step.needs.rows = 3, "4 rows, 3 reserved"),
    (|step| step.lanes(Lanes::Drafts(3)), "12 rows, 8 reserved"),
    (
        |step| {
            step.needs.rows = 12;
            step.lanes(Lanes::Drafts(3));
        },
        "3 drafts, 2 reserved",
    ),
    (
        |step| {
            step.needs.draft_span = 3;
            step.lanes(Lanes::Drafts(1));
        },
        "4 positions between drafted rows, 3 reserved",
    ),
    (|step| step.shared = 5, "a position is live or kept whose slot is shared"),
    (
        |step| {
            step.keep(1, 5..7);
            step.live(7..8);
            step.shared = 6;
        },
        "a position is live or kept whose slot is shared",
    ),
    (|step| step.keep(0, 4..6), "position 4 was not in the last step's drafts"),
    (|step| step.keep(2, 5..7), "position 5 was not in the last step's drafts"),
    (|step| step.plan.kv_len = 7, "live position 7 is not visible"),
    (|step| step.live(7..8), "slot 6 is visible and was never written"),
    (|step| step.plan.predict.set_range(4..8), "position 4 needs row 3, which is not live"),
    (|step| step.plan.must.set_range(3..4), "position 3 needs row 2, which is not live"),
    (|step| step.plan.hint.set_range(4..5), "position 4 needs row 3, which is not live"),
    (
        |step| {
            step.partial(4..8, None);
            step.needs.increments = false;
        },
        "partly computed layers without reserved increments",
    ),
    (|step| step.partial(3..8, None), "computed position 3 is not live"),
    (|step| step.partial(6..8, Some((3..6, 1))), "computed position 3 is not live"),
    (|step| step.partial(6..8, Some((4..6, 3))), "a probe keeps more rows than it has"),
    (|step| step.partial(5..8, Some((4..6, 1))), "a probed row is computed anyway"),
    (|step| step.partial(7..8, None), "slot 6 is visible and was never written"),
    (|step| step.needs.predictions = 2, "3 predictions, 2 reserved"),
    (|step| step.ask.wanted.top = 2, "2 best tokens, 1 reserved"),
    (|step| step.ask.wanted.score_width = 3, "3 judged tokens, 2 reserved"),
    (|step| step.ask.wanted.logits = true, "1 logits, 0 reserved"),
    (|step| step.ask.score = vec![1], "1 tokens to judge, expected 0"),
    (|step| step.ask.wanted.score_width = 2, "0 tokens to judge, expected 6"),
    (|step| step.ask.wanted.banned = vec![70].into(), "token 70 is outside the vocabulary"),
    (|step| step.ask.wanted.zero_confidence = vec![71].into(), "token 71 is outside the vocabulary"),
    (
        |step| {
            step.ask.wanted.score_width = 1;
            step.ask.score = vec![72; 3];
        },
        "token 72 is outside the vocabulary",
    ),
    (|step| step.ask.wanted.limit = Some(71), "token 70 is outside the vocabulary"),
    (|step| step.ask.wanted.limit = Some(0), "predictions below token 0, of which there are none"),
    (|step| step.ask.wanted.sampling.temperature = f32::NAN, "a temperature that is no number from 0 up"),
    (|step| step.ask.wanted.sampling.temperature = -1.0, "a temperature that is no number from 0 up"),
    (|step| step.ask.wanted.sampling.top_p = 0.0, "top-p that is no number above 0 and up to 1"),
    (|step| step.ask.wanted.sampling.min_p = 1.5, "min-p that is no number from 0 to 1"),
    (|step| step.guide(f32::INFINITY, BlendWith::Behind(1)), "guidance by a scale that is no number"),
    (|step| step.guide(1.0, BlendWith::Stored), "stored guidance without a reserved residual"),
    (|step| step.guide(1.0, BlendWith::Behind(2)), "guidance by a step that is not in the group or has other lanes"),
    (
        |step| step.guide(1.0, BlendWith::Behind(usize::MAX)),
        "guidance by a step that is not in the group or has other lanes",
    ),
    (
        |step| {
            step.lanes(Lanes::Drafts(2));
            step.guide(1.0, BlendWith::Behind(1));
        },
        "guidance by a step that is not in the group or has other lanes",
    ),
    (
        |step| {
            step.needs.predictions = 8;
            step.live(3..8);
            step.plan.predict.set_range(4..8);
            step.guide(1.0, BlendWith::Behind(1));
        },
        "guidance by a row that is not live",
    ),
];

/// Groups that are refused although each step is good.
fn of_a_group() -> [(Vec<Case>, &'static str); 4] {
    let (mut whole, mut rest) = (Case::good(), Case { sequence: 2, ..Case::good() });
    whole.partial(4..8, None);
    rest.partial(4..8, None);
    if let LayerRows::Partial { first_whole, .. } = &mut rest.plan.layers {
        *first_whole = false;
    }
    let many = (0..7).map(|sequence| Case { sequence, ..Case::good() }).collect();
    let differ = "a group treats the first layer of its sequences differently";
    [
        (vec![Case::good(), Case::good()], "a sequence runs twice in one step"),
        (vec![whole.clone(), rest.clone()], differ),
        (vec![Case::other(), whole, rest], differ),
        (many, "28 rows of a group, 24 reserved"),
    ]
}

/// Number of a variant, and how many there are: a new one has to be added here.
fn variant(error: &PlanError) -> (usize, usize) {
    let number = match error {
        PlanError::UnknownSequence(_) => 0,
        PlanError::TokenCount { .. } => 1,
        PlanError::ScoreCount { .. } => 2,
        PlanError::TokenOutOfRange(_) => 3,
        PlanError::PositionOutOfRange { .. } => 4,
        PlanError::LiveNotVisible(_) => 5,
        PlanError::RowNotLive { .. } => 6,
        PlanError::SlotNeverWritten(_) => 7,
        PlanError::ComputedNotLive(_) => 8,
        PlanError::NothingToKeep(_) => 9,
        PlanError::BeyondReserve { .. } => 10,
        PlanError::Contradiction(_) => 11,
    };
    (number, 12)
}

#[test]
fn every_refusal_is_made_in_its_words() {
    assert_eq!(check(&changed(|_| {})), Ok(()));
    let of_steps = OF_A_STEP.iter().map(|&(change, words)| (changed(change), words));
    let (mut variants, mut all_words) = (BTreeSet::new(), String::new());
    for (group, words) in of_steps.chain(of_a_group()) {
        let error = check(&group).expect_err(words);
        assert_eq!(error.to_string(), format!("step plan refused (a bug, please report it): {words}"));
        variants.insert(variant(&error));
        all_words += words;
    }
    assert_eq!(variants, (0..12).map(|number| (number, 12)).collect());
    for start in ["Contradiction(\"", "within(\""] {
        for rest in include_str!("../check.rs").split(start).skip(1) {
            let words = rest.split('"').next().unwrap();
            assert!(all_words.contains(words), "no case of the list is refused as '{words}'");
        }
    }
}

#[test]
fn drafts_are_kept_once() {
    let keep = |positions: Range<Position>| {
        let mut case = Case::good();
        case.keep(1, positions);
        case.live(7..8);
        case.plan.predict.clear();
        case
    };
    assert_eq!(check(&[keep(5..7)]), Ok(()), "what is kept is written");
    let mut state = keep(5..7).state();
    assert!(!state.is_written(6), "drafts write to no slot");
    state.record(&keep(5..7).plan);
    assert!((0..8).all(|position| state.is_written(position)) && !state.has_drafted(1, 5));
    assert_eq!((state.written(), state.is_written(8)), (8, false));
}

/// A slot that no row's mask reaches may be empty, visible or not.
#[test]
fn slots_count_up_to_the_last_row_that_sees_them() {
    let mut case = Case::good();
    case.live(4..6);
    case.plan.predict = Positions::new();
    assert_eq!(check(&[case.clone()]), Err(PlanError::SlotNeverWritten(6)));
    case.plan.mask = Mask::Causal;
    assert_eq!(check(&[case]), Ok(()));
}

/// A row may be left out of the layers once its slot is written or kept, never before.
#[test]
fn rows_that_layers_leave_out_need_their_slots() {
    let mut case = Case::good();
    case.partial(6..8, Some((4..6, 2)));
    assert_eq!(check(&[case.clone()]), Ok(()));
    case.partial(7..8, Some((4..6, 2)));
    case.keep(0, 5..7);
    assert_eq!(check(&[case]), Ok(()));
}
