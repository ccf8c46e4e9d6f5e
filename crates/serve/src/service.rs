//! The server without sockets: a request's head and body go in, a response's head and a stream of bytes come out.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use demask::{
    Handle, Model, Tenant,
    internals::{
        checkpoint::Tokenizer,
        decode::{caches::CACHES, methods::DECODERS},
    },
};
use http::{HeaderValue, Response, header, request::Parts};
use serde_json::Value;

use crate::{
    Refusal,
    account::{self, Account, Caller},
    admission::{Admission, Places},
    api::{self, Judging},
    config::ServiceConfig,
    date, media,
    metrics::Metrics,
    path::Path,
    random,
    route::{self, Endpoint},
    run::Run,
    shape::Shape,
    stream::EventStream,
};

/// Serves requests on an engine, from any thread. Clones share everything.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

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

/// Tokens, each of their alternatives counted, that are written within a few milliseconds.
#[cfg(feature = "http")]
pub(crate) const MUCH: usize = 1024;

const SERVING: u8 = 0;
const DRAINING: u8 = 1;

/// A request that may send its body: it is known who asks for what, and it has a place.
pub struct Entry {
    pub(crate) endpoint: Endpoint,
    pub(crate) caller: Caller,
    /// Number of its key, and the key's weight.
    pub(crate) key: usize,
    weight: f64,
    /// The path that it came by.
    pub(crate) path: Path,
    /// What the head says of the body's form, if JSON is something else.
    foreign: Option<String>,
    places: Option<Places>,
    pub(crate) started: Instant,
}

/// Reply to a request. Dropped, its answers are cancelled before the next forward.
pub enum Reply {
    /// A response that is there.
    Whole(Response<Bytes>),
    /// A response whose body comes when all answers are over.
    Pending(Pending),
    /// A response whose body comes as answers are made.
    Stream(Response<()>, Box<EventStream>),
}

/// Work that is wanted in one body.
pub struct Pending {
    service: Arc<Inner>,
    work: Work,
    request_id: String,
}

/// Work that a body waits for.
enum Work {
    Answers(Box<(Shape, Run)>),
    Judging(Box<Judging>),
}

impl Service {
    /// Serves requests on an engine.
    pub fn new(model: &Model, config: ServiceConfig) -> Self {
        let handle = model.handle();
        let admission = Admission::new(config.limits.places, &config.keys.weights());
        let name = handle.info().name();
        let fingerprint = format!("{name}-{:016x}-demask-{}", config.weights, env!("CARGO_PKG_VERSION"));
        let methods = methods(&handle);
        let started = date::now();
        let (metrics, phase) = (Metrics::default(), AtomicU8::new(SERVING));
        Self { inner: Arc::new(Inner { handle, config, metrics, admission, phase, fingerprint, methods, started }) }
    }

    /// Looks at a request before its body is read: whether it is allowed, where it goes, how large it is, and whether there is
    /// a place for it.
    ///
    /// # Errors
    /// The response, if it is not served.
    pub fn open(&self, head: &Parts) -> Result<Entry, Box<Response<Bytes>>> {
        let started = Instant::now();
        let id = request_id(head);
        self.entry(head, id.clone(), started).map_err(|refusal| {
            let caller = Caller { id, endpoint: "none", key: None, trace: None };
            account::refused(&self.inner, &caller, started, &refusal);
            Box::new(dress(refusal.response(), &caller.id))
        })
    }

    fn entry(&self, head: &Parts, id: String, started: Instant) -> Result<Entry, Refusal> {
        let inner = &self.inner;
        let path = Path::read(head.uri.path())?;
        let endpoint = route::find(&head.method, &path, inner.config.page)?;
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let trace = text("traceparent").filter(|trace| is_trace(trace));
        let mut caller = Caller { id, endpoint: endpoint.name(), key: None, trace };
        let (mut key, mut weight) = (0, 1.0);
        if !endpoint.is_open() {
            let mut authorizations = head.headers.get_all(header::AUTHORIZATION).iter().map(HeaderValue::as_bytes);
            let authorization = authorizations.next();
            if authorizations.next().is_some() {
                return Err(Refusal::bad("there are several Authorization headers, expected one"));
            }
            if let Some(found) = inner.config.keys.find(authorization)? {
                found.count(started)?;
                caller.key = Some(found.name.clone());
                (key, weight) = (found.number, found.weight);
            }
        }
        media::check(head)?;
        self.check_body(head, endpoint)?;
        if endpoint == Endpoint::Responses {
            return Err(Refusal::missing(
                "/v1/responses is not served, which keeps conversations: send the messages to /v1/chat/completions",
            ));
        }
        let mut places = None;
        if endpoint.works() {
            if inner.phase.load(Ordering::Relaxed) != SERVING {
                return Err(Refusal::shutting_down());
            }
            places = Some(inner.admission.enter(key)?);
        }
        Ok(Entry { endpoint, caller, key, weight, path, foreign: media::foreign(head), places, started })
    }

    /// Refuses a body that is too large, and any where none is read.
    fn check_body(&self, head: &Parts, endpoint: Endpoint) -> Result<(), Refusal> {
        let text = head.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let length = text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        if !endpoint.takes_body() && (length > 0 || head.headers.contains_key(header::TRANSFER_ENCODING)) {
            let path: String = head.uri.path().chars().take(80).collect();
            return Err(Refusal::too_large(format!("{path} takes no body: send none")));
        }
        if length > self.inner.config.limits.body_bytes as u64 { Err(self.too_large(length)) } else { Ok(()) }
    }

    /// Returns the refusal of a body of so many bytes.
    pub fn too_large(&self, length: u64) -> Refusal {
        let most = self.inner.config.limits.body_bytes;
        Refusal::too_large(format!("the body has {length} bytes or more, expected at most {most}"))
    }

    /// Serves a request whose body is there. Prompts are put into tokens on the thread that calls.
    pub fn handle(&self, entry: Entry, body: &Bytes) -> Reply {
        let (caller, started) = (entry.caller.clone(), entry.started);
        let foreign = entry.foreign.clone();
        match api::serve(&self.inner, entry, body).map_err(|refusal| media::blame(refusal, foreign, body)) {
            Ok(Served::Whole(response)) => Reply::Whole(dress(response, &caller.id)),
            Ok(Served::Run(run, shape)) => self.reply(*run, shape, caller.id),
            Ok(Served::Judging(judging)) => {
                let work = Work::Judging(judging);
                Reply::Pending(Pending { service: Arc::clone(&self.inner), work, request_id: caller.id })
            }
            Err(refusal) => {
                account::refused(&self.inner, &caller, started, &refusal);
                Reply::Whole(dress(refusal.response(), &caller.id))
            }
        }
    }

    fn reply(&self, run: Run, shape: Shape, request_id: String) -> Reply {
        let service = Arc::clone(&self.inner);
        let Some(wishes) = shape.wishes.stream else {
            let work = Work::Answers(Box::new((shape, run)));
            return Reply::Pending(Pending { service, work, request_id });
        };
        let mut response = dress(Response::new(Bytes::new()), &request_id).map(|_| ());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        // Proxies that collect a response before they pass it on leave this one alone.
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Reply::Stream(response, Box::new(EventStream::new(&service, shape, wishes, run)))
    }

    /// Refuses new requests from now on; what is on its way goes on.
    pub fn drain(&self) {
        self.inner.phase.store(DRAINING, Ordering::Relaxed);
    }

    /// Returns whether a request is on its way.
    pub fn is_busy(&self) -> bool {
        self.inner.admission.taken() > 0
    }

    /// Returns the weights of the keys, in their order.
    #[cfg(feature = "http")]
    pub(crate) fn weights(&self) -> Vec<f64> {
        self.inner.config.keys.weights()
    }

    /// Returns the bounds of a request.
    pub fn limits(&self) -> &crate::Limits {
        &self.inner.config.limits
    }

    /// Returns a response to a request that never became one, with a name of its own.
    pub fn refuse(&self, refusal: &Refusal) -> Response<Bytes> {
        self.inner.metrics.refused(refusal.status.as_u16());
        dress(refusal.response(), &random::name("req-"))
    }
}

/// Outcome of an endpoint.
pub(crate) enum Served {
    /// A response that is there.
    Whole(Response<Bytes>),
    /// Answers on their way, and the form they are wanted in.
    Run(Box<Run>, Shape),
    /// Judgements on their way.
    Judging(Box<Judging>),
}

impl Pending {
    /// Waits until the work is over, and returns the response.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Response<Bytes>> {
        self.poll_over(context).map(|over| self.written(over))
    }

    /// Waits until the work is over, and writes nothing.
    pub(crate) fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        match &mut self.work {
            Work::Answers(answers) => poll_answers(&mut answers.1, context),
            Work::Judging(judging) => judging.poll(context),
        }
    }

    /// Waits until the work is over.
    #[cfg(feature = "http")]
    pub(crate) async fn over(&mut self) -> Result<(), Refusal> {
        std::future::poll_fn(|context| self.poll_over(context)).await
    }

    /// Writes the response to work that is over.
    pub(crate) fn written(&self, over: Result<(), Refusal>) -> Response<Bytes> {
        let response = over.map(|()| match &self.work {
            Work::Answers(answers) => whole_answers(&self.service, &answers.0, &answers.1),
            Work::Judging(judging) => json_response(&judging.body()),
        });
        dress(response.unwrap_or_else(|refusal| refusal.response()), &self.request_id)
    }

    /// Reports whether writing the response takes a while.
    #[cfg(feature = "http")]
    pub(crate) fn is_long(&self) -> bool {
        match &self.work {
            Work::Answers(answers) => answers.1.length(&answers.0.wishes) > MUCH,
            Work::Judging(_) => false,
        }
    }

    /// Gives the request up.
    pub fn end_with(&mut self, refusal: &Refusal) -> Response<Bytes> {
        match &mut self.work {
            Work::Answers(answers) => drop(answers.1.fail(refusal.clone())),
            Work::Judging(judging) => judging.fail(refusal),
        }
        dress(refusal.response(), &self.request_id)
    }
}

/// Waits until all answers are over.
fn poll_answers(run: &mut Run, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
    loop {
        // Once it is known when the first text was there, nothing is of interest before the end.
        if run.account().has_text() && run.poll_over(context).is_pending() {
            return Poll::Pending;
        }
        match run.poll(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(Some(_))) => {}
            Poll::Ready(Ok(None)) => return Poll::Ready(Ok(())),
            Poll::Ready(Err(refusal)) => return Poll::Ready(Err(refusal)),
        }
    }
}

/// Writes the body of answers that are all over.
fn whole_answers(service: &Inner, shape: &Shape, run: &Run) -> Response<Bytes> {
    let response = json_text(shape.whole(run, service.tokenizer()));
    let mut response = response.map(|body| held(body, run.places()));
    let (queue, total) = (run.queued().unwrap_or_default(), run.started().elapsed());
    let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let timing = format!("queue;dur={:.1}, total;dur={:.1}", milliseconds(queue), milliseconds(total));
    if let Ok(timing) = HeaderValue::from_str(&timing) {
        response.headers_mut().insert("server-timing", timing);
    }
    response
}

/// Returns bytes with which the places of their request are free: behind the last of them, which a slow reader may take late.
pub(crate) fn held(bytes: Bytes, places: &Arc<Places>) -> Bytes {
    struct Held(Bytes, #[allow(dead_code, reason = "it is held")] Arc<Places>);
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Held(bytes, Arc::clone(places)))
}

impl Entry {
    /// Waits for the request's body, which is not there yet: see [`body_came`](Self::body_came).
    ///
    /// # Errors
    /// If too many large bodies are waited for.
    #[cfg(feature = "http")]
    pub(crate) fn await_body(&mut self, is_small: bool) -> Result<(), Refusal> {
        self.places.as_mut().map_or(Ok(()), |places| places.await_body(is_small))
    }

    /// Goes on with the body that was waited for.
    ///
    /// # Errors
    /// If no place is left for the request.
    #[cfg(feature = "http")]
    pub(crate) fn body_came(&mut self) -> Result<(), Refusal> {
        self.places.as_mut().map_or(Ok(()), Places::body_came)
    }

    /// Returns whether it works for its request, which takes time.
    #[cfg(feature = "http")]
    pub(crate) fn works(&self) -> bool {
        self.endpoint.works()
    }

    /// Returns whether it puts into tokens, or the other way round, and generates nothing.
    #[cfg(feature = "http")]
    pub(crate) fn tokenizes(&self) -> bool {
        matches!(self.endpoint, Endpoint::Tokenize | Endpoint::Detokenize)
    }

    /// Returns the tenant that its work is for: the holder of its key.
    pub(crate) fn tenant(&self) -> Tenant {
        Tenant { id: self.key as u64, weight: self.weight }
    }

    /// Returns the salt of its cache: what a key's requests have computed is its own, whatever salt they name.
    pub(crate) fn salt(&self, own: Option<String>) -> Option<String> {
        match (&self.caller.key, own) {
            (Some(key), None) => Some(format!("{}:{key}", key.len())),
            (Some(key), Some(own)) => Some(format!("{}:{key}:{own}", key.len())),
            (None, own) => own,
        }
    }

    /// Takes the request's place, for whoever does its work.
    pub(crate) fn places(&mut self) -> Result<Places, Refusal> {
        self.places.take().ok_or_else(|| Refusal::failed("the request has no place (a bug, please report it)"))
    }
}

impl Inner {
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

    /// Opens the account of a request.
    pub(crate) fn account(self: &Arc<Self>, entry: &Entry) -> Account {
        Account::new(self, entry.caller.clone(), entry.started)
    }
}

/// Returns the names of the decoders and of the cache policies that a model can be decoded with.
fn methods(handle: &Handle) -> (Vec<&'static str>, Vec<&'static str>) {
    let attention = handle.info().facts().mask.kind();
    let decoders = DECODERS.iter().filter(|method| method.about.attention.contains(&attention));
    let caches = CACHES.iter().filter(|method| method.about.attention.contains(&attention));
    (decoders.map(|method| method.about.name).collect(), caches.map(|method| method.about.name).collect())
}

/// Puts on a response what all have: the request's name, and what browsers must know of it.
fn dress(mut response: Response<Bytes>, request_id: &str) -> Response<Bytes> {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert("x-request-id", id);
    }
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Returns a response with a body of JSON.
pub(crate) fn json_response(body: &Value) -> Response<Bytes> {
    json_text(body.to_string())
}

/// Returns a response with a body that is JSON.
fn json_text(body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Reports whether a text has the form of the header of W3C's traces: anything else may be of any length, and would go into
/// the log.
fn is_trace(text: &str) -> bool {
    let mut parts = text.split('-');
    let lengths = [2, 32, 16, 2];
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    lengths.iter().all(|&length| parts.next().is_some_and(|part| part.len() == length && is_hex(part)))
        && parts.next().is_none()
}

/// Returns the client's own name for its request, or a new one.
fn request_id(head: &Parts) -> String {
    let given = head.headers.get("x-request-id").and_then(|value| value.to_str().ok());
    let fit = given.filter(|id| (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic()));
    fit.map_or_else(|| random::name("req-"), str::to_owned)
}
