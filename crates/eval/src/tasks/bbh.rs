//! BIG-Bench Hard (Suzgun et al. 2022): 27 tasks that took models longest.

use serde_json::Value;

use super::{
    DataFile, Exemplars, FieldError, Form, Source, Style, Task, fields,
    style::{concluded, no_head},
};
use crate::{Gold, Problem, Rule};

/// The task. Its published exemplars are no part of the dataset: `--shots-file` brings them.
pub const TASK: Task = Task {
    name: "bbh",
    about: "27 kinds of reasoning problems; the answer is a word, a letter in parentheses, a number or a list",
    source: Source::hub("lukaemon/bbh", "refs/convert/parquet", &DataFile::each("{}/test/0000.parquet", &NAMES)),
    exemplars: Exemplars::None,
    styles: &[COT, DIRECT, COT.as_chat()],
    gen_length: 256,
    fields: "`input`, `target`; in a file of exemplars `subject` and `solution` too",
    read,
    shuffled: false,
    likelihood: None,
};

const COT: Style = Style {
    name: "lm-eval",
    about: "lm-evaluation-harness, `bbh_cot_zeroshot`, and `bbh_cot_fewshot` behind exemplars",
    form: Form::Text { gap: "\n" },
    head: |problem| {
        let about = SUBJECTS.iter().find(|(name, _)| problem.subject.as_deref() == Some(name));
        about.map(|(_, about)| format!("{about}\n\n")).unwrap_or_default()
    },
    ask: |problem| format!("Q: {}\nA: Let's think step by step.", problem.question),
    solve: |problem| concluded(problem, "So the answer is ", "."),
    stop: &["Q:"],
    shots: 0,
    rule: Rule::Exact(&["the answer is"]),
};

const DIRECT: Style = Style {
    name: "lm-eval-direct",
    about: "lm-evaluation-harness, `bbh_zeroshot`: the answer alone",
    form: Form::Text { gap: " " },
    head: no_head,
    ask: |problem| format!("Q: {}\nA:", problem.question),
    solve: super::style::answer,
    stop: &["Q:", "\n"],
    ..COT
};

/// The kinds, and what each asks, as the published prompts begin.
const SUBJECTS: [(&str, &str); 27] = [
    ("boolean_expressions", "Evaluate the result of a random Boolean expression."),
    ("causal_judgement", "Answer questions about causal attribution."),
    ("date_understanding", "Infer the date from context."),
    ("disambiguation_qa", "Clarify the meaning of sentences with ambiguous pronouns."),
    ("dyck_languages", "Correctly close a Dyck-n word."),
    ("formal_fallacies", "Distinguish deductively valid arguments from formal fallacies."),
    ("geometric_shapes", "Name geometric shapes from their SVG paths."),
    ("hyperbaton", "Order adjectives correctly in English sentences."),
    (
        "logical_deduction_five_objects",
        "A logical deduction task which requires deducing the order of a sequence of objects.",
    ),
    (
        "logical_deduction_seven_objects",
        "A logical deduction task which requires deducing the order of a sequence of objects.",
    ),
    (
        "logical_deduction_three_objects",
        "A logical deduction task which requires deducing the order of a sequence of objects.",
    ),
    ("movie_recommendation", "Recommend movies similar to the given list of movies."),
    ("multistep_arithmetic_two", "Solve multi-step arithmetic problems."),
    (
        "navigate",
        "Given a series of navigation instructions, determine whether one would end up back at the starting point.",
    ),
    ("object_counting", "Questions that involve enumerating objects and asking the model to count them."),
    ("penguins_in_a_table", "Answer questions about a table of penguins and their attributes."),
    ("reasoning_about_colored_objects", "Answer extremely simple questions about the colors of objects on a surface."),
    ("ruin_names", "Select the humorous edit that 'ruins' the input movie or musical artist name."),
    (
        "salient_translation_error_detection",
        "Detect the type of error in an English translation of a German source sentence.",
    ),
    ("snarks", "Determine which of two sentences is sarcastic."),
    (
        "sports_understanding",
        "Determine whether an artificially constructed sentence relating to sports is plausible or not.",
    ),
    ("temporal_sequences", "Task description: Answer questions about which times certain events could have occurred."),
    (
        "tracking_shuffled_objects_five_objects",
        "A task requiring determining the final positions of a set of objects given their initial positions and a description of a sequence of swaps.",
    ),
    (
        "tracking_shuffled_objects_seven_objects",
        "A task requiring determining the final positions of a set of objects given their initial positions and a description of a sequence of swaps.",
    ),
    (
        "tracking_shuffled_objects_three_objects",
        "A task requiring determining the final positions of a set of objects given their initial positions and a description of a sequence of swaps.",
    ),
    ("web_of_lies", "Evaluate a random boolean function expressed as a word problem."),
    ("word_sorting", "Sort a list of words."),
];

const NAMES: [&str; SUBJECTS.len()] = {
    let mut names = [""; SUBJECTS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = SUBJECTS[index].0;
        index += 1;
    }
    names
};

fn read(entry: &Value, index: usize) -> Result<Problem, FieldError> {
    Ok(Problem {
        id: index.to_string(),
        question: fields::text(entry, "input")?,
        subject: fields::text(entry, "subject").ok(),
        solution: fields::text(entry, "solution").ok(),
        gold: Gold::Text(vec![fields::text(entry, "target")?]),
        ..Problem::default()
    })
}
