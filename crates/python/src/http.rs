//! The server's request layer without sockets, as the Python half awaits it.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, HttpBody},
    response::Response,
};
use bytes::Bytes;
use demask_serve::{Keys, Limits, ServeOptions, ServiceConfig, http::HttpConfig};
use http::{HeaderName, HeaderValue, Method, Request, Uri, response::Parts};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};

use tokio::runtime;
use tower::ServiceExt;

use crate::{
    bell::Bell,
    engine::Engine,
    error::{exception, wrong_type},
    options::set,
};

/// An OpenAI-compatible server over an engine, without sockets.
#[pyclass(frozen, module = "demask._native")]
pub struct Service {
    engine: Py<Engine>,
    inner: demask_serve::Service,
    router: Router,
    runtime: Arc<Runtime>,
}

/// The clock and the threads of requests. Dropped, it waits for none of them.
struct Runtime(Option<runtime::Runtime>);

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A response on its way. Dropping it cancels its answers before the next forward.
#[pyclass(frozen, module = "demask._native")]
pub struct Reply {
    state: Mutex<State>,
    runtime: Arc<Runtime>,
}

enum State {
    /// Waiting for the head.
    Waiting(Pin<Box<dyn Future<Output = Response> + Send>>),
    /// The head is known, and the body comes in pieces.
    Body(Parts, Body),
    /// Over: there is no more of it.
    Over,
}

/// A status, and names and values of headers.
type Head = (u16, Vec<(String, String)>);

impl Service {
    /// Returns the service itself, which shares everything with this one.
    pub fn inner(&self) -> demask_serve::Service {
        self.inner.clone()
    }
}

#[pymethods]
impl Service {
    /// Serves an engine. `limits` has bounds by their names, `keys` one a line.
    #[new]
    #[pyo3(signature = (engine, names, keys, page, limits: "dict[str, Any]"))]
    fn new(
        py: Python<'_>,
        engine: Py<Engine>,
        names: Vec<String>,
        keys: Option<&str>,
        page: bool,
        limits: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let keys = keys.map(Keys::parse).transpose();
        let keys = keys.map_err(|error| exception(py, "OptionsError", &error.to_string()))?.unwrap_or_default();
        let limits = bounds(limits)?;
        let service = engine.get().with(py, |engine, weights| {
            let config =
                ServiceConfig { names, limits, keys: Arc::new(keys), page, weights, ..ServiceConfig::default() };
            demask_serve::Service::new(engine, config)
        })?;
        // What a program reads goes to no socket: each step of an answer may be a message of its own.
        let router = service.router(HttpConfig { stream_interval: Duration::ZERO, ..HttpConfig::default() });
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
        Ok(Self { engine, inner: service, router, runtime: Arc::new(Runtime(Some(runtime))) })
    }

    /// Serves one request, once its head is asked for.
    fn handle(
        &self,
        py: Python<'_>,
        method: &str,
        path: &str,
        headers: Vec<(Vec<u8>, Vec<u8>)>,
        body: &[u8],
    ) -> PyResult<Reply> {
        self.engine.get().handle(py)?;
        let request = request(method, path, &headers)?.map(|()| Body::from(body.to_vec()));
        let router = self.router.clone();
        let response = async move { router.oneshot(request).await.unwrap_or_else(|never| match never {}) };
        let state = Mutex::new(State::Waiting(Box::pin(response)));
        Ok(Reply { state, runtime: Arc::clone(&self.runtime) })
    }

    /// Refuses new requests from now on. Running ones go on.
    fn drain(&self) {
        self.inner.drain();
    }

    /// Reports whether a request is on its way.
    #[getter]
    fn busy(&self) -> bool {
        self.inner.is_busy()
    }
}

/// Bounds of requests that a program may set; the others are a process's.
pub const BOUNDS: [&str; 5] = ["max_queue", "max_gen_length", "max_body_bytes", "max_choices", "max_prompts"];

/// The bounds of requests, from those that are given.
fn bounds(given: &Bound<'_, PyDict>) -> PyResult<Limits> {
    let mut options = ServeOptions::default();
    for (name, value) in given {
        let name: String = name.extract()?;
        if !BOUNDS.contains(&name.as_str()) {
            return Err(wrong_type(format!("{name} is no bound of requests (known: {})", BOUNDS.join(", "))));
        }
        set(&mut options, &name, &value)?;
    }
    options.limits().map_err(|error| exception(given.py(), "OptionsError", &error.to_string()))
}

/// A request's head.
fn request(method: &str, path: &str, headers: &[(Vec<u8>, Vec<u8>)]) -> PyResult<Request<()>> {
    let refused = |what: &str, found: &str| {
        pyo3::exceptions::PyValueError::new_err(format!("{found:?} is no {what} of a request"))
    };
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(method.as_bytes()).map_err(|_| refused("method", method))?;
    *request.uri_mut() = path.parse::<Uri>().map_err(|_| refused("path", path))?;
    for (name, value) in headers {
        let shown = || String::from_utf8_lossy(name).into_owned();
        let name = HeaderName::from_bytes(name).map_err(|_| refused("header", &shown()))?;
        let value = HeaderValue::from_bytes(value).map_err(|_| refused("header's value, of", name.as_str()))?;
        request.headers_mut().append(name, value);
    }
    Ok(request)
}

impl Reply {
    /// Looks at the state with the clock and the threads of requests at hand.
    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let _runtime = self.runtime.0.as_ref().map(runtime::Runtime::enter);
        look(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Waits for the head, and returns it; none where the request was given up.
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Option<Head>> {
        if let Self::Waiting(response) = self {
            let (head, body) = ready!(response.as_mut().poll(context)).into_parts();
            *self = Self::Body(head, body);
        }
        Poll::Ready(match self {
            Self::Body(head, _) => Some(head_of(head)),
            Self::Waiting(_) | Self::Over => None,
        })
    }

    /// Waits for the next piece of the body, and returns it; none after the end.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Self::Body(_, body) = self else { return Poll::Ready(None) };
        while let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(context)) {
            if let Ok(piece) = frame.map_err(drop).and_then(|frame| frame.into_data().map_err(drop)) {
                return Poll::Ready(Some(piece));
            }
        }
        *self = Self::Over;
        Poll::Ready(None)
    }
}

fn head_of(head: &Parts) -> Head {
    let header = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    (head.status.as_u16(), head.headers.iter().map(header).collect())
}

#[pymethods]
impl Reply {
    /// Status and headers, or `None`, and the bell rings with this number once they are known.
    fn head(&self, py: Python<'_>, bell: &Bell, number: u64) -> PyResult<Option<Head>> {
        let waker = Waker::from(bell.ringer(number));
        match self.with(|state| state.poll_head(&mut Context::from_waker(&waker))) {
            Poll::Pending => Ok(None),
            Poll::Ready(Some(head)) => Ok(Some(head)),
            Poll::Ready(None) => Err(exception(py, "Cancelled", "the request was given up: ask again")),
        }
    }

    /// Reports whether the next piece of the body is there, with that piece, `None` after the end. If it is not, the
    /// bell rings with this number once it is.
    fn chunk<'py>(&self, py: Python<'py>, bell: &Bell, number: u64) -> (bool, Option<Bound<'py, PyBytes>>) {
        let waker = Waker::from(bell.ringer(number));
        match self.with(|state| state.poll_piece(&mut Context::from_waker(&waker))) {
            Poll::Pending => (false, None),
            Poll::Ready(piece) => (true, piece.map(|piece| PyBytes::new(py, &piece))),
        }
    }

    /// Cancels the request. Nothing happens if it is over.
    fn cancel(&self) {
        self.with(|state| *state = State::Over);
    }
}
