//! Rules of introspective strided decoding that draw by themselves, on networks whose rows follow a table: golden traces, and
//! the distribution of answers (specs/families.md#7.2).

use std::{collections::BTreeMap, path::PathBuf};

use demask_decode::{ModelFacts, Session, SessionOptions, StopRule};
use demask_step::{ForwardInput, Mask, Predictions, Sampling, TokenId, random};
use demask_testkit::{
    naive::head,
    property,
    rounds::{Case, of_session},
};
use serde_json::Value;

use crate::common::options;

/// A network whose row at a position holds what stands in a table: by its token, or for a mask.
struct Table {
    vocab: usize,
    /// `[positions, vocabulary, vocabulary]`: logits of a position behind each token.
    behind: Vec<f32>,
    /// `[positions, vocabulary]`: logits of a position behind a mask.
    guess: Vec<f32>,
}

impl Table {
    fn row(&self, position: usize, before: TokenId, mask: TokenId) -> &[f32] {
        let (table, row) = if before == mask {
            (&self.guess, position)
        } else {
            (&self.behind, position * self.vocab + before as usize)
        };
        &table[row * self.vocab..(row + 1) * self.vocab]
    }

    fn answer(&self, request: &ForwardInput, mask: TokenId) -> Predictions {
        let (plan, wanted) = (&request.plan, &request.ask.wanted);
        let mut out = Predictions { lanes: 1, positions: plan.predict.clone(), ..Predictions::default() };
        for position in plan.predict.iter() {
            let before = request.tokens[plan.row(0, position - 1).unwrap()];
            let logits = self.row(position as usize, before, mask);
            let answer = head::answer(logits, wanted, request.ask.key(0, position), &[]);
            out.tokens.push(answer.token);
            out.confidence.push(answer.confidence as f32);
            let width = wanted.top;
            out.top.extend(answer.top.iter().take(width).map(|&(token, share)| (token, share as f32)));
            if wanted.logits {
                out.logits.extend_from_slice(logits);
            }
        }
        out
    }
}

fn facts(vocab: usize, mask: TokenId) -> ModelFacts {
    let facts = options(Mask::Causal, 1, 1, 1).facts;
    ModelFacts { vocab, mask_id: Some(mask), ..facts }
}

/// The tables of a folder of golden scripts, by name.
fn tables(bytes: &[u8]) -> BTreeMap<String, Table> {
    let size = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + size]).unwrap();
    let tensor = |name: &str| -> Vec<f32> {
        let range = &header[name]["data_offsets"];
        let [start, end] = [0, 1].map(|side| range[side].as_u64().unwrap() as usize + 8 + size);
        bytes[start..end].chunks_exact(4).map(|raw| f32::from_le_bytes(raw.try_into().unwrap())).collect()
    };
    let names = header.as_object().unwrap().keys().filter_map(|name| name.strip_suffix(".q"));
    let table = |name: &str| Table {
        vocab: header[format!("{name}.q")]["shape"][1].as_u64().unwrap() as usize,
        behind: tensor(&format!("{name}.p")),
        guess: tensor(&format!("{name}.q")),
    };
    names.map(|name| (name.to_owned(), table(name))).collect()
}

/// Every golden trace: rounds, rows, starts, drafts, acceptances, what is kept, and tokens under every rule.
#[test]
fn golden_scripts_are_decoded_round_by_round() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/script"));
    let tables = tables(&std::fs::read(folder.join("idlm_scripts.safetensors")).unwrap());
    let cases = Case::all(&std::fs::read_to_string(folder.join("idlm_script.json")).unwrap());
    assert_eq!(cases.len(), 84);
    for case in cases {
        let (table, mask) = (&tables[&case.model], case.mask_id);
        let answer = |request: &ForwardInput| table.answer(request, mask);
        let difference = case.difference(facts(table.vocab, mask), |session| of_session(session, answer));
        assert_eq!(difference, None, "{}", case.id);
        if case.is_lossless() {
            let mut session = Session::new(case.options(facts(table.vocab, mask), "ar")).unwrap();
            of_session(&mut session, answer);
            assert!(case.ar_output.ends_with(&session.output().tokens), "{}", case.id);
        }
    }
}

/// A random table over this many tokens and a mask.
fn random_table(seed: u64, tokens: usize, positions: usize, alike: f64) -> Table {
    let vocab = tokens + 1;
    let of = |place: usize| 1.2 * random::gumbel(random::mix(seed ^ random::mix(place as u64)));
    let behind: Vec<f32> = (0..positions * vocab * vocab).map(|place| of(place) as f32).collect();
    // Guesses are like what follows token 0, and something else.
    let near = |position: usize, token: usize| f64::from(behind[position * vocab * vocab + token]);
    let guess = (0..positions * vocab).map(|place| {
        let (position, token) = (place / vocab, place % vocab);
        (alike * near(position, token) + (1.0 - alike) * of(usize::MAX - place)) as f32
    });
    Table { vocab, guess: guess.collect(), behind }
}

/// The distribution of a row as the head draws from it.
fn shares(logits: &[f32], options: &SessionOptions, mask: TokenId) -> Vec<f64> {
    let SessionOptions { temperature, top_k, top_p, filter_order: order, .. } = *options;
    let mut left: Vec<(TokenId, f64)> = (0..).zip(logits.iter().map(|&logit| f64::from(logit / temperature))).collect();
    left.sort_by(|one, other| other.1.total_cmp(&one.1));
    assert_eq!(order, Sampling::default().order, "top-p comes first");
    let sum: f64 = left.iter().map(|left| left.1.exp()).sum();
    let mut before = 0.0;
    left.retain(|left| {
        let passes = before <= f64::from(top_p) * sum;
        before += left.1.exp();
        passes
    });
    if top_k > 0 {
        left.truncate(top_k as usize);
    }
    // It passes a filter as any token does, and is never drawn.
    left.retain(|&(token, _)| token != mask);
    let sum: f64 = left.iter().map(|left| left.1.exp()).sum();
    let mut shares = vec![0.0; logits.len()];
    for (token, logit) in left {
        shares[token as usize] = logit.exp() / sum;
    }
    shares
}

/// Distance of drawn answers from the distribution of autoregressive decoding: the normal number that its chi-square
/// stands for (Wilson and Hilferty).
fn distance(decoder: &str, options: &SessionOptions, table: &Table, draws: u64) -> f64 {
    let (mask, response) = (options.facts.mask_id.unwrap(), 2);
    let mut counts: BTreeMap<Vec<TokenId>, f64> = BTreeMap::new();
    for seed in 0..draws {
        let options = SessionOptions { seed, decoder: decoder.parse().unwrap(), ..options.clone() };
        let mut session = Session::new(options).unwrap();
        of_session(&mut session, |request| table.answer(request, mask));
        *counts.entry(session.output().tokens).or_default() += 1.0;
    }
    let probability = |answer: &[TokenId]| -> f64 {
        let before = [&[1], answer].concat();
        let share = |index: usize| {
            let row = table.row(response + index, before[index], mask);
            shares(row, options, mask)[answer[index] as usize]
        };
        (0..answer.len()).map(share).product()
    };
    // Answers that are hardly expected count together.
    let (mut chi, mut cells, mut rest) = (0.0, 0, (0.0, 0.0));
    let tokens = table.vocab as TokenId - 1;
    for place in 0..tokens.pow(3) {
        let answer = [place / tokens / tokens, place / tokens % tokens, place % tokens];
        let (expected, found) =
            (probability(&answer) * draws as f64, counts.get(&answer[..]).copied().unwrap_or_default());
        if expected < 5.0 {
            rest = (rest.0 + expected, rest.1 + found);
        } else {
            (chi, cells) = (chi + (found - expected).powi(2) / expected, cells + 1);
        }
    }
    if rest.0 > 0.0 {
        (chi, cells) = (chi + (rest.1 - rest.0).powi(2) / rest.0, cells + 1);
    } else if rest.1 > 0.0 {
        return f64::INFINITY;
    }
    let freedom = f64::from(cells - 1);
    let spread = 2.0 / (9.0 * freedom);
    ((chi / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

/// Answers of rule `pq` have the distribution of `ar`, filters included; those of `released` do not.
#[test]
fn idlm_6_answers_of_pq_are_distributed_as_those_of_ar() {
    let draws = property::count(8_000).into();
    let mut worst: f64 = 0.0;
    for (seed, (top_k, top_p)) in [(1, (0, 1.0)), (2, (3, 1.0)), (3, (0, 0.8)), (4, (4, 0.9))] {
        let table = random_table(seed, 5, 8, 0.3);
        let mut options = options(Mask::Causal, 1, 2, 3);
        options.facts = facts(6, 5);
        (options.temperature, options.top_k, options.top_p) = (0.8, top_k, top_p);
        (options.cache, options.stop) = ("causal".parse().unwrap(), StopRule::Never);
        for decoder in ["ar", "isd:rule=pq,stride=2", "isd:rule=pq,stride=3", "isd:stride=3"] {
            let found = distance(decoder, &options, &table, draws);
            worst = worst.max(found.abs());
            assert!(found.abs() < 3.5 || cfg!(miri), "{decoder}, top_k {top_k}, top_p {top_p}: {found}");
        }
        let released = distance("isd:rule=released,stride=3", &options, &table, draws);
        assert!(released > 10.0 || cfg!(miri), "the test notices another distribution: {released}");
    }
    assert!(worst > 0.0);
}

/// Rules that draw by themselves report the log-probability of what they wrote, under the row that predicts it.
#[test]
fn idlm_15_log_probabilities_of_pq_are_those_of_what_was_written() {
    let table = random_table(9, 5, 42, 0.7);
    let (mut drawn, mut options) = (0, options(Mask::Causal, 1, 2, 40));
    options.facts = facts(6, 5);
    (options.temperature, options.top_logprobs, options.seed) = (1.0, Some(2), 3);
    (options.cache, options.stop) = ("causal".parse().unwrap(), StopRule::Never);
    for rule in ["pq", "released"] {
        options.decoder = format!("isd:rule={rule}").parse().unwrap();
        let mut session = Session::new(options.clone()).unwrap();
        let rounds = of_session(&mut session, |request| table.answer(request, 5));
        drawn += rounds.iter().map(|round| round.accepted).sum::<usize>();
        let text = session.canvas().to_vec();
        for position in 2..42 {
            let logits = table.row(position, text[position - 1], 5);
            let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
            let expected = f64::from(logits[text[position] as usize]) - sum.ln();
            let found = session.logprob(position as u32).unwrap();
            assert!((f64::from(found.log_probability) - expected).abs() < 1e-5, "{rule}, position {position}");
            assert_eq!(found.top.len(), 2);
        }
    }
    assert!(drawn > 0);
}
