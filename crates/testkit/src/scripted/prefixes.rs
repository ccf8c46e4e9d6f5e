//! Prefixes that scripted sequences leave for later ones: a plain list, searched from end to end.

use demask_step::{Mask, Position, Prefix, PrefixCacheStats, TokenId};

use super::slots::Stored;

/// CachedPages prefixes, in pages of any size.
#[derive(Debug, Clone, Default)]
pub(super) struct Prefixes {
    /// Positions of a page; 0 keeps nothing.
    pub(super) page: usize,
    cached: Vec<Left>,
    pub(super) counters: PrefixCacheStats,
    /// Fault of a cached prefix, if there is one.
    pub(super) wrong: Option<&'static str>,
}

/// Prefix that one sequence left.
#[derive(Debug, Clone)]
struct Left {
    mask: Mask,
    salt: u64,
    tokens: Vec<TokenId>,
    stored: Stored,
}

impl Prefixes {
    /// Number of leading positions that are whole blocks and whole pages.
    fn whole(&self, mask: Mask, positions: usize) -> usize {
        let block = match mask {
            Mask::Full => return 0,
            Mask::Causal | Mask::Context { .. } => 1,
            Mask::BlockCausal { offset, .. } if offset > 0 => return 0,
            Mask::BlockCausal { block, .. } => block as usize,
        };
        let fits = |end: &usize| end.is_multiple_of(block) && end.is_multiple_of(self.page.max(1));
        if self.page == 0 { 0 } else { (0..=positions).rev().find(fits).unwrap_or(0) }
    }

    /// Returns how many leading positions somebody left, up to so many, and what they hold.
    pub(super) fn find(&mut self, prefix: Prefix<'_>, most: usize) -> (Position, Option<&Stored>) {
        self.counters.queries += if self.page == 0 { 0 } else { prefix.tokens.len() as u64 };
        let shared = |left: &Left| {
            let same = left.mask == prefix.mask && left.salt == prefix.salt;
            let tokens = left.tokens.iter().zip(prefix.tokens);
            let common = tokens.take_while(|(left, own)| left == own).count();
            if same { self.whole(prefix.mask, common.min(most)) } else { 0 }
        };
        let longest = self.cached.iter().map(|left| (shared(left), left)).max_by_key(|(length, _)| *length);
        let (filled, left) = longest.filter(|(length, _)| *length > 0).unzip();
        let filled = filled.unwrap_or(0);
        self.counters.hits += filled as u64;
        (filled as Position, left.map(|left: &Left| &left.stored))
    }

    /// Takes the slots that a sequence leaves, and notes a fault in them: a slot that was never written, or whose
    /// content differs from an earlier sequence's for the same tokens. Returns how many leading positions are shared
    /// from now on.
    pub(super) fn cache(&mut self, prefix: Prefix<'_>, stored: &Stored) -> Position {
        let length = self.whole(prefix.mask, prefix.tokens.len());
        let tokens = &prefix.tokens[..length];
        if !stored.is_written(length) {
            self.wrong = Some("a slot is cached that was never written");
            return 0;
        }
        for left in self.cached.iter().filter(|left| left.mask == prefix.mask) {
            let common = left.tokens.iter().zip(tokens).take_while(|(left, own)| left == own).count();
            // Within a block everything depends on all of it.
            if !left.stored.same(stored, self.whole(prefix.mask, common)) {
                self.wrong = Some("a slot is cached that depends on more than the tokens up to its block");
                return 0;
            }
        }
        let known =
            |left: &Left| left.mask == prefix.mask && left.salt == prefix.salt && left.tokens.starts_with(tokens);
        if !self.cached.iter().any(known) {
            let tokens = tokens.to_vec();
            self.cached.push(Left { mask: prefix.mask, salt: prefix.salt, tokens, stored: stored.clone() });
        }
        length as Position
    }
}
