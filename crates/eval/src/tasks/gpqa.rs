//! GPQA (Rein et al. 2023): questions of experts. The file lists the right answer first, so the seed puts the options in
//! order (FlashDLM's published runs did not).

use serde_json::Value;

use super::{DataFile, Exemplars, FieldError, Form, Source, Style, Task, choice, choice::Frame, fields, style};
use crate::{Gold, Problem, Rule};

/// The task, on the main set; a reader who wants the diamond set gives its file.
pub const TASK: Task = Task {
    name: "gpqa",
    about: "graduate-level questions in biology, physics and chemistry, four options in an order that the seed draws",
    source: Source::hub("Idavidrein/gpqa", "main", &[DataFile::plain("gpqa_main.csv")]),
    exemplars: Exemplars::Others,
    styles: &[LM_EVAL, ZERO_SHOT, FLASHDLM, PAPER, LM_EVAL.as_chat()],
    gen_length: 128,
    fields: "`Question`, `Correct Answer`, `Incorrect Answer 1` to `3`, `Record ID`, `High-level domain`",
    read,
    shuffled: true,
    likelihood: Some(choice::Likelihood { head: LM_EVAL.head, options: parenthesised, shots: 5 }),
};

const LM_EVAL: Style = Style {
    name: "lm-eval",
    about: "lm-evaluation-harness, `gpqa_main_generative_n_shot`",
    form: Form::Text { gap: " " },
    head: |_| {
        "Here are some example questions from experts. Answer the final question yourself, following the format of the \
         previous questions exactly.\n"
            .to_owned()
    },
    ask: |problem| format!("Question: {}\nChoices:\n{}Answer:", problem.question, choices(problem)),
    solve: |problem| format!("({})", style::answer(problem)),
    stop: &["Question:"],
    shots: 5,
    rule: Rule::Letter(&["answer is", "answer:"]),
};

const ZERO_SHOT: Style = Style {
    name: "lm-eval-cot",
    about: "lm-evaluation-harness, `gpqa_main_cot_zeroshot`",
    head: style::no_head,
    ask: |problem| {
        format!(
            "What is the correct answer to this question:{}\nChoices:\n{}Let's think step by step: ",
            problem.question,
            choices(problem)
        )
    },
    stop: &[],
    shots: 0,
    ..LM_EVAL
};

const OPENING: &str = "You are a careful reasoning assistant.\nA question is shown with **four** possible answers.\n\
                       Think step by step about which option is correct, then decide.\n\n";

const FLASHDLM: Style = Style {
    name: "flashdlm",
    about: "FlashDLM's code, with other problems of the file in the place of its five worked ones",
    form: Form::Chat,
    head: style::no_head,
    ask: |problem| CODE.around(&numbered(problem)),
    solve: |problem| {
        let Gold::Option(option) = problem.gold else { return String::new() };
        let reasons = problem.solution.as_ref().map(|solution| format!("{}\n\n", solution.trim_end()));
        format!("{}The final answer is Answer{}", reasons.unwrap_or_default(), option + 1)
    },
    stop: &[],
    shots: 5,
    rule: Rule::Choice { name: "answer", triggers: choice::FINAL },
};

const PAPER: Style = Style {
    name: choice::PAPER,
    about: choice::PAPER_ABOUT,
    ask: |problem| PRINTED.around(&numbered(problem)),
    ..FLASHDLM
};

/// Words after the question in the program, its slip included.
const CODE: Frame = Frame {
    before: OPENING,
    behind: "\n\n### In in your response:\n\
             1. First reason and explain your reasoning briefly before providing the final answer to the question.\n\
             2. Then at the end of your explanation, on a **new line**, write exactly:\n   \
             \"The final answer is [answer]\"\n   \
             where **[answer]** is one of **Answer1**, **Answer2**, **Answer3**, or **Answer4**.\n\
             Do **not** output anything after that line.",
};

const PRINTED: Frame = Frame {
    before: "You are a careful reasoning assistant.\nA question is shown with **four** possible answers.\n\
             Think step by step about which option is correct, then decide.\n\n### Question:\n",
    behind: "\n\n### In your response:\n\
             1. First reason and explain your reasoning briefly before providing the final answer to the question.\n\
             2. Then at the end of your explanation, on a **new line**, write exactly:\n   \
             \"The final answer is [answer]\"\n   \
             where **[answer]** is one of **Answer1**, **Answer2**, **Answer3**, or **Answer4**.\n\
             Do **not** output anything after that line.",
};

/// Question and options as FlashDLM numbers them.
fn numbered(problem: &Problem) -> String {
    let options = (1..).zip(&problem.options).map(|(number, option)| format!("Answer{number}: {option}\n"));
    format!("{}\n\n{}", problem.question, options.collect::<String>())
}

fn parenthesised(problem: &Problem) -> Vec<choice::Candidate> {
    let mut candidates = choice::letters_after(problem, &(LM_EVAL.ask)(problem));
    for (option, candidate) in candidates.iter_mut().enumerate() {
        candidate.text = format!(" ({})", choice::letter(option));
    }
    candidates
}

fn choices(problem: &Problem) -> String {
    choice::listed(problem, "(", ") ")
}

fn read(entry: &Value, index: usize) -> Result<Problem, FieldError> {
    const OPTIONS: [&str; 4] = ["Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"];
    let option = |field: &&'static str| fields::text(entry, field).map(|text| text.trim().to_owned());
    Ok(Problem {
        id: fields::name(entry, "Record ID", index),
        question: fields::text(entry, "Question")?.trim().to_owned(),
        subject: fields::text(entry, "High-level domain").ok(),
        options: OPTIONS.iter().map(option).collect::<Result<_, _>>()?,
        solution: fields::text(entry, "Explanation").ok(),
        gold: Gold::Option(0),
        ..Problem::default()
    })
}
