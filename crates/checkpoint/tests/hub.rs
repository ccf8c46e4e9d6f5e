//! Fetching from a hub, against a small server of our own.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use sha1::Sha1;
use sha2::{Digest, Sha256};

use demask_checkpoint::{Checkpoint, HubError, HubOptions, fetch, fetch_dataset, locate, locate_adapter};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const ID: &str = "org/tiny";

/// Behaviour of the server beside its duty.
#[derive(Default)]
struct Behaviour {
    /// Bytes of a file's body after which the connection is dropped, each used once.
    drops: Vec<usize>,
    /// File whose transfers are dropped, if it is not the weights.
    dropped: Option<&'static str>,
    /// Sets whether a transfer brings the whole file, whatever part of it is asked for: RFC 9110 allows that.
    ignores_ranges: bool,
    /// Headers of all files' contents beside the usual ones.
    more: &'static str,
    /// Address of another server that the contents are at.
    elsewhere: Option<String>,
    /// Number of requests that came with a token.
    tokens: usize,
    /// Time for which the connection stays open, silent, before it is dropped.
    stalls: Duration,
    /// Sets whether only requests with this token are served.
    token: Option<&'static str>,
    /// Facts about files that are sent instead of the true ones.
    facts: Option<&'static str>,
    /// The revision as it stands in addresses, if this is a dataset.
    dataset: Option<&'static str>,
    /// Etags of files that have others than `tag-` and their names.
    etags: Vec<(&'static str, String)>,
    /// Sets whether contents are behind a redirection, as large files are.
    redirects: bool,
    /// All requests: path and range.
    seen: Vec<(String, Option<String>)>,
}

struct Hub {
    endpoint: String,
    behaviour: Arc<Mutex<Behaviour>>,
}

impl Hub {
    fn start(files: Vec<(String, Vec<u8>)>, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let behaviour = Arc::new(Mutex::new(behaviour));
        let (files, shared) = (Arc::new(files), Arc::clone(&behaviour));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (files, shared) = (Arc::clone(&files), Arc::clone(&shared));
                thread::spawn(move || while answer(&stream, &files, &shared).is_some() {});
            }
        });
        Self { endpoint, behaviour }
    }

    /// All requests: path and range.
    fn requests(&self) -> Vec<(String, Option<String>)> {
        self.behaviour.lock().unwrap().seen.clone()
    }

    /// First bytes of the transfers so far, without the requests for what a file is.
    fn transfers(&self) -> Vec<String> {
        let ranges = self.requests().into_iter().filter_map(|(_, range)| range);
        ranges.filter_map(|range| range.strip_prefix("bytes=")?.strip_suffix('-').map(str::to_owned)).collect()
    }

    fn options(&self, cache: &Path) -> HubOptions {
        let mut options = HubOptions::new(&self.endpoint, cache);
        options.retries = 0;
        options
    }
}

/// Answers one request; nothing when the connection is over.
fn answer(stream: &TcpStream, files: &[(String, Vec<u8>)], behaviour: &Mutex<Behaviour>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut words = line.split_whitespace();
    let path = words.nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let mut behaviour = behaviour.lock().unwrap();
    behaviour.seen.push((path.clone(), headers.get("range").cloned()));
    behaviour.tokens += usize::from(headers.contains_key("authorization"));
    let allowed = behaviour.token.is_none_or(|token| headers.get("authorization") == Some(&format!("Bearer {token}")));
    if !allowed && !path.starts_with("/cdn/") {
        return reply(stream, 401, "", b"", None);
    }
    let (listing, place) = match behaviour.dataset {
        None => (format!("/api/models/{ID}/revision/main"), ID.to_owned()),
        Some(revision) => (format!("/api/datasets/{ID}/revision/{revision}"), format!("datasets/{ID}")),
    };
    if path == listing {
        let names: Vec<String> = files.iter().map(|(name, _)| format!(r#"{{"rfilename": "{name}"}}"#)).collect();
        let body = format!(r#"{{"sha": "{COMMIT}", "siblings": [{}]}}"#, names.join(","));
        return reply(stream, 200, "", body.as_bytes(), None);
    }
    let name = path.strip_prefix(&format!("/{place}/resolve/{COMMIT}/")).or(path.strip_prefix("/cdn/"));
    let Some((name, contents)) = files.iter().find(|(file, _)| Some(file.as_str()) == name) else {
        return reply(stream, 404, "", b"", None);
    };
    let own = behaviour.etags.iter().find(|(file, _)| file == name).map(|(_, etag)| etag.clone());
    let tag = own.unwrap_or_else(|| format!("tag-{}", name.replace('/', "-")));
    let truth = || format!("etag: \"{tag}\"\r\nx-repo-commit: {COMMIT}\r\n");
    let facts = behaviour.facts.map_or_else(truth, str::to_owned);
    if behaviour.redirects && !path.starts_with("/cdn/") {
        let own = || headers.get("host").map(|host| format!("http://{host}"));
        let host = behaviour.elsewhere.clone().or_else(own)?;
        let linked = format!("location: {host}/cdn/{name}\r\nx-linked-etag: \"{tag}\"\r\n");
        return reply(stream, 302, &format!("{facts}{linked}"), b"", None);
    }
    let range = headers.get("range").filter(|range| !behaviour.ignores_ranges || *range == "bytes=0-0");
    let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let bound = |text: &str| text.parse::<usize>().ok();
    let (status, start, end) = match range {
        Some((start, end)) => (206, bound(start)?, bound(end).map_or(contents.len(), |last| last + 1)),
        None => (200, 0, contents.len()),
    };
    if start >= end {
        return reply(stream, 416, "", b"", None);
    }
    let facts = match status {
        206 => format!("{facts}content-range: bytes {start}-{}/{}\r\n", end - 1, contents.len()),
        _ => facts,
    } + behaviour.more;
    // A request for the first byte alone asks what the file is.
    let whole = behaviour.dropped.map_or(name.ends_with("safetensors"), |file| name == file) && end == contents.len();
    let drop = if whole { behaviour.drops.pop().map(|count| (count, behaviour.stalls)) } else { None };
    std::mem::drop(behaviour);
    reply(stream, status, &facts, &contents[start..end], drop)
}

fn reply(
    mut stream: &TcpStream,
    status: u16,
    headers: &str,
    body: &[u8],
    drop: Option<(usize, Duration)>,
) -> Option<()> {
    let head = format!("HTTP/1.1 {status} Status\r\n{headers}content-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).ok()?;
    if let Some((count, silence)) = drop {
        stream.write_all(&body[..count]).ok()?;
        thread::sleep(silence);
        stream.shutdown(std::net::Shutdown::Both).ok()?;
        return None;
    }
    stream.write_all(body).ok()
}

fn files_of(checkpoint: &str) -> Vec<(String, Vec<u8>)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt").join(checkpoint);
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

/// A cache of one test's own, removed at its end.
struct Cache(PathBuf);

impl Cache {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("demask-hub-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn get(options: &HubOptions) -> Result<PathBuf, HubError> {
    fetch(ID, None, options, &mut |_| true)
}

fn message(result: Result<PathBuf, HubError>) -> String {
    let message = result.unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn a_model_is_fetched_once_and_lies_in_the_shared_layout() {
    for (name, redirects) in [("tiny-qwen2", false), ("tiny-llada-sharded", true)] {
        let hub = Hub::start(files_of(name), Behaviour { redirects, ..Behaviour::default() });
        let cache = Cache::new(name);
        let options = hub.options(&cache.0);
        let mut reached = HashMap::new();
        let files = locate(ID, &options, &mut |progress| {
            assert!(progress.total.is_some_and(|total| progress.done <= total));
            reached.insert(progress.file.to_owned(), progress.done);
            true
        });
        let files = files.unwrap();
        let directory = files.path().unwrap().to_path_buf();
        assert_eq!(directory, cache.0.join("models--org--tiny/snapshots").join(COMMIT));
        let sizes: HashMap<String, u64> =
            files_of(name).into_iter().map(|(file, text)| (file, text.len() as u64)).collect();
        assert_eq!(reached, sizes);
        assert_eq!(fs::read_to_string(cache.0.join("models--org--tiny/refs/main")).unwrap(), COMMIT);
        let link = fs::read_link(directory.join("config.json")).unwrap();
        assert_eq!(link, Path::new("../../blobs/tag-config.json"));
        assert_eq!(Checkpoint::open(files).unwrap().name(), ID);
        let before = hub.requests().len();
        get(&options).unwrap();
        assert_eq!(hub.requests().len(), before + 1, "only the listing is asked for again");
    }
}

#[test]
fn a_download_that_breaks_off_goes_on_with_the_next_call() {
    let hub = Hub::start(files_of("tiny-qwen2"), Behaviour { drops: vec![1000, 5000], ..Behaviour::default() });
    let cache = Cache::new("resume");
    let options = hub.options(&cache.0);
    let size = files_of("tiny-qwen2").iter().find(|(name, _)| name.ends_with("safetensors")).unwrap().1.len();
    let expected = |done| {
        format!(
            "the download of model.safetensors broke off at {done} of {size} bytes: run the same command again to go on from there"
        )
    };
    assert_eq!(message(get(&options)), expected(5000));
    assert!(!cache.0.join("models--org--tiny/refs/main").exists(), "nothing refers to half a model");
    assert_eq!(message(get(&options)), expected(6000));
    let directory = get(&options).unwrap();
    let weights = |path: &Path| fs::read(path.join("model.safetensors")).unwrap();
    assert_eq!(
        weights(&directory),
        weights(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt/tiny-qwen2"))
    );
    let mut starts = hub.transfers();
    starts.retain(|start| start != "0");
    assert_eq!(starts, ["5000", "6000"]);
}

#[test]
fn a_stopped_download_lets_go_and_goes_on_with_the_next_call() {
    let hub = Hub::start(files_of("tiny-qwen2"), Behaviour::default());
    let cache = Cache::new("stopped");
    let options = hub.options(&cache.0);
    let stopped = fetch(ID, None, &options, &mut |progress| !progress.file.ends_with("safetensors"));
    let expected = format!("fetching {ID} was interrupted: what is there stays, and the next call goes on from it");
    assert_eq!(message(stopped), expected);
    // The thread of the stopped transfer lets go of its lock with the next bytes that arrive.
    let started = std::time::Instant::now();
    while let Err(error) = get(&options) {
        assert!(matches!(error, HubError::Busy { .. }) && started.elapsed() < Duration::from_secs(20), "{error}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_connection_that_stalls_is_given_up_and_goes_on_with_the_next_call() {
    let stalls = Duration::from_millis(1500);
    let hub = Hub::start(files_of("tiny-qwen2"), Behaviour { drops: vec![1000], stalls, ..Behaviour::default() });
    let cache = Cache::new("stall");
    let mut options = hub.options(&cache.0);
    options.patience = Duration::from_millis(500);
    assert!(message(get(&options)).starts_with("the download of model.safetensors broke off at 1000 of "));
    // The next call waits until the connection that stalls lets go of the file.
    options.patience = Duration::from_mins(1);
    get(&options).unwrap();
    assert_eq!(hub.transfers().last().map(String::as_str), Some("1000"));
}

#[test]
fn what_the_cache_has_is_not_transferred_again() {
    let hub = Hub::start(files_of("tiny-qwen2"), Behaviour::default());
    let cache = Cache::new("blobs");
    let options = hub.options(&cache.0);
    let directory = get(&options).unwrap();
    let transfers = hub.transfers();
    // As with another commit that has the same weights.
    fs::remove_file(directory.join("model.safetensors")).unwrap();
    get(&options).unwrap();
    let link = fs::read_link(directory.join("model.safetensors")).unwrap();
    assert_eq!(link, Path::new("../../blobs/tag-model.safetensors"));
    // As after a call that ended before the file got its name.
    let blobs = cache.0.join("models--org--tiny/blobs");
    fs::remove_file(directory.join("model.safetensors")).unwrap();
    fs::rename(blobs.join("tag-model.safetensors"), blobs.join("tag-model.part")).unwrap();
    get(&options).unwrap();
    assert!(directory.join("model.safetensors").is_file());
    assert_eq!(hub.transfers(), transfers);
    // A link whose contents were deleted is no file.
    fs::remove_file(blobs.join("tag-model.safetensors")).unwrap();
    get(&options).unwrap();
    assert_eq!(hub.transfers().len(), transfers.len() + 1);
}

#[test]
fn more_bytes_than_a_file_has_are_no_part_of_it() {
    let hub = Hub::start(files_of("tiny-qwen2"), Behaviour { drops: vec![1000], ..Behaviour::default() });
    let cache = Cache::new("long");
    let options = hub.options(&cache.0);
    message(get(&options));
    let part = cache.0.join("models--org--tiny/blobs/tag-model.part");
    assert_eq!(fs::metadata(&part).unwrap().len(), 1000);
    fs::write(&part, vec![0; 1 << 22]).unwrap();
    let directory = get(&options).unwrap();
    let contents = files_of("tiny-qwen2").into_iter().find(|(name, _)| name == "model.safetensors").unwrap().1;
    assert!(contents.len() < 1 << 22 && fs::read(directory.join("model.safetensors")).unwrap() == contents);
}

#[test]
fn a_transfer_is_taken_up_again_within_a_call() {
    let hub =
        Hub::start(files_of("tiny-qwen2"), Behaviour { drops: vec![1000], redirects: true, ..Behaviour::default() });
    let cache = Cache::new("retry");
    let mut options = hub.options(&cache.0);
    options.retries = 1;
    get(&options).unwrap();
}

#[test]
fn a_model_that_does_not_exist_is_named() {
    let hub = Hub::start(Vec::new(), Behaviour::default());
    let cache = Cache::new("absent");
    let options = hub.options(&cache.0);
    let endpoint = &hub.endpoint;
    let found = message(fetch("org/other", Some("v2"), &options, &mut |_| true));
    assert_eq!(found, format!("{endpoint} has no model org/other at revision v2: check the spelling of both"));
    let found = message(get(&options));
    assert_eq!(
        found,
        "org/tiny has no config.json: expected config.json and safetensors; use a repository that has both"
    );
    let found = message(fetch("../etc", None, &options, &mut |_| true));
    assert_eq!(found, "\"../etc\" is not a model of a hub: expected org/name, or org/name@revision");
}

#[test]
fn a_model_behind_a_token_says_so_and_opens_with_it() {
    let hub = Hub::start(files_of("tiny-qwen2"), Behaviour { token: Some("secret"), ..Behaviour::default() });
    let cache = Cache::new("token");
    let mut options = hub.options(&cache.0);
    let endpoint = hub.endpoint.clone();
    assert_eq!(
        message(get(&options)),
        format!(
            "{endpoint} denies access to org/tiny (status 401): check the name; if it is right, set HF_TOKEN to a token that may read it"
        )
    );
    options.token = Some("wrong".to_owned());
    assert!(message(get(&options)).ends_with("ask for access with the account of this token"));
    options.token = Some("secret".to_owned());
    get(&options).unwrap();
    assert!(!format!("{options:?}").contains("secret"));
}

fn digits(hash: &[u8]) -> String {
    hash.iter().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"))
}

fn contents(file: &str) -> Vec<u8> {
    files_of("tiny-qwen2").into_iter().find(|(name, _)| name == file).unwrap().1
}

/// SHA-256 of the weights of `tiny-qwen2`.
fn hash_of_weights() -> String {
    digits(&Sha256::digest(contents("model.safetensors")))
}

/// Names that hubs and mirrors give a file: its SHA-256, its SHA-1 as git has it, its SHA-1, and no hash at all.
fn names(contents: &[u8]) -> [String; 4] {
    let blob = [format!("blob {}\0", contents.len()).as_bytes(), contents].concat();
    let sums = [Sha1::digest(blob), Sha1::digest(contents)].map(|sum| digits(&sum));
    let [git, plain] = sums;
    [digits(&Sha256::digest(contents)), git, plain, "tag".to_owned()]
}

#[test]
fn the_rest_of_a_file_that_comes_whole_is_not_appended() {
    for (file, cut) in [("config.json", 100), ("tokenizer_config.json", 40), ("model.safetensors", 1000)] {
        let mut files = files_of("tiny-qwen2");
        files.push((
            "tokenizer_config.json".to_owned(),
            br#"{"chat_template": "{{ messages }}{{ 1 }}{{ 2 }}"}"#.to_vec(),
        ));
        let whole = files.iter().find(|(name, _)| name == file).unwrap().1.clone();
        for etag in names(&whole) {
            let etags = vec![(file, etag)];
            let behaviour = Behaviour {
                drops: vec![cut],
                dropped: Some(file),
                ignores_ranges: true,
                etags,
                ..Behaviour::default()
            };
            let hub = Hub::start(files.clone(), behaviour);
            let cache = Cache::new("ranges");
            let mut options = hub.options(&cache.0);
            assert!(message(get(&options)).starts_with(&format!("the download of {file} broke off at {cut} of ")));
            assert_eq!(fs::read(get(&options).unwrap().join(file)).unwrap(), whole);
            assert_eq!(hub.transfers().iter().filter(|start| **start == cut.to_string()).count(), 1);
            // Within a call, too.
            drop(cache);
            hub.behaviour.lock().unwrap().drops.push(cut);
            options.retries = 1;
            assert_eq!(fs::read(get(&options).unwrap().join(file)).unwrap(), whole);
        }
    }
}

#[test]
fn small_files_too_are_compared_with_the_hash_that_the_hub_names() {
    let config = contents("config.json");
    let etags = |etag: String| vec![("config.json", etag)];
    for etag in names(&config) {
        let hub = Hub::start(files_of("tiny-qwen2"), Behaviour { etags: etags(etag), ..Behaviour::default() });
        let cache = Cache::new("named");
        get(&hub.options(&cache.0)).unwrap();
    }
    // As many bytes, another number of layers.
    let mut other = String::from_utf8(config).unwrap();
    other = other.replace("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2");
    let [sha256, git, ..] = names(other.as_bytes());
    for (sum, etag) in [("SHA-256", sha256), ("SHA-1", git)] {
        let hub = Hub::start(files_of("tiny-qwen2"), Behaviour { etags: etags(etag.clone()), ..Behaviour::default() });
        let cache = Cache::new("unlike");
        let message = message(get(&hub.options(&cache.0)));
        assert!(message.starts_with(&format!("the download of config.json is damaged: its {sum} is ")), "{message}");
        assert!(message.contains(&etag), "{message}");
    }
}

#[test]
#[cfg(unix)]
fn a_damaged_file_that_is_linked_already_is_fetched_again() {
    let config = contents("config.json");
    for etag in &names(&config)[..3] {
        let etags = vec![("config.json", etag.clone())];
        let hub = Hub::start(files_of("tiny-qwen2"), Behaviour { etags, ..Behaviour::default() });
        let cache = Cache::new("linked");
        let options = hub.options(&cache.0);
        let directory = get(&options).unwrap();
        fs::write(directory.join("config.json"), &config[..100]).unwrap();
        get(&options).unwrap();
        assert_eq!(fs::read(directory.join("config.json")).unwrap(), config);
    }
}

#[test]
fn contents_that_are_packed_on_the_way_are_refused() {
    let hub =
        Hub::start(files_of("tiny-qwen2"), Behaviour { more: "content-encoding: gzip\r\n", ..Behaviour::default() });
    let cache = Cache::new("packed");
    let message = message(get(&hub.options(&cache.0)));
    assert!(message.contains("answered contents in \"gzip\", expected them as they are"), "{message}");
}

#[test]
fn a_token_does_not_go_to_another_server() {
    let other = Hub::start(files_of("tiny-qwen2"), Behaviour::default());
    let hub = Hub::start(
        files_of("tiny-qwen2"),
        Behaviour {
            token: Some("secret"),
            redirects: true,
            elsewhere: Some(other.endpoint.clone()),
            ..Behaviour::default()
        },
    );
    let cache = Cache::new("elsewhere");
    let mut options = hub.options(&cache.0);
    options.token = Some("secret".to_owned());
    get(&options).unwrap();
    assert!(hub.behaviour.lock().unwrap().tokens > 0);
    assert!(!other.requests().is_empty());
    assert_eq!(other.behaviour.lock().unwrap().tokens, 0);
}

#[test]
fn a_description_without_an_end_is_not_read_to_it() {
    let listing = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listing.local_addr().unwrap());
    thread::spawn(move || {
        let (mut stream, _) = listing.accept().unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000000\r\n\r\n").unwrap();
        let piece = vec![b' '; 1 << 20];
        while stream.write_all(&piece).is_ok() {}
    });
    let cache = Cache::new("endless");
    let message = message(get(&HubOptions::new(endpoint, &cache.0)));
    assert!(message.contains("answered more than 10485760 bytes, expected the JSON description"), "{message}");
}

#[test]
fn contents_are_compared_with_the_hash_that_the_hub_names() {
    let right = hash_of_weights();
    let hub = |etag: &str, drops: Vec<usize>| {
        let etags = vec![("model.safetensors", etag.to_owned())];
        Hub::start(files_of("tiny-qwen2"), Behaviour { drops, etags, ..Behaviour::default() })
    };
    let cache = Cache::new("hash");
    let directory = get(&hub(&right, Vec::new()).options(&cache.0)).unwrap();
    assert!(directory.join("model.safetensors").is_file());
    // A whole part that an earlier call left is looked at, too.
    for drops in [Vec::new(), vec![1000]] {
        let wrong = format!("{}{}", if right.starts_with('0') { "1" } else { "0" }, &right[1..]);
        let hub = hub(&wrong, drops.clone());
        let cache = Cache::new("damaged");
        let options = hub.options(&cache.0);
        if !drops.is_empty() {
            message(get(&options));
            let part = cache.0.join(format!("models--org--tiny/blobs/{wrong}.part"));
            let weights = files_of("tiny-qwen2").into_iter().find(|(name, _)| name == "model.safetensors").unwrap().1;
            fs::write(&part, weights).unwrap();
        }
        assert_eq!(
            message(get(&options)),
            format!(
                "the download of model.safetensors is damaged: its SHA-256 is {right}, expected {wrong}; it was removed, run the same command again"
            )
        );
        let left = fs::read_dir(cache.0.join("models--org--tiny/blobs")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(!left.contains(&wrong) && !left.contains(&format!("{wrong}.part")), "{left:?}");
        assert!(!cache.0.join("models--org--tiny/snapshots").join(COMMIT).join("model.safetensors").exists());
        assert!(!cache.0.join("models--org--tiny/refs/main").exists(), "nothing refers to what is damaged");
    }
}

#[test]
fn files_that_are_too_large_are_not_fetched() {
    let mut files = files_of("tiny-qwen2");
    files.retain(|(name, _)| name != "config.json");
    files.push(("config.json".to_owned(), vec![b' '; (1 << 20) + 1]));
    let hub = Hub::start(files, Behaviour::default());
    let cache = Cache::new("large");
    assert_eq!(
        message(get(&hub.options(&cache.0))),
        "config.json of org/tiny has 1048577 bytes, expected at most 1048576: use a repository with a whole model of its kind"
    );
    assert!(hub.transfers().is_empty(), "{:?}", hub.transfers());
}

#[test]
fn a_hub_that_makes_no_sense_is_named() {
    for (facts, found) in [
        ("", "without the header etag"),
        ("etag: \"../../up\"\r\nx-repo-commit: 0123456789abcdef0123456789abcdef01234567\r\n", "etag \"../../up\""),
        ("etag: \"tag\"\r\nx-repo-commit: ../../up\r\n", "etag \"tag\" of commit \"../../up\""),
    ] {
        let hub = Hub::start(files_of("tiny-qwen2"), Behaviour { facts: Some(facts), ..Behaviour::default() });
        let cache = Cache::new("sense");
        let told = message(get(&hub.options(&cache.0)));
        let address = format!("{}/{ID}/resolve/{COMMIT}/config.json answered {found}", hub.endpoint);
        assert!(told.starts_with(&address), "{told}");
        assert!(!cache.0.exists(), "nothing is written");
    }
}

#[test]
fn offline_the_cache_answers_or_says_what_to_do() {
    let hub = Hub::start(files_of("tiny-llada-sharded"), Behaviour::default());
    let cache = Cache::new("offline");
    let mut options = hub.options(&cache.0);
    options.offline = true;
    let expected = format!(
        "org/tiny is not (completely) in the cache {}, and HF_HUB_OFFLINE is set: unset it to fetch the model",
        cache.0.display()
    );
    assert_eq!(message(get(&options)), expected);
    options.offline = false;
    let directory = get(&options).unwrap();
    options.offline = true;
    let asked = hub.requests().len();
    assert_eq!(get(&options).unwrap(), directory);
    assert_eq!(fetch(ID, Some(COMMIT), &options, &mut |_| true).unwrap(), directory);
    assert_eq!(hub.requests().len(), asked);
    fs::remove_file(directory.join("model-00002-of-00002.safetensors")).unwrap();
    assert_eq!(message(get(&options)), expected);
}

#[test]
fn without_a_network_the_cache_stands_in() {
    let hub = Hub::start(files_of("tiny-qwen2"), Behaviour::default());
    let cache = Cache::new("network");
    let mut options = hub.options(&cache.0);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    options.endpoint = format!("http://{nobody}");
    assert!(message(get(&options)).starts_with(&format!("cannot reach http://{nobody}/api/models/org/tiny")));
    options.endpoint.clone_from(&hub.endpoint);
    let directory = get(&options).unwrap();
    options.endpoint = format!("http://{nobody}");
    assert_eq!(get(&options).unwrap(), directory);
}

#[test]
fn the_environment_is_that_of_the_hubs_own_tools() {
    let home = Cache::new("home");
    fs::create_dir_all(&home.0).unwrap();
    fs::write(home.0.join("token"), "from-file\n").unwrap();
    let text = home.0.to_str().unwrap().to_owned();
    let table = |pairs: Vec<(&'static str, String)>| {
        HubOptions::from_lookup(&move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone()))
    };
    let plain = table(vec![("HOME", "/home/me".to_owned())]);
    assert_eq!(plain.cache, Path::new("/home/me/.cache/huggingface/hub"));
    assert_eq!((plain.offline, plain.token), (false, None));
    let full = table(vec![
        ("HF_HOME", text.clone()),
        ("HF_ENDPOINT", "http://mirror/".to_owned()),
        ("HF_HUB_OFFLINE", "1".to_owned()),
    ]);
    assert_eq!(full.cache, home.0.join("hub"));
    assert_eq!(
        (full.endpoint.as_str(), full.offline, full.token.as_deref()),
        ("http://mirror", true, Some("from-file"))
    );
    let token = table(vec![("HF_HOME", text), ("HF_TOKEN", "direct".to_owned()), ("HF_HUB_CACHE", "/c".to_owned())]);
    assert_eq!((token.cache.as_path(), token.token.as_deref()), (Path::new("/c"), Some("direct")));
}

#[test]
fn paths_of_the_environment_are_expanded_as_the_hubs_own_tools_do_it() {
    let read = |pairs: &[(&'static str, &'static str)]| {
        HubOptions::from_lookup(&|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    };
    let home = ("HOME", "/home/me");
    for (pairs, cache) in [
        (vec![home, ("HF_HOME", "~/hf")], "/home/me/hf/hub"),
        (vec![home, ("HF_HOME", "~")], "/home/me/hub"),
        (vec![home, ("HF_HOME", "$DATA/hf"), ("DATA", "/data")], "/data/hf/hub"),
        (vec![home, ("HF_HOME", "${DATA}x/$USER"), ("DATA", "/data"), ("USER", "me")], "/datax/me/hub"),
        (vec![home, ("HF_HOME", "/a/$NONE/${NONE}/${x/$")], "/a/$NONE/${NONE}/${x/$/hub"),
        (vec![home, ("HF_HOME", "/a/~/b")], "/a/~/b/hub"),
        (vec![home, ("HF_HOME", "~root/hf")], "/root/hf/hub"),
        (vec![home, ("HF_HOME", "~no-such-user/hf")], "~no-such-user/hf/hub"),
        (vec![home, ("XDG_CACHE_HOME", "~/c")], "/home/me/c/huggingface/hub"),
        (vec![home, ("XDG_CACHE_HOME", "$HOME/c")], "/home/me/c/huggingface/hub"),
        (vec![home, ("HF_HUB_CACHE", "~/models")], "/home/me/models"),
        (vec![home, ("HUGGINGFACE_HUB_CACHE", "$HOME/models")], "/home/me/models"),
        (vec![home, ("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HUB_CACHE", "/new")], "/new"),
        (vec![home, ("HF_HUB_CACHE", ""), ("HF_HOME", "")], "/home/me/.cache/huggingface/hub"),
    ] {
        assert_eq!(read(&pairs).cache, Path::new(cache), "{pairs:?}");
    }
    let place = Cache::new("token-file");
    fs::create_dir_all(&place.0).unwrap();
    fs::write(place.0.join("token"), " hf_\r\nfile\n").unwrap();
    let place: &'static str = place.0.to_str().unwrap().to_owned().leak();
    for (pairs, token) in [
        (vec![("HF_TOKEN_PATH", "$PLACE/token"), ("PLACE", place)], Some("hf_file")),
        (vec![("HF_TOKEN_PATH", "~/token"), ("HOME", place)], Some("hf_file")),
        (vec![("HF_HOME", place), ("HUGGING_FACE_HUB_TOKEN", "old\n")], Some("old")),
        (vec![("HF_TOKEN", "new"), ("HUGGING_FACE_HUB_TOKEN", "old")], Some("new")),
        (vec![("HF_TOKEN", "new"), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")], None),
        (vec![("HOME", "/nowhere")], None),
    ] {
        assert_eq!(read(&pairs).token.as_deref(), token, "{pairs:?}");
    }
    for (pairs, offline) in [
        (vec![("HF_HUB_OFFLINE", "True")], true),
        (vec![("HF_HUB_OFFLINE", "YES")], true),
        (vec![("HF_HUB_OFFLINE", "on")], true),
        (vec![("HF_HUB_OFFLINE", "2")], false),
        (vec![("TRANSFORMERS_OFFLINE", "1")], true),
        (vec![("HF_HUB_OFFLINE", "0"), ("TRANSFORMERS_OFFLINE", "1")], false),
        (vec![("HF_HUB_OFFLINE", ""), ("TRANSFORMERS_OFFLINE", "1")], true),
    ] {
        assert_eq!(read(&pairs).offline, offline, "{pairs:?}");
    }
    assert_eq!(read(&[("HF_ENDPOINT", "https://mirror//")]).endpoint, "https://mirror");
}

#[test]
fn an_adapter_is_fetched_once_and_its_files_alone() {
    let mut files = files_of("idlm-base-toy-lora");
    files.push(("optimizer.pt".to_owned(), b"large".to_vec()));
    let hub = Hub::start(files, Behaviour::default());
    let cache = Cache::new("adapter");
    let mut options = hub.options(&cache.0);
    let get = |options: &HubOptions| locate_adapter(ID, options, &mut |_| true);
    let directory = get(&options).unwrap().path().unwrap().to_path_buf();
    let mut found: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    found.sort();
    assert_eq!(found, ["adapter_config.json", "adapter_model.safetensors"]);
    options.offline = true;
    assert_eq!(get(&options).unwrap().name(), ID);
    let model = Hub::start(files_of("tiny-qwen2"), Behaviour::default());
    let cache = Cache::new("no-adapter");
    let refused = get(&model.options(&cache.0)).err().unwrap().to_string();
    assert!(refused.starts_with("org/tiny has no file adapter_config.json at revision main"), "{refused}");
}

#[test]
fn files_of_a_dataset_lie_beside_the_models_and_below_their_directories() {
    let revision = "refs/convert/parquet";
    let files = vec![
        ("default/test/0000.parquet".to_owned(), b"one".to_vec()),
        ("default/train/0000.parquet".to_owned(), b"three".to_vec()),
        ("README.md".to_owned(), b"two".to_vec()),
    ];
    let dataset = Some("refs%2Fconvert%2Fparquet");
    let hub = Hub::start(files, Behaviour { dataset, token: Some("secret"), ..Behaviour::default() });
    let cache = Cache::new("dataset");
    let mut options = hub.options(&cache.0);
    let get = |options: &HubOptions, file: &str| fetch_dataset(ID, revision, &[file], options, &mut |_| true);
    assert!(message(get(&options, "default/test/0000.parquet")).contains("set HF_TOKEN"));
    options.token = Some("secret".to_owned());
    let directory = get(&options, "default/test/0000.parquet").unwrap();
    assert_eq!(directory, cache.0.join("datasets--org--tiny/snapshots").join(COMMIT));
    assert_eq!(fs::read(directory.join("default/test/0000.parquet")).unwrap(), b"one");
    assert!(!directory.join("default/train/0000.parquet").exists(), "only what is asked for is fetched");
    let reference = fs::read_to_string(cache.0.join("datasets--org--tiny/refs").join(revision)).unwrap();
    assert_eq!(reference, COMMIT);
    assert_eq!(
        message(get(&options, "data.zip")),
        format!("{ID} has no file data.zip at revision {revision}: it may have been moved; give a local copy instead")
    );
    // Contents that are here already are linked from below directories too.
    fs::remove_file(directory.join("default/test/0000.parquet")).unwrap();
    get(&options, "default/test/0000.parquet").unwrap();
    assert_eq!(fs::read(directory.join("default/test/0000.parquet")).unwrap(), b"one");

    options.offline = true;
    get(&options, "default/test/0000.parquet").unwrap();
    assert_eq!(
        message(get(&options, "default/train/0000.parquet")),
        format!(
            "{ID} is not (completely) in the cache {}, and HF_HUB_OFFLINE is set: unset it to fetch the dataset",
            cache.0.display()
        )
    );
    options.offline = false;
    options.endpoint = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    get(&options, "default/test/0000.parquet").unwrap();
    assert!(message(get(&options, "default/train/0000.parquet")).starts_with("cannot reach http://127.0.0.1"));
}
