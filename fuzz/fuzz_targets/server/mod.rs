//! A server that reads requests and prepares answers, and whose engine makes none.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use bytes::Bytes;
use demask::Model;
use demask_serve::{Keys, Service, ServiceConfig, http::HttpConfig};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

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

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_current_thread().enable_time().build().expect("a runtime"))
}

/// Sends a request, and checks its response: served, or refused in the envelope with one line.
pub fn check(request: Request<Body>) {
    let response = runtime().block_on(async {
        let Ok(response) = service().router(HttpConfig::default()).oneshot(request).await;
        let (head, body) = response.into_parts();
        Response::from_parts(head, body.collect().await.expect("a body").to_bytes())
    });
    check_response(&response);
}

fn check_response(response: &Response<Bytes>) {
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
