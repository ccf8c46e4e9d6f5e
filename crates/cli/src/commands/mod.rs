//! Commands of the program, one file each.

mod chat;
mod doctor;
mod generate;
mod health;
mod inspect;
mod list;
mod pull;
mod serve;

use crate::{
    args::{Cli, Command, SharedArgs, command},
    env::KNOBS,
    exit::usage,
    packaging,
    settings::Settings,
};

/// Runs the command that the arguments name.
pub fn run(Cli { mut shared, command: asked }: Cli) -> anyhow::Result<()> {
    if let Some(location) = asked.location() {
        name_model(&mut shared, location)?;
    }
    let settings = || Settings::resolve(&shared);
    match asked {
        Command::Generate(args) => generate::run(&settings()?, &args),
        Command::Chat(args) => chat::run(&settings()?, &args),
        // Its file and environment may name the model, too.
        Command::Serve(args) => serve::run(&shared, &args),
        Command::Inspect(_) => inspect::run(&settings()?),
        Command::Pull(args) => pull::run(Settings::of_machine(&shared)?.screen, &args),
        Command::List => list::run(&Settings::of_machine(&shared)?),
        Command::Doctor => doctor::run(&Settings::of_machine(&shared)?),
        Command::Health(args) => health::run(&args),
        Command::Completions(args) => packaging::completions(command(), &args),
        Command::Man(args) => packaging::man(command(), demask_terminal::env::help(KNOBS), &args),
    }
}

/// Takes the model of an argument as the one that `--model` names.
fn name_model(shared: &mut SharedArgs, location: &str) -> anyhow::Result<()> {
    if shared.model.text("model").is_some() {
        return Err(usage("found a model in the argument and in --model, expected one: omit the other"));
    }
    shared.model.replace("model", location);
    Ok(())
}
