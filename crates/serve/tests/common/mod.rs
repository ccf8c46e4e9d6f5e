//! What the tests share: models, services on them, requests without sockets, and streams read in step with the engine.

use std::{
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, HttpBody},
};
use bytes::Bytes;
use demask::{Handle, Model};
use demask_serve::{Service, ServiceConfig, http::HttpConfig};
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};
use tower::ServiceExt;

/// Which model a test needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Full attention, with a guide named `small`.
    Llada,
    /// Block-causal attention.
    Sdar,
    /// Causal attention.
    Qwen,
}

pub fn load(kind: Kind) -> Model {
    let folder = |name: &str| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../demo").join(name);
    let builder = Model::builder().threads(1);
    let model = match kind {
        Kind::Llada => builder.named_guide("small", folder("demo-qwen").to_string_lossy()).demo(),
        Kind::Sdar => builder.open(folder("demo-sdar")),
        Kind::Qwen => builder.open(folder("demo-qwen")),
    };
    model.unwrap()
}

/// A service with an engine of its own.
pub struct Served {
    pub service: Service,
    pub handle: Handle,
    _model: Model,
}

pub fn serve(kind: Kind, config: ServiceConfig) -> Served {
    serve_model(load(kind), config)
}

pub fn serve_model(model: Model, config: ServiceConfig) -> Served {
    let (service, handle) = (Service::new(&model, config), model.handle());
    Served { service, handle, _model: model }
}

/// The service that tests share which change nothing about it.
pub fn shared(kind: Kind) -> &'static Served {
    static SERVED: [OnceLock<Served>; 3] = [const { OnceLock::new() }; 3];
    SERVED[kind as usize].get_or_init(|| serve(kind, ServiceConfig::default()))
}

/// The service whose engine is stopped and started between forwards: one test at a time.
pub fn stepped(kind: Kind) -> std::sync::MutexGuard<'static, Served> {
    static SERVED: [OnceLock<Mutex<Served>>; 3] = [const { OnceLock::new() }; 3];
    let served = SERVED[kind as usize].get_or_init(|| Mutex::new(serve(kind, ServiceConfig::default())));
    served.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The runtime of all requests.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap())
}

/// Routes whose streams send each chunk at once.
fn router(service: &Service) -> Router {
    service.router(HttpConfig { stream_interval: Duration::ZERO, ..HttpConfig::default() })
}

/// A request on its way. Dropped, it is given up.
pub struct Reply(JoinHandle<axum::response::Response>);

impl Drop for Reply {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Reply {
    /// Waits for the head of the response.
    pub fn response(mut self) -> axum::response::Response {
        wait(|context| Pin::new(&mut self.0).poll(context)).unwrap()
    }

    /// Returns whether the response is there.
    pub fn is_there(&self) -> bool {
        self.0.is_finished()
    }
}

/// Returns whether a response is a stream.
pub fn is_stream(response: &axum::response::Response) -> bool {
    response.headers()["content-type"] == "text/event-stream; charset=utf-8"
}

/// Requests that a service has taken on.
fn admitted(service: &Service) -> f64 {
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let response = runtime().block_on(router(service).oneshot(request)).unwrap();
    let text = runtime().block_on(response.into_body().collect()).unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    text.lines().find_map(|line| line.strip_prefix("demask_requests_admitted_total ")).unwrap().parse().unwrap()
}

/// Sends a request, and waits until it is taken on or answered.
pub fn send(service: &Service, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let mut request = Request::builder().method(method).uri(path).header("content-length", body.len());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_vec())).unwrap();
    let (before, router) = (admitted(service), router(service));
    let reply = Reply(runtime().spawn(async move { router.oneshot(request).await.unwrap() }));
    let end = Instant::now() + Duration::from_mins(2);
    while !reply.is_there() && admitted(service) <= before {
        assert!(Instant::now() < end, "it is not taken on");
        thread::yield_now();
    }
    reply
}

pub fn post(service: &Service, path: &str, body: &Value) -> Reply {
    send(service, "POST", path, &[], body.to_string().as_bytes())
}

/// Waits for a body that is not a stream.
pub fn whole(reply: Reply) -> Response<Bytes> {
    let response = reply.response();
    assert!(response.headers().get("content-type").is_none() || !is_stream(&response), "a whole body is expected");
    collected(response)
}

/// Waits for the rest of a body.
pub fn collected(response: axum::response::Response) -> Response<Bytes> {
    let (head, body) = response.into_parts();
    Response::from_parts(head, runtime().block_on(body.collect()).unwrap().to_bytes())
}

/// The status of a whole reply, and its body as JSON.
pub fn json(reply: Reply) -> (u16, Value) {
    json_of(&whole(reply))
}

/// The status of a response, and its body as JSON.
pub fn json_of(response: &Response<Bytes>) -> (u16, Value) {
    let body = serde_json::from_slice(response.body()).unwrap_or(Value::Null);
    (response.status().as_u16(), body)
}

/// An answer that must have been made.
pub fn made(reply: Reply) -> Value {
    let (status, body) = json(reply);
    assert_eq!(status, 200, "{body}");
    body
}

/// A `usage` without its speed, which differs from run to run.
pub fn counts(usage: &Value) -> Value {
    let mut counts = usage.clone();
    let speed = counts.as_object_mut().unwrap().remove("tokens_per_second");
    assert!(speed.is_none_or(|speed| speed.as_f64().unwrap() > 0.0), "{usage}");
    counts
}

/// The body of a stream.
pub struct Events(Body);

impl Events {
    /// Returns the next messages, none after the end.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let _runtime = runtime().enter();
        let frame = Pin::new(&mut self.0).poll_frame(context);
        frame.map(|frame| frame.map(|frame| frame.unwrap().into_data().unwrap()))
    }
}

pub fn stream(reply: Reply) -> Events {
    events(reply.response())
}

pub fn events(response: axum::response::Response) -> Events {
    assert!(is_stream(&response), "a stream is expected: {response:?}");
    Events(response.into_body())
}

/// Reads a stream to its end.
pub fn read(stream: &mut Events) -> String {
    let mut bytes = Vec::new();
    while let Some(chunk) = wait(|context| stream.poll(context)) {
        bytes.extend_from_slice(&chunk);
    }
    String::from_utf8(bytes).unwrap()
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

/// Polls once, without waiting.
pub fn poll_once<T>(poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until nothing is left of any request: no place, no request, no sequence, no page.
pub fn nothing_left(served: &Served) {
    let left = || {
        let counters = served.handle.counters();
        let networks: Vec<_> = counters.networks.iter().map(|one| (one.open, one.pages.used)).collect();
        let all = (counters.totals.running, counters.totals.waiting, networks);
        let none = served.service.is_busy() || all.0 + all.1 > 0 || all.2.iter().any(|one| *one != (0, 0));
        (none, all)
    };
    until("something is left", || !left().0);
    assert_eq!(served.handle.counters().totals.leaks, 0);
}

/// Holds an engine between two forwards until it is let go.
pub struct Held(mpsc::Sender<()>);

pub fn hold(handle: &Handle) -> Held {
    let (release, released) = mpsc::channel();
    let (enter, entered) = mpsc::channel();
    let handle = handle.clone();
    thread::spawn(move || {
        let _ = handle.with_network(move |_| {
            let _ = enter.send(());
            // Let go, or dropped.
            let _ = released.recv();
        });
    });
    entered.recv().unwrap();
    Held(release)
}

impl Held {
    pub fn let_go(self) {
        let _ = self.0.send(());
    }
}

/// A waker that stops whoever wakes, the engine's thread, until the reader has taken all that is there.
#[derive(Default)]
struct Step {
    state: Mutex<(bool, bool)>,
    changed: Condvar,
    gone: AtomicBool,
}

impl Wake for Step {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock().unwrap();
        // There is something to read, and the reader has not read it.
        *state = (true, false);
        self.changed.notify_all();
        while !state.1 && !self.gone.load(Ordering::Acquire) {
            state = self.changed.wait_timeout(state, Duration::from_millis(200)).unwrap().0;
        }
    }
}

/// Reads a stream such that the engine waits for its reader behind each forward: nothing is ever merged, and the same bytes
/// come each time. The request is sent while the engine is held.
pub fn read_in_step(served: &Served, send: impl FnOnce(&Service) -> Reply) -> String {
    let held = hold(&served.handle);
    let mut stream = stream(send(&served.service));
    let step = Arc::new(Step::default());
    let waker = Waker::from(Arc::clone(&step));
    let mut context = Context::from_waker(&waker);
    let mut held = Some(held);
    let mut bytes = Vec::new();
    let end = Instant::now() + Duration::from_mins(2);
    loop {
        match stream.poll(&mut context) {
            Poll::Ready(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Poll::Ready(None) => break,
            Poll::Pending => {
                let mut state = step.state.lock().unwrap();
                state.1 = true;
                step.changed.notify_all();
                // Not before the lock is held: what wakes first would be taken for read.
                if let Some(held) = held.take() {
                    held.let_go();
                }
                while !state.0 {
                    assert!(Instant::now() < end, "nothing comes");
                    state = step.changed.wait_timeout(state, Duration::from_millis(200)).unwrap().0;
                }
                state.0 = false;
            }
        }
    }
    step.gone.store(true, Ordering::Release);
    step.changed.notify_all();
    String::from_utf8(bytes).unwrap()
}

/// The messages of a stream, each of which is exactly one line of data and an empty one; `[DONE]` is the last.
pub fn messages(text: &str) -> Vec<Value> {
    let body = text.strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("no end: {text}"));
    let parts: Vec<&str> = body.split_terminator("\n\n").collect();
    assert!(body.is_empty() || body.ends_with("\n\n"), "{body}");
    let one = |part: &&str| {
        let data = part.strip_prefix("data: ").unwrap_or_else(|| panic!("no message: {part:?}"));
        assert!(!data.contains(['\n', '\r']), "{data:?}");
        serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"))
    };
    parts.iter().map(one).collect()
}

/// The text that a client puts together from a stream, by choice.
pub fn text_of(messages: &[Value], choice: usize) -> String {
    let choices = messages.iter().flat_map(|message| message["choices"].as_array().into_iter().flatten());
    let own = choices.filter(|one| one["index"] == choice);
    own.filter_map(|one| one["delta"]["content"].as_str().or(one["text"].as_str())).collect()
}

/// The beginning of a body, to say which one it was.
pub fn brief(body: &Value) -> String {
    body.to_string().chars().take(200).collect()
}
