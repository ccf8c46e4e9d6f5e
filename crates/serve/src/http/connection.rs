//! One connection: requests one after the other, each with its bounds.

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Version, header, request::Parts};
use hyper::{
    body::{Body, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpStream,
    sync::watch,
    task::spawn_local,
    time::{Instant, timeout, timeout_at},
};

use super::{
    bodies::{Unread, pass_over},
    body::{GivenUp, ReplyBody, Streaming},
    envelope::Envelope,
    lane::said,
    layer::Layered,
    presence::{Presence, Present, Stage},
    shared::{Ending, Shared},
    stall::Stall,
};
use crate::{Opened, Refusal, Reply, api, date};

/// Bytes of a request's head, and its headers.
const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 100;
/// Time behind the head in which most bodies come.
const PROMPT_BODY: Duration = Duration::from_millis(100);
/// Bytes of a body that is waited for without a place: all connections together cannot make much of them.
const SMALL_BODY: u64 = 64 << 10;
/// Bytes of a refused request's body that are passed over so that its connection can be kept, and for how long.
const REFUSED_BODY: usize = 64 << 10;
const REFUSED_TIME: Duration = Duration::from_millis(20);
/// Bytes that are passed over behind a refusal that ends its connection, and for how long: a client that sends without
/// reading would find a reset in the place of the refusal.
const LINGERING_BODY: usize = 8 << 20;
const LINGERING_TIME: Duration = Duration::from_secs(2);

/// Serves a connection until it ends.
pub(super) async fn serve(stream: TcpStream, shared: Rc<Shared>) {
    let presence = Rc::<Presence>::default();
    let socket = Layered(TokioIo::new(stream), Present::new(Rc::clone(&presence)));
    let bounded = Layered(socket, Stall::new(shared.config.write_time));
    let io = Layered(bounded, Envelope::new(&shared.service));
    let service = {
        let shared = Rc::clone(&shared);
        service_fn(move |request: Request<Incoming>| {
            presence.at(if request.body().is_end_stream() { made(&request) } else { Stage::Body });
            respond(Rc::clone(&shared), Rc::clone(&presence), request)
        })
    };
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(shared.config.head_time)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        // One of its own follows the clock wherever that is set.
        .auto_date_header(false);
    let mut connection = std::pin::pin!(builder.serve_connection(io, service));
    let mut ending = shared.ending.clone();
    let over = tokio::select! {
        over = connection.as_mut() => over,
        () = told(&mut ending, |ending| *ending != Ending::Serving) => {
            // The request on its way is served, and none behind it.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = over {
        tracing::debug!(%error, "a connection ended");
    }
}

/// The stage of a request that is complete.
fn made(request: &Request<Incoming>) -> Stage {
    if request.version() == Version::HTTP_11 { Stage::Made } else { Stage::MadeUnasked }
}

/// Waits until the server is so far. What is waited for is not handed on: it holds the lock that the server needs to go
/// further.
async fn told(ending: &mut watch::Receiver<Ending>, far: impl FnMut(&Ending) -> bool) {
    if ending.wait_for(far).await.is_err() {
        // Nobody is left to say so.
        std::future::pending::<()>().await;
    }
}

async fn respond(
    shared: Rc<Shared>,
    presence: Rc<Presence>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Infallible> {
    let complete = made(&request);
    let (head, body) = request.into_parts();
    let origin = allowed_origin(&shared, &head);
    let asked = Asked { shared: &shared, presence: &presence, complete };
    // hyper leaves out the body of a response to HEAD, and tells its length.
    let mut response = match checked(&shared, &head) {
        Ok(Some(response)) => response.map(|bytes| asked.whole(bytes)),
        Ok(None) => asked.answered(&head, body).await,
        Err(refusal) => {
            let response = shared.service.refuse(&refusal).map(|bytes| asked.whole(bytes));
            if body.is_end_stream() { response } else { closing(response, &head, body) }
        }
    };
    presence.at(Stage::Sent);
    let headers = response.headers_mut();
    headers.insert(header::DATE, date::header());
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-request-id, retry-after"));
    }
    Ok(response)
}

/// Looks at what only a socket can be asked wrongly: another host, an origin that is not allowed, a browser's question
/// before the request.
fn checked(shared: &Shared, head: &Parts) -> Result<Option<Response<Bytes>>, Refusal> {
    if head.version == Version::HTTP_11 && head.headers.get_all(header::HOST).iter().count() != 1 {
        return Err(Refusal::bad("a request of HTTP/1.1 has exactly one Host header"));
    }
    let host = head.headers.get(header::HOST).map(HeaderValue::as_bytes).or_else(|| head.uri.host().map(str::as_bytes));
    let name = host.and_then(host_name);
    let known = |name: &[u8]| shared.config.hosts.iter().any(|host| host.as_bytes().eq_ignore_ascii_case(name));
    // Probes and scrapers ask by an address, and learn nothing of anybody's requests.
    let is_probe = api::is_probe(head.uri.path());
    if !shared.config.hosts.is_empty() && !is_probe && !name.is_some_and(known) {
        let expected = shared.config.hosts.join(", ");
        return Err(Refusal::forbidden(format!("the Host header names another host, expected one of {expected}")));
    }
    if !is_own_origin(head, host) && allowed_origin(shared, head).is_none() {
        return Err(Refusal::forbidden("pages of another origin may not ask this server: start it with --cors-origin"));
    }
    if head.method != Method::OPTIONS {
        return Ok(None);
    }
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = http::StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    // A browser sends nothing unless each header that it asked for is allowed, and clients add headers of their own. None that
    // a page may set changes what is done for it.
    let usual = HeaderValue::from_static("authorization, content-type, x-request-id");
    let asked = head.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).filter(|names| !names.is_empty());
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.cloned().unwrap_or(usual));
    Ok(Some(response))
}

/// Reports whether a request comes from no page, or from one of this server's own. A browser sends some requests to
/// other sites without asking first, and a page that nobody allowed must not spend this machine's time.
fn is_own_origin(head: &Parts, host: Option<&[u8]>) -> bool {
    let Some(origin) = head.headers.get(header::ORIGIN).map(HeaderValue::as_bytes) else { return true };
    let named = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    named.is_some_and(|named| host.is_some_and(|host| named.eq_ignore_ascii_case(host)))
}

/// A host without its port; none of what is no host with a port.
fn host_name(host: &[u8]) -> Option<&[u8]> {
    // An address of version 6 stands in brackets.
    let end = match host {
        [b'[', ..] => host.iter().position(|&byte| byte == b']')? + 1,
        _ => host.iter().position(|&byte| byte == b':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let is_port = port.is_empty() || port[0] == b':' && port[1..].iter().all(u8::is_ascii_digit);
    is_port.then_some(name)
}

fn allowed_origin(shared: &Shared, head: &Parts) -> Option<HeaderValue> {
    let origin = head.headers.get(header::ORIGIN)?;
    let known = shared.config.origins.iter().any(|known| known.as_bytes() == origin.as_bytes());
    known.then(|| origin.clone())
}

/// A request of a connection.
struct Asked<'a> {
    shared: &'a Rc<Shared>,
    presence: &'a Rc<Presence>,
    /// The stage that begins when its body is there.
    complete: Stage,
}

impl Asked<'_> {
    fn whole(&self, bytes: Bytes) -> ReplyBody {
        ReplyBody::whole(bytes, self.presence)
    }

    fn refused(&self, refusal: &Refusal) -> Response<ReplyBody> {
        self.shared.service.refuse(refusal).map(|bytes| self.whole(bytes))
    }

    async fn answered(&self, head: &Parts, mut body: Incoming) -> Response<ReplyBody> {
        let mut opened = match self.shared.service.open(head) {
            Ok(opened) => opened,
            Err(response) => {
                let response = response.map(|bytes| self.whole(bytes));
                let kept = passed_over(head, &mut body).await;
                return if kept { response } else { closing(response, head, body) };
            }
        };
        let bytes = match self.arrived(&mut opened, &mut body).await {
            Ok(bytes) => bytes,
            Err(refusal) => return closing(self.refused(&refusal), head, body),
        };
        drop(body);
        self.presence.at(self.complete);
        self.reply(opened, bytes).await
    }

    /// Waits for a request's body. Mostly it comes with the head; one that does not leaves places to others meanwhile.
    async fn arrived(&self, opened: &mut Opened, body: &mut Incoming) -> Result<Bytes, Refusal> {
        let is_small = body.size_hint().upper().is_some_and(|most| most <= SMALL_BODY);
        let end = Instant::now() + self.shared.config.body_time;
        let mut reading = std::pin::pin!(self.read(opened.entry.key, body, end));
        if let Ok(bytes) = timeout(PROMPT_BODY, reading.as_mut()).await {
            return bytes;
        }
        opened.entry.await_body(is_small)?;
        let bytes = reading.await?;
        opened.entry.body_came()?;
        Ok(bytes)
    }

    /// Reads a body, as large and as slow as it may be.
    async fn read(&self, key: usize, body: &mut Incoming, end: Instant) -> Result<Bytes, Refusal> {
        let Shared { bodies, config, service, .. } = &**self.shared;
        match timeout_at(end, bodies.read(key, body)).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(Unread::TooLarge)) => Err(service.too_large(service.limits().body_bytes as u64 + 1)),
            Ok(Err(Unread::Broken)) => Err(Refusal::bad("the body broke off before its end")),
            Ok(Err(Unread::Full)) => {
                let message = "the bodies of requests take all memory that they may take together: try again in 1 s";
                Err(Refusal::overloaded(message, 1))
            }
            Err(_) => {
                let seconds = config.body_time.as_secs();
                Err(Refusal::too_late(format!("the body did not come within {seconds} s")))
            }
        }
    }

    /// Serves a request. What takes time is done in a lane.
    ///
    /// # Errors
    /// What it panicked with.
    async fn handled(&self, opened: Opened, bytes: Bytes) -> Result<Reply, String> {
        let (service, lanes, key) = (self.shared.service.clone(), &self.shared.lanes, opened.entry.key);
        let lane = if opened.tokenizes() { &lanes.tokens } else { &lanes.prompts };
        if opened.works() {
            return lane.run(key, move || service.handle(opened, &bytes)).await;
        }
        // Nothing that the request has touched is looked at again.
        let made = catch_unwind(AssertUnwindSafe(|| service.handle(opened, &bytes)));
        made.map_err(|panic| said(&*panic))
    }

    async fn reply(&self, opened: Opened, bytes: Bytes) -> Response<ReplyBody> {
        let (shared, key) = (self.shared, opened.entry.key);
        let response = match self.handled(opened, bytes).await {
            Ok(Reply::Whole(response)) => Ok(response),
            Ok(Reply::Pending(mut pending)) => {
                let over = tokio::select! {
                    over = pending.over() => Some(over),
                    () = given_up(shared) => None,
                };
                match over {
                    None => Ok(pending.end_with(&Refusal::shutting_down())),
                    Some(over) if pending.is_long() => {
                        shared.lanes.answers.run(key, move || pending.written(over)).await
                    }
                    Some(over) => Ok(pending.written(over)),
                }
            }
            Ok(Reply::Stream(head, events)) => {
                let streaming = Streaming::new(events, shared, key, given_up(shared));
                return head.map(|()| ReplyBody::stream(streaming, self.presence));
            }
            Err(error) => Err(error),
        };
        match response {
            Ok(response) => response.map(|bytes| self.whole(bytes)),
            Err(error) => {
                tracing::error!(%error, "a request broke off (a bug, please report it)");
                self.refused(&Refusal::failed("the request broke off (a bug, please report it)"))
            }
        }
    }
}

/// Passes over the body of a refused request, if its end is near: a client that is asked to come again keeps its connection,
/// and a crowd of them costs no new ones.
async fn passed_over(head: &Parts, body: &mut Incoming) -> bool {
    // A client that waits to be asked for its body shall not send it.
    if head.headers.contains_key(header::EXPECT)
        || body.size_hint().upper().is_none_or(|most| most > REFUSED_BODY as u64)
    {
        return false;
    }
    timeout(REFUSED_TIME, pass_over(body, REFUSED_BODY)).await.unwrap_or(false)
}

/// Ends a connection behind a response: a body that was not read cannot be passed over in any time.
fn closing(mut response: Response<ReplyBody>, head: &Parts, mut body: Incoming) -> Response<ReplyBody> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    if !head.headers.contains_key(header::EXPECT) {
        spawn_local(async move {
            let _ = timeout(LINGERING_TIME, pass_over(&mut body, LINGERING_BODY)).await;
        });
    }
    response
}

/// Waits until what is on its way is given up.
fn given_up(shared: &Shared) -> GivenUp {
    let mut ending = shared.ending.clone();
    Box::pin(async move { told(&mut ending, |ending| *ending == Ending::GivingUp).await })
}

#[cfg(test)]
mod tests {
    use super::host_name;

    #[test]
    fn a_host_is_a_name_and_a_port_and_nothing_else() {
        for (host, name) in [
            ("localhost", Some("localhost")),
            ("localhost:8080", Some("localhost")),
            ("localhost:", Some("localhost")),
            ("[::1]", Some("[::1]")),
            ("[::1]:8080", Some("[::1]")),
            ("[::1].evil.com", None),
            ("[::1]evil", None),
            ("[::1", None),
            ("localhost:80@evil.com", None),
            ("localhost:80:80", None),
            ("localhost: 80", None),
        ] {
            assert_eq!(host_name(host.as_bytes()), name.map(str::as_bytes), "{host}");
        }
    }
}
