//! `pull` and `list`, against a small hub of our own.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
    thread,
};

use serde_json::Value;

use crate::harness::{command, project};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Serves a checkpoint as `org/tiny`, and nothing else; its address. `cut`: connections end after half of the weights.
fn hub(cut: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || while answer(&stream, cut).is_some() {});
        }
    });
    address
}

/// Answers one request; nothing when the connection is over.
fn answer(mut stream: &TcpStream, cut: bool) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    let line = lines.next()?.ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let headers: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let folder = project("golden/ckpt/tiny-qwen2");
    let mut reply = |status: u16, more: &str, body: &[u8], sent: usize| {
        let head = format!("HTTP/1.1 {status} Status\r\n{more}content-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body[..sent])).ok()?;
        (sent == body.len()).then_some(()).or_else(|| {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            None
        })
    };
    if path == "/api/models/org/tiny/revision/main" {
        let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: Vec<String> = names.map(|name| format!(r#"{{"rfilename": "{name}"}}"#)).collect();
        let body = format!(r#"{{"sha": "{COMMIT}", "siblings": [{}]}}"#, names.join(","));
        return reply(200, "", body.as_bytes(), body.len());
    }
    let name = path.strip_prefix(&format!("/org/tiny/resolve/{COMMIT}/")).unwrap_or("nothing");
    let Ok(contents) = fs::read(Path::new(&folder).join(name)) else { return reply(404, "", b"", 0) };
    let range = headers.iter().find_map(|line| line.to_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    let (first, last) = range.as_deref().and_then(|range| range.split_once('-')).unwrap_or(("0", ""));
    let (first, end) = (first.parse().unwrap(), last.parse().map_or(contents.len(), |last: usize| last + 1));
    let facts = format!(
        "etag: \"tag-{name}\"\r\nx-repo-commit: {COMMIT}\r\ncontent-range: bytes {first}-{}/{}\r\n",
        end - 1,
        contents.len()
    );
    let body: &[u8] = &contents[first..end];
    let sent = if cut && name.ends_with("safetensors") && end == contents.len() { body.len() / 2 } else { body.len() };
    reply(206, &facts, body, sent)
}

fn with_cache(arguments: &[&str], address: &str, cache: &Path) -> Command {
    let mut command = command(arguments);
    command.env("HF_ENDPOINT", address).env("HF_HOME", cache).env_remove("HF_HUB_OFFLINE");
    command
}

/// Exit code, standard output, standard error.
fn run(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_pulled_model_is_listed_and_opens_without_the_hub() {
    let (cache, address) = (tempfile::tempdir().unwrap(), hub(false));
    let cache = cache.path();
    assert_eq!(run(with_cache(&["list", "--json"], &address, cache)).1, "[]\n");
    let (code, path, told) = run(with_cache(&["pull", "org/tiny"], &address, cache));
    assert_eq!((code, told.as_str()), (Some(0), ""));
    assert!(Path::new(path.trim_end()).join("config.json").exists(), "{path}");
    let (_, listed, _) = run(with_cache(&["list", "--json"], &address, cache));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let line = &listed[0];
    assert_eq!((&line["name"], &line["family"], &line["fits"]), (&"org/tiny".into(), &"Qwen2".into(), &true.into()));
    assert!(line["bytes"].as_u64() > Some(1000) && line["needs"].as_u64() > Some(1000), "{line}");
    let (_, text, _) = run(with_cache(&["list"], &address, cache));
    assert!(text.starts_with("org/tiny  ") && text.contains("  Qwen2, needs "), "{text}");
    let (code, ..) = run(with_cache(&["inspect", "org/tiny"], "http://127.0.0.1:9", cache));
    assert_eq!(code, Some(0));
}

#[test]
fn what_cannot_be_pulled_is_told_in_one_line() {
    let (cache, address) = (tempfile::tempdir().unwrap(), hub(false));
    let folder = project("golden/ckpt/tiny-qwen2");
    for (name, code, expected) in [
        ("org/other", 1, "org/other"),
        (&*folder, 2, "is on this machine: expected the id of a hub, org/name or org/name@REVISION"),
        ("nonsense", 2, "nonsense"),
    ] {
        let (found, printed, told) = run(with_cache(&["pull", name], &address, cache.path()));
        assert_eq!((found, printed.as_str(), told.lines().count()), (Some(code), "", 1), "{name}: {told}");
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_download_that_broke_off_is_named_and_the_list_goes_on() {
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path();
    let (code, _, told) = run(with_cache(&["pull", "org/tiny"], &hub(true), cache));
    assert_eq!((code, told.trim_end().lines().count()), (Some(1), 1), "{told}");
    // A model whose configuration is nonsense, and what is no model at all.
    let broken = cache.join("hub/models--org--broken");
    let snapshot = broken.join("snapshots").join(COMMIT);
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(broken.join("refs")).unwrap();
    fs::write(broken.join("refs/main"), COMMIT).unwrap();
    fs::write(snapshot.join("config.json"), "{").unwrap();
    fs::create_dir_all(cache.join("hub/datasets--org--data")).unwrap();
    let (code, text, _) = run(with_cache(&["list"], "http://127.0.0.1:9", cache));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((code, lines.len()), (Some(0), 2), "{text}");
    assert!(lines[0].starts_with("org/broken") && lines[0].contains("broken: "), "{text}");
    assert!(lines[1].contains("its download did not end: demask pull org/tiny goes on with it"), "{text}");
    // Pulled again, it is whole.
    assert_eq!(run(with_cache(&["pull", "org/tiny"], &hub(false), cache)).0, Some(0));
    assert!(run(with_cache(&["list"], "http://127.0.0.1:9", cache)).1.contains("Qwen2, needs "));
}
