//! `demask synth`: a random checkpoint of a real shape.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use demask::checkpoint::{Like, SynthSpec, synthesise};
use serde_json::json;

use crate::{
    args::SynthArgs,
    exit::{Interrupted, usage},
    interrupt::{self, Watched},
    output,
    progress::Bar,
    settings::Settings,
};

/// Runs the command.
pub fn run(settings: &Settings, args: &SynthArgs) -> anyhow::Result<()> {
    let known = || Like::ALL.map(Like::name).join(", ");
    let like = args.like.as_deref().ok_or_else(|| usage(format!("no shape: give --like with one of {}", known())))?;
    let out = args.out.as_deref().ok_or_else(|| usage("nowhere to write: give --out DIR"))?;
    let spec = SynthSpec { like: like.parse()?, layers: args.layers, seed: settings.seed };
    let bar = Bar::bytes(settings.screen, "writing");
    let _watched = Watched::new();
    let mut total = 0;
    // The writer has no other way to be stopped: it cleans up when it is unwound.
    let work = AssertUnwindSafe(|| {
        synthesise(&spec, out, &mut |progress| {
            if interrupt::requested() {
                resume_unwind(Box::new(Interrupted));
            }
            bar.set(progress.done, progress.total);
            total = progress.total;
        })
    });
    match catch_unwind(work) {
        Ok(result) => result?,
        Err(payload) if payload.is::<Interrupted>() => return Err(Interrupted.into()),
        Err(payload) => resume_unwind(payload),
    }
    drop(bar);
    if settings.screen.json {
        return output::json(&json!({"out": out.display().to_string(), "like": like.to_string(), "bytes": total}));
    }
    settings.screen.remark(&format!("{}: {} of weights", out.display(), output::bytes(total)));
    Ok(())
}
