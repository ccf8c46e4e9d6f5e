//! Damaged models: weights that are no numbers, logits that are none, and files that are cut while they are read. Each is
//! one line, and the model goes on where it can.

use std::{
    fs,
    path::{Path, PathBuf},
};

use demask::{ActivationChoice, DtypeChoice, LikelihoodOptions, Model, Options, Prompt, WeightChoice};
use demask::{DeviceOptions, Opened};
use demask_checkpoint::ModelFiles;

/// A copy of a checkpoint that a test may damage; it is removed at the end.
struct Copy(PathBuf);

impl Copy {
    fn of(name: &str, test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("demask-damaged-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt").join(name);
        for entry in fs::read_dir(source).unwrap() {
            let entry = entry.unwrap().path();
            fs::write(path.join(entry.file_name().unwrap()), fs::read(&entry).unwrap()).unwrap();
        }
        Self(path)
    }

    fn weights(&self) -> PathBuf {
        self.0.join("model.safetensors")
    }

    /// Sets one number of a tensor of f32.
    fn set(&self, tensor: &str, index: usize, value: f32) {
        let mut bytes = fs::read(self.weights()).unwrap();
        let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: serde_json::Value = serde_json::from_slice(&bytes[8..data]).unwrap();
        let at = data + header[tensor]["data_offsets"][0].as_u64().unwrap() as usize + 4 * index;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        fs::write(self.weights(), bytes).unwrap();
    }

    fn load(&self, device: &DeviceOptions) -> Result<Model, String> {
        let opened = Opened::open(ModelFiles::directory(&self.0).unwrap()).unwrap();
        opened.load(device, &[], &mut |_| true).map_err(|error| error.to_string())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn devices() -> Vec<DeviceOptions> {
    let of = |dtype, quantize, activations| DeviceOptions {
        dtype,
        quantize,
        activations,
        threads: Some(2),
        ..DeviceOptions::default()
    };
    vec![
        of(DtypeChoice::F32, WeightChoice::Plain, ActivationChoice::Plain),
        of(DtypeChoice::Bf16, WeightChoice::Plain, ActivationChoice::Plain),
        of(DtypeChoice::F32, WeightChoice::Q8, ActivationChoice::Plain),
        of(DtypeChoice::F32, WeightChoice::Q4, ActivationChoice::Int8),
    ]
}

#[test]
fn a_weight_that_is_no_number_is_refused_by_name() {
    for (tensor, role) in [
        ("blocks.0.q_proj.weight", "Query of layer 0"),
        ("blocks.1.up_proj.weight", "Gate of layer 1"),
        ("blocks.2.attn_norm.weight", "AttentionNorm of layer 2"),
        ("ff_out.weight", "head"),
        ("ln_f.weight", "final norm"),
    ] {
        for none in [f32::NAN, f32::NEG_INFINITY] {
            let copy = Copy::of("tiny-llada", "weight");
            copy.set(&format!("model.transformer.{tensor}"), 3, none);
            for device in devices() {
                let refused = copy.load(&device).err().unwrap();
                let expected = format!(
                    "the {role} cannot be loaded: it has numbers that are infinite or not numbers (NaN): the file is \
                     damaged; fetch the model again"
                );
                assert!(refused.ends_with(&expected), "{refused}");
            }
        }
    }
}

#[test]
fn logits_that_are_no_numbers_end_the_request_and_no_other() {
    let copy = Copy::of("tiny-llada", "logits");
    // Of one token alone: nothing is known of it before it is read.
    copy.set("model.transformer.wte.weight", 7 * 64, f32::NAN);
    for device in devices() {
        let mut model = copy.load(&device).unwrap();
        let options = Options { gen_length: Some(8), ..Options::default() };
        let answer = |tokens: &[u32]| model.generate_with(Prompt::Tokens(tokens.to_vec()), &options);
        let error = answer(&[1, 7, 2]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the model's logits at position 3 are not numbers (NaN or infinite): its weights may be damaged; fetch the model \
             again, or try --dtype f32"
        );
        assert!(!error.is_usage());
        assert!(answer(&[1, 2, 3]).is_ok());
        let judged =
            |model: &mut Model, context: &[u32]| model.log_likelihood(context, &[3, 4], &LikelihoodOptions::default());
        let error = judged(&mut model, &[7]).unwrap_err().to_string();
        assert!(error.contains("are not numbers (NaN or infinite)"), "{error}");
        assert!(judged(&mut model, &[1]).unwrap().log_probability.is_finite());
    }
}

#[test]
fn weights_that_are_cut_while_they_are_loaded_are_an_error() {
    for device in devices() {
        let copy = Copy::of("tiny-llada", "cut");
        let opened = Opened::open(ModelFiles::directory(&copy.0).unwrap()).unwrap();
        let length = fs::metadata(copy.weights()).unwrap().len();
        fs::File::options().write(true).open(copy.weights()).unwrap().set_len(length - 100_000).unwrap();
        let error = opened.load(&device, &[], &mut |_| true).err().unwrap().to_string();
        let path = copy.weights().display().to_string();
        assert!(error.contains(&format!("cannot read {path}: it has lost some of its {length} bytes")), "{error}");
        assert!(!error.contains('\n'));
    }
}

#[test]
fn a_gguf_file_that_is_cut_while_it_is_loaded_is_an_error() {
    let copy = Copy::of("tiny-llada", "gguf");
    let path = copy.0.join("tiny.gguf");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../checkpoint/tests/data/tiny.gguf");
    fs::write(&path, fs::read(source).unwrap()).unwrap();
    let opened = Opened::open(ModelFiles::gguf(&path).unwrap()).unwrap();
    let length = fs::metadata(&path).unwrap().len();
    fs::File::options().write(true).open(&path).unwrap().set_len(length - 1000).unwrap();
    let error = opened.load(&DeviceOptions::default(), &[], &mut |_| true).err().unwrap().to_string();
    assert!(error.contains(&format!("it has lost some of its {length} bytes since it was opened")), "{error}");
}

/// Harm to weights, and what it is called; none if it does none.
type Harm<'a> = (&'a dyn Fn(&Copy), Option<&'a str>);

/// Rows of the table of embeddings are read from the file while the model answers.
#[test]
fn weights_that_are_replaced_behind_an_open_model_change_nothing_and_those_that_are_written_are_an_error() {
    let replace = |copy: &Copy| {
        let other = copy.0.join("other");
        fs::write(&other, vec![7; 5000]).unwrap();
        fs::rename(other, copy.weights()).unwrap();
    };
    let open = |copy: &Copy| fs::File::options().write(true).open(copy.weights()).unwrap();
    let write = |copy: &Copy| open(copy).set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let cut = |copy: &Copy| open(copy).set_len(2000).unwrap();
    let harms: [Harm<'_>; 3] = [
        (&replace, None),
        (&write, Some("another program has written it since it was opened: load the model again")),
        (&cut, Some("since it was opened: another program has cut it; fetch it again")),
    ];
    for device in devices() {
        for (harm, expected) in harms {
            let copy = Copy::of("tiny-llada", "open");
            let model = copy.load(&device).unwrap();
            let options = Options { gen_length: Some(8), ..Options::default() };
            let answer = || model.generate_with(Prompt::Tokens(vec![1, 2, 3]), &options);
            let tokens = answer().unwrap().tokens;
            harm(&copy);
            let Some(expected) = expected else {
                assert_eq!(answer().unwrap().tokens, tokens);
                continue;
            };
            for _ in 0..2 {
                let error = answer().unwrap_err();
                let path = copy.weights().display().to_string();
                assert!(error.to_string().contains(&format!("cannot read {path}: ")), "{error}");
                assert!(error.to_string().contains(expected) && !error.to_string().contains('\n'), "{error}");
                assert!(!error.is_usage());
            }
        }
    }
}
