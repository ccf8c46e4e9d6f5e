//! An answer while it is made, and one that is given up.
//!
//! ```text
//! cargo run --release -p demask --example stream
//! ```
#![expect(clippy::print_stdout, reason = "the answer is for whoever runs it")]

use std::io::{self, Write};

use demask::{Error, Mail, Model, Options};

const QUESTION: &str = "Ada has 13 pears. Ben gives Ada 5 more. How many pears are there in the end?";

/// Shows the answer of a model while it is made.
pub fn show(model: &mut Model, options: &Options, out: &mut impl Write) -> Result<(), Error> {
    for mail in model.stream(QUESTION, options)? {
        match mail {
            Mail::Update(update) => {
                // Text comes in pieces: each is shown at once. Nobody reads on where it cannot be shown.
                if write!(out, "{}", update.text).and_then(|()| out.flush()).is_err() {
                    break;
                }
            }
            Mail::Over(answer) => drop(writeln!(out, " ({} NFE)", answer?.receipt.decoding.nfe)),
        }
    }
    Ok(())
}

/// Reads this many pieces of an answer and gives it up: a stream that is dropped before its end is cancelled, and the model
/// is free for the next request.
pub fn give_up(model: &mut Model, options: &Options, pieces: usize) -> Result<usize, Error> {
    Ok(model.stream(QUESTION, options)?.take(pieces).count())
}

fn main() -> Result<(), Error> {
    let mut model = Model::demo()?;
    let options = Options { gen_length: Some(64), decoder: Some("static".parse()?), ..Options::default() };
    show(&mut model, &options, &mut io::stdout())?;
    println!("given up after {} pieces", give_up(&mut model, &options, 2)?);
    Ok(())
}
