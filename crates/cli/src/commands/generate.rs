//! `demask generate`: one prompt, one answer.

use demask::{
    GenerateError, Opened, Prompter,
    decode::{Receipt, Session},
    step::TokenId,
};
use serde_json::json;

use crate::{
    args::GenerateArgs,
    files::OutFile,
    load::{add_guide, load},
    output::{self, Screen},
    settings::{Request, Settings},
    show::{Show, Ways},
};

/// Runs the command.
pub fn run(settings: &Settings, args: &GenerateArgs) -> anyhow::Result<()> {
    let request = Request::resolve(args, settings.seed)?;
    let device = settings.device()?;
    let trace = args.trace.as_deref().filter(|_| !args.explain).map(OutFile::create).transpose()?;
    if args.explain {
        return explain(&settings.source.prompter(settings.screen)?, &request, settings.screen);
    }
    let screen = settings.screen;
    let opened = settings.source.open(screen)?;
    let guide = request.guide.as_ref().map(|guide| guide.open(screen)).transpose()?;
    // What cannot be decoded, or does not fit with its canvas, is told before weights are read.
    let session = session(opened.prompter(), guide.as_ref().map(Opened::prompter), &request)?;
    let mut model = load(opened, device, session.needs(), screen)?;
    if let Some(guide) = guide {
        add_guide(&mut model, guide, device, session.guide_needs(), screen)?;
    }
    let mut show = Show::new(&model, settings.screen, Ways { watch: args.watch, trace, seed: settings.seed });
    let answer = show.answer(&mut model, &request)?;
    show.finish(&answer)
}

/// The session of a request.
fn session(model: &Prompter, guide: Option<&Prompter>, request: &Request) -> Result<Session, GenerateError> {
    match guide {
        Some(guide) => model.guided_session(guide, &request.prompt, &request.options),
        None => model.session(&request.prompt, &request.options),
    }
}

/// The plans of all steps, and nothing run.
fn explain(model: &Prompter, request: &Request, screen: Screen) -> anyhow::Result<()> {
    let guide = request.guide.as_ref().map(|guide| guide.prompter(screen)).transpose()?;
    let session = session(model, guide.as_ref(), request)?;
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
