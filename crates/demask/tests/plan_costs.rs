//! Counted operations are those of the formulas (specification caches, section 7), evaluated with the rows, keys and
//! head rows that were really run: test X9, on networks.

mod common;

use common::{runner, specs};
use demask::{
    cpu::isa::Isa,
    decode::{CanvasSpec, ModelFacts, Next, Session, SessionOptions, StopRule},
    model_parts::{ArchSpec, Attention},
    step::{Denoiser, LayerRows, Mask, Predictions, SequenceId, StepPlan},
    tensor::Dtype,
};

/// Operations of one step whose rows all run in every layer but the last, which finishes what the head reads.
fn formula(spec: &ArchSpec, plan: &StepPlan) -> f64 {
    assert_eq!(plan.layers, LayerRows::All);
    let (width, layers) = (spec.hidden as f64, spec.layers as f64);
    let (query, kv) = ((spec.heads * spec.head_dim) as f64, (spec.kv_heads * spec.head_dim) as f64);
    let rows = plan.live.len() as f64;
    let finished = (plan.predict.len() + plan.must.len()) as f64;
    let store = 2.0 * 2.0 * width * kv;
    let compute = 2.0 * (2.0 * width * query + 3.0 * width * spec.ffn as f64);
    let attend = 4.0 * query * f64::from(plan.visible);
    (layers - 1.0) * rows * (store + compute + attend)
        + rows * store
        + finished * (compute + attend)
        + finished * 2.0 * width * spec.vocabulary as f64
}

#[test]
fn caches_x9_counted_operations_are_those_of_the_formula() {
    let mut found = 0;
    for (name, spec) in specs().into_iter().filter(|(_, spec)| spec.attention == Attention::Full) {
        let facts = ModelFacts {
            mask: Mask::Full,
            shift: spec.shift as u32,
            mask_id: Some(spec.vocabulary as u32 - 1),
            vocab: spec.vocabulary,
            context: spec.context,
        };
        for cache in ["none", "prefix", "prefix:idle", "dual", "dual:horizon=3", "freecache:block=6"] {
            for decoder in ["static", "threshold:tau=0", "factor:f=3"] {
                let canvas = CanvasSpec::Prompt { tokens: vec![1, 2, 3, 4, 5], gen_length: 18 };
                let session = Session::new(SessionOptions {
                    decoder: decoder.parse().unwrap(),
                    cache: cache.parse().unwrap(),
                    block_length: Some(6),
                    stop: StopRule::Never,
                    ..SessionOptions::new(facts.clone(), canvas)
                });
                check(&format!("{name} {cache} {decoder}"), &spec, session.unwrap());
                found += 1;
            }
        }
    }
    assert!(found >= 36, "shifted and unshifted networks of full attention");
}

fn check(what: &str, spec: &ArchSpec, mut session: Session) {
    let mut network = runner(spec, Isa::available()[0], Dtype::F32, 1);
    let id: SequenceId = network.open(&session.needs()[0]).unwrap();
    let (mut flops, mut head_rows) = (0.0, 0);
    while session.next() == Next::Step {
        let request = &session.requests()[0];
        flops += formula(spec, &request.plan);
        head_rows += (request.plan.predict.len() + request.plan.must.len()) as u64;
        let mut out = [Predictions::default()];
        network.step(&[request.step(id, 0)], &mut out).unwrap();
        session.feed(&out);
    }
    let cost = session.counts().cost;
    assert!((cost.flops - flops).abs() <= 1e-9 * flops, "{what}: counted {} and not {flops}", cost.flops);
    assert_eq!(cost.head_rows, head_rows, "{what}");
    assert_eq!(cost.rows, session.counts().rows as u64, "{what}");
}
