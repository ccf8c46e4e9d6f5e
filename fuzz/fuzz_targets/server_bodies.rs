//! Any bytes as the body of a request, behind a byte that says to which path: an answer or an error of one line.
#![no_main]

mod server;

use axum::body::Body;
use http::Request;
use libfuzzer_sys::fuzz_target;

const PATHS: [&str; 9] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/infill",
    "/infill",
    "/v1/fim/completions",
    "/v1/score",
    "/v1/decisions",
    "/tokenize",
    "/detokenize",
];

fuzz_target!(|input: &[u8]| {
    let Some((which, body)) = input.split_first() else { return };
    let path = PATHS[*which as usize % PATHS.len()];
    let request = Request::post(path).header("authorization", "Bearer s3cret");
    server::check(request.body(Body::from(body.to_vec())).expect("a request"));
});
