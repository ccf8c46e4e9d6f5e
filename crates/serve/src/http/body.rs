//! The body of a response on a socket: whole, or a stream with heartbeats that ends when the server does.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::server::HttpConfig;
use crate::{EventStream, HEARTBEAT, Refusal};

/// Streams that send a chunk each `stream_interval`; of more streams each waits longer, so that all of them together send no
/// more. A chunk costs the processor tens of microseconds in this process and the kernel, whatever the model.
const AT_FULL_RATE: usize = 8;

/// A future that is ready once the server gives up what is on its way.
pub type GivenUp = Pin<Box<dyn Future<Output = ()>>>;

/// The body of a response.
pub enum ReplyBody {
    /// Body that is complete.
    Whole(Option<Bytes>),
    /// Body that comes as it is made.
    Stream(Box<Streaming>),
}

/// A stream with heartbeats.
pub struct Streaming {
    events: EventStream,
    silence: Duration,
    /// Time between two chunks of an answer under way, where few streams are open.
    gap: Duration,
    /// Held by each stream, and once beside them.
    open: Rc<()>,
    /// Runs behind a chunk: what comes meanwhile goes with the next one.
    pause: Option<Pin<Box<Sleep>>>,
    heartbeat: Pin<Box<Sleep>>,
    given_up: Option<GivenUp>,
}

impl Streaming {
    /// Puts heartbeats into a stream whenever it was silent for the configured time, and keeps chunks apart. `open` is one
    /// value for all streams, which counts them.
    pub fn new(events: EventStream, config: &HttpConfig, open: &Rc<()>, given_up: GivenUp) -> Self {
        let (silence, gap, open) = (config.heartbeat, config.stream_interval, Rc::clone(open));
        let heartbeat = Box::pin(sleep(silence));
        Self { events, silence, gap, open, pause: None, heartbeat, given_up: Some(given_up) }
    }

    /// Returns the time that the next chunk waits.
    fn pause(&self) -> Duration {
        gap(self.gap, Rc::strong_count(&self.open) - 1, self.silence)
    }

    /// Reports whether the pause behind the last chunk is not over, nor any answer.
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
            self.pause = (!self.gap.is_zero()).then(|| Box::pin(sleep(self.pause())));
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

/// Returns the time between two chunks of one of so many streams, at most the silence that a heartbeat ends.
fn gap(of_few: Duration, streams: usize, silence: Duration) -> Duration {
    let share = streams.max(AT_FULL_RATE) as f64 / AT_FULL_RATE as f64;
    of_few.mul_f64(share).min(silence)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_streams_send_no_more_than_a_few() {
        let of = |streams| gap(Duration::from_millis(10), streams, Duration::from_secs(1)).as_millis();
        assert_eq!([1, 8, 16, 64].map(of), [10, 10, 20, 80]);
        // A heartbeat comes in time however many there are.
        assert_eq!(of(100_000), 1000);
        assert_eq!(gap(Duration::ZERO, 64, Duration::from_secs(1)), Duration::ZERO);
    }
}
