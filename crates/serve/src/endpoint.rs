//! An endpoint, and a request on its way to one.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody},
    response::Response,
    routing::MethodFilter,
};
use bytes::Bytes;
use http::Method;
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    Refusal,
    bodies::Unread,
    config::HttpConfig,
    entry::Entry,
    fields::table::Table,
    inner::Inner,
    lane::{Lane, Lanes},
    media,
    refusal::{LENGTH, PROMPT},
};

/// Time after the head in which most bodies come.
const PROMPT_BODY: Duration = Duration::from_millis(100);
/// Bytes of a body that is waited for without a place: all connections together cannot make much of them.
const SMALL_BODY: u64 = 64 << 10;

/// An endpoint: everything that the server knows of one is in its file of `api`.
pub struct Endpoint {
    /// Name in logs.
    pub name: &'static str,
    /// Method that it takes. Where that is GET, it takes HEAD, too.
    pub method: Method,
    /// Its paths, each with its name in `/openapi.json`.
    pub paths: &'static [(&'static str, &'static str)],
    /// Path with a part that may be anything, as the router writes it; empty if it has none.
    pub folder: &'static str,
    /// Callers that it is there for.
    pub access: Access,
    /// Schema of its requests' bodies, if they have one.
    pub schema: Option<Schema>,
    /// Answers a request.
    pub serve: fn(IncomingRequest) -> Answer,
}

/// The response to a request, or its refusal. Dropped, whatever is made for it is cancelled before the next forward.
pub type Answer = Pin<Box<dyn Future<Output = Result<Response, Refusal>> + Send>>;

/// Callers that an endpoint is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Holders of a key, where the server has keys.
    Keys,
    /// Everybody: it says nothing of anybody's requests.
    All,
    /// Everybody, whatever host the request names: balancers, managers and scrapers know an address of this machine and no name.
    Probes,
}

/// Schema of bodies.
#[derive(Debug)]
pub struct Schema {
    /// Its fields.
    pub table: Table,
    /// Fields that must be there.
    pub required: &'static [&'static str],
    /// Field that is the prompt: the library does not know where one came from.
    pub prompt: &'static str,
    /// Field that is too long where prompt and answer are.
    pub length: &'static str,
}

impl Schema {
    /// Returns the schema of bodies whose prompt is this field.
    pub const fn new(table: Table, required: &'static [&'static str], prompt: &'static str) -> Self {
        Self { table, required, prompt, length: prompt }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

impl Endpoint {
    /// Endpoint of GET that answers at once, for holders of a key.
    pub const GET: Self = Self {
        name: "",
        method: Method::GET,
        paths: &[],
        folder: "",
        access: Access::Keys,
        schema: None,
        serve: |asked| asked.at_once(|_, _| Err(Refusal::missing("this endpoint answers nothing"))),
    };
    /// Endpoint of POST for holders of a key.
    pub const POST: Self = Self { method: Method::POST, ..Self::GET };

    /// Returns the method that it takes, as the router has it.
    pub fn filter(&self) -> MethodFilter {
        if self.method == Method::POST { MethodFilter::POST } else { MethodFilter::GET }
    }

    /// Refuses another method.
    pub fn refuse(&self, method: &Method, path: &str) -> Refusal {
        let known = &self.method;
        let allow = if known == Method::GET { "GET, HEAD" } else { "POST" };
        let (path, method): (String, String) =
            (path.chars().take(80).collect(), method.as_str().chars().take(20).collect());
        Refusal::method(allow, format!("{path} takes {known}, not {method}"))
    }

    /// Replaces a refusal's parameter by the endpoint's own name for it: the library does not know where a prompt came
    /// from.
    fn named(&self, refusal: Refusal) -> Refusal {
        let (prompt, length) =
            self.schema.as_ref().map_or(("prompt", "prompt"), |schema| (schema.prompt, schema.length));
        let name = match refusal.param.as_deref() {
            Some(PROMPT) => prompt,
            Some(LENGTH) => length,
            _ => return refusal,
        };
        Refusal { param: Some(name.to_owned()), ..refusal }
    }
}

/// A request whose head was read, and whose body was not.
pub struct IncomingRequest {
    pub service: Arc<Inner>,
    pub http: Arc<HttpConfig>,
    pub endpoint: &'static Endpoint,
    pub entry: Entry,
    pub body: Body,
}

impl IncomingRequest {
    /// Answers at once, whatever the body is.
    pub fn at_once(self, answer: fn(&Inner, &Entry) -> Result<Response, Refusal>) -> Answer {
        Box::pin(std::future::ready(answer(&self.service, &self.entry)))
    }

    /// Takes a place, then the body, and reads it in a lane.
    ///
    /// # Errors
    /// If there is no place, the body is not to be had, or it is wrong.
    pub async fn read<T: Send + 'static>(
        self,
        lane: fn(&Lanes) -> &Lane,
        read: impl FnOnce(&Arc<Inner>, Entry, &Bytes) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let Self { service, http, endpoint, mut entry, body } = self;
        if !service.is_serving() {
            return Err(Refusal::shutting_down());
        }
        entry.places = Some(service.admission.enter(entry.key)?);
        let bytes = arrived(&service, &http, &mut entry, body).await?;
        let (lane, key) = (lane(&service.lanes).clone(), entry.key);
        let job = move || {
            let foreign = entry.foreign.take();
            let wrong = |refusal| media::blame(endpoint.named(refusal), foreign, &bytes);
            read(&service, entry, &bytes).map_err(wrong)
        };
        lane.run(key, job).await?
    }
}

/// Waits for a request's body. Mostly it comes with the head; one that does not leaves places to others meanwhile.
async fn arrived(service: &Inner, http: &HttpConfig, entry: &mut Entry, body: Body) -> Result<Bytes, Refusal> {
    let is_small = body.size_hint().upper().is_some_and(|most| most <= SMALL_BODY);
    let end = Instant::now() + http.body_time;
    let mut reading = std::pin::pin!(read(service, http, entry.key, body, end));
    if let Ok(bytes) = timeout(PROMPT_BODY, reading.as_mut()).await {
        return bytes;
    }
    entry.await_body(is_small)?;
    let bytes = reading.await?;
    entry.body_came()?;
    Ok(bytes)
}

/// Reads a body, as large and as slow as it may be.
async fn read(service: &Inner, http: &HttpConfig, key: usize, body: Body, end: Instant) -> Result<Bytes, Refusal> {
    match timeout_at(end, service.bodies.read(key, body)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(Unread::TooLarge)) => Err(service.too_large(service.config.limits.body_bytes as u64 + 1)),
        Ok(Err(Unread::Broken)) => Err(Refusal::bad("the body broke off before its end")),
        Ok(Err(Unread::Full)) => {
            let message = "the bodies of requests take all memory that they may take together: try again in 1 s";
            Err(Refusal::overloaded(message, 1))
        }
        Err(_) => {
            let seconds = http.body_time.as_secs();
            Err(Refusal::too_late(format!("the body did not come within {seconds} s")))
        }
    }
}
