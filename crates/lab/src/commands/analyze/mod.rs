//! `demask-lab analyze`: a look into a network while it decodes.

mod acceptance;
mod path;
mod stability;
mod staleness;

use std::path::Path;

use demask::{ModelByHand, Opened};
use demask::{Options, Prompt};
use demask_eval::{
    data::{self, DataOptions},
    tasks,
};

use crate::analysis::{Findings, columns, write};

use crate::{
    args::{AnalyzeCommand, GenerateArgs, SubjectArgs, flag},
    env,
    exit::usage,
    load::{Source, load},
    output,
    progress::Bar,
    settings::{Request, Settings, generate_options, guide, open_beside, refuse_deadline, refuse_logprobs},
};

/// Word problems that are decoded if nobody says how many.
const PROBLEMS: usize = 4;

/// Runs the command.
pub fn run(settings: &Settings, command: &AnalyzeCommand) -> anyhow::Result<()> {
    match command {
        AnalyzeCommand::Stability(args) => stability::run(settings, args),
        AnalyzeCommand::Staleness(args) => staleness::run(settings, args),
        AnalyzeCommand::Acceptance(args) => acceptance::run(settings, args),
        AnalyzeCommand::Path(args) => path::run(settings, args),
    }
}

/// Prompts, methods and the place of the findings.
struct Subject<'a> {
    out: &'a Path,
    prompts: Vec<Prompt>,
    options: Options,
    guide: Option<Source>,
}

impl<'a> Subject<'a> {
    /// Reads the arguments of an analysis: the prompt that was given, or word problems. `refused` are the flags of
    /// `generate` that it sets itself, and `why` says so.
    fn resolve(settings: &Settings, args: &'a SubjectArgs, refused: &[&str], why: &str) -> anyhow::Result<Self> {
        refuse(&args.generate, refused, why)?;
        let out = args.out.as_deref().ok_or_else(|| usage("no output named: give --out DIR"))?;
        let GenerateArgs { prompt, prompt_file, prompt_tokens, decode, .. } = &args.generate;
        if prompt.is_some() || prompt_file.is_some() || prompt_tokens.is_some() {
            if args.problems.is_some() {
                return Err(usage("--problems takes the place of a prompt: give one of the two"));
            }
            let Request { prompt, options, guide } = Request::resolve(&args.generate, settings, None)?;
            refuse_logprobs(&options, false)?;
            refuse_deadline(&options)?;
            return Ok(Self { out, prompts: vec![prompt], options, guide });
        }
        let count = args.problems.unwrap_or(PROBLEMS);
        let prompts = word_problems(count)?;
        if count == 0 || prompts.len() < count {
            let all = word_problems(usize::MAX)?.len();
            return Err(usage(format!("--problems is {count}, expected a number from 1 to {all}")));
        }
        let options = generate_options(decode, settings.seed)?;
        refuse_logprobs(&options, false)?;
        refuse_deadline(&options)?;
        Ok(Self { out, prompts, guide: guide(decode, &options)?, options })
    }

    /// Opens the model, beside its guide if it has one.
    fn open(&self, settings: &Settings) -> anyhow::Result<Opened> {
        open_beside(&settings.source, self.guide.as_ref(), settings.screen)
    }

    /// Gets the first prompt ready: what cannot be decoded is reported before weights are read.
    fn first(&self, opened: &Opened, options: &Options) -> anyhow::Result<demask::Request> {
        Ok(opened.prepare(&self.prompts[0], options)?)
    }

    /// Does something with each prompt under a bar.
    fn each(
        &self,
        settings: &Settings,
        what: &str,
        mut run: impl FnMut(&Prompt, &Bar) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for (index, prompt) in self.prompts.iter().enumerate() {
            let title = format!("{what}prompt {} of {}", index + 1, self.prompts.len());
            run(prompt, &Bar::positions(settings.screen, &title))?;
        }
        Ok(())
    }

    /// Writes the findings, and prints them.
    fn report<F: Findings>(&self, settings: &Settings, found: &F) -> anyhow::Result<()> {
        write(self.out, found)?;
        if settings.screen.json {
            return output::json(&found.json());
        }
        output::text(&format!("{}\n{}", found.about(), columns(&found.table())))?;
        let page = self.out.join(format!("{}.html", F::NAME));
        settings.screen.remark(&format!("{} has the pictures", page.display()));
        Ok(())
    }
}

/// Loads the model that was opened, if there is memory for an answer like this one.
fn loaded(settings: &Settings, opened: Opened, answer: &demask::Request) -> anyhow::Result<ModelByHand> {
    Ok(load(opened, &settings.device()?, answer.job().needs(), settings.screen)?.by_hand()?)
}

/// Refuses flags of `generate` that have no meaning here.
fn refuse(args: &GenerateArgs, refused: &[&str], why: &str) -> anyhow::Result<()> {
    let decode = &args.decode;
    let typed = decode.options.names().chain(decode.guide.is_some().then_some("guide"));
    if let Some(name) = typed.into_iter().find(|name| refused.contains(name)) {
        return Err(usage(format!("{why}: omit {}", flag(name))));
    }
    let shows = [
        ("--like", args.like.is_some()),
        ("--watch", args.watch.is_some()),
        ("--trace", args.trace.is_some()),
        ("--svg", args.svg.is_some()),
        ("--explain", args.explain),
    ];
    match shows.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(usage(format!("{flag} belongs to generate: omit it"))),
        None => Ok(()),
    }
}

/// The first problems of the demo's task.
fn word_problems(count: usize) -> anyhow::Result<Vec<Prompt>> {
    let Some(task) = tasks::find("wordmath") else { anyhow::bail!("the task wordmath is missing") };
    let options = DataOptions { file: None, subject: None, seed: 0, hub: &env::hub() };
    let problems = data::load(task, &options, &mut |_| true)?;
    let prompts = problems.iter().take(count).map(|problem| task.styles[0].prompt(problem, &[]));
    Ok(prompts.collect::<Result<_, _>>()?)
}
