//! Prompts that are read in pieces: no bit of an answer changes, whatever the pieces, with prefixes that are found and
//! without, and on guides.

use std::ops::ControlFlow;

use demask::{LikelihoodOptions, LikelihoodTask, ModelByHand, Options};
use demask_decode::{Session, SessionOptions};
use demask_step::TokenId;

use super::{ALL, Bench, PAGE, commits, exactness::methods, options, question, tokens};
use crate::batch::by_hand;

/// An answer's commits, log-probabilities and counts.
#[derive(Debug, PartialEq)]
struct Observed {
    commits: Vec<(u32, TokenId, u32)>,
    logprobs: Vec<String>,
    nfe: usize,
    rows: usize,
    flops: u64,
}

/// Decodes behind a prompt of so many tokens; also the number of forwards of the network and of cached tokens.
fn observe(bench: &mut Bench, length: usize, method: (&str, &str), cfg_scale: f32) -> (Observed, usize, usize) {
    let own = options(&bench.facts, &tokens(length), 12, method);
    let session = Session::new(SessionOptions { top_logprobs: Some(3), cfg_scale, ..own }).unwrap();
    let before = bench.scheduler.counters().forwards;
    let mut session = bench.run(session);
    let forwards = (bench.scheduler.counters().forwards - before) as usize;
    let answer = length as u32..session.canvas().len() as u32;
    let logprobs = answer.map(|position| format!("{:?}", session.logprob(position))).collect();
    let (receipt, commits) = (session.receipt(), commits(&mut session));
    let told = Observed { commits, logprobs, nfe: receipt.nfe, rows: receipt.rows, flops: receipt.flops.to_bits() };
    (told, forwards, receipt.cached_tokens)
}

fn with_pieces(kind: &str, rows: usize, bytes: u64) -> Bench {
    let mut bench = Bench::of(kind, bytes);
    bench.scheduler.network_mut(bench.network).unwrap().set_piece(rows);
    bench
}

#[test]
fn a_prompt_in_pieces_has_the_bits_of_one_that_is_not_cut() {
    for kind in ["block", "causal"] {
        let mut whole = with_pieces(kind, usize::MAX, 0);
        let mut all: Vec<_> = methods(whole.facts.mask).iter().map(|&method| (method, 0.0)).collect();
        all.push((if kind == "block" { ("static", "none") } else { ("ar", "none") }, 0.0));
        if kind == "block" {
            all.extend([(("static", "block"), 1.5), (("threshold:tau=0.3", "block:live=dual"), 0.0)]);
        }
        for rows in [1, 5, 16, 40] {
            let mut cut = with_pieces(kind, rows, 0);
            for &(method, scale) in &all {
                for length in [3, 41, 70] {
                    let (expected, forwards, _) = observe(&mut whole, length, method, scale);
                    let (found, pieces, _) = observe(&mut cut, length, method, scale);
                    let name = format!("{kind} {method:?} {scale} behind {length} tokens in pieces of {rows}");
                    assert_eq!(found, expected, "{name}");
                    // Of a block-causal prompt whole blocks are cut, here of four.
                    let is_cut = length >= 2 * rows.max(4);
                    assert!(if is_cut { pieces > forwards } else { pieces >= forwards }, "{name}: {pieces} {forwards}");
                }
            }
        }
    }
}

#[test]
fn pieces_behind_a_prefix_that_was_found_have_the_same_bits() {
    for kind in ["block", "causal"] {
        for &method in methods(Bench::of(kind, 0).facts.mask) {
            let (mut whole, mut cut) = (with_pieces(kind, usize::MAX, ALL), with_pieces(kind, 7, ALL));
            for (round, length) in [PAGE + 9, 3 * PAGE + 2, 3 * PAGE + 2].into_iter().enumerate() {
                let (expected, _, shared) = observe(&mut whole, length, method, 0.0);
                let (found, _, cached) = observe(&mut cut, length, method, 0.0);
                assert_eq!((found, cached), (expected, shared), "{kind} {method:?}");
                // The second one has the first one's prompt for its beginning.
                let known = if kind == "block" { [0, PAGE + 8, 3 * PAGE] } else { [0, PAGE + 9, 3 * PAGE + 1] };
                assert_eq!(cached, known[round], "{kind} {method:?}");
            }
        }
    }
}

#[test]
fn a_guide_that_reads_in_pieces_judges_the_same() {
    let models = |rows: usize| {
        let mut model = by_hand("demo-llada");
        model.set_guide(by_hand("demo-qwen")).unwrap();
        model.set_piece_rows(rows);
        model
    };
    let (mut whole, mut cut) = (models(usize::MAX), models(9));
    for (decoder, index) in [("guided", 0), ("guided:verify=4", 1), ("guided:match=topk,target=dlm", 2)] {
        let options = Options { decoder: Some(decoder.parse().unwrap()), gen_length: Some(32), ..Options::default() };
        let told = |model: &mut ModelByHand| model.generate_with(question(index), &options).unwrap();
        let before = |model: &mut ModelByHand| {
            let (scheduler, networks) = model.scheduler();
            scheduler.network_counters(networks[1]).unwrap().forwards
        };
        let counted = |model: &mut ModelByHand| {
            let first = before(model);
            let told = told(model);
            (told, before(model) - first)
        };
        let ((expected, few), (found, many)) = (counted(&mut whole), counted(&mut cut));
        assert_eq!((&found.text, &found.canvas), (&expected.text, &expected.canvas), "{decoder}");
        assert_eq!(found.receipt.decoding.nfe, expected.receipt.decoding.nfe);
        assert!(many > few, "{decoder}: the guide ran {many} forwards, {few} without pieces");
        let [found, expected] = [found, expected].map(|one| one.receipt.guide.unwrap());
        assert_eq!((found.accepted, found.rejected, found.rows), (expected.accepted, expected.rejected, expected.rows));
    }
}

#[test]
fn a_likelihood_in_pieces_is_the_same_to_the_bit() {
    let (context, text): (Vec<TokenId>, Vec<TokenId>) = ((200..260).collect(), (260..300).collect());
    let told = |rows: usize, context: &[TokenId], top| {
        let mut model = by_hand("demo-qwen");
        model.set_piece_rows(rows);
        let options = LikelihoodOptions { top, ..LikelihoodOptions::default() };
        let pair = [(context.to_vec(), text.clone())];
        let task = model.info().likelihoods(&pair, &options, model.network().rows().capacity).unwrap();
        let over = model.run(task.into(), &mut |_| ControlFlow::Continue(())).unwrap();
        let found = over.job_as::<LikelihoodTask>().unwrap().likelihoods(0.0).remove(0);
        let (scheduler, networks) = model.scheduler();
        let forwards = scheduler.network_counters(networks[0]).unwrap().forwards;
        (found.log_probability.to_bits(), format!("{:?}", found.logprobs), found.flops.to_bits(), forwards)
    };
    for top in [None, Some(3)] {
        for context in [&context[..1], &context] {
            let (expected, logprobs, flops, one) = told(usize::MAX, context, top);
            for rows in [1, 7, 64] {
                let (found, told, cost, forwards) = told(rows, context, top);
                assert_eq!((found, &told, cost), (expected, &logprobs, flops), "pieces of {rows}");
                assert_eq!(forwards, (context.len() + text.len() - 1).div_ceil(rows) as u64);
                assert_eq!(one, 1);
            }
        }
    }
}
