//! `demask-lab bench generate`: whole answers to a prompt of random tokens.

use std::ops::ControlFlow;

use crate::measuring::{Ceilings, Rates, Spread, Work, random_tokens};
use demask::{Generation, Prompt, Receipt};
use demask::{
    Opened,
    costs::{
        dry_run::Assumed,
        replay::{Recorded, Script},
    },
};
use serde::Serialize;

use super::repeats;
use crate::{
    args::BenchGenerateArgs,
    assumed::{check_acceptance, share},
    cost::recorded,
    exit::{Interrupted, usage},
    interrupt::{self, Watched},
    output,
    settings::{Request, Settings, generate_options, guide, refuse_deadline},
};

/// Prompt tokens, unless somebody says otherwise.
const PROMPT_LENGTH: usize = 64;
/// Positions to decode, likewise.
const GEN_LENGTH: usize = 64;

/// All runs.
#[derive(Serialize)]
struct Report {
    model: String,
    device: String,
    prompt_length: usize,
    gen_length: usize,
    /// Positions computed over all forwards.
    rows: usize,
    /// The trace whose predictions stood in for the network's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<String>,
    /// The share of drafts that come true, where a mock predicts in the network's place: the text means nothing then.
    #[serde(skip_serializing_if = "Option::is_none")]
    acceptance: Option<f64>,
    /// Seconds of a whole answer.
    seconds: Spread,
    /// Decoded tokens by seconds.
    tokens_per_second: f64,
    #[serde(flatten)]
    rates: Rates,
    receipt: Receipt,
}

/// Runs the command.
pub fn run(settings: &Settings, args: &BenchGenerateArgs) -> anyhow::Result<()> {
    let repeat = repeats(args.repeat)?;
    let acceptance = args.acceptance.map(share).transpose()?;
    let mut options = generate_options(&args.decode, settings.seed)?;
    refuse_deadline(&options)?;
    let guide = guide(&args.decode, &options)?;
    let replay = args.replay.as_deref().map(recorded).transpose()?;
    let (recorded_prompt, recorded_length) =
        replay.as_ref().map(|replay| (replay.prompt_tokens, replay.length)).unzip();
    let prompt_length = args.prompt_length.or(recorded_prompt).unwrap_or(PROMPT_LENGTH);
    if prompt_length == 0 {
        return Err(usage("--prompt-length is 0, expected at least 1"));
    }
    let gen_length = *options.gen_length.get_or_insert(recorded_length.unwrap_or(GEN_LENGTH));
    // Random weights end where they like: only what is decoded in full can be compared.
    options.ignore_eos = Some(true);
    let device = &settings.device()?;
    let mut request = Request { prompt: Prompt::Tokens(Vec::new()), options, guide };
    let opened = request.open(&settings.source, settings.screen)?;
    let facts = opened.info().facts();
    let (context, mask, vocabulary) = (facts.context, facts.mask_id, facts.vocab);
    if prompt_length.saturating_add(gen_length) > context {
        return Err(usage(format!(
            "{prompt_length} prompt tokens and {gen_length} positions exceed the model's context of {context}"
        )));
    }
    // A mask would be a position to decode.
    let no_mask = |token: u32| if Some(token) == mask { (token + 1) % vocabulary as u32 } else { token };
    let tokens = random_tokens(prompt_length, vocabulary, settings.seed).into_iter().map(no_mask).collect();
    request.prompt = Prompt::Tokens(tokens);
    let script = replay.map(|replay| script(replay, &opened, &request)).transpose()?;
    if let Some(acceptance) = acceptance {
        let info = opened.info();
        check_acceptance(info, settings.seed, || info.session(&request.prompt, &request.options))?;
        settings.screen.remark(&format!(
            "acceptance {acceptance}: the network runs, and a stand-in says what it predicts: the generated text means nothing"
        ));
    }
    let mut model = request.load(opened, device, settings.screen)?.0.by_hand()?;
    let Request { prompt, options, .. } = request;
    let _watched = Watched::begin();
    let ceilings = Ceilings::of(device, settings.source.stored_dtype(settings.screen)?, model.info().facts().mask)?;
    let (mut last, mut read): (Option<Generation>, u64) = (None, 0);
    let seconds = Spread::timed(repeat, || {
        interrupt::check()?;
        let go_on = || if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let mut answer = model.prepare(&prompt, &options)?;
        if let Some(mut script) = script.clone() {
            answer.intercept(Box::new(move |_, answers| script.next(answers)));
        }
        if let (Some(acceptance), Some(session)) = (acceptance, answer.session()) {
            let mock = Assumed::new(model.info(), acceptance, settings.seed).in_place_of_networks(session);
            answer.intercept(Box::new(mock));
        }
        let before = model.network().expert_bytes_read();
        last = Some(model.answer(answer, &mut |_| go_on())?);
        read = model.network().expert_bytes_read() - before;
        Ok(())
    })?;
    interrupt::check()?;
    let Generation { receipt, .. } = last.ok_or(Interrupted)?;
    let bytes = model.network().forward_bytes() as f64 * receipt.decoding.forwards as f64 + read as f64;
    let work = Work { flops: receipt.decoding.flops, bytes };
    let report = Report {
        model: model.name().to_owned(),
        device: model.network().describe(),
        prompt_length,
        gen_length,
        rows: receipt.decoding.rows,
        replay: args.replay.as_ref().map(|path| path.display().to_string()),
        acceptance,
        seconds,
        tokens_per_second: gen_length as f64 / seconds.median,
        rates: Rates::new(work, &seconds, &ceilings),
        receipt,
    };
    if settings.screen.json { output::json(&report) } else { Ok(output::line(&describe(&report))?) }
}

/// Predictions that the networks have to make for a request to be the recorded run, found out before weights are read.
fn script(replay: Recorded, opened: &Opened, request: &Request) -> anyhow::Result<Script> {
    let mut session = opened.info().session(&request.prompt, &request.options)?;
    Ok(replay.script(&mut session, &opened.info().infos(), &mut |_, _| {})?)
}

fn describe(report: &Report) -> String {
    let Report { seconds, tokens_per_second, rates, receipt, .. } = report;
    let rounds = receipt.decoding.rounds.as_ref().map_or_else(String::new, |rounds| format!("; {rounds}"));
    format!(
        "{} forwards of {} rows together{rounds}: {}, {tokens_per_second:.1} tokens/s; {}",
        receipt.decoding.forwards,
        report.rows,
        seconds.describe(),
        rates.describe()
    )
}
