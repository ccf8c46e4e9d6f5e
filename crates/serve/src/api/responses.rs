//! `POST /v1/responses`, which is not served, and says what is.

use crate::{Refusal, endpoint::Endpoint};

const INSTEAD: &str =
    "/v1/responses is not served, which keeps conversations: send the messages to /v1/chat/completions";

/// The endpoint.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "responses",
    paths: &[("/v1/responses", "responses")],
    serve: |asked| asked.at_once(|_, _| Err(Refusal::missing(INSTEAD))),
    ..Endpoint::POST
};
