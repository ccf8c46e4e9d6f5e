//! The best tokens of a tile and of a row.

use demask_tensor::Number;

use super::{
    mark::Mark,
    statistics::{Statistics, TILE, min_lanes},
};
use crate::elementwise::Lanes;

/// Best tokens that are kept of each tile at most: a row with more takes its stored logits, which are not much larger.
pub(super) const MOST: usize = 8;

/// Placeholder for a missing token.
const NOBODY: u32 = u32::MAX;

/// One of the best tokens of a tile.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(super) struct Best {
    token: u32,
    logit: f32,
}

impl Best {
    /// Best of no token.
    const NONE: Self = Self { token: NOBODY, logit: f32::NEG_INFINITY };
}

// SAFETY: two plain numbers of four bytes each, without padding.
unsafe impl Number for Best {}

/// Lists the best of a tile whose first token is `first`, ties by id; there are no tokens from `vocabulary` on. A logit
/// that is not a number counts as minus infinity. Tokens below the mark are left out: another tile has as many tokens
/// above it as are listed.
#[inline(always)]
pub(super) fn list_tile<L: Lanes>(
    logits: &[f32; TILE],
    (first, vocabulary): (u32, u32),
    (mark, list): (&Mark, &mut [Best]),
) {
    let mut left = [f32::NEG_INFINITY; TILE];
    for lane in 0..TILE {
        left[lane] = if logits[lane] > left[lane] { logits[lane] } else { left[lane] };
    }
    let lowest = mark.get();
    for index in 0..list.len() {
        let best = L::most_of(&left);
        if best < lowest {
            return list[index..].fill(Best::NONE);
        }
        if best == f32::NEG_INFINITY {
            return list_weightless(logits, (first, vocabulary), &mut list[index..]);
        }
        let mut lanes = [TILE as u32; TILE];
        for lane in 0..TILE {
            lanes[lane] = if left[lane] == best { lane as u32 } else { lanes[lane] };
        }
        let at = min_lanes(lanes);
        for lane in 0..TILE {
            left[lane] = if lane as u32 == at { f32::NEG_INFINITY } else { left[lane] };
        }
        list[index] = Best { token: first + at, logit: best };
    }
    list.last().into_iter().for_each(|last| mark.raise(last.logit));
}

/// Lists the tokens of a tile that cannot be drawn, as far as there are any.
#[cold]
fn list_weightless(logits: &[f32; TILE], (first, vocabulary): (u32, u32), list: &mut [Best]) {
    list.fill(Best::NONE);
    let weightless = (0..TILE).filter(|&lane| logits[lane].is_nan() || logits[lane] == f32::NEG_INFINITY);
    let tokens = weightless.map(|lane| first + lane as u32).filter(|&token| token < vocabulary);
    list.iter_mut().zip(tokens).for_each(|(best, token)| best.token = token);
}

/// Empties a row's list.
pub(super) fn clear(list: &mut [(u32, f32)]) {
    list.fill((NOBODY, f32::NEG_INFINITY));
}

/// Reports whether a token of this logit comes before the last of a row's list.
#[inline(always)]
pub(super) fn enters(list: &[(u32, f32)], logit: f32) -> bool {
    list.last().is_some_and(|last| last.0 == NOBODY || logit > last.1)
}

/// Puts a token that enters into a row's list, after those with the same logit. Tokens of the same logit come in
/// ascending order.
pub(super) fn insert(list: &mut [(u32, f32)], token: u32, logit: f32) {
    let logit = if logit > f32::NEG_INFINITY { logit } else { f32::NEG_INFINITY };
    let at = list.iter().take_while(|best| best.0 != NOBODY && best.1 >= logit).count();
    list[at..].rotate_right(1);
    list[at] = (token, logit);
}

/// Puts the lists of a row's tiles together, ascending; `lists` has `stride` entries for each tile.
pub(super) fn join(tiles: &[Statistics], lists: &[Best], stride: usize, list: &mut [(u32, f32)]) {
    clear(list);
    if list.is_empty() {
        return;
    }
    let length = list.len();
    // Nearly all tiles are passed over.
    for (tile, best) in tiles.iter().zip(lists.chunks_exact(stride)) {
        if enters(list, tile.best) {
            let known = best[..length].iter().take_while(|best| best.token != NOBODY);
            for best in known {
                if !enters(list, best.logit) {
                    break;
                }
                insert(list, best.token, best.logit);
            }
        }
    }
}
