//! State that all requests of a service share.

use std::{future::pending, sync::Arc};

use demask::{Handle, Model, Registry, Tokenizer};

use tokio::sync::watch;

use crate::{
    Refusal, admission::Admission, bodies::Bodies, config::ServiceConfig, date, lane::Lanes, metrics::Metrics,
};

/// Parts of a server's end, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// Requests are served.
    Serving,
    /// Requests are refused, and connections are kept.
    Refusing,
    /// Connections close after what they serve.
    Closing,
    /// Requests that are not over are ended.
    GivingUp,
}

/// State that all requests share.
pub struct Inner {
    pub(crate) handle: Handle,
    pub(crate) config: ServiceConfig,
    pub(crate) metrics: Metrics,
    pub(crate) admission: Arc<Admission>,
    /// Bodies that are on their way or read.
    pub(crate) bodies: Arc<Bodies>,
    pub(crate) lanes: Lanes,
    /// Each stream holds it, which counts them.
    pub(crate) streams: Arc<()>,
    ending: watch::Sender<Ending>,
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
        let bodies = Bodies::new(config.limits.all_bodies, config.limits.body_bytes, &config.keys.weights());
        Self {
            handle,
            config,
            metrics: Metrics::default(),
            admission,
            bodies,
            lanes: Lanes::new(),
            streams: Arc::default(),
            ending: watch::Sender::new(Ending::Serving),
            fingerprint,
            methods,
            started: date::now(),
        }
    }

    /// Goes on to another part of the end.
    pub(crate) fn end(&self, ending: Ending) {
        self.ending.send_if_modified(|now| std::mem::replace(now, ending.max(*now)) < ending);
    }

    /// Waits until the end has come so far.
    pub(crate) fn until(&self, far: Ending) -> impl Future<Output = ()> + Send + use<> {
        let mut ending = self.ending.subscribe();
        async move {
            if ending.wait_for(|now| *now >= far).await.is_err() {
                // The service is gone, and so is everything that could end.
                pending::<()>().await;
            }
        }
    }

    /// Returns the refusal of a body of so many bytes.
    pub(crate) fn too_large(&self, length: u64) -> Refusal {
        let most = self.config.limits.body_bytes;
        Refusal::too_large(format!("the body has {length} bytes or more, expected at most {most}"))
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

    /// Reports whether requests may name any model: nobody has said by which names this one goes.
    pub(crate) fn takes_any_name(&self) -> bool {
        self.config.names.is_empty()
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
        *self.ending.borrow() == Ending::Serving
    }
}

/// Returns the names of the decoders and of the cache policies that a model can be decoded with.
fn methods(handle: &Handle) -> (Vec<&'static str>, Vec<&'static str>) {
    let attention = handle.info().facts().mask.kind();
    let registry = Registry::of_program();
    let decoders = registry.decoders().iter().filter(|method| method.about.attention.contains(&attention));
    let caches = registry.caches().iter().filter(|method| method.about.attention.contains(&attention));
    (decoders.map(|method| method.about.name).collect(), caches.map(|method| method.about.name).collect())
}
