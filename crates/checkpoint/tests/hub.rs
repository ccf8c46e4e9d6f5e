//! Fetching from a hub, against a small server of our own.

use std::{
    collections::HashMap,
    fs,
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use demask_checkpoint::{Checkpoint, HubError, HubOptions, Survey, Wanted, fetch_dataset, locate, survey};
use demask_model::{Role, WeightSource};
use demask_testkit::{
    gguf::split,
    hub::{Behaviour, COMMIT, Hub, ID, files_in},
};
use sha1::Sha1;
use sha2::{Digest, Sha256};

fn options(hub: &Hub, cache: &Path) -> HubOptions {
    let mut options = HubOptions::new(&hub.endpoint, cache);
    options.retries = 0;
    options
}

fn files_of(checkpoint: &str) -> Vec<(String, Vec<u8>)> {
    files_in(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt").join(checkpoint))
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
    fetch(ID, options)
}

/// The directory, or the GGUF file, of a model that is fetched.
fn fetch(name: &str, options: &HubOptions) -> Result<PathBuf, HubError> {
    Ok(locate(name, Wanted::Model, options, &mut |_| true)?.path().unwrap().to_path_buf())
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
        let options = options(&hub, &cache.0);
        let mut reached = HashMap::new();
        let files = locate(ID, Wanted::Model, &options, &mut |progress| {
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
    let options = options(&hub, &cache.0);
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
    let options = options(&hub, &cache.0);
    let stopped = locate(ID, Wanted::Model, &options, &mut |progress| !progress.file.ends_with("safetensors"))
        .map(|files| files.path().unwrap().to_path_buf());
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
    let mut options = options(&hub, &cache.0);
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
    let options = options(&hub, &cache.0);
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
    let options = options(&hub, &cache.0);
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
    let mut options = options(&hub, &cache.0);
    options.retries = 1;
    get(&options).unwrap();
}

#[test]
fn a_model_that_does_not_exist_is_named() {
    let hub = Hub::start(Vec::new(), Behaviour::default());
    let cache = Cache::new("absent");
    let options = options(&hub, &cache.0);
    let endpoint = &hub.endpoint;
    let found = message(fetch("org/other@v2", &options));
    assert_eq!(found, format!("{endpoint} has no model org/other at revision v2: check the spelling of both"));
    let found = message(get(&options));
    assert_eq!(
        found,
        "org/tiny has no config.json: expected config.json and safetensors, or GGUF files; use a repository that has them"
    );
    let found = message(fetch_dataset("../etc", "main", &[], &options, &mut |_| true));
    assert_eq!(found, "\"../etc\" is not a dataset of a hub: expected org/name, or org/name@revision");
}

#[test]
fn a_model_behind_a_token_says_so_and_opens_with_it() {
    let hub = Hub::start(files_of("tiny-qwen2"), Behaviour { token: Some("secret"), ..Behaviour::default() });
    let cache = Cache::new("token");
    let mut options = options(&hub, &cache.0);
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
            let mut options = options(&hub, &cache.0);
            assert!(message(get(&options)).starts_with(&format!("the download of {file} broke off at {cut} of ")));
            assert_eq!(fs::read(get(&options).unwrap().join(file)).unwrap(), whole);
            assert_eq!(hub.transfers().iter().filter(|start| **start == cut.to_string()).count(), 1);
            // Within a call, too.
            fs::remove_dir_all(&cache.0).unwrap();
            hub.behaviour().drops.push(cut);
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
        get(&options(&hub, &cache.0)).unwrap();
    }
    // As many bytes, another number of layers.
    let mut other = String::from_utf8(config).unwrap();
    other = other.replace("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2");
    let [sha256, git, ..] = names(other.as_bytes());
    for (sum, etag) in [("SHA-256", sha256), ("SHA-1", git)] {
        let hub = Hub::start(files_of("tiny-qwen2"), Behaviour { etags: etags(etag.clone()), ..Behaviour::default() });
        let cache = Cache::new("unlike");
        let message = message(get(&options(&hub, &cache.0)));
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
        let options = options(&hub, &cache.0);
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
    let message = message(get(&options(&hub, &cache.0)));
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
    let mut options = options(&hub, &cache.0);
    options.token = Some("secret".to_owned());
    get(&options).unwrap();
    assert!(hub.behaviour().tokens > 0);
    assert!(!other.requests().is_empty());
    assert_eq!(other.behaviour().tokens, 0);
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
    let directory = get(&options(&hub(&right, Vec::new()), &cache.0)).unwrap();
    assert!(directory.join("model.safetensors").is_file());
    // A whole part that an earlier call left is looked at, too.
    for drops in [Vec::new(), vec![1000]] {
        let wrong = format!("{}{}", if right.starts_with('0') { "1" } else { "0" }, &right[1..]);
        let hub = hub(&wrong, drops.clone());
        let cache = Cache::new("damaged");
        let options = options(&hub, &cache.0);
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
        message(get(&options(&hub, &cache.0))),
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
        let told = message(get(&options(&hub, &cache.0)));
        let address = format!("{}/{ID}/resolve/{COMMIT}/config.json answered {found}", hub.endpoint);
        assert!(told.starts_with(&address), "{told}");
        assert!(!cache.0.exists(), "nothing is written");
    }
}

#[test]
fn offline_the_cache_answers_or_says_what_to_do() {
    let hub = Hub::start(files_of("tiny-llada-sharded"), Behaviour::default());
    let cache = Cache::new("offline");
    let mut options = options(&hub, &cache.0);
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
    assert_eq!(fetch(&format!("{ID}@{COMMIT}"), &options).unwrap(), directory);
    assert_eq!(hub.requests().len(), asked);
    fs::remove_file(directory.join("model-00002-of-00002.safetensors")).unwrap();
    assert_eq!(message(get(&options)), expected);
}

#[test]
fn without_a_network_the_cache_stands_in() {
    let hub = Hub::start(files_of("tiny-qwen2"), Behaviour::default());
    let cache = Cache::new("network");
    let mut options = options(&hub, &cache.0);
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
    let mut options = options(&hub, &cache.0);
    let get = |options: &HubOptions| locate(ID, Wanted::Adapter, options, &mut |_| true);
    let directory = get(&options).unwrap().path().unwrap().to_path_buf();
    let mut found: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    found.sort();
    assert_eq!(found, ["adapter_config.json", "adapter_model.safetensors"]);
    options.offline = true;
    assert_eq!(get(&options).unwrap().name(), ID);
    let model = Hub::start(files_of("tiny-qwen2"), Behaviour::default());
    let cache = Cache::new("no-adapter");
    options = self::options(&model, &cache.0);
    let refused = get(&options).err().unwrap().to_string();
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
    let mut options = options(&hub, &cache.0);
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

/// A whole GGUF file.
const TINY: &[u8] = include_bytes!("data/tiny.gguf");

/// The file with more behind it than its descriptions take.
fn long_gguf() -> Vec<u8> {
    [TINY, &vec![0; 1 << 18]].concat()
}

/// A repository of GGUF files: two quantisations, one of them in parts, and what is no model.
fn gguf_repository() -> Vec<(String, Vec<u8>)> {
    let mut files = vec![
        ("tiny-q8_0.gguf".to_owned(), TINY.to_vec()),
        ("mmproj-f16.gguf".to_owned(), b"GGUF".to_vec()),
        ("README.md".to_owned(), b"a model".to_vec()),
        ("../../out-Q2_K.gguf".to_owned(), b"GGUF".to_vec()),
    ];
    let parts = split(TINY, 2).into_iter().enumerate();
    files.extend(parts.map(|(index, part)| (format!("Q4/tiny-Q4_K_M-0000{}-of-00002.gguf", index + 1), part)));
    files
}

/// Files that were transferred whole, or from some byte on.
fn transferred(hub: &Hub) -> Vec<String> {
    let transfers =
        hub.requests().into_iter().filter(|(_, range)| range.as_ref().is_some_and(|range| range.ends_with('-')));
    transfers.filter_map(|(path, _)| Some(path.split_once(COMMIT)?.1[1..].to_owned())).collect()
}

#[test]
fn a_quantisation_of_a_repository_is_fetched_alone() {
    for (suffix, first) in [
        (":q4_k_m", "Q4/tiny-Q4_K_M-00001-of-00002.gguf"),
        ("/Q4/tiny-Q4_K_M-00002-of-00002.gguf", "Q4/tiny-Q4_K_M-00001-of-00002.gguf"),
        (":Q8_0@main", "tiny-q8_0.gguf"),
        ("/tiny-q8_0.gguf", "tiny-q8_0.gguf"),
    ] {
        let hub = Hub::start(gguf_repository(), Behaviour { redirects: true, ..Behaviour::default() });
        let cache = Cache::new("quantisation");
        let mut options = options(&hub, &cache.0);
        for host in ["", "hf.co/", &format!("{}/", hub.endpoint)] {
            let files = locate(&format!("{host}{ID}{suffix}"), Wanted::Model, &options, &mut |_| true).unwrap();
            let path = cache.0.join("models--org--tiny/snapshots").join(COMMIT).join(first);
            assert_eq!(files.path().unwrap(), path, "{suffix}");
            let name = files.name().to_lowercase();
            assert!(name == "org/tiny:q4_k_m" || name == "org/tiny:q8_0", "{name}");
            assert_eq!(Checkpoint::open(files).unwrap().spec().layers, 1);
        }
        let count = if first.contains("-of-") { 2 } else { 1 };
        let fetched = transferred(&hub);
        assert!(fetched.iter().all(|file| file.starts_with(&first[..8])) && fetched.len() == count, "{fetched:?}");
        // The cache knows it by the same name.
        options.offline = true;
        let asked = hub.requests().len();
        assert!(fetch(&format!("{ID}{suffix}"), &options).unwrap().ends_with(first));
        assert_eq!(hub.requests().len(), asked);
    }
}

#[test]
fn a_pasted_address_of_a_file_is_that_file() {
    let hub = Hub::start(gguf_repository(), Behaviour::default());
    let cache = Cache::new("pasted");
    let options = options(&hub, &cache.0);
    for address in [
        format!("{}/{ID}/blob/main/tiny-q8_0.gguf", hub.endpoint),
        format!("https://huggingface.co/{ID}/resolve/main/tiny-q8_0.gguf?download=true"),
    ] {
        assert!(fetch(&address, &options).unwrap().ends_with("tiny-q8_0.gguf"), "{address}");
    }
    let refused = message(fetch("https://example.com/org/tiny", &options));
    assert!(refused.starts_with("\"https://example.com/org/tiny\" is no address of a hub: expected "), "{refused}");
}

#[test]
fn of_several_files_one_must_be_named() {
    let hub = Hub::start(gguf_repository(), Behaviour::default());
    let cache = Cache::new("several");
    let mut options = options(&hub, &cache.0);
    let [split_size, size] =
        [split(TINY, 2).concat().len(), TINY.len()].map(|bytes| format!("{:.1} KiB", bytes as f64 / 1024.0));
    let listed = format!("Q4_K_M ({split_size}), q8_0 ({size}); name one, as in org/tiny:Q4_K_M");
    assert_eq!(message(get(&options)), format!("org/tiny has several GGUF files: {listed}"));
    assert_eq!(message(fetch("org/tiny:Q2_K", &options)), format!("org/tiny has no Q2_K: it has {listed}"));
    assert_eq!(message(fetch("org/tiny:latest", &options)), format!("org/tiny has no latest: it has {listed}"));
    assert_eq!(message(fetch("org/tiny/a.gguf", &options)), format!("org/tiny has no a.gguf: it has {listed}"));
    let known = get(&options).unwrap_err().with_free_memory(TINY.len() as u64).to_string();
    assert!(known.contains(&format!("Q4_K_M ({split_size}, too large), q8_0 ({size}, fits)")), "{known}");
    assert!(get(&options).unwrap_err().is_usage() && !cache.0.exists() && transferred(&hub).is_empty());
    // Where the hub says no sizes, and quantisations tell files apart no better.
    hub.behaviour().sizeless = true;
    let told = message(get(&options));
    assert_eq!(told, "org/tiny has several GGUF files: Q4_K_M, q8_0; name one, as in org/tiny:Q4_K_M");
    let alike = [("a-Q8_0.gguf".to_owned(), TINY.to_vec()), ("b-Q8_0.gguf".to_owned(), TINY.to_vec())];
    let alike = Hub::start(alike.to_vec(), Behaviour { sizeless: true, ..Behaviour::default() });
    options.endpoint.clone_from(&alike.endpoint);
    for name in ["org/tiny", "org/tiny:q8_0"] {
        assert_eq!(
            message(fetch(name, &options)),
            "org/tiny has several GGUF files: a-Q8_0.gguf, b-Q8_0.gguf; name one, as in org/tiny/a-Q8_0.gguf"
        );
    }
}

#[test]
fn one_gguf_file_needs_no_name_and_safetensors_go_before_it() {
    let mut files = vec![("tiny.gguf".to_owned(), TINY.to_vec()), ("config.json".to_owned(), b"{}".to_vec())];
    let hub = Hub::start(files.clone(), Behaviour::default());
    let cache = Cache::new("alone");
    let files_found = locate(ID, Wanted::Model, &options(&hub, &cache.0), &mut |_| true).unwrap();
    assert_eq!((files_found.name(), transferred(&hub)), ("org/tiny/tiny.gguf", vec!["tiny.gguf".to_owned()]));
    files.pop();
    files.extend(files_of("tiny-qwen2"));
    let hub = Hub::start(files, Behaviour::default());
    let cache = Cache::new("beside");
    assert!(get(&options(&hub, &cache.0)).unwrap().join("config.json").is_file());
    assert!(!transferred(&hub).contains(&"tiny.gguf".to_owned()));
}

#[test]
fn files_of_another_kind_are_named_in_one_line() {
    let cache = Cache::new("kinds");
    let told = |files: Vec<(String, Vec<u8>)>, name: &str| {
        let hub = Hub::start(files, Behaviour::default());
        message(fetch(name, &options(&hub, &cache.0)))
    };
    assert_eq!(
        told(files_of("tiny-qwen2"), "org/tiny:Q4_K_M"),
        "org/tiny has no GGUF file, and so no Q4_K_M: leave it out to have its safetensors"
    );
    let other = vec![("pytorch_model.bin".to_owned(), b"x".to_vec()), ("config.json".to_owned(), b"{}".to_vec())];
    assert_eq!(
        told(other, "org/tiny:Q4_K_M"),
        "org/tiny has no safetensors: expected config.json and safetensors, or GGUF files; use a repository that has them"
    );
    let mut part = gguf_repository();
    part.retain(|(name, _)| !name.contains("00002-of"));
    assert_eq!(
        told(part, "org/tiny:Q4_K_M"),
        "org/tiny has Q4/tiny-Q4_K_M-00001-of-00002.gguf and lacks Q4/tiny-Q4_K_M-00002-of-00002.gguf, a part of the same \
         file: use another file or repository"
    );
}

#[test]
fn a_gguf_file_that_breaks_off_goes_on_with_the_next_call() {
    let behaviour = Behaviour { drops: vec![1000], dropped: Some("tiny-q8_0.gguf"), ..Behaviour::default() };
    let hub = Hub::start(gguf_repository(), behaviour);
    let cache = Cache::new("gguf-part");
    let options = options(&hub, &cache.0);
    let told = message(fetch("org/tiny:Q8_0", &options));
    assert!(told.starts_with("the download of tiny-q8_0.gguf broke off at 1000 of "), "{told}");
    assert_eq!(surveyed("org/tiny:Q8_0", &options).missing_bytes, TINY.len() as u64 - 1000);
    assert_eq!(fs::read(fetch("org/tiny:Q8_0", &options).unwrap()).unwrap(), TINY);
    assert_eq!(hub.transfers(), ["0", "1000"]);
}

fn surveyed(name: &str, options: &HubOptions) -> Survey {
    survey(name, options, &mut |_| true).unwrap()
}

#[test]
fn a_survey_reads_headers_and_no_weights() {
    for (checkpoint, count) in [("tiny-qwen2", 1), ("tiny-llada-sharded", 2)] {
        for ignores_ranges in [false, true] {
            let files = files_of(checkpoint);
            let weights = files.iter().filter(|(name, _)| name.ends_with(".safetensors"));
            let bytes: usize = weights.map(|(_, contents)| contents.len()).sum();
            let hub = Hub::start(files, Behaviour { redirects: true, ignores_ranges, ..Behaviour::default() });
            let cache = Cache::new("survey");
            let options = options(&hub, &cache.0);
            let found = surveyed(ID, &options);
            assert_eq!((found.missing_files, found.missing_bytes), (count, bytes as u64));
            let opened = Checkpoint::open(found.files).unwrap();
            assert!(opened.weights().tensor(Role::Embedding).unwrap().to_f32().is_err(), "no weights are here");
            assert!(!transferred(&hub).iter().any(|file| file.ends_with(".safetensors")), "{:?}", transferred(&hub));
            let ranges = hub.ranges(".safetensors");
            assert!(ranges.iter().all(|range| range == "0-7" || range.starts_with("8-")), "{ranges:?}");
            assert!(!cache.0.join("models--org--tiny/refs").exists(), "nothing refers to half a model");
            // What is here whole is not asked for.
            get(&options).unwrap();
            let found = surveyed(ID, &options);
            assert_eq!((found.missing_files, found.missing_bytes), (0, 0));
            let whole = Checkpoint::open(found.files).unwrap();
            assert_eq!((whole.spec(), whole.weights().dtypes()), (opened.spec(), opened.weights().dtypes()));
        }
    }
}

#[test]
fn a_survey_of_a_gguf_file_reads_its_descriptions_alone() {
    let hub = Hub::start(vec![("m.gguf".to_owned(), long_gguf())], Behaviour::default());
    let cache = Cache::new("gguf-survey");
    let mut options = options(&hub, &cache.0);
    let found = surveyed(ID, &options);
    assert_eq!((found.missing_files, found.missing_bytes), (1, long_gguf().len() as u64));
    assert_eq!(
        Checkpoint::open(found.files).unwrap().tokenizer().unwrap().encode("hello hello", true).unwrap(),
        [259, 260]
    );
    assert_eq!(hub.ranges(".gguf"), ["0-65535"]);
    assert!(!cache.0.exists(), "nothing is written");
    options.offline = true;
    assert!(survey(ID, &options, &mut |_| true).unwrap_err().to_string().contains("HF_HUB_OFFLINE is set"));
}

#[test]
fn headers_that_make_no_sense_are_named_before_weights_are_fetched() {
    let mut files = files_of("tiny-qwen2");
    files.retain(|(name, _)| name != "model.safetensors");
    files.push(("model.safetensors".to_owned(), [&u64::MAX.to_le_bytes()[..], &[0; 5000]].concat()));
    let hub = Hub::start(files, Behaviour::default());
    let cache = Cache::new("header");
    let found = surveyed(ID, &options(&hub, &cache.0));
    let refused = Checkpoint::open(found.files).err().unwrap().to_string();
    assert!(refused.contains("model.safetensors is not a whole safetensors file: its header claims "), "{refused}");
    assert_eq!(hub.ranges("model.safetensors"), ["0-7"]);
    let hub = Hub::start(vec![("m.gguf".to_owned(), vec![b'<'; 1 << 20])], Behaviour::default());
    let found = surveyed(ID, &options(&hub, &cache.0));
    let refused = Checkpoint::open(found.files).err().unwrap().to_string();
    assert!(refused.contains("m.gguf cannot be read as GGUF: it starts with the bytes "), "{refused}");
    assert_eq!(hub.ranges(".gguf"), ["0-65535"]);
}
