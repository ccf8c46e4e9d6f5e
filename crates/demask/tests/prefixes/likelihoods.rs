//! Likelihoods begin with what other requests have computed of their contexts, and leave it: no bit changes.

use std::ops::ControlFlow;

use demask::{Likelihood, LikelihoodOptions, LikelihoodTask, ModelByHand};
use demask_step::TokenId;

use super::{ALL, PAGE};
use crate::{batch::by_hand, common::Dice};

/// Continuations, each behind its context.
type Pairs = Vec<(Vec<TokenId>, Vec<TokenId>)>;

fn keeping(name: &str, bytes: u64) -> ModelByHand {
    let mut model = by_hand(name);
    model.set_prefix_cache(bytes);
    model
}

fn task(model: &ModelByHand, pairs: &Pairs, top: Option<usize>) -> LikelihoodTask {
    let options = LikelihoodOptions { top, draws: 8, ..LikelihoodOptions::default() };
    model.info().likelihoods(pairs, &options, model.network().rows().capacity).unwrap()
}

fn run(model: &mut ModelByHand, task: LikelihoodTask) -> Vec<Likelihood> {
    let over = model.run(task.into(), &mut |_| ControlFlow::Continue(())).unwrap();
    over.job_as::<LikelihoodTask>().unwrap().likelihoods(0.0)
}

fn cached(found: &[Likelihood]) -> usize {
    found.iter().map(|one| one.cached_tokens).sum()
}

/// All that a likelihood says of its text.
fn comparable(found: &[Likelihood]) -> Vec<(u64, usize, String)> {
    found.iter().map(|one| (one.log_probability.to_bits(), one.tokens, format!("{:?}", one.logprobs))).collect()
}

/// Four options behind exemplars of so many tokens and a question of its own.
fn options(exemplars: usize, question: TokenId) -> Pairs {
    let context: Vec<TokenId> = (0..exemplars).map(|at| (100 + at * 7 % 90) as TokenId).collect();
    let context = [&context[..], &[question, 201, 202, 203, 204]].concat();
    [&[210, 211][..], &[210, 212], &[213], &[213, 214, 215]].map(|text| (context.clone(), text.to_vec())).to_vec()
}

#[test]
fn a_context_that_is_there_is_not_read_again() {
    for top in [None, Some(3)] {
        let (mut plain, mut warm) = (keeping("demo-qwen", 0), keeping("demo-qwen", ALL));
        // The second question shares the exemplars of the first one, the third one is the first again.
        for (round, question) in [300, 301, 300].into_iter().enumerate() {
            let pairs = options(3 * PAGE + 5, question);
            let (cold, found) = (task(&plain, &pairs, top), task(&warm, &pairs, top));
            let (cold, found) = (run(&mut plain, cold), run(&mut warm, found));
            assert_eq!(comparable(&found), comparable(&cold), "round {round}");
            let forwards = |found: &[Likelihood]| found.iter().map(|one| one.forwards).sum::<usize>();
            assert_eq!(forwards(&found), forwards(&cold), "round {round}");
            let flops = |found: &[Likelihood]| found.iter().map(|one| one.flops).sum::<f64>();
            match round {
                0 => assert_eq!((cached(&found), flops(&found)), (0, flops(&cold))),
                _ => assert!(cached(&found) >= 3 * PAGE && flops(&found) < flops(&cold) / 2.0, "{}", cached(&found)),
            }
            assert_eq!(cached(&cold), 0);
        }
    }
}

#[test]
fn options_that_are_asked_one_by_one_share_their_context() {
    let (mut plain, mut warm) = (keeping("demo-qwen", 0), keeping("demo-qwen", ALL));
    let all = options(2 * PAGE + 9, 300);
    let cold = task(&plain, &all, None);
    let cold = run(&mut plain, cold);
    for (index, pair) in all.iter().enumerate() {
        let one = task(&warm, &vec![pair.clone()], None);
        let found = run(&mut warm, one);
        assert_eq!(comparable(&found), comparable(&cold[index..=index]), "option {index}");
        assert_eq!(cached(&found) >= 2 * PAGE, index > 0, "option {index}");
    }
}

#[test]
fn likelihoods_of_other_salts_share_nothing() {
    let mut model = keeping("demo-qwen", ALL);
    let pairs = options(3 * PAGE, 300);
    let mut asked = |salt: Option<&str>| {
        let task = task(&model, &pairs, None).salted(salt);
        cached(&run(&mut model, task)) > 0
    };
    assert_eq!([Some("a"), Some("b"), None, Some(""), Some("a")].map(&mut asked), [false, false, false, false, true]);
    assert!(asked(None) && asked(Some("b")));
}

#[test]
fn a_bound_under_full_attention_begins_with_nothing() {
    let mut model = keeping("demo-llada", ALL);
    let pairs = options(3 * PAGE, 300);
    let [first, second] = [0, 1].map(|_| {
        let task = task(&model, &pairs, None);
        run(&mut model, task)
    });
    assert_eq!((comparable(&first), cached(&second)), (comparable(&second), 0));
}

/// Tasks of any options enter and leave in any order, beside each other and with little room for what is over.
#[test]
fn likelihoods_in_company_have_the_bits_of_cold_ones() {
    let mut dice = Dice::new(11);
    let mut plain = keeping("demo-qwen", 0);
    for round in 0..12 {
        let bytes = if round % 2 == 0 { ALL } else { 400_000 };
        let mut warm = keeping("demo-qwen", bytes);
        let mut running = Vec::new();
        let mut done = 0;
        while done < 12 || !running.is_empty() {
            if done < 12 && (running.is_empty() || dice.below(2) == 0) {
                let (exemplars, question) = (dice.below(4 * PAGE), 300 + dice.below(2) as TokenId);
                let mut pairs = options(exemplars, question);
                pairs.truncate(1 + dice.below(4));
                let top = [None, Some(2)][dice.below(2)];
                let cold = task(&plain, &pairs, top);
                let expected = comparable(&run(&mut plain, cold));
                let task = task(&warm, &pairs, top);
                running.push((warm.submit(task).unwrap(), expected));
                done += 1;
            }
            for (id, outcome) in warm.step(&mut |_| ControlFlow::Continue(())) {
                let place = running.iter().position(|(other, _)| *other == id).unwrap();
                let (_, expected) = running.swap_remove(place);
                let found = outcome.unwrap().job_as::<LikelihoodTask>().unwrap().likelihoods(0.0);
                assert_eq!(comparable(&found), expected, "round {round}");
            }
        }
        assert!(warm.is_idle());
    }
}
