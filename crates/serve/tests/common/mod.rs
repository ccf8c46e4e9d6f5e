//! What the tests share: models, services on them, and requests without sockets.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use bytes::Bytes;
use demask::{Engine, Handle, Model};
use demask_serve::{Reply, Service, ServiceConfig};
use http::{Request, Response};
use serde_json::Value;

/// Which model a test needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Full attention.
    Llada,
    /// Causal attention.
    Qwen,
}

pub fn load(kind: Kind) -> Model {
    let builder = Model::builder().threads(1);
    let model = match kind {
        Kind::Llada => builder.demo(),
        Kind::Qwen => builder.open(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../demo/demo-qwen")),
    };
    model.unwrap()
}

/// A service with an engine of its own.
pub struct Served {
    pub service: Service,
    pub handle: Handle,
    _engine: Engine,
}

pub fn serve(kind: Kind, config: ServiceConfig) -> Served {
    let engine = load(kind).into_engine().unwrap();
    let (service, handle) = (Service::new(&engine, config), engine.handle());
    Served { service, handle, _engine: engine }
}

/// The service that tests share which change nothing about it.
pub fn shared(kind: Kind) -> &'static Served {
    static SERVED: [OnceLock<Served>; 2] = [const { OnceLock::new() }; 2];
    SERVED[kind as usize].get_or_init(|| serve(kind, ServiceConfig::default()))
}

pub fn post(service: &Service, path: &str, body: &Value) -> Reply {
    let body = body.to_string();
    let request = Request::builder().method("POST").uri(path).header("content-length", body.len());
    let (head, ()) = request.body(()).unwrap().into_parts();
    match service.open(&head) {
        Ok(entry) => service.handle(entry, &Bytes::from(body)),
        Err(response) => Reply::Whole(*response),
    }
}

/// Waits for a body that is not a stream.
pub fn whole(reply: Reply) -> Response<Bytes> {
    match reply {
        Reply::Whole(response) => response,
        Reply::Pending(mut pending) => wait(|context| pending.poll(context)),
        Reply::Stream(..) => panic!("a whole body is expected"),
    }
}

/// The status of a whole reply, and its body as JSON.
pub fn json(reply: Reply) -> (u16, Value) {
    let response = whole(reply);
    let body = serde_json::from_slice(response.body()).unwrap_or(Value::Null);
    (response.status().as_u16(), body)
}

/// An answer that must have been made.
pub fn made(reply: Reply) -> Value {
    let (status, body) = json(reply);
    assert_eq!(status, 200, "{body}");
    body
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for something that is polled.
pub fn wait<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let end = Instant::now() + Duration::from_mins(2);
    loop {
        if let Poll::Ready(ready) = poll(&mut context) {
            return ready;
        }
        assert!(Instant::now() < end, "nothing comes");
        thread::park_timeout(Duration::from_secs(1));
    }
}
