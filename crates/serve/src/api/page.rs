//! The page that shows how an answer is unmasked, and its files.

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, header};

use crate::{
    Refusal,
    endpoint::{Access, Endpoint},
};

/// The endpoint.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "page",
    paths: &[("/", "page"), ("/page.css", "page"), ("/page.js", "page")],
    folder: "/page/{file}",
    access: Access::All,
    serve: |asked| {
        asked.at_once(|service, entry| {
            let none = || Refusal::missing("this server has no page: it was started with --no-ui");
            service.config.page.then(|| file(&entry.path)).ok_or_else(none)?
        })
    },
    ..Endpoint::GET
};

/// Content policy of the page: it loads nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        /// The files: their names and their bytes.
        const FILES: &[(&str, &[u8])] = &[$(($name, include_bytes!(concat!("../page/", $name)))),+];
    };
}

files![
    "card.js",
    "chat.js",
    "elements.js",
    "example.jsonl",
    "examples.js",
    "follow.js",
    "form.js",
    "icon.svg",
    "index.html",
    "inspector.js",
    "lane.js",
    "mono.js",
    "page.css",
    "page.js",
    "receipt.js",
    "recording.js",
    "requests.js",
    "run.js",
    "settings.js",
    "stream.js",
    "texts.js",
    "timeline.js",
    "tokens.js",
    "trace.js",
];

/// Returns the media type of a file, by the end of its name.
fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/x-ndjson; charset=utf-8",
    }
}

/// Returns a file of the page.
///
/// # Errors
/// If there is none of that name.
fn file(path: &str) -> Result<Response, Refusal> {
    let (name, content) = find(path)?;
    let mut response = Response::new(Body::from(Bytes::from_static(content)));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, kind(name)),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    Ok(response)
}

/// Finds a file by its path.
///
/// # Errors
/// If there is none.
fn find(path: &str) -> Result<(&'static str, &'static [u8]), Refusal> {
    let wanted = if path == "/" { "index.html" } else { path.trim_start_matches('/').trim_start_matches("page/") };
    let found = FILES.iter().find(|(name, _)| *name == wanted);
    found.copied().ok_or_else(|| Refusal::missing("the page has no such file: open /"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = format!("/page/{name}");
            let response = file(&path).unwrap();
            assert!(!find(&path).unwrap().1.is_empty());
            assert!(response.headers().contains_key(header::CONTENT_SECURITY_POLICY));
            assert!(name == "example.jsonl" || kind(&name) != kind("x"), "{name}");
        }
        assert_eq!(find("/").unwrap(), find("/page/index.html").unwrap());
        assert_eq!(file("/page/other.js").unwrap_err().status.as_u16(), 404);
    }

    #[test]
    fn the_page_reads_the_traces_that_the_command_writes() {
        let script = find("/page/trace.js").unwrap().1;
        let wanted = format!("const VERSION = {};", demask::trace::TRACE_VERSION);
        assert!(String::from_utf8_lossy(script).contains(&wanted), "{wanted}");
    }
}
