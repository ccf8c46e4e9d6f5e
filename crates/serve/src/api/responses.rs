//! `POST /v1/responses`, which is not served, and says what is.

use crate::endpoint::{Endpoint, Work};

const INSTEAD: &str =
    "/v1/responses is not served, which keeps conversations: send the messages to /v1/chat/completions";

/// The endpoint.
pub static ENDPOINT: Endpoint = Endpoint {
    name: "responses",
    paths: &[("/v1/responses", "responses")],
    work: Work::Refused(INSTEAD),
    ..Endpoint::POST
};
