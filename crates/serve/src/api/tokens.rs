//! `/tokenize`, `/detokenize` and `/tokenizer_info`, as vLLM has them: clients count and cut prompts without a tokenizer of
//! their own.

use bytes::Bytes;
use demask::Prompt;
use http::Response;
use serde_json::{Map, Value, json};

use crate::{
    Refusal,
    api::{chat, completions},
    fields::{Fields, table},
    service::{Inner, json_response},
};

/// Puts a text or a conversation into tokens.
///
/// # Errors
/// If the body is wrong, or the model has no tokenizer.
pub fn tokenize(service: &Inner, body: &Bytes) -> Result<Response<Bytes>, Refusal> {
    let limits = &service.config.limits;
    let mut fields = Fields::parse(body, table::TOKENIZE, limits)?;
    super::check_model(service, &mut fields)?;
    let special = fields.is_on("add_special_tokens")?;
    let texts = fields.is_on("return_token_strs")?;
    fields.pass()?;
    let prompter = service.handle.prompter();
    let ids = if let Some(text) = fields.text("prompt")? {
        if fields.take("messages").is_some() {
            return Err(Refusal::parameter("messages", "`prompt` and `messages` are both set: omit one"));
        }
        prompter.tokenizer()?.encode(&text, special).map_err(demask::Error::from)?
    } else {
        prompter.ids(&Prompt::Chat(chat::messages(&mut fields, service)?))?
    };
    fields.finish()?;
    let mut answer = json!({"count": ids.len(), "max_model_len": prompter.facts().context, "tokens": ids});
    if texts {
        let tokenizer = prompter.tokenizer()?;
        answer["token_strs"] = ids.iter().map(|&id| tokenizer.decode(&[id], false)).collect();
    }
    Ok(json_response(&answer))
}

/// Puts tokens into text.
///
/// # Errors
/// If the body is wrong, or the model has no tokenizer.
pub fn detokenize(service: &Inner, body: &Bytes) -> Result<Response<Bytes>, Refusal> {
    let mut fields = Fields::parse(body, table::DETOKENIZE, &service.config.limits)?;
    super::check_model(service, &mut fields)?;
    let missing = || Refusal::parameter("tokens", "`tokens` is missing: expected a list of token ids");
    let list = fields.list("tokens")?.ok_or_else(missing)?;
    fields.finish()?;
    let ids =
        completions::ids(&list).ok_or_else(|| Refusal::parameter("tokens", "`tokens` has what is no token id"))?;
    let prompter = service.handle.prompter();
    let vocabulary = prompter.facts().vocab;
    if let Some(id) = ids.iter().find(|&&id| id as usize >= vocabulary) {
        let message = format!("token {id} is outside the vocabulary of {vocabulary}");
        return Err(Refusal::parameter("tokens", message));
    }
    Ok(json_response(&json!({"prompt": prompter.tokenizer()?.decode(&ids, false)})))
}

/// Returns what clients need to put conversations into words themselves.
///
/// # Errors
/// If the model has no tokenizer.
pub fn info(service: &Inner) -> Result<Response<Bytes>, Refusal> {
    let prompter = service.handle.prompter();
    let tokenizer = prompter.tokenizer()?;
    let mut info: Map<String, Value> =
        tokenizer.named_texts().map(|(part, text)| (part.to_owned(), json!(text))).collect();
    for part in ["bos_token", "eos_token", "pad_token"] {
        info.entry(part).or_insert(Value::Null);
    }
    info.insert("chat_template".to_owned(), json!(prompter.template().source()));
    info.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
    Ok(json_response(&Value::Object(info)))
}
