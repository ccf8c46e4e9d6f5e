//! A hub of one's own on this machine, for tests of what fetches from one.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// Commit of the only revision.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// The only repository.
pub const ID: &str = "org/tiny";

/// Behaviour of the server beside its duty.
#[derive(Debug, Default)]
pub struct Behaviour {
    /// Bytes of a file's body after which the connection is dropped, each used once.
    pub drops: Vec<usize>,
    /// File whose transfers are dropped, if it is not the weights.
    pub dropped: Option<&'static str>,
    /// Sets whether a transfer brings the whole file, whatever part of it is asked for: RFC 9110 allows that.
    pub ignores_ranges: bool,
    /// Headers of all files' contents beside the usual ones.
    pub more: &'static str,
    /// Address of another server that the contents are at.
    pub elsewhere: Option<String>,
    /// Number of requests that came with a token.
    pub tokens: usize,
    /// Time for which the connection stays open, silent, before it is dropped.
    pub stalls: Duration,
    /// Sets whether only requests with this token are served.
    pub token: Option<&'static str>,
    /// Facts about files that are sent instead of the true ones.
    pub facts: Option<&'static str>,
    /// The revision as it stands in addresses, if this is a dataset.
    pub dataset: Option<&'static str>,
    /// Etags of files that have others than `tag-` and their names.
    pub etags: Vec<(&'static str, String)>,
    /// Sets whether contents need a redirection, as large files are.
    pub redirects: bool,
    /// All requests: path and range.
    pub seen: Vec<(String, Option<String>)>,
    /// Sets whether the description of the repository leaves sizes out.
    pub sizeless: bool,
    /// Sizes of files that are said instead of the true ones.
    pub claims: Vec<(&'static str, u64)>,
    /// Sets whether files are gone once a connection was dropped.
    pub leaves: bool,
    /// Records whether a connection was dropped.
    pub gone: bool,
}

/// A server of one repository, until the test ends.
#[derive(Debug)]
pub struct Hub {
    /// Its address.
    pub endpoint: String,
    behaviour: Arc<Mutex<Behaviour>>,
}

impl Hub {
    /// Serves files, by name.
    ///
    /// # Panics
    /// If this machine gives no port.
    #[expect(clippy::unwrap_used, reason = "a test without a port has nothing to say")]
    pub fn start(files: Vec<(String, Vec<u8>)>, behaviour: Behaviour) -> Self {
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

    /// Returns its behaviour, to look at or to change.
    pub fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all requests: path and range.
    pub fn requests(&self) -> Vec<(String, Option<String>)> {
        self.behaviour().seen.clone()
    }

    /// Returns the first bytes of the transfers so far, without the requests for a file's facts.
    pub fn transfers(&self) -> Vec<String> {
        let ranges = self.requests().into_iter().filter_map(|(_, range)| range);
        ranges.filter_map(|range| range.strip_prefix("bytes=")?.strip_suffix('-').map(str::to_owned)).collect()
    }

    /// Returns the bytes that were asked for of files whose name ends so: first and last, if it was named.
    pub fn ranges(&self, end: &str) -> Vec<String> {
        let of_file = self.requests().into_iter().filter(|(path, _)| path.ends_with(end));
        of_file.filter_map(|(_, range)| Some(range?.strip_prefix("bytes=")?.to_owned())).collect()
    }
}

/// Returns the files of a folder, by name.
///
/// # Panics
/// If it cannot be read.
#[expect(clippy::unwrap_used, reason = "a test without its files has nothing to say")]
pub fn files_in(folder: impl AsRef<Path>) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap())).collect()
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
    let mut behaviour = behaviour.lock().unwrap_or_else(PoisonError::into_inner);
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
    if path.split('?').next() == Some(&listing) {
        let line = |(name, contents): &(String, Vec<u8>)| {
            let size = size_of(&behaviour, name, contents);
            let size = if behaviour.sizeless { String::new() } else { format!(r#", "size": {size}"#) };
            format!(r#"{{"rfilename": "{name}"{size}}}"#)
        };
        let names: Vec<String> = files.iter().map(line).collect();
        let body = format!(r#"{{"sha": "{COMMIT}", "siblings": [{}]}}"#, names.join(","));
        return reply(stream, 200, "", body.as_bytes(), None);
    }
    if behaviour.leaves && behaviour.gone {
        return reply(stream, 404, "", b"", None);
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
        Some((start, end)) => {
            (206, bound(start)?, bound(end).map_or(contents.len(), |last| contents.len().min(last + 1)))
        }
        None => (200, 0, contents.len()),
    };
    if start >= end {
        return reply(stream, 416, "", b"", None);
    }
    let facts = match status {
        206 => format!("{facts}content-range: bytes {start}-{}/{}\r\n", end - 1, size_of(&behaviour, name, contents)),
        _ => facts,
    } + behaviour.more;
    // A request for the first byte alone asks what the file is.
    let whole = behaviour.dropped.map_or(name.ends_with("safetensors"), |file| name == file) && end == contents.len();
    let drop = if whole { behaviour.drops.pop().map(|count| (count, behaviour.stalls)) } else { None };
    behaviour.gone |= drop.is_some();
    std::mem::drop(behaviour);
    reply(stream, status, &facts, &contents[start..end], drop)
}

/// Size of a file, as it is said to be.
fn size_of(behaviour: &Behaviour, name: &str, contents: &[u8]) -> u64 {
    let claim = behaviour.claims.iter().find(|(file, _)| *file == name);
    claim.map_or(contents.len() as u64, |&(_, size)| size)
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
