//! PIQA (Bisk et al. 2020): which of two ways works in the physical world.

use serde_json::Value;

use super::{
    DataFile, Dataset, Exemplars, FieldError, Source, Style, Task,
    choice::{Instruction, LM_EVAL, Likelihood, flashdlm, options_after},
    fields,
    style::no_head,
};
use crate::{Gold, Problem};

/// The task, on the validation set: the test set's labels are not published.
pub const TASK: Task = Task {
    name: "piqa",
    about: "everyday goals with two ways to reach them, of which one works",
    source: Source::Hub(Dataset {
        id: "ybisk/piqa",
        revision: "refs/convert/parquet",
        files: &[DataFile::plain("plain_text/validation/0000.parquet")],
    }),
    exemplars: Exemplars::Files {
        files: &[DataFile::plain("plain_text/train/0000.parquet")],
        skip: 0,
        per_subject: false,
    },
    styles: &[FLASHDLM, LM_EVAL],
    gen_length: 256,
    fields: "`goal`, `sol1`, `sol2`, `label` (from 0); or `instruction`, `answer` as FlashDLM's files",
    read,
    shuffled: false,
    likelihood: Some(Likelihood {
        head: no_head,
        options: |problem| options_after(problem, &format!("Question: {}\nAnswer:", problem.question)),
        shots: 0,
    }),
};

const INSTRUCTION: Instruction = Instruction {
    head: "Please choose the correct solution to the question: ",
    label: "Solution",
    word: "solution",
    between: "\n\n",
};

const FLASHDLM: Style = flashdlm(|problem| INSTRUCTION.ask(problem), |problem| INSTRUCTION.solve(problem), "solution");

fn read(entry: &Value, index: usize) -> Result<Problem, FieldError> {
    if let Some(problem) = INSTRUCTION.read(entry, index) {
        return problem;
    }
    Ok(Problem {
        id: index.to_string(),
        question: fields::text(entry, "goal")?,
        options: vec![fields::text(entry, "sol1")?, fields::text(entry, "sol2")?],
        gold: Gold::Option(fields::option(fields::whole(entry, "label")?, 2, "label")?),
        ..Problem::default()
    })
}
