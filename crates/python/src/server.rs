//! A server on a socket, on a thread of its own.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    thread::{self, JoinHandle},
};

use demask_serve::{ServeOptions, http::Stop};
use demask_settings::List;
use pyo3::prelude::*;

use crate::{error::exception, http::Service, options::set};

const SERVING: u8 = 0;
const DRAINING: u8 = 1;
const STOPPING: u8 = 2;

/// An HTTP server over an engine.
#[pyclass(frozen, module = "demask._native")]
pub struct Server {
    address: SocketAddr,
    wish: Arc<AtomicU8>,
    thread: Mutex<Option<JoinHandle<io::Result<()>>>>,
    process: u32,
}

#[pymethods]
impl Server {
    /// Listens on an address and serves. `hosts` are names of this host that requests may be sent to, `origins` those that pages
    /// of other sites may ask from.
    #[new]
    #[pyo3(signature = (service, host, port: "int | None", hosts, origins))]
    fn new(
        py: Python<'_>,
        service: &Service,
        host: Option<String>,
        port: Option<Bound<'_, PyAny>>,
        hosts: Option<Vec<String>>,
        origins: Vec<String>,
    ) -> PyResult<Self> {
        let refused = |what: String| exception(py, "OptionsError", &what);
        let mut options = ServeOptions {
            host,
            allowed_host: hosts.map(List),
            cors_origin: Some(origins).filter(|origins| !origins.is_empty()).map(List),
            ..ServeOptions::default()
        };
        if let Some(port) = port {
            set(&mut options, "port", &port)?;
        }
        let address = options.address().map_err(|error| refused(error.to_string()))?;
        let config = options.http(address.ip()).map_err(|error| refused(error.to_string()))?;
        let server = demask_serve::http::Server::bind(address, service.inner(), config).map_err(|error| {
            refused(format!("cannot listen on {address} ({error}): choose another `host` or `port`"))
        })?;
        let address = server.address()?;
        let wish = Arc::new(AtomicU8::new(SERVING));
        let told = Arc::clone(&wish);
        let run = move || {
            server.run(|| match told.load(Ordering::Relaxed) {
                SERVING => Stop::No,
                DRAINING => Stop::Drain,
                _ => Stop::Now,
            })
        };
        let thread = thread::Builder::new().name("demask-http".to_owned()).spawn(run)?;
        Ok(Self { address, wish, thread: Mutex::new(Some(thread)), process: std::process::id() })
    }

    /// The address that it listens on.
    #[getter]
    fn address(&self) -> (String, u16) {
        (self.address.ip().to_string(), self.address.port())
    }

    /// Reports whether it serves.
    #[getter]
    fn running(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends it: at once, or when its running requests are over. Nothing happens if it has ended.
    fn close(&self, py: Python<'_>, drain: bool) -> PyResult<()> {
        self.wish.fetch_max(if drain { DRAINING } else { STOPPING }, Ordering::Relaxed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread.filter(|_| self.process == std::process::id()) else { return Ok(()) };
        match py.detach(|| thread.join()) {
            Ok(served) => Ok(served?),
            Err(_) => Err(exception(py, "Error", "the server's thread panicked (a bug, please report it)")),
        }
    }
}
