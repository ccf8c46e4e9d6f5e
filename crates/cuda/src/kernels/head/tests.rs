use demask_step::{ConfidenceOf, FilterOrder, HeadRequest, Sampling, TokenList, TokenScore};
use demask_tensor::PAGE;
use demask_testkit::{
    naive::{
        head,
        network::{self as naive, assert_near, noise},
    },
    property,
};
use proptest::{prelude::*, test_runner::RngSeed};

use super::*;
use crate::{
    arguments::{HeadAnswerArgs, HeadInputArgs, HeadRowData, RequestData, Store},
    emulator::Emulator,
    gpu::Address,
    kernels::trial::{Trial, emulators},
};

/// A head row that is neither blended nor asked for lists.
const PLAIN: HeadRowData = HeadRowData {
    row: 0,
    request: 0,
    key: 0,
    other: u32::MAX,
    slot: u32::MAX,
    scale: 0.0,
    blended: 0,
    top: 0,
    judged: 0,
};

/// A row of logits and the questions about it.
#[derive(Debug, Clone)]
struct Asked {
    logits: Vec<f32>,
    request: HeadRequest,
    key: u64,
    judge: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq)]
struct Answer {
    token: u32,
    confidence: f32,
    margin: f32,
    entropy: f32,
    top: Vec<(u32, f32)>,
    judged: Vec<TokenScore>,
}

/// Lists of tokens, one after the other.
#[derive(Default)]
struct Lists(Vec<u32>);

impl Lists {
    /// Adds tokens and returns the index of the first.
    fn add(&mut self, tokens: &[u32]) -> u32 {
        self.0.extend_from_slice(tokens);
        (self.0.len() - tokens.len()) as u32
    }
}

/// Answers of the kernel to the rows from `first` on, which all have the same vocabulary.
fn answers(table: &Trial<'_>, rows: &[Asked], first: usize) -> Vec<Answer> {
    let vocabulary = rows[0].logits.len();
    let (mut lists, mut top) = (Lists::default(), 0);
    let mut data = Vec::new();
    for (row, index) in rows.iter().zip(0..) {
        assert_eq!(row.judge.len(), row.request.score_width);
        let judged = lists.add(&row.judge);
        data.push(HeadRowData { request: index, key: row.key, top, judged, ..PLAIN });
        top += row.request.top as u32;
    }
    let judged = lists.0.len();
    let request = |Asked { request, .. }: &Asked| {
        let forbid = lists.add(&request.banned);
        RequestData::of(request, forbid, lists.add(&request.zero_confidence))
    };
    let requests: Vec<RequestData> = rows.iter().map(request).collect();
    let logits: Vec<f32> = rows[first..].iter().flat_map(|row| row.logits.clone()).collect();
    let args = HeadAnswerArgs {
        rows: table.put(&data),
        count: table.put(&[rows.len() as u32]),
        requests: table.put(&requests),
        lists: table.put(&lists.0),
        logits: table.put(&logits),
        scratch: table.room::<u64>(logits.len()),
        tokens: table.room::<u32>(rows.len()),
        confidence: table.room::<f32>(rows.len()),
        margin: table.room::<f32>(rows.len()),
        entropy: table.room::<f32>(rows.len()),
        top: table.room::<[u32; 2]>(top as usize),
        judged: table.room::<[u32; 3]>(judged),
        first: first as u32,
        vocabulary: vocabulary as u32,
    };
    // Two blocks too many.
    table.run(head_answer(rows.len() - first + 2, vocabulary), &args);
    let tokens = table.take::<u32>(args.tokens, rows.len());
    let [confidence, margin, entropy] =
        [args.confidence, args.margin, args.entropy].map(|at| table.take::<f32>(at, rows.len()));
    let tops = table.take::<[u32; 2]>(args.top, top as usize);
    let judgements = table.take::<[u32; 3]>(args.judged, judged);
    assert!(tokens[..first].iter().all(|&token| token == u32::MAX), "rows in front of the first");
    let answer = |index: usize| {
        let (HeadRowData { top, judged, .. }, Asked { request, .. }) = (data[index], &rows[index]);
        let tops = &tops[top as usize..][..request.top];
        let judgements = &judgements[judged as usize..][..request.score_width];
        let float = f32::from_bits;
        let judged =
            |&[rank, log, best]: &[u32; 3]| TokenScore { rank, log_probability: float(log), best: float(best) };
        Answer {
            token: tokens[index],
            confidence: confidence[index],
            margin: margin[index],
            entropy: entropy[index],
            top: tops.iter().map(|&[token, p]| (token, float(p))).collect(),
            judged: judgements.iter().map(judged).collect(),
        }
    };
    (first..rows.len()).map(answer).collect()
}

/// Answers for both orders of threads, which must agree to the bit.
fn answers_of_both(gpus: &[Emulator; 2], rows: &[Asked]) -> Vec<Answer> {
    let [forward, backward] = gpus.each_ref().map(|gpu| answers(&Trial(gpu), rows, 0));
    // As texts, in which what is not a number is equal to itself.
    assert_eq!(format!("{forward:?}"), format!("{backward:?}"));
    forward
}

fn near(found: f32, expected: f64, what: &str) {
    let near = (f64::from(found) - expected).abs() <= 4e-6 * expected.abs().max(1.0);
    assert!(near || found.is_nan() && expected.is_nan(), "{what}: {found}, not {expected}");
}

/// The naive twin's answer.
fn twin(asked: &Asked) -> head::Answer {
    head::answer(&asked.logits, &asked.request, asked.key, &asked.judge)
}

/// Checks everything against the twin, unless rounding decides it. Returns whether it was checked.
fn check(asked: &Asked, found: &Answer) -> bool {
    let expected = twin(asked);
    if expected.close {
        return false;
    }
    assert_eq!(found.token, expected.token, "the token");
    near(found.confidence, expected.confidence, "confidence");
    near(found.margin, if asked.request.margin { expected.margin } else { 0.0 }, "margin");
    near(found.entropy, if asked.request.entropy { expected.entropy } else { 0.0 }, "entropy");
    for (rank, &(token, probability)) in found.top.iter().enumerate() {
        let expected = expected.top.get(rank).copied().unwrap_or((u32::MAX, 0.0));
        assert_eq!(token, expected.0, "number {rank} of the best");
        near(probability, expected.1, "one of the best");
    }
    for (&(rank, log_probability, best), found) in expected.judged.iter().zip(&found.judged) {
        assert_eq!(found.rank, rank);
        if log_probability == f64::NEG_INFINITY {
            assert_eq!(found.log_probability, f32::NEG_INFINITY);
        } else {
            near(found.log_probability, log_probability, "log-probability");
        }
        near(found.best, best, "best probability");
    }
    true
}

fn asked(logits: Vec<f32>, request: HeadRequest) -> Asked {
    Asked { logits, request, key: 77, judge: Vec::new() }
}

fn everything() -> HeadRequest {
    HeadRequest { margin: true, entropy: true, top: 3, ..HeadRequest::default() }
}

#[test]
fn answers_match_their_definitions() {
    let gpus = emulators();
    for (vocabulary, sharpness) in [(1, 1.0), (5, 5.0), (100, 40.0), (9001, 8.0)] {
        let logits: Vec<f32> = noise(vocabulary, 3).iter().map(|value| value * sharpness).collect();
        let mut rows = Vec::new();
        for temperature in [0.0, 0.2, 1.7] {
            for confidence in [ConfidenceOf::Raw, ConfidenceOf::Drawn] {
                for (top_k, top_p, min_p) in head::FILTERS {
                    let orders = [FilterOrder::TopKFirst, FilterOrder::TopPFirst];
                    // The order matters where both are asked.
                    for &order in &orders[usize::from(top_k == 0 || top_p == 1.0)..] {
                        let sampling = Sampling { temperature, top_k, top_p, min_p, order, confidence, seed: 0 };
                        let mut request = HeadRequest { sampling, ..everything() };
                        if rows.len() % 3 == 0 && vocabulary > 1 {
                            request.banned = vec![naive::argmax(&logits) as u32].into();
                        }
                        rows.push(Asked { key: rows.len() as u64, ..asked(logits.clone(), request) });
                    }
                }
            }
        }
        let found = answers_of_both(&gpus, &rows);
        let checked = rows.iter().zip(&found).filter(|(asked, found)| check(asked, found)).count();
        assert!(
            checked * 10 > rows.len() * 9,
            "{checked} of {} rows of {vocabulary} are no matter of rounding",
            rows.len()
        );
    }
}

#[test]
fn a_muted_winner_has_no_confidence_and_the_others_are_renormalised() {
    let logits = vec![1.0, 4.0, 2.0, 3.0];
    let rows: Vec<Asked> = [vec![1], vec![0], vec![0, 1, 2, 3], vec![1, 3]]
        .into_iter()
        .map(|mute| asked(logits.clone(), HeadRequest { zero_confidence: mute.into(), ..everything() }))
        .collect();
    let found = answers_of_both(&emulators(), &rows);
    rows.iter().zip(&found).for_each(|(asked, found)| assert!(check(asked, found)));
    assert_eq!((found[0].token, found[0].confidence, found[0].top[0].0), (1, 0.0, 3));
    near(found[1].confidence, 1.0 / (1.0 + (-1f64).exp() + (-2f64).exp()), "confidence");
    assert_eq!((found[2].token, found[2].confidence, found[2].entropy), (1, 0.0, 0.0));
}

#[test]
fn the_mask_is_never_chosen_and_keeps_its_share() {
    let drawn =
        |top_k, temperature| Sampling { top_k, temperature, confidence: ConfidenceOf::Drawn, ..Sampling::default() };
    let samplings = [Sampling::default(), drawn(0, 0.7), drawn(1, 0.0), drawn(1, 0.7), drawn(2, 1.5)];
    let mut rows = Vec::new();
    for (mask, others) in [(0.0, 3.0), (3.0, 0.0), (200.0, 0.0), (-200.0, 0.0)] {
        let mut logits = vec![others - 60.0; 70];
        (logits[40], logits[69], logits[66]) = (others, others - 1.0, mask);
        for sampling in samplings {
            let request = HeadRequest { banned: vec![66].into(), sampling, score_width: 2, ..everything() };
            rows.push(Asked { judge: vec![66, 69], ..asked(logits.clone(), request) });
        }
    }
    let found = answers_of_both(&emulators(), &rows);
    for (asked, found) in rows.iter().zip(&found) {
        assert!(check(asked, found));
        assert!(found.token != 66 && found.top[..2].iter().all(|best| best.0 != 66));
    }
    near(found[5].confidence, 1.0 / (1.0 + (-1f64).exp() + 3f64.exp()), "confidence");
}

#[test]
fn ties_go_to_the_lowest_token_and_top_k_keeps_them_all() {
    let mut logits = vec![0.0; 5000];
    for token in [4321, 77, 4096] {
        logits[token] = 9.0;
    }
    // Zeros of either sign are equal.
    logits[10] = -0.0;
    let of_best = |top_k| Sampling { top_k, confidence: ConfidenceOf::Drawn, ..Sampling::default() };
    let rows = [
        asked(logits.clone(), HeadRequest { top: 6, ..everything() }),
        asked(logits.clone(), HeadRequest { sampling: of_best(1), ..everything() }),
        asked(logits.clone(), HeadRequest { sampling: of_best(4), ..everything() }),
    ];
    let found = answers_of_both(&emulators(), &rows);
    assert_eq!((found[0].token, found[0].margin), (77, 0.0));
    assert_eq!(found[0].top.iter().map(|&(token, _)| token).collect::<Vec<_>>(), [77, 4096, 4321, 0, 1, 2]);
    near(found[1].confidence, 1.0 / 3.0, "confidence");
    near(found[2].confidence, 1.0 / (3.0 + 4997.0 * (-9f64).exp()), "confidence");
}

#[test]
fn judged_tokens_are_ranked_in_the_plain_distribution() {
    let logits = noise(700, 4);
    let judge: Vec<u32> = (0..21).map(|i| i * 33).chain([5, 5]).collect();
    let request = HeadRequest {
        score_width: judge.len(),
        sampling: Sampling { temperature: 2.0, confidence: ConfidenceOf::Drawn, ..Sampling::default() },
        zero_confidence: vec![33, 7].into(),
        banned: vec![66, 8].into(),
        ..everything()
    };
    let row = Asked { judge, ..asked(logits, request) };
    assert!(check(&row, &answers_of_both(&emulators(), std::slice::from_ref(&row))[0]));
}

#[test]
fn rows_of_nothing_answer_without_nonsense() {
    // Other than the confidence, which is none.
    let nothing = Answer { token: 0, confidence: 0.0, margin: 0.0, entropy: 0.0, top: vec![(0, 0.0)], judged: vec![] };
    let (order, confidence) = (FilterOrder::TopKFirst, ConfidenceOf::Drawn);
    let gpus = emulators();
    for temperature in [0.0, 1.0] {
        let sampling = Sampling { top_k: 1, top_p: 0.5, order, confidence, temperature, ..Sampling::default() };
        let request = HeadRequest { sampling, top: 1, ..everything() };
        let rows = [
            asked(
                vec![1.0, 2.0],
                HeadRequest { banned: vec![0, 1].into(), zero_confidence: vec![0, 1].into(), ..request.clone() },
            ),
            asked(vec![f32::NEG_INFINITY; 2], request.clone()),
            asked(vec![f32::NAN; 2], HeadRequest { zero_confidence: vec![1].into(), ..request.clone() }),
        ];
        for found in answers_of_both(&gpus, &rows) {
            assert!(found.confidence.is_nan());
            assert_eq!(Answer { confidence: 0.0, ..found }, nothing);
        }
        let infinite = asked(vec![1.0, f32::INFINITY, 2.0], request.clone());
        assert!(answers_of_both(&gpus, &[infinite])[0].confidence.is_nan());
        let judged = HeadRequest { score_width: 1, ..request };
        let rows = [Asked { judge: vec![1], ..asked(vec![f32::NEG_INFINITY; 2], judged) }];
        let found = answers_of_both(&gpus, &rows).swap_remove(0).judged[0];
        assert!(found.log_probability.is_nan());
        assert_eq!((found.rank, found.best), (1, 0.0));
    }
}

#[test]
fn one_token_that_is_not_struck_out_is_certain() {
    let gpus = emulators();
    for vocabulary in [2u32, 300] {
        let forbid: TokenList = (0..vocabulary).filter(|&token| token != 1).collect();
        let rows: Vec<Asked> = [0.0, 0.7]
            .into_iter()
            .map(|temperature| {
                let sampling = Sampling { temperature, ..Sampling::default() };
                let request =
                    HeadRequest { banned: forbid.clone(), zero_confidence: forbid.clone(), sampling, ..everything() };
                asked(noise(vocabulary as usize, 8), request)
            })
            .collect();
        for found in answers_of_both(&gpus, &rows) {
            assert_eq!((found.token, found.confidence, found.margin, found.entropy), (1, 1.0, 1.0, 0.0));
            assert_eq!(found.top[0], (1, 1.0));
        }
    }
}

#[test]
fn logits_that_are_no_numbers_never_win() {
    let mut logits = noise(100, 9);
    logits[40] = f32::NAN;
    logits[41] = -f32::NAN;
    let rows: Vec<Asked> = [0.0, 1.0]
        .into_iter()
        .map(|temperature| Sampling { temperature, ..Sampling::default() })
        .map(|sampling| asked(logits.clone(), HeadRequest { sampling, top: 100, ..everything() }))
        .collect();
    let found = answers_of_both(&emulators(), &rows);
    rows.iter().zip(&found).for_each(|(asked, found)| assert!(check(asked, found)));
    assert_eq!(found[0].top[98..], [(40, 0.0), (41, 0.0)]);
}

/// A vocabulary of today's models, where the whole of it must be looked through, sorted or listed.
#[test]
fn the_worst_cases_of_large_vocabularies_are_right() {
    const VOCABULARY: usize = 151_936;
    let falling =
        |spread: f32| -> Vec<f32> { noise(VOCABULARY, 12).iter().map(|value| 60.0 + value * spread).collect() };
    let mut lonely = vec![f32::NEG_INFINITY; VOCABULARY];
    lonely[VOCABULARY - 1] = -3e38;
    let tempered = |temperature, top_k, top_p| {
        let confidence = ConfidenceOf::Drawn;
        let sampling = Sampling { temperature, top_k, top_p, confidence, ..Sampling::default() };
        HeadRequest { sampling, ..everything() }
    };
    let drawn = |top_k, top_p| tempered(1.0, top_k, top_p);
    let rows = [
        asked(vec![1.5; VOCABULARY], drawn(0, 0.37)),
        asked(vec![-2.5; VOCABULARY], tempered(0.0, 90_000, 1.0)),
        asked(falling(0.001), drawn(0, 0.9)),
        asked(falling(9.0), drawn(0, 0.9999)),
        asked(falling(9.0), drawn(7000, 0.5)),
        asked(falling(50.0), HeadRequest { top: 6000, ..everything() }),
        asked(lonely, HeadRequest { top: 3, ..drawn(5, 0.5) }),
    ];
    let [gpu, _] = emulators();
    let table = Trial(&gpu);
    let found = answers(&table, &rows, 0);
    for (index, (asked, found)) in rows.iter().zip(&found).enumerate() {
        // Where thousands of tokens have nearly the same weight, rounding decides which of them is the last.
        if !check(asked, found) {
            assert!((0..5).contains(&index) && index != 1, "row {index}");
            check_roughly(asked, found);
        }
    }
    // Equal tokens pass in ascending order.
    let passing = (VOCABULARY as f64 * f64::from(0.37f32)).floor() + 1.0;
    near(1.0 / found[0].confidence, passing, "equal tokens that pass");
}

/// Checks as exactly as some tokens more or less at the filter's end allow.
fn check_roughly(asked: &Asked, found: &Answer) {
    let expected = twin(asked);
    assert_eq!((found.token, asked.request.sampling.temperature), (expected.token, 1.0));
    assert!((f64::from(found.confidence) / expected.confidence - 1.0).abs() < 1e-3);
    assert!((f64::from(found.entropy) - expected.entropy).abs() < 1e-3);
}

#[test]
fn what_a_row_answers_depends_neither_on_its_place_nor_on_others() {
    let sampling = |temperature| Sampling { temperature, ..Sampling::default() };
    let (order, confidence) = (FilterOrder::TopKFirst, ConfidenceOf::Drawn);
    let filtered = Sampling { top_k: 40, top_p: 0.8, order, confidence, ..sampling(1.3) };
    // An odd vocabulary: rows begin anywhere in lines of memory.
    let row = |index: u64| {
        let request = match index % 4 {
            0 => everything(),
            1 => HeadRequest { sampling: sampling(0.8), zero_confidence: vec![4, 9].into(), ..everything() },
            2 => HeadRequest { sampling: filtered, top: 40, ..everything() },
            _ => HeadRequest { banned: vec![index as u32].into(), score_width: 2, ..everything() },
        };
        let judge = vec![7; request.score_width];
        Asked { judge, key: index, ..asked(noise(3001, index), request) }
    };
    let rows: Vec<Asked> = (0..8).map(row).collect();
    let [gpu, _] = emulators();
    let table = Trial(&gpu);
    let together = answers(&table, &rows, 0);
    for index in 0..rows.len() {
        assert_eq!(answers(&table, &rows[index..=index], 0), together[index..=index]);
        assert_eq!(answers(&table, &rows, index), together[index..]);
    }
    let turned: Vec<Asked> = rows.iter().rev().cloned().collect();
    let turned = answers(&table, &turned, 0);
    assert!(turned.iter().rev().eq(&together));
}

/// Logits with ties, some minus infinite or none, and anything that may be asked.
fn any_asked() -> impl Strategy<Value = Vec<Asked>> {
    let vocabulary = prop_oneof![4 => 1..60usize, 2 => 60..1100usize, 1 => 2000..4500usize];
    vocabulary.prop_flat_map(|vocabulary| prop::collection::vec(any_row(vocabulary), 1..4))
}

fn any_row(vocabulary: usize) -> impl Strategy<Value = Asked> {
    let logit = prop_oneof![
        12 => (-40..40i32).prop_map(|step| step as f32 / 4.0),
        6 => -12f32..12.0,
        1 => Just(f32::NEG_INFINITY),
        1 => prop::sample::select(vec![f32::NAN, -1e37, 60.0]),
    ];
    let tokens = |most: usize| prop::collection::vec(0..vocabulary as u32, 0..most);
    let filter = (
        prop_oneof![Just(0u32), 1..6u32, 1..2 * vocabulary as u32],
        prop_oneof![Just(1.0f32), Just(0.0), 0.0..1f32],
        prop_oneof![2 => Just(0.0f32), 1 => 0.0..1f32],
        any::<bool>(),
    );
    let top = prop_oneof![Just(0), 1..9usize, 1..vocabulary + 4];
    let temperature = prop_oneof![Just(0.0f32), 0.05f32..3.0];
    let flags = prop::array::uniform3(any::<bool>());
    let forbid = (tokens(5), prop::option::weighted(0.25, 1..=vocabulary as u32));
    let sizes = (prop::collection::vec(logit, vocabulary), forbid, tokens(5), tokens(12));
    (sizes, filter, temperature, flags, top, any::<u64>()).prop_map(
        |(
            (logits, (forbid, limit), mute, judge),
            (top_k, top_p, min_p, first),
            temperature,
            [drawn, margin, entropy],
            top,
            key,
        )| {
            let order = if first { FilterOrder::TopKFirst } else { FilterOrder::TopPFirst };
            let confidence = if drawn { ConfidenceOf::Drawn } else { ConfidenceOf::Raw };
            let sampling = Sampling { temperature, top_k, top_p, min_p, order, confidence, seed: 0 };
            let (forbid, mute, judge_width) = (forbid.into(), mute.into(), judge.len());
            let request = HeadRequest {
                banned: forbid,
                limit,
                zero_confidence: mute,
                sampling,
                margin,
                entropy,
                top,
                score_width: judge_width,
                logits: false,
            };
            Asked { logits, request, key, judge }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..property::cases(100) })]

    #[test]
    fn whatever_is_asked_matches_its_definition(rows in any_asked()) {
        let found = answers_of_both(&emulators(), &rows);
        for (asked, found) in rows.iter().zip(&found) {
            check(asked, found);
            let numbers = found.top.iter().map(|top| top.1).chain(found.judged.iter().flat_map(|judged| [judged.log_probability, judged.best]));
            let numbers = numbers.chain([found.confidence, found.margin, found.entropy]);
            let nothing = twin(asked).confidence.is_nan();
            prop_assert!(nothing || numbers.into_iter().all(|number| !number.is_nan()));
        }
    }
}

const HIDDEN: usize = 70;

/// The normed inputs of some head rows from `first` on, and the differences of the one page that has them.
fn inputs(table: &Trial<'_>, dtype: Dtype, rows: &[HeadRowData], first: usize) -> (Vec<f32>, Vec<f32>) {
    let stride = 128;
    let count = rows.len() - first;
    let residuals = table.put(&noise(PAGE * HIDDEN, 21));
    let out = table.room::<f32>((count + 1) * stride);
    let args = HeadInputArgs {
        rows: table.put(rows),
        count: table.put(&[rows.len() as u32]),
        stream: table.put(&noise(6 * HIDDEN, 20)),
        weight: table.put(&noise(HIDDEN, 22)),
        out,
        store: Store {
            pages: Address::NULL,
            increments: Address::NULL,
            residuals: table.put(&[Address::NULL, residuals]),
            layers: 1,
            kv_heads: 1,
            head_dim: 1,
            hidden: HIDDEN as u32,
        },
        first: first as u32,
        stride: stride as u32,
        epsilon: 1e-5,
        unused: 0,
    };
    table.run(head_input(dtype, count + 1), &args);
    let values: Vec<f32> = if dtype == Dtype::Bf16 {
        let bits = table.take::<u16>(out, count * stride);
        bits.into_iter().map(|bits| half::bf16::from_bits(bits).to_f32()).collect()
    } else {
        table.take(out, count * stride)
    };
    let mut kept = Vec::new();
    for row in values.chunks_exact(stride) {
        assert!(row[HIDDEN..].iter().all(|&value| value == 0.0), "what is behind the row");
        kept.extend_from_slice(&row[..HIDDEN]);
    }
    (kept, table.take(residuals, PAGE * HIDDEN))
}

#[test]
fn head_rows_are_normed_and_blended() {
    let (stream, weight, mut differences) = (noise(6 * HIDDEN, 20), noise(HIDDEN, 22), noise(PAGE * HIDDEN, 21));
    let normed = |row: u32| naive::rms_norm(&stream[row as usize * HIDDEN..][..HIDDEN], &weight, 1e-5);
    let slot = |at: u32| PAGE as u32 + at;
    let blended = |row, other, slot, scale| HeadRowData { row, other, slot, scale, blended: 1, ..PLAIN };
    let rows = [
        HeadRowData { row: 3, ..PLAIN },
        blended(5, 2, u32::MAX, 1.5),
        blended(0, 4, slot(7), 0.5),
        blended(1, u32::MAX, slot(9), -2.0),
    ];
    let mut expected = Vec::new();
    for row in &rows {
        let own = normed(row.row);
        let at = (row.slot as usize % PAGE) * HIDDEN;
        let difference: Vec<f32> = match (row.blended, row.other) {
            (0, _) => vec![0.0; HIDDEN],
            (_, u32::MAX) => differences[at..at + HIDDEN].to_vec(),
            (_, other) => own.iter().zip(normed(other)).map(|(own, other)| own - other).collect(),
        };
        if row.blended == 1 && row.slot != u32::MAX {
            differences[at..at + HIDDEN].copy_from_slice(&difference);
        }
        expected.extend(own.iter().zip(&difference).map(|(own, difference)| own + row.scale * difference));
    }
    for table in emulators().each_ref().map(Trial) {
        for (dtype, tolerance) in [(Dtype::F32, 1e-6), (Dtype::Bf16, 4e-3)] {
            let (found, kept) = inputs(&table, dtype, &rows, 0);
            assert_near(&found, &expected, tolerance);
            assert_near(&kept, &differences, 1e-6);
            assert_eq!(inputs(&table, dtype, &rows, 2).0, found[2 * HIDDEN..]);
        }
    }
}
