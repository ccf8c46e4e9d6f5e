//! A connection whose reader must take something now and then.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use hyper::rt::{Read, Write};
use tokio::time::{Instant, Sleep, sleep_until};

use super::layer::Layer;

/// Breaks a stream off if nothing of what is written is taken for so long.
pub struct Stall {
    time: Duration,
    /// Runs while something waits to be taken.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    /// Takes the bound.
    pub fn new(time: Duration) -> Self {
        Self { time, waiting: None }
    }

    fn bounded<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let until = Instant::now() + self.time;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep_until(until)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the reader takes nothing"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: Read + Write + Unpin> Layer<S> for Stall {
    fn write(&mut self, inner: &mut S, context: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(inner).poll_write_vectored(context, pieces);
        self.bounded(written, context)
    }

    fn judge(&mut self, finished: Poll<io::Result<()>>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bounded(finished, context)
    }
}
