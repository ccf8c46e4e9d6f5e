//! The endpoints: each file has all of one, and [`ENDPOINTS`] lists them.

mod apply_template;
pub mod chat;
mod common;
pub mod completions;
mod decisions;
mod fim;
pub mod infill;
mod messages;
mod models;
mod openapi;
mod page;
mod plain_infill;
mod responses;
mod score;
mod status;
mod tokens;
mod tools;

use crate::{
    endpoint::{Access, Endpoint},
    response::json_response,
};

/// Every endpoint, in the order of `/openapi.json`.
pub static ENDPOINTS: &[&Endpoint] = &[
    &chat::ENDPOINT,
    &completions::ENDPOINT,
    &infill::ENDPOINT,
    &plain_infill::ENDPOINT,
    &fim::ENDPOINT,
    &score::ENDPOINT,
    &decisions::ENDPOINT,
    &responses::ENDPOINT,
    &messages::ENDPOINT,
    &messages::COUNT,
    &models::LIST,
    &models::ONE,
    &tokens::TOKENIZE,
    &tokens::DETOKENIZE,
    &apply_template::ENDPOINT,
    &tokens::INFO,
    &status::HEALTH,
    &status::LIVE,
    &status::VERSION,
    &status::INFO,
    &status::METRICS,
    &OPENAPI,
    &page::ENDPOINT,
];

/// `GET /openapi.json`: here, because it describes the others.
static OPENAPI: Endpoint = Endpoint {
    name: "openapi",
    paths: &[("/openapi.json", "openapi")],
    access: Access::All,
    serve: |asked| asked.at_once(|service, _| Ok(json_response(&openapi::document(ENDPOINTS, &service.config.limits)))),
    ..Endpoint::GET
};

/// Returns whether a path is there whatever host a request names.
pub fn is_probe(path: &str) -> bool {
    let mut probes = ENDPOINTS.iter().filter(|endpoint| endpoint.access == Access::Probes);
    probes.any(|endpoint| endpoint.paths.iter().any(|(known, _)| *known == path))
}
