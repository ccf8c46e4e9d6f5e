//! `demask-lab analyze stability`: how features change from step to step.

use crate::analysis::stability::{Stability, measure};

use super::{Subject, loaded};
use crate::{
    args::StabilityArgs,
    exit::usage,
    interrupt::{self, Watched},
    settings::{Settings, numbers},
};

/// Runs the command.
pub fn run(settings: &Settings, args: &StabilityArgs) -> anyhow::Result<()> {
    let why = "analyze stability decodes with decoder static, no cache and no guidance";
    let subject = Subject::resolve(settings, &args.subject, &["decoder", "cache", "guide", "cfg_scale"], why)?;
    let layers: Vec<usize> = args
        .drawn_layers
        .as_deref()
        .map(|text| numbers("--drawn-layers", text, "a layer"))
        .transpose()?
        .unwrap_or_default();
    settings.device()?;
    let opened = subject.open(settings)?;
    let last = opened.info().spec().layers - 1;
    if let Some(layer) = layers.iter().find(|&&layer| layer > last) {
        return Err(usage(format!("--drawn-layers: there is no layer {layer}, expected numbers from 0 to {last}")));
    }
    let first = subject.first(&opened, &subject.options)?;
    let mut model = loaded(settings, opened, &first)?;
    let mut found = Stability::new(model.name(), &model.network().describe(), model.info().spec().layers, &layers);
    let _watched = Watched::begin();
    subject.each(settings, "", |prompt, bar| {
        let mut progress = |done: usize, all: usize| {
            bar.set(done as u64, all as u64);
            !interrupt::requested()
        };
        found.add(&measure(&mut model, prompt, &subject.options, &mut progress)?.0);
        Ok(())
    })?;
    subject.report(settings, &found)
}
