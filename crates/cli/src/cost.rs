//! What costs are asked for on the command line: a model, its guide, a rule for counting, a recorded run.

use demask::internals::{ModelInfo, decode::Session, model_parts::Convention};
use demask_lab::{
    outline::Outline,
    rehearsal::{Assumed, rehearse},
    replay::{Recorded, ReplayError},
    shapes::Like,
};

use crate::{exit::usage, load::Source, output::Screen};

/// Refuses an acceptance that changes nothing about the sessions of a model.
pub fn check_acceptance(
    model: &ModelInfo,
    seed: u64,
    session: impl Fn() -> Result<Session, demask::Error>,
) -> anyhow::Result<()> {
    let run = |acceptance| {
        let mut session = session()?;
        rehearse(&mut session, &mut Assumed::new(model, acceptance, seed), &mut |_, _| {})?;
        anyhow::Ok(session)
    };
    let (all, none) = (run(1.0)?, run(0.0)?);
    if all.counts().forwards == none.counts().forwards {
        let decoder = all.receipt().decoder;
        return Err(usage(format!("--acceptance changes nothing with decoder {decoder} here: omit it")));
    }
    Ok(())
}

/// The model that costs are asked for: a shape, or a model whose weights stay where they are.
pub fn outline(like: Option<&str>, source: &Source, guide: Option<&Source>, screen: Screen) -> anyhow::Result<Outline> {
    let model = match like {
        None if source.0.adapter.is_some() => {
            return Err(usage("operations of an adapter are counted where it runs, in receipts: omit --adapter"));
        }
        Some(like) => Outline::of_shape(like.parse()?, None)?,
        None => Outline::of(source.open(screen)?),
    };
    let Some(guide) = guide else { return Ok(model) };
    let guide = match guide.name() {
        Some(name) if name.parse::<Like>().is_ok() => Outline::of_shape(name.parse()?, None)?,
        _ => Outline::of(guide.open(screen)?),
    };
    Ok(model.guided_by(guide)?)
}

/// Reads a convention.
pub fn convention(name: Option<&str>) -> anyhow::Result<Convention> {
    let all = [Convention::Demask, Convention::Published];
    let Some(name) = name else { return Ok(Convention::default()) };
    let found = all.into_iter().find(|convention| convention.name() == name);
    found.ok_or_else(|| usage(format!("--convention is \"{name}\", expected demask or published")))
}

/// Refuses what no share can be.
pub fn share(acceptance: f64) -> anyhow::Result<f64> {
    if (0.0..=1.0).contains(&acceptance) {
        return Ok(acceptance);
    }
    Err(usage(format!("--acceptance is {acceptance}, expected a share from 0 to 1")))
}

/// Reads a trace that is to be followed.
pub fn recorded(path: &std::path::Path) -> anyhow::Result<Recorded> {
    use anyhow::Context;
    let name = path.display();
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {name}"))?;
    let lines = demask::internals::read_trace(std::io::BufReader::new(file));
    let lines = lines.with_context(|| format!("cannot replay {name}"))?;
    Recorded::new(lines)
        .map_err(|error: ReplayError| anyhow::Error::new(error).context(format!("cannot replay {name}")))
}
