//! `demask generate`: one prompt, one answer.

use std::path::Path;

use demask::Prompt;
use demask::{
    Opened,
    costs::{Predicted, Subject, outline::Outline},
    demo,
    layers::{
        decode::{DecodingReceipt, Session},
        model::Convention,
    },
};
use serde_json::json;

use crate::{
    args::GenerateArgs,
    assumed::{check_acceptance, share},
    exit::usage,
    files::OutFile,
    load::Source,
    output,
    settings::{Request, Settings, notes, refuse_logprobs},
    show::{Show, Ways},
    told::told,
};

/// The smallest of the released models that answers any question: 4 GB, block diffusion.
const REAL: &str = "JetLM/SDAR-1.7B-Chat";

/// Runs the command.
pub fn run(settings: &Settings, args: &GenerateArgs) -> anyhow::Result<()> {
    if args.drafts && args.trace.is_none() {
        return Err(usage("--drafts writes drafts into a trace: give --trace FILE"));
    }
    let request = Request::resolve(args, settings.seed)?;
    refuse_logprobs(&request.options, settings.screen.json && !args.explain)?;
    if args.trace_predictions && args.trace.is_none() {
        return Err(usage("--trace-predictions says what --trace writes: give --trace FILE.jsonl, too"));
    }
    if args.acceptance.is_some() && !args.explain {
        return Err(usage("--acceptance says what --explain assumes: give --explain, too"));
    }
    let acceptance = args.acceptance.map(share).transpose()?;
    let device = &settings.device()?;
    let file = |path: Option<&Path>| path.filter(|_| !args.explain).map(OutFile::create).transpose();
    let (trace, svg) = (file(args.trace.as_deref())?, file(args.svg.as_deref())?);
    let screen = settings.screen;
    let opened = request.open(&settings.source, screen)?;
    if args.explain {
        return explain(opened, &request, settings, acceptance);
    }
    let (model, mut answer) = request.load(opened, device, screen)?;
    // Behind all that may refuse the call: what is refused gets one line.
    if let Some(note) = beyond_the_demo(&settings.source, &request.prompt) {
        screen.remark(&note);
    }
    notes(model.info(), &request.options).for_each(|note| screen.remark(&note));
    if args.trace_predictions {
        answer.record();
    }
    if args.drafts {
        answer.session_mut().into_iter().for_each(Session::tell_drafts);
    }
    let mut show = Show::new(&model, &request.options, screen, Ways { watch: args.watch, trace, svg });
    let answer = show.answer(&model, answer)?;
    show.finish(&answer)
}

/// Returns what to say if nobody named a model and the built-in one plainly cannot know the answer.
fn beyond_the_demo(source: &Source, prompt: &Prompt) -> Option<String> {
    let (None, Prompt::Chat(messages)) = (source.name(), prompt) else { return None };
    let why = demo::beyond(&messages.last()?.content)?;
    Some(format!(
        "note: the built-in demo solves small word problems and knows nothing else ({why}); for other questions name a \
         model, such as --model {REAL}"
    ))
}

/// The plans of all steps and what they cost, and nothing run.
fn explain(opened: Opened, request: &Request, settings: &Settings, acceptance: Option<f64>) -> anyhow::Result<()> {
    let outline = Outline::of(opened);
    let subject = Subject {
        outline: &outline,
        options: &request.options,
        device: settings.asked(),
        convention: Convention::default(),
        seed: settings.seed,
    };
    let session = || outline.session(&request.prompt, &request.options);
    if acceptance.is_some() {
        check_acceptance(outline.info(), settings.seed, session)?;
    }
    let session = session()?;
    let DecodingReceipt { decoder, cache, exactness, steps, block_length, .. } = session.receipt();
    let mut plans = Vec::new();
    let costs =
        subject.costs_of(session, &Predicted::Assumed(acceptance.unwrap_or(0.0)), &mut |line| plans.push(line))?;
    if settings.screen.json {
        return output::json(&json!({
            "decoder": decoder, "cache": cache, "exactness": exactness.name(), "against": exactness.against(),
            "steps": steps, "block_length": block_length, "plans": plans, "cost": costs,
        }));
    }
    let head = format!("decoder {decoder}, cache {cache}: {exactness}; {steps} steps, blocks of {block_length}\n");
    let plans = plans.into_iter().fold(head, |text, plan| text + &plan + "\n");
    Ok(output::text(&(plans + "\n" + &told(&costs)))?)
}
