//! Lowering worked out by hand.

use demask_step::{
    Blend, BlockRules, HeadAsk, HeadRequest, Mask, Probe, Retain, SequenceId, SequenceLimits, StepPlan, random,
};

use super::*;
use crate::{Rope, RopeScaling};

fn spec(shift: usize) -> ArchSpec {
    ArchSpec {
        family: "LLaDA",
        hidden: 8,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        head_dim: 4,
        ffn: 16,
        experts: None,
        vocabulary: 100,
        context: 256,
        rope: Rope { theta: 1e4, rotated: 4, full_precision: true, scaling: RopeScaling::None },
        norm_epsilon: 1e-5,
        qkv_bias: false,
        head_norms: false,
        tied: false,
        attention: Mask::Full,
        shift,
        blocks: BlockRules::default(),
        query_scale: None,
    }
}

/// A sequence of 70 positions on the pages 5, 3, 8, with two drafts of up to two pages each.
fn sequence(needs: &SequenceLimits) -> Sequence {
    let needs =
        SequenceLimits { positions: 70, rows: 140, drafts: 2, draft_span: 20, predictions: 140, ..needs.clone() };
    let mut sequence = Sequence::new(needs);
    sequence.pages = vec![5, 3, 8];
    sequence.draft_pages = vec![10, 11, 12, 13];
    sequence
}

struct Lowering {
    launch: Launch,
    lowered: Lowered,
}

fn lower(spec: &ArchSpec, batch: &[SequenceStep<'_>], sequences: &[Sequence]) -> Lowering {
    let (mut launch, mut lowered) = (Launch::default(), Lowered::default());
    lowered.lower(spec, batch, |index| &sequences[index], &mut launch);
    Lowering { launch, lowered }
}

fn step<'a>(tokens: &'a [u32], plan: &'a StepPlan, ask: &'a HeadAsk) -> SequenceStep<'a> {
    SequenceStep { sequence: SequenceId(0), tokens, plan, ask, blend: None }
}

fn plan(live: &[u32], visible: u32, predict: &[u32]) -> StepPlan {
    StepPlan {
        query: live.iter().copied().collect(),
        kv_len: visible,
        predict: predict.iter().copied().collect(),
        ..StepPlan::default()
    }
}

#[test]
fn canvas_rows_follow_the_page_table() {
    let plan = StepPlan { mask: Mask::blocks(4), ..plan(&[0, 31, 32, 69], 70, &[31]) };
    let found =
        lower(&spec(0), &[step(&[1, 2, 3, 4], &plan, &HeadAsk::default())], &[sequence(&SequenceLimits::default())]);
    let launch = &found.launch;
    assert_eq!(launch.ids, [1, 2, 3, 4]);
    assert_eq!(launch.positions, [0, 31, 32, 69]);
    assert_eq!(launch.slots, [5 * 32, 5 * 32 + 31, 3 * 32, 8 * 32 + 5]);
    assert_eq!(launch.limits, [4, 32, 36, 70]);
    assert_eq!(launch.tables, [5, 3, 8]);
    assert_eq!(launch.segments, [RowSegment { rows: 0..4, table: 0..3 }]);
    assert!(launch.copies.is_empty() && launch.keeps.is_empty() && !launch.partial);
    assert_eq!(launch.last, [1]);
}

#[test]
fn drafts_read_shared_pages_and_write_their_own() {
    let mut sequence = sequence(&SequenceLimits::default());
    touched_pages(&(30..34).into(), &mut sequence.touched);
    let mut plan = plan(&[30, 31, 32, 33], 64, &[31, 33]);
    plan.lanes = Lanes::Drafts(2);
    plan.retain = Some(Retain { lane: 1, positions: [31, 33].into_iter().collect() });
    let tokens = [1, 2, 3, 4, 5, 6, 7, 8];
    let found = lower(&spec(0), &[step(&tokens, &plan, &HeadAsk::default())], &[sequence]);
    let launch = &found.launch;
    // The accepted draft was lane 1: its pages are 12 (positions 0..32) and 13 (32..64).
    assert_eq!(
        launch.keeps,
        [SlotCopy { from: 12 * 32 + 31, to: 5 * 32 + 31 }, SlotCopy { from: 13 * 32 + 1, to: 3 * 32 + 1 }]
    );
    let copy = |from, to| PageCopy { from, to };
    assert_eq!(launch.copies, [copy(5, 10), copy(3, 11), copy(5, 12), copy(3, 13)]);
    assert_eq!(launch.tables, [10, 11, 12, 13]);
    assert_eq!(launch.segments, [RowSegment { rows: 0..4, table: 0..2 }, RowSegment { rows: 4..8, table: 2..4 }]);
    assert_eq!(launch.slots[4..], [12 * 32 + 30, 12 * 32 + 31, 13 * 32, 13 * 32 + 1]);
    let rows: Vec<u32> = launch.head.rows.iter().map(|head| head.row).collect();
    assert_eq!(rows, [1, 3, 5, 7]);
}

#[test]
fn shifted_models_read_the_row_before_and_lanes_skip_what_they_hold() {
    let mut plan = plan(&[9, 10, 11], 20, &[10, 11]);
    plan.must = [12].into_iter().collect();
    let wanted = HeadRequest { score_width: 1, ..HeadRequest::default() };
    let ask = HeadAsk { wanted, only_where: Some(99), states: vec![40], score: vec![7, 8, 9], ..HeadAsk::default() };
    let found = lower(&spec(1), &[step(&[1, 99, 2], &plan, &ask)], &[sequence(&SequenceLimits::default())]);
    // 10 is masked and read from row 9; 11 holds token 2; 12 is not live, so nothing says that it is held.
    let rows: Vec<u32> = found.launch.head.rows.iter().map(|head| head.row).collect();
    assert_eq!(rows, [0, 2]);
    assert_eq!(found.launch.head.score, [7, 9]);
    assert_eq!(found.launch.head.rows[0].key, random::key(0, random::Use::Token, 10, 40));
    let in_order = HeadAsk { in_order: true, ..ask.clone() };
    let ordered = lower(&spec(1), &[step(&[1, 99, 2], &plan, &in_order)], &[sequence(&SequenceLimits::default())]);
    assert_eq!(ordered.launch.head.rows[0].key, random::key(0, random::Use::Token, 10, 10), "whatever the lane holds");
    let judged = |rank, log_probability, best| TokenScore { rank, log_probability, best };
    let mut output = HeadOutput {
        tokens: vec![50, 51],
        confidence: vec![0.5, 0.25],
        scores: vec![judged(1, -1.0, 0.5), judged(2, -2.0, 0.25)],
        ..HeadOutput::default()
    };
    let mut answers = [Predictions::default()];
    found.lowered.scatter(&[step(&[1, 99, 2], &plan, &ask)], &mut output, 100, &mut answers);
    assert_eq!(answers[0].positions.as_slice(), [10, 11, 12]);
    assert_eq!(answers[0].tokens, [50, demask_step::NO_TOKEN, 51]);
    assert_eq!(answers[0].confidence, [0.5, f32::NEG_INFINITY, 0.25]);
    assert_eq!(answers[0].scores.iter().map(|judged| judged.rank).collect::<Vec<_>>(), [1, u32::MAX, 2]);
}

#[test]
fn position_zero_predicts_itself_in_shifted_models() {
    let plan = plan(&[0, 1], 2, &[0, 1]);
    let found =
        lower(&spec(1), &[step(&[99, 99], &plan, &HeadAsk::default())], &[sequence(&SequenceLimits::default())]);
    assert_eq!(found.launch.head.rows.iter().map(|head| head.row).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(found.launch.last, [0]);
}

#[test]
fn partly_computed_steps_name_their_rows() {
    let needs = SequenceLimits { increments: true, ..SequenceLimits::default() };
    let whole = plan(&[0, 1], 2, &[1]);
    let mut partial = plan(&[4, 5, 6, 7, 8], 12, &[6]);
    partial.layers = LayerRows::Partial {
        compute: [4].into_iter().collect(),
        probe: Some(Probe { rows: (5..9).into(), keep: 2, by: Drift::Value }),
        first_whole: true,
    };
    let ask = HeadAsk::default();
    let batch = [step(&[1, 2], &whole, &ask), step(&[1, 2, 3, 4, 5], &partial, &ask)];
    let found = lower(&spec(0), &batch, &[sequence(&SequenceLimits::default()), sequence(&needs)]);
    let launch = &found.launch;
    assert!(launch.partial && found.lowered.first_whole);
    assert_eq!(launch.fixed, [0, 1, 2]);
    assert_eq!(launch.probed, [3, 4, 5, 6]);
    assert_eq!(launch.probes, [ProbeLaunch { rows: 4, keep: 2, by: Drift::Value }]);
    assert_eq!(launch.held, [2, 3, 4, 5, 6]);
    assert_eq!(launch.count(Rows::Computed), 5);
    assert_eq!((found.lowered.key_rows, found.lowered.value_rows), (Rows::Computed, Rows::Fixed));
}

#[test]
fn guidance_points_at_the_other_sequence_and_its_slot() {
    let needs = SequenceLimits { residual: true, ..SequenceLimits::default() };
    let conditional = plan(&[3, 4], 5, &[4]);
    let unconditional = plan(&[0, 1, 2, 3, 4], 5, &[]);
    let ask = HeadAsk::default();
    let blend = Some(Blend { scale: 2.0, with: BlendWith::Behind(1) });
    let batch =
        [SequenceStep { blend, ..step(&[1, 2], &conditional, &ask) }, step(&[1, 2, 3, 4, 5], &unconditional, &ask)];
    let found = lower(&spec(0), &batch, &[sequence(&needs), sequence(&SequenceLimits::default())]);
    assert_eq!(found.launch.head.blends, [BlendRows { head_row: 0, other: 6, scale: 2.0, slot: 5 * 32 + 4 }]);
    assert_eq!(found.launch.last, [1, 6]);
}

/// specs/caches.md#7: `L R (c + 4 d k) + 2 d V r`, less the parts that the last layer leaves out.
#[test]
fn caches_x9_costs_follow_the_formula() {
    let spec = spec(0);
    let ask = HeadAsk::default();
    let needs = SequenceLimits { increments: true, ..SequenceLimits::default() };
    let (d, q, kv, f, v) = (8.0, 8.0, 4.0, 16.0, 100.0);
    let c = 2.0 * (2.0 * d * q + 2.0 * d * kv + 3.0 * d * f);
    let attention = |rows: f64, keys: f64| 4.0 * q * rows * keys;

    let full = plan(&[0, 1, 2, 3, 4, 5], 6, &[4, 5]);
    let tokens = [1; 6];
    let found = lower(&spec, &[step(&tokens, &full, &ask)], &[sequence(&SequenceLimits::default())]);
    let last = 6.0 * 4.0 * d * kv + 2.0 * (c - 4.0 * d * kv) + attention(2.0, 6.0);
    let head = 2.0 * d * v * 2.0;
    assert_eq!(found.lowered.parts[0].cost.flops(), 6.0 * c + attention(6.0, 6.0) + last + head);
    assert_eq!((found.lowered.parts[0].cost.rows, found.lowered.parts[0].cost.head_rows), (6, 2));

    let mut partial = plan(&[0, 1, 2, 3, 4, 5], 6, &[4, 5]);
    partial.layers = LayerRows::Partial {
        compute: Positions::new(),
        probe: Some(Probe { rows: (2..6).into(), keep: 1, by: Drift::Value }),
        first_whole: true,
    };
    let found = lower(&spec, &[step(&tokens, &partial, &ask)], &[sequence(&needs)]);
    let first = 6.0 * c + attention(6.0, 6.0);
    let second = 2.0 * d * kv * 4.0 + (c - 2.0 * d * kv) + attention(1.0, 6.0);
    assert_eq!(found.lowered.parts[0].cost.flops(), first + second + head);
}
