//! MBPP (Austin et al. 2021): Python functions to write from a sentence and three tests.

use serde_json::Value;

use super::{
    DataFile, Exemplars, FieldError, Form, Source, Style, Task, fields,
    style::{no_head, solution},
};
use crate::{Gold, Problem, Rule};

/// The task. Its exemplars are problems 2, 3 and 4 of the prompt file, as in the paper.
pub const TASK: Task = Task {
    name: "mbpp",
    about: "Python functions to write; three tests of the file, which the prompt shows, decide",
    source: Source::hub(
        "google-research-datasets/mbpp",
        "main",
        &[DataFile::plain("full/test-00000-of-00001.parquet")],
    ),
    exemplars: Exemplars::Files {
        files: &[DataFile::plain("full/prompt-00000-of-00001.parquet")],
        skip: 1,
        per_subject: false,
    },
    styles: &[LM_EVAL, INSTRUCT, BLOCK],
    gen_length: 512,
    fields: "`task_id`, `text` (`prompt` in the sanitized file), `code`, `test_list`, `test_setup_code` or `test_imports`",
    read,
    shuffled: false,
    likelihood: None,
};

const LM_EVAL: Style = Style {
    name: "lm-eval",
    about: "lm-evaluation-harness, `mbpp`",
    form: Form::Text { gap: "" },
    head: no_head,
    ask: |problem| {
        format!(
            "You are an expert Python programmer, and here is your task: {} Your code should pass these tests:\n\n{}\n\
             [BEGIN]\n",
            problem.question,
            shown_tests(problem)
        )
    },
    solve: |problem| format!("{}\n[DONE]", solution(problem)),
    stop: &["[DONE]"],
    shots: 3,
    rule: Rule::Program,
};

const INSTRUCT: Style = Style {
    name: "lm-eval-chat",
    about: "lm-evaluation-harness, `mbpp_instruct`, without the start of the assistant's turn",
    form: Form::Chat,
    ask: |problem| {
        format!(
            "You are an expert Python programmer, and here is your task:\n{}\nYour code should pass these tests:\n{}",
            problem.question,
            shown_tests(problem)
        )
    },
    solve: |problem| format!("```python\n{}\n```", solution(problem)),
    stop: &[],
    ..LM_EVAL
};

const BLOCK: Style =
    Style { name: "freedave", about: "FreeDave's paper", ask: ask_block, stop: &[], shots: 0, ..INSTRUCT };

/// FreeDave 5.3, for functions; with the tests, where the function's name stands nowhere else.
pub(super) fn ask_block(problem: &Problem) -> String {
    let tests = match shown_tests(problem) {
        "" => String::new(),
        tests => format!("\nYour code should pass these tests:\n{tests}"),
    };
    format!(
        "{}{tests}\nPlace your code within a single Python code block ```python ```. Do not include more than one code \
         block. ",
        problem.question
    )
}

fn shown_tests(problem: &Problem) -> &str {
    problem.context.as_deref().unwrap_or_default()
}

fn read(entry: &Value, index: usize) -> Result<Problem, FieldError> {
    let shown = fields::texts(entry, "test_list")?.join("\n");
    let imports = || fields::texts(entry, "test_imports").map(|lines| lines.join("\n"));
    let setup = fields::text(entry, "test_setup_code").or_else(|_| imports()).unwrap_or_default();
    Ok(Problem {
        id: fields::name(entry, "task_id", index),
        question: fields::any_text(entry, &["text", "prompt"])?,
        context: Some(shown.clone()),
        solution: fields::text(entry, "code").ok().map(|code| code.replace("\r\n", "\n")),
        gold: Gold::Program { prompt: String::new(), tests: format!("{setup}\n{shown}\n"), entry_point: None },
        ..Problem::default()
    })
}
