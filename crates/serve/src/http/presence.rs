//! A connection whose client may close its sending half after a request and still get its answer, as `nc -N` does.
//!
//! What comes from the network is the same then as when a client has left. So an end is kept back while a request is under
//! way, and after a moment the client is asked whether it is there: by an interim response (`100 Continue`, which every
//! reader of HTTP/1.1 passes over), in a stream by a heartbeat. A client that has left answers with a reset of the
//! connection, and its request ends. Nobody can be asked in HTTP/1.0: the answer is made and sent.

use std::{
    cell::Cell,
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::rt::{ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};

use super::layer::Layer;

/// Time behind the end of what a client sends after which it is asked, and between two looks for its answer.
const MOMENT: Duration = Duration::from_millis(100);
/// Question that no client has to answer by itself: its system does.
const QUESTION: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Bytes that are taken from the network at once.
const PIECE: usize = 16 << 10;

/// Part of a request that a connection is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    /// Between requests, or in a head: an end is an end.
    #[default]
    Between,
    /// A body is on its way: it has a moment to be complete.
    Body,
    /// The answer is made; the client can be asked with an interim response.
    Made,
    /// The answer is made, for a client that cannot be asked.
    MadeUnasked,
    /// The answer is sent.
    Sent,
}

/// State of a connection that both its requests and its socket know.
#[derive(Debug, Default)]
pub struct Presence {
    stage: Cell<Stage>,
    /// Records whether a stream is to ask with a heartbeat.
    asks: Cell<bool>,
}

impl Presence {
    /// Goes on to another part of a request.
    pub fn at(&self, stage: Stage) {
        self.stage.set(stage);
        self.asks.set(false);
    }

    /// Returns whether a stream is to ask now; it is asked once.
    pub fn asks(&self) -> bool {
        self.asks.take()
    }
}

/// Asks the client of a socket whether it is there.
pub struct Present {
    presence: Rc<Presence>,
    /// Runs from the end of what the client sends on.
    ended: Option<Pin<Box<Sleep>>>,
    /// Records whether the client was asked about this request.
    asked: bool,
    /// Records whether something waits to be taken by the reader: then a write of it will tell.
    blocked: bool,
}

impl Present {
    /// Takes what is known of the connection.
    pub fn new(presence: Rc<Presence>) -> Self {
        Self { presence, ended: None, asked: false, blocked: false }
    }

    /// Decides what becomes of an end: nothing, as long as a request is under way whose client may be there.
    fn ended(&mut self, stream: &TcpStream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { presence, ended, asked, blocked } = self;
        let is_over = || presence.stage.get() == Stage::Between && !*blocked;
        let moment = ended.get_or_insert_with(|| Box::pin(sleep(MOMENT)));
        while !is_over() {
            ready!(moment.as_mut().poll(context));
            moment.as_mut().reset(Instant::now() + MOMENT);
            let gone = || Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            if stream.take_error()?.is_some() {
                return gone();
            }
            match presence.stage.get() {
                // It is not complete.
                Stage::Body => break,
                // What cannot be written now tells as well, once it is.
                _ if *blocked || *asked => {}
                Stage::Made => {
                    *asked = true;
                    if !matches!(stream.try_write(QUESTION), Ok(length) if length == QUESTION.len()) {
                        return gone();
                    }
                }
                Stage::Sent => {
                    *asked = true;
                    presence.asks.set(true);
                }
                Stage::Between | Stage::MadeUnasked => {}
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Takes what has come, and returns how much that is; 0 behind the end.
fn receive(stream: &TcpStream, context: &mut Context<'_>, buffer: &mut ReadBufCursor<'_>) -> Poll<io::Result<usize>> {
    let mut piece = [0; PIECE];
    let room = PIECE.min(buffer.remaining());
    loop {
        ready!(stream.poll_read_ready(context))?;
        match stream.try_read(&mut piece[..room]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => {
                let length = received?;
                buffer.put_slice(&piece[..length]);
                return Poll::Ready(Ok(length));
            }
        }
    }
}

impl Layer<TokioIo<TcpStream>> for Present {
    fn read(
        &mut self,
        inner: &mut TokioIo<TcpStream>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended.is_none() && ready!(receive(inner.inner(), context, &mut buffer))? > 0 {
            return Poll::Ready(Ok(()));
        }
        self.ended(inner.inner(), context)
    }

    fn write(
        &mut self,
        inner: &mut TokioIo<TcpStream>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(inner).poll_write_vectored(context, pieces);
        self.blocked = written.is_pending();
        written
    }
}
