//! `POST /v1/fim/completions`: a hole between two texts, in the names of Mistral and Mercury.

use std::sync::Arc;

use bytes::Bytes;

use super::{common::read_ask, infill::fill_between};
use crate::{
    Refusal,
    endpoint::{Body, Endpoint},
    entry::Entry,
    fields::{
        Fields,
        table::{DECODING, GENERATING, MODEL, Of, SAMPLING, Table, field, with_default},
    },
    form::Completion,
    inner::Inner,
    served::Served,
};

/// The endpoint.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "fim",
    paths: &[("/v1/fim/completions", "fim")],
    body: Some(Body::new(TABLE, &["prompt"], "prompt")),
    serve,
    ..Endpoint::POST
};

const TABLE: Table = &[
    MODEL,
    &[
        field("prompt", Of::Text, "Text before the hole."),
        with_default("suffix", Of::Text, r#""""#, "Text behind the hole."),
    ],
    GENERATING,
    SAMPLING,
    DECODING,
];

/// Fills the hole.
fn serve(service: &Arc<Inner>, entry: Entry, body: &Bytes) -> Result<Served, Refusal> {
    let mut fields = Fields::parse(body, TABLE, &service.config.limits)?;
    let missing = || Refusal::parameter("prompt", "`prompt` is missing: expected a text");
    let prompt = fields.text("prompt")?.ok_or_else(missing)?;
    let suffix = fields.text("suffix")?.unwrap_or_default();
    let ask = read_ask(service, &entry, &mut fields)?;
    fields.finish()?;
    fill_between(service, entry, &Completion, (prompt, suffix), ask)
}
