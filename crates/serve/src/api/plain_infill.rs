//! `POST /infill`: a hole between two texts, in the names of llama.cpp's server.

use std::sync::Arc;

use bytes::Bytes;
use demask::Generation;
use serde_json::{Value, json};

use super::{
    common::{generate, read_ask},
    infill::{fill_between, one_answer},
};
use crate::{
    Refusal,
    answers::Answers,
    ask,
    endpoint::{Endpoint, Schema},
    entry::Entry,
    fields::{
        Fields,
        table::{DECODING, GENERATING, MODEL, Of, SAMPLING, Table, hint, only, with_default},
    },
    form::{Choice, Form},
    inner::Inner,
};

/// The endpoint.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "plain_infill",
    paths: &[("/infill", "plain_infill")],
    schema: Some(Schema::new(TABLE, &[], "input_prefix")),
    serve: |asked| generate(asked, answers),
    ..Endpoint::POST
};

const TABLE: Table = &[
    MODEL,
    &[
        with_default("input_prefix", Of::Text, r#""""#, "Text before the hole."),
        with_default("input_suffix", Of::Text, r#""""#, "Text behind the hole."),
        with_default("n_predict", Of::Integer(-1, 1_000_000_000), "-1", "Tokens of the hole at most; 0 or less: 32."),
        only("input_extra", &["[]"]),
        only("prompt", &[r#""""#]),
        hint("samplers"),
        hint("cache_prompt"),
        hint("t_max_prompt_ms"),
        hint("t_max_predict_ms"),
    ],
    GENERATING,
    SAMPLING,
    DECODING,
];

/// Form of llama.cpp's answers.
#[derive(Debug)]
struct PlainInfill;

impl Form for PlainInfill {
    fn prefix(&self) -> &'static str {
        "infill-"
    }

    fn object(&self, chunk: bool) -> &'static str {
        if chunk { "infill.chunk" } else { "infill" }
    }

    fn is_list(&self) -> bool {
        false
    }

    fn is_flat(&self) -> bool {
        true
    }

    fn part(&self, _: usize, text: &str, _: bool, _: Option<&Value>) -> Value {
        json!({"content": text, "stop": false})
    }

    fn last(&self, _: Value, _: &Generation) -> Value {
        json!({"content": "", "stop": true})
    }

    fn text<'v>(&self, part: &'v mut Value, _: bool) -> &'v mut Value {
        &mut part["content"]
    }

    fn choice(&self, choice: Choice<'_>) -> Value {
        json!({"content": choice.text, "stop": true})
    }
}

/// Fills the hole.
fn answers(service: &Arc<Inner>, entry: Entry, body: &Bytes) -> Result<Answers, Refusal> {
    let mut fields = Fields::parse(body, TABLE, &service.config.limits)?;
    let prefix = fields.text("input_prefix")?.unwrap_or_default();
    let suffix = fields.text("input_suffix")?.unwrap_or_default();
    let most = fields.integer("n_predict")?;
    let mut ask = read_ask(service, &entry, &mut fields)?;
    one_answer(&ask)?;
    // -1 is how llama.cpp's clients leave it open.
    if let Some(most) = most.and_then(|most| usize::try_from(most).ok()).filter(|most| *most > 0) {
        ask::set_bound(&mut ask.options, &mut ask.names, most, "n_predict")?;
    }
    fields.finish()?;
    fill_between(service, entry, &PlainInfill, (prefix, suffix), ask)
}
