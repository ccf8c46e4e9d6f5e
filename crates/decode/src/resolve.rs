//! Resolution of options into lengths, steps and the first canvas: every refusal is made here, before anything runs.

use demask_step::{Mask, MaskKind, Position, TokenId};

use crate::{
    canvas::Canvas,
    constraint::Enforcer,
    error::{self, OptionsError},
    facts::{CanvasSpec, ModelFacts},
    layout::Layout,
    legality,
    method::{DecoderTraits, SessionOptions, Setup},
    schedule::{Clock, Schedule},
};

/// Length that blocks are fitted to if none is set: LLaDA's and Fast-dLLM's usual one.
const USUAL_BLOCK: usize = 32;

/// Steps that a mask may have on average: official programs have up to a few times as many steps as masks, some of which take
/// nothing (specs/caches.md#1.3), and beyond that they would run for ever.
const STEPS_OF_A_MASK: usize = 8;
/// Steps that any canvas may have, however short it is.
const FEW_STEPS: usize = 64;

/// Options that fit together.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub layout: Layout,
    pub clock: Clock,
    pub canvas: Canvas,
    /// Steps over all blocks.
    pub steps: usize,
    /// No session runs more forwards than this.
    pub most_forwards: usize,
    /// The constraint on this canvas.
    pub enforcer: Option<Enforcer>,
}

/// Refuses what no session can be made of.
pub(crate) fn check(options: &SessionOptions) -> Result<(), OptionsError> {
    legality::check_decoder(options)?;
    let (options, _) = options.clone().decoded();
    let Resolved { layout, clock, steps, .. } = resolve(&options)?;
    let ranking = options.ranking();
    Setup { layout: &layout, clock: &clock, steps, ranking: &ranking, options: &options }.check()
}

/// Checks all options and chooses those that were not given.
pub(crate) fn resolve(options: &SessionOptions) -> Result<Resolved, OptionsError> {
    let facts = &options.facts;
    let attention = facts.mask.kind();
    check_numbers(options)?;
    legality::check(options)?;
    check_tokens(options, attention)?;

    let steps = given_steps(options)?;
    let mut layout = layout(options, attention, steps)?;
    legality::check_guide(options)?;
    let needed = layout.len();
    if needed > facts.context {
        return Err(error::context(needed, facts.context));
    }
    let (CanvasSpec::Prompt { tokens, .. } | CanvasSpec::Infill { tokens }) = &options.canvas;
    let canvas = Canvas::with_tail(tokens, needed, &options.tail, facts.mask_id);
    // Steps that both name are the same.
    let option = if options.steps.is_some() { "steps" } else { "decoder" };
    check_steps(steps, canvas.masks(), option)?;
    let (blocks, most_masks) = masked_blocks(&layout, &canvas);
    let per_block = match steps {
        Some(steps) if steps % blocks != 0 => {
            let nearest = nearest_multiple(steps, blocks);
            let text =
                format!("{steps} steps do not divide over {blocks} blocks: try {nearest}, or another block length");
            return Err(error::value(option, text));
        }
        Some(steps) => steps / blocks,
        None if facts.mask.block().is_some() => layout.block_length(),
        None => most_masks,
    };
    let whole = attention == MaskKind::BlockCausal && !facts.blocks.shares_masks;
    let share_of = whole.then_some(layout.block_length());
    let clock = Clock { schedule: options.schedule, steps: per_block, eps: options.eps, share_of };
    // A step past the schedule takes at least one token; maintenance is one forward a block and a prefill.
    let DecoderTraits { idle, revises, .. } = options.traits();
    let more = layout.block_length().saturating_add(3 + revises.unwrap_or(0));
    let forwards = layout.blocks().saturating_mul(per_block.saturating_add(more)) + 2;
    let most_forwards = forwards.saturating_mul(1 + idle);
    if let Some(most) = options.max_tokens {
        layout.ask_for(most.max(1));
    }
    options.adjustments.check(facts.vocab, layout.gen_length())?;
    let enforcer = enforcer(options, &canvas, &layout)?;
    Ok(Resolved { layout, clock, canvas, steps: per_block.saturating_mul(blocks), most_forwards, enforcer })
}

/// Holds the constraint on the canvas, and refuses it where nothing completes the given tokens.
fn enforcer(options: &SessionOptions, canvas: &Canvas, layout: &Layout) -> Result<Option<Enforcer>, OptionsError> {
    let Some(constraint) = options.constraint.clone() else { return Ok(None) };
    let in_holes = matches!(options.canvas, CanvasSpec::Infill { .. });
    let revises = options.traits().revises.is_some();
    let enforcer = Enforcer::new(constraint, (canvas, layout), in_holes, revises, options.facts.vocab);
    if enforcer.is_blind() {
        return Err(error::value(
            "constraint",
            "the constraint has too many states for a tokenizer that has no token for some byte: ask for a smaller one",
        ));
    }
    match enforcer.impossible(canvas) {
        None => Ok(Some(enforcer)),
        Some((place, needed)) => Err(error::impossible(place.len(), needed)),
    }
}

fn check_numbers(options: &SessionOptions) -> Result<(), OptionsError> {
    let not_negative = |found: f32| found.is_finite() && found >= 0.0;
    let checks = [
        ("temperature", options.temperature, not_negative(options.temperature), "a number from 0 on; 0 is greedy"),
        ("alg_temp", options.alg_temp, not_negative(options.alg_temp), "a number from 0 on; 0 is the best first"),
        ("cfg_scale", options.cfg_scale, not_negative(options.cfg_scale), "a number from 0 on; 0 is no guidance"),
        ("top_p", options.top_p, options.top_p > 0.0 && options.top_p <= 1.0, "a number above 0 up to 1; 1 keeps all"),
        ("min_p", options.min_p, (0.0..=1.0).contains(&options.min_p), "a number from 0 to 1; 0 keeps all"),
        ("eps", options.eps, options.eps > 0.0 && options.eps < 1.0, "a number between 0 and 1, for example 0.001"),
    ];
    for (name, found, right, expected) in checks {
        if !right {
            return Err(error::value(name, format_args!("`{name}` is {found}, expected {expected}")));
        }
    }
    Ok(())
}

fn check_tokens(options: &SessionOptions, attention: MaskKind) -> Result<(), OptionsError> {
    let ModelFacts { mask_id, vocab, .. } = options.facts;
    let within = |what, tokens: &[TokenId]| match tokens.iter().find(|&&token| token as usize >= vocab) {
        Some(&token) => Err(error::token_out_of_range(what, token, vocab)),
        None => Ok(()),
    };
    let (CanvasSpec::Prompt { tokens, .. } | CanvasSpec::Infill { tokens }) = &options.canvas;
    within("token", tokens)?;
    within("token behind the response", &options.tail)?;
    if attention != MaskKind::Full && !options.tail.is_empty() {
        return Err(error::unfit(format_args!(
            "tokens behind the response are for models with full attention, found {attention}: leave the tail \
             empty"
        )));
    }
    within("suppressed token", &options.suppress)?;
    within("muted token", &options.zero_confidence)?;
    within("mask id", mask_id.as_slice())?;
    if attention == MaskKind::Causal {
        if options.cfg_scale > 0.0 {
            return Err(error::unfit(
                "classifier-free guidance hides the prompt behind masks, and a model with causal attention has \
                 none: set the scale to 0",
            ));
        }
        if tokens.is_empty() {
            return Err(error::unfit(
                "the prompt is empty, expected at least one token for an autoregressive model: start with its bos \
             token",
            ));
        }
        return mask_id.map_or(Ok(()), |mask_id| check_prompt(tokens, mask_id, "remove it"));
    }
    if options.facts.blocks.seeds && options.cfg_scale > 0.0 {
        return Err(error::seeds("guidance", "omit cfg_scale"));
    }
    let Some(mask_id) = mask_id else {
        return Err(error::unfit(format_args!(
            "the model names no mask token and {attention} needs one: give the mask id in the model's \
             configuration"
        )));
    };
    if options.tail.contains(&mask_id) {
        return Err(error::unfit(format_args!(
            "the tokens behind the response hold the mask (token {mask_id}), expected fixed ones: ask for more \
             tokens"
        )));
    }
    match &options.canvas {
        CanvasSpec::Prompt { tokens, .. } => check_prompt(tokens, mask_id, "remove it, or use infilling"),
        CanvasSpec::Infill { tokens } if !tokens.contains(&mask_id) => Err(error::unfit(format_args!(
            "nothing to fill in, expected at least one mask (token {mask_id}): put masks where text is wanted"
        ))),
        CanvasSpec::Infill { .. } => Ok(()),
    }
}

/// Refuses masks in a prompt.
fn check_prompt(tokens: &[TokenId], mask_id: TokenId, try_instead: &str) -> Result<(), OptionsError> {
    match tokens.iter().position(|&token| token == mask_id) {
        Some(position) => Err(error::unfit(format_args!(
            "the prompt holds the mask token ({mask_id}) at position {position}, expected text only: {try_instead}"
        ))),
        None => Ok(()),
    }
}

/// The number of steps, if it is given at all: as an option or by the decoder.
fn given_steps(options: &SessionOptions) -> Result<Option<usize>, OptionsError> {
    let by_decoder = options.traits().steps;
    match (options.steps, by_decoder) {
        (Some(0), _) => {
            Err(error::unfit("the number of steps is 0, expected at least 1: omit it for one token a step"))
        }
        (Some(option), Some(decoder)) if option != decoder => Err(error::value(
            "decoder",
            format_args!(
                "steps is {option} and the decoder says steps={decoder}, expected one number: give only one of them"
            ),
        )),
        (option, decoder) => Ok(option.or(decoder)),
    }
}

/// Refuses more steps than the masks can use: each is a forward.
fn check_steps(steps: Option<usize>, masks: usize, option: &'static str) -> Result<(), OptionsError> {
    let most = masks.saturating_mul(STEPS_OF_A_MASK).max(FEW_STEPS);
    match steps {
        Some(steps) if steps > most => Err(error::value(
            option,
            format_args!(
                "{steps} steps for {masks} masks, expected at most {most}: a step that takes no token is a forward for \
             nothing"
            ),
        )),
        _ => Ok(()),
    }
}

fn layout(options: &SessionOptions, attention: MaskKind, steps: Option<usize>) -> Result<Layout, OptionsError> {
    if options.block_length == Some(0) {
        return Err(error::unfit("the block length is 0, expected at least 1: omit it to have it chosen"));
    }
    let (prompt, gen_length) = lengths(options, attention)?;
    match options.facts.mask {
        Mask::Causal if options.block_length.is_some() => Err(not_for_autoregressive("the block length")),
        Mask::Causal if steps.is_some_and(|steps| steps != gen_length) => {
            Err(not_for_autoregressive("the number of steps"))
        }
        Mask::Causal => Ok(Layout::causal(prompt, gen_length)),
        mask @ (Mask::BlockCausal { .. } | Mask::Context { .. }) => {
            let block = options.block_length.map(|length| Position::try_from(length).unwrap_or(Position::MAX));
            let block = block.or(mask.block()).unwrap_or(1);
            let mask = match mask {
                Mask::Context { context, .. } => Mask::Context { context, block },
                _ => Mask::blocks(block),
            };
            Ok(Layout::blocks_of(prompt, gen_length, mask, options.facts.blocks))
        }
        Mask::Full => {
            let block = full_block(options, gen_length, steps)?;
            Ok(Layout::full(prompt, prompt + gen_length, block).with_tail(options.tail.len()))
        }
    }
}

/// A number of diffusion decoding, given to a causal model.
fn not_for_autoregressive(what: &str) -> OptionsError {
    error::unfit(format_args!("{what} has no meaning for autoregressive decoding (one token a forward): omit it"))
}

/// Returns the start of the response, and its length.
fn lengths(options: &SessionOptions, attention: MaskKind) -> Result<(usize, usize), OptionsError> {
    let available = options.facts.context;
    match &options.canvas {
        CanvasSpec::Prompt { gen_length: 0, .. } => {
            Err(error::unfit("the generation length is 0, expected at least 1: ask for more tokens"))
        }
        CanvasSpec::Prompt { tokens, gen_length } => {
            // Refused before anything is sized by it.
            let needed = tokens.len().saturating_add(*gen_length);
            if needed > available { Err(error::context(needed, available)) } else { Ok((tokens.len(), *gen_length)) }
        }
        CanvasSpec::Infill { .. } if attention != MaskKind::Full => Err(error::unfit(format_args!(
            "infilling needs full attention, found a model with {attention}: use a LLaDA or Dream model"
        ))),
        CanvasSpec::Infill { tokens } => {
            let first = tokens.iter().position(|&token| Some(token) == options.facts.mask_id).unwrap_or(0);
            Ok((first, tokens.len() - first))
        }
    }
}

/// The block length under full attention.
fn full_block(options: &SessionOptions, gen_length: usize, steps: Option<usize>) -> Result<usize, OptionsError> {
    let infill = matches!(options.canvas, CanvasSpec::Infill { .. });
    let revises = options.traits().revises.is_some();
    // Samplers that know no blocks.
    let whole = matches!(options.schedule, Schedule::Dream | Schedule::Rnd1);
    match options.block_length {
        // Nobody chooses the length of an infill canvas: its last block may be short.
        // The linear schedule's own loop ends with a short block, too (specs/families.md#3).
        Some(block_length)
            if infill || options.schedule == Schedule::Linear || gen_length.is_multiple_of(block_length) =>
        {
            Ok(block_length.min(gen_length))
        }
        Some(block_length) => {
            let nearest = divisors(gen_length).min_by_key(|divisor| divisor.abs_diff(block_length)).unwrap_or(1);
            Err(error::unfit(format_args!(
                "block length {block_length} does not divide the generation length {gen_length}: try {nearest}"
            )))
        }
        // Drafts reach as far as their block does, and the guide says how far they are good; tokens are taken back all over
        // the response.
        None if whole || options.guide.is_some() || revises => Ok(gen_length),
        None if infill && steps.is_none() => Ok(USUAL_BLOCK.min(gen_length)),
        None if infill => Ok(gen_length),
        None => Ok(fitted_block(gen_length, steps)),
    }
}

/// The divisor of `gen_length` nearest to the usual block, as a ratio, over which `steps` can be shared; `gen_length`
/// itself always fits.
fn fitted_block(gen_length: usize, steps: Option<usize>) -> usize {
    let distance = |block: usize| (block.max(USUAL_BLOCK) << 16) / block.min(USUAL_BLOCK);
    let shared = |block: &usize| steps.is_none_or(|steps| steps % (gen_length / block) == 0);
    divisors(gen_length).filter(shared).min_by_key(|&block| distance(block)).unwrap_or(gen_length)
}

fn divisors(number: usize) -> impl Iterator<Item = usize> {
    (1..=number).filter(move |divisor| number.is_multiple_of(*divisor))
}

fn nearest_multiple(number: usize, of: usize) -> usize {
    (number.saturating_add(of / 2) / of).max(1).saturating_mul(of)
}

/// The number of blocks with masks, and the most masks of one.
fn masked_blocks(layout: &Layout, canvas: &Canvas) -> (usize, usize) {
    let masks = (0..layout.blocks()).map(|block| canvas.masks_in(layout.block(block)));
    let (blocks, most) =
        masks.filter(|&masks| masks > 0).fold((0, 0), |(blocks, most), masks| (blocks + 1, most.max(masks)));
    (blocks.max(1), most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_blocks_divide_and_share_the_steps() {
        let stride = if cfg!(miri) { 37 } else { 1 };
        for gen_length in (1..300).step_by(stride) {
            let block = fitted_block(gen_length, None);
            assert_eq!(gen_length % block, 0);
            for steps in [1, 7, gen_length, 2 * gen_length] {
                let block = fitted_block(gen_length, Some(steps));
                assert_eq!((gen_length % block, steps % (gen_length / block)), (0, 0), "{gen_length} {steps}");
            }
        }
        assert_eq!(
            [16, 32, 37, 64, 128, 127, 60].map(|length| fitted_block(length, None)),
            [16, 32, 37, 32, 32, 127, 30]
        );
        assert_eq!(fitted_block(64, Some(3)), 64);
    }

    #[test]
    fn steps_are_bounded_by_what_the_masks_can_use() {
        for (steps, masks) in [(None, 8), (Some(1), 8), (Some(64), 1), (Some(512), 64), (Some(800), 100)] {
            assert_eq!(check_steps(steps, masks, "steps"), Ok(()));
        }
        for (steps, masks, most) in [(65, 8, 64), (usize::MAX, 8, 64), (801, 100, 800), (1 << 31, 64, 512)] {
            let option = "decoder";
            let refused = check_steps(Some(steps), masks, option).unwrap_err();
            let told = format!("{steps} steps for {masks} masks, expected at most {most}: ");
            assert!(refused.to_string().starts_with(&told) && refused.option() == Some(option), "{refused}");
        }
    }

    #[test]
    fn multiples_are_the_nearest() {
        assert_eq!([(1, 4), (5, 4), (6, 4), (7, 4)].map(|(number, of)| nearest_multiple(number, of)), [4, 4, 8, 8]);
    }
}
