//! What is told before loading is what loading takes.

use std::path::{Path, PathBuf};

use demask::{
    DeviceOptions, DtypeChoice, GenerateOptions, Opened, Prompt, WeightChoice, checkpoint::ModelFiles,
    decode::CacheSpec,
};

/// All checkpoints of the project.
fn checkpoints() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["golden/ckpt", "demo"].map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
    let paths = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.join("config.json").is_file()).collect()
}

fn open(path: &Path) -> Opened {
    Opened::open(ModelFiles::directory(path).unwrap()).unwrap()
}

#[test]
fn weights_take_what_was_told() {
    let checkpoints = checkpoints();
    assert!(checkpoints.len() > 12);
    for path in checkpoints {
        for dtype in [DtypeChoice::F32, DtypeChoice::Bf16] {
            for weights in [WeightChoice::Plain, WeightChoice::Q8, WeightChoice::Q4] {
                let device = DeviceOptions { dtype, weights, threads: Some(2), ..DeviceOptions::default() };
                let opened = open(&path);
                let told = opened.footprint(&device, &[]).unwrap();
                let model = opened.load(&device, &[], &mut |_, _| true).unwrap();
                let taken = model.engine().network().weight_bytes() as u64;
                assert_eq!((told.weights, told.cache), (taken, 0), "{} {dtype} {weights}", path.display());
            }
        }
    }
}

#[test]
fn a_canvas_takes_what_was_told() {
    let llada = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt/tiny-llada");
    for cache in ["none", "dual", "dllm:kp=4,kr=2"] {
        for dtype in [DtypeChoice::F32, DtypeChoice::Bf16] {
            let device = DeviceOptions { dtype, threads: Some(2), ..DeviceOptions::default() };
            let options = GenerateOptions {
                gen_length: Some(64),
                block_length: Some(32),
                cache: Some(cache.parse::<CacheSpec>().unwrap()),
                ..GenerateOptions::default()
            };
            let opened = open(&llada);
            let session = opened.prompter().session(&Prompt::Tokens(vec![1, 2, 3]), &options).unwrap();
            let told = opened.footprint(&device, session.needs()).unwrap();
            let mut model = opened.load(&device, session.needs(), &mut |_, _| true).unwrap();
            let job = model.engine_mut().submit(session).unwrap();
            assert_eq!(told.cache, model.engine().cache_bytes(job) as u64, "{cache} {dtype}");
            assert!(told.workspace > 0 && told.total() > told.weights + told.cache);
        }
    }
}
