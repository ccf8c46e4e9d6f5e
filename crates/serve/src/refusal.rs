//! Refusals in the envelope that clients of OpenAI's interface read: the value found, the expected one, and a remedy.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use demask::SettingError;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// The parameter of a refusal that is about the prompt, until the endpoint replaces it by its own name.
pub(crate) const PROMPT: &str = "(prompt)";
/// The same of a refusal about the length of the answer, which the request did not name.
pub(crate) const LENGTH: &str = "(length)";

/// A request that is not served, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status. Clients try again on 408, 409, 429 and from 500 on.
    pub status: StatusCode,
    /// The kind of error, of a closed list: `invalid_request_error`, `authentication_error`, `not_found_error`,
    /// `rate_limit_error`, `overloaded`, `server_error`.
    pub kind: &'static str,
    /// One line.
    pub message: String,
    /// The parameter that is wrong.
    pub param: Option<String>,
    /// A word for programs.
    pub code: Option<&'static str>,
    /// Whole seconds after which it is worth another try.
    pub retry_after: Option<u64>,
    /// The method that the path takes, where it was asked by another one.
    pub allow: Option<&'static str>,
}

impl Refusal {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: short(message.into()), param: None, code: None, retry_after: None, allow: None }
    }

    /// A request that is wrong, whatever it is about.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A parameter that is wrong.
    pub fn parameter(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(short(name.into())), ..Self::bad(message) }
    }

    /// A thing that is not here.
    pub fn missing(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found_error", message)
    }

    /// A key that is missing or unknown.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::UNAUTHORIZED, "authentication_error", message);
        Self { code: Some("invalid_api_key"), ..refusal }
    }

    /// A host or an origin that is not served.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "invalid_request_error", message)
    }

    /// A method that this path does not have.
    pub fn method(allow: &'static str, message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message);
        Self { allow: Some(allow), ..refusal }
    }

    /// A body that is too large.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
    }

    /// A body in a form that is not read.
    pub fn media(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", message)
    }

    /// A way of sending that is not known (RFC 9112, 6.1).
    pub fn transfer(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "invalid_request_error", message)
    }

    /// A deadline that passed, or a body that does not come.
    pub fn too_late(message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::REQUEST_TIMEOUT, "server_error", message);
        Self { code: Some("deadline_exceeded"), ..refusal }
    }

    /// A key's own rate.
    pub fn rate(message: impl Into<String>, retry_after: u64) -> Self {
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message);
        Self { code: Some("rate_limit_exceeded"), retry_after: Some(retry_after), ..refusal }
    }

    /// No place is left.
    pub fn overloaded(message: impl Into<String>, retry_after: u64) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message);
        Self { code: Some("overloaded"), retry_after: Some(retry_after), ..refusal }
    }

    /// The server is about to end.
    pub fn shutting_down() -> Self {
        let message = "the server is shutting down: try again in a moment";
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message);
        Self { code: Some("shutting_down"), retry_after: Some(1), ..refusal }
    }

    /// The engine failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// A request whose handler panicked, which goes into the program's log.
    pub(crate) fn broken(panic: &str) -> Self {
        tracing::error!(error = panic, "a request broke off (a bug, please report it)");
        Self::failed("the request broke off (a bug, please report it)")
    }

    /// Adds a code for programs.
    pub fn coded(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// Returns the envelope.
    pub fn body(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}})
    }

    /// Returns the whole response.
    pub fn response(&self) -> Response {
        let mut response = Response::new(Body::from(self.body().to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(method) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(method));
        }
        if self.status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            // What would be read instead (RFC 9110, 15.5.16).
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// An error of the library: the request's fault, or the engine's.
/// A response that the router logs as refused.
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = self.response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<demask::Error> for Refusal {
    fn from(error: demask::Error) -> Self {
        let message = one_line(&error.to_string());
        if error.is_expired() {
            return Self::too_late(message);
        }
        if let demask::Error::Options(error) = &error
            && let Some(option) = error.option()
        {
            return Self::parameter(option, message);
        }
        match error {
            demask::Error::UnknownGuide { found, known } if known.is_empty() => {
                let message =
                    format!("unknown `guide` {found:?}: this server has none, start it with --guide NAME=MODEL");
                Self::parameter("diffusion.guide", one_line(&message))
            }
            demask::Error::ShutDown => Self::shutting_down(),
            demask::Error::Interrupted => Self::failed("the request was cancelled"),
            // A prompt that fills the context by itself is not helped by a shorter answer.
            demask::Error::TooLong { prompt, context, option, .. } => {
                let param = if prompt >= context { PROMPT } else { option.unwrap_or(LENGTH) };
                Self::parameter(param, message).coded("context_length_exceeded")
            }
            demask::Error::TextTooLong { .. } => Self::parameter(PROMPT, message).coded("context_length_exceeded"),
            demask::Error::MaskInPrompt => {
                let message = "the prompt contains the text of the model's mask token: remove it; holes to be filled are \
                               sent to /v1/infill";
                Self::parameter(PROMPT, message).coded("mask_in_prompt")
            }
            demask::Error::TokenOutOfRange { .. }
            | demask::Error::InfillUnsupported { .. }
            | demask::Error::NoHole
            | demask::Error::NothingToContinue
            | demask::Error::BadHole { .. } => Self::parameter(PROMPT, message),
            demask::Error::Option(SettingError::Value { name: option, .. })
            | demask::Error::InfillLength { option }
            | demask::Error::Meaningless { option, .. }
            | demask::Error::Constraint { option, .. } => Self::parameter(option, message),
            demask::Error::Question { param, .. } => Self::parameter(param, message),
            demask::Error::UnknownGuide { .. } | demask::Error::WhichGuide { .. } => {
                Self::parameter("diffusion.guide", message)
            }
            // Memory that is there for no request of this size, however long it waits.
            demask::Error::Open(_) => Self::bad(message).coded("context_length_exceeded"),
            error if error.is_usage() => Self::bad(message),
            demask::Error::NoTokenizer { .. } => Self::bad(message),
            demask::Error::Checkpoint(error) if error.is_conversation() => Self::parameter("messages", message),
            _ => Self::failed(message),
        }
    }
}

/// Longest message, in bytes: a quotation of a request may be as long as its body.
const LONGEST: usize = 800;

/// The beginning of a text that is too long.
fn short(mut text: String) -> String {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// Errors are one line, whatever they quote.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use demask::layers::checkpoint::CheckpointError;

    use super::*;

    #[test]
    fn a_template_that_refuses_a_conversation_is_the_conversations_fault() {
        let words = "System role not supported".to_owned();
        let refusal = Refusal::from(demask::Error::Checkpoint(CheckpointError::Refused { words }));
        assert_eq!((refusal.status, refusal.kind), (StatusCode::BAD_REQUEST, "invalid_request_error"));
        assert_eq!(refusal.param.as_deref(), Some("messages"));
        assert_eq!(refusal.message, "the model's chat template refuses the conversation: System role not supported");
        let detail = "fails: b is asked of what is not defined in line 3".to_owned();
        let refusal = Refusal::from(demask::Error::Checkpoint(CheckpointError::Unrendered { detail }));
        assert_eq!((refusal.status, refusal.param.as_deref()), (StatusCode::BAD_REQUEST, Some("messages")));
    }
}
