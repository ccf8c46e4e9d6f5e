//! Any lines as method, path with its query, and headers of a request: an answer or an error of one line.
#![no_main]

mod server;

use axum::body::Body;
use http::Request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut lines = input.split(|&byte| byte == b'\n');
    let (method, path) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut request = Request::builder().method(method).uri(path);
    for line in lines {
        let Some(at) = line.iter().position(|&byte| byte == b':') else { continue };
        request = request.header(&line[..at], &line[at + 1..]);
    }
    // What HTTP itself does not allow never comes so far.
    if let Ok(request) = request.body(Body::from("{\"prompt\": \"Ada\"}")) {
        server::check(request);
    }
});
