//! Commands of the program, one file each.

mod analyze;
mod bench;
mod cost;
mod eval;
mod logits;
mod recipe;
mod report;
mod synth;
mod trace;
mod tune;

use crate::{
    args::{Cli, Command, command},
    env, packaging,
    settings::Settings,
};

/// Runs the command that the arguments name.
pub fn run(Cli { shared, command: asked }: Cli) -> anyhow::Result<()> {
    let shared = match &asked {
        Command::Bench(args) => bench::shared(shared, &args.command)?,
        _ => shared,
    };
    let (settings, machine) = (|| Settings::resolve(&shared), || Settings::of_machine(&shared));
    match asked {
        Command::Eval(args) => eval::run(&settings()?, &args),
        // They are text: no model is needed.
        Command::Recipe(args) => recipe::run(shared.json, &args),
        Command::Report(args) => report::run(&machine()?, &args),
        Command::Tune(args) => tune::run(&settings()?, &args),
        Command::Bench(args) if args.command.has_model() => bench::run(&settings()?, &args.command),
        Command::Bench(args) => bench::run(&machine()?, &args.command),
        Command::Analyze(args) => analyze::run(&settings()?, &args.command),
        Command::Trace(args) => trace::run(&args),
        Command::Synth(args) => synth::run(&machine()?, &args),
        Command::Logits(args) => logits::run(&settings()?, &args),
        Command::Cost(args) => cost::run(&settings()?, &args),
        Command::Completions(args) => packaging::completions(command(), &args),
        Command::Man(args) => packaging::man(command(), env::help(&[]), &args),
    }
}
