//! An answer while it is made, and one that is given up.
//!
//! ```text
//! cargo run --release -p demask --example stream
//! ```

use std::io::Write;

use demask::{Error, Mail, Model, Options};

const QUESTION: &str = "Ada has 13 pears. Ben gives Ada 24 more. How many pears are there in the end?";

fn main() -> Result<(), Error> {
    let mut model = Model::demo()?;
    let options = Options { gen_length: Some(64), decoder: Some("threshold:tau=0.9".parse()?), ..Options::default() };
    for mail in model.stream(QUESTION, &options)? {
        match mail {
            Mail::Update(update) => {
                print!("{}", update.text);
                // Text comes in pieces: each is shown at once.
                let _ = std::io::stdout().flush();
            }
            Mail::Over(answer) => println!("\n{} NFE", answer?.receipt.decoding.nfe),
        }
    }
    // A stream that is dropped before its end is cancelled, and the model is free for the next request.
    let steps: usize =
        model.stream(QUESTION, &options)?.take(2).map(|mail| matches!(mail, Mail::Update(_)) as usize).sum();
    println!("given up after {steps} updates; the next answer: {}", model.generate(QUESTION)?);
    Ok(())
}
