//! Time that a long prompt takes in pieces and in one forward, and time that it takes from a short request beside it.
//!
//! `cargo run --release -p demask --example long_prompt MODEL-DIRECTORY [TOKENS]`, with an autoregressive model, for example one that
//! `demask-lab synth --like qwen2.5-1.5b --layers 2` writes. Everything is measured in turns, so that ratios hold on a busy machine.
#![expect(clippy::print_stdout, reason = "the figures are for whoever runs it")]

mod common;

use std::{
    error::Error,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use demask::ModelByHand;
use demask_decode::{Session, SessionOptions};
use demask_engine::RequestId;

use common::median;

/// Rounds; medians are printed.
const ROUNDS: usize = 3;
/// Tokens of the short request's prompt, and of its answer.
const SHORT: (usize, usize) = (8, 5);
/// Rows of a piece that are compared; the first of them is the default.
const PIECES: [usize; 3] = [512, 256, 1024];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("name the directory of an autoregressive model")?;
    let tokens: usize = arguments.next().map_or(Ok(4000), |tokens| tokens.parse())?;
    let mut model = common::load(&directory)?;
    // The first forwards teach the scheduler what rows cost.
    for length in [1, 30, 60, 120, 240] {
        run(&mut model, length, 8)?;
    }
    prefill(&mut model, tokens)?;
    beside(&mut model, tokens)
}

fn session(model: &ModelByHand, prompt: usize, length: usize) -> Result<Session, Box<dyn Error>> {
    common::session(model, prompt, length, |options| {
        Ok(SessionOptions { cache: "causal".parse()?, decoder: "ar".parse()?, ..options })
    })
}

/// Runs requests until one of them is over; also the longest forward.
fn until(model: &mut ModelByHand, id: RequestId) -> Result<Duration, Box<dyn Error>> {
    let mut longest = Duration::ZERO;
    loop {
        let started = Instant::now();
        let over = model.step(&mut |_| ControlFlow::Continue(()));
        longest = longest.max(started.elapsed());
        for (one, outcome) in over {
            outcome?;
            if one == id {
                return Ok(longest);
            }
        }
    }
}

/// Time of a request that is alone.
fn run(model: &mut ModelByHand, prompt: usize, length: usize) -> Result<Duration, Box<dyn Error>> {
    let started = Instant::now();
    let id = model.submit(session(model, prompt, length)?)?;
    until(model, id)?;
    Ok(started.elapsed())
}

fn prefill(model: &mut ModelByHand, tokens: usize) -> Result<(), Box<dyn Error>> {
    let sizes = [usize::MAX].into_iter().chain(PIECES);
    let mut times: Vec<(usize, Vec<Duration>)> = sizes.map(|rows| (rows, Vec::new())).collect();
    for _ in 0..ROUNDS {
        for (rows, times) in &mut times {
            model.set_piece_rows(*rows);
            times.push(run(model, tokens, 1)?);
        }
    }
    let whole = median(&mut times[0].1);
    println!("a prompt of {tokens} tokens in one forward: {whole:.3} s");
    for (rows, times) in &mut times[1..] {
        let found = median(times);
        println!("in pieces of {rows}: {found:.3} s, {:.3} times as long", found / whole);
    }
    Ok(())
}

fn beside(model: &mut ModelByHand, tokens: usize) -> Result<(), Box<dyn Error>> {
    for rows in [usize::MAX, PIECES[0]] {
        model.set_piece_rows(rows);
        let (mut alone, mut with, mut pieces) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            alone.push(run(model, SHORT.0, SHORT.1)?);
            let long = model.submit(session(model, tokens, 8)?)?;
            // The short request comes right behind the beginning of a forward of the long one.
            let started = Instant::now();
            model.step(&mut |_| ControlFlow::Continue(()));
            pieces.push(started.elapsed());
            let short = model.submit(session(model, SHORT.0, SHORT.1)?)?;
            until(model, short)?;
            with.push(started.elapsed());
            model.cancel(long);
        }
        let [alone, with, piece] = [&mut alone, &mut with, &mut pieces].map(|values| median(values));
        let name = if rows == usize::MAX { "one forward".to_owned() } else { format!("pieces of {rows}") };
        println!("{} tokens alone: {alone:.3} s; beside a prompt of {tokens} in {name}: {with:.3} s", SHORT.1);
        println!(
            "  the forward that it waits for: {piece:.3} s; the rest: {:.2} times as long",
            (with - piece) / alone
        );
    }
    common::print_costs(model);
    Ok(())
}
