//! Bounds of connections, and the state that all of them share.

use std::{rc::Rc, sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{bodies::Bodies, lane::Lane};
use crate::Service;

/// Bounds of connections.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpConfig {
    /// Connections at the same time.
    pub connections: usize,
    /// Connections of one address at the same time.
    pub per_address: usize,
    /// Time in which a request's head must have come; a connection that asks for nothing is closed after it too.
    pub head_time: Duration,
    /// Time in which a request's body must have come.
    pub body_time: Duration,
    /// Time for which a reader may take nothing of what is written.
    pub write_time: Duration,
    /// Time between two chunks of a stream; text that comes sooner goes with the next one. The end waits for nothing. With
    /// more than 8 streams each waits that many times longer: all of them together send no more than 8 do.
    pub stream_interval: Duration,
    /// Silence of a stream after which a heartbeat is sent.
    pub heartbeat: Duration,
    /// Time that requests on their way get when the server is to end.
    pub drain_time: Duration,
    /// Time before that in which requests are refused but connections are taken, for balancers to notice.
    pub drain_notice: Duration,
    /// Names of this host that requests may be sent to; without any, all.
    pub hosts: Vec<String>,
    /// Origins that pages of other sites may ask from.
    pub origins: Vec<String>,
}

/// State that all connections share.
pub(super) struct Shared {
    pub service: Service,
    pub config: HttpConfig,
    /// Bodies that are on their way or read.
    pub bodies: Arc<Bodies>,
    pub lanes: Lanes,
    /// Each stream holds it, which counts them.
    pub streams: Rc<()>,
    /// State of the end, which connections watch.
    pub ending: watch::Receiver<Ending>,
}

/// Lanes for what takes time.
#[derive(Debug, Clone)]
pub(super) struct Lanes {
    /// Requests that generate are read, and their prompts put into tokens.
    pub prompts: Lane,
    /// Texts are put into tokens for clients, and tokens into texts.
    pub tokens: Lane,
    /// Long answers are written.
    pub answers: Lane,
}

impl Lanes {
    /// Jobs of each lane at a time. The engine needs the cores more than they do, and a long answer much memory.
    pub const JOBS: [usize; 3] = [4, 1, 1];

    pub fn new() -> Self {
        let [prompts, tokens, answers] = Self::JOBS.map(Lane::new);
        Self { prompts, tokens, answers }
    }
}

/// State of the server's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Requests are served.
    Serving,
    /// Requests are refused, and connections close behind what they serve.
    Draining,
    /// Giving up: unfinished requests are ended.
    GivingUp,
}
