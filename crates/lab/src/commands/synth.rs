//! `demask-lab synth`: a random checkpoint of a real shape.

use crate::synth::{SynthSpec, synthesise};
use demask::costs::shapes::Like;
use serde_json::json;

use crate::{
    args::SynthArgs,
    exit::usage,
    interrupt::{self, Watched},
    output,
    progress::Bar,
    settings::Settings,
};

/// Runs the command.
pub fn run(settings: &Settings, args: &SynthArgs) -> anyhow::Result<()> {
    let like =
        args.like.as_deref().ok_or_else(|| usage(format!("no shape: give --like with one of {}", Like::names())))?;
    let out = args.out.as_deref().ok_or_else(|| usage("no output named: give --out DIR"))?;
    let spec = SynthSpec { like: like.parse()?, layers: args.layers, adapter: args.adapter_rank, seed: settings.seed };
    let bar = Bar::bytes(settings.screen, "writing");
    let mut total = 0;
    let watched = Watched::begin();
    let result = synthesise(&spec, out, &mut |progress| {
        bar.set(progress.done, progress.total);
        total = progress.total;
        !interrupt::requested()
    });
    drop(watched);
    interrupt::check()?;
    result?;
    drop(bar);
    if settings.screen.json {
        return output::json(&json!({"out": out.display().to_string(), "like": like.to_string(), "bytes": total}));
    }
    settings.screen.remark(&format!("{}: {} of weights", out.display(), output::bytes(total)));
    Ok(())
}
