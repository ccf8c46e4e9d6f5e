//! One connection: requests one after the other, each with its bounds.

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Version, header, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{
    body::{Body, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpStream, sync::watch, task::spawn_blocking, time::timeout};

use super::{
    body::{GivenUp, ReplyBody, Streaming},
    envelope::Enveloped,
    server::{Ending, Shared},
    stall::Stall,
};
use crate::{Entry, Refusal, Reply, route};

/// Bytes of a request's head, and its headers.
const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 100;
/// Bytes of a body that is put into tokens within a few milliseconds.
const SHORT_BODY: usize = 4 << 10;
/// Time behind the head in which most bodies come.
const PROMPT_BODY: Duration = Duration::from_millis(100);
/// Bytes of a body that is waited for without a place: all connections together cannot make much of them.
const SMALL_BODY: u64 = 64 << 10;
/// Bytes of a refused request's body that are read so that its connection can be kept, and for how long.
const REFUSED_BODY: usize = 64 << 10;
const REFUSED_TIME: Duration = Duration::from_millis(20);

/// Serves a connection until it ends.
pub(super) async fn serve(stream: TcpStream, shared: Rc<Shared>) {
    let io = Enveloped::new(Stall::new(TokioIo::new(stream), shared.config.write_time), &shared.service);
    let service = {
        let shared = Rc::clone(&shared);
        service_fn(move |request| respond(Rc::clone(&shared), request))
    };
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(shared.config.head_time)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS);
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

/// Waits until the server is so far. What is waited for is not handed on: it holds the lock that the server needs to go
/// further.
async fn told(ending: &mut watch::Receiver<Ending>, far: impl FnMut(&Ending) -> bool) {
    if ending.wait_for(far).await.is_err() {
        // Nobody is left to say so.
        std::future::pending::<()>().await;
    }
}

async fn respond(shared: Rc<Shared>, request: Request<Incoming>) -> Result<Response<ReplyBody>, Infallible> {
    let (head, body) = request.into_parts();
    let origin = allowed_origin(&shared, &head);
    // hyper leaves out the body of a response to HEAD, and tells its length.
    let mut response = match checked(&shared, &head) {
        Ok(Some(response)) => response.map(whole),
        Ok(None) => answered(&shared, &head, body).await,
        Err(refusal) => closing(shared.service.refuse(&refusal).map(whole), &head),
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-request-id, retry-after"));
    }
    Ok(response)
}

fn whole(bytes: Bytes) -> ReplyBody {
    ReplyBody::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
}

/// Looks at what only a socket can be asked wrongly: another host, an origin that is not allowed, a browser's question
/// before the request.
fn checked(shared: &Shared, head: &Parts) -> Result<Option<Response<Bytes>>, Refusal> {
    if head.version == Version::HTTP_11 && head.headers.get_all(header::HOST).iter().count() != 1 {
        return Err(Refusal::bad("a request of HTTP/1.1 has exactly one Host header"));
    }
    let host = head.headers.get(header::HOST).map(HeaderValue::as_bytes).or_else(|| head.uri.host().map(str::as_bytes));
    let name = host.map(host_name);
    let known = |name: &[u8]| shared.config.hosts.iter().any(|host| host.as_bytes().eq_ignore_ascii_case(name));
    // Probes and scrapers ask by an address, and learn nothing of anybody's requests.
    let is_probe = route::is_probe(head.uri.path());
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

/// A host without its port.
fn host_name(host: &[u8]) -> &[u8] {
    // An address of version 6 stands in brackets.
    if host.starts_with(b"[") {
        return host.iter().position(|&byte| byte == b']').map_or(host, |end| &host[..=end]);
    }
    host.iter().position(|&byte| byte == b':').map_or(host, |end| &host[..end])
}

fn allowed_origin(shared: &Shared, head: &Parts) -> Option<HeaderValue> {
    let origin = head.headers.get(header::ORIGIN)?;
    let known = shared.config.origins.iter().any(|known| known.as_bytes() == origin.as_bytes());
    known.then(|| origin.clone())
}

async fn answered(shared: &Rc<Shared>, head: &Parts, body: Incoming) -> Response<ReplyBody> {
    let mut entry = match shared.service.open(head) {
        Ok(entry) => entry,
        Err(response) => {
            let response = response.map(whole);
            return if passed_over(head, body).await { response } else { closing(response, head) };
        }
    };
    let bytes = match arrived(shared, &mut entry, body).await {
        Ok(bytes) => bytes,
        Err(refusal) => return closing(shared.service.refuse(&refusal).map(whole), head),
    };
    reply(shared, entry, bytes).await
}

/// Waits for a request's body. Mostly it comes with the head; one that does not leaves places to others meanwhile.
async fn arrived(shared: &Shared, entry: &mut Entry, body: Incoming) -> Result<Bytes, Refusal> {
    let is_small = body.size_hint().upper().is_some_and(|most| most <= SMALL_BODY);
    let mut reading = std::pin::pin!(read(shared, body));
    if let Ok(bytes) = timeout(PROMPT_BODY, reading.as_mut()).await {
        return bytes;
    }
    entry.await_body(is_small)?;
    let bytes = reading.await?;
    entry.body_came()?;
    Ok(bytes)
}

/// Reads the body of a refused request to its end, if that is near: a client that is asked to come again keeps its
/// connection, and a crowd of them costs no new ones.
async fn passed_over(head: &Parts, body: Incoming) -> bool {
    // A client that waits to be asked for its body shall not send it.
    if head.headers.contains_key(header::EXPECT)
        || body.size_hint().upper().is_none_or(|most| most > REFUSED_BODY as u64)
    {
        return false;
    }
    timeout(REFUSED_TIME, body.collect()).await.is_ok_and(|read| read.is_ok())
}

/// A body that was not read cannot be passed over: the connection ends behind the response.
fn closing(mut response: Response<ReplyBody>, head: &Parts) -> Response<ReplyBody> {
    let none =
        head.headers.get(header::CONTENT_LENGTH).is_none() && head.headers.get(header::TRANSFER_ENCODING).is_none();
    if !none {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Reads a body, as large and as slow as it may be.
async fn read(shared: &Shared, body: Incoming) -> Result<Bytes, Refusal> {
    let most = shared.service.limits().body_bytes;
    let collected = timeout(shared.config.body_time, Limited::new(body, most).collect()).await;
    match collected {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(shared.service.too_large(most as u64 + 1)),
        Ok(Err(_)) => Err(Refusal::bad("the body broke off before its end")),
        Err(_) => {
            let seconds = shared.config.body_time.as_secs();
            Err(Refusal::too_late(format!("the body did not come within {seconds} s")))
        }
    }
}

/// Serves a request: a short one here, a long one, whose prompt takes a while to put into tokens, on a thread of its own.
///
/// # Errors
/// What it panicked with.
async fn handled(shared: &Shared, entry: Entry, bytes: Bytes) -> Result<Reply, String> {
    let service = shared.service.clone();
    if bytes.len() > SHORT_BODY {
        return spawn_blocking(move || service.handle(entry, &bytes)).await.map_err(|error| error.to_string());
    }
    // Nothing that the request has touched is looked at again.
    let made = catch_unwind(AssertUnwindSafe(|| service.handle(entry, &bytes)));
    made.map_err(|panic| panic.downcast_ref::<&str>().map_or_else(|| "a panic".to_owned(), ToString::to_string))
}

async fn reply(shared: &Rc<Shared>, entry: Entry, bytes: Bytes) -> Response<ReplyBody> {
    match handled(shared, entry, bytes).await {
        Ok(Reply::Whole(response)) => response.map(whole),
        Ok(Reply::Pending(mut pending)) => {
            let response = tokio::select! {
                response = pending.response() => response,
                () = given_up(shared) => pending.end_with(&Refusal::shutting_down()),
            };
            response.map(whole)
        }
        Ok(Reply::Stream(head, events)) => {
            let streaming = Streaming::new(*events, &shared.config, &shared.streams, given_up(shared));
            head.map(|()| ReplyBody::Stream(Box::new(streaming)))
        }
        Err(error) => {
            tracing::error!(%error, "a request broke off (a bug, please report it)");
            shared.service.refuse(&Refusal::failed("the request broke off (a bug, please report it)")).map(whole)
        }
    }
}

/// Waits until what is on its way is given up.
fn given_up(shared: &Shared) -> GivenUp {
    let mut ending = shared.ending.clone();
    Box::pin(async move { told(&mut ending, |ending| *ending == Ending::GivingUp).await })
}
