//! `demask analyze`: a look into a network while it decodes.

use demask::internals::step::Work;
use demask::{Model, Options, Prompt};
use demask_eval::{
    data::{self, DataOptions},
    tasks,
};

use crate::{
    args::{AnalyzeCommand, GenerateArgs, StabilityArgs, flag},
    env,
    exit::usage,
    interrupt::{self, Watched},
    load::load,
    output,
    progress::Bar,
    settings::{Request, Settings, generate_options, numbers},
    stability::{self, FEATURES, Stability},
};

/// Word problems that are decoded if nobody says how many.
const PROBLEMS: usize = 4;

/// Runs the command.
pub fn run(settings: &Settings, command: &AnalyzeCommand) -> anyhow::Result<()> {
    let AnalyzeCommand::Stability(args) = command;
    refuse(&args.generate)?;
    let out = args.out.as_deref().ok_or_else(|| usage("nowhere to write: give --out DIR"))?;
    let (prompts, options) = prompts(settings, args)?;
    let layers: Vec<usize> =
        args.layers.as_deref().map(|text| numbers("--layers", text, "a layer")).transpose()?.unwrap_or_default();
    let (opened, device) = (settings.source.open(settings.screen)?, &settings.device()?);
    let last = opened.prompter().spec().layers - 1;
    if let Some(layer) = layers.iter().find(|&&layer| layer > last) {
        return Err(usage(format!("--layers: there is no layer {layer}, expected numbers from 0 to {last}")));
    }
    let first = prompts.first().map(|prompt| opened.prepare(prompt, &options)).transpose()?;
    let needs = first.map(|answer| answer.needs().to_vec()).unwrap_or_default();
    let mut model = load(opened, device, &needs, settings.screen)?;
    let found = measure(settings, &mut model, &prompts, &options, &layers)?;
    stability::write(out, &found)?;
    if settings.screen.json {
        return output::json(&found.json());
    }
    let mut text = format!("{}\ncorrelation with the change of V:", found.about());
    for (feature, r) in FEATURES.iter().zip(found.average_correlations()).filter(|(feature, _)| **feature != "V") {
        text += &r.map_or_else(|| format!(" {feature} none,"), |r| format!(" {feature} {r:.3},"));
    }
    output::line(text.trim_end_matches(','))?;
    settings.screen.remark(&format!("{} has the pictures", out.join("stability.html").display()));
    Ok(())
}

/// Flags of `generate` that have no meaning here.
fn refuse(args: &GenerateArgs) -> anyhow::Result<()> {
    let decode = &args.decode;
    let typed = decode.typed.iter().map(|(name, _)| *name).chain(decode.guide.is_some().then_some("guide"));
    if let Some(name) = typed.into_iter().find(|name| ["decoder", "cache", "guide", "cfg_scale"].contains(name)) {
        return Err(usage(format!(
            "analyze stability decodes with decoder static, no cache and no guidance: omit {}",
            flag(name)
        )));
    }
    let shows = [("--watch", args.watch), ("--trace", args.trace.is_some()), ("--explain", args.explain)];
    match shows.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(usage(format!("{flag} belongs to generate: omit it"))),
        None => Ok(()),
    }
}

/// What is decoded, and how: the prompt that was given, or word problems.
fn prompts(settings: &Settings, args: &StabilityArgs) -> anyhow::Result<(Vec<Prompt>, Options)> {
    let GenerateArgs { prompt, prompt_file, prompt_tokens, decode, .. } = &args.generate;
    if prompt.is_some() || prompt_file.is_some() || prompt_tokens.is_some() {
        if args.problems.is_some() {
            return Err(usage("--problems takes the place of a prompt: give one of the two"));
        }
        let Request { prompt, options, .. } = Request::resolve(&args.generate, settings.seed)?;
        return Ok((vec![prompt], options));
    }
    let count = args.problems.unwrap_or(PROBLEMS);
    let prompts = word_problems(count)?;
    if count == 0 || prompts.len() < count {
        let all = word_problems(usize::MAX)?.len();
        return Err(usage(format!("--problems is {count}, expected a number from 1 to {all}")));
    }
    Ok((prompts, generate_options(decode, settings.seed)?))
}

/// The first problems of the demo's task.
fn word_problems(count: usize) -> anyhow::Result<Vec<Prompt>> {
    let Some(task) = tasks::find("wordmath") else { anyhow::bail!("the task wordmath is missing") };
    let options = DataOptions { file: None, subject: None, seed: 0, hub: &env::hub() };
    let problems = data::load(task, &options, &mut |_| true)?;
    Ok(problems.iter().take(count).map(|problem| task.styles[0].prompt(problem, &[])).collect())
}

fn measure(
    settings: &Settings,
    model: &mut Model,
    prompts: &[Prompt],
    options: &Options,
    layers: &[usize],
) -> anyhow::Result<Stability> {
    let device = model.network().describe();
    let mut found = Stability::new(model.name(), &device, model.prompter().spec().layers, layers);
    let _watched = Watched::new();
    for (index, prompt) in prompts.iter().enumerate() {
        let bar = Bar::positions(settings.screen, &format!("prompt {} of {}", index + 1, prompts.len()));
        let mut progress = |done: usize, all: usize| {
            bar.set(done as u64, all as u64);
            !interrupt::requested()
        };
        found.add(&stability::measure(model, prompt, options, &mut progress)?.0);
    }
    Ok(found)
}
