//! LongBench's part of HotpotQA (Bai et al. 2023; Yang et al. 2018): a short answer from many passages.

use serde_json::Value;

use super::{
    DataFile, Exemplars, FieldError, Form, Source, Style, Task, fields,
    style::{answer, no_head},
};
use crate::{Gold, Problem, Rule};

/// The task.
pub const TASK: Task = Task {
    name: "longbench-hotpotqa",
    about: "questions that need two of many passages; the answer is a few words, judged by the words it shares",
    source: Source::hub("THUDM/LongBench", "main", &[DataFile::packed("data.zip", "data/hotpotqa.jsonl")]),
    exemplars: Exemplars::None,
    styles: &[LONGBENCH, LONGBENCH.as_chat()],
    gen_length: 32,
    fields: "`input`, `context`, `answers`, `_id`",
    read,
    shuffled: false,
    likelihood: None,
};

const LONGBENCH: Style = Style {
    name: "lm-eval",
    about: "LongBench's paper, as in lm-evaluation-harness",
    form: Form::Text { gap: " " },
    head: no_head,
    ask: |problem| {
        let order = "Answer the question based on the given passages. Only give me the answer and do not output any \
                     other words.";
        let passages = problem.context.as_deref().unwrap_or_default();
        format!(
            "{order}\n\nThe following are given passages.\n{passages}\n\n{order}\n\nQuestion: {}\nAnswer:",
            problem.question
        )
    },
    solve: answer,
    stop: &["\n"],
    shots: 0,
    rule: Rule::Overlap,
};

fn read(entry: &Value, index: usize) -> Result<Problem, FieldError> {
    let answers = fields::texts(entry, "answers")?;
    if answers.is_empty() {
        return Err(FieldError::odd("answers", "at least one text"));
    }
    Ok(Problem {
        id: fields::name(entry, "_id", index),
        question: fields::text(entry, "input")?,
        context: Some(fields::text(entry, "context")?),
        gold: Gold::Text(answers),
        ..Problem::default()
    })
}
