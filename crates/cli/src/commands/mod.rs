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
    args::{Cli, Command, command},
    env::KNOBS,
    packaging,
    settings::Settings,
};

/// Does what was asked for.
pub fn run(Cli { shared, command: asked }: Cli) -> anyhow::Result<()> {
    let settings = || Settings::resolve(&shared);
    match asked {
        Command::Generate(args) => generate::run(&settings()?, &args),
        Command::Chat(args) => chat::run(&settings()?, &args),
        // Its file and environment may name the model, too.
        Command::Serve(args) => serve::run(&shared, &args),
        Command::Inspect(args) => inspect::run(shared, &args),
        Command::Pull(args) => pull::run(Settings::of_machine(&shared)?.screen, &args),
        Command::List => list::run(&Settings::of_machine(&shared)?),
        Command::Doctor => doctor::run(&Settings::of_machine(&shared)?),
        Command::Health(args) => health::run(&args),
        Command::Completions(args) => packaging::completions(command(), &args),
        Command::Man(args) => packaging::man(command(), demask_terminal::env::help(KNOBS), &args),
    }
}
