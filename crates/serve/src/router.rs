//! The router: layers that every request passes, and a route for each endpoint.

use std::{
    any::Any,
    borrow::Cow,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{MethodRouter, on},
};
use http::{HeaderName, HeaderValue, Method, Version, header, request::Parts};
use tower_http::{
    catch_panic::CatchPanicLayer,
    cors::{AllowHeaders, CorsLayer},
};

use crate::{
    Refusal, account,
    api::{ENDPOINTS, is_probe},
    config::HttpConfig,
    endpoint::{Access, Endpoint, IncomingRequest},
    entry::{Caller, Entry},
    inner::Inner,
    lane::said,
    media, random,
};

/// State that routes and layers share.
#[derive(Clone)]
struct Shared {
    service: Arc<Inner>,
    http: Arc<HttpConfig>,
}

/// Mark of a request that came over a socket.
#[derive(Clone)]
pub struct OverSocket;

/// Name of a request.
#[derive(Clone)]
struct RequestId(String);

/// Returns the routes of a service.
pub fn router(service: &Arc<Inner>, http: HttpConfig) -> Router {
    let origins: Vec<_> = http.origins.iter().filter_map(|origin| origin.parse::<HeaderValue>().ok()).collect();
    let shared = Shared { service: Arc::clone(service), http: Arc::new(http) };
    let mut router = Router::new();
    for endpoint in ENDPOINTS {
        let paths = endpoint.paths.iter().map(|(path, _)| *path).chain([endpoint.folder]);
        for path in paths.filter(|path| !path.is_empty()) {
            router = router.route(path, route(endpoint));
        }
    }
    router
        .fallback(async |request: Request| {
            let path: String = request.uri().path().chars().take(80).collect();
            Refusal::missing(format!(
                "there is no {path}: expected /v1/chat/completions, /v1/completions, or another path of /openapi.json"
            ))
        })
        .with_state(shared.clone())
        .layer(cors(origins))
        .layer(middleware::from_fn_with_state(shared.clone(), check_origin))
        .layer(CatchPanicLayer::custom(broken))
        .layer(middleware::from_fn_with_state(shared, name_and_log))
}

/// Returns the route of an endpoint.
fn route(endpoint: &'static Endpoint) -> MethodRouter<Shared> {
    let serve = move |State(shared): State<Shared>, request: Request| async move {
        let id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
        let mut caller = Caller { id, endpoint: endpoint.name, key: None, trace: None };
        serve(shared, endpoint, request, &mut caller).await.unwrap_or_else(|refusal| {
            let mut response = refusal.into_response();
            response.extensions_mut().insert(caller);
            response
        })
    };
    on(endpoint.filter(), serve)
        .fallback(move |request: Request| async move { endpoint.refuse(request.method(), request.uri().path()) })
}

/// Serves a request: whether it is allowed and how large it is are known before anything is done for it.
async fn serve(
    shared: Shared,
    endpoint: &'static Endpoint,
    request: Request,
    caller: &mut Caller,
) -> Result<Response, Refusal> {
    let started = Instant::now();
    let (head, body) = request.into_parts();
    let Shared { service, http } = shared;
    let trace = head.headers.get("traceparent").and_then(|value| value.to_str().ok());
    caller.trace = trace.filter(|trace| is_trace(trace)).map(str::to_owned);
    let (mut key, mut weight) = (0, 1.0);
    if endpoint.access == Access::Keys
        && let Some(found) = service.config.keys.find(authorization(&head)?.as_deref())?
    {
        found.count(started)?;
        caller.key = Some(found.name.clone());
        (key, weight) = (found.number, found.weight);
    }
    media::check(&head)?;
    check_body(&service, endpoint, &head)?;
    let (path, foreign) = (head.uri.path().to_owned(), media::foreign(&head));
    let entry = Entry { caller: caller.clone(), key, weight, path, foreign, places: None, started };
    (endpoint.serve)(IncomingRequest { service, http, endpoint, entry, body }).await
}

/// Returns the one header that a key comes in: `Authorization`, or `x-api-key`, as Anthropic's clients send it.
fn authorization(head: &Parts) -> Result<Option<Cow<'_, [u8]>>, Refusal> {
    let one = |name: HeaderName| {
        let mut all = head.headers.get_all(&name).iter().map(HeaderValue::as_bytes);
        let first = all.next();
        match all.next() {
            Some(_) if name == header::AUTHORIZATION => {
                Err(Refusal::bad("there are several Authorization headers, expected one"))
            }
            Some(_) => Err(Refusal::bad(format!("there are several {name} headers, expected one"))),
            None => Ok(first),
        }
    };
    if let Some(header) = one(header::AUTHORIZATION)? {
        return Ok(Some(Cow::Borrowed(header)));
    }
    let key = one(HeaderName::from_static("x-api-key"))?;
    Ok(key.map(|key| Cow::Owned([b"Bearer ", key].concat())))
}

/// Refuses a body that is too large, and any where none is read.
fn check_body(service: &Inner, endpoint: &Endpoint, head: &Parts) -> Result<(), Refusal> {
    let text = head.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length = text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    if endpoint.method == Method::GET && (length > 0 || head.headers.contains_key(header::TRANSFER_ENCODING)) {
        let path: String = head.uri.path().chars().take(80).collect();
        return Err(Refusal::too_large(format!("{path} takes no body: send none")));
    }
    if length > service.config.limits.body_bytes as u64 { Err(service.too_large(length)) } else { Ok(()) }
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

/// Gives a request its name, puts on its response what all have, and logs a refusal.
async fn name_and_log(State(Shared { service, .. }): State<Shared>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let given = request.headers().get("x-request-id").and_then(|value| value.to_str().ok());
    let fit = given.filter(|id| (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic()));
    let id = fit.map_or_else(|| random::name("req-"), str::to_owned);
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    if let Some(refusal) = response.extensions_mut().remove::<Refusal>() {
        let unknown = || Caller { id: id.clone(), endpoint: "none", key: None, trace: None };
        let caller = response.extensions_mut().remove::<Caller>().unwrap_or_else(unknown);
        account::refused(&service, &caller, started, &refusal);
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert("x-request-id", id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Answers a request whose handler panicked. Nothing that it has touched is looked at again.
#[expect(clippy::needless_pass_by_value, reason = "what tower-http calls")]
fn broken(panic: Box<dyn Any + Send>) -> Response {
    Refusal::broken(&said(&*panic)).into_response()
}

/// Returns the layer that answers browsers of other origins. No header that a page may set changes its answer.
fn cors(origins: Vec<HeaderValue>) -> CorsLayer {
    let vary = if origins.is_empty() { vec![] } else { vec![header::ORIGIN] };
    CorsLayer::new()
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(AllowHeaders::mirror_request())
        .max_age(Duration::from_mins(10))
        .vary(vary)
        .expose_headers([HeaderName::from_static("x-request-id"), header::RETRY_AFTER])
        .allow_origin(origins)
}

/// Refuses a request for another host, and one of a page that is not allowed: a browser sends some requests to other sites
/// without asking first, and a page that nobody allowed must not spend this machine's time.
async fn check_origin(State(Shared { http, .. }): State<Shared>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match check_head(&http, &head) {
        Ok(()) => next.run(Request::from_parts(head, body)).await,
        Err(refusal) => refusal.into_response(),
    }
}

fn check_head(http: &HttpConfig, head: &Parts) -> Result<(), Refusal> {
    // A program that calls the router may leave the host out.
    let is_remote = head.version == Version::HTTP_11 && head.extensions.get::<OverSocket>().is_some();
    if is_remote && head.headers.get_all(header::HOST).iter().count() != 1 {
        return Err(Refusal::bad("a request of HTTP/1.1 has exactly one Host header"));
    }
    let host = head.headers.get(header::HOST).map(HeaderValue::as_bytes).or_else(|| head.uri.host().map(str::as_bytes));
    let name = host.and_then(host_name);
    let known = |name: &[u8]| http.hosts.iter().any(|host| host.as_bytes().eq_ignore_ascii_case(name));
    // Probes and scrapers ask by an address, and learn nothing of anybody's requests.
    if !http.hosts.is_empty() && !is_probe(head.uri.path()) && !name.is_some_and(known) {
        let expected = http.hosts.join(", ");
        return Err(Refusal::forbidden(format!("the Host header names another host, expected one of {expected}")));
    }
    let origin = head.headers.get(header::ORIGIN).map(HeaderValue::as_bytes);
    let allowed = |origin: &[u8]| is_own(origin, host) || http.origins.iter().any(|known| known.as_bytes() == origin);
    if !origin.is_none_or(allowed) {
        return Err(Refusal::forbidden("pages of another origin may not ask this server: start it with --cors-origin"));
    }
    Ok(())
}

/// Reports whether an origin is this server's own.
fn is_own(origin: &[u8], host: Option<&[u8]>) -> bool {
    let named = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    named.is_some_and(|named| host.is_some_and(|host| named.eq_ignore_ascii_case(host)))
}

/// Returns a host without its port; none if the text is no host with or without a port.
fn host_name(host: &[u8]) -> Option<&[u8]> {
    // An address of version 6 is in brackets.
    let end = match host {
        [b'[', ..] => host.iter().position(|&byte| byte == b']')? + 1,
        _ => host.iter().position(|&byte| byte == b':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let is_port = port.is_empty() || port[0] == b':' && port[1..].iter().all(u8::is_ascii_digit);
    is_port.then_some(name)
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
