//! AIME 2024: thirty problems whose answers are whole numbers from 0 to 999.

use serde_json::Value;

use super::{DataFile, Exemplars, FieldError, Source, Task, fields, math};
use crate::{Gold, Problem};

/// The task.
pub const TASK: Task = Task {
    name: "aime2024",
    about: "thirty problems of the American Invitational Mathematics Examination; the answer is a whole number",
    source: Source::hub("HuggingFaceH4/aime_2024", "main", &[DataFile::plain("data/train-00000-of-00001.parquet")]),
    exemplars: Exemplars::None,
    styles: &[math::UNSHOWN, math::STYLES[1], math::STYLES[2]],
    gen_length: 1024,
    fields: "`problem`, `solution`, `answer`, `id` (with capitals in Maxwell-Jia/AIME_2024)",
    read,
    shuffled: false,
    likelihood: None,
};

fn read(entry: &Value, index: usize) -> Result<Problem, FieldError> {
    let field = if entry["answer"].is_null() && !entry["Answer"].is_null() { "Answer" } else { "answer" };
    Ok(Problem {
        id: fields::name(entry, if entry["id"].is_null() { "ID" } else { "id" }, index),
        question: fields::any_text(entry, &["problem", "Problem"])?,
        solution: fields::any_text(entry, &["solution", "Solution"]).ok(),
        // As a number: answer sheets have leading zeros.
        gold: Gold::Math(fields::whole(entry, field)?.to_string()),
        ..Problem::default()
    })
}
