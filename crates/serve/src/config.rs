//! Configuration of a server, beside its engine.

use std::{fmt, sync::Arc};

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
    /// Takes one line for each request. It never holds what was asked or answered.
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
