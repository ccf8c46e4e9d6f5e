use std::convert::Infallible;

use super::{
    search::{Along, Predict},
    *,
};
use crate::analysis::{tests::demo, write};

/// Positions 0 to `count` in blocks of `block`, one commit a step, tokens equal to positions.
fn goal(count: u32) -> Goal {
    Goal { commits: (0..count).map(|at| (at, at)).collect(), sizes: (1..=count as usize).collect(), end: count }
}

/// Guesses of the masked positions; `know` says whether a position is predicted right while so many tokens stand.
fn guesses(state: &[bool], block: usize, know: impl Fn(usize, usize) -> bool) -> Vec<Guess> {
    let stand = state.iter().filter(|&&stands| stands).count();
    let masked = (0..state.len()).filter(|&at| !state[at]);
    let guess = |at: usize| Guess {
        position: at as Position,
        block: at / block,
        token: if know(at, stand) { at as TokenId } else { 1000 },
        confidence: 1.0 / (1.0 + at as f32),
    };
    masked.map(guess).collect()
}

fn both(count: u32, block: usize, know: impl Fn(usize, usize) -> bool) -> (Along, usize) {
    let mut predict = |state: &[bool]| Ok::<_, Infallible>(guesses(state, block, &know));
    let predict: &mut Predict<'_, Infallible> = &mut predict;
    let goal = goal(count);
    let Ok(along) = along(&goal, predict);
    let Ok(any) = beam(&goal, 4, along.across, predict);
    (along, any)
}

#[test]
fn the_shortest_ways_are_found() {
    // Everything is known at once: one forward, or one for each block.
    assert_eq!(both(8, 4, |_, _| true), (Along { in_blocks: 2, across: 1 }, 1));
    // A forward knows its next position only: as many as there are.
    assert_eq!(both(6, 3, |at, stand| at == stand), (Along { in_blocks: 6, across: 6 }, 6));
    // It knows the next two.
    assert_eq!(both(6, 6, |at, stand| at < stand + 2), (Along { in_blocks: 3, across: 3 }, 3));
    // Position 0 is known last of all: static decoding, which takes it first, never jumps; any order waits for nothing.
    let (along, any) = both(6, 6, |at, stand| at > 0 && at % 2 == 0 || stand >= 2);
    assert_eq!((along, any), (Along { in_blocks: 3, across: 3 }, 2));
}

#[test]
fn a_longer_jump_is_not_always_the_better_one() {
    // From the start jumps of 1 and 2 are good; from 2 on only single steps, from 1 everything.
    let know = |at: usize, stand: usize| match stand {
        0 => at < 2,
        1 => true,
        _ => at == stand,
    };
    let (along, any) = both(8, 8, know);
    assert_eq!((along.across, any), (2, 2), "the greedy way takes 1 + 6");
}

#[test]
fn what_the_answer_does_not_need_is_not_waited_for() {
    let goal = Goal { end: 2, ..goal(4) };
    let mut predict = |state: &[bool]| Ok::<_, Infallible>(guesses(state, 4, |at, stand| at < 2 || at == stand));
    let predict: &mut Predict<'_, Infallible> = &mut predict;
    let Ok(along) = along(&goal, predict);
    let Ok(any) = beam(&goal, 1, along.across, predict);
    assert_eq!((along.across, any), (3, 1));
}

/// Static decoding, FreeDave and the searches on the demo: no way is shorter than the shortest one.
#[test]
fn nothing_is_shorter_than_the_shortest_way() {
    let (mut model, prompt) = demo();
    let options = Options { gen_length: Some(32), block_length: Some(8), ..Options::default() };
    let mut found = Paths::new("demo", "cpu", 4);
    found.measure(&mut model, &prompt, &options, &mut || true).unwrap();
    assert_eq!(model.network().pages().used, 0);
    let of = |name: &str| {
        let index = found.ways.iter().position(|way| found.name(way) == name).unwrap();
        found.prompts[0].forwards[index]
    };
    let [in_blocks, across] = ["in blocks", "across blocks"].map(|name| of(&format!("shortest along static, {name}")));
    let any = of("any order, beam of 4");
    assert!(1 <= any && any <= across && across <= in_blocks && in_blocks <= of("static"));
    for drafts in ["1", "2", "4", "8", "16", "32"] {
        let forwards = of(&format!("freedave:d={drafts}"));
        assert!(across <= forwards && forwards <= of("static"), "d={drafts}: {forwards}, at least {across}");
    }
    assert_eq!(of("freedave:d=1"), of("static"));
    assert!(of("freedave:d=8") < of("static"));
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &found).unwrap();
    let page = std::fs::read_to_string(directory.path().join("path.html")).unwrap();
    assert_eq!((page.matches("<svg ").count(), found.table().len()), (2, 1 + found.ways.len()));
    assert!(matches!(found.measure(&mut model, &prompt, &options, &mut || false), Err(Error::Interrupted)));
    assert_eq!(model.network().pages().used, 0);
}
