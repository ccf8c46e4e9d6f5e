//! Memory that is computed before loading, compared with the memory that loading takes.

use std::{
    cell::RefCell,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use demask::{DeviceOptions, Opened};
use demask::{DtypeChoice, Options, Prompt, WeightChoice};
use demask_checkpoint::{Checkpoint, ModelFiles, StoredWeights};
use demask_cpu::CpuBackend;
use demask_model::{Role, WeightError, WeightSource, expected_tensors};
use demask_step::{Job, Mask};
use demask_tensor::StoredTensor;

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
                let device = DeviceOptions { dtype, quantize: weights, threads: Some(2), ..DeviceOptions::default() };
                let opened = open(&path);
                let told = opened.footprint(&device, &[]).unwrap();
                let model = opened.load(&device, &[], &mut |_| true).unwrap();
                let taken = model.weight_bytes() as u64;
                assert_eq!((told.weights, told.cache), (taken, 0), "{} {dtype} {weights}", path.display());
            }
        }
    }
}

#[test]
fn a_canvas_takes_what_was_told() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt");
    for (name, length, guidance) in [("tiny-llada", 64, None), ("tiny-llada", 64, Some(1.5)), ("tiny-sdar", 40, None)] {
        for dtype in [DtypeChoice::F32, DtypeChoice::Bf16] {
            let device = DeviceOptions { dtype, threads: Some(2), ..DeviceOptions::default() };
            let options = Options { gen_length: Some(length), cfg_scale: guidance, ..Options::default() };
            let opened = open(&folder.join(name));
            let session = opened.info().session(&Prompt::Tokens(vec![1, 2, 3]), &options).unwrap();
            let told = opened.footprint(&device, &session.needs_of(0)).unwrap();
            let mut model = opened.load(&device, session.needs(), &mut |_| true).unwrap().by_hand().unwrap();
            // What is told, what the network says that it took, and what the receipt says.
            let network = model.network_mut();
            let ids: Vec<_> = session.needs().iter().map(|need| network.open(&need.limits).unwrap()).collect();
            let taken: usize = ids.iter().map(|&id| network.cache_bytes(id)).sum();
            for id in ids {
                network.close(id);
            }
            assert_eq!(told.cache, taken as u64, "{name} {dtype} {guidance:?}");
            let prepared = model.prepare(&Prompt::Tokens(vec![1, 2, 3]), &options).unwrap();
            let answer = model.answer(prepared, &mut |_| ControlFlow::Continue(())).unwrap();
            assert_eq!(told.cache, answer.receipt.memory.cache as u64, "{name} {dtype} {guidance:?}");
            assert!(told.workspace > 0 && told.total() > told.weights + told.cache);
        }
    }
}

/// A checkpoint's weights, and what they were asked.
struct Watched {
    source: StoredWeights,
    calls: RefCell<Vec<(&'static str, Role)>>,
}

impl WeightSource for Watched {
    fn tensor(&self, role: Role) -> Result<StoredTensor<'_>, WeightError> {
        self.calls.borrow_mut().push(("read", role));
        self.source.tensor(role)
    }

    fn coming(&self, role: Role) {
        self.calls.borrow_mut().push(("coming", role));
        self.source.coming(role);
    }
}

#[test]
fn tensors_are_announced_once_before_they_are_read() {
    for path in checkpoints() {
        let (source, text) = Checkpoint::open(ModelFiles::directory(&path).unwrap()).unwrap().release_weights();
        let watched = Watched { source, calls: RefCell::default() };
        let mut told = 0;
        let backend =
            CpuBackend::new(DeviceOptions::default().cpu_options(watched.source.main_dtype(), Mask::Full).unwrap());
        let progress = &mut |read| {
            let more = read > told;
            told = read;
            more
        };
        demask_model::Weights::load(&text.spec, &watched, &backend, progress).unwrap();
        assert_eq!(told, watched.source.stored_bytes());
        let calls = watched.calls.take();
        let places = |what: &str, role: Role| -> Vec<usize> {
            (0..calls.len()).filter(|&at| calls[at] == (what, role)).collect()
        };
        for tensor in expected_tensors(&text.spec) {
            let (coming, read) = (places("coming", tensor.role), places("read", tensor.role));
            if tensor.role == Role::Embedding && !text.spec.tied {
                // Rows of it are read as they are wanted.
                assert!(coming.is_empty(), "{}", path.display());
                continue;
            }
            assert_eq!(coming.len(), 1, "{} {}", path.display(), tensor.role);
            assert!(coming[0] < read[0], "{} {}", path.display(), tensor.role);
        }
    }
}
