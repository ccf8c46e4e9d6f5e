//! A server that reads requests and prepares answers, and whose engine makes none.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use demask::Model;
use demask_serve::{Keys, Reply, Service, ServiceConfig};
use http::{Response, StatusCode};
use serde_json::Value;

/// Returns the server. Everything about a request is done but its forwards: the engine has ended.
pub fn service() -> &'static Service {
    static SERVICE: OnceLock<Service> = OnceLock::new();
    SERVICE.get_or_init(|| {
        let engine = Model::demo().expect("the demo loads");
        let keys = Arc::new(Keys::parse("ann s3cret weight=2\n").expect("a key"));
        let service = Service::new(&engine, ServiceConfig { keys, ..ServiceConfig::default() });
        engine.shut_down();
        service
    })
}

/// Checks a reply: served, refused in the envelope with one line, or an answer that nobody makes.
pub fn check(reply: Reply) {
    match reply {
        Reply::Whole(response) => check_response(&response),
        Reply::Pending(_) | Reply::Stream(..) => {}
    }
}

/// Checks a response that is there.
pub fn check_response(response: &Response<Bytes>) {
    let status = response.status();
    assert!(response.headers().contains_key("x-request-id"));
    if status == StatusCode::OK {
        return;
    }
    // Likelihoods find the engine's end at once; nothing else is the server's fault.
    assert!(status.is_client_error() || status == StatusCode::SERVICE_UNAVAILABLE, "{status}: {response:?}");
    let body: Value = serde_json::from_slice(response.body()).expect("the envelope is JSON");
    let message = body["error"]["message"].as_str().expect("it has a message");
    assert!(!message.is_empty() && !message.contains(['\n', '\r']) && message.len() < 1000, "{message:?}");
}
