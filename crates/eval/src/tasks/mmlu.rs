//! MMLU (Hendrycks et al. 2021) and MMLU-Pro (Wang et al. 2024): examination questions by subject.

use serde_json::Value;

use super::{
    DataFile, Exemplars, FieldError, Form, Source, Style, Task,
    choice::{Likelihood, lettered, letters_after, number},
    fields,
    style::{answer, no_head, solution},
};
use crate::{Gold, Problem, Rule};

/// Four options, 57 subjects.
pub const MMLU: Task = Task {
    name: "mmlu",
    about: "examination questions in 57 subjects, four options each",
    source: Source::hub("cais/mmlu", "main", &[DataFile::plain("all/test-00000-of-00001.parquet")]),
    exemplars: Exemplars::of_subject(&[DataFile::plain("all/dev-00000-of-00001.parquet")]),
    styles: &[LM_EVAL, LM_EVAL.as_chat()],
    gen_length: 3,
    fields: "`question`, `subject`, `choices`, `answer` (from 0, or a letter)",
    read,
    shuffled: false,
    likelihood: Some(Likelihood {
        head: LM_EVAL.head,
        options: |problem| letters_after(problem, &(LM_EVAL.ask)(problem)),
        shots: 5,
    }),
};

const LM_EVAL: Style = Style {
    name: "lm-eval",
    about: "lm-evaluation-harness, `mmlu_generative`: the original's wording",
    form: Form::Text { gap: " " },
    head: |problem| {
        let subject = problem.subject.as_deref().unwrap_or("several subjects").replace('_', " ");
        format!("The following are multiple choice questions (with answers) about {subject}.\n\n")
    },
    ask: |problem| format!("{}\n{}Answer:", problem.question.trim(), lettered(problem)),
    solve: answer,
    stop: &["\n"],
    shots: 5,
    rule: Rule::Letter(&["answer is", "answer:"]),
};

/// Task with up to ten options and 14 subjects. Its exemplars reason.
pub const MMLU_PRO: Task = Task {
    name: "mmlu-pro",
    about: "harder examination questions in 14 subjects, up to ten options each",
    source: Source::hub("TIGER-Lab/MMLU-Pro", "main", &[DataFile::plain("data/test-00000-of-00001.parquet")]),
    exemplars: Exemplars::of_subject(&[DataFile::plain("data/validation-00000-of-00001.parquet")]),
    styles: &[REASONED, BOXED, REASONED.as_chat()],
    gen_length: 256,
    fields: "`question_id`, `question`, `options`, `answer` (a letter), `category`, `cot_content`",
    read: read_pro,
    shuffled: false,
    likelihood: None,
};

/// The original's wording, which FlashDLM and the harness share.
const REASONED: Style = Style {
    name: "lm-eval",
    about: "lm-evaluation-harness, `mmlu_pro`, and FlashDLM's code: the original's wording",
    form: Form::Text { gap: " " },
    head: |problem| {
        let subject = problem.subject.as_deref().unwrap_or("several subjects");
        format!(
            "The following are multiple choice questions (with answers) about {subject}. Think step by step and then \
             finish your answer with \"the answer is (X)\" where X is the correct letter choice.\n\n"
        )
    },
    ask: |problem| {
        let question = problem.question.trim();
        format!("Question:\n{question}\nOptions:\n{}Answer: Let's think step by step.", lettered(problem))
    },
    solve: solution,
    stop: &["Question:"],
    shots: 5,
    rule: Rule::Letter(&["answer is", "answer:"]),
};

/// FreeDave 5.3: the letter in a box. The sentence around it is ours.
const BOXED: Style = Style {
    name: "freedave",
    about: "FreeDave's paper: the letter in a box",
    form: Form::Chat,
    head: no_head,
    ask: |problem| {
        format!(
            "{}\n{}Please reason step by step, and put the letter of the right option within \\boxed{{}}.",
            problem.question.trim(),
            lettered(problem)
        )
    },
    solve: |problem| format!("{} \\boxed{{{}}}", solution(problem), answer(problem)).trim_start().to_owned(),
    stop: &[],
    shots: 0,
    rule: Rule::Letter(&["\\boxed{", "answer is"]),
};

fn read(entry: &Value, index: usize) -> Result<Problem, FieldError> {
    let options = fields::texts(entry, "choices")?;
    let lettered = entry["answer"].as_str().and_then(number).map(|option| option as i64);
    let gold = lettered.map_or_else(|| fields::whole(entry, "answer"), Ok)?;
    Ok(Problem {
        id: index.to_string(),
        question: fields::text(entry, "question")?,
        subject: fields::text(entry, "subject").ok(),
        gold: Gold::Option(fields::option(gold, options.len(), "answer")?),
        options,
        ..Problem::default()
    })
}

fn read_pro(entry: &Value, index: usize) -> Result<Problem, FieldError> {
    let mut options = fields::texts(entry, "options")?;
    // Questions with fewer than ten options are filled up in some releases.
    options.retain(|option| option != "N/A");
    let letter = number(&fields::text(entry, "answer")?).ok_or(FieldError::odd("answer", "a letter"))?;
    let reasoned = fields::text(entry, "cot_content").ok().filter(|text| !text.is_empty());
    let behind = |text: String| {
        let start = text.strip_prefix("A: Let's think step by step.").unwrap_or(&text);
        start.trim().to_owned()
    };
    Ok(Problem {
        id: fields::name(entry, "question_id", index),
        question: fields::text(entry, "question")?,
        subject: fields::text(entry, "category").ok(),
        solution: reasoned.map(behind),
        gold: Gold::Option(fields::option(letter as i64, options.len(), "answer")?),
        options,
        ..Problem::default()
    })
}
