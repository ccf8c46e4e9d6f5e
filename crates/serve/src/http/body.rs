//! The body of a response on a socket: whole, or a stream with heartbeats that ends when the server does.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::{
    lane::Lane,
    presence::{Presence, Stage},
    shared::{HttpConfig, Shared},
};
use crate::{EventStream, HEARTBEAT, Refusal, stream::last_messages};

/// Streams that send a chunk each `stream_interval`; of more streams each waits longer, so that all of them together send no
/// more. A chunk costs the processor tens of microseconds in this process and the kernel, whatever the model.
const AT_FULL_RATE: usize = 8;

/// A future that is ready once the server gives up what is on its way.
pub type GivenUp = Pin<Box<dyn Future<Output = ()>>>;

/// The body of a response. Dropped, all of it is on its way, and the connection is between two requests.
pub struct ReplyBody {
    content: Content,
    presence: Rc<Presence>,
}

/// Content of a body.
enum Content {
    /// Body that is complete.
    Whole(Option<Bytes>),
    /// Body that comes as it is made.
    Stream(Box<Streaming>),
}

impl ReplyBody {
    /// A body that is complete.
    pub fn whole(bytes: Bytes, presence: &Rc<Presence>) -> Self {
        let content = Content::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()));
        Self { content, presence: Rc::clone(presence) }
    }

    /// A body that comes as it is made.
    pub fn stream(streaming: Streaming, presence: &Rc<Presence>) -> Self {
        Self { content: Content::Stream(Box::new(streaming)), presence: Rc::clone(presence) }
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        self.presence.at(Stage::Between);
    }
}

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
    open: Rc<()>,
    /// Runs behind a chunk: what comes meanwhile goes with the next one.
    pause: Option<Pin<Box<Sleep>>>,
    heartbeat: Pin<Box<Sleep>>,
    given_up: Option<GivenUp>,
}

/// The events of a stream, which are in a lane while a long message is written.
enum Events {
    Here(Box<EventStream>),
    Away(Away),
    /// A message could not be written.
    Gone,
}

type Away = Pin<Box<dyn Future<Output = Result<(Box<EventStream>, Option<Bytes>), String>>>>;

impl Streaming {
    /// Puts heartbeats into a stream whenever it was silent for the configured time, and keeps chunks apart.
    pub fn new(events: Box<EventStream>, shared: &Shared, key: usize, given_up: GivenUp) -> Self {
        let HttpConfig { heartbeat: silence, stream_interval: gap, .. } = shared.config;
        Self {
            events: Events::Here(events),
            lane: shared.lanes.answers.clone(),
            key,
            silence,
            gap,
            open: Rc::clone(&shared.streams),
            pause: None,
            heartbeat: Box::pin(sleep(silence)),
            given_up: Some(given_up),
        }
    }

    /// Returns the time that the next chunk waits.
    fn pause(&self) -> Duration {
        gap(self.gap, Rc::strong_count(&self.open) - 1, self.silence)
    }

    /// Reports whether the pause behind the last chunk is not over, nor any answer.
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
                    Err(error) => {
                        tracing::error!(%error, "a stream broke off (a bug, please report it)");
                        self.events = Events::Gone;
                        let refusal = Refusal::failed("the stream broke off (a bug, please report it)");
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

    fn poll(&mut self, presence: &Presence, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
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
        if presence.asks() {
            return Poll::Ready(Some(Bytes::from_static(HEARTBEAT)));
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

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self { content, presence } = self.get_mut();
        match content {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Stream(streaming) => {
                streaming.poll(presence, context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Content::Stream(_) => SizeHint::default(),
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
