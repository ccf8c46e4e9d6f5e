//! The server: a router, which needs no socket, and how it ends.

use std::sync::Arc;

use axum::Router;
use demask::Model;

use crate::{
    config::{HttpConfig, ServiceConfig},
    inner::{Ending, Inner},
    router,
};

/// Serves requests on an engine. Clones share everything.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

impl Service {
    /// Serves requests on an engine.
    pub fn new(model: &Model, config: ServiceConfig) -> Self {
        Self { inner: Arc::new(Inner::new(model, config)) }
    }

    /// Returns the routes, for a runtime of tokio with time and threads for blocking work. A request's answers are cancelled
    /// before the next forward when its response, or the body of that, is dropped.
    pub fn router(&self, http: HttpConfig) -> Router {
        router::router(&self.inner, http)
    }

    /// Refuses new requests from now on. Those that are running go on.
    pub fn drain(&self) {
        self.inner.end(Ending::Refusing);
    }

    /// Returns whether a request is running.
    pub fn is_busy(&self) -> bool {
        self.inner.admission.in_use() > 0
    }

    /// Goes on to another part of the end.
    pub(crate) fn end(&self, ending: Ending) {
        self.inner.end(ending);
    }

    /// Waits until the end has come so far.
    pub(crate) fn until(&self, ending: Ending) -> impl Future<Output = ()> + Send + use<> {
        self.inner.until(ending)
    }
}
