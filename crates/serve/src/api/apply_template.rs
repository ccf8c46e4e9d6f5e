//! `POST /apply-template`: a conversation in words, as llama.cpp's server has it.

use demask::layers::checkpoint::RenderOptions;
use serde_json::json;

use super::{
    chat,
    common::{check_model, tokenize},
};
use crate::{
    endpoint::{Endpoint, Schema},
    fields::{
        Fields,
        table::{MESSAGES, MODEL, Table, only},
    },
};

/// The endpoint.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "apply_template",
    paths: &[("/apply-template", "apply_template")],
    schema: Some(Schema::new(TABLE, &["messages"], "messages")),
    serve: |asked| {
        tokenize(asked, |service, body| {
            let mut fields = Fields::parse(body, TABLE, &service.config.limits)?;
            check_model(service, &mut fields)?;
            let messages = chat::messages(&mut fields, service)?;
            fields.pass()?;
            fields.finish()?;
            let info = service.handle.info();
            let prompt = info.template().render(&messages, &RenderOptions::default()).map_err(demask::Error::from)?;
            Ok(json!({"prompt": prompt}))
        })
    },
    ..Endpoint::POST
};

const TABLE: Table = &[MODEL, &[MESSAGES, only("add_generation_prompt", &["true"])]];
