//! Runs at an assumed acceptance, without a network.

use demask::costs::{
    dry_run::{Assumed, dry_run, explain},
    model_shape::ModelShape,
};
use demask::{Options, Prompt};

/// Tokens of the answers: enough for chance to average out.
const LENGTH: usize = 30_000;

fn shape(name: &str) -> ModelShape {
    ModelShape::of_shape(name.parse().unwrap(), None).unwrap()
}

fn options(decoder: &str, cache: &str, gen_length: usize) -> Options {
    Options {
        gen_length: Some(gen_length),
        decoder: Some(decoder.parse().unwrap()),
        cache: Some(cache.parse().unwrap()),
        ignore_eos: Some(true),
        ..Options::default()
    }
}

/// Tokens, forwards and rows of an answer to 8 tokens.
fn run(outline: &ModelShape, options: &Options, acceptance: f64) -> [f64; 3] {
    let mut session = outline.session(&Prompt::Tokens(vec![7; 8]), options).unwrap();
    let mut mock = Assumed::new(outline.info(), acceptance, 1);
    dry_run(&mut session, &mut mock, &mut |_, _| {}).unwrap();
    let counts = session.counts();
    [session.generated(), counts.forwards, counts.rows].map(|count| count as f64)
}

/// Sum of powers of a share, from the exponent 0 on.
fn powers(share: f64, count: usize) -> f64 {
    (0..count as i32).map(|exponent| share.powi(exponent)).sum()
}

/// A round settles what came true and one token more; a refusal costs a cold round (specs/families.md#7.1).
#[test]
fn idlm_tokens_a_forward_are_those_of_the_formula() {
    let outline = shape("i-dlm-8b");
    for stride in [2, 3, 4, 8] {
        let options = options(&format!("isd:stride={stride}"), "causal", LENGTH);
        for acceptance in [0.0, 0.3, 0.6, 0.9, 0.97, 1.0] {
            let [tokens, forwards, rows] = run(&outline, &options, acceptance);
            let refused = 1.0 - acceptance.powi(stride - 1);
            let expected = (1.0 + powers(acceptance, stride as usize - 1)) / (1.0 + refused);
            let found = tokens / forwards;
            assert!((found / expected - 1.0).abs() < 0.02, "stride {stride}, {acceptance}: {found} for {expected}");
            // A verifying forward has 2N - 1 rows, a cold one N.
            let stride = f64::from(stride);
            let expected = (2.0 * stride - 1.0 + refused * stride) / (1.0 + refused);
            let found = rows / forwards;
            assert!(
                (found / expected - 1.0).abs() < 0.02,
                "stride {stride}, {acceptance}: {found} rows for {expected}"
            );
        }
    }
}

/// Two forwards settle the drafts that came true and one token more; the first draft may be wrong, too.
#[test]
fn selfspec_settles_what_came_true_and_one_token_in_two_forwards() {
    let outline = shape("nemotron-labs-diffusion-3b");
    let options = options("selfspec:block=8", "causal", LENGTH);
    for acceptance in [0.0, 0.5, 0.9, 1.0] {
        let [tokens, forwards, _] = run(&outline, &options, acceptance);
        let (found, expected) = (tokens / forwards, powers(acceptance, 8) / 2.0);
        assert!((found / expected - 1.0).abs() < 0.02, "{acceptance}: {found} for {expected}");
    }
}

/// A guide that judges few drafts in a forward agreed with the first of each forward, whatever the acceptance.
#[test]
fn a_guide_agrees_with_the_same_drafts_whatever_it_judges_at_a_time() {
    let outline = shape("dream-7b").guided_by(shape("qwen2.5-1.5b")).unwrap();
    for acceptance in [0.0, 0.7] {
        let forwards = [1, 4, 32].map(|verify| {
            let options = options(&format!("guided:verify={verify}"), "none", 512);
            run(&outline, &options, acceptance)[1]
        });
        assert_eq!(forwards, [forwards[0]; 3], "{acceptance}");
        let (found, expected) = (512.0 / forwards[0], 1.0 / (1.0 - acceptance));
        assert!((found / expected - 1.0).abs() < 0.1, "{acceptance}: {found} for {expected}");
    }
}

#[test]
fn plans_of_rounds_are_explained_with_their_guesses_and_what_came_true() {
    let outline = shape("i-dlm-8b");
    let told = |acceptance| {
        let mut session = outline.session(&Prompt::Tokens(vec![7; 5]), &options("isd", "causal", 12)).unwrap();
        let mut lines = Vec::new();
        let mut mock = Assumed::new(outline.info(), acceptance, 0);
        explain(&mut session, &mut mock, &mut |line| lines.push(line), &mut |_, _| {}).unwrap();
        lines
    };
    let lines = told(1.0);
    assert_eq!(lines[0], "step 0 sequence 0: live 0..8 visible 8 causal canvas predict 5..9 (guesses 6..9)");
    assert_eq!(
        lines[1],
        "step 1 sequence 0: live 5..12 visible 12 causal drafts 1 predict 6..13 (guesses 10..13): accepts 3 of 3 drafts, \
         settles 4 tokens"
    );
    assert!(told(0.0)[1].ends_with("(guesses 10..13): accepts 0 of 3 drafts, settles 1 token"));
}
