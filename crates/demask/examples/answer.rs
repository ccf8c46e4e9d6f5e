//! A question, an answer, and how it was made.
//!
//! ```text
//! cargo run --release -p demask --example answer -- ["QUESTION" [MODEL]]
//! ```
//!
//! MODEL is `org/name` of a hub, a directory, or a `.gguf` file; the built-in model answers without one.
#![expect(clippy::print_stdout, reason = "the answer is for whoever runs it")]

use demask::{Error, Generation, Model};

const QUESTION: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

/// Asks the model of a name, or the built-in one.
pub fn ask(question: &str, model: Option<String>) -> Result<Generation, Error> {
    let model = model.map_or_else(Model::demo, Model::open)?;
    model.generate(question)
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let question = arguments.next().unwrap_or(QUESTION.to_owned());
    let answer = ask(&question, arguments.next())?;
    println!("{answer}");
    println!("{} tokens, {} NFE", answer.generated_tokens, answer.receipt.decoding.nfe);
    Ok(())
}
