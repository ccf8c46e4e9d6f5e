use demask::Options;
use demask_step::Mask;

use super::*;
use crate::analysis::{tests::demo, write};

fn draft(step: usize, draft: usize, position: Position, accepted: bool) -> Event {
    Event::Draft { step, draft, position, token: 7, confidence: 0.75, accepted }
}

fn over(step: usize) -> Event {
    let (masks, settled, merged) = (0, 0, 0);
    Event::Step { step, nfe: step + 1, rows: 8, drafts: 3, accepted: 0, rejected: 0, masks, settled, merged }
}

#[test]
fn drafts_behind_the_first_refused_one_were_never_tested() {
    let mut found = Acceptance::default();
    let layout = Layout::full(2, 10, 4);
    assert_eq!(layout.attention(), Mask::Full);
    let events = [
        draft(0, 0, 2, true),
        draft(0, 1, 4, true),
        draft(0, 2, 3, false),
        draft(0, 3, 5, false),
        over(0),
        draft(1, 1, 6, true),
        over(1),
        over(2),
    ];
    found.take_drafts(&layout, events.into_iter());
    let rate = |accepted, reached, drafted| Rate { accepted, reached, drafted };
    assert_eq!(found.all, rate(2, 3, 4));
    assert_eq!(
        found.places,
        BTreeMap::from([(0, rate(1, 1, 1)), (1, rate(0, 1, 1)), (2, rate(1, 1, 1)), (3, rate(0, 0, 1))])
    );
    assert_eq!(found.ranks, BTreeMap::from([(1, rate(2, 2, 2)), (2, rate(0, 1, 1)), (3, rate(0, 0, 1))]));
    assert_eq!(found.steps[&0], rate(1, 2, 3));
    assert_eq!(found.stood, BTreeMap::from([(1, 2)]));
    assert_eq!(found.drafts.count(), 3);
}

#[test]
fn a_calibrated_model_has_no_error() {
    let mut of = Calibration::default();
    assert_eq!((of.error(), of.right()), (None, None));
    for right in [true, true, true, false] {
        of.add(0.75, right);
    }
    assert_eq!((of.error(), of.right()), (Some(0.0), Some(0.75)));
    of.add(1.0, false);
    assert!((of.error().unwrap() - 0.2).abs() < 1e-9, "one of five is off by 1");
    assert_eq!(of.0[BINS.len() - 1].count, 1);
}

#[test]
fn the_demo_is_measured_and_drawn() {
    let (mut model, prompt) = demo();
    for (decoder, drafts) in [("freedave:d=4", true), ("static", false)] {
        let options = Options {
            decoder: Some(decoder.parse().unwrap()),
            gen_length: Some(32),
            block_length: Some(16),
            ..Options::default()
        };
        let answer = model.generate_with(prompt.clone(), &options).unwrap();
        let session = model.session(&prompt, &options).unwrap();
        let mut found = Acceptance::default();
        measure(&mut model, session, &mut found, &mut |_| true).unwrap();
        assert_eq!(found.all.drafted > 0, drafts);
        // The receipt counts the same drafts.
        let stood: BTreeMap<usize, usize> =
            answer.receipt.decoding.acceptance.iter().copied().enumerate().filter(|of| of.1 > 0).collect();
        assert_eq!(found.stood, stood);
        assert!(found.current.count() > 32 && found.current.right().unwrap() > 0.5);
        // What is committed is right in the end, and the surest is committed: high confidences are.
        let [.., best] = found.current.0;
        assert!(best.means().is_none_or(|(_, right)| right > 0.9));
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &found).unwrap();
        let page = std::fs::read_to_string(directory.path().join("acceptance.html")).unwrap();
        assert_eq!(page.matches("<svg ").count(), 1 + usize::from(drafts));
        assert!(!page.contains("NaN"));
    }
}
