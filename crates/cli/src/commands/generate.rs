//! `demask generate`: one prompt, one answer.

use std::path::Path;

use demask::Prompt;
use demask::{
    Opened,
    costs::{Predicted, Subject, model_shape::ModelShape},
    layers::{
        decode::{DecodingReceipt, Session},
        model::Convention,
    },
};
use serde_json::json;

use crate::{
    args::GenerateArgs,
    assumed::{check_acceptance, share},
    canvas::speed,
    cost_table::{Beside, describe},
    exit::usage,
    files::OutFile,
    output,
    settings::{Request, Settings, like, notes, refuse_logprobs},
    show::{Show, Ways, beyond_the_demo},
};

/// Runs the command.
pub fn run(settings: &Settings, args: &GenerateArgs) -> anyhow::Result<()> {
    if args.drafts && args.trace.is_none() {
        return Err(usage("--drafts writes drafts into a trace: give --trace FILE"));
    }
    refuse_a_model(settings, args)?;
    let like = args.like.as_deref().map(like).transpose()?;
    let mut request = Request::resolve(args, settings, like.as_ref())?;
    refuse_logprobs(&request.options, settings.screen.json && !args.explain)?;
    if args.trace_predictions && args.trace.is_none() {
        return Err(usage("--trace-predictions says what --trace writes: give --trace FILE.jsonl, too"));
    }
    if args.acceptance.is_some() && !args.explain {
        return Err(usage("--acceptance says what --explain assumes: give --explain, too"));
    }
    let watch = args.watch.map(|named| speed("--watch", named)).transpose()?;
    let acceptance = args.acceptance.map(share).transpose()?;
    let device = &settings.device()?;
    let file = |path: Option<&Path>| path.filter(|_| !args.explain).map(OutFile::create).transpose();
    let (trace, svg) = (file(args.trace.as_deref())?, file(args.svg.as_deref())?);
    let screen = settings.screen;
    let opened = request.open(&settings.source, screen)?;
    if let Some(like) = &like {
        like.check(opened.info()).map_err(|error| usage(error.to_string()))?;
    }
    if args.explain {
        return explain(opened, &request, settings, acceptance);
    }
    let seed = if like.is_none() { settings.draw_seed(&mut request.options) } else { None };
    let (model, mut answer) = request.load(opened, device, screen)?;
    // Behind all that may refuse the call: what is refused gets one line.
    if let (None, Prompt::Chat(chat)) = (settings.source.name(), &request.prompt)
        && let Some(note) = chat.messages.last().and_then(|question| beyond_the_demo(&question.content))
    {
        screen.remark(&note);
    }
    if let (false, Some(name)) = (settings.names_model, settings.source.name()) {
        screen.remark(&format!("model {name}, which DEMASK_MODEL names"));
    }
    notes(model.info(), &request.options)
        .chain(seed)
        .chain(like.and_then(|like| like.note()).map(|note| format!("warning: {note}")))
        .for_each(|note| screen.remark(&note));
    if args.trace_predictions {
        answer.record();
    }
    if args.drafts {
        answer.session_mut().into_iter().for_each(Session::tell_drafts);
    }
    let mut show = Show::new(&model, &request.options, screen, Ways { watch, trace, svg });
    let answer = show.answer(&model, answer);
    // What was interrupted may still run.
    model.abandon();
    show.finish(&answer?)
}

/// Refuses a prompt that is a model on this machine: as `chat` and `serve` take one, it was typed where the prompt goes.
fn refuse_a_model(settings: &Settings, args: &GenerateArgs) -> anyhow::Result<()> {
    let Some(prompt) = args.prompt.as_deref().filter(|_| !settings.names_model) else { return Ok(()) };
    let path = Path::new(prompt);
    let is_gguf = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    if (is_gguf && path.is_file()) || path.join("config.json").is_file() {
        return Err(usage(format!(
            "the prompt {prompt} is a model: demask generate --model {prompt} \"PROMPT\" asks it"
        )));
    }
    Ok(())
}

/// The plans of all steps and what they cost, and nothing run.
fn explain(opened: Opened, request: &Request, settings: &Settings, acceptance: Option<f64>) -> anyhow::Result<()> {
    let shape = ModelShape::of(opened);
    let subject = Subject {
        shape: &shape,
        options: &request.options,
        device: settings.requested_device(),
        convention: Convention::default(),
        seed: request.options.seed.unwrap_or(settings.seed),
    };
    let session = || shape.session(&request.prompt, &request.options);
    if acceptance.is_some() {
        check_acceptance(shape.info(), settings.seed, session)?;
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
    Ok(output::text(&(plans + "\n" + &describe(&costs, &Beside::default())))?)
}
