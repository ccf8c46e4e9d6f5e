//! `demask-lab cost`: what answers take, known without weights.

use demask::Options;
use demask::costs::{Predicted, Subject};
use demask_lab::pictures;

use crate::{
    args::CostArgs,
    assumed::{check_acceptance, share},
    cost::{convention, outline, recorded},
    exit::usage,
    output,
    settings::{Settings, generate_options, guide, refuse_deadline},
    told::told,
};

/// Prompt tokens, unless somebody says otherwise.
const PROMPT_LENGTH: usize = 256;

/// Runs the command.
pub fn run(settings: &Settings, args: &CostArgs) -> anyhow::Result<()> {
    let acceptance = args.acceptance.map(share).transpose()?;
    let convention = convention(args.convention.as_deref())?;
    let options: Options = generate_options(&args.decode, settings.seed)?;
    refuse_deadline(&options)?;
    refuse(args)?;
    let guide = guide(&args.decode, &options)?;
    if args.like.is_some() && settings.names_model {
        return Err(usage("found --like and --model, expected one of them: omit the other"));
    }
    let outline = outline(args.like.as_deref(), &settings.source, guide.as_ref(), settings.screen)?;
    let replay = args.replay.as_deref().map(recorded).transpose()?;
    let recorded_length = replay.as_ref().map(|replay| replay.prompt_tokens);
    let prompt_length = args.prompt_length.or(recorded_length).unwrap_or(PROMPT_LENGTH);
    if prompt_length == 0 {
        return Err(usage("--prompt-length is 0, expected at least 1"));
    }
    let subject =
        Subject { outline: &outline, options: &options, device: settings.asked(), convention, seed: settings.seed };
    if acceptance.is_some() {
        check_acceptance(outline.info(), settings.seed, || subject.session(prompt_length))?;
    }
    let predicted = match &replay {
        Some(replay) => Predicted::Recorded(replay),
        None => Predicted::Assumed(acceptance.unwrap_or(0.0)),
    };
    let costs = subject.costs(prompt_length, &predicted)?;
    if let Some(out) = args.out.as_deref() {
        pictures::write(out, &subject, &costs, acceptance.unwrap_or(0.0))?;
        settings.screen.remark(&format!("{} has the pictures", out.join("cost.html").display()));
    }
    if settings.screen.json { output::json(&costs) } else { Ok(output::text(&told(&costs))?) }
}

/// Refuses flags that have no meaning here.
fn refuse(args: &CostArgs) -> anyhow::Result<()> {
    if args.decode.system.is_some() {
        return Err(usage("--system belongs to a prompt in words, and cost knows its length alone: omit it"));
    }
    if args.out.is_some() && args.replay.is_some() {
        return Err(usage("--out draws several lengths, and --replay knows one: omit one of the two"));
    }
    Ok(())
}
