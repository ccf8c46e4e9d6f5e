//! The answers to a request on their way, and the response that they become.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header};

use crate::{
    Refusal,
    ask::StreamWishes,
    config::HttpConfig,
    inner::{Ending, Inner},
    response::{held, json_text},
    run::{MUCH, Run},
    shape::Shape,
    stream::EventStream,
    streaming::Streaming,
};

/// Answers on their way. Dropped, those that are not over are cancelled before the next forward.
pub struct Answers {
    pub service: Arc<Inner>,
    pub run: Run,
    /// Shape that they are wanted in.
    pub shape: Shape,
    /// Number of the key that they are for.
    pub key: usize,
}

impl Answers {
    /// Returns the response: at once where it is a stream, and otherwise when all answers are over.
    pub async fn response(self, http: &HttpConfig) -> Response {
        match self.shape.wishes.stream {
            Some(wishes) => self.stream(wishes, http),
            None => self.whole().await,
        }
    }

    fn stream(self, wishes: StreamWishes, http: &HttpConfig) -> Response {
        let Self { service, run, shape, key } = self;
        let events = EventStream::new(&service, shape, wishes, run);
        let mut response = Response::new(Body::new(Streaming::new(events, &service, http, key)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        // Proxies that collect a response before they pass it on leave this one alone.
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }

    async fn whole(mut self) -> Response {
        let over = tokio::select! {
            over = poll_fn(|context| poll_over(&mut self.run, context)) => over,
            () = self.service.until(Ending::GivingUp) => Err(Refusal::shutting_down()),
        };
        if let Err(refusal) = over {
            // What is written down of it is known already.
            return self.run.fail(refusal).response();
        }
        if self.run.length(&self.shape.wishes) <= MUCH {
            return self.written();
        }
        let (lane, key) = (self.service.lanes.answers.clone(), self.key);
        lane.run(key, move || self.written()).await.unwrap_or_else(IntoResponse::into_response)
    }

    /// Writes the body of answers that are all over.
    fn written(&self) -> Response {
        let run = &self.run;
        let body = self.shape.whole(run, self.service.tokenizer());
        let mut response = json_text(held(body.into(), run.places()));
        let (queue, total) = (run.queued().unwrap_or_default(), run.started().elapsed());
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let timing = format!("queue;dur={:.1}, total;dur={:.1}", milliseconds(queue), milliseconds(total));
        if let Ok(timing) = HeaderValue::from_str(&timing) {
            response.headers_mut().insert("server-timing", timing);
        }
        response
    }
}

/// Waits until all answers are over.
fn poll_over(run: &mut Run, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
    loop {
        // Once it is known when the first text was there, nothing is of interest before the end.
        if run.account().has_text() && run.poll_over(context).is_pending() {
            return Poll::Pending;
        }
        match run.poll(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(Some(_))) => {}
            Poll::Ready(Ok(None)) => return Poll::Ready(Ok(())),
            Poll::Ready(Err(refusal)) => return Poll::Ready(Err(refusal)),
        }
    }
}
