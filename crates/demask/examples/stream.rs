//! An answer while it is made, and one that is given up.
//!
//! ```text
//! cargo run --release -p demask --example stream
//! ```
#![expect(clippy::print_stdout, reason = "the answer is for whoever runs it")]

use std::io::{self, Write};

use demask::{Error, Event, Model, Options};

const QUESTION: &str = "Ada has 13 pears. Ben gives Ada 5 more. How many pears are there in the end?";

/// Shows the answer of a model while it is made.
pub fn show(model: &Model, options: &Options, out: &mut impl Write) -> Result<(), Error> {
    let mut answer = model.stream(QUESTION, options)?;
    for event in answer.by_ref() {
        // Text comes in pieces: each is shown at once. Nothing is read on where it cannot be shown.
        if let Event::Text(text) = event
            && write!(out, "{text}").and_then(|()| out.flush()).is_err()
        {
            return Ok(());
        }
    }
    drop(writeln!(out, " ({} NFE)", answer.result()?.receipt.decoding.nfe));
    Ok(())
}

/// Reads this many events of an answer and gives it up: a stream that is dropped before its end is cancelled, and the model
/// is free for the next request.
pub fn give_up(model: &Model, options: &Options, pieces: usize) -> Result<usize, Error> {
    Ok(model.stream(QUESTION, options)?.take(pieces).count())
}

fn main() -> Result<(), Error> {
    let model = Model::demo()?;
    let options = Options { gen_length: Some(64), decoder: Some("static".parse()?), ..Options::default() };
    show(&model, &options, &mut io::stdout())?;
    println!("given up after {} pieces", give_up(&model, &options, 2)?);
    Ok(())
}
