//! Commands of the program, one file each.

#[cfg(feature = "analyze")]
mod analyze;
mod bench;
mod chat;
mod cost;
mod doctor;
#[cfg(feature = "eval")]
mod eval;
mod generate;
#[cfg(feature = "serve")]
mod health;
mod inspect;
mod logits;
mod packaging;
#[cfg(feature = "eval")]
mod recipe;
#[cfg(feature = "eval")]
mod report;
#[cfg(feature = "serve")]
mod serve;
mod synth;
mod trace;
#[cfg(feature = "eval")]
mod tune;

use crate::{
    args::{Cli, Command},
    settings::Settings,
};

/// Does what was asked for.
pub fn run(Cli { shared, command }: Cli) -> anyhow::Result<()> {
    let shared = match &command {
        Command::Bench(args) => bench::shared(shared, &args.command)?,
        Command::Inspect(args) => inspect::shared(shared, args)?,
        _ => shared,
    };
    #[cfg(feature = "serve")]
    let command = match command {
        // Its file and environment may name the model, too.
        Command::Serve(args) => return serve::run(&shared, &args),
        // Neither a model nor a device is needed.
        Command::Health(args) => return health::run(&args),
        other => other,
    };
    #[cfg(feature = "eval")]
    let command = match command {
        // They are text: no model is needed.
        Command::Recipe(args) => return recipe::run(shared.json, &args),
        other => other,
    };
    let settings = Settings::resolve(&shared)?;
    match command {
        Command::Completions(args) => packaging::completions(&args),
        Command::Man(args) => packaging::man(&args),
        #[cfg(feature = "serve")]
        Command::Serve(_) | Command::Health(_) => Ok(()),
        Command::Generate(args) => generate::run(&settings, &args),
        Command::Chat(args) => chat::run(&settings, &args),
        #[cfg(feature = "eval")]
        Command::Eval(args) => eval::run(&settings, &args),
        #[cfg(feature = "eval")]
        Command::Recipe(_) => Ok(()),
        #[cfg(feature = "eval")]
        Command::Report(args) => report::run(&settings, &args),
        #[cfg(feature = "eval")]
        Command::Tune(args) => tune::run(&settings, &args),
        Command::Logits(args) => logits::run(&settings, &args),
        Command::Inspect(_) => inspect::run(&settings),
        Command::Doctor => doctor::run(&settings),
        Command::Synth(args) => synth::run(&settings, &args),
        Command::Cost(args) => cost::run(&settings, &args),
        Command::Trace(args) => trace::run(&args),
        Command::Bench(args) => bench::run(&settings, &args.command),
        #[cfg(feature = "analyze")]
        Command::Analyze(args) => analyze::run(&settings, &args.command),
        #[cfg(not(feature = "eval"))]
        Command::Eval(_) => Err(left_out("eval", "eval")),
        #[cfg(not(feature = "eval"))]
        Command::Recipe(_) => Err(left_out("recipe", "eval")),
        #[cfg(not(feature = "eval"))]
        Command::Report(_) => Err(left_out("report", "eval")),
        #[cfg(not(feature = "eval"))]
        Command::Tune(_) => Err(left_out("tune", "eval")),
        #[cfg(not(feature = "analyze"))]
        Command::Analyze(_) => Err(left_out("analyze", "analyze")),
        #[cfg(not(feature = "serve"))]
        Command::Serve(_) => Err(left_out("serve", "serve")),
        #[cfg(not(feature = "serve"))]
        Command::Health(_) => Err(left_out("health", "serve")),
    }
}

/// Refuses a command that this build lacks.
#[cfg(not(all(feature = "analyze", feature = "eval", feature = "serve")))]
fn left_out(name: &str, feature: &str) -> anyhow::Error {
    crate::exit::usage(format!("this build has no {name}: build demask with --features {feature}"))
}
