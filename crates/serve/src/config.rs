//! Configuration of a server, beside its engine.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;

use crate::{Limits, keys::Keys};

/// Configuration of a service.
#[derive(Clone)]
pub struct ServiceConfig {
    /// Names that requests may call the model by; responses have the first one.
    pub names: Vec<String>,
    /// Bounds of a request.
    pub limits: Limits,
    /// Keys of those who may use it.
    pub keys: Arc<Keys>,
    /// Sets whether the page is there.
    pub page: bool,
    /// Fingerprint of the weights, for clients that compare answers.
    pub weights: u64,
    /// Takes one line for each request. It never holds the text of a prompt or of an answer.
    pub log: Arc<dyn Fn(&Value) + Send + Sync>,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            limits: Limits::default(),
            keys: Arc::default(),
            page: true,
            weights: 0,
            log: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for ServiceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceConfig")
            .field("names", &self.names)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Bounds of connections, and of what comes over them.
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
    /// Time for which a reader may take none of the written bytes.
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
