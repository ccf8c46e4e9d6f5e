//! `demask-lab cost`: what answers take, known without weights.

use crate::{measuring::Ceilings, pictures};
use demask::costs::{Costs, Predicted, Subject, model_shape::ModelShape};
use demask::{Mask, Options};
use serde::Serialize;

use crate::{
    args::CostArgs,
    assumed::{check_acceptance, share},
    cost::{convention, recorded, shape},
    cost_table::{Beside, Hoped, Machine, describe},
    exit::usage,
    output,
    settings::{Settings, generate_options, guide, refuse_deadline},
};

/// Prompt tokens, unless somebody says otherwise.
const PROMPT_LENGTH: usize = 256;

/// Acceptances that were published: a decoder, the attention of its model, the share, and where it was seen.
const PUBLISHED: [(&str, Mask, f64, &str); 2] = [
    (
        "threshold",
        Mask::Full,
        0.6,
        "2.5 tokens/NFE, as Fast-dLLM's LLaDA-8B has on GSM8K at tau 0.9 (16.5 against 6.7 tokens/s without a cache)",
    ),
    ("isd", Mask::Causal, 0.905, "the share at which N = 4 settles the tokens of I-DLM-8B's table"),
];
/// What to say of an acceptance that nobody published.
const BEST: &str = "every prediction comes true, the best case";

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
    let shape = shape(args.like.as_deref(), &settings.source, guide.as_ref(), settings.screen)?;
    let replay = args.replay.as_deref().map(recorded).transpose()?;
    let recorded_length = replay.as_ref().map(|replay| replay.prompt_tokens);
    let prompt_length = args.prompt_length.or(recorded_length).unwrap_or(PROMPT_LENGTH);
    if prompt_length == 0 {
        return Err(usage("--prompt-length is 0, expected at least 1"));
    }
    let subject = Subject {
        shape: &shape,
        options: &options,
        device: settings.requested_device(),
        convention,
        seed: settings.seed,
    };
    if acceptance.is_some() {
        check_acceptance(shape.info(), settings.seed, || subject.session(prompt_length))?;
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
    let hoped = match (acceptance, &replay) {
        (None, None) => hoped(&subject, prompt_length, settings.seed)?,
        _ => None,
    };
    let beside = Beside { hoped, machine: machine(settings, &shape) };
    if settings.screen.json {
        output::json(&Report { costs: &costs, beside: &beside })
    } else {
        Ok(output::text(&describe(&costs, &beside))?)
    }
}

/// Costs as JSON.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    costs: &'a Costs,
    #[serde(flatten)]
    beside: &'a Beside,
}

/// Returns the costs at a published acceptance, or at the best; none where predictions change nothing.
fn hoped(subject: &Subject<'_>, prompt_length: usize, seed: u64) -> anyhow::Result<Option<Hoped>> {
    let session = || subject.session(prompt_length);
    let info = subject.shape.info();
    if check_acceptance(info, seed, session).is_err() {
        return Ok(None);
    }
    let decoder = session()?.methods().0.name();
    let known = PUBLISHED.iter().find(|(name, mask, ..)| *name == decoder && *mask == info.facts().mask);
    let (acceptance, source) = known.map_or((1.0, BEST), |&(.., acceptance, source)| (acceptance, source));
    let costs = subject.costs(prompt_length, &Predicted::Assumed(acceptance))?;
    Ok(Some(Hoped { acceptance, source, estimate: costs.estimate }))
}

/// Measures the machine; none where it is not this one, or where there is too little memory for it.
fn machine(settings: &Settings, shape: &ModelShape) -> Option<Machine> {
    let device = settings.device().ok()?;
    let Ceilings { tflops, gbs } = Ceilings::of(&device, shape.main_dtype(), shape.info().facts().mask).ok()?;
    Some(Machine { tflops, gbs: gbs? })
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
