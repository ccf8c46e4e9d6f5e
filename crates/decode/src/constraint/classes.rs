//! Classes of tokens that no row tells apart, so far as rows were made: the best token of any set that a row names is found
//! from the best one of each class (specs/structure.md#4).

use demask_step::TokenId;

/// A set of tokens: a class when it was made, which later rows may have divided.
pub(super) type Set = u32;

/// No set above.
const TOP: Set = Set::MAX;

/// A partition of the tokens that is refined row by row. Every set that was ever a class stays known: its parts are below it.
#[derive(Debug)]
pub(super) struct Classes {
    /// Class of each token.
    of: Vec<u32>,
    /// Tokens of each class, and the set that it is.
    size: Vec<u32>,
    set_of: Vec<Set>,
    /// The set that each set is a part of. Parts come after what they are parts of.
    above: Vec<Set>,
    /// Most classes.
    most: usize,
}

impl Classes {
    /// One class of all tokens; `most` bounds their number.
    pub(super) fn new(tokens: usize, most: usize) -> Self {
        Self { of: vec![0; tokens], size: vec![tokens as u32], set_of: vec![0], above: vec![TOP], most }
    }

    /// Number of classes.
    pub(super) fn len(&self) -> usize {
        self.size.len()
    }

    /// Returns the sets that these tokens are, dividing classes that they cut. None if that makes too many classes: then
    /// nothing has changed.
    pub(super) fn refine(&mut self, tokens: &[TokenId]) -> Option<Vec<Set>> {
        let mut count = vec![0u32; self.len()];
        for &token in tokens {
            count[self.of[token as usize] as usize] += 1;
        }
        let met: Vec<usize> = (0..count.len()).filter(|&class| count[class] > 0).collect();
        let cut = |class: usize| count[class] < self.size[class];
        if self.len() + met.iter().filter(|&&class| cut(class)).count() > self.most {
            return None;
        }
        let mut into: Vec<u32> = (0..count.len() as u32).collect();
        let mut sets = Vec::with_capacity(met.len());
        for &class in &met {
            if count[class] < self.size[class] {
                let whole = self.set_of[class];
                let part = self.above.len() as Set;
                self.above.extend([whole, whole]);
                into[class] = self.size.len() as u32;
                self.size.push(count[class]);
                self.set_of.push(part);
                self.size[class] -= count[class];
                self.set_of[class] = part + 1;
                sets.push(part);
            } else {
                sets.push(self.set_of[class]);
            }
        }
        for &token in tokens {
            let class = &mut self.of[token as usize];
            *class = into[*class as usize];
        }
        Some(sets)
    }

    /// Replaces `best` by the token of the largest score of each set, the lowest of several. Scores are by token.
    pub(super) fn best(&self, scores: &[f64], best: &mut Vec<(f64, TokenId)>) {
        best.clear();
        best.resize(self.above.len(), NOTHING);
        for ((token, &class), &score) in (0..).zip(&self.of).zip(scores) {
            let found = &mut best[self.set_of[class as usize] as usize];
            if score > found.0 {
                *found = (score, token);
            }
        }
        for set in (0..self.above.len()).rev() {
            let above = self.above[set];
            if above != TOP {
                let better = better(best[above as usize], best[set]);
                best[above as usize] = better;
            }
        }
    }

    /// Marks the tokens of these sets.
    pub(super) fn mark(&self, sets: &[Set], tokens: &mut [bool]) {
        let mut marked = vec![false; self.above.len()];
        for &set in sets {
            marked[set as usize] = true;
        }
        for set in 0..self.above.len() {
            let above = self.above[set];
            marked[set] |= above != TOP && marked[above as usize];
        }
        for (token, &class) in tokens.iter_mut().zip(&self.of) {
            *token |= marked[self.set_of[class as usize] as usize];
        }
    }
}

/// The best of no token.
pub(super) const NOTHING: (f64, TokenId) = (f64::NEG_INFINITY, TokenId::MAX);

/// The token of the larger score, the lower one of equals.
pub(super) fn better(left: (f64, TokenId), right: (f64, TokenId)) -> (f64, TokenId) {
    let wins = right.0 > left.0 || right.0 == left.0 && right.1 < left.1;
    if wins { right } else { left }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_stay_known_when_they_are_divided() {
        let mut classes = Classes::new(6, 4);
        let [low, even] = [vec![0, 1, 2], vec![0, 2, 4]].map(|tokens| classes.refine(&tokens).unwrap());
        assert_eq!((low.len(), even.len(), classes.len()), (1, 2, 4));
        assert_eq!(classes.refine(&[0]), None, "a fifth class");
        assert_eq!(classes.refine(&[1, 3, 5]).map(|sets| sets.len()), Some(2));
        let mut best = Vec::new();
        classes.best(&[1.0, 3.0, 2.0, 0.5, 2.0, 9.0], &mut best);
        assert_eq!(best[low[0] as usize], (3.0, 1));
        assert_eq!(even.iter().map(|&set| best[set as usize]).fold(NOTHING, better), (2.0, 2), "the lower of equals");
        let mut marked = [false; 6];
        classes.mark(&low, &mut marked);
        assert_eq!(marked, [true, true, true, false, false, false]);
    }
}
