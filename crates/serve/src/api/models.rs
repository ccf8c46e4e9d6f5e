//! `GET /v1/models` and `/v1/models/{id}`: the served model, and its abilities.

use axum::response::Response;
use demask::Mask;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::{Refusal, endpoint::Endpoint, inner::Inner, response::json_response};

/// `GET /v1/models`.
pub static LIST: Endpoint = Endpoint {
    name: "models",
    paths: &[("/v1/models", "models")],
    serve: |asked| asked.at_once(|service, _| Ok(list(service))),
    ..Endpoint::GET
};

/// `GET /v1/models/{id}`.
pub static ONE: Endpoint = Endpoint {
    name: "model",
    folder: "/v1/models/{*id}",
    serve: |asked| asked.at_once(|service, entry| one(service, &entry.path)),
    ..Endpoint::GET
};

/// Lists the served model under each of its names.
fn list(service: &Inner) -> Response {
    let data: Vec<Value> = service.names().map(|name| card(service, name)).collect();
    json_response(&json!({"object": "list", "data": data}))
}

/// Returns one of them.
///
/// # Errors
/// If it is not served.
fn one(service: &Inner, path: &str) -> Result<Response, Refusal> {
    let encoded = path.trim_start_matches("/v1/models/");
    let name = percent_decode_str(encoded).decode_utf8_lossy();
    let found = service.names().find(|known| *known == name);
    let known = || service.names().collect::<Vec<_>>().join(" or ");
    let missing = || {
        let shown: String = name.chars().take(80).collect();
        Refusal::missing(format!("the model {shown:?} is not served here, expected {}", known()))
            .coded("model_not_found")
    };
    Ok(json_response(&card(service, found.ok_or_else(missing)?)))
}

fn card(service: &Inner, name: &str) -> Value {
    let info = service.handle.info();
    let facts = info.facts();
    let (attention, infill) = match facts.mask {
        Mask::Full => ("full", true),
        Mask::BlockCausal { .. } => ("block-causal", false),
        Mask::Context { .. } => ("by-pass", false),
        Mask::Causal => ("causal", false),
    };
    let cap = service.config.limits.gen_length.min(facts.context);
    let (decoder, cache) = info.default_methods();
    json!({
        "id": name,
        "object": "model",
        "created": service.started,
        "owned_by": "demask",
        "root": service.name(),
        "parent": null,
        "permission": [],
        "max_model_len": facts.context,
        "diffusion": {
            "family": info.family().name(),
            "attention": attention,
            "infill": infill,
            "likelihood": facts.mask.block().is_none(),
            "default_gen_length": info.default_gen_length().min(cap),
            "max_gen_length": cap,
            "decoders": service.methods.0,
            "caches": service.methods.1,
            "guides": service.guides(),
            "defaults": {"decoder": decoder.to_string(), "cache": cache.to_string()},
            "fingerprint": service.fingerprint,
        },
    })
}
