//! The reader's side of a request: its events and its result.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use demask_decode::Event;

use crate::{
    error::{EngineError, RequestError},
    health::Health,
    output::OutputQueue,
    request::Request,
};

/// Function that makes the result of a request that is done; none if the request is of another kind.
pub(crate) type Finish<T> = Box<dyn FnOnce(Box<Request>) -> Option<T> + Send>;

/// Handle of a request that an engine runs: an iterator over its events, and then its result. Dropped, it cancels the request
/// before the next forward.
///
/// ```text
/// for event in answer.by_ref() {
///     if let Event::Text(text) = event { .. }
/// }
/// let generation = answer.result()?;
/// ```
pub struct RequestHandle<T> {
    output: Arc<OutputQueue<Box<Request>>>,
    health: Arc<Health>,
    finish: Option<Finish<T>>,
    /// Events that were taken and not yielded.
    pending: VecDeque<Event>,
}

impl<T> RequestHandle<T> {
    pub(crate) fn new(output: Arc<OutputQueue<Box<Request>>>, health: Arc<Health>, finish: Finish<T>) -> Self {
        Self { output, health, finish: Some(finish), pending: VecDeque::new() }
    }

    /// Takes the events since the last time; if there are none, wakes the task once there are some. `Ready(None)` once the
    /// request is over.
    pub fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Option<Vec<Event>>> {
        self.output.poll(Some(context.waker()))
    }

    /// Waits for events for `limit` at most; `Ready(None)` once the request is over, `Pending` if none has come.
    pub fn events_within(&mut self, limit: Duration) -> Poll<Option<Vec<Event>>> {
        self.output.wait_until(Instant::now() + limit)
    }

    /// Reports whether the request is over, and wakes the task once it is, for no event before it: events are merged until
    /// [`poll_events`](Self::poll_events) takes them. For readers that want the whole answer, or that pass pieces on at their
    /// own pace.
    pub fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.output.poll_end(context.waker())
    }

    /// Asks for no events before the end: then one batch has all of them, and no forward wakes the reader.
    pub fn wait_for_the_end(&mut self) {
        self.output.wait_for_the_end();
    }

    /// Waits for the end, and returns the result. It is there once: a second call is an error.
    ///
    /// # Errors
    /// If the request was refused or failed, or the engine ended before it.
    pub fn result(&mut self) -> Result<T, EngineError> {
        let request = self.output.take_end().ok_or_else(|| self.health.end())?;
        match (request.end(), self.finish.take()) {
            (Some(Err(error)), _) => Err(error.clone().into()),
            (_, Some(finish)) => {
                let other = RequestError::Broken("a handle waits for another kind of result");
                finish(request).ok_or_else(|| other.into())
            }
            (_, None) => Err(self.health.end()),
        }
    }

    /// Waits for the end without its events, and returns the result.
    ///
    /// # Errors
    /// As [`result`](Self::result).
    pub fn wait(mut self) -> Result<T, EngineError> {
        self.wait_for_the_end();
        self.result()
    }
}

impl<T> Iterator for RequestHandle<T> {
    type Item = Event;

    /// Waits for the next event; none once the request is over.
    fn next(&mut self) -> Option<Event> {
        if self.pending.is_empty() {
            self.pending.extend(self.output.wait()?);
        }
        self.pending.pop_front()
    }
}

impl<T> Drop for RequestHandle<T> {
    fn drop(&mut self) {
        self.output.cancel();
    }
}
