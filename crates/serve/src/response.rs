//! Responses whose bodies are there.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use serde_json::Value;

use crate::admission::Places;

/// Puts on a response what all have: the request's name, and what browsers must know of it.
pub(crate) fn dress(mut response: Response<Bytes>, request_id: &str) -> Response<Bytes> {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert("x-request-id", id);
    }
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Returns a response with a body of JSON.
pub(crate) fn json_response(body: &Value) -> Response<Bytes> {
    json_text(body.to_string())
}

/// Returns a response with a body that is JSON.
pub(crate) fn json_text(body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns bytes with which the places of their request are free: behind the last of them, which a slow reader may take late.
pub(crate) fn held(bytes: Bytes, places: &Arc<Places>) -> Bytes {
    struct Held(Bytes, #[allow(dead_code, reason = "it is held")] Arc<Places>);
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Held(bytes, Arc::clone(places)))
}
