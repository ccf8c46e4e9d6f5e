//! A model on a thread of its own, and questions from several threads, which share its forwards.
//!
//! ```text
//! cargo run --release -p demask --example engine
//! ```

use std::thread;

use demask::{Class, Error, Model, Options};

fn main() -> Result<(), Error> {
    let engine = Model::demo()?.into_engine();
    let asking = ["Ada has 3 pears", "Ada has 13 pears", "Ada has 5 pears"].map(|beginning| {
        let handle = engine.handle();
        thread::spawn(move || {
            let question = format!("{beginning}. Ben gives Ada 4 more. How many pears are there in the end?");
            handle.generate(question, &Options::default(), Class::default())?.wait()
        })
    });
    for thread in asking {
        match thread.join() {
            Ok(answer) => println!("{}", answer?),
            Err(_) => eprintln!("a thread has panicked"),
        }
    }
    // Whoever still waits has an answer before the engine ends.
    engine.drain();
    Ok(())
}
