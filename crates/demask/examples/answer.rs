//! A question, an answer, and how it was made.
//!
//! ```text
//! cargo run --release -p demask --example answer -- ["QUESTION" [MODEL]]
//! ```
//!
//! MODEL is `org/name` of a hub, a directory, or a `.gguf` file; the built-in model answers without one.

use demask::{Error, Model};

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let question =
        arguments.next().unwrap_or("Ada has 3 pears. Ben gives Ada 4 more. How many pears are there?".into());
    let mut model = arguments.next().map_or_else(Model::demo, Model::open)?;
    let answer = model.generate(question)?;
    println!("{answer}");
    println!("{} tokens, {} NFE", answer.generated_tokens, answer.receipt.decoding.nfe);
    Ok(())
}
