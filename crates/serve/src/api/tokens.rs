//! `/tokenize`, `/detokenize` and `/tokenizer_info`, as vLLM has them: clients count and cut prompts without a tokenizer of
//! their own.

use axum::response::Response;
use bytes::Bytes;
use demask::Options;
use serde_json::{Map, Value, json};

use super::common::{self, check_model};
use crate::{
    Refusal,
    api::{chat, completions},
    endpoint::{Endpoint, Schema},
    fields::{
        Fields,
        table::{IDS, MESSAGES, MODEL, Of, Table, field, only, with_default},
    },
    inner::Inner,
    response::json_response,
};

/// Bytes of a text, and tokens, that a request may have whatever the model's context is.
const TEXT: usize = 256 << 10;
const TOKENS: usize = 256 << 10;

/// `POST /tokenize`.
pub static TOKENIZE: Endpoint = Endpoint {
    name: "tokenize",
    paths: &[("/tokenize", "tokenize")],
    schema: Some(Schema::new(TOKENIZE_TABLE, &[], "messages")),
    serve: |asked| common::tokenize(asked, tokenize),
    ..Endpoint::POST
};

/// `POST /detokenize`.
pub static DETOKENIZE: Endpoint = Endpoint {
    name: "detokenize",
    paths: &[("/detokenize", "detokenize")],
    schema: Some(Schema::new(DETOKENIZE_TABLE, &["tokens"], "prompt")),
    serve: |asked| common::tokenize(asked, detokenize),
    ..Endpoint::POST
};

/// `GET /tokenizer_info`.
pub static INFO: Endpoint = Endpoint {
    name: "tokenizer_info",
    paths: &[("/tokenizer_info", "tokenizer_info")],
    serve: |asked| asked.at_once(|service, _| info(service)),
    ..Endpoint::GET
};

const TOKENIZE_TABLE: Table = &[
    MODEL,
    &[
        field("prompt", Of::Text, "A text; or `messages`."),
        MESSAGES,
        with_default("add_special_tokens", Of::Switch, "true", "Put a text's special tokens around it."),
        with_default(
            "split_special",
            Of::Switch,
            "true",
            "Read control tokens from the template alone, not from messages.",
        ),
        with_default("return_token_strs", Of::Switch, "false", "Return each token as text, too."),
        only("add_generation_prompt", &["true"]),
    ],
];

const DETOKENIZE_TABLE: Table = &[MODEL, &[field("tokens", Of::Own(IDS), "Token ids.")]];

/// Puts a text or a conversation into tokens.
///
/// # Errors
/// If the body is wrong, or the model has no tokenizer.
fn tokenize(service: &Inner, body: &Bytes) -> Result<Value, Refusal> {
    let limits = &service.config.limits;
    let mut fields = Fields::parse(body, TOKENIZE_TABLE, limits)?;
    check_model(service, &mut fields)?;
    let special = fields.is_on("add_special_tokens")?;
    let texts = fields.is_on("return_token_strs")?;
    let options = Options { split_special: fields.switch("split_special")?, ..Options::default() };
    fields.pass()?;
    let info = service.handle.info();
    let ids = if let Some(text) = fields.text("prompt")? {
        let tokenizer = info.tokenizer()?;
        let most = tokenizer.most_bytes(info.facts().context).max(TEXT);
        if text.len() > most {
            let message = format!("`prompt` has {} bytes, expected at most {most}: send it in pieces", text.len());
            return Err(Refusal::parameter("prompt", message));
        }
        if fields.take("messages").is_some() {
            return Err(Refusal::parameter("messages", "`prompt` and `messages` are both set: omit one"));
        }
        tokenizer.encode(&text, special).map_err(demask::Error::from)?
    } else {
        info.ids_as(&chat::messages(&mut fields, service)?.into(), &options)?
    };
    fields.finish()?;
    let mut answer = json!({"count": ids.len(), "max_model_len": info.facts().context, "tokens": ids});
    if texts {
        let tokenizer = info.tokenizer()?;
        answer["token_strs"] = ids.iter().map(|&id| tokenizer.decode(&[id], false)).collect();
    }
    Ok(answer)
}

/// Puts tokens into text.
///
/// # Errors
/// If the body is wrong, or the model has no tokenizer.
fn detokenize(service: &Inner, body: &Bytes) -> Result<Value, Refusal> {
    let mut fields = Fields::parse(body, DETOKENIZE_TABLE, &service.config.limits)?;
    check_model(service, &mut fields)?;
    let missing = || Refusal::parameter("tokens", "`tokens` is missing: expected a list of token ids");
    let list = fields.list("tokens")?.ok_or_else(missing)?;
    fields.finish()?;
    let most = service.handle.info().facts().context.max(TOKENS);
    if list.len() > most {
        let message = format!("`tokens` has {} tokens, expected at most {most}: send them in pieces", list.len());
        return Err(Refusal::parameter("tokens", message));
    }
    let ids =
        completions::ids(&list).ok_or_else(|| Refusal::parameter("tokens", "`tokens` has what is no token id"))?;
    let info = service.handle.info();
    let vocabulary = info.facts().vocab;
    if let Some(id) = ids.iter().find(|&&id| id as usize >= vocabulary) {
        let message = format!("token {id} is outside the vocabulary of {vocabulary}");
        return Err(Refusal::parameter("tokens", message));
    }
    Ok(json!({"prompt": info.tokenizer()?.decode(&ids, false)}))
}

/// Returns what clients need to put conversations into words themselves.
///
/// # Errors
/// If the model has no tokenizer.
fn info(service: &Inner) -> Result<Response, Refusal> {
    let info = service.handle.info();
    let tokenizer = info.tokenizer()?;
    let mut known: Map<String, Value> =
        tokenizer.named_texts().map(|(part, text)| (part.to_owned(), json!(text))).collect();
    for part in ["bos_token", "eos_token", "pad_token"] {
        known.entry(part).or_insert(Value::Null);
    }
    known.insert("chat_template".to_owned(), json!(info.template().source()));
    known.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
    Ok(json_response(&Value::Object(known)))
}
