//! The form of a request's body, as its head tells it: JSON in UTF-8, as it is.

use http::{HeaderValue, header, request::Parts};
use serde::de::IgnoredAny;

use crate::Refusal;

/// Refuses a body that is packed or sent in a way that is not read.
///
/// # Errors
/// If the head says that it is.
pub fn check(head: &Parts) -> Result<(), Refusal> {
    if let Some(coding) = other_than(head, header::CONTENT_ENCODING, &["identity"]) {
        return Err(Refusal::media(format!(
            "content-encoding is {coding}, which is not unpacked here: send the body as it is"
        )));
    }
    if let Some(coding) = other_than(head, header::TRANSFER_ENCODING, &["chunked", "identity"]) {
        return Err(Refusal::transfer(format!("transfer-encoding is {coding}, expected chunked or a content-length")));
    }
    Ok(())
}

/// Returns a header's first word that is none of those that are known.
fn other_than(head: &Parts, name: header::HeaderName, known: &[&str]) -> Option<String> {
    let texts = head.headers.get_all(name).iter().map(text).collect::<Vec<_>>();
    let words = texts.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|word| !word.is_empty());
    let mut others = words.filter(|word| !known.iter().any(|known| known.eq_ignore_ascii_case(word)));
    others.next().map(|word| word.chars().take(40).collect())
}

/// Returns the content type of a head that claims another form than JSON in UTF-8; none of others. Many clients send
/// JSON under another type (curl sends forms by default), so this refuses nothing that can be read.
pub fn foreign(head: &Parts) -> Option<String> {
    let told = text(head.headers.get(header::CONTENT_TYPE)?);
    let mut parts = told.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
    let charset = parts.find_map(|part| part.split_once('=').filter(|(name, _)| name.eq_ignore_ascii_case("charset")));
    let charset = charset.map(|(_, value)| value.trim_matches('"').to_ascii_lowercase());
    let known = charset.is_none_or(|charset| ["utf-8", "utf8", "us-ascii"].contains(&charset.as_str()));
    let is_json = kind == "application/json" || kind.ends_with("+json") || kind == "text/json";
    (!is_json || !known).then(|| told.chars().take(80).collect())
}

/// Names the form of a body as the reason of a refusal, where the body is none that is read.
pub fn blame(refusal: Refusal, foreign: Option<String>, body: &[u8]) -> Refusal {
    let empty = body.iter().all(u8::is_ascii_whitespace);
    let Some(told) = foreign.filter(|_| refusal.param.is_none() && !empty) else { return refusal };
    let read = std::str::from_utf8(body).map_err(|error| error.to_string());
    match read.and_then(|text| serde_json::from_str::<IgnoredAny>(text).map_err(|error| error.to_string())) {
        Err(error) => Refusal::media(format!(
            "content-type is {told} and the body is no JSON ({error}): expected application/json in UTF-8"
        )),
        Ok(_) => refusal,
    }
}

/// Returns a header's text, with U+FFFD for each byte that is no UTF-8.
fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}
