//! Data files: every format, everything that can be wrong with one, and the hub.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

use demask_checkpoint::HubOptions;
use demask_eval::{
    Gold, Problem, Task,
    data::{DataError, DataOptions, load, shots},
    tasks::find,
};
use flate2::{Compression, write::GzEncoder};

/// A folder of one test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("demask-data-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn task(name: &str) -> &'static Task {
    find(name).unwrap()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(name)
}

fn read(task: &Task, path: &Path) -> Result<Vec<Problem>, DataError> {
    let hub = HubOptions::new("http://127.0.0.1:1", "/nowhere");
    load(task, &DataOptions { file: Some(path), subject: None, seed: 0, hub: &hub }, &mut |_| true)
}

fn message<T: std::fmt::Debug>(result: Result<T, DataError>) -> String {
    let message = result.unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

/// A task's invented entries, one a line.
fn entries(task: &Task) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/items/{}.jsonl", task.name));
    let text = fs::read_to_string(path).unwrap();
    let entry = |line| format!("{}\n", serde_json::from_str::<serde_json::Value>(line).unwrap()["entry"]);
    text.lines().map(entry).collect()
}

fn gzip(contents: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(contents).unwrap();
    packed.finish().unwrap()
}

#[test]
fn the_same_problems_come_out_of_every_format() {
    let folder = Folder::new("formats");
    let gsm8k = task("gsm8k");
    let lines = entries(gsm8k);
    let plain = read(gsm8k, &folder.file("a.jsonl", &lines)).unwrap();
    assert_eq!(plain.len(), 5);
    assert_eq!(plain[2].gold, Gold::Number("5,000".to_owned()));
    let list = format!("\n[{}]", lines.trim_end().replace('\n', ",\n"));
    let spaced = format!("\u{feff}{}", lines.replace('\n', "\r\n\r\n"));
    for (name, contents) in [
        ("list.json", list.as_bytes().to_vec()),
        ("spaced.json", spaced.into_bytes()),
        ("packed.jsonl.gz", gzip(lines.as_bytes())),
        ("packed-list.json.gz", gzip(list.as_bytes())),
    ] {
        assert_eq!(read(gsm8k, &folder.file(name, contents)).unwrap(), plain, "{name}");
    }
    for name in ["mmlu", "mmlu-pro"] {
        let written = read(task(name), &folder.file("b.jsonl", entries(task(name)))).unwrap();
        let table = fixture(&format!("{name}.parquet"));
        assert_eq!(read(task(name), &table).unwrap(), written, "{name}");
        let packed = folder.file("c.parquet.gz", gzip(&fs::read(table).unwrap()));
        assert_eq!(read(task(name), &packed).unwrap(), written, "{name}");
    }
    // The fourth item is an instruction, which the table has not.
    let mut written = read(task("arc-easy"), &folder.file("d.jsonl", entries(task("arc-easy")))).unwrap();
    written.remove(3);
    assert_eq!(read(task("arc-easy"), &fixture("arc-easy.parquet")).unwrap(), written);
}

#[test]
fn a_table_in_csv_is_read_by_the_names_of_its_columns() {
    let folder = Folder::new("csv");
    let head = "Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3,Record ID\n";
    let rows = "\"Which, of \"\"these\"\"?\nThis?\",yes\n,no,\"a, b\",never,rec1\n";
    let rows = rows.replacen("yes\n", "\"yes\n\"", 1);
    let file = folder.file("gpqa.csv", format!("{head}{rows}"));
    let problems = read(task("gpqa"), &file).unwrap();
    assert_eq!(problems[0].question, "Which, of \"these\"?\nThis?");
    let Gold::Option(gold) = problems[0].gold else { panic!("no option") };
    assert_eq!(problems[0].options[gold], "yes");
    assert_eq!(problems[0].id, "rec1");
    let file = folder.file("short.csv", format!("{head}What?,yes\n"));
    assert!(message(read(task("gpqa"), &file)).contains("short.csv is no complete CSV file: "));
}

#[test]
fn what_is_wrong_with_a_file_is_said_in_one_line() {
    let folder = Folder::new("wrong");
    let gsm8k = task("gsm8k");
    let good = r#"{"question": "?", "answer": "a #### 1"}"#;
    let told = |name: &str, contents: &[u8]| {
        let path = folder.file(name, contents);
        message(read(gsm8k, &path)).replace(&path.display().to_string(), "FILE")
    };
    assert_eq!(told("empty.jsonl", b"\n \n"), "FILE has no entries: expected at least one problem");
    assert_eq!(told("list.json", b"[]"), "FILE has no entries: expected at least one problem");
    assert_eq!(
        told("broken.jsonl", format!("{good}\n\n{{\"question\": \n{good}").as_bytes()),
        "FILE, line 3: EOF while parsing a value; expected one JSON object a line, or one JSON list"
    );
    assert_eq!(
        told("broken.json", format!("[{good},\n{good},\n oops]").as_bytes()),
        "FILE, line 3: expected value; expected one JSON object a line, or one JSON list"
    );
    assert_eq!(
        told("words.jsonl", format!("{good}\n\"word\"").as_bytes()),
        "FILE, line 2: not an object; expected one JSON object a line, or one JSON list"
    );
    assert_eq!(
        told("latin.jsonl", &[good.as_bytes(), b"\n{\"question\": \"\xe9\"}"].concat()),
        "FILE, line 2: not UTF-8; expected one JSON object a line, or one JSON list"
    );
    let other = "; this is no file of gsm8k, or of another release of it";
    for (entry, found) in [
        (r#"{"answer": "a #### 1"}"#, "field question is missing, expected text"),
        (r#"{"question": 7, "answer": "a #### 1"}"#, "field question is a number, expected text"),
        (r#"{"question": "?"}"#, "field answer is missing, expected text"),
        (
            r#"{"question": "?", "answer": "1"}"#,
            "field answer is something else, expected a solution, ####, and a number",
        ),
    ] {
        assert_eq!(
            told("entry.jsonl", format!("{good}\n{entry}").as_bytes()),
            format!("FILE, entry 2: {found}{other}")
        );
    }
    let packed = gzip(good.repeat(100).as_bytes());
    assert!(told("cut.jsonl.gz", &packed[..packed.len() / 2]).starts_with("FILE is no complete gzip file: "));
    let missing = folder.0.join("nowhere.jsonl");
    assert!(message(read(gsm8k, &missing)).starts_with(&format!("cannot read {}: ", missing.display())));
    assert!(message(read(gsm8k, &folder.0)).starts_with("cannot read "));
}

#[test]
fn a_broken_table_is_an_error_whatever_is_broken() {
    let folder = Folder::new("tables");
    let whole = fs::read(fixture("mmlu.parquet")).unwrap();
    let mut refused = 0;
    for length in (0..whole.len()).step_by(41) {
        let told = message(read(task("mmlu"), &folder.file("cut.parquet", &whole[..length])));
        assert!(told.contains("cut.parquet is no complete parquet file: "), "{told}");
    }
    for place in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x55;
        // A changed letter of a question is no mistake that a reader could see; a panic or a hang would be one.
        refused += usize::from(read(task("mmlu"), &folder.file("changed.parquet", bytes)).is_err());
    }
    assert!(refused > 20, "{refused}");
    let told = message(read(task("gsm8k"), &fixture("zstd.parquet")));
    assert!(
        told.contains("zstd.parquet is no complete parquet file: ") && told.to_lowercase().contains("zstd"),
        "{told}"
    );
}

#[test]
fn options_that_do_not_exist_are_refused() {
    let folder = Folder::new("options");
    for (name, entry, found) in [
        (
            "mmlu",
            r#"{"question": "?", "choices": ["a", "b"], "answer": 2}"#,
            "answer is something else, expected the number",
        ),
        (
            "mmlu",
            r#"{"question": "?", "choices": ["a", 1], "answer": 0}"#,
            "choices is a list, expected a list of texts",
        ),
        (
            "piqa",
            r#"{"goal": "g", "sol1": "a", "sol2": "b", "label": -1}"#,
            "label is something else, expected the number",
        ),
        (
            "arc-easy",
            r#"{"question": "?", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "E"}"#,
            "answerKey is something else, expected the label of an option",
        ),
        (
            "winogrande",
            r#"{"sentence": "A _.", "option1": "a", "option2": "b", "answer": ""}"#,
            "answer is text, expected a whole number",
        ),
        (
            "winogrande",
            r#"{"sentence": "A.", "option1": "a", "option2": "b", "answer": "1"}"#,
            "sentence is something else, expected text with a blank (_)",
        ),
        ("longbench-hotpotqa", r#"{"input": "?", "context": "", "answers": []}"#, "expected at least one text"),
    ] {
        let told = message(read(task(name), &folder.file("one.jsonl", entry)));
        assert!(told.contains(found), "{told}");
    }
}

#[test]
fn a_subject_is_chosen_or_refused_with_those_that_there_are() {
    let folder = Folder::new("subjects");
    let file = folder.file("mmlu.jsonl", entries(task("mmlu")));
    let hub = HubOptions::new("http://127.0.0.1:1", "/nowhere");
    let about = |name: &str, file, subject| {
        load(task(name), &DataOptions { file, subject: Some(subject), seed: 0, hub: &hub }, &mut |_| true)
    };
    let problems = about("mmlu", Some(&*file), "physics").unwrap();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].id, "3", "numbers are those of the file");
    let told = message(about("mmlu", Some(&*file), "magic"));
    assert!(told.starts_with("mmlu has no problems about \"magic\"; it has: biology, economics, "), "{told}");
    // Before anything is fetched.
    let told = message(about("bbh", None, "magic"));
    assert!(told.contains("it has: boolean_expressions, causal_judgement, "), "{told}");
    let told = message(about("wordmath", None, "magic"));
    assert!(told.ends_with("it has: none: its file names no subjects"), "{told}");
}

#[test]
fn there_are_as_many_exemplars_as_are_asked_for_or_none_is_shown() {
    let folder = Folder::new("shots");
    let hub = HubOptions::new("http://127.0.0.1:1", "/nowhere");
    let options = DataOptions { file: None, subject: None, seed: 0, hub: &hub };
    let get = |name: &str, count, file: Option<&Path>, problems: &[Problem]| {
        shots(task(name), count, file, problems, &options, &mut |_| true)
    };
    let problem = Problem { question: "?".to_owned(), ..Problem::default() };
    for count in 0..=8 {
        assert_eq!(get("gsm8k", count, None, std::slice::from_ref(&problem)).unwrap().of(&problem).len(), count);
    }
    assert_eq!(
        message(get("gsm8k", 9, None, std::slice::from_ref(&problem))),
        "9 exemplars are asked for, and gsm8k has 8: use `shots` 8 or less, or give more with `shots_file`"
    );
    assert_eq!(
        message(get("humaneval", 1, None, std::slice::from_ref(&problem))),
        "humaneval has no solved problems to show: use `shots` 0, or give some with `shots_file`"
    );
    let file = folder.file("train.jsonl", entries(task("gsm8k")));
    let own = get("gsm8k", 5, Some(&file), std::slice::from_ref(&problem)).unwrap().of(&problem);
    assert!(own[0].question.starts_with("A ferry carries"));
    assert!(
        message(get("gsm8k", 6, Some(&file), std::slice::from_ref(&problem)))
            .ends_with("has 5: use `shots` 5 or less, or give more with `shots_file`")
    );
    // By subject, where the task has subjects.
    let file = folder.file("dev.jsonl", entries(task("mmlu")));
    let about = |subject: &str| Problem { subject: Some(subject.to_owned()), ..problem.clone() };
    let shown = get("mmlu", 1, Some(&file), &[about("physics"), about("economics")]).unwrap();
    assert_eq!(shown.of(&about("economics"))[0].subject.as_deref(), Some("economics"));
    let told = message(get("mmlu", 2, Some(&file), &[about("physics")]));
    assert!(
        told.ends_with("dev.jsonl has about physics 1: use `shots` 1 or less, or give more with `shots_file`"),
        "{told}"
    );
    // Of the same file: never the problem itself.
    let all = read(task("gpqa"), &folder.file("gpqa.jsonl", entries(task("gpqa")))).unwrap();
    let shown = get("gpqa", 4, None, &all).unwrap();
    assert!(all.iter().all(|problem| shown.of(problem).len() == 4 && !shown.of(problem).contains(problem)));
    assert!(
        message(get("gpqa", 5, None, &all))
            .ends_with("gpqa has 4: use `shots` 4 or less, or give more with `shots_file`")
    );
}

/// A hub with a dataset: lists, describes and sends files, and remembers what it was asked.
fn hub(
    id: &'static str,
    revision: &'static str,
    files: Vec<(&'static str, Vec<u8>)>,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (files, seen) = (Arc::new(files), Arc::clone(&asked));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (files, seen) = (Arc::clone(&files), Arc::clone(&seen));
            thread::spawn(move || while answer(&stream, id, revision, &files, &seen).is_some() {});
        }
    });
    (endpoint, asked)
}

fn answer(
    mut stream: &TcpStream,
    id: &str,
    revision: &str,
    files: &[(&str, Vec<u8>)],
    seen: &Mutex<Vec<String>>,
) -> Option<()> {
    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|count| *count > 0)?;
    let path = first.split_whitespace().nth(1)?.to_owned();
    let mut range = None;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            break;
        }
        range = line.strip_prefix("range: bytes=").map(str::to_owned).or(range);
    }
    seen.lock().unwrap().push(path.clone());
    let mut send = |head: &str, body: &[u8]| {
        let head = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).ok()
    };
    if path == format!("/api/datasets/{id}/revision/{}", revision.replace('/', "%2F")) {
        let names: Vec<String> = files.iter().map(|(name, _)| format!(r#"{{"rfilename": "{name}"}}"#)).collect();
        return send("200 OK", format!(r#"{{"sha": "{COMMIT}", "siblings": [{}]}}"#, names.join(",")).as_bytes());
    }
    let name = path.strip_prefix(&format!("/datasets/{id}/resolve/{COMMIT}/"));
    let Some((name, body)) = files.iter().find(|(file, _)| Some(*file) == name) else { return send("404 No", b"") };
    let (start, end) = range.as_deref().and_then(|range| range.split_once('-'))?;
    let (start, last) = (start.parse::<usize>().ok()?, end.parse().unwrap_or(body.len() - 1));
    let facts = format!("etag: \"{}\"\r\nx-repo-commit: {COMMIT}\r\n", name.replace('/', "-"));
    let part = format!("content-range: bytes {start}-{last}/{}", body.len());
    send(&format!("206 Part\r\n{facts}{part}"), &body[start..=last])
}

#[test]
fn a_tasks_files_come_from_the_hub_and_then_from_the_cache() {
    let (bbh, folder) = (task("bbh"), Folder::new("hub"));
    let line = r#"{"input": "not True is", "target": "False"}"#;
    let table = |name| (name, line.as_bytes().to_vec());
    let files = vec![table("boolean_expressions/test/0000.parquet"), table("navigate/test/0000.parquet")];
    let (endpoint, _) = hub("lukaemon/bbh", "refs/convert/parquet", files);
    let mut source = HubOptions::new(endpoint, &folder.0);
    source.retries = 0;
    let mut told = Vec::new();
    let mut watch = |progress: demask_checkpoint::FetchProgress<'_>| {
        told.push(progress.file.to_owned());
        true
    };
    let options = DataOptions { file: None, subject: Some("navigate"), seed: 0, hub: &source };
    // The hub's table is none: the file is named, with its place in the cache.
    let broken = message(load(bbh, &options, &mut watch));
    assert!(broken.contains("navigate/test/0000.parquet is no complete parquet file: "), "{broken}");
    told.dedup();
    assert_eq!(told, ["navigate/test/0000.parquet"], "only the subject's file is fetched");
    // All of them: the hub has only two.
    let options = DataOptions { subject: None, ..options };
    let missing = message(load(bbh, &options, &mut |_| true));
    assert!(missing.contains("lukaemon/bbh has no file causal_judgement/test/0000.parquet"), "{missing}");
    assert!(missing.ends_with("; `data` and `shots_file` read files that are here"), "{missing}");
}

#[test]
fn problems_and_exemplars_of_mmlu_come_from_two_files_and_are_asked_for_once() {
    let (mmlu, folder) = (task("mmlu"), Folder::new("mmlu"));
    let table = fs::read(fixture("mmlu.parquet")).unwrap();
    let files = vec![("all/test-00000-of-00001.parquet", table.clone()), ("all/dev-00000-of-00001.parquet", table)];
    let (endpoint, asked) = hub("cais/mmlu", "main", files);
    let mut source = HubOptions::new(endpoint, &folder.0);
    let options = DataOptions { file: None, subject: Some("physics"), seed: 0, hub: &source };
    let problems = load(mmlu, &options, &mut |_| true).unwrap();
    assert_eq!((problems.len(), problems[0].subject.as_deref()), (1, Some("physics")));
    // Its only exemplar about physics is the problem itself.
    let none = message(shots(mmlu, 5, None, &problems, &options, &mut |_| true));
    assert_eq!(
        none,
        "5 exemplars are asked for, and mmlu has about physics 0: use `shots` 0 or less, or give more with `shots_file`"
    );
    assert!(folder.0.join("datasets--cais--mmlu/refs/main").is_file());
    let before = asked.lock().unwrap().len();
    source.offline = true;
    let options = DataOptions { file: None, subject: None, seed: 0, hub: &source };
    assert_eq!(load(mmlu, &options, &mut |_| true).unwrap().len(), 5);
    assert_eq!(asked.lock().unwrap().len(), before, "the cache answers alone");
    let gone = message(load(task("gsm8k"), &options, &mut |_| true));
    assert!(gone.contains("openai/gsm8k is not (completely) in the cache"), "{gone}");
}

#[test]
fn a_file_in_an_archive_of_the_hub_is_read() {
    let (task, folder) = (task("longbench-hotpotqa"), Folder::new("archive"));
    let archive = fs::read(fixture("data.zip")).unwrap();
    let get = |bytes: &[u8], name: &str| {
        let (endpoint, _) = hub("THUDM/LongBench", "main", vec![("data.zip", bytes.to_vec())]);
        let source = HubOptions::new(endpoint, folder.0.join(name));
        load(task, &DataOptions { file: None, subject: None, seed: 0, hub: &source }, &mut |_| true)
    };
    let problems = get(&archive, "whole").unwrap();
    assert_eq!(problems, read(task, &folder.file("lines.jsonl", entries(task))).unwrap());
    for length in [10, archive.len() / 2, archive.len() - 1] {
        let told = message(get(&archive[..length], &length.to_string()));
        assert!(told.contains("data.zip is no complete zip file: "), "{told}");
    }
    let mut renamed = archive.clone();
    for place in 0..renamed.len() - 8 {
        if renamed[place..].starts_with(b"hotpotqa") {
            renamed[place] = b'n';
        }
    }
    assert!(message(get(&renamed, "renamed")).contains("data/hotpotqa.jsonl"));
}
