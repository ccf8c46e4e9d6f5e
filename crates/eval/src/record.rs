//! One judged item: a line of `results.jsonl`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Verdict;

/// One judged item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The row that it belongs to, by its name, and the seed if there are several.
    pub run: String,
    /// The task.
    pub task: String,
    /// Index in the task's order, from 0.
    pub index: usize,
    /// The problem's name.
    pub id: String,
    /// The prompt as the model read it.
    pub prompt: String,
    /// Output of the model.
    pub output: String,
    /// The extracted answer and whether it is right.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Right answer, for people.
    pub expected: String,
    /// Counts of its tokens.
    #[serde(flatten)]
    pub counts: Counts,
    /// The receipt as `generate --json` prints it.
    pub receipt: Value,
}

/// Tokens of an answer, by the ways in which papers count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Decoded tokens of the answer, up to and with the end token.
    pub tokens: usize,
    /// Those that are part of the text: neither end tokens nor other special ones. None without a tokenizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_tokens: Option<usize>,
    /// Tokens of the prompt that are part of its text. None without a tokenizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_prompt_tokens: Option<usize>,
    /// Positions that were written, those after the end token included.
    #[serde(default)]
    pub positions: usize,
    /// Records whether the answer filled its length without coming to an end.
    #[serde(default)]
    pub cut: bool,
}
