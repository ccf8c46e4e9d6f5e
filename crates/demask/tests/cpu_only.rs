//! The build without the backend for GPUs. In a build with it nothing is here; the gate runs this one.
#![cfg(not(feature = "cuda"))]

use demask::DeviceOptions;
use demask::{DeviceChoice, DtypeChoice, Model, Options, Prompt};
use demask_checkpoint::ModelFiles;

#[test]
fn a_gpu_that_is_asked_for_is_refused_in_one_line() {
    for (asked, number) in [("cuda", 0), ("cuda:1", 1)] {
        let device = DeviceOptions { device: asked.parse().unwrap(), ..DeviceOptions::default() };
        let told = device.resolved().unwrap_err().to_string();
        let end = "was asked for, and this build runs on the CPU only: use `device` cpu or auto";
        assert_eq!(told, format!("device cuda:{number} {end}"));
    }
}

#[test]
fn whoever_asks_for_nothing_is_answered_by_the_processor() {
    let device = DeviceOptions { dtype: DtypeChoice::F32, ..DeviceOptions::default() };
    assert_eq!(device.resolved().unwrap().device, DeviceChoice::Cpu);
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/demo-qwen");
    let mut model =
        Model::load(ModelFiles::directory(demo).unwrap(), &device, &mut |_| true).unwrap().by_hand().unwrap();
    let options = Options { gen_length: Some(64), ..Options::default() };
    let question = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";
    let session = model.info().session(&Prompt::user(question, None), &options).unwrap();
    let tokens = model.decode(session).unwrap().output().tokens;
    let text = model.info().tokenizer().unwrap().decode(&tokens, true);
    assert!(text.contains("The final answer is 7"), "{text}");
}
