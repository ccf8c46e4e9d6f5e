//! Shortest ways from a masked canvas to the tokens of static decoding.
//!
//! A forward at a canvas predicts every mask. Two kinds of ways are searched, both of which end with the very tokens that
//! static decoding ends with:
//!
//! * along static decoding's own canvases ([`along`]): a forward may jump as far as its surest predictions are exactly
//!   what static decoding commits next. This is the feasible path of FreeDave's paper (specs/freedave.md#0).
//!   It is found exactly, with one forward for each canvas of static decoding.
//! * through any canvases ([`beam`]): a forward may commit any of its predictions that are right in the end. There are too
//!   many canvases to try; the search keeps those that look best, so its result is an upper bound.

use std::collections::{BTreeMap, HashSet};

use demask_step::{Position, TokenId};

/// Result of static decoding.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Goal {
    /// Commits, in order.
    pub commits: Vec<(Position, TokenId)>,
    /// Number of commits after each of its steps that committed something.
    pub sizes: Vec<usize>,
    /// End of the positions that the answer needs.
    pub end: Position,
}

/// Prediction of a forward at a masked position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guess {
    /// Canvas position.
    pub position: Position,
    /// The block that it lies in.
    pub block: usize,
    /// Token id.
    pub token: TokenId,
    /// The token's probability.
    pub confidence: f32,
}

/// Commits of a goal that are done, by index.
type State = Vec<bool>;

/// Predicts all masks of a canvas on which some commits of a goal stand.
pub type Predict<'a, E> = dyn FnMut(&[bool]) -> Result<Vec<Guess>, E> + 'a;

/// Lengths of the shortest ways along static decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Along {
    /// Forwards if no jump leads over the end of a block.
    pub in_blocks: usize,
    /// Forwards if jumps may lead over the end of a block.
    pub across: usize,
}

/// Finds the fewest forwards that lead along static decoding's canvases.
pub fn along<E>(goal: &Goal, predict: &mut Predict<'_, E>) -> Result<Along, E> {
    let steps = goal.sizes.len();
    let [mut in_blocks, mut across] = [vec![usize::MAX; steps + 1], vec![usize::MAX; steps + 1]];
    (in_blocks[0], across[0]) = (0, 0);
    for from in 0..steps {
        let start = from.checked_sub(1).map_or(0, |before| goal.sizes[before]);
        let state: State = (0..goal.commits.len()).map(|index| index < start).collect();
        let mut guesses = predict(&state)?;
        // The total order of commits.
        guesses.sort_by(|a, b| {
            let surest = || b.confidence.total_cmp(&a.confidence);
            a.block.cmp(&b.block).then_with(surest).then(a.position.cmp(&b.position))
        });
        for (to, inside) in reached(goal, from, start, &guesses) {
            across[to] = across[to].min(across[from] + 1);
            if inside && in_blocks[from] < usize::MAX {
                in_blocks[to] = in_blocks[to].min(in_blocks[from] + 1);
            }
        }
    }
    Ok(Along { in_blocks: in_blocks[steps], across: across[steps] })
}

/// The steps of static decoding that the surest predictions at a canvas lead to, and whether within a block.
fn reached(goal: &Goal, from: usize, start: usize, ranked: &[Guess]) -> Vec<(usize, bool)> {
    let mut found = Vec::new();
    let wanted: BTreeMap<Position, TokenId> = goal.commits[start..].iter().copied().collect();
    let right = |guess: &Guess| wanted.get(&guess.position) == Some(&guess.token);
    let good = ranked.iter().take_while(|guess| right(guess)).count();
    for to in from + 1..=goal.sizes.len() {
        let count = goal.sizes[to - 1] - start;
        if count > good {
            break;
        }
        let taken = &ranked[..count];
        let next: HashSet<Position> = goal.commits[start..start + count].iter().map(|commit| commit.0).collect();
        if taken.iter().all(|guess| next.contains(&guess.position)) {
            found.push((to, taken.iter().all(|guess| guess.block == ranked[0].block)));
        }
    }
    // The step itself is static decoding's, whatever ties may say.
    if found.first().is_none_or(|first| first.0 != from + 1) {
        found.insert(0, (from + 1, true));
    }
    found
}

/// Shares of the right predictions that are kept, the surest first, where a canvas is left in several ways.
const KEPT: [f64; 5] = [1.0, 0.9, 0.75, 0.5, 0.25];

/// Finds few forwards that lead through any canvases, at most `most`, with `width` forwards at each depth.
pub fn beam<E>(goal: &Goal, width: usize, most: usize, predict: &mut Predict<'_, E>) -> Result<usize, E> {
    let mut seen: HashSet<State> = HashSet::new();
    let mut level: Vec<(State, Vec<usize>)> = Vec::new();
    let empty = vec![false; goal.commits.len()];
    let guesses = predict(&empty)?;
    level.push((empty.clone(), right(goal, &empty, guesses)));
    for forwards in 1..most {
        if level.iter().any(|(state, right)| is_reached(goal, &with(state, right))) {
            return Ok(forwards);
        }
        let mut next = Vec::new();
        // All that is right from the best canvases first, then less of it.
        for share in KEPT {
            for (state, right) in &level {
                let kept = ((right.len() as f64 * share).ceil() as usize).min(right.len());
                let state = with(state, &right[..kept]);
                if kept > 0 && next.len() < width && seen.insert(state.clone()) {
                    next.push(state);
                }
            }
        }
        level.clear();
        for state in next {
            let guesses = predict(&state)?;
            let right = right(goal, &state, guesses);
            level.push((state, right));
        }
        if level.is_empty() {
            break;
        }
        level.sort_by_key(|(state, right)| {
            std::cmp::Reverse(state.iter().filter(|&&stands| stands).count() + right.len())
        });
    }
    Ok(most)
}

/// The commits that are predicted as they are in the end, the surest first.
fn right(goal: &Goal, state: &[bool], mut guesses: Vec<Guess>) -> Vec<usize> {
    guesses.sort_by(|a, b| b.confidence.total_cmp(&a.confidence).then(a.position.cmp(&b.position)));
    let index = |guess: &Guess| goal.commits.iter().position(|&commit| commit == (guess.position, guess.token));
    guesses.iter().filter_map(index).filter(|&index| !state[index]).collect()
}

fn with(state: &[bool], added: &[usize]) -> State {
    let mut state = state.to_vec();
    for &index in added {
        state[index] = true;
    }
    state
}

/// Reports whether everything that the answer needs stands.
fn is_reached(goal: &Goal, state: &[bool]) -> bool {
    goal.commits.iter().zip(state).all(|(commit, &stands)| stands || commit.0 >= goal.end)
}
