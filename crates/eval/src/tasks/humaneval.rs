//! HumanEval (Chen et al. 2021): Python functions to complete from their head and description.

use serde_json::Value;

use super::{
    DataFile, Exemplars, FieldError, Form, Source, Style, Task, fields,
    style::{no_head, solution},
};
use crate::{Gold, Problem, Rule};

/// The task.
pub const TASK: Task = Task {
    name: "humaneval",
    about: "Python functions to complete; the tests of the file decide",
    source: Source::hub(
        "openai/openai_humaneval",
        "main",
        &[DataFile::plain("openai_humaneval/test-00000-of-00001.parquet")],
    ),
    exemplars: Exemplars::None,
    styles: &[LM_EVAL, INSTRUCT, BLOCK],
    gen_length: 512,
    fields: "`task_id`, `prompt`, `canonical_solution`, `test`, `entry_point`",
    read,
    shuffled: false,
    likelihood: None,
};

const LM_EVAL: Style = Style {
    name: "lm-eval",
    about: "lm-evaluation-harness, `humaneval`: the model goes on where the file stops",
    form: Form::Text { gap: "" },
    head: no_head,
    ask: |problem| problem.question.clone(),
    solve: solution,
    stop: &["\nclass", "\ndef", "\n#", "\nif", "\nprint"],
    shots: 0,
    rule: Rule::Program,
};

/// The harness begins the assistant's turn as well, with the function's head in an open code block; here the model
/// writes the block itself.
const INSTRUCT: Style = Style {
    name: "lm-eval-chat",
    about: "lm-evaluation-harness, `humaneval_instruct`, without the start of the assistant's turn",
    form: Form::Chat,
    ask: |problem| {
        let program = &problem.question;
        format!(
            "Write a solution to the following problem and make sure that it passes the tests:\n```python\n{program}\n```\n"
        )
    },
    stop: &[],
    ..LM_EVAL
};

/// FreeDave 5.3, for functions.
const BLOCK: Style = Style {
    name: "freedave",
    about: "FreeDave's paper",
    form: Form::Chat,
    ask: super::mbpp::ask_block,
    stop: &[],
    ..LM_EVAL
};

fn read(entry: &Value, index: usize) -> Result<Problem, FieldError> {
    let (prompt, entry_point) = (fields::text(entry, "prompt")?, fields::text(entry, "entry_point")?);
    let tests = format!("{}\ncheck({entry_point})\n", fields::text(entry, "test")?);
    Ok(Problem {
        id: fields::name(entry, "task_id", index),
        question: prompt.clone(),
        solution: fields::text(entry, "canonical_solution").ok(),
        gold: Gold::Program { prompt, tests, entry_point: Some(entry_point) },
        ..Problem::default()
    })
}
