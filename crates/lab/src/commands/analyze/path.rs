//! `demask-lab analyze path`: the fewest forwards that lead to an answer, beside what FreeDave needs.

use crate::analysis::path::Paths;

use super::{Subject, loaded};
use crate::{
    args::PathArgs,
    exit::usage,
    interrupt::{self, Watched},
    settings::Settings,
};

/// Canvases that the beam search runs at each depth if nobody says how many.
const WIDTH: usize = 8;
/// The most of them: beyond that a search is no bound but a weekend.
const MOST: usize = 4096;

/// Runs the command.
pub fn run(settings: &Settings, args: &PathArgs) -> anyhow::Result<()> {
    let why =
        "analyze path looks for ways to the tokens of static decoding, surest first, without a cache and guidance";
    let refused = ["decoder", "cache", "guide", "cfg_scale", "remasking", "temperature", "alg_temp", "top_p", "top_k"];
    let subject = Subject::resolve(settings, &args.subject, &refused, why)?;
    let width = args.width.unwrap_or(WIDTH);
    if !(1..=MOST).contains(&width) {
        return Err(usage(format!("--width is {width}, expected a number from 1 to {MOST}")));
    }
    settings.device()?;
    let opened = subject.open(settings)?;
    let mut first = subject.options.clone();
    // Of all that runs, the most drafts need the most memory.
    first.decoder = Some("freedave:d=32".parse().map_err(demask::Error::from)?);
    let first = subject.first(&opened, &first)?;
    let mut model = loaded(settings, opened, &first)?;
    let mut found = Paths::new(model.name(), &model.network().describe(), width);
    let _watched = Watched::begin();
    subject.each(settings, "", |prompt, bar| {
        let mut forwards = 0;
        found.measure(&mut model, prompt, &subject.options, &mut || {
            forwards += 1;
            bar.set(forwards, 0);
            !interrupt::requested()
        })?;
        Ok(())
    })?;
    subject.report(settings, &found)
}
