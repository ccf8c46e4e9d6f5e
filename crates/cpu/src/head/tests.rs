use demask_step::{ConfidenceOf, FilterOrder, Sampling};
use demask_tensor::{AttentionShape, Dtype, TensorView};
use demask_testkit::naive::{head, network as naive};

use super::*;
use crate::{isa::tests::testable, linear::kernels_of};

/// An answer, the best tokens, the scores of given ones.
type Answered = (Answer, Vec<(u32, f32)>, Vec<TokenScore>);

/// Answers one row of logits, and its lists: from its logits, and if these need not be stored from its tiles alone.
fn answer(isa: Isa, logits: &[f32], request: &HeadRequest, judge: &[u32]) -> Answered {
    let stored = answer_from(isa, logits, request, judge, true);
    if !(RowRequest { request, key: 77, vocabulary: logits.len() }).takes_logits() {
        assert_eq!(answer_from(isa, logits, request, judge, false), stored);
    }
    stored
}

fn answer_from(isa: Isa, logits: &[f32], request: &HeadRequest, judge: &[u32], stored: bool) -> Answered {
    let vocabulary = logits.len();
    let mut values = logits.to_vec();
    if stored {
        request.struck().for_each(|token| values[token as usize] = f32::NEG_INFINITY);
    }
    let mut top = vec![(9, 9.0); request.top];
    let mut judged = vec![TokenScore::NONE; judge.len()];
    let asked = RowRequest { request, key: 77, vocabulary };
    let (kept, marks) = (asked.tile_outputs(stored), Marks::default());
    let mut memory = vec![f32::NAN; row_bytes(vocabulary, kept, false) / size_of::<f32>()];
    let (mut tiles, rest) = Tiles::split(&mut memory, kept, 1, vocabulary.div_ceil(TILE));
    assert!(rest.is_empty());
    let (look, writer) = (|_| asked.look(&marks, kept), &tiles.writer());
    dispatch(isa, Reduction { rows: 0..1, values: |_| &values[..], look, first: 0, vocabulary, writer });
    let order = &mut Vec::new();
    let stored = stored.then(|| Stored { values: &mut values, score: judge, scores: &mut judged, order });
    let answer = asked.answer(isa, (&tiles, 0), stored, &mut top);
    (answer, top, judged)
}

fn request() -> HeadRequest {
    HeadRequest { margin: true, entropy: true, top: 3, ..HeadRequest::default() }
}

fn near(a: f32, b: f64) {
    assert!((f64::from(a) - b).abs() < 2e-6 * b.abs().max(1.0), "{a} instead of {b}");
}

/// Checks everything against the naive twin.
fn check(isa: Isa, logits: &[f32], request: &HeadRequest) {
    let judge: Vec<u32> = (0..request.score_width as u32).map(|index| index * 7 % logits.len() as u32).collect();
    let (found, top, judged) = answer(isa, logits, request, &judge);
    let expected = head::answer(logits, request, 77, &judge);
    assert_eq!(found.token, expected.token);
    near(found.confidence, expected.confidence);
    near(found.margin, expected.margin);
    near(found.entropy, expected.entropy);
    for (&(token, probability), expected) in top.iter().zip(&expected.top) {
        near(probability, expected.1);
        assert!(token == expected.0 || expected.1 == 0.0, "{token} instead of {}", expected.0);
    }
    for (judged, &(rank, log_probability, best)) in judged.iter().zip(&expected.judged) {
        assert_eq!(judged.rank, rank);
        near(judged.best, best);
        if log_probability > f64::NEG_INFINITY || judged.log_probability > f32::NEG_INFINITY {
            near(judged.log_probability, log_probability);
        }
    }
}

#[test]
fn answers_match_their_definitions_on_every_tier() {
    for isa in Isa::available() {
        for vocabulary in [5, 32, 100, 2001] {
            for sharpness in [0.5, 5.0, 40.0] {
                let logits: Vec<f32> =
                    naive::noise(vocabulary, vocabulary as u64).iter().map(|value| value * sharpness).collect();
                for temperature in [0.0, 0.2, 1.0, 1.7] {
                    for confidence in [ConfidenceOf::Raw, ConfidenceOf::Drawn] {
                        for (top_k, top_p, min_p) in head::FILTERS {
                            for order in [FilterOrder::TopKFirst, FilterOrder::TopPFirst] {
                                let sampling =
                                    Sampling { temperature, top_k, top_p, min_p, order, confidence, seed: 0 };
                                let mut request = HeadRequest { sampling, ..request() };
                                check(isa, &logits, &request);
                                // The best token, as a mask may be: it keeps its share, and fills a filter.
                                request.banned = vec![naive::argmax(&logits) as u32].into();
                                check(isa, &logits, &request);
                                request.limit = Some(vocabulary as u32 * 2 / 3);
                                check(isa, &logits, &HeadRequest { score_width: 3, ..request.clone() });
                                request.zero_confidence = [request.banned[0], 2].into_iter().collect();
                                check(isa, &logits, &request);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_muted_winner_has_no_confidence_and_the_others_are_renormalised() {
    let logits = [1.0, 4.0, 2.0, 3.0];
    for isa in Isa::available() {
        let request = HeadRequest { zero_confidence: vec![1].into(), ..request() };
        check(isa, &logits, &request);
        let (found, top, _) = answer(isa, &logits, &request, &[]);
        assert_eq!((found.token, found.confidence), (1, 0.0));
        assert_eq!(top[0].0, 3);
        let request = HeadRequest { zero_confidence: vec![0].into(), ..request };
        check(isa, &logits, &request);
        near(answer(isa, &logits, &request, &[]).0.confidence, 1.0 / (1.0 + (-1f64).exp() + (-2f64).exp()));
    }
}

/// A mask that the network predicts: with logits far above all others, too.
#[test]
fn the_mask_is_never_chosen_and_keeps_its_share() {
    for isa in Isa::available() {
        for (mask, others) in [(0.0, 3.0), (3.0, 0.0), (200.0, 0.0), (-200.0, 0.0)] {
            let mut logits = vec![others - 60.0; 70];
            (logits[40], logits[69], logits[66]) = (others, others - 1.0, mask);
            for temperature in [0.0, 0.7] {
                let sampling = Sampling { temperature, ..Sampling::default() };
                let request = HeadRequest { banned: vec![66].into(), sampling, ..request() };
                check(isa, &logits, &request);
                let (found, top, _) = answer(isa, &logits, &request, &[]);
                let whole = 1.0 + (-1f64).exp() + f64::from(mask - others).exp();
                near(found.confidence, if found.token == 40 { 1.0 } else { (-1f64).exp() } / whole);
                assert!(found.entropy.is_finite() && found.margin >= 0.0);
                assert_eq!((top[0].0, top[1].0), (40, 69), "the mask is no alternative");
                // Struck out, it has none.
                check(isa, &logits, &HeadRequest { zero_confidence: vec![66].into(), ..request });
            }
        }
    }
}

#[test]
fn ties_go_to_the_lowest_token_and_top_k_keeps_them_all() {
    let mut logits = vec![0.0; 5000];
    for token in [4321, 77, 4096] {
        logits[token] = 9.0;
    }
    for isa in Isa::available() {
        let (found, top, _) = answer(isa, &logits, &request(), &[]);
        assert_eq!(found.token, 77);
        assert_eq!(found.margin, 0.0);
        assert_eq!([top[0].0, top[1].0, top[2].0], [77, 4096, 4321]);
        let sampling = Sampling { top_k: 1, confidence: ConfidenceOf::Drawn, ..Sampling::default() };
        let (found, ..) = answer(isa, &logits, &HeadRequest { sampling, ..request() }, &[]);
        near(found.confidence, 1.0 / 3.0);
    }
}

#[test]
fn judged_tokens_are_ranked_in_the_plain_distribution() {
    let logits = [0.5, 2.0, 2.0, -1.0, 0.0];
    let probabilities = naive::softmax(&logits, 1.0);
    for isa in Isa::available() {
        let sampling = Sampling { temperature: 2.0, confidence: ConfidenceOf::Drawn, ..Sampling::default() };
        let request = HeadRequest { score_width: 5, zero_confidence: vec![1].into(), sampling, ..request() };
        let (_, _, judged) = answer(isa, &logits, &request, &[0, 1, 2, 3, 4]);
        assert_eq!(judged.iter().map(|judged| judged.rank).collect::<Vec<_>>(), [2, 0, 1, 4, 3]);
        for (judged, probability) in judged.iter().zip(&probabilities) {
            near(judged.log_probability, probability.ln());
            near(judged.best, probabilities[1]);
        }
    }
}

#[test]
fn rows_of_nothing_but_forbidden_tokens_answer_without_nonsense() {
    for isa in Isa::available() {
        for temperature in [0.0, 1.0] {
            let sampling = Sampling { temperature, confidence: ConfidenceOf::Drawn, top_k: 1, ..Sampling::default() };
            let forbidden = HeadRequest { banned: vec![0, 1].into(), sampling, ..request() };
            let (found, ..) = answer(isa, &[1.0, 2.0], &forbidden, &[]);
            assert_eq!((found.token, found.margin), (0, 0.0));
            let struck = HeadRequest { zero_confidence: vec![0, 1].into(), ..forbidden };
            let (nothing, ..) = answer(isa, &[1.0, 2.0], &struck, &[]);
            assert_eq!((nothing.token, nothing.margin, nothing.entropy), (0, 0.0, 0.0));
            // Nothing was predicted, and whoever reads it can tell.
            assert!(found.confidence.is_nan() && nothing.confidence.is_nan());
        }
    }
}

/// Answers of the head to rows with these requests, over noise whose tokens come in pairs with the same logit.
fn answers_of(linear: &Linear, threads: usize, vocabulary: usize, requests: Vec<HeadRequest>) -> HeadOutput {
    const HIDDEN: usize = 40;
    let rows = requests.len();
    let pool = Pool::new(threads);
    let half = naive::noise(vocabulary.div_ceil(2) * HIDDEN, 5);
    let bytes: Vec<u8> = half.iter().chain(&half).take(vocabulary * HIDDEN).flat_map(|x| x.to_le_bytes()).collect();
    let weight = linear.pack(&Pool::new(1), TensorView::new(Dtype::F32, vocabulary, HIDDEN, &bytes)).unwrap();
    let attention = AttentionShape { heads: 1, kv_heads: 1, head_dim: 8 };
    let shape = WorkspaceShape {
        adapter_rank: 0,
        rows,
        head_rows: rows,
        hidden: HIDDEN,
        ffn: HIDDEN,
        experts: None,
        attention,
        vocabulary,
        table_entries: 1,
    };
    let launch = HeadLaunch {
        rows: (0..rows as u32).map(|row| HeadRow { row, request: row, key: 3 }).collect(),
        requests,
        ..HeadLaunch::default()
    };
    let head = Head {
        isa: linear.isa(),
        pool: &pool,
        linear,
        launch: &launch,
        stream: &naive::noise(rows * HIDDEN, 6),
        norm: &[3.0; HIDDEN],
        epsilon: 1e-6,
        weight: &weight,
    };
    let mut kv = KvStore::new(linear.isa(), attention, linear.dtype(), 1, HIDDEN);
    let mut scratch = HeadScratch::new(&shape, linear, pool.threads()).unwrap();
    let mut out = HeadOutput::default();
    head.run(&mut kv, &mut scratch, &mut vec![0.0; threads * 2 * HIDDEN], &mut out);
    out
}

#[test]
fn tiles_of_a_product_and_stored_logits_give_the_same_bits() {
    for linear in kernels_of(testable()) {
        for (vocabulary, rows) in [(5, 3), (70, 1), (1000, 300)] {
            // Up to three tokens in several tiles are forbidden, up to two weigh nothing, differently from row to row,
            // as is everything else that is asked.
            let tokens =
                |count: usize, from: usize| (0..count).map(|i| ((i * 33 + from) % vocabulary) as u32).collect();
            let plain = |row: usize| HeadRequest {
                banned: tokens(row % 4, row),
                limit: (row % 3 == 1).then_some((vocabulary - row % vocabulary / 2) as u32),
                zero_confidence: tokens(row % 5 / 2, 3 * row + 1),
                sampling: Sampling {
                    temperature: [0.0, 0.7, 1.5][row % 3],
                    confidence: if row % 7 < 3 { ConfidenceOf::Drawn } else { ConfidenceOf::Raw },
                    ..Sampling::default()
                },
                margin: true,
                entropy: row.is_multiple_of(2),
                top: [0, 1, top::MOST, 3][row / 2 % 4],
                ..HeadRequest::default()
            };
            let asked = |request: &HeadRequest| RowRequest { request, key: 3, vocabulary }.takes_logits();
            assert!((0..rows).all(|row| !asked(&plain(row))));
            let with_logits = |row: usize| HeadRequest { logits: true, ..plain(row) };
            let found = answers_of(&linear, 1, vocabulary, (0..rows).map(plain).collect());
            let expected = answers_of(&linear, 2, vocabulary, (0..rows).map(with_logits).collect());
            assert_eq!(expected.logits.len(), rows * vocabulary);
            let case = format!("{}, {rows} rows of {vocabulary}", linear.name());
            assert_eq!((&found.tokens, &found.confidence), (&expected.tokens, &expected.confidence), "{case}");
            assert_eq!((&found.margin, &found.entropy), (&expected.margin, &expected.entropy), "{case}");
            assert_eq!(found.top, expected.top, "{case}");
            let muted = |row: usize, p: f32| p == 0.0 && plain(row).zero_confidence.contains(&found.tokens[row]);
            let told = |(row, &p): (usize, &f32)| p > 0.0 && p <= 1.0 || muted(row, p);
            assert!(found.logits.is_empty() && found.confidence.iter().enumerate().all(told), "{case}");
            // Neither threads nor neighbours matter, nor what these ask for.
            let mixed = |row: usize| if row == 4 { with_logits(row) } else { plain(row) };
            let mixed = answers_of(&linear, 3, vocabulary, (0..rows).map(mixed).collect());
            let answers = |out: HeadOutput| (out.tokens, out.confidence, out.margin, out.entropy, out.top);
            assert_eq!(answers(mixed), answers(found), "{case}");
        }
    }
}

#[test]
fn a_guide_with_fewer_tokens_does_not_take_dreams_head_off_the_way_that_stores_no_logits() {
    // Rows of Dream's head and of Qwen2.5's, both divided by 64: the guide lacks tokens in the last tiles.
    let (vocabulary, limit) = (2376, 2248);
    let asks = |limited: bool, temperature: f32, row: usize| HeadRequest {
        banned: if limited { vec![7] } else { [7].into_iter().chain(limit..vocabulary as u32).collect() }.into(),
        limit: limited.then_some(limit),
        sampling: Sampling { temperature, ..Sampling::default() },
        margin: true,
        entropy: true,
        top: row % 4,
        ..HeadRequest::default()
    };
    for linear in kernels_of(testable()) {
        for temperature in [0.0, 1.5] {
            let [fast, slow] = [true, false].map(|limited| {
                let requests: Vec<_> = (0..40).map(|row| asks(limited, temperature, row)).collect();
                let stored = |request| RowRequest { request, key: 3, vocabulary }.takes_logits();
                assert!(!requests.iter().any(stored));
                answers_of(&linear, 2, vocabulary, requests)
            });
            assert!(fast.tokens.iter().all(|&token| token < limit) && fast.confidence.iter().all(|&p| p > 0.0));
            assert_eq!((fast.tokens, fast.confidence, fast.top), (slow.tokens, slow.confidence, slow.top));
            assert_eq!((fast.margin, fast.entropy), (slow.margin, slow.entropy));
        }
    }
}

#[test]
fn logits_that_are_no_numbers_never_win() {
    let mut logits = naive::noise(100, 9);
    logits[40] = f32::NAN;
    for isa in Isa::available() {
        for temperature in [0.0, 1.0] {
            let sampling = Sampling { temperature, ..Sampling::default() };
            let request = HeadRequest { sampling, top: 8, ..request() };
            let (found, top, _) = answer(isa, &logits, &request, &[]);
            assert!(found.token != 40 && found.confidence > 0.0 && found.entropy > 0.0);
            assert!(top.iter().all(|&(token, probability)| token != 40 && probability > 0.0));
        }
        let (found, ..) = answer(isa, &logits, &HeadRequest::default(), &[]);
        let best = (0..100).filter(|&token| token != 40).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        assert_eq!(Some(found.token as usize), best);
    }
}

#[test]
fn a_row_without_numbers_has_no_confidence() {
    let mut infinite = naive::noise(33, 9);
    infinite[7] = f32::INFINITY;
    for isa in Isa::available() {
        for logits in [vec![f32::NAN; 33], vec![f32::NEG_INFINITY; 33], infinite.clone()] {
            for (temperature, top_k) in [(0.0, 0), (1.0, 0), (1.0, 4)] {
                let sampling = Sampling { temperature, top_k, ..Sampling::default() };
                let asked = HeadRequest { sampling, zero_confidence: vec![0].into(), ..request() };
                let stored = [true, top_k > 0];
                let confident = stored.map(|stored| answer_from(isa, &logits, &asked, &[], stored).0.confidence);
                assert!(confident.iter().all(|p| p.is_nan()), "{logits:?} {temperature} {top_k}");
            }
            let asked = HeadRequest { score_width: 2, ..request() };
            let (found, _, judged) = answer_from(isa, &logits, &asked, &[3, 7], true);
            assert!(found.confidence.is_nan() && judged.iter().all(|judged| judged.log_probability.is_nan()));
        }
    }
}
