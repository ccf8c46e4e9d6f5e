//! A list of tokens that many requests share.

use std::{ops::Deref, sync::Arc};

use crate::TokenId;

/// A set of tokens as an ascending list without repeats. A clone is another handle to the same list, so that requests
/// can be handed on in every step whatever they name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenList(Arc<[TokenId]>);

impl From<Vec<TokenId>> for TokenList {
    fn from(mut tokens: Vec<TokenId>) -> Self {
        tokens.sort_unstable();
        tokens.dedup();
        Self(tokens.into())
    }
}

impl FromIterator<TokenId> for TokenList {
    fn from_iter<I: IntoIterator<Item = TokenId>>(tokens: I) -> Self {
        tokens.into_iter().collect::<Vec<_>>().into()
    }
}

impl Deref for TokenList {
    type Target = [TokenId];

    fn deref(&self) -> &[TokenId] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sets_and_clones_are_handles() {
        let list = TokenList::from(vec![9, 2, 9, 4]);
        assert_eq!(list[..], [2, 4, 9]);
        assert_eq!(list.clone().as_ptr(), list.as_ptr());
        assert_eq!(list, [4, 2, 9].into_iter().collect());
    }
}
