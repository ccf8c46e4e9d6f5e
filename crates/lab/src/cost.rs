//! What costs are asked for on the command line: a model, its guide, a rule for counting, a recorded run.

use std::{fs::File, io::BufReader, path::Path};

use anyhow::Context;
use demask::{
    costs::{model_shape::ModelShape, replay::Recorded, shapes::Like},
    trace::read_trace,
};
use demask_model::Convention;
use demask_terminal::{exit::usage, load::Source, output::Screen};

/// The model that costs are asked for: a shape, or a model whose weights stay where they are.
pub fn shape(
    like: Option<&str>,
    source: &Source,
    guide: Option<&Source>,
    screen: Screen,
) -> anyhow::Result<ModelShape> {
    let model = match like {
        Some(like) => ModelShape::of_shape(like.parse()?, None)?,
        None => ModelShape::of(source.open(screen)?),
    };
    let Some(guide) = guide else { return Ok(model) };
    let guide = match guide.name() {
        Some(name) if name.parse::<Like>().is_ok() => ModelShape::of_shape(name.parse()?, None)?,
        _ => ModelShape::of(guide.open(screen)?),
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

/// Reads a trace that is to be followed.
pub fn recorded(path: &Path) -> anyhow::Result<Recorded> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let lines = read_trace(BufReader::new(file)).with_context(|| format!("cannot replay {name}"))?;
    Recorded::new(lines).with_context(|| format!("cannot replay {name}"))
}
