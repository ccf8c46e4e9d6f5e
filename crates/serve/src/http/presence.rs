//! A connection whose client may close its sending half after a request and still get its answer, as `nc -N` does.
//!
//! What comes from the network is the same then as when a client has left. So an end is kept back while a request is under
//! way, and after a moment the client is asked whether it is there: by an interim response (`100 Continue`, which every
//! reader of HTTP/1.1 passes over), in a stream by a heartbeat. A client that has left answers with a reset of the
//! connection, and its request ends. Nobody can be asked in HTTP/1.0: the answer is made and sent.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};

/// Time between the end of a client's bytes and the question, and between two looks for its answer.
const MOMENT: Duration = Duration::from_millis(100);
/// Looks at a body after the end of its client's bytes, at most.
const LOOKS: usize = 3;
/// Question that no client has to answer by itself: its system does.
const QUESTION: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

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
    /// The stage, and whether a stream is to ask with a heartbeat.
    state: Mutex<(Stage, bool)>,
}

impl Presence {
    /// Goes on to another part of a request.
    pub fn at(&self, stage: Stage) {
        self.change(|state| *state = (stage, false));
    }

    /// Returns whether a stream is to ask now; it is asked once.
    pub fn asks(&self) -> bool {
        self.change(|state| std::mem::take(&mut state.1))
    }

    fn stage(&self) -> Stage {
        self.change(|state| state.0)
    }

    fn change<T>(&self, change: impl FnOnce(&mut (Stage, bool)) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A socket that asks its client whether it is there.
pub struct Present {
    stream: TcpStream,
    presence: Arc<Presence>,
    /// Timer that runs from the end of the client's bytes on; none before it.
    ended: Option<Pin<Box<Sleep>>>,
    /// Looks at a body that was not complete.
    looks: usize,
    /// Records whether an end between two requests was seen: a request that was read just before it is begun by then.
    seen: bool,
    /// Records whether the client was asked about this request.
    asked: bool,
    /// Records whether something waits to be taken by the reader: then a write of it will tell.
    blocked: bool,
}

impl Present {
    /// Takes the socket, and the state of its connection.
    pub fn new(stream: TcpStream, presence: Arc<Presence>) -> Self {
        Self { stream, presence, ended: None, looks: 0, seen: false, asked: false, blocked: false }
    }

    /// Decides what becomes of an end: nothing, as long as a request is under way whose client may be there.
    fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, presence, ended, looks, seen, asked, blocked } = self;
        // The head and the body are read before the request begins, and so is an end that came with them.
        let between = presence.stage() == Stage::Between;
        let is_first = between && !*seen;
        *seen = between;
        if is_first {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let moment = ended.get_or_insert_with(|| Box::pin(sleep(MOMENT)));
        while presence.stage() != Stage::Between || *blocked {
            ready!(moment.as_mut().poll(context));
            moment.as_mut().reset(Instant::now() + MOMENT);
            let gone = || Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            if stream.take_error()?.is_some() {
                return gone();
            }
            match presence.stage() {
                // It is not complete, and a busy machine has had time to read what came.
                Stage::Body if *looks >= LOOKS => break,
                Stage::Body => *looks += 1,
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
                    presence.change(|state| state.1 = true);
                }
                Stage::Between | Stage::MadeUnasked => {}
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Present {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if this.ended.is_none() {
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
        this.poll_ended(context)
    }
}

impl AsyncWrite for Present {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, pieces);
        this.blocked = written.is_pending();
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
