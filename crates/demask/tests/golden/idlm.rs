//! Traces of introspective strided decoding (I-DLM), forward by forward: rounds, rows, starts, drafts, acceptances, what is kept, tokens.

use std::collections::BTreeMap;

use demask::{AdapterChoice, DtypeChoice, ModelByHand};
use demask_decode::{ModelFacts, Session};
use demask_step::{Job, Predictions};
use demask_testkit::rounds::{Case, Round, of_session};

use super::{Device, Devices, adapters::adapted, files, folder, say};

/// Name that the files of these traces start with.
pub const FILES: &str = "idlm_";

/// Runs a session on a model's network.
fn run(model: &mut ModelByHand, session: &mut Session) -> Vec<Round> {
    let network = model.network_mut();
    let sequence = network.open(&session.needs()[0].limits).unwrap();
    let rounds = of_session(session, |request| {
        let mut out = [Predictions::default()];
        let step = request.step(sequence);
        network.check(&[step]).unwrap();
        network.step(&[step], &mut out).unwrap();
        let [answer] = out;
        answer
    });
    network.close(sequence);
    rounds
}

pub fn cases(on: Devices) {
    let folder = folder();
    let mut failures = Vec::new();
    for device in on.in_type(DtypeChoice::F32) {
        for path in files(&folder, "decode") {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            if !name.starts_with(FILES) {
                continue;
            }
            let mut cases = Case::all(&std::fs::read_to_string(&path).unwrap());
            let all = cases.len();
            if device == Device::EmulatedGpu {
                // What is played on the processor is slow, and GPUs' kernels take no adapters.
                cases.retain(|case| case.adapter.is_none());
                cases.truncate(1);
            }
            let mut models = BTreeMap::new();
            for case in &cases {
                let key = (case.model.clone(), case.adapter.clone());
                let model = models.entry(key).or_insert_with(|| {
                    let adapter = case.adapter.as_deref().map(|name| (name, AdapterChoice::Masks));
                    adapted(&folder, (&case.model, case.mask_id), adapter, device, DtypeChoice::F32)
                });
                // A model that was not trained with masks has the one that the case names.
                let facts = ModelFacts { mask_id: Some(case.mask_id), ..model.info().facts().clone() };
                if let Some(error) = case.difference(facts.clone(), |session| run(model, session)) {
                    failures.push(format!("{} on {device}: {error}", case.id));
                }
                let mut own = Session::new(case.options(facts, "ar")).unwrap();
                run(model, &mut own);
                if !case.ar_output.ends_with(&own.output().tokens) {
                    failures.push(format!("{} on {device}: ar writes {:?}", case.id, own.output().tokens));
                }
            }
            say(&format!("decode {name} {device}: {} of {all} cases", cases.len()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
