//! What the command can do, one file each.

mod analyze;
mod bench;
mod chat;
mod doctor;
mod eval;
mod generate;
mod inspect;
mod logits;
mod synth;
mod trace;

use crate::{
    args::{Cli, Command},
    settings::Settings,
};

/// Does what was asked for.
pub fn run(Cli { shared, command }: Cli) -> anyhow::Result<()> {
    let shared = match &command {
        Command::Bench(args) => bench::shared(shared, &args.command)?,
        _ => shared,
    };
    let settings = Settings::resolve(&shared)?;
    match command {
        Command::Generate(args) => generate::run(&settings, &args),
        Command::Chat(args) => chat::run(&settings, &args),
        Command::Eval(args) => eval::run(&settings, &args),
        Command::Logits(args) => logits::run(&settings, &args),
        Command::Inspect(args) => inspect::run(&settings, args),
        Command::Doctor => doctor::run(&settings),
        Command::Synth(args) => synth::run(&settings, &args),
        Command::Trace(args) => trace::run(&args),
        Command::Bench(args) => bench::run(&settings, &args.command),
        Command::Analyze(args) => analyze::run(&settings, &args.command),
    }
}
