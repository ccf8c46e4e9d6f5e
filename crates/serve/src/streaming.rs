//! The body of a streamed response: events at a bounded rate, with heartbeats, up to the end of the server.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::Frame;
use tokio::time::{Instant, Sleep, sleep};

use crate::{
    Refusal,
    config::HttpConfig,
    inner::{Ending, Inner},
    lane::Lane,
    stream::{EventStream, last_messages},
};

/// A message between two others that says nothing, for connections that nothing was written to for long.
pub const HEARTBEAT: &[u8] = b":\n\n";

/// Streams that send a chunk each `stream_interval`; of more streams each waits longer, so that all of them together send no
/// more. A chunk costs the processor tens of microseconds in this process and the kernel, whatever the model.
const AT_FULL_RATE: usize = 8;

/// A stream with heartbeats.
pub struct Streaming {
    events: Events,
    /// Lane in which long messages are written, and the key that they are for.
    lane: Lane,
    key: usize,
    silence: Duration,
    /// Time between two chunks of an answer under way, where few streams are open.
    gap: Duration,
    /// Held by each stream, and once beside them.
    open: Arc<()>,
    /// Runs after a chunk: what comes meanwhile goes with the next one.
    pause: Option<Pin<Box<Sleep>>>,
    heartbeat: Pin<Box<Sleep>>,
    given_up: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// The events of a stream, which are in a lane while a long message is written.
enum Events {
    Here(Box<EventStream>),
    Away(Away),
    /// A message could not be written.
    Gone,
}

type Away = Pin<Box<dyn Future<Output = Result<(Box<EventStream>, Option<Bytes>), Refusal>> + Send>>;

impl Streaming {
    /// Puts heartbeats into a stream whenever it was silent for the configured time, and keeps chunks apart.
    pub fn new(events: EventStream, service: &Inner, http: &HttpConfig, key: usize) -> Self {
        let HttpConfig { heartbeat: silence, stream_interval: gap, .. } = *http;
        Self {
            events: Events::Here(Box::new(events)),
            lane: service.lanes.answers.clone(),
            key,
            silence,
            gap,
            open: Arc::clone(&service.streams),
            pause: None,
            heartbeat: Box::pin(sleep(silence)),
            given_up: Some(Box::pin(service.until(Ending::GivingUp))),
        }
    }

    /// Returns the time that the next chunk waits.
    fn pause(&self) -> Duration {
        gap(self.gap, Arc::strong_count(&self.open) - 1, self.silence)
    }

    /// Reports whether the pause after the last chunk is not over, nor any answer.
    fn is_pausing(&mut self, context: &mut Context<'_>) -> bool {
        let Some(pause) = &mut self.pause else { return false };
        let over = |events: &mut Events, context: &mut Context<'_>| match events {
            Events::Here(events) => events.poll_over(context).is_ready(),
            Events::Away(_) | Events::Gone => true,
        };
        if pause.as_mut().poll(context).is_pending() && !over(&mut self.events, context) {
            return true;
        }
        self.pause = None;
        false
    }

    /// Returns the next messages. Long ones are written in a lane.
    fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let written = match &mut self.events {
                Events::Gone => return Poll::Ready(None),
                Events::Away(away) => match ready!(away.as_mut().poll(context)) {
                    Ok((events, written)) => {
                        self.events = Events::Here(events);
                        written
                    }
                    Err(refusal) => {
                        self.events = Events::Gone;
                        Some(last_messages(&refusal))
                    }
                },
                Events::Here(events) => {
                    let Some(coming) = ready!(events.poll_coming(context)) else { return Poll::Ready(None) };
                    if events.is_long(&coming) {
                        let Events::Here(mut events) = std::mem::replace(&mut self.events, Events::Gone) else {
                            continue;
                        };
                        let (lane, key) = (self.lane.clone(), self.key);
                        let job = move || {
                            let written = events.written(coming);
                            (events, written)
                        };
                        self.events = Events::Away(Box::pin(async move { lane.run(key, job).await }));
                        continue;
                    }
                    events.written(coming)
                }
            };
            if written.is_some() {
                return Poll::Ready(written);
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(given_up) = &mut self.given_up
            // A message that is being written is waited for: that is no more than a moment.
            && let Events::Here(events) = &mut self.events
            && given_up.as_mut().poll(context).is_ready()
        {
            self.given_up = None;
            if let Some(last) = events.end_with(&Refusal::shutting_down()) {
                return Poll::Ready(Some(last));
            }
        }
        if self.is_pausing(context) {
            return Poll::Pending;
        }
        if let Poll::Ready(chunk) = self.poll_events(context) {
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

impl HttpBody for Streaming {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().poll(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
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
