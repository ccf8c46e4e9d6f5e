//! Released shapes: what their configurations say of the models.

use demask::costs::{model_shape::ModelShape, shapes::Like};
use demask::{Options, Prompt, Settings};
use demask_checkpoint::CheckpointText;
use demask_model::{RopeScaling, expected_tensors};
use demask_step::Mask;
use demask_tensor::{ExpertGroups, ExpertShape, RouterRule, Score, Share};

fn text(name: &str) -> CheckpointText {
    name.parse::<Like>().unwrap().text(None).unwrap()
}

/// Numbers of parameters and tensors of the released shapes of 2026's dense families, by their layers' widths.
#[test]
fn dense_families_of_2026_have_the_released_numbers() {
    let cases = [
        ("stable-diffcoder-8b", 8_250_462_208, 291),
        ("open-dcoder-0.5b", 494_032_768, 290),
        ("a2d-qwen2.5-coder-0.5b", 494_032_768, 290),
        ("a2d-qwen3-0.6b", 596_049_920, 310),
        ("fast-dllm-v2-1.5b", 1_543_714_304, 338),
        ("fast-dllm-v2-7b", 7_615_616_512, 339),
        ("nemotron-labs-diffusion-3b", 3_831_659_520, 237),
        ("nemotron-labs-diffusion-8b", 8_489_553_920, 309),
    ];
    for (name, parameters, tensors) in cases {
        let spec = text(name).spec;
        assert_eq!(spec.parameters(), parameters, "{name}");
        assert_eq!(expected_tensors(&spec).len(), tensors, "{name}");
    }
}

#[test]
fn dense_families_of_2026_are_read_by_their_own_rules() {
    let coder = text("stable-diffcoder-8b");
    assert_eq!((coder.spec.attention, coder.spec.shift, coder.special.mask), (Mask::blocks(4), 0, Some(5)));
    let fast = text("fast-dllm-v2-7b");
    assert_eq!((fast.spec.attention, fast.spec.shift, fast.special.mask), (Mask::blocks(32), 1, Some(151_665)));
    assert!(fast.spec.blocks.seeds && !fast.spec.blocks.ends_short && !fast.spec.tied);
    let open = text("open-dcoder-0.5b");
    assert_eq!((open.spec.attention, open.spec.shift, open.special.mask), (Mask::Full, 1, Some(151_665)));
    let small = text("a2d-qwen3-0.6b");
    assert_eq!((small.spec.attention, small.spec.shift, small.special.mask), (Mask::Full, 0, Some(151_669)));
    let by_pass = text("nemotron-labs-diffusion-8b").spec;
    assert_eq!(by_pass.attention, Mask::Context { context: 0, block: 32 });
    let yarn = RopeScaling::Yarn {
        factor: 16.0,
        original_context: 16384.0,
        fast: 32.0,
        slow: 1.0,
        whole: true,
        amplitude: 1.0,
    };
    assert_eq!((by_pass.rope.scaling, by_pass.query_width()), (yarn, 4096));
    assert_eq!(by_pass.query_scale.map(|scale| (scale.beta, scale.original_context)), Some((0.1, 16384.0)));
}

#[test]
fn qwen3_and_i_dlm_are_causal_and_have_a_mask_to_guess_at() {
    for (name, layers, hidden, tied) in
        [("qwen3-1.7b", 28, 2048, true), ("qwen3-8b", 36, 4096, false), ("i-dlm-8b", 36, 4096, false)]
    {
        let found = text(name);
        let ends = (found.special.mask, found.special.eos);
        assert_eq!(
            (found.spec.attention, found.spec.shift, ends),
            (Mask::Causal, 1, (Some(151_669), Some(151_645))),
            "{name}"
        );
        let widths = (found.spec.layers, found.spec.hidden, found.spec.context, found.spec.tied);
        assert_eq!(widths, (layers, hidden, 40_960, tied), "{name}");
        let outline = ModelShape::of_shape(name.parse().unwrap(), Some(1)).unwrap();
        assert_eq!(outline.info().family().name(), if name == "i-dlm-8b" { "I-DLM" } else { "Qwen3" });
    }
}

#[test]
fn families_with_experts_are_read_by_their_own_rules() {
    let llada = text("llada-moe-7b-a1b");
    assert_eq!((llada.spec.attention, llada.spec.shift, llada.special.mask), (Mask::Full, 0, Some(156_895)));
    let experts = llada.spec.experts.unwrap();
    assert_eq!(experts.shape, ExpertShape { count: 64, per_row: 8, ffn: 1024, shared_ffn: 0 });
    let plain = RouterRule { score: Score::Softmax, groups: None, share: Share::Whole, scale: 1.0 };
    assert_eq!((experts.rule, experts.biased, experts.dense.len()), (plain, false, 0));
    let sdar = text("sdar-30b-a3b");
    assert_eq!((sdar.spec.attention, sdar.spec.shift, sdar.special.mask), (Mask::blocks(4), 0, Some(151_669)));
    let experts = sdar.spec.experts.unwrap();
    assert_eq!(experts.shape, ExpertShape { count: 128, per_row: 8, ffn: 768, shared_ffn: 0 });
    assert_eq!(experts.rule, RouterRule { share: Share::OfChosen(0.0), ..plain });
    let rnd1 = text("rnd1-30b-a3b");
    assert_eq!((rnd1.spec.attention, rnd1.spec.shift, rnd1.special.mask), (Mask::Full, 1, Some(151_669)));
    assert_eq!((rnd1.spec.experts, rnd1.special.eos), (Some(experts), Some(151_645)));
    for name in ["llada2.0-mini", "llada2.1-mini"] {
        let mini = text(name);
        assert_eq!((mini.spec.attention, mini.spec.shift, mini.special.mask), (Mask::blocks(32), 0, Some(156_895)));
        assert_eq!((mini.spec.rope.rotated, mini.spec.head_dim), (64, 128));
        let experts = mini.spec.experts.unwrap();
        assert_eq!(experts.shape, ExpertShape { count: 256, per_row: 8, ffn: 512, shared_ffn: 512 });
        let groups = Some(ExpertGroups { count: 8, selected: 4 });
        let rule = RouterRule { score: Score::Sigmoid, groups, share: Share::OfChosen(1e-20), scale: 2.5 };
        assert_eq!((experts.rule, experts.biased, experts.dense), (rule, true, vec![0]));
    }
}

#[test]
fn naming_one_method_or_none_leaves_the_other_recommended() {
    let by_pass = [
        ("", "threshold:tau=0.9, cache block"),
        ("decoder ar", "ar, cache causal"),
        ("cache causal", "ar, cache causal"),
        ("decoder selfspec", "selfspec:block=32,tau=0, cache causal"),
    ];
    let own = [
        ("", "static, cache none"),
        ("cache dual", "static, cache dual"),
        ("decoder static", "static, cache none"),
        ("decoder threshold", "threshold:tau=0.9, cache dual"),
    ];
    let check = |like: &str, expected: &[(&str, &str)]| {
        let outline = ModelShape::of_shape(like.parse().unwrap(), Some(1)).unwrap();
        for (given, expected) in expected {
            let mut options = Options { gen_length: Some(32), ..Options::default() };
            for (name, value) in given.split(';').filter_map(|pair| pair.split_once(' ')) {
                options.set(name, value).unwrap();
            }
            let prepared = outline.info().prepare(&Prompt::Tokens(vec![5, 6, 7]), &options).unwrap();
            let receipt = prepared.session().unwrap().receipt();
            assert_eq!(format!("{}, cache {}", receipt.decoder, receipt.cache), *expected, "{like} with {given:?}");
        }
        let (decoder, cache) = outline.info().default_methods();
        assert_eq!(format!("{decoder}, cache {cache}"), expected[0].1);
    };
    check("nemotron-labs-diffusion-3b", &by_pass);
    check("rnd1-30b-a3b", &own);
}

#[test]
fn recommended_lengths_are_the_family_s() {
    for (like, expected) in [
        ("llada-8b", 256),
        ("dream-7b", 512),
        ("llada-moe-7b-a1b", 128),
        ("a2d-qwen3-0.6b", 128),
        ("open-dcoder-0.5b", 512),
        ("sdar-4b", 128),
        ("rnd1-30b-a3b", 256),
    ] {
        let outline = ModelShape::of_shape(like.parse().unwrap(), None).unwrap();
        assert_eq!(outline.info().recommended_length(), expected, "{like}");
    }
}
