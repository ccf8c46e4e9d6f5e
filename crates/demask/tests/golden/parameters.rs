//! Translation of the references' own parameter names to session options: one table.

use demask_decode::{CanvasSpec, GuideOptions, ModelFacts, Remasking, Schedule, SessionOptions, StopRule};
use demask_step::{ConfidenceOf, FilterOrder, Mask};
use serde_json::Value;

use crate::cases::Case;

/// Parameters of a reference, with its defaults.
#[derive(Default)]
struct Said {
    gen_length: Option<usize>,
    block_length: Option<usize>,
    steps: Option<usize>,
    steps_per_block: Option<usize>,
    remasking: Option<Remasking>,
    dynamic: bool,
    entropy_bounded: bool,
    threshold: Option<f64>,
    entropy_bound: Option<f64>,
    factor: Option<f64>,
    factor_rule: Option<String>,
    test_first: bool,
    freeze: Option<String>,
    run: Option<usize>,
    eps: Option<f32>,
    cfg_scale: f32,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    alg_temp: Option<f32>,
    suppress_eos: bool,
    eos_confidence_zero: bool,
    stop: bool,
    /// Least tokens of a step, which bounds the steps of a block.
    least: Option<usize>,
    early_exit: bool,
    drafts: Option<usize>,
    eager: bool,
    cache: Option<String>,
    dkv: Option<String>,
    refresh: Option<usize>,
    window: Option<usize>,
    shift: Option<String>,
    prompt_interval: usize,
    response_interval: usize,
    guidance_interval: usize,
    rho: f64,
    matching: Option<&'static str>,
    among: Option<usize>,
    share: Option<f64>,
    verify: Option<usize>,
    /// LLaDA2.1: the threshold of edits, passes over a block without masks, masks of a pass at least, penalty.
    edit: Option<f64>,
    post: Option<usize>,
    fill: Option<usize>,
    penalty: Option<f64>,
    path_planning: bool,
    /// Positions of a part of a block, and whether only its rows run.
    part: Option<usize>,
    dual: bool,
    /// The token that ends an answer; none: nothing does.
    end: Option<u32>,
}

type Apply = fn(&mut Said, &Value) -> Option<()>;

fn count(value: &Value) -> Option<usize> {
    value.as_u64().map(|count| count as usize)
}

fn number(value: &Value) -> Option<f32> {
    value.as_f64().map(|number| number as f32)
}

/// dLLM-Cache: below 1 means every step.
fn interval(value: &Value) -> Option<usize> {
    value.as_i64().map(|steps| steps.max(1) as usize)
}

/// The name that a reference gives a parameter, and what it says. `None` as an answer: not a value we know.
const TABLE: &[(&str, Apply)] = &[
    ("gen_length", |said, value| count(value).map(|count| said.gen_length = Some(count))),
    ("max_new_tokens", |said, value| count(value).map(|count| said.gen_length = Some(count))),
    ("max_gen_length", |said, value| count(value).map(|count| said.gen_length = Some(count))),
    ("block_length", |said, value| count(value).map(|count| said.block_length = Some(count))),
    ("block_size", |said, value| count(value).map(|count| said.block_length = Some(count))),
    ("steps", |said, value| count(value).map(|count| said.steps = Some(count))),
    ("denoising_steps", |said, value| count(value).map(|count| said.steps_per_block = Some(count))),
    ("remasking", |said, value| value.as_str()?.parse().ok().map(|remasking| said.remasking = Some(remasking))),
    ("alg", algorithm),
    ("remasking_strategy", strategy),
    ("threshold", |said, value| value.as_f64().map(|tau| said.threshold = Some(tau))),
    ("confidence_threshold", |said, value| value.as_f64().map(|tau| said.threshold = Some(tau))),
    ("eb_threshold", |said, value| value.as_f64().map(|bound| said.entropy_bound = Some(bound))),
    ("factor", |said, value| value.as_f64().map(|factor| said.factor = Some(factor))),
    ("factor_rule", |said, value| value.as_str().map(|rule| said.factor_rule = Some(rule.into()))),
    ("test_first", |said, value| value.as_bool().map(|on| said.test_first = on)),
    ("eps", |said, value| number(value).map(|eps| said.eps = Some(eps))),
    ("cfg_scale", |said, value| number(value).map(|scale| said.cfg_scale = scale)),
    ("cfg_interval_steps", |said, value| interval(value).map(|steps| said.guidance_interval = steps)),
    ("temperature", |said, value| number(value).map(|temperature| said.temperature = Some(temperature))),
    ("top_p", |said, value| number(value).map(|top_p| said.top_p = Some(top_p))),
    ("top_k", |said, value| count(value).map(|top_k| said.top_k = Some(top_k as u32))),
    ("alg_temp", |said, value| number(value).map(|temperature| said.alg_temp = Some(temperature))),
    ("logits_eos_inf", |said, value| value.as_bool().map(|on| said.suppress_eos = on)),
    ("confidence_eos_eot_inf", |said, value| value.as_bool().map(|on| said.eos_confidence_zero = on)),
    ("stop", |said, value| value.as_bool().map(|on| said.stop = on)),
    ("early_exit", |said, value| value.as_bool().map(|on| said.early_exit = on)),
    ("early_stop", |said, value| value.as_bool().map(|on| said.stop = on)),
    ("eos_early_stop", |said, value| value.as_bool().map(|on| said.stop = on)),
    ("editing_threshold", |said, value| value.as_f64().map(|tau| said.edit = Some(tau))),
    ("edit_threshold", |said, value| value.as_f64().map(|tau| said.edit = Some(tau))),
    ("max_post_steps", |said, value| count(value).map(|steps| said.post = Some(steps))),
    ("max_post_edit_steps", |said, value| count(value).map(|steps| said.post = Some(steps))),
    ("num_to_transfer", |said, value| count(value).map(|fill| said.fill = Some(fill))),
    ("penalty_lambda", |said, value| value.as_f64().map(|penalty| said.penalty = Some(penalty))),
    ("minimal_topk", |said, value| count(value).map(|least| said.least = Some(least))),
    ("early_stop_consecutive", |said, value| count(value).map(|run| said.run = Some(run))),
    ("draft_steps", |said, value| count(value).map(|drafts| said.drafts = Some(drafts))),
    ("draft_mode", |_, value| value.as_str().map(drop)),
    ("eager_acceptance_mode", |said, value| value.as_bool().map(|eager| said.eager = eager)),
    ("dual_cache", |said, value| {
        value.as_bool().map(|dual| said.cache = Some(if dual { "dual" } else { "prefix" }.into()))
    }),
    ("cache", |said, value| value.as_str().map(|cache| said.cache = Some(cache.into()))),
    ("cache_type", |said, value| value.as_str().map(|variant| said.dkv = Some(variant.into()))),
    ("cache_steps", |said, value| count(value).map(|steps| said.refresh = Some(steps))),
    ("shift_type", |said, value| value.as_str().map(|shift| said.shift = Some(shift.into()))),
    ("variant", |said, value| value.as_str().map(|variant| said.dkv = Some(variant.into()))),
    ("cache_reloading_step", |said, value| count(value).map(|steps| said.refresh = Some(steps))),
    ("window_size", |said, value| count(value).map(|window| said.window = Some(window))),
    ("prompt_interval_steps", |said, value| interval(value).map(|steps| said.prompt_interval = steps)),
    ("gen_interval_steps", |said, value| interval(value).map(|steps| said.response_interval = steps)),
    ("transfer_ratio", |said, value| value.as_f64().map(|rho| said.rho = rho)),
    ("freeze", |said, value| value.as_str().map(|freeze| said.freeze = Some(freeze.into()))),
    ("sampling_strategy", matching),
    ("acceptance_top_k", |said, value| count(value).map(|among| said.among = Some(among))),
    ("tau", |said, value| value.as_f64().map(|share| said.share = Some(share))),
    ("verify_batch_size", |said, value| count(value).map(|verify| said.verify = Some(verify))),
    ("small_block_size", |said, value| count(value).map(|part| said.part = Some(part))),
    ("use_block_cache", |said, value| value.as_bool().map(|dual| said.dual = dual)),
    // What the specification says and the released loop does not: a prompt of one whole block is read.
    ("clean_prefill", |_, value| value.as_bool().map(drop)),
    ("eos_id", |said, value| count(value).map(|id| said.end = Some(id as u32))),
    ("eos_token_id", |said, value| count(value).map(|id| said.end = Some(id as u32))),
    ("stop_token", |said, value| count(value).map(|id| said.end = Some(id as u32))),
    // Nothing is padded here.
    ("pad_id", |_, value| value.as_u64().map(drop)),
    ("pad_token_id", |_, value| value.as_u64().map(drop)),
    // FlashDLM's own prompt cache keeps the prompt's last slot too: Fast-dLLM's prefix cache with one block.
    ("dlm_cache", |said, value| {
        said.cache = Some(if value.as_str()? == "prompt" { "prefix" } else { "none" }.into());
        Some(())
    }),
];

/// Dream's `alg`, and Fast-dLLM's.
fn algorithm(said: &mut Said, value: &Value) -> Option<()> {
    let name = value.as_str()?;
    said.path_planning = name == "p2";
    if !said.path_planning && name != "confidence_threshold" {
        said.remasking = Some(name.parse().ok()?);
    }
    Some(())
}

/// FlashDLM's `sampling_strategy`.
fn matching(said: &mut Said, value: &Value) -> Option<()> {
    said.matching = Some(match value.as_str()? {
        "deterministic" => "exact",
        "topk" => "topk",
        "topk_relative" => "topk_relative",
        _ => return None,
    });
    Some(())
}

/// SDAR's `remasking_strategy`.
fn strategy(said: &mut Said, value: &Value) -> Option<()> {
    match value.as_str()? {
        "sequential" => said.remasking = Some(Remasking::LeftToRight),
        "low_confidence_static" => said.remasking = Some(Remasking::LowConfidence),
        "low_confidence_dynamic" => said.dynamic = true,
        "entropy_bounded" => said.entropy_bounded = true,
        _ => return None,
    }
    Some(())
}

/// Reads a case's parameters; an unknown name or value is an error.
pub fn map(
    method: &str,
    case: &Case,
    facts: &ModelFacts,
    guide: Option<&ModelFacts>,
) -> Result<SessionOptions, String> {
    let mut said = Said::default();
    for (name, value) in &case.params {
        let (_, apply) = TABLE
            .iter()
            .find(|(known, _)| known == name)
            .ok_or_else(|| format!("parameter {name:?} is not in the table"))?;
        if !value.is_null() {
            apply(&mut said, value).ok_or_else(|| format!("parameter {name:?} has the unknown value {value}"))?;
        }
    }
    let facts = ModelFacts { mask_id: u32::try_from(case.mask_id).ok(), ..facts.clone() };
    build(method, &said, case, &facts, guide)
}

fn build(
    method: &str,
    said: &Said,
    case: &Case,
    facts: &ModelFacts,
    guide: Option<&ModelFacts>,
) -> Result<SessionOptions, String> {
    let gen_length = said.gen_length.unwrap_or(128);
    let canvas = CanvasSpec::Prompt { tokens: case.prompt.clone(), gen_length };
    let base = SessionOptions {
        stop: StopRule::Never,
        temperature: 0.0,
        top_p: said.top_p.unwrap_or(1.0),
        top_k: said.top_k.unwrap_or(0),
        eps: said.eps.unwrap_or(1e-3),
        cfg_scale: said.cfg_scale,
        remasking: said.remasking.unwrap_or_default(),
        ..SessionOptions::new(facts.clone(), canvas)
    };
    let options = match method {
        "llada_generate" => llada(said, case, base),
        "dream_generate" | "dense_opendcoder" | "dense_opendcoder_p2" => dream(said, gen_length, base)?,
        "sdar_generate" | "sdar_entropy_bounded" => sdar(said, case, base)?,
        "llada2_generate" => llada2(said, case, base)?,
        "llada21_generate" => llada21(said, case, "confirm=false", base)?,
        "joint_threshold" => llada21(said, case, "confirm=true", base)?,
        "ar_greedy" => base,
        "freedave_block" => freedave_block(said, case, base)?,
        "freedave_full" => freedave_full(said, case, base)?,
        "fastdllm_llada" | "fastdllm_factor" => fastdllm(said, base)?,
        "fastdllm_dream" => fastdllm_dream(said, base)?,
        "dkv_llada" => dkv(said, case, llada(said, case, base))?,
        "dkv_dream" => dkv(said, case, dream(said, gen_length, base)?)?,
        "dllmcache_llada" => dllm(said, llada(said, case, base))?,
        "dllmcache_dream" => dllm(said, dream(said, gen_length, base)?)?,
        "freecache_llada" | "freecache_dream" | "freecache_exact" => freecache(said, case, base)?,
        "guided_llada" | "guided_dream" => guided(said, case, guide, base)?,
        "dense_stablediffcoder" => stable_diffcoder(said, gen_length, base)?,
        "dense_a2d_mdlm" | "dense_a2d_bd3lm" => a2d(said, gen_length, base)?,
        "dense_fastdllm2_generate" => fast_dllm2(said, case, StopRule::Prefix, base)?,
        "dense_fastdllm2_batch" => fast_dllm2(said, case, StopRule::Block, base)?,
        "dense_nemotron_ar" => nemotron(said, "ar", "causal", base)?,
        "dense_nemotron_diffusion" => {
            let decoder = said.threshold.map_or("static".into(), |tau| format!("threshold:tau={tau}"));
            SessionOptions { block_length: said.block_length, ..nemotron(said, &decoder, "block", base)? }
        }
        "dense_nemotron_linear_spec" => {
            let (block, tau) = (said.block_length.unwrap_or(32), said.threshold.unwrap_or(0.0));
            // The last window may reach behind what is asked for.
            let canvas = CanvasSpec::Prompt { tokens: case.prompt.clone(), gen_length: gen_length + block };
            let decoder = format!("selfspec:block={block},tau={tau}");
            nemotron(said, &decoder, "causal", SessionOptions { canvas, ..base })?
        }
        other => return Err(format!("method {other:?} is not known")),
    };
    released(options)
}

/// Stores and starts of blocks as the programs have them, where a cache leaves them to fit.
fn released(options: SessionOptions) -> Result<SessionOptions, String> {
    let cache = options.cache.to_string();
    let more = match options.cache.name() {
        "block" if options.decoder.traits().stores.is_none() => "store=alone",
        "prefix" | "dual" if options.facts.shift == 1 => "start=one",
        _ => return Ok(options),
    };
    let separator = if cache.contains(':') { ',' } else { ':' };
    Ok(SessionOptions { cache: parsed(&format!("{cache}{separator}{more}"))?, ..options })
}

/// Tokens that are asked for, where the canvas is longer.
pub fn kept(method: &str, case: &Case) -> Option<usize> {
    let asked = case.params.get("max_new_tokens").and_then(count);
    asked.filter(|_| method == "dense_nemotron_linear_spec")
}

/// A rule that ends an answer at the token that a case names, if it names one.
fn ending(said: &Said, stop: StopRule, base: SessionOptions) -> SessionOptions {
    let stop = if said.end.is_some() { stop } else { StopRule::Never };
    SessionOptions { stop, end_ids: said.end.into_iter().collect(), ..base }
}

/// The length of a case's prompt.
fn prompt(base: &SessionOptions) -> usize {
    let (CanvasSpec::Prompt { tokens, .. } | CanvasSpec::Infill { tokens }) = &base.canvas;
    tokens.len()
}

/// Stable-DiffCoder: its steps are shared by whole blocks, and each block has as many, the ragged first and last included.
fn stable_diffcoder(said: &Said, gen_length: usize, base: SessionOptions) -> Result<SessionOptions, String> {
    let block = said.block_length.unwrap_or(4);
    let blocks = (prompt(&base) % block + gen_length).div_ceil(block);
    let steps = said.steps.unwrap_or(gen_length) * block / gen_length;
    let decoder = said.threshold.map_or("static".into(), |tau| format!("threshold:tau={tau}"));
    let base = ending(said, StopRule::Block, base);
    Ok(SessionOptions {
        block_length: Some(block),
        steps: Some(steps * blocks),
        decoder: parsed(&decoder)?,
        cache: parsed("block")?,
        ..base
    })
}

/// dllm's samplers: blocks from the prompt's end on, the last one short.
fn a2d(said: &Said, gen_length: usize, base: SessionOptions) -> Result<SessionOptions, String> {
    let block = said.block_length.unwrap_or(32);
    let blocks = gen_length.div_ceil(block);
    let steps = said.steps.unwrap_or(gen_length).div_ceil(blocks);
    let base = ending(said, StopRule::Block, base);
    Ok(SessionOptions {
        block_length: Some(block),
        steps: Some(steps * blocks),
        schedule: Schedule::Linear,
        decoder: parsed("static")?,
        ..base
    })
}

/// Fast-dLLM v2: whole blocks, and the token that the last one's store predicts.
fn fast_dllm2(said: &Said, case: &Case, stop: StopRule, base: SessionOptions) -> Result<SessionOptions, String> {
    let (block, prompt) = (said.block_length.unwrap_or(32), prompt(&base));
    let whole = prompt / block * block + said.gen_length.unwrap_or(0) / block * block;
    let gen_length = whole + 1 - prompt;
    let (tau, part) = (said.threshold.unwrap_or(1.0), said.part.unwrap_or(8));
    let mut facts = base.facts.clone();
    facts.blocks.ends_short = true;
    let base = ending(said, stop, base);
    Ok(SessionOptions {
        facts,
        canvas: CanvasSpec::Prompt { tokens: case.prompt.clone(), gen_length },
        block_length: Some(block),
        decoder: parsed(&format!("threshold:tau={tau},strict,sub={part}"))?,
        cache: parsed(if said.dual { "block:live=dual" } else { "block" })?,
        ..base
    })
}

fn nemotron(said: &Said, decoder: &str, cache: &str, base: SessionOptions) -> Result<SessionOptions, String> {
    let base = ending(said, StopRule::Prefix, base);
    Ok(SessionOptions { decoder: parsed(decoder)?, cache: parsed(cache)?, ..base })
}

fn llada(said: &Said, case: &Case, base: SessionOptions) -> SessionOptions {
    // The released constants are the end of text and the end of turn, which follows it in the goldens' vocabularies.
    let (eos, end_of_turn) = (case.eos_id, case.eos_id + 1);
    let weightless = match (said.eos_confidence_zero, said.suppress_eos) {
        (true, _) => vec![eos, end_of_turn],
        (false, true) => vec![eos],
        (false, false) => Vec::new(),
    };
    SessionOptions {
        block_length: Some(said.block_length.unwrap_or(128)),
        steps: Some(said.steps.unwrap_or(128)),
        suppress: if said.suppress_eos { vec![eos] } else { Vec::new() },
        zero_confidence: weightless,
        ..base
    }
}

fn dream(said: &Said, gen_length: usize, base: SessionOptions) -> Result<SessionOptions, String> {
    Ok(SessionOptions {
        decoder: parsed(if said.path_planning { "p2" } else { "static" })?,
        block_length: Some(gen_length),
        steps: Some(said.steps.unwrap_or(512)),
        schedule: Schedule::Dream,
        confidence: ConfidenceOf::Drawn,
        temperature: said.temperature.unwrap_or(0.0),
        alg_temp: said.alg_temp.unwrap_or(0.0),
        ..base
    })
}

/// dKV-Cache. Its greedy variant drew the order of each block.
fn dkv(said: &Said, case: &Case, base: SessionOptions) -> Result<SessionOptions, String> {
    let variant = match said.dkv.as_deref() {
        Some("decoded") => "decode",
        Some(variant) => variant,
        None => return Err("dKV-Cache without a variant".into()),
    };
    let said_of = |key: &str, value: Option<String>| value.map_or(String::new(), |value| format!(",{key}={value}"));
    // The released prefill takes the number and never looks at it.
    let refresh = said_of("refresh", said.refresh.filter(|_| variant != "prefill").map(|steps| steps.to_string()));
    let window = said_of("window", said.window.map(|window| window.to_string()));
    let shift = said_of("shift", said.shift.clone());
    let cache = format!("dkv:variant={variant}{refresh}{window}{shift}");
    let order: Vec<u32> = case.decode_order.iter().flatten().copied().collect();
    Ok(SessionOptions {
        cache: cache.parse().map_err(|error| format!("{error}"))?,
        remasking: if order.is_empty() { base.remasking } else { Remasking::Random },
        order,
        ..base
    })
}

/// dLLM-Cache as released: layer 0 is computed in every forward.
fn dllm(said: &Said, base: SessionOptions) -> Result<SessionOptions, String> {
    let Said { prompt_interval, response_interval, guidance_interval, rho, .. } = said;
    // Outside of (0, 1] nothing is compared and nothing computed.
    let rho = if *rho > 1.0 { 0.0 } else { *rho };
    let cache = format!(
        "dllm:prompt={prompt_interval},response={response_interval},rho={rho},count=forwards,rows=drift,cfg={}",
        (*guidance_interval).max(1)
    );
    Ok(SessionOptions { cache: cache.parse().map_err(|error| format!("{error}"))?, ..base })
}

/// Blocks that a block model decodes: those from the one that holds the first position behind the prompt on.
fn decoded_blocks(case: &Case, gen_length: usize, block: usize) -> usize {
    (case.prompt.len() + gen_length).div_ceil(block) - case.prompt.len() / block
}

fn sdar(said: &Said, case: &Case, base: SessionOptions) -> Result<SessionOptions, String> {
    let block = said.block_length.unwrap_or(8);
    let blocks = decoded_blocks(case, said.gen_length.unwrap_or(128), block);
    let decoder = if said.entropy_bounded {
        format!("entropy_bounded:eb={},confidence=tempered", said.entropy_bound.unwrap_or(0.35))
    } else if said.dynamic {
        format!("threshold:tau={},strict=true,quota=true,confidence=tempered", said.threshold.unwrap_or(0.85))
    } else {
        "static".into()
    };
    Ok(SessionOptions {
        block_length: Some(block),
        steps: Some(said.steps_per_block.unwrap_or(8) * blocks),
        decoder: decoder.parse().map_err(|error| format!("{error}"))?,
        filter_order: FilterOrder::TopKFirst,
        // The reference samples at temperature 1 from what top-k leaves and ranks by that probability; its draws were
        // replaced by the most probable token.
        confidence: ConfidenceOf::Drawn,
        temperature: 0.0,
        end_ids: case.stop_ids.clone(),
        stop: if said.stop || !case.stop_ids.is_empty() { StopRule::Block } else { StopRule::Never },
        ..base
    })
}

/// LLaDA2.0: SDAR's blocks and quotas, ended by an end token behind each block, or at once.
fn llada2(said: &Said, case: &Case, base: SessionOptions) -> Result<SessionOptions, String> {
    let block = said.block_length.unwrap_or(32);
    let gen_length = said.gen_length.unwrap_or(2048);
    // Steps behind as many as a block has positions have nothing to do.
    let steps = said.steps.unwrap_or(32).min(gen_length / said.least.unwrap_or(1)).min(block);
    let decoder = format!("threshold:tau={},strict=true,quota=true", said.threshold.unwrap_or(0.95));
    Ok(SessionOptions {
        block_length: Some(block),
        steps: Some(steps * decoded_blocks(case, gen_length, block)),
        decoder: parsed(&decoder)?,
        cache: parsed("none")?,
        end_ids: vec![case.eos_id],
        stop: if said.stop { StopRule::Prefix } else { StopRule::Block },
        ..base
    })
}

/// LLaDA2.1, and SGLang's program for it: tokens are edited, and an end token counts once its block is over, if at all.
fn llada21(said: &Said, case: &Case, confirm: &str, base: SessionOptions) -> Result<SessionOptions, String> {
    let (tau, edit) = (said.threshold.unwrap_or(0.95), said.edit.unwrap_or(0.9));
    let (post, least) = (said.post.unwrap_or(16), said.fill.unwrap_or(1));
    let penalty = said.penalty.unwrap_or(0.0);
    let decoder = format!("edit:tau={tau},edit={edit},post={post},least={least},{confirm},penalty={penalty}");
    Ok(SessionOptions {
        block_length: Some(said.block_length.unwrap_or(32)),
        decoder: parsed(&decoder)?,
        cache: parsed("none")?,
        end_ids: vec![case.eos_id],
        stop: if said.stop { StopRule::Block } else { StopRule::Never },
        ..base
    })
}

fn freedave_block(said: &Said, case: &Case, base: SessionOptions) -> Result<SessionOptions, String> {
    // The rule that the released program verifies drafts by.
    let rule = if base.facts.mask == Mask::Full { "subset" } else { "exact" };
    let decoder = match (said.drafts, said.threshold) {
        (None, None) => "static".into(),
        (None, Some(tau)) => format!("threshold:tau={tau}"),
        (Some(d), tau) => {
            let tau = tau.map_or(String::new(), |tau| format!(",tau={tau}"));
            format!("freedave:mode=reference,d={d},eager={},rule={rule}{tau}", said.eager)
        }
    };
    Ok(SessionOptions {
        block_length: Some(said.block_length.unwrap_or(32)),
        decoder: decoder.parse().map_err(|error| format!("{error}"))?,
        remasking: match said.alg_temp {
            None | Some(0.0) => Remasking::LowConfidence,
            Some(-1.0) => Remasking::LeftToRight,
            Some(other) => return Err(format!("alg_temp {other} is not one of 0 and -1")),
        },
        stop: if said.early_exit { StopRule::WholeBlock } else { StopRule::Never },
        fill: case.eos_id,
        ..base
    })
}

fn guided(
    said: &Said,
    case: &Case,
    guide: Option<&ModelFacts>,
    base: SessionOptions,
) -> Result<SessionOptions, String> {
    let decoder = format!(
        "guided:match={},k={},tau={},verify={}",
        said.matching.unwrap_or("exact"),
        said.among.unwrap_or(5),
        said.share.unwrap_or(0.5),
        said.verify.unwrap_or(32)
    );
    Ok(SessionOptions {
        decoder: decoder.parse().map_err(|error| format!("{error}"))?,
        cache: said.cache.as_deref().unwrap_or("none").parse().map_err(|error| format!("{error}"))?,
        end_ids: vec![case.eos_id],
        stop: StopRule::PrefixFill,
        fill: case.eos_id,
        guide: Some(GuideOptions {
            facts: guide.ok_or("a case without a guider")?.clone(),
            end_ids: vec![case.eos_id],
            shared_vocabulary: true,
            text: None,
        }),
        ..base
    })
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{error}"))
}

/// FreeDave's loops without drafts.
fn freedave_full(said: &Said, case: &Case, base: SessionOptions) -> Result<SessionOptions, String> {
    let options = freedave_block(said, case, base)?;
    let cache = said.cache.as_deref().unwrap_or("prefix");
    Ok(SessionOptions { cache: parsed(&format!("{cache}:idle={}", options.facts.shift == 0))?, ..options })
}

/// Fast-dLLM's decoder and cache.
fn fast_methods(said: &Said, base: SessionOptions) -> Result<SessionOptions, String> {
    let SessionOptions { facts: ModelFacts { mask: Mask::Full, shift, .. }, .. } = base else {
        return Err("Fast-dLLM without full attention".into());
    };
    // Dream's confidences are those of the filtered distribution.
    let confidence = if shift == 1 { "tempered" } else { "clean" };
    let decoder = match (said.factor, said.threshold) {
        (Some(factor), _) => {
            let rule = said.factor_rule.as_deref().unwrap_or("code");
            format!("factor:f={factor},rule={rule},confidence={confidence}")
        }
        (None, Some(tau)) => format!("threshold:tau={tau},confidence={confidence}"),
        (None, None) => "static".into(),
    };
    let cache = match said.cache.as_deref() {
        None | Some("none") => "none".into(),
        // On Dream the loop looks first.
        Some(cache) => format!("{cache}:idle={}", shift == 0 && !said.test_first),
    };
    Ok(SessionOptions { decoder: parsed(&decoder)?, cache: parsed(&cache)?, ..base })
}

fn fastdllm(said: &Said, base: SessionOptions) -> Result<SessionOptions, String> {
    Ok(SessionOptions {
        block_length: Some(said.block_length.unwrap_or(128)),
        steps: Some(said.steps.unwrap_or(128)),
        ..fast_methods(said, base)?
    })
}

/// With a cache in blocks, without one over the whole response and with a ceiling.
fn fastdllm_dream(said: &Said, base: SessionOptions) -> Result<SessionOptions, String> {
    let options = SessionOptions {
        steps: Some(said.steps.unwrap_or(512)),
        confidence: ConfidenceOf::Drawn,
        ..fast_methods(said, base)?
    };
    match (&said.cache, said.threshold) {
        (Some(cache), threshold) if cache != "none" => Ok(SessionOptions {
            block_length: Some(said.block_length.unwrap_or(32)),
            schedule: Schedule::Dream,
            remasking: if threshold.is_some() { Remasking::LowConfidence } else { Remasking::Entropy },
            ..options
        }),
        (_, Some(tau)) => Ok(SessionOptions {
            block_length: said.gen_length,
            decoder: parsed(&format!("threshold:tau={tau},cap,confidence=tempered"))?,
            ..options
        }),
        (_, None) => Err("Fast-dLLM on Dream without blocks and without a threshold".into()),
    }
}

/// FlashDLM's samplers: LLaDA's and Dream's own, block after block.
fn freecache(said: &Said, case: &Case, base: SessionOptions) -> Result<SessionOptions, String> {
    let block = said.block_length.unwrap_or(256);
    let freeze = said.freeze.as_deref().unwrap_or("reference");
    let dream = base.facts.shift == 1;
    let run = said.run.unwrap_or(5);
    Ok(SessionOptions {
        block_length: Some(block),
        steps: Some(said.steps.unwrap_or(if dream { 512 } else { 128 })),
        schedule: if dream { Schedule::DreamTotal } else { Schedule::Even },
        confidence: if dream { ConfidenceOf::Drawn } else { ConfidenceOf::Raw },
        cache: parsed(&format!("freecache:block={block},freeze={freeze}"))?,
        stop: match (said.stop, dream) {
            (false, _) => StopRule::Never,
            (true, true) => StopRule::EndRun(run),
            (true, false) => StopRule::FillBehind,
        },
        fill: case.eos_id,
        ..base
    })
}
