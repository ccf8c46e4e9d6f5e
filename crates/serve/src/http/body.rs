//! The body of a response on a socket: whole, or a stream with heartbeats that ends when the server does.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::server::HttpConfig;
use crate::{EventStream, HEARTBEAT, Refusal};

/// A future that is ready once the server gives up what is on its way.
pub type GivenUp = Pin<Box<dyn Future<Output = ()>>>;

/// The body of a response.
pub enum ReplyBody {
    /// What is there.
    Whole(Option<Bytes>),
    /// What comes as it is made.
    Stream(Box<Streaming>),
}

/// A stream with heartbeats.
pub struct Streaming {
    events: EventStream,
    silence: Duration,
    /// Time between two chunks of an answer under way.
    gap: Duration,
    /// Runs behind a chunk: what comes meanwhile goes with the next one.
    pause: Option<Pin<Box<Sleep>>>,
    heartbeat: Pin<Box<Sleep>>,
    given_up: Option<GivenUp>,
}

impl Streaming {
    /// Puts heartbeats into a stream whenever it was silent for the configured time, and keeps chunks apart.
    pub fn new(events: EventStream, config: &HttpConfig, given_up: GivenUp) -> Self {
        let (silence, gap) = (config.heartbeat, config.stream_interval);
        let heartbeat = Box::pin(sleep(silence));
        Self { events, silence, gap, pause: None, heartbeat, given_up: Some(given_up) }
    }

    /// Whether the pause behind the last chunk is not over, nor any answer.
    fn is_pausing(&mut self, context: &mut Context<'_>) -> bool {
        let Some(pause) = &mut self.pause else { return false };
        if pause.as_mut().poll(context).is_pending() && self.events.poll_over(context).is_pending() {
            return true;
        }
        self.pause = None;
        false
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(given_up) = &mut self.given_up
            && given_up.as_mut().poll(context).is_ready()
        {
            self.given_up = None;
            if let Some(last) = self.events.end_with(&Refusal::shutting_down()) {
                return Poll::Ready(Some(last));
            }
        }
        if self.is_pausing(context) {
            return Poll::Pending;
        }
        if let Poll::Ready(chunk) = self.events.poll(context) {
            self.pause = (!self.gap.is_zero()).then(|| Box::pin(sleep(self.gap)));
            self.heartbeat.as_mut().reset(Instant::now() + self.silence);
            return Poll::Ready(chunk);
        }
        if self.heartbeat.as_mut().poll(context).is_ready() {
            self.heartbeat.as_mut().reset(Instant::now() + self.silence);
            // Polled once more, so that the task is woken by it.
            let _ = self.heartbeat.as_mut().poll(context);
            return Poll::Ready(Some(Bytes::from_static(HEARTBEAT)));
        }
        Poll::Pending
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(streaming) => streaming.poll(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}
