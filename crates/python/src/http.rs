//! The server's request layer without sockets, as the Python half awaits it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use demask_serve::{Keys, Limits, Pending, ServeOptions, ServiceConfig};
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};

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
    service: demask_serve::Service,
}

/// A response on its way. Dropping it cancels its answers before the next forward.
#[pyclass(frozen, module = "demask._native")]
pub struct Reply {
    state: Mutex<State>,
}

enum State {
    /// Waiting for the whole body.
    Pending(Box<Pending>),
    /// Complete: the head is known, the body not yet read.
    Whole(Response<Bytes>),
    /// Streaming: the body comes in pieces.
    Stream(Response<()>, Box<demask_serve::EventStream>),
    /// Over: there is no more of it.
    Over,
}

/// A status, and names and values of headers.
type Head = (u16, Vec<(String, String)>);

impl Service {
    /// Returns the service itself, which shares everything with this one.
    pub fn inner(&self) -> demask_serve::Service {
        self.service.clone()
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
        Ok(Self { engine, service })
    }

    /// Serves one request. Prompts are put into tokens here, without the interpreter.
    fn handle(
        &self,
        py: Python<'_>,
        method: &str,
        path: &str,
        headers: Vec<(Vec<u8>, Vec<u8>)>,
        body: &[u8],
    ) -> PyResult<Reply> {
        self.engine.get().handle(py)?;
        let (head, ()) = request(method, path, &headers)?.into_parts();
        let body = Bytes::copy_from_slice(body);
        let state = py.detach(|| match self.service.open(&head) {
            Err(response) => State::Whole(*response),
            Ok(_) if body.len() > self.service.limits().body_bytes => {
                State::Whole(self.service.refuse(&self.service.too_large(body.len() as u64)))
            }
            Ok(entry) => match self.service.handle(entry, &body) {
                demask_serve::Reply::Whole(response) => State::Whole(response),
                demask_serve::Reply::Pending(pending) => State::Pending(Box::new(pending)),
                demask_serve::Reply::Stream(head, events) => State::Stream(head, events),
            },
        });
        Ok(Reply { state: Mutex::new(state) })
    }

    /// Refuses new requests from now on; what is on its way goes on.
    fn drain(&self) {
        self.service.drain();
    }

    /// Reports whether a request is on its way.
    #[getter]
    fn busy(&self) -> bool {
        self.service.is_busy()
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
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn head<T>(response: &Response<T>) -> Head {
    let header = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    (response.status().as_u16(), response.headers().iter().map(header).collect())
}

#[pymethods]
impl Reply {
    /// Status and headers, or `None`, and the bell rings with this number once they are known.
    fn head(&self, py: Python<'_>, bell: &Bell, number: u64) -> PyResult<Option<Head>> {
        let waker = Waker::from(bell.ringer(number));
        let mut state = self.lock();
        if let State::Pending(pending) = &mut *state {
            match pending.poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => return Ok(None),
                Poll::Ready(response) => *state = State::Whole(response),
            }
        }
        match &*state {
            State::Whole(response) => Ok(Some(head(response))),
            State::Stream(response, _) => Ok(Some(head(response))),
            State::Pending(_) | State::Over => Err(exception(py, "Cancelled", "the request was given up: ask again")),
        }
    }

    /// Reports whether the next piece of the body is there, with that piece, `None` behind the end. If it is not, the
    /// bell rings with this number once it is.
    fn chunk<'py>(&self, py: Python<'py>, bell: &Bell, number: u64) -> (bool, Option<Bound<'py, PyBytes>>) {
        let waker = Waker::from(bell.ringer(number));
        let mut state = self.lock();
        let piece = match &mut *state {
            State::Stream(_, events) => match events.poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => return (false, None),
                Poll::Ready(piece) => piece,
            },
            State::Whole(response) => Some(std::mem::take(response.body_mut())).filter(|body| !body.is_empty()),
            State::Pending(_) | State::Over => None,
        };
        if piece.is_none() {
            *state = State::Over;
        }
        (true, piece.map(|piece| PyBytes::new(py, &piece)))
    }

    /// Reports whether its body comes in pieces.
    #[getter]
    fn streams(&self) -> bool {
        matches!(&*self.lock(), State::Stream(..))
    }

    /// Cancels the request. Nothing happens if it is over.
    fn cancel(&self) {
        *self.lock() = State::Over;
    }
}
