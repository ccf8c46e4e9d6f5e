use demask::DeviceOptions;
use demask::DtypeChoice;
use proptest::prelude::*;

use super::{joined::VALUE, *};
use crate::analysis::write;

/// One layer, one number a feature: cosines are signs.
fn seen(prompt: usize, forwards: &[[f32; 3]]) -> Similarities {
    let mut features = Features::new(prompt, 3, 1);
    for values in forwards {
        features.see(Intermediate::Embedding, &[7.0; 3]);
        for part in [Intermediate::Key(0), Intermediate::Value(0), Intermediate::Attention(0), Intermediate::Mlp(0)] {
            features.see(part, values);
        }
        features.next_step();
    }
    features.similarities
}

#[test]
fn steps_are_compared_with_those_before_them() {
    let found = seen(1, &[[1.0, 2.0, -1.0], [1.0, -2.0, -1.0], [3.0, -2.0, 1.0]]);
    assert_eq!(found.steps, 2);
    let row = |step| [0, 1, 2].map(|position| found.cosine(step, 3, 0, position));
    assert_eq!([row(0), row(1)], [[1.0, -1.0, 1.0], [1.0, 1.0, -1.0]]);
    assert_eq!(seen(1, &[[1.0; 3]]).steps, 0);
}

#[test]
fn prompts_of_different_lengths_are_laid_on_each_others_answers() {
    let mut stability = Stability::new("m", "d", 1, &[0]);
    stability.add(&seen(1, &[[1.0, 1.0, 1.0], [1.0, -1.0, 1.0]]));
    stability.add(&seen(2, &[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]));
    let at = |offset| stability.average.0[&(0, offset)].means()[0];
    assert_eq!([at(-2), at(-1), at(0), at(1)], [1.0, 1.0, 0.0, 1.0]);
    assert_eq!(stability.average.bounds(), (1, -2, 2));
    assert_eq!(stability.average, stability.chosen[&0]);
}

#[test]
fn features_that_change_together_correlate() {
    let mut stability = Stability::new("m", "d", 1, &[]);
    stability.add(&seen(0, &[[1.0, 1.0, 1.0], [1.0, -1.0, 1.0]]));
    assert_eq!([0, 1].map(|stored| stability.average_correlations(stored)), [[Some(1.0); 4]; 2]);
    // Nothing changes: nothing to correlate.
    let mut still = Stability::new("m", "d", 1, &[]);
    still.add(&seen(0, &[[1.0; 3], [1.0; 3]]));
    assert_eq!(still.correlations(0, VALUE), [None; 4]);
}

#[test]
fn the_demo_is_measured_and_drawn() {
    let device = DeviceOptions { dtype: DtypeChoice::F32, threads: Some(2), ..DeviceOptions::default() };
    let mut model = demask::Opened::demo().unwrap().load(&device, &[], &mut |_| true).unwrap().by_hand().unwrap();
    let prompt = Prompt::user("Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?", None);
    let options = Options { gen_length: Some(32), ..Options::default() };
    let (found, answer) = measure(&mut model, &prompt, &options, &mut |_, _| true).unwrap();
    assert_eq!(found.steps + 1, answer.receipt.decoding.forwards, "each forward but the first has one before it");
    assert_eq!((found.prompt, found.layers), (answer.prompt_tokens, model.info().spec().layers));
    let layer0 = |step, position| found.cosine(step, 1, 0, position);
    // V of the first layer is a function of the token alone: it changes where something was committed, and only there.
    for step in 0..found.steps {
        let changed: Vec<usize> = (0..found.positions).filter(|&position| layer0(step, position) < 0.9999).collect();
        assert!(!changed.is_empty() && changed.iter().all(|&position| position >= found.prompt), "{step}: {changed:?}");
        assert!(changed.len() < found.positions - found.prompt);
    }
    let mut stability = Stability::new("demo", "cpu", found.layers, &[0]);
    stability.add(&found);
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &stability).unwrap();
    let page = std::fs::read_to_string(directory.path().join("stability.html")).unwrap();
    assert_eq!(page.matches("<svg ").count(), 4);
    assert!(!page.contains("NaN") && !page.contains("<script"));
    let csv = std::fs::read_to_string(directory.path().join("plots/stability_layer0.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + found.steps * found.positions);
    let refused = measure(&mut model, &prompt, &options, &mut |_, _| false);
    assert!(matches!(refused, Err(Error::Interrupted)));
}

proptest! {
    #[test]
    fn cosines_are_cosines(values in prop::collection::vec((-5.0f32..5.0, -5.0f32..5.0), 1..20), scale in 0.1f32..9.0) {
        let (a, b): (Vec<f32>, Vec<f32>) = values.into_iter().unzip();
        let found = cosine(&a, &b);
        prop_assert!((-1.0001..=1.0001).contains(&found));
        prop_assert!((found - cosine(&b, &a)).abs() < 1e-6);
        let scaled: Vec<f32> = a.iter().map(|value| value * scale).collect();
        let long = |values: &[f32]| values.iter().any(|value| value.abs() > 1e-3);
        if long(&a) && long(&b) {
            prop_assert!((found - cosine(&scaled, &b)).abs() < 1e-4);
            prop_assert!((cosine(&a, &scaled) - 1.0).abs() < 1e-5);
        }
    }
}
