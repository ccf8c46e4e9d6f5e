//! Account of a request: times, counts, and the one line of the log that it gets however it ends.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use demask::{Event, Finish};
use http::StatusCode;

use crate::{Refusal, answer::finish_reason, entry::Caller, inner::Inner, metrics::Answered};

/// The times and counts of a request that was taken on. Dropped before its end, the client is gone.
pub struct Account {
    service: Arc<Inner>,
    caller: Caller,
    started: Instant,
    entered: Option<Duration>,
    first: Option<Duration>,
    last: Option<Instant>,
    sums: Answered,
    finish: &'static str,
    over: bool,
}

impl Account {
    /// Opens the account of a request that came at this time.
    pub fn new(service: &Arc<Inner>, caller: Caller, started: Instant) -> Self {
        Self {
            service: Arc::clone(service),
            caller,
            started,
            entered: None,
            first: None,
            last: None,
            sums: Answered::default(),
            finish: "",
            over: false,
        }
    }

    /// Returns when the request came.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Returns whether some text was there.
    pub fn has_text(&self) -> bool {
        self.first.is_some()
    }

    /// Returns the time that it waited, until the first forward of the first of its answers began.
    pub fn queued(&self) -> Option<Duration> {
        self.entered
    }

    /// Writes down that one of its answers went on.
    pub fn went(&mut self, events: &[Event]) {
        let metrics = &self.service.metrics;
        for event in events {
            match event {
                Event::Began { at } if self.entered.is_none() => {
                    let queued = at.saturating_duration_since(self.started);
                    self.entered = Some(queued);
                    metrics.entered(queued);
                }
                Event::Text(_) => {
                    let now = Instant::now();
                    if let Some(last) = self.last {
                        metrics.next_text(now - last);
                    } else {
                        self.first = Some(now - self.started);
                        metrics.first_text(now - self.started);
                    }
                    self.last = Some(now);
                }
                _ => {}
            }
        }
    }

    /// Writes down an answer.
    pub fn answered(&mut self, answer: &Answered, finish: Finish) {
        self.finish = finish_reason(finish);
        self.service.metrics.answered(self.finish, answer);
        self.sums.prompt_tokens += answer.prompt_tokens;
        self.sums.generated_tokens += answer.generated_tokens;
        self.sums.nfe += answer.nfe;
    }

    /// Writes down that everything was made.
    pub fn done(&mut self, status: u16) {
        if !std::mem::replace(&mut self.over, true) {
            self.service.metrics.total(self.started.elapsed());
            self.log(status);
        }
    }

    /// Writes down that it could not be made.
    pub fn failed(&mut self, refusal: &Refusal) {
        if !std::mem::replace(&mut self.over, true) {
            // A full server, or one that is about to end, has not failed.
            if refusal.status == StatusCode::INTERNAL_SERVER_ERROR {
                self.service.metrics.failed();
            }
            self.service.metrics.refused(refusal.status.as_u16());
            self.finish = refusal.code.unwrap_or(refusal.kind);
            self.log(refusal.status.as_u16());
        }
    }

    fn log(&self, status: u16) {
        let Self { caller, sums, .. } = self;
        let line = serde_json::json!({
            "id": caller.id,
            "endpoint": caller.endpoint,
            "key": caller.key,
            "traceparent": caller.trace,
            "status": status,
            "finish": self.finish,
            "prompt_tokens": sums.prompt_tokens,
            "completion_tokens": sums.generated_tokens,
            "nfe": sums.nfe,
            "queue_ms": self.entered.map(milliseconds),
            "first_text_ms": self.first.map(milliseconds),
            "total_ms": milliseconds(self.started.elapsed()),
        });
        (self.service.config.log)(&line);
    }
}

/// Writes down a request that was never taken on.
pub(crate) fn refused(service: &Inner, caller: &Caller, started: Instant, refusal: &Refusal) {
    service.metrics.refused(refusal.status.as_u16());
    let line = serde_json::json!({
        "id": caller.id,
        "endpoint": caller.endpoint,
        "key": caller.key,
        "traceparent": caller.trace,
        "status": refusal.status.as_u16(),
        "finish": refusal.code.unwrap_or(refusal.kind),
        "total_ms": milliseconds(started.elapsed()),
    });
    (service.config.log)(&line);
}

/// Milliseconds with one digit after the point.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}

impl Drop for Account {
    fn drop(&mut self) {
        if !self.over {
            self.service.metrics.cancelled();
            self.finish = "cancelled";
            // As servers write down a client that has left.
            self.log(499);
        }
    }
}
