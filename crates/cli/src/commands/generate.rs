//! `demask generate`: one prompt, one answer.

use demask::{Prompter, decode::Receipt, step::TokenId};
use serde_json::json;

use crate::{
    args::GenerateArgs,
    files::OutFile,
    output::{self, Screen},
    settings::{Request, Settings},
    show::{Show, Ways},
};

/// Runs the command.
pub fn run(settings: &Settings, args: &GenerateArgs) -> anyhow::Result<()> {
    let request = Request::resolve(args, settings.seed)?;
    let device = &settings.device()?;
    let trace = args.trace.as_deref().filter(|_| !args.explain).map(OutFile::create).transpose()?;
    if args.explain {
        return explain(&settings.source.prompter(settings.screen)?, &request, settings.screen);
    }
    let screen = settings.screen;
    let mut model = request.load(settings.source.open(screen)?, device, screen)?;
    let mut show = Show::new(&model, settings.screen, Ways { watch: args.watch, trace, seed: settings.seed });
    let answer = show.answer(&mut model, &request)?;
    show.finish(&answer)
}

/// The plans of all steps, and nothing run.
fn explain(model: &Prompter, request: &Request, screen: Screen) -> anyhow::Result<()> {
    let guide = request.guide.as_ref().map(|guide| guide.prompter(screen)).transpose()?;
    let session = request.session(model, guide.as_ref())?;
    let Receipt { decoder, cache, exactness, against, steps, block_length, .. } = session.receipt();
    let mut plans = Vec::new();
    demask::explain(session, ordinary_token(model), &mut |line| plans.push(line));
    if screen.json {
        return output::json(&json!({
            "decoder": decoder, "cache": cache, "exactness": exactness, "against": against,
            "steps": steps, "block_length": block_length, "plans": plans,
        }));
    }
    let head = format!("decoder {decoder}, cache {cache}: {exactness}; {steps} steps, blocks of {block_length}\n");
    Ok(output::text(&plans.into_iter().fold(head, |text, plan| text + &plan + "\n"))?)
}

/// A token that is no mask and ends nothing.
fn ordinary_token(model: &Prompter) -> TokenId {
    let (facts, ends) = (model.facts(), model.end_ids());
    let ordinary = |token: &TokenId| Some(*token) != facts.mask_id && !ends.contains(token);
    (0..facts.vocab as TokenId).find(ordinary).unwrap_or(0)
}
