//! The plans of each cache policy as text, on cases small enough to read.

use crate::common::{MASK_ID, drive, options, predict};
use demask_decode::{CanvasSpec, Session, SessionOptions, StopRule};
use demask_step::{BlendWith, Drift, Job, LayerRows, Mask, Probe};
use demask_testkit::{by_hand::ByHand, property};
use proptest::prelude::*;

/// The plans of a run in which position `p` is predicted as token 1, the leftmost the surest.
fn plans(options: SessionOptions) -> Vec<String> {
    let mut session = Session::new(options).unwrap();
    let mut plans = Vec::new();
    drive(&mut session, |_, requests| {
        plans.push(requests.iter().map(|request| request.plan.to_string()).collect::<Vec<_>>().join(" | "));
        requests.iter().map(|request| predict(request, |position| (1, 0.9 - position as f32 / 100.0))).collect()
    });
    plans
}

fn with(mut options: SessionOptions, decoder: &str, cache: &str, block_length: Option<usize>) -> SessionOptions {
    options.decoder = decoder.parse().unwrap();
    options.cache = cache.parse().unwrap();
    options.block_length = block_length;
    options
}

#[test]
fn none_on_full_attention_runs_everything_and_predicts_the_block() {
    let options = with(options(Mask::Full, 0, 3, 4), "static:steps=2", "none", Some(2));
    assert_eq!(
        plans(options),
        ["live 0..7 visible 7 full canvas predict 3..5", "live 0..7 visible 7 full canvas predict 5..7"]
    );
}

#[test]
fn none_predicts_only_masks() {
    let mut options = with(options(Mask::Full, 1, 0, 1), "static", "none", None);
    options.canvas = CanvasSpec::Infill { tokens: vec![1, MASK_ID, 2, MASK_ID, 3] };
    assert_eq!(
        plans(options),
        ["live 0..5 visible 5 full canvas predict 1,3", "live 0..5 visible 5 full canvas predict 3"]
    );
}

#[test]
fn none_on_block_causal_leaves_later_blocks_out() {
    let options = with(options(Mask::blocks(4), 0, 5, 5), "static:steps=4", "none", None);
    assert_eq!(
        plans(options),
        [
            "live 0..8 visible 8 block-causal:4 canvas predict 5..8",
            "live 0..8 visible 8 block-causal:4 canvas predict 7",
            "live 0..12 visible 12 block-causal:4 canvas predict 8..12",
            "live 0..12 visible 12 block-causal:4 canvas predict 10..12",
        ]
    );
}

#[test]
fn block_prefills_denoises_and_stores() {
    let of = |cache: &str| plans(with(options(Mask::blocks(4), 0, 9, 5), "static:steps=4", cache, None));
    assert_eq!(
        of("block"),
        [
            "live 0..12 visible 12 block-causal:4 canvas predict 9..12",
            "live 8..12 visible 12 block-causal:4 canvas predict 11",
            "live 8..16 visible 16 block-causal:4 canvas predict 12..16",
            "live 12..16 visible 16 block-causal:4 canvas predict 14..16",
        ]
    );
    assert_eq!(
        of("block:store=alone"),
        [
            "live 0..8 visible 8 block-causal:4 canvas",
            "live 8..12 visible 12 block-causal:4 canvas predict 9..12",
            "live 8..12 visible 12 block-causal:4 canvas predict 11",
            "live 8..12 visible 12 block-causal:4 canvas",
            "live 12..16 visible 16 block-causal:4 canvas predict 12..16",
            "live 12..16 visible 16 block-causal:4 canvas predict 14..16",
            "live 12..16 visible 16 block-causal:4 canvas",
        ]
    );
}

#[test]
fn stores_of_another_kind_than_a_decoders_forwards_have_are_refused() {
    let refused = |mask: Mask, seeds: bool, decoder: &str, cache: &str| {
        let mut options = with(options(mask, 0, 9, 5), decoder, cache, None);
        options.facts.blocks.seeds = seeds;
        Session::new(options).unwrap_err().to_string()
    };
    let blocks = Mask::blocks(4);
    let rolling = refused(blocks, false, "freedave:d=2", "block:store=alone");
    assert!(
        rolling.contains("stores blocks with store=fused, and cache block:store=alone says otherwise"),
        "{rolling}"
    );
    let reference = refused(blocks, false, "freedave:d=2,mode=reference", "block:store=fused");
    assert!(reference.contains("stores blocks with store=alone, and cache block:store=fused"), "{reference}");
    let seeds = refused(blocks, true, "threshold", "block:store=fused");
    assert!(seeds.contains("store=fused") && seeds.ends_with("omit store"), "{seeds}");
}

#[test]
fn block_length_overrides_the_blocks_of_the_attention() {
    let options = with(options(Mask::blocks(4), 0, 1, 2), "static:steps=2", "block:store=alone", Some(2));
    assert_eq!(
        plans(options),
        [
            "live 0..2 visible 2 block-causal:2 canvas predict 1",
            "live 0..2 visible 2 block-causal:2 canvas",
            "live 2..4 visible 4 block-causal:2 canvas predict 2..4",
            "live 2..4 visible 4 block-causal:2 canvas",
        ]
    );
}

#[test]
fn causal_reads_each_token_once() {
    let options = with(options(Mask::Causal, 1, 3, 3), "ar", "causal", None);
    assert_eq!(
        plans(options),
        [
            "live 0..3 visible 3 causal canvas predict 3",
            "live 3 visible 4 causal canvas predict 4",
            "live 4 visible 5 causal canvas predict 5",
        ]
    );
}

#[test]
fn causal_without_a_cache_reads_everything_again() {
    let options = with(options(Mask::Causal, 1, 2, 2), "ar", "none", None);
    assert_eq!(
        plans(options),
        ["live 0..2 visible 2 causal canvas predict 2", "live 0..3 visible 3 causal canvas predict 3"]
    );
}

/// The seed is the key of all randomness, that of the control experiment's rows too.
#[test]
fn rows_that_dllm_chooses_by_chance_depend_on_the_seed() {
    let keys = |seed| {
        let base = with(
            options(Mask::Full, 0, 4, 8),
            "static",
            "dllm:probe=random,response=4,count=forwards,rows=drift",
            None,
        );
        let mut keys = Vec::new();
        drive(&mut Session::new(SessionOptions { seed, ..base }).unwrap(), |_, requests| {
            if let LayerRows::Partial { probe: Some(Probe { by: Drift::Random { seed }, .. }), .. } =
                requests[0].plan.layers
            {
                keys.push(seed);
            }
            vec![predict(&requests[0], |position| (1, 1.0 / (1.0 + position as f32)))]
        });
        keys
    };
    assert!(!keys(1).is_empty());
    assert_eq!(keys(1), keys(1));
    assert_ne!(keys(1), keys(2));
}

#[test]
fn guidance_runs_the_same_rows_twice_and_asks_once() {
    let mut options = with(options(Mask::blocks(2), 0, 2, 2), "static:steps=1", "block:store=alone", None);
    options.cfg_scale = 1.5;
    assert_eq!(
        plans(options.clone()),
        [
            "live 0..2 visible 2 block-causal:2 canvas | live 0..2 visible 2 block-causal:2 canvas",
            "live 2..4 visible 4 block-causal:2 canvas predict 2..4 | live 2..4 visible 4 block-causal:2 canvas",
            "live 2..4 visible 4 block-causal:2 canvas | live 2..4 visible 4 block-causal:2 canvas",
        ]
    );
    let mut session = Session::new(options).unwrap();
    assert_eq!(session.needs().len(), 2);
    assert_eq!(session.needs()[1].limits.predictions, 0);
    let mut blends = Vec::new();
    drive(&mut session, |_, requests| {
        blends.push(requests[0].blend.map(|blend| (blend.scale, blend.with)));
        assert_eq!((requests[1].sequence, requests[1].blend), (1, None));
        assert!(
            requests[1].tokens.iter().zip(requests[1].plan.query.iter()).all(|(&token, place)| token != 0 || place > 1)
        );
        requests.iter().map(|request| predict(request, |_| (1, 0.5))).collect()
    });
    assert_eq!(blends, [None, Some((1.5, BlendWith::Behind(1))), None]);
    assert_eq!(session.counts().nfe, 3);
}

/// specs/caches.md#4.1: the trace worked out there. A token decoded in step `i` runs once more in step
/// `i + 1` and is kept from step `i + 2` on (K2, K3).
#[test]
fn caches_k3_dkv_keeps_what_was_decoded_two_steps_ago() {
    let options = with(options(Mask::Full, 0, 3, 4), "static", "dkv:refresh=8", Some(4));
    assert_eq!(
        plans(options),
        [
            "live 0..7 visible 7 full canvas predict 3..7",
            "live 0..7 visible 7 full canvas predict 4..7",
            "live 4..7 visible 7 full canvas predict 5..7",
            "live 5..7 visible 7 full canvas predict 6",
        ]
    );
}

/// K2: the first two forwards of each block are whole ones, and so is every one that is due.
#[test]
fn caches_k2_dkv_starts_anew_in_each_block() {
    let options = with(options(Mask::Full, 0, 1, 8), "static", "dkv:refresh=3", Some(4));
    assert_eq!(
        plans(options),
        [
            "live 0..9 visible 9 full canvas predict 1..5",
            "live 0..9 visible 9 full canvas predict 2..5",
            "live 2..9 visible 9 full canvas predict 3..5",
            "live 0..9 visible 9 full canvas predict 4",
            "live 0..9 visible 9 full canvas predict 5..9",
            "live 0..9 visible 9 full canvas predict 6..9",
            "live 6..9 visible 9 full canvas predict 7..9",
            "live 0..9 visible 9 full canvas predict 8",
        ]
    );
}

/// Under shift a row is kept once what it predicts is decoded: `un` keeps rows that are masks themselves.
#[test]
fn dkv_under_shift_goes_by_what_rows_predict() {
    let mut infill = options(Mask::Full, 1, 0, 1);
    infill.canvas = CanvasSpec::Infill { tokens: vec![1, 2, MASK_ID, MASK_ID, 3, MASK_ID, MASK_ID] };
    let decode = |cache| plans(with(infill.clone(), "static", cache, Some(5)));
    assert_eq!(
        decode("dkv:refresh=4"),
        [
            "live 0..7 visible 7 full canvas predict 2..4,5..7",
            "live 1..3,4..7 visible 7 full canvas predict 3,5..7",
            "live 2,4..6 visible 7 full canvas predict 5..7",
            "live 4..6 visible 7 full canvas predict 6",
        ]
    );
    // Row 3 is a mask until position 3 is decoded, whatever stands behind it.
    assert_eq!(
        decode("dkv:refresh=4,shift=un_right"),
        [
            "live 0..7 visible 7 full canvas predict 2..4,5..7",
            "live 1..7 visible 7 full canvas predict 3,5..7",
            "live 2..7 visible 7 full canvas predict 5..7",
            "live 4..7 visible 7 full canvas predict 6",
        ]
    );
}

/// K8: the prompt, less the row that predicts the first token, runs once.
#[test]
fn caches_k8_dkv_prefill_never_runs_the_prompt_again() {
    for (shift, prompt) in [(0, 3), (1, 2)] {
        let options = with(options(Mask::Full, shift, 3, 3), "static", "dkv:variant=prefill", Some(3));
        assert_eq!(
            plans(options),
            [
                "live 0..6 visible 6 full canvas predict 3..6".into(),
                format!("live {prompt}..6 visible 6 full canvas predict 4..6"),
                format!("live {prompt}..6 visible 6 full canvas predict 5"),
            ]
        );
    }
}

#[test]
fn dkv_pd_refreshes_all_but_the_prompt() {
    let options = with(options(Mask::Full, 1, 3, 5), "static", "dkv:variant=pd,refresh=3", Some(5));
    assert_eq!(
        plans(options),
        [
            "live 0..8 visible 8 full canvas predict 3..8",
            "live 2..8 visible 8 full canvas predict 4..8",
            "live 3..7 visible 8 full canvas predict 5..8",
            "live 2..8 visible 8 full canvas predict 6..8",
            "live 5..7 visible 8 full canvas predict 7",
        ]
    );
}

/// What is decoded, what was decoded, and the nearest masks around the former, left first; only that is predicted.
#[test]
fn dkv_greedy_runs_a_window_around_the_next_tokens() {
    let mut options =
        with(options(Mask::Full, 0, 2, 6), "static:steps=3", "dkv:variant=greedy,refresh=3,window=1", Some(6));
    options.remasking = "random".parse().unwrap();
    options.order = vec![4, 6, 7, 3, 2, 5];
    assert_eq!(
        plans(options.clone()),
        [
            "live 0..8 visible 8 full canvas predict 4,6",
            "live 2..8 visible 8 full canvas predict 3,7",
            "live 2..4,5,7 visible 8 full canvas predict 2,5",
        ]
    );
    options.cache = "dkv:variant=greedy,refresh=2,window=0".parse().unwrap();
    assert_eq!(
        plans(options),
        [
            "live 0..8 visible 8 full canvas predict 4,6",
            "live 3..5,6..8 visible 8 full canvas predict 3,7",
            "live 0..8 visible 8 full canvas predict 2,5",
        ]
    );
}

/// specs/caches.md#2.2: the trace of flags with intervals 3 and 2.
#[test]
fn dllm_follows_its_two_clocks() {
    let options = with(
        options(Mask::Full, 0, 4, 7),
        "static",
        "dllm:prompt=3,response=2,rho=0.5,count=forwards,rows=drift",
        Some(7),
    );
    assert_eq!(
        plans(options),
        [
            "live 0..11 visible 11 full canvas predict 4..11",
            "live 4..11 visible 11 full canvas compute none and 3 of 4..11 by value (layer 0: all) predict 5..11",
            "live 4..11 visible 11 full canvas predict 6..11",
            "live 0..11 visible 11 full canvas compute 0..4 and 3 of 4..11 by value (layer 0: all) predict 7..11",
            "live 4..11 visible 11 full canvas predict 8..11",
            "live 4..11 visible 11 full canvas compute none and 3 of 4..11 by value (layer 0: all) predict 9..11",
            "live 0..11 visible 11 full canvas predict 10",
        ]
    );
}

/// The row before the response predicts its first token and is only refreshed with the prompt: it is live as long as it
/// is asked, and never computed in between. With `boundary=before` it belongs to the response.
#[test]
fn dllm_under_shift_keeps_the_row_before_the_response_alive() {
    let right_to_left = |cache: &str| {
        let cache = format!("dllm:{cache},count=forwards,rows=drift");
        let mut options = with(options(Mask::Full, 1, 3, 3), "static", &cache, Some(3));
        options.remasking = "random".parse().unwrap();
        options.order = vec![5, 3, 4];
        plans(options)
    };
    assert_eq!(
        right_to_left("prompt=9,response=1,first_layer=same"),
        [
            "live 0..6 visible 6 full canvas predict 3..6",
            "live 2..6 visible 6 full canvas compute 3..6 predict 3..5",
            "live 3..6 visible 6 full canvas predict 4",
        ]
    );
    assert_eq!(
        right_to_left("prompt=2,response=9,rho=0"),
        [
            "live 0..6 visible 6 full canvas predict 3..6",
            "live 2..6 visible 6 full canvas compute none (layer 0: all) predict 3..5",
            "live 0..6 visible 6 full canvas compute 0..3 (layer 0: all) predict 4",
        ]
    );
    assert_eq!(
        right_to_left("prompt=9,response=2,rho=0.5,boundary=before,probe=k"),
        [
            "live 0..6 visible 6 full canvas predict 3..6",
            "live 2..6 visible 6 full canvas compute none and 2 of 2..6 by key (layer 0: all) predict 3..5",
            "live 2..6 visible 6 full canvas predict 4",
        ]
    );
}

/// Steps of a response that refresh all of it, of static decoding in two blocks of four.
fn refreshes(cache: &str) -> Vec<usize> {
    let cache = format!("dllm:prompt=99,rho=0,rows=drift,{cache}");
    let options = with(options(Mask::Full, 0, 2, 8), "static", &cache, Some(4));
    let plans = plans(options);
    (0..plans.len()).filter(|&step| !plans[step].contains("compute")).collect()
}

#[test]
fn dllm_counts_from_the_start_or_from_the_end() {
    assert_eq!(refreshes("response=3,count=forwards"), [0, 3, 6]);
    // Step 7 is number 1 of those counted down: 3 and 6 are steps 5 and 2.
    assert_eq!(refreshes("response=3,count=forwards,phase=down"), [0, 2, 5]);
    // One token a step: the same as forwards.
    assert_eq!(refreshes("response=3,count=tokens"), [0, 3, 6]);
}

#[test]
fn dllm_counts_tokens_where_forwards_commit_several() {
    let mut options =
        with(options(Mask::Full, 0, 2, 8), "static:steps=4", "dllm:response=4,count=tokens,rows=drift,rho=0", Some(8));
    let counted = plans(options.clone());
    assert_eq!(counted.iter().map(|plan| plan.contains("compute")).collect::<Vec<_>>(), [false, true, false, true]);
    options.cache = "dllm:response=4,count=forwards,rows=drift,rho=0".parse().unwrap();
    assert!(plans(options)[1..].iter().all(|plan| plan.contains("compute")));
}

#[test]
fn dllm_computes_the_block_that_is_decoded() {
    let options = with(options(Mask::Full, 0, 2, 8), "static", "dllm:response=9,rho=0.5", Some(4));
    let plans = plans(options);
    assert!(plans[1].contains("compute 2..6 and 0 of 6..10 by value"), "{}", plans[1]);
    // The next block's first forward computes the token that ended the one before.
    assert!(plans[4].contains("compute 5..10 and 0 of 2..5 by value"), "{}", plans[4]);
    assert!(plans[5].contains("compute 6..10 and 0 of 2..6 by value"), "{}", plans[5]);
}

/// A block that is longer than the share of the response is computed in each forward as a whole, however long it is: its
/// hardest tokens, which come last, are not read off rows that saw masks.
#[test]
fn dllm_computes_all_of_a_block_that_is_longer_than_the_share() {
    let run = |rho: &str, block| {
        plans(with(options(Mask::Full, 0, 2, 8), "static", &format!("dllm:response=9,rho={rho}"), Some(block)))
    };
    // One block: as if the response was refreshed in each forward.
    let one = run("0.25", 8);
    assert!(one[1..].iter().all(|plan| plan.contains("compute 2..10 and 0 of none by value")), "{one:?}");
    let half = run("0.25", 4);
    assert!(half[1..4].iter().all(|plan| plan.contains("compute 2..6 and 0 of 6..10 by value")), "{half:?}");
    assert!(half[4].contains("compute 5..10 and 0 of 2..5 by value"), "{}", half[4]);
    assert!(run("0", 8)[1].contains("compute 2..10 "), "{}", run("0", 8)[1]);
    // A share as long as the block is the same: records of it are records of the default.
    assert_eq!((one, half), (run("1", 8), run("0.5", 4)));
    // What was released is what it was.
    let released = plans(with(
        options(Mask::Full, 0, 2, 8),
        "static",
        "dllm:prompt=50,response=7,count=forwards,rows=drift",
        Some(8),
    ));
    assert!(released[1].contains("compute none and 2 of 2..10 by value"), "{}", released[1]);
}

#[test]
fn dllm_says_which_rule_chooses_its_rows() {
    let rule = |cache: &str, block| {
        Session::new(with(options(Mask::Full, 0, 2, 64), "static", cache, Some(block))).unwrap().cache_rule()
    };
    for (cache, block, expected) in [
        (
            "dllm",
            16,
            "the block's 16 rows are computed in each forward, and what has drifted most, up to 16 of the response's 64 rows (rho)",
        ),
        (
            "dllm",
            32,
            "the block's 32 rows are computed in each forward, which are more than the share of 16 of the response's 64 rows (rho)",
        ),
        ("dllm", 64, "the block is the whole response, whose 64 rows are computed in each forward"),
        (
            "dllm:prompt=50,response=7,count=forwards,rows=drift",
            32,
            "what has drifted most is computed between refreshes, 16 of the response's 64 rows (rho)",
        ),
    ] {
        assert_eq!(rule(cache, block).as_deref(), Some(expected));
    }
    assert_eq!(rule("dual", 32), None);
}

#[test]
fn dllm_counts_down_only_where_the_number_of_steps_is_fixed() {
    let refusal = |decoder: &str, cache: &str| {
        Session::new(with(options(Mask::Full, 0, 2, 8), decoder, cache, Some(4))).unwrap_err().to_string()
    };
    let told = refusal("threshold", "dllm:phase=down,count=forwards");
    assert!(told.ends_with("phase=down belongs to decoder static, whose number of steps is fixed: omit it"), "{told}");
    let told = refusal("static", "dllm:phase=down,count=tokens");
    assert!(told.ends_with("phase=down belongs to count=forwards: omit it"), "{told}");
}

/// The count of chosen rows is the truncated product in f64, and 0 compares nothing only where the share is 0.
#[test]
fn dllm_counts_as_released() {
    for (length, rho, count) in [(100, "0.29", 28), (24, "0.34", 8), (3, "0.25", 0), (8, "0.1", 0), (5, "1", 5)] {
        let cache = format!("dllm:response=9,count=forwards,rows=drift,rho={rho}");
        let plans = plans(with(options(Mask::Full, 0, 2, length), "static:steps=2", &cache, Some(length)));
        let end = 2 + length;
        assert!(plans[1].contains(&format!("compute none and {count} of 2..{end} by value")), "{}", plans[1]);
    }
}

proptest! {
    #![proptest_config(property::cases(200))]

    /// T5: refreshes of prompt and response over all blocks, `ceil(steps / interval)` each.
    #[test]
    fn caches_t5_dllm_counts_steps_over_all_blocks(
        (start, block, blocks) in (1usize..5, 1usize..9, 1usize..5),
        (prompt, response, rho) in (1usize..30, 1usize..30, 0.0f32..1.0),
    ) {
        let steps = block * blocks;
        let cache = format!("dllm:prompt={prompt},response={response},rho={rho},count=forwards,rows=drift,first_layer=same");
        let mut options = with(options(Mask::Full, 0, start, steps), "static", &cache, Some(block));
        options.stop = StopRule::Never;
        let (mut whole_prompts, mut whole_responses) = (0, 0);
        drive(&mut Session::new(options).unwrap(), |_, requests| {
            let plan = &requests[0].plan;
            whole_prompts += usize::from(plan.query.first() == Some(0));
            let computes = |position| match &plan.layers {
                LayerRows::All => plan.query.contains(position),
                LayerRows::Partial { compute, .. } => compute.contains(position),
            };
            whole_responses += usize::from((start as u32..(start + steps) as u32).all(computes));
            requests.iter().map(|request| predict(request, |position| (1, 0.9 - position as f32 / 100.0))).collect()
        });
        prop_assert_eq!(whole_prompts, steps.div_ceil(prompt));
        prop_assert_eq!(whole_responses, steps.div_ceil(response));
    }
}

/// A random choice is another one in each forward, and the same in each run.
#[test]
fn dllm_rolls_anew_in_each_forward() {
    let seeds = || {
        let options = with(options(Mask::Full, 0, 2, 6), "static", "dllm:response=9,rows=drift,probe=random", Some(6));
        let mut seeds = Vec::new();
        drive(&mut Session::new(options).unwrap(), |_, requests| {
            if let LayerRows::Partial { probe: Some(Probe { by: Drift::Random { seed }, keep, rows }), .. } =
                &requests[0].plan.layers
            {
                assert_eq!((*keep, rows.to_string().as_str()), (1, "2..8"));
                seeds.push(*seed);
            }
            requests.iter().map(|request| predict(request, |_| (1, 0.5))).collect()
        });
        seeds
    };
    let mut first = seeds();
    assert_eq!((first.len(), &first), (5, &seeds()));
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), 5);
}

/// The unconditional pass runs in the first five forwards and then at its interval, with clocks of its own; the last
/// pass before a gap reads every mask, so that its difference is there wherever the next forwards decode.
#[test]
fn dllm_guides_at_an_interval() {
    let mut options = with(
        options(Mask::Full, 0, 2, 8),
        "static",
        "dllm:prompt=4,response=2,count=forwards,rows=drift,cfg=3",
        Some(4),
    );
    options.cfg_scale = 1.0;
    let mut session = Session::new(options.clone()).unwrap();
    assert_eq!((session.needs()[0].limits.residual, session.needs()[1].limits.residual), (true, false));
    let (mut passes, mut hints, mut twins) = (Vec::new(), Vec::new(), Vec::new());
    drive_guided(&mut session, |requests| {
        passes.push(requests.len() == 2);
        hints.push(requests[0].plan.hint.to_string());
        let stored = requests[0].blend.unwrap().with == BlendWith::Stored;
        assert_eq!(stored, requests.len() == 1);
        twins.extend(requests.get(1).map(|request| request.plan.to_string()));
    });
    assert_eq!(passes, [true, true, true, true, true, false, true, false]);
    assert_eq!(hints, ["none", "none", "none", "none", "6..10", "none", "8..10", "none"]);
    assert_eq!(session.counts().nfe, 8 + 6);
    // The sixth pass, in forward 6: its own clock says 5.
    let partial = "live 2..10 visible 10 full canvas compute none and 2 of 2..10 by value (layer 0: all)";
    assert_eq!(twins[5], partial);
    assert_eq!(twins[4], "live 0..10 visible 10 full canvas");
    options.cfg_scale = 0.0;
    assert!(!Session::new(options).unwrap().needs()[0].limits.residual, "no guidance, nothing stored");
}

fn drive_guided(session: &mut Session, mut look: impl FnMut(&[demask_step::ForwardInput])) {
    while session.wants() == Some(0) {
        look(session.requests());
        let left = |position: u32| (1, 0.9 - position as f32 / 100.0);
        let answers: Vec<_> = session.requests().iter().map(|request| predict(request, left)).collect();
        session.feed(&answers);
    }
}
