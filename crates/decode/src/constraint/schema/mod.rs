//! JSON schemas as grammars: every text of the grammar, parsed, is valid. Parts narrower than the schema are listed.

mod disjoint;
mod document;
mod formats;
mod open;
mod shape;
mod translator;
mod write;

pub(super) use open::MANY;
pub(super) use translator::{Layout, Limits, Translated, translate};
