//! Holes in a text: four endpoints with one core.

use std::sync::Arc;

use bytes::Bytes;
use demask::{Generation, Prompt};

use crate::{
    Refusal,
    ask::Ask,
    service::{Entry, Inner, Served},
};

/// Returns the text of each hole.
pub fn holes(_generation: &Generation) -> Vec<String> {
    Vec::new()
}

/// Fills holes.
pub fn serve(_service: &Arc<Inner>, _entry: Entry, _body: &Bytes) -> Result<Served, Refusal> {
    Err(Refusal::missing("not yet"))
}

/// Fills what is missing between prompts and a suffix.
pub fn with_suffix(
    _service: &Arc<Inner>,
    _entry: Entry,
    _prompts: &[Prompt],
    _suffix: &str,
    _ask: Ask,
) -> Result<Served, Refusal> {
    Err(Refusal::missing("not yet"))
}
