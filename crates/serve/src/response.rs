//! Responses whose bodies are there.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, header};
use serde_json::Value;

use crate::admission::Places;

/// Returns a response with a body of JSON.
pub(crate) fn json_response(body: &Value) -> Response {
    json_text(body.to_string())
}

/// Returns a response with a body that is JSON.
pub(crate) fn json_text(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns bytes with which the places of their request are free: after the last of them, which a slow reader may take late.
pub(crate) fn held(bytes: Bytes, places: &Arc<Places>) -> Bytes {
    struct Held(Bytes, #[allow(dead_code, reason = "it is held")] Arc<Places>);
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Held(bytes, Arc::clone(places)))
}
