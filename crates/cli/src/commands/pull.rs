//! `demask pull`: fetches a model into the hub's cache.

use demask::{
    DeviceOptions,
    layers::checkpoint::{Checkpoint, ModelFiles, ModelLocation, Wanted, locate, resolve},
};
use demask_terminal::{env::hub, room::Room};
use serde_json::json;

use crate::{
    args::PullArgs,
    exit::usage,
    interrupt::Watched,
    load::{answered, fetching, surveyed},
    output::{self, Screen},
};

/// Runs the command.
pub fn run(screen: Screen, args: &PullArgs) -> anyhow::Result<()> {
    let name = &args.location;
    if !matches!(resolve(name, &hub())?, ModelLocation::Hub { .. }) {
        return Err(usage(format!(
            "{name} is on this machine: expected the id of a hub, org/name or org/name@REVISION"
        )));
    }
    let watched = Watched::begin();
    let files = fetch(name, screen);
    drop(watched);
    let path = files?.path().map(|path| path.display().to_string()).unwrap_or_default();
    if screen.json {
        return output::json(&json!({"name": name, "path": path}));
    }
    Ok(output::line(&path)?)
}

/// Fetches the missing files of a model. A model that does not fit in the memory is fetched all the same, for another
/// machine perhaps.
fn fetch(name: &str, screen: Screen) -> anyhow::Result<ModelFiles> {
    let found = surveyed(name, screen)?;
    if found.missing_files == 0 {
        return Ok(found.files);
    }
    let checkpoint = Checkpoint::open(found.files.clone());
    let room = Room::of(name, &found, checkpoint.as_ref().ok(), &DeviceOptions::default())?;
    room.check_disk()?;
    if let Err(error) = &checkpoint {
        screen.remark(&format!("warning: demask cannot run it: {error}"));
    }
    room.report(screen);
    room.warn_of_memory(screen);
    answered(locate(name, Wanted::Model, &hub(), &mut fetching(screen)))
}
