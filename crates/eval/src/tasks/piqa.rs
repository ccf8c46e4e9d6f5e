//! PIQA (Bisk et al. 2020): which of two ways works in the physical world.

use serde_json::Value;

use super::{
    DataFile, Exemplars, FieldError, Source, Task,
    choice::{Instructed, Instruction, LM_EVAL, Likelihood, options_after},
    fields,
    style::no_head,
};
use crate::{Gold, Problem};

/// The task, on the validation set: the test set's labels are not published.
pub const TASK: Task = Task {
    name: "piqa",
    about: "everyday goals with two ways to reach them, of which one works",
    source: Source::hub("ybisk/piqa", "refs/convert/parquet", &[DataFile::plain("plain_text/validation/0000.parquet")]),
    exemplars: Exemplars::files(&[DataFile::plain("plain_text/train/0000.parquet")]),
    styles: &[Piqa::FLASHDLM, LM_EVAL],
    gen_length: 256,
    fields: "`goal`, `sol1`, `sol2`, `label` (from 0); or `instruction`, `answer` as FlashDLM's files",
    read: Piqa::read,
    shuffled: false,
    likelihood: Some(Likelihood {
        head: no_head,
        options: |problem| options_after(problem, &format!("Question: {}\nAnswer:", problem.question)),
        shots: 0,
    }),
};

struct Piqa;

impl Instructed for Piqa {
    const INSTRUCTION: Instruction = Instruction {
        head: "Please choose the correct solution to the question: ",
        label: "Solution",
        word: "solution",
        between: "\n\n",
    };

    fn own(entry: &Value, index: usize) -> Result<Problem, FieldError> {
        Ok(Problem {
            id: index.to_string(),
            question: fields::text(entry, "goal")?,
            options: vec![fields::text(entry, "sol1")?, fields::text(entry, "sol2")?],
            gold: Gold::Option(fields::option(fields::whole(entry, "label")?, 2, "label")?),
            ..Problem::default()
        })
    }
}
