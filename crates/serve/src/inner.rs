//! State that all requests of a service share.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use demask::{
    Handle, Model,
    internals::{
        checkpoint::Tokenizer,
        decode::{caches::CACHES, methods::DECODERS},
    },
};

use crate::{admission::Admission, config::ServiceConfig, date, metrics::Metrics};

const SERVING: u8 = 0;
const DRAINING: u8 = 1;

/// State that all requests share.
pub struct Inner {
    pub(crate) handle: Handle,
    pub(crate) config: ServiceConfig,
    pub(crate) metrics: Metrics,
    pub(crate) admission: Arc<Admission>,
    phase: AtomicU8,
    /// Model, weights and version, as responses have them.
    pub(crate) fingerprint: String,
    /// Decoders and cache policies that the model can be decoded with.
    pub(crate) methods: (Vec<&'static str>, Vec<&'static str>),
    /// Seconds since 1970 when it was started.
    pub(crate) started: u64,
}

impl Inner {
    /// Makes the state of a service on an engine.
    pub(crate) fn new(model: &Model, config: ServiceConfig) -> Self {
        let handle = model.handle();
        let admission = Admission::new(config.limits.places, &config.keys.weights());
        let name = handle.info().name();
        let fingerprint = format!("{name}-{:016x}-demask-{}", config.weights, env!("CARGO_PKG_VERSION"));
        let methods = methods(&handle);
        let (metrics, phase) = (Metrics::default(), AtomicU8::new(SERVING));
        Self { handle, config, metrics, admission, phase, fingerprint, methods, started: date::now() }
    }

    /// Refuses new requests from now on.
    pub(crate) fn drain(&self) {
        self.phase.store(DRAINING, Ordering::Relaxed);
    }

    /// Returns the model's tokenizer, if it has one.
    pub(crate) fn tokenizer(&self) -> Option<&Tokenizer> {
        self.handle.info().tokenizer().ok()
    }

    /// Returns the names that the model may be called by; responses have the first one.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let own = self.config.names.is_empty().then(|| self.handle.info().name());
        self.config.names.iter().map(String::as_str).chain(own)
    }

    /// Returns the name that the model is called by.
    pub(crate) fn name(&self) -> &str {
        self.names().next().unwrap_or_default()
    }

    /// Returns the names of the guides that a request may choose.
    pub(crate) fn guides(&self) -> Vec<&str> {
        self.handle.guides()
    }

    /// Returns whether the engine's thread still takes requests.
    pub(crate) fn is_alive(&self) -> bool {
        self.handle.is_alive()
    }

    /// Returns whether new requests are taken.
    pub(crate) fn is_serving(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == SERVING
    }
}

/// Returns the names of the decoders and of the cache policies that a model can be decoded with.
fn methods(handle: &Handle) -> (Vec<&'static str>, Vec<&'static str>) {
    let attention = handle.info().facts().mask.kind();
    let decoders = DECODERS.iter().filter(|method| method.about.attention.contains(&attention));
    let caches = CACHES.iter().filter(|method| method.about.attention.contains(&attention));
    (decoders.map(|method| method.about.name).collect(), caches.map(|method| method.about.name).collect())
}
