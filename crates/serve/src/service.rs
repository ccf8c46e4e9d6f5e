//! The server without sockets: a request's head and body go in, a response's head and a stream of bytes come out.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use demask::Model;
use http::{HeaderValue, Response, header, request::Parts};

#[cfg(feature = "http")]
use crate::run::MUCH;
use crate::{
    Refusal, account, api,
    config::ServiceConfig,
    endpoint::{Endpoint, Work},
    entry::{Caller, Entry},
    inner::Inner,
    judging::Judging,
    media,
    path::Path,
    random,
    response::{dress, held, json_response, json_text},
    run::Run,
    served::Served,
    shape::Shape,
    stream::EventStream,
};

/// Serves requests on an engine, from any thread. Clones share everything.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

/// A request that may send its body.
pub struct Opened {
    endpoint: &'static Endpoint,
    pub(crate) entry: Entry,
}

impl Opened {
    /// Returns whether it works for its request, which takes time.
    #[cfg(feature = "http")]
    pub(crate) fn works(&self) -> bool {
        self.endpoint.works()
    }

    /// Returns whether it makes tokens of a text, or the other way round, and generates nothing.
    #[cfg(feature = "http")]
    pub(crate) fn tokenizes(&self) -> bool {
        self.endpoint.work == Work::Tokens
    }
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
    work: Waiting,
    request_id: String,
}

/// Work that a body waits for.
enum Waiting {
    Answers(Box<(Shape, Run)>),
    Judging(Box<Judging>),
}

impl Service {
    /// Serves requests on an engine.
    pub fn new(model: &Model, config: ServiceConfig) -> Self {
        Self { inner: Arc::new(Inner::new(model, config)) }
    }

    /// Looks at a request before its body is read: whether it is allowed, where it goes, how large it is, and whether there is
    /// a place for it.
    ///
    /// # Errors
    /// The response, if it is not served.
    pub fn open(&self, head: &Parts) -> Result<Opened, Box<Response<Bytes>>> {
        let started = Instant::now();
        let id = request_id(head);
        self.entry(head, id.clone(), started).map_err(|refusal| {
            let caller = Caller { id, endpoint: "none", key: None, trace: None };
            account::refused(&self.inner, &caller, started, &refusal);
            Box::new(dress(refusal.response(), &caller.id))
        })
    }

    fn entry(&self, head: &Parts, id: String, started: Instant) -> Result<Opened, Refusal> {
        let inner = &self.inner;
        let path = Path::read(head.uri.path())?;
        let endpoint = api::find(&head.method, &path, inner.config.page)?;
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let trace = text("traceparent").filter(|trace| is_trace(trace));
        let mut caller = Caller { id, endpoint: endpoint.name, key: None, trace };
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
        if let Work::Refused(why) = endpoint.work {
            return Err(Refusal::missing(why));
        }
        let mut places = None;
        if endpoint.works() {
            if !inner.is_serving() {
                return Err(Refusal::shutting_down());
            }
            places = Some(inner.admission.enter(key)?);
        }
        let entry = Entry { caller, key, weight, path, foreign: media::foreign(head), places, started };
        Ok(Opened { endpoint, entry })
    }

    /// Refuses a body that is too large, and any where none is read.
    fn check_body(&self, head: &Parts, endpoint: &Endpoint) -> Result<(), Refusal> {
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
    pub fn handle(&self, opened: Opened, body: &Bytes) -> Reply {
        let Opened { endpoint, entry } = opened;
        let (caller, started) = (entry.caller.clone(), entry.started);
        let foreign = entry.foreign.clone();
        match api::serve(endpoint, &self.inner, entry, body).map_err(|refusal| media::blame(refusal, foreign, body)) {
            Ok(Served::Whole(response)) => Reply::Whole(dress(response, &caller.id)),
            Ok(Served::Run(run, shape)) => self.reply(*run, shape, caller.id),
            Ok(Served::Judging(judging)) => {
                let work = Waiting::Judging(judging);
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
            let work = Waiting::Answers(Box::new((shape, run)));
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
        self.inner.drain();
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

impl Pending {
    /// Waits until the work is over, and returns the response.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Response<Bytes>> {
        self.poll_over(context).map(|over| self.written(over))
    }

    /// Waits until the work is over, and writes nothing.
    pub(crate) fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        match &mut self.work {
            Waiting::Answers(answers) => poll_answers(&mut answers.1, context),
            Waiting::Judging(judging) => judging.poll(context),
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
            Waiting::Answers(answers) => whole_answers(&self.service, &answers.0, &answers.1),
            Waiting::Judging(judging) => json_response(&judging.body()),
        });
        dress(response.unwrap_or_else(|refusal| refusal.response()), &self.request_id)
    }

    /// Reports whether writing the response takes a while.
    #[cfg(feature = "http")]
    pub(crate) fn is_long(&self) -> bool {
        match &self.work {
            Waiting::Answers(answers) => answers.1.length(&answers.0.wishes) > MUCH,
            Waiting::Judging(_) => false,
        }
    }

    /// Gives the request up.
    pub fn end_with(&mut self, refusal: &Refusal) -> Response<Bytes> {
        match &mut self.work {
            Waiting::Answers(answers) => drop(answers.1.fail(refusal.clone())),
            Waiting::Judging(judging) => judging.fail(refusal),
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
