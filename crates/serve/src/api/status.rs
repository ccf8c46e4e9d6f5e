//! State of the server: for balancers, dashboards and people.

use axum::{body::Body, response::Response};
use http::{HeaderValue, header};
use serde_json::json;

use crate::{
    Refusal,
    endpoint::{Access, Endpoint},
    inner::Inner,
    response::json_response,
};

/// `GET /health`, by the names that balancers and managers use.
pub static HEALTH: Endpoint = Endpoint {
    name: "health",
    paths: &[("/health", "health"), ("/v1/health", "health"), ("/ready", "ready"), ("/ping", "ping")],
    access: Access::Probes,
    serve: |asked| asked.at_once(|service, _| health(service)),
    ..Endpoint::GET
};

/// `GET /live`.
pub static LIVE: Endpoint = Endpoint {
    name: "live",
    paths: &[("/live", "live")],
    access: Access::Probes,
    serve: |asked| asked.at_once(|_, _| Ok(json_response(&json!({"status": "ok"})))),
    ..Endpoint::GET
};

/// `GET /version`.
pub static VERSION: Endpoint = Endpoint {
    name: "version",
    paths: &[("/version", "version")],
    access: Access::All,
    serve: |asked| {
        asked.at_once(|_, _| Ok(json_response(&json!({"version": env!("CARGO_PKG_VERSION"), "name": "demask"}))))
    },
    ..Endpoint::GET
};

/// `GET /info`.
pub static INFO: Endpoint = Endpoint {
    name: "info",
    paths: &[("/info", "info")],
    access: Access::All,
    serve: |asked| asked.at_once(|service, _| Ok(info(service))),
    ..Endpoint::GET
};

/// `GET /metrics`.
pub static METRICS: Endpoint = Endpoint {
    name: "metrics",
    paths: &[("/metrics", "metrics")],
    access: Access::Probes,
    serve: |asked| asked.at_once(|service, _| Ok(metrics(service))),
    ..Endpoint::GET
};

/// Reports whether requests are served.
///
/// # Errors
/// If they are not: the server is about to end, or its engine has ended.
fn health(service: &Inner) -> Result<Response, Refusal> {
    if !service.is_serving() {
        return Err(Refusal::shutting_down());
    }
    if let Some(why) = service.handle.failure() {
        let message = format!("the engine has failed ({why}): the server ends, start it again");
        return Err(Refusal::overloaded(message, 1).coded("engine_failed"));
    }
    if !service.is_alive() {
        return Err(Refusal::overloaded("the engine has ended: start the server again", 1).coded("engine_ended"));
    }
    Ok(json_response(&json!({"status": "ok"})))
}

/// Returns the served model and the bounds of requests.
fn info(service: &Inner) -> Response {
    let limits = &service.config.limits;
    let info = service.handle.info();
    json_response(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "model": service.name(),
        "family": info.family().name(),
        "fingerprint": service.fingerprint,
        "max_model_len": info.facts().context,
        "max_gen_length": limits.gen_length.min(info.facts().context),
        "max_body_bytes": limits.body_bytes,
        "max_places": limits.places,
        "max_choices": limits.choices,
        "max_prompts": limits.prompts,
        "prefix_cache_bytes": service.handle.prefix_cache(),
    }))
}

/// Returns counts and times.
fn metrics(service: &Inner) -> Response {
    let places = (service.admission.in_use(), service.config.limits.places);
    let text = service.metrics.write(service.name(), &service.handle.counters(), places);
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
