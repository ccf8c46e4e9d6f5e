//! The hostile corpus: files that are made to take the machine's memory or time. Each is refused in one line, and what is
//! allocated meanwhile stays below a budget, which an allocator counts.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs::{self, File},
    io::{BufWriter, Write},
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use demask_checkpoint::{
    ChatTemplate, Checkpoint, Family, Message, ModelFiles, RenderOptions, ShardIndex, check_gguf, check_safetensors,
};

/// Most bytes that reading any file of the corpus may hold. The largest that is let through as far as its parser, a
/// `tokenizer.json` of 4 million values, sets it.
const BUDGET: usize = 768 << 20;
/// Most bytes for files that are not tokenizers.
const SMALL_BUDGET: usize = 256 << 20;

/// Counts what is held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counters touch no memory of theirs.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One case at a time, or one would be counted for another.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs what must be refused; returns its line.
fn refused<T, E: std::fmt::Display>(name: &str, budget: usize, work: impl FnOnce() -> Result<T, E>) -> String {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let start = Instant::now();
    let message = work().err().unwrap_or_else(|| panic!("{name} is let through")).to_string();
    let peak = PEAK.load(Ordering::Relaxed) - before;
    let seconds = start.elapsed().as_secs_f64();
    assert!(seconds < 60.0, "{name} takes {seconds} s");
    assert!(peak <= budget, "{name} takes {} MiB, expected at most {}", peak >> 20, budget >> 20);
    assert!(!message.contains('\n') && message.len() < 700, "{name}: {message}");
    message
}

/// A copy of a golden checkpoint with one file replaced, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn of(checkpoint: &str, name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("demask-hostile-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(checkpoint);
        for entry in fs::read_dir(source).unwrap() {
            let entry = entry.unwrap().path();
            fs::write(path.join(entry.file_name().unwrap()), fs::read(&entry).unwrap()).unwrap();
        }
        Self(path)
    }

    /// A file of so many bytes that takes none of the disk.
    fn sparse(&self, file: &str, length: u64) {
        File::create(self.0.join(file)).unwrap().set_len(length).unwrap();
    }

    /// A file of a part that is repeated, between a start and an end.
    fn repeated(&self, file: &str, start: &str, part: &str, count: usize, end: &str) {
        let mut file = BufWriter::new(File::create(self.0.join(file)).unwrap());
        file.write_all(start.as_bytes()).unwrap();
        for _ in 0..count {
            file.write_all(part.as_bytes()).unwrap();
        }
        file.write_all(end.as_bytes()).unwrap();
    }

    fn open(&self) -> Result<Checkpoint, demask_checkpoint::CheckpointError> {
        Checkpoint::open(ModelFiles::directory(&self.0)?)
    }

    fn message(&self, name: &str, budget: usize) -> String {
        refused(name, budget, || self.open()).replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn templates_that_grow_without_end() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let family = Family::named("Qwen3").unwrap();
    for source in [
        "{% for i in range(20000) %}{{ 'a' * 100000000 }}{% endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
        "{% for i in range(99999) %}{% set x %}{{ 'abcdefgh' * 2000000 }}{% endset %}{% endfor %}",
    ] {
        let template = ChatTemplate::from_source(source, "chat_template.jinja", family, &[]);
        let messages = [Message::new("user", "Hi")];
        let found = refused(source, SMALL_BUDGET, || template.render(&messages, &RenderOptions::default()));
        let whole = "the model's chat template runs for ever or takes too much memory in line 1; correct the conversation, or give the prompt raw";
        assert_eq!(found, whole);
    }
}

#[test]
fn json_that_is_larger_than_its_kind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (file, length, limit) in [
        ("config.json", 2 << 20, 1 << 20),
        ("generation_config.json", 2 << 20, 1 << 20),
        ("tokenizer_config.json", 1 << 36, 16 << 20),
        ("tokenizer.json", 1 << 36, 64 << 20),
        ("chat_template.jinja", 1 << 36, 256 << 10),
    ] {
        let folder = Folder::of("demo/demo-llada", "large");
        folder.sparse(file, length);
        let found = folder.message(file, 32 << 20);
        assert!(found.starts_with(&format!("{file} has {length} bytes, expected at most {limit}")), "{found}");
    }
    let folder = Folder::of("golden/ckpt/tiny-llada-sharded", "index");
    folder.sparse("model.safetensors.index.json", 1 << 36);
    let found = folder.message("index", 32 << 20);
    assert!(found.contains("has 68719476736 bytes, expected at most 16777216"), "{found}");
}

#[test]
fn json_of_many_small_values() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::of("demo/demo-llada", "values");
    folder.repeated("config.json", "{\"a\": [0", ",0", 500_000, "]}");
    let found = folder.message("config.json of zeros", SMALL_BUDGET);
    assert!(found.starts_with("config.json: "), "{found}");
    let folder = Folder::of("demo/demo-llada", "settings");
    folder.repeated("tokenizer_config.json", "{\"a\": [0", ",0", 8_000_000, "]}");
    let found = folder.message("tokenizer_config.json of zeros", SMALL_BUDGET);
    assert!(found.contains("it has up to 8000002 values, expected at most 1048576"), "{found}");
    let folder = Folder::of("demo/demo-llada", "tokenizer");
    folder.repeated("tokenizer.json", "{\"decoder\": [0", ",0", 32_000_000, "]}");
    let found = folder.message("tokenizer.json of zeros", BUDGET);
    assert!(found.contains("it has up to 32000002 values, expected at most 4194304"), "{found}");
    folder.repeated(
        "tokenizer.json",
        "{\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": [0",
        ",0",
        4_000_000,
        "]}}",
    );
    folder.message("a vocabulary of zeros", BUDGET);
    folder.repeated("tokenizer.json", "{\"added_tokens\": [{\"content\": \"", "\\u0000", 11_000_000, "\"}]}");
    folder.message("a token of 66 MB", BUDGET);
}

/// A GGUF file with one key.
fn gguf(key: &str, kind: u32, count: u64, element: &[u8]) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend((key.len() as u64).to_le_bytes());
    bytes.extend(key.as_bytes());
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    for _ in 0..count {
        bytes.extend(element);
    }
    bytes
}

#[test]
fn gguf_lists_of_the_wrong_type_or_length() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // A whole small file, with one list replaced by a hostile one.
    let whole = fs::read(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny.gguf")).unwrap();
    for (name, kind, count, element, expected) in [
        ("bytes", 0, 50_000_000, &[0u8][..], "\"tokenizer.ggml.merges\" is a list, expected a list of texts"),
        ("empty texts", 8, 5_000_000, &[0; 8], "\"tokenizer.ggml.merges\" is 5000000, expected at most 1048576 texts"),
    ] {
        let hostile = with_list(&whole, "tokenizer.ggml.merges", kind, count, element);
        let files = || ModelFiles::gguf_bytes("m.gguf", demask_tensor::Bytes::owned(hostile.clone()));
        let found = refused(name, SMALL_BUDGET, || Checkpoint::open(files()));
        assert!(found.contains(expected), "{found}");
    }
    let deep = gguf("a", 9, 5_000_000, &[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let found = refused("descriptions of 60 MB and more", SMALL_BUDGET, || {
        check_gguf(&[deep.as_slice(), &vec![0; 20_000_000]].concat(), "m.gguf")
            .and_then(|_| check_gguf(&[0; 3], "m.gguf"))
    });
    assert!(found.contains("cannot be read as GGUF"), "{found}");
    let long = gguf("a", 0, 70_000_000, &[0]);
    // The longest descriptions are read before they are found to go on.
    let found = refused("a list of 70 MB", 68 << 20, || check_gguf(&long, "m.gguf"));
    assert!(found.contains("its descriptions are longer than 67108864 bytes"), "{found}");
}

/// A GGUF file whose list of this key is another one. What follows it keeps its order.
fn with_list(whole: &[u8], key: &str, kind: u32, count: u64, element: &[u8]) -> Vec<u8> {
    let place = whole.windows(key.len()).position(|window| window == key.as_bytes()).unwrap() + key.len();
    let number = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap());
    // The type of the value, that of its elements, their count, then texts.
    let mut end = place + 4 + 4 + 8;
    for _ in 0..number(place + 8) {
        end += 8 + number(end) as usize;
    }
    let mut bytes = whole[..place + 4].to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    for _ in 0..count {
        bytes.extend(element);
    }
    bytes.extend(&whole[end..]);
    // The data's start is rounded up to 32 bytes from the start of the file.
    bytes.resize(bytes.len() + 64, 0);
    bytes
}

fn safetensors(header: &str) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()
}

#[test]
fn safetensors_headers_that_go_on_and_on() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = |index: usize| format!("\"t{index}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
    let many: Vec<String> = (0..=65_536).map(entry).collect();
    let cases = [
        ("65537 tensors", format!("{{{}}}", many.join(",")), "tensor \"t65536\": it is one of more than 65536"),
        (
            "a shape of 40 million",
            format!("{{\"a\":{{\"shape\":[0{}]}}}}", ",0".repeat(40_000_000)),
            "expected a list of at most 8 dimensions",
        ),
        ("a name of 80 MB", format!("{{\"{}\":{{}}}}", "a".repeat(80_000_000)), "its name has more than 1024 bytes"),
        (
            "a type of 80 MB",
            format!("{{\"a\":{{\"dtype\":\"{}\",\"shape\":[],\"data_offsets\":[0,0]}}}}", "a".repeat(80_000_000)),
            "its type has more than 64 bytes",
        ),
    ];
    for (name, header, expected) in cases {
        let bytes = safetensors(&header);
        let found = refused(name, SMALL_BUDGET, || check_safetensors(&bytes, "model.safetensors"));
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn shards_without_end() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let entries: Vec<String> = (0..=4096).map(|index| format!("\"t{index}\":\"s{index}.safetensors\"")).collect();
    let index = format!("{{\"weight_map\":{{{}}}}}", entries.join(","));
    let found = refused("4097 shards", SMALL_BUDGET, || ShardIndex::parse(index.as_bytes(), "index"));
    assert!(found.contains("is 4097, expected tensors in at most 4096 different files"), "{found}");
}
