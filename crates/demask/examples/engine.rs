//! A model on a thread of its own, and questions from several threads, which share its forwards.
//!
//! ```text
//! cargo run --release -p demask --example engine
//! ```
#![expect(clippy::print_stdout, reason = "the answer is for whoever runs it")]

use std::thread;

use demask::{Class, Engine, Error, Generation, Model, Options};

/// Asks an engine from as many threads as there are questions. Answers come in the questions' order.
pub fn ask(engine: &Engine, questions: &[&'static str]) -> Result<Vec<Generation>, Error> {
    let asking = questions.iter().map(|&question| {
        let handle = engine.handle();
        thread::spawn(move || handle.generate(question, &Options::default(), Class::default())?.wait())
    });
    let asking: Vec<_> = asking.collect();
    asking.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::ShutDown))).collect()
}

fn main() -> Result<(), Error> {
    let engine = Model::demo()?.into_engine()?;
    let questions = [
        "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?",
        "Ada has 13 pears. Ben gives Ada 5 more. How many pears are there in the end?",
    ];
    for answer in ask(&engine, &questions)? {
        println!("{answer}\n");
    }
    // Whoever still waits has an answer before the engine ends.
    engine.drain();
    Ok(())
}
