//! Questions to one model from several threads, which share its forwards.
//!
//! ```text
//! cargo run --release -p demask --example engine
//! ```
#![expect(clippy::print_stdout, reason = "the answer is for whoever runs it")]

use std::thread;

use demask::{Error, Generation, Model, Options};

/// Asks a model from as many threads as there are questions. Answers come in the questions' order.
pub fn ask(model: &Model, questions: &[&'static str]) -> Result<Vec<Generation>, Error> {
    let asking = questions.iter().map(|&question| {
        let handle = model.handle();
        thread::spawn(move || handle.generate_with(question, &Options::default()))
    });
    let asking: Vec<_> = asking.collect();
    asking.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::ShutDown))).collect()
}

fn main() -> Result<(), Error> {
    let model = Model::demo()?;
    let questions = [
        "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?",
        "Ada has 13 pears. Ben gives Ada 5 more. How many pears are there in the end?",
    ];
    for answer in ask(&model, &questions)? {
        println!("{answer}\n");
    }
    // What was asked before has an answer before the engine ends.
    model.drain();
    Ok(())
}
