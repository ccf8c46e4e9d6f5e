//! `GET /openapi.json`: the paths, from the table that requests are led by.

use bytes::Bytes;
use http::Response;
use serde_json::{Map, Value, json};

use crate::{route::ROUTES, service::json_response};

/// Returns the description of all paths.
pub fn document() -> Response<Bytes> {
    let mut paths = Map::new();
    for (path, method, endpoint, name) in ROUTES {
        let mut operation = json!({
            "operationId": name,
            "responses": {"default": {"description": "an error, in the envelope {\"error\": {...}}"}, "200": {"description": "served"}},
        });
        if method == http::Method::POST {
            operation["requestBody"] =
                json!({"required": true, "content": {"application/json": {"schema": {"type": "object"}}}});
        }
        if !endpoint.is_open() {
            operation["security"] = json!([{"key": []}]);
        }
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[method.as_str().to_lowercase()] = operation;
    }
    json_response(&json!({
        "openapi": "3.1.0",
        "info": {"title": "demask", "version": env!("CARGO_PKG_VERSION")},
        "paths": Value::Object(paths),
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }))
}
