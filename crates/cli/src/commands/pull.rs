//! `demask pull`: fetches a model into the hub's cache.

use demask::layers::checkpoint::{ModelLocation, locate, resolve};
use demask_terminal::env::hub;
use serde_json::json;

use crate::{
    args::PullArgs,
    exit::usage,
    interrupt::{self, Watched},
    load::fetching,
    output::{self, Screen},
};

/// Runs the command.
pub fn run(screen: Screen, args: &PullArgs) -> anyhow::Result<()> {
    let name = &args.location;
    if !matches!(resolve(name)?, ModelLocation::Hub { .. }) {
        return Err(usage(format!(
            "{name} is on this machine: expected the id of a hub, org/name or org/name@REVISION"
        )));
    }
    let watched = Watched::begin();
    let files = locate(name, &hub(), &mut fetching(screen));
    drop(watched);
    interrupt::check()?;
    let path = files?.path().map(|path| path.display().to_string()).unwrap_or_default();
    if screen.json {
        return output::json(&json!({"name": name, "path": path}));
    }
    Ok(output::line(&path)?)
}
