//! One connection: requests one after the other, each with its bounds.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Router,
    body::HttpBody,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, Request, Version, header};
use http_body_util::BodyExt;
use hyper::{
    body::{Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpStream, time::timeout};
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt;

use super::presence::{Presence, Present, Stage};
use crate::{Service, config::HttpConfig, date, inner::Ending, router::OverSocket, streaming::HEARTBEAT};

/// Bytes of a request's head, and its headers.
const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 100;
/// Bytes of a body that was not read that are passed over so that its connection can be kept.
const SHORT_BODY: u64 = 64 << 10;
/// Bytes that are passed over of a longer one, whose connection ends, and for how long: a client that sends without reading
/// would find a reset in the place of the response.
const LINGERING_BODY: usize = 8 << 20;
const LINGERING_TIME: Duration = Duration::from_secs(2);
/// Bytes that a piece of a body counts for at least where it is passed over: its length and its ends take time, too.
const PIECE: usize = 32;

/// How much of a request's body was read: nothing, a part, all of it.
const UNREAD: u8 = 0;
const BEGUN: u8 = 1;
const READ: u8 = 2;

/// What connections share.
pub(super) struct Shared {
    pub service: Service,
    pub router: Router,
    pub config: HttpConfig,
}

/// Serves a connection until it ends.
pub(super) async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let presence = Arc::<Presence>::default();
    let mut io = TimeoutStream::new(Present::new(stream, Arc::clone(&presence)));
    io.set_write_timeout(Some(shared.config.write_time));
    let service = service_fn(|request| respond(shared.router.clone(), Arc::clone(&presence), request));
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(shared.config.head_time)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        // One of its own follows the clock wherever that is set.
        .auto_date_header(false);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(Box::pin(io)), service));
    let over = tokio::select! {
        over = connection.as_mut() => over,
        () = shared.service.until(Ending::Closing) => {
            // The request on its way is served, and none after it.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = over {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn respond(
    router: Router,
    presence: Arc<Presence>,
    mut request: Request<Incoming>,
) -> Result<Response<Sent>, Infallible> {
    // An interim response, by which a client is asked whether it is there, is new in HTTP/1.1.
    let made = if request.version() == Version::HTTP_11 { Stage::Made } else { Stage::MadeUnasked };
    presence.at(if request.body().is_end_stream() { made } else { Stage::Body });
    let waits = request.headers().contains_key(header::EXPECT);
    let is_short = request.body().size_hint().upper().is_some_and(|most| most <= SHORT_BODY);
    let begun = Arc::new(AtomicU8::new(if request.body().is_end_stream() { READ } else { UNREAD }));
    request.extensions_mut().insert(OverSocket);
    let arriving = |incoming| Arriving {
        incoming: Some(incoming),
        presence: Arc::clone(&presence),
        made,
        begun: Arc::clone(&begun),
        waits,
    };
    let mut response = router.oneshot(request.map(arriving)).await.into_response();
    presence.at(Stage::Sent);
    response.headers_mut().insert(header::DATE, date::header());
    let is_kept = match begun.load(Ordering::Relaxed) {
        READ => true,
        UNREAD => is_short && !waits,
        _ => false,
    };
    if !is_kept {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let streams = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    Ok(response.map(|body| Sent { body, presence, streams }))
}

/// The body of a request, which may be on its way. Dropped before its end, the rest is passed over.
struct Arriving {
    incoming: Option<Incoming>,
    presence: Arc<Presence>,
    /// The stage that begins when it is there.
    made: Stage,
    begun: Arc<AtomicU8>,
    /// Records whether the client waits to be asked for it.
    waits: bool,
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.begun.fetch_max(BEGUN, Ordering::Relaxed);
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(incoming).poll_frame(context));
        if frame.is_none() {
            self.incoming = None;
            self.begun.store(READ, Ordering::Relaxed);
            self.presence.at(self.made);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // A client that waits to be asked for its body shall not send it.
        if let Some(incoming) = self.incoming.take().filter(|incoming| !incoming.is_end_stream() && !self.waits) {
            tokio::spawn(timeout(LINGERING_TIME, pass_over(incoming)));
        }
    }
}

/// Reads a body of which nothing is wanted, and keeps nothing of it.
async fn pass_over(mut body: Incoming) {
    let mut passed = 0;
    while let Some(Ok(frame)) = body.frame().await {
        passed += frame.data_ref().map_or(0, Bytes::len).max(PIECE);
        if passed > LINGERING_BODY {
            return;
        }
    }
}

/// The body of a response. Dropped, all of it is on its way, and the connection is between two requests.
struct Sent {
    body: axum::body::Body,
    presence: Arc<Presence>,
    /// Records whether it is a stream of events.
    streams: bool,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.streams && self.presence.asks() {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(HEARTBEAT)))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.presence.at(Stage::Between);
    }
}
