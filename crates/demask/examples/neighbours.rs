//! Price that a request pays for its neighbours and for an engine: mean time of its forwards alone and beside a stream
//! of large refreshes, and the time that an answer takes through an engine beside the same answer on one thread.
//!
//! `cargo run --release -p demask --example neighbours [MODEL DIRECTORY]`; without a model, the built-in demo.
#![expect(clippy::print_stdout, reason = "the figures are for whoever runs it")]

mod common;

use std::{
    error::Error,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use demask::{DeviceOptions, ModelByHand};
use demask::{Model, Prompt};
use demask_decode::{Session, SessionOptions};
use demask_engine::RequestId;

use common::median;

/// Rounds; medians are printed.
const ROUNDS: usize = 9;
/// Positions that the request of 32 rows decodes, one in each of its forwards.
const SMALL: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let mut model = match std::env::args().nth(1) {
        Some(directory) => common::load(&directory)?,
        None => demask::Opened::demo()?.load(&DeviceOptions::default(), &[], &mut |_| true)?.by_hand()?,
    };
    neighbours(&mut model)?;
    overhead()
}

/// A session that decodes a token a forward: under `dual` most forwards have a block of 32 rows, under `none` the canvas.
fn session(model: &ModelByHand, prompt: usize, length: usize, cache: &str) -> Result<Session, Box<dyn Error>> {
    common::session(model, prompt, length, |options| {
        let (block_length, cache, decoder) = (Some(32), cache.parse()?, "static".parse()?);
        Ok(SessionOptions { block_length, cache, decoder, ..options })
    })
}

/// Forwards of a request of 32 rows: how many, and the time from its start to its end.
fn small(model: &mut ModelByHand, beside: Option<usize>) -> Result<(usize, Duration), Box<dyn Error>> {
    let own = model.submit(session(model, 32, SMALL, "dual")?)?;
    let (mut large, mut forwards): (Option<RequestId>, usize) = (None, 0);
    let started = Instant::now();
    loop {
        if let (Some(rows), None) = (beside, large) {
            large = Some(model.submit(session(model, rows - 32, 32, "none")?)?);
        }
        let (mut seen, mut ended) = (false, false);
        let over = model.step(&mut |_| ControlFlow::Continue(()));
        for (id, outcome) in over {
            outcome?;
            seen |= id == own;
            ended |= large == Some(id);
        }
        forwards += 1;
        if ended {
            large = None;
        }
        if seen {
            let elapsed = started.elapsed();
            if let Some(id) = large {
                model.cancel(id);
            }
            return Ok((forwards, elapsed));
        }
    }
}

fn neighbours(model: &mut ModelByHand) -> Result<(), Box<dyn Error>> {
    let rows = model.info().facts().context.min(1000);
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (forwards, elapsed) = small(model, None)?;
        alone.push(elapsed / forwards as u32);
        // Its own forwards are as many as alone.
        beside.push(small(model, Some(rows))?.1 / forwards as u32);
    }
    let (alone, beside) = (median(&mut alone), median(&mut beside));
    println!("32 rows alone: {:.3} ms a forward", alone * 1e3);
    println!("beside refreshes of {rows} rows: {:.3} ms, {:.2} times as long", beside * 1e3, beside / alone);
    common::print_costs(model);
    Ok(())
}

/// An answer of one forward's length of the demo on this thread and through an engine, in turns.
fn overhead() -> Result<(), Box<dyn Error>> {
    let mut by_hand = Model::demo()?.by_hand()?;
    let model = Model::demo()?;
    let options = demask::Options {
        gen_length: Some(8),
        block_length: Some(8),
        steps: Some(1),
        ignore_eos: Some(true),
        ..Default::default()
    };
    let prompt = Prompt::Tokens((10..30).collect());
    let (mut inline, mut through) = (Vec::new(), Vec::new());
    for _ in 0..100 * ROUNDS {
        let started = Instant::now();
        by_hand.generate_with(prompt.clone(), &options)?;
        inline.push(started.elapsed());
        let started = Instant::now();
        model.generate_with(prompt.clone(), &options)?;
        through.push(started.elapsed());
    }
    let (inline, through) = (median(&mut inline), median(&mut through));
    println!(
        "one forward on this thread: {:.1} us, through an engine {:.1} us: {:.1} us more",
        inline * 1e6,
        through * 1e6,
        (through - inline) * 1e6
    );
    Ok(())
}
