//! `POST /v1/fim/completions`: a hole between two texts, in the names of Mistral and Mercury.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    common::{generate, read_ask},
    infill::fill_between,
};
use crate::{
    Refusal,
    answers::Answers,
    endpoint::{Endpoint, Schema},
    entry::Entry,
    fields::{
        Fields,
        table::{DECODING, GENERATING, MODEL, Of, SAMPLING, Table, field, with_default},
    },
    form::Completion,
    inner::Inner,
};

/// The endpoint.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "fim",
    paths: &[("/v1/fim/completions", "fim")],
    schema: Some(Schema::new(TABLE, &["prompt"], "prompt")),
    serve: |asked| generate(asked, answers),
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
fn answers(service: &Arc<Inner>, entry: Entry, body: &Bytes) -> Result<Answers, Refusal> {
    let mut fields = Fields::parse(body, TABLE, &service.config.limits)?;
    let missing = || Refusal::parameter("prompt", "`prompt` is missing: expected a text");
    let prompt = fields.text("prompt")?.ok_or_else(missing)?;
    let suffix = fields.text("suffix")?.unwrap_or_default();
    let ask = read_ask(service, &entry, &mut fields)?;
    fields.finish()?;
    fill_between(service, entry, &Completion, (prompt, suffix), ask)
}
