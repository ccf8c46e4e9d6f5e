//! Set-up of the examples that measure: a model of a directory, requests that decode all they may, and medians.

use std::{error::Error, time::Duration};

use demask::Model;
use demask::{DeviceOptions, ModelByHand};
use demask_checkpoint::ModelFiles;
use demask_decode::{CanvasSpec, Session, SessionOptions, StopRule};

/// The model of a directory.
pub fn load(directory: &str) -> Result<ModelByHand, Box<dyn Error>> {
    Ok(Model::load(ModelFiles::directory(directory)?, &DeviceOptions::default(), &mut |_| true)?.by_hand()?)
}

/// A session of `prompt` tokens that decodes `length` more, whatever they are. `with` chooses how.
pub fn session(
    model: &ModelByHand,
    prompt: usize,
    length: usize,
    with: impl FnOnce(SessionOptions) -> Result<SessionOptions, Box<dyn Error>>,
) -> Result<Session, Box<dyn Error>> {
    let tokens = (0..prompt as u32).map(|token| 10 + token % 50).collect();
    let canvas = CanvasSpec::Prompt { tokens, gen_length: length };
    let options = SessionOptions::new(model.info().facts().clone(), canvas);
    Ok(Session::new(with(SessionOptions { stop: StopRule::Never, ..options })?)?)
}

/// The median, in seconds.
pub fn median(values: &mut [Duration]) -> f64 {
    values.sort();
    values[values.len() / 2].as_secs_f64()
}

/// Prints what the scheduler has learned of the costs of rows.
pub fn print_costs(model: &mut ModelByHand) {
    let (scheduler, networks) = model.scheduler();
    if let Some(counters) = scheduler.network_counters(networks[0]) {
        println!("learned: {:?}, {} rows nearly free", counters.cost, counters.free_rows);
    }
}
