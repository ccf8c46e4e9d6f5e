use std::{collections::BTreeSet, path::Path};

use demask_checkpoint::ModelFiles;

use super::*;
use crate::{DeviceOptions, DtypeChoice, Model, SchedulingParams};

fn model(name: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt").join(name);
    let device = DeviceOptions { dtype: DtypeChoice::F32, ..DeviceOptions::default() };
    Model::load(ModelFiles::directory(path).unwrap(), &device, &mut |_| true).unwrap()
}

/// `[rows, vocabulary]`: all logits of one forward, shifted to the positions that they predict.
fn logits(model: &Model, tokens: &[TokenId]) -> Vec<Vec<f64>> {
    let (attention, shift, vocabulary) =
        (model.info().facts().mask, model.info().facts().shift as usize, model.info().facts().vocab);
    let tokens = tokens.to_vec();
    let count = tokens.len();
    let all = model.with_network(move |network| network.inspect(&tokens, attention, false)).unwrap().unwrap().logits;
    let row = |position: usize| all[position.saturating_sub(shift) * vocabulary..][..vocabulary].iter();
    (0..count).map(|position| row(position).map(|&logit| f64::from(logit)).collect()).collect()
}

fn log_probability(logits: &[f64], token: TokenId) -> f64 {
    let best = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - best).exp()).sum();
    logits[token as usize] - best - sum.ln()
}

/// The log-probabilities of the masked tokens, one forward for the draw and one for guidance.
fn naive(model: &Model, context: &[TokenId], continuation: &[TokenId], masked: &[usize], scale: f64) -> f64 {
    let mut tokens = [context, continuation].concat();
    if model.info().family().decoding().likelihood.ends {
        tokens.extend(model.info().eos_ids().unwrap());
    }
    if let Some(mask) = model.info().facts().mask_id {
        for index in masked {
            tokens[context.len() + index] = mask;
        }
    }
    let mut all = logits(model, &tokens);
    if scale != 0.0 {
        tokens[..context.len()].fill(model.info().facts().mask_id.unwrap());
        for (row, without) in all.iter_mut().zip(logits(model, &tokens)) {
            row.iter_mut().zip(without).for_each(|(with, without)| *with = without + (scale + 1.0) * (*with - without));
        }
    }
    masked.iter().map(|&index| log_probability(&all[context.len() + index], continuation[index])).sum()
}

fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 2e-4 * expected.abs().max(1.0), "{found} instead of {expected}");
}

const CONTEXT: [TokenId; 7] = [5, 17, 3, 40, 22, 9, 31];
const CONTINUATION: [TokenId; 5] = [12, 44, 6, 30, 19];

#[test]
fn an_autoregressive_model_reads_it_once() {
    for name in ["tiny-qwen2", "tiny-qwen3"] {
        let model = model(name);
        let found = model.log_likelihood(&CONTEXT, &CONTINUATION, &LikelihoodOptions::default()).unwrap();
        assert_near(found.log_probability, naive(&model, &CONTEXT, &CONTINUATION, &[0, 1, 2, 3, 4], 0.0));
        assert_eq!((found.forwards, found.tokens), (1, 5));
        assert!(found.flops > 0.0 && found.seconds > 0.0);
    }
}

#[test]
fn draws_are_summed_as_the_naive_twin_does() {
    for (name, cfg_scale) in [("tiny-llada", 0.0), ("tiny-llada", 0.5), ("tiny-dream", 0.0)] {
        let model = model(name);
        let options = LikelihoodOptions { draws: 16, cfg_scale, seed: 3, top: None };
        let mut dice = Dice::new(options.seed);
        let dream = name == "tiny-dream";
        let draws = if dream { dream_draws(5, 16, &mut dice) } else { llada_draws(5, 16, &mut dice) };
        let mut expected = 0.0;
        for draw in &draws {
            let all = naive(&model, &CONTEXT, &CONTINUATION, &draw.masked, f64::from(cfg_scale));
            expected += draw.weight * all;
        }
        let found = model.log_likelihood(&CONTEXT, &CONTINUATION, &options).unwrap();
        assert_near(found.log_probability, expected);
        let asked = draws.iter().filter(|draw| !draw.masked.is_empty());
        let canvases: BTreeSet<&[usize]> = asked.map(|draw| &draw.masked[..]).collect();
        assert_eq!(found.forwards, canvases.len() * (1 + usize::from(cfg_scale > 0.0)), "{name}");
    }
}

/// A continuation's likelihood as draws that are asked one by one make it, each in a forward of its own.
fn one_by_one(model: &Model, context: &[TokenId], text: &[TokenId], options: &LikelihoodOptions) -> f64 {
    let mut sum = 0.0;
    for draw in drawn(model.info().family().decoding().likelihood.draws, text.len(), options) {
        let whole = [(context.to_vec(), text.to_vec())];
        let LikelihoodTask { input: asked, .. } = model.info().likelihoods(&whole, options, 1).unwrap();
        let plan = Plan::hiding(&asked.texts, &[vec![draw]]);
        let found = model
            .judge(LikelihoodTask::new(asked, plan, 1), SchedulingParams::default(), |found| found)
            .wait()
            .unwrap();
        assert_eq!(found[0].forwards, 1 + usize::from(options.cfg_scale > 0.0));
        sum += found[0].log_probability;
    }
    sum
}

/// Continuations as options of a question: alike at the beginning, alike at the end, one twice, one a part of another, of another length.
fn options() -> Vec<(Vec<TokenId>, Vec<TokenId>)> {
    let other = [5, 17, 3, 40, 22, 9, 32];
    let texts: [(&[TokenId], &[TokenId]); 9] = [
        (&CONTEXT, &[12, 44]),
        (&CONTEXT, &[12, 6]),
        (&CONTEXT, &[12, 30]),
        (&CONTEXT, &[13, 44]),
        (&CONTEXT, &[12, 6]),
        (&CONTEXT, &[12, 6, 7, 8]),
        (&CONTEXT, &[9]),
        (&other, &[12, 44]),
        (&CONTEXT[..4], &[22, 9, 31, 12]),
    ];
    texts.map(|(context, text)| (context.to_vec(), text.to_vec())).to_vec()
}

#[test]
fn options_that_share_canvases_have_the_bits_of_draws_asked_one_by_one() {
    for (name, cfg_scale) in [("tiny-llada", 0.0), ("tiny-llada", 0.5), ("tiny-dream", 0.0)] {
        let model = model(name);
        let how = LikelihoodOptions { draws: 32, cfg_scale, seed: 7, top: None };
        let options = options();
        let expected = options.iter().map(|(context, text)| one_by_one(&model, context, text, &how).to_bits());
        let expected: Vec<u64> = expected.collect();
        let found = model.log_likelihoods(&options, &how, &mut || true).unwrap();
        assert_eq!(found.iter().map(|one| one.log_probability.to_bits()).collect::<Vec<_>>(), expected, "{name}");
        let alone = options.iter().map(|(context, text)| {
            let found = model.log_likelihood(context, text, &how).unwrap();
            (found.log_probability.to_bits(), found.forwards)
        });
        let alone: Vec<_> = alone.collect();
        assert_eq!(alone.iter().map(|one| one.0).collect::<Vec<_>>(), expected, "{name}");
        let (together, apart): (usize, usize) =
            (found.iter().map(|one| one.forwards).sum(), alone.iter().map(|one| one.1).sum());
        assert!(together < apart, "{name}: {together} forwards for {apart}");
        assert_eq!((found[4].forwards, found[4].flops, found[4].seconds), (0, 0.0, 0.0), "the same twice runs once");
    }
}

#[test]
fn the_same_canvas_is_not_asked_up_to_128_times() {
    let model = model("tiny-llada");
    let how = LikelihoodOptions::default();
    // Two tokens have three masks. What hides the second is one canvas for all options, so is what hides both.
    let options: Vec<_> = [44, 6, 30, 19].map(|last| (CONTEXT.to_vec(), vec![12, last])).to_vec();
    let found = model.log_likelihoods(&options, &how, &mut || true).unwrap();
    assert_eq!(found.iter().map(|one| one.forwards).collect::<Vec<_>>(), [3, 1, 1, 1]);
    // Where the end decides, only what hides the last token and all is shared: the lengths differ.
    let lengths: Vec<_> = [&[12, 44][..], &[12, 44, 6]].map(|text| (CONTEXT.to_vec(), text.to_vec())).to_vec();
    let found = model.log_likelihoods(&lengths, &how, &mut || true).unwrap();
    assert_eq!(found.iter().map(|one| one.forwards).collect::<Vec<_>>(), [3, 7]);
}

#[test]
fn a_context_is_read_once_for_all_options() {
    let model = model("tiny-qwen3");
    // One after the other they would share the context, too.
    model.set_prefix_cache(0).unwrap();
    for top in [None, Some(3)] {
        let how = LikelihoodOptions { top, ..LikelihoodOptions::default() };
        let options = options();
        let alone = options.iter().map(|(context, text)| model.log_likelihood(context, text, &how).unwrap());
        let alone: Vec<Likelihood> = alone.collect();
        let found = model.log_likelihoods(&options, &how, &mut || true).unwrap();
        for (found, alone) in found.iter().zip(&alone) {
            assert_eq!(found.log_probability.to_bits(), alone.log_probability.to_bits());
            assert_eq!((&found.logprobs, found.tokens), (&alone.logprobs, alone.tokens));
        }
        let (forwards, flops): (usize, f64) =
            (found.iter().map(|one| one.forwards).sum(), found.iter().map(|one| one.flops).sum());
        // Every row but the last of each text, in as many forwards as texts go on from another one.
        assert_eq!(forwards, 4);
        let apart: f64 = alone.iter().map(|one| one.flops).sum();
        assert!(flops < apart / 4.0, "{flops} for {apart}");
    }
    // Options of one token are told by the row before them.
    let letters: Vec<_> = [44, 6, 30, 19].map(|letter| (CONTEXT.to_vec(), vec![letter])).to_vec();
    let found = model.log_likelihoods(&letters, &LikelihoodOptions::default(), &mut || true).unwrap();
    assert_eq!(found.iter().map(|one| one.forwards).sum::<usize>(), 1);
    for (one, (context, text)) in found.iter().zip(&letters) {
        assert_near(one.log_probability, naive(&model, context, text, &[0], 0.0));
    }
}

#[test]
fn the_estimate_tends_to_the_bound() {
    // All masks of three tokens: the mean over how many are masked, of the mean over which ones are.
    let model = model("tiny-llada");
    let continuation = &CONTINUATION[..3];
    let mut bound = 0.0;
    for count in 1..=3usize {
        let sets: Vec<u32> = (0..8u32).filter(|set| set.count_ones() as usize == count).collect();
        for set in &sets {
            let masked: Vec<usize> = (0..3).filter(|index| set >> index & 1 == 1).collect();
            let all = naive(&model, &CONTEXT, continuation, &masked, 0.0);
            bound += all * 3.0 / count as f64 / sets.len() as f64 / 3.0;
        }
    }
    let options = LikelihoodOptions { draws: 4096, ..LikelihoodOptions::default() };
    let found = model.log_likelihood(&CONTEXT, continuation, &options).unwrap().log_probability;
    assert!((found - bound).abs() < 0.02 * bound.abs(), "{found} instead of {bound}");
}

#[test]
fn one_token_is_asked_for_once() {
    let model = model("tiny-llada");
    let found = model.log_likelihood(&CONTEXT, &[12], &LikelihoodOptions::default()).unwrap();
    assert_eq!(found.forwards, 1);
    assert_near(found.log_probability, naive(&model, &CONTEXT, &[12], &[0], 0.0));
}

#[test]
fn numbers_of_masks_are_spread_evenly() {
    let draws = llada_draws(16, 64, &mut Dice::new(5));
    for group in draws.chunks(8) {
        let counts: Vec<usize> = group.iter().map(|draw| draw.masked.len()).collect();
        let steps: Vec<usize> = counts.windows(2).map(|pair| (pair[1] + 16 - pair[0]) % 16).collect();
        assert_eq!(steps, [2; 7], "{counts:?}");
    }
    for draw in &draws {
        assert!(draw.masked.is_sorted() && draw.masked.iter().all(|&index| index < 16));
        assert_eq!(draw.weight, 16.0 / draw.masked.len() as f64 / 64.0);
    }
    let places: Vec<usize> = (0..16).map(|place| draws.iter().filter(|d| d.masked.contains(&place)).count()).collect();
    assert!(places.iter().all(|&count| (18..=50).contains(&count)), "{places:?}");
}

#[test]
fn probabilities_of_masks_lie_around_a_circle() {
    let draws = dream_draws(400, 64, &mut Dice::new(5));
    for group in draws.chunks(32) {
        let mut shares: Vec<f64> = group.iter().map(|draw| 1.0 / (draw.weight * 64.0)).collect();
        shares.sort_by(f64::total_cmp);
        assert!(shares.windows(2).all(|pair| (pair[1] - pair[0] - 0.999 / 32.0).abs() < 1e-9), "{shares:?}");
        for draw in group {
            let (share, masked) = (1.0 / (draw.weight * 64.0), draw.masked.len() as f64 / 400.0);
            assert!((share - masked).abs() < 0.12, "{masked} of {share}");
        }
    }
}

#[test]
fn what_cannot_be_estimated_is_refused() {
    let refused = |name: &str, context: &[TokenId], continuation: &[TokenId], options: LikelihoodOptions| {
        model(name).log_likelihood(context, continuation, &options).unwrap_err().to_string()
    };
    let plain = LikelihoodOptions::default();
    assert_eq!(
        refused("tiny-sdar", &CONTEXT, &CONTINUATION, plain),
        "SDAR models have no estimate of a text's likelihood: let them answer with `score` generate"
    );
    let empty = "a likelihood needs a text and something before it: the prompt or the continuation is empty";
    assert_eq!(refused("tiny-qwen2", &[], &CONTINUATION, plain), empty);
    assert_eq!(refused("tiny-llada", &CONTEXT, &[], plain), empty);
    let guided = LikelihoodOptions { cfg_scale: 1.0, ..plain };
    assert!(refused("tiny-dream", &CONTEXT, &CONTINUATION, guided).starts_with("`cfg_scale` has no meaning"));
    assert!(refused("tiny-llada", &CONTEXT, &[60_000], plain).starts_with("prompt token 60000 is outside"));
}

#[test]
#[cfg(feature = "demo")]
fn a_prompt_and_its_continuation_are_one_text() {
    let demo = ModelInfo::demo().unwrap();
    let prompt = Prompt::Raw("Ada has 3 pears. ".to_owned());
    let (context, continuation) = demo.pair(&prompt, "Ben gives").unwrap();
    let tokenizer = demo.tokenizer().unwrap();
    assert_eq!(tokenizer.decode(&context, true), "Ada has 3 pears.");
    assert_eq!(tokenizer.decode(&continuation, true), " Ben gives");
    assert_eq!([context, continuation].concat(), tokenizer.encode("Ada has 3 pears. Ben gives", true).unwrap());
}

#[test]
fn it_ends_when_it_is_told_to() {
    let model = model("tiny-llada");
    let mut asked = 0;
    let mut once = || {
        asked += 1;
        false
    };
    let options = LikelihoodOptions { draws: 4096, ..LikelihoodOptions::default() };
    let pair = [(CONTEXT.to_vec(), CONTINUATION.to_vec())];
    let error = model.log_likelihoods(&pair, &options, &mut once).unwrap_err();
    assert!(matches!(error, Error::Interrupted) && asked == 1);
    // The sequences were given back.
    assert!(model.log_likelihood(&CONTEXT, &[12], &options).is_ok());
}
