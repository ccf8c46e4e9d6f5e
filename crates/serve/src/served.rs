//! Outcome of an endpoint, before it is a reply.

use bytes::Bytes;
use http::Response;

use crate::{judging::Judging, run::Run, shape::Shape};

/// Outcome of an endpoint.
pub(crate) enum Served {
    /// A response that is there.
    Whole(Response<Bytes>),
    /// Answers on their way, and the form they are wanted in.
    Run(Box<Run>, Shape),
    /// Judgements on their way.
    Judging(Box<Judging>),
}
