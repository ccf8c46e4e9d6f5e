//! HellaSwag (Zellers et al. 2019): how a scene goes on.

use serde_json::Value;

use super::{
    DataFile, Exemplars, FieldError, Source, Task,
    choice::{Frame, Instructed, Instruction, LM_EVAL, Likelihood, Printed, options_after},
    fields,
    style::no_head,
};
use crate::{Gold, Problem};

/// The task, on the validation set: the test set's labels are not published.
pub const TASK: Task = Task {
    name: "hellaswag",
    about: "the beginning of a scene with four endings, of which one makes sense",
    source: Source::hub(
        "Rowan/hellaswag",
        "refs/convert/parquet",
        &[DataFile::plain("default/validation/0000.parquet")],
    ),
    exemplars: Exemplars::files(&[DataFile::plain("default/train/0000.parquet")]),
    styles: &[HellaSwag::FLASHDLM, HellaSwag::PAPER, LM_EVAL],
    gen_length: 256,
    fields: "`activity_label`, `ctx_a`, `ctx_b`, `endings`, `label` (from 0); or `instruction`, `answer` as FlashDLM's \
             files",
    read: HellaSwag::read,
    shuffled: false,
    likelihood: Some(Likelihood {
        head: no_head,
        options: |problem| options_after(problem, &problem.question),
        shots: 0,
    }),
};

struct HellaSwag;

const OPENING: &str = "You are a careful reasoning assistant.\n\
                     A commonsense sentence is shown with a blank and **four** Endings that could fill the blank.\n\
                     Think step by step about which option makes the sentence most sensible, then decide.\n\n\
                     ### Sentence:\n";

impl Printed for HellaSwag {
    const FRAME: Frame = Frame {
        before: OPENING,
        behind: "\n\n### In your response:\n\
                     1. First reason and explain your reasoning briefly before answering this question.\n\
                     2. Then at the end of your explanation, on a **new line**, write exactly:\n   \
                     \"The final answer is [answer]\"\n   \
                     where **[answer]** is either **Ending1**, **Ending2**, **Ending3**, or **Ending4**.\n\
                     Do **not** output anything after that line.",
    };
    const SHOTS: usize = 5;
}

impl Instructed for HellaSwag {
    const INSTRUCTION: Instruction = Instruction {
        head: "Please choose the correct ending to complete the given sentence: ",
        label: "Ending",
        word: "ending",
        between: " ",
        frame: Frame {
            before: OPENING,
            behind: "\n\n### In in your response:\n\
                     1. First reason and explain your reasoning briefly before answering this question.\n\
                     2. Then at the end of your explanation, on a **new line**, write exactly:\n   \
                     \"The final answer is [answer]\"\n   \
                     where **[answer]** is either **Ending1**, **Ending2**, **Ending3*, or **Ending4**.\n\
                     Do **not** output anything after that line.",
        },
    };

    fn own(entry: &Value, index: usize) -> Result<Problem, FieldError> {
        let activity = fields::text(entry, "activity_label")?;
        let (first, second) = (fields::text(entry, "ctx_a")?, fields::text(entry, "ctx_b")?);
        let scene = format!("{activity}: {first} {}", capitalised(&second));
        let options: Vec<String> = fields::texts(entry, "endings")?.iter().map(|ending| clean(ending)).collect();
        let gold = fields::option(fields::whole(entry, "label")?, options.len(), "label")?;
        Ok(Problem {
            id: fields::name(entry, "ind", index),
            question: clean(&scene),
            subject: Some(activity),
            options,
            gold: Gold::Option(gold),
            ..Problem::default()
        })
    }
}

/// The first letter large and the others small, as the harness does it.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    first + &letters.as_str().to_lowercase()
}

/// Removes the marks of the articles that some scenes were taken from: `[title]` ends a sentence, other brackets
/// vanish.
fn clean(text: &str) -> String {
    let text = text.trim().replace(" [title]", ". ");
    let mut kept = String::new();
    let mut rest = text.as_str();
    while let Some((before, (_, behind))) =
        rest.split_once('[').and_then(|(before, inside)| Some((before, inside.split_once(']')?)))
    {
        kept += before;
        rest = behind;
    }
    (kept + rest).replace("  ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marks_of_articles_vanish() {
        assert_eq!(
            clean("How to sew [title] Thread it. [step] Knot [substeps] it."),
            "How to sew. Thread it. Knot it."
        );
        assert_eq!(clean(" an [open bracket"), "an [open bracket");
        assert_eq!(capitalised("the Man"), "The man");
        assert_eq!(capitalised(""), "");
    }
}
