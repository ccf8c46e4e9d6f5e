//! Layers around a connection's stream: each says what it does differently, and everything else goes through.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};

/// Difference that a layer makes to the stream inside of it.
pub trait Layer<S: Read + Write + Unpin> {
    /// Reads.
    fn read(&mut self, inner: &mut S, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(inner).poll_read(context, buffer)
    }

    /// Writes from the pieces, of which there may be one.
    fn write(&mut self, inner: &mut S, context: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(inner).poll_write_vectored(context, pieces)
    }

    /// Judges how far a flush or a shutdown has come.
    fn judge(&mut self, finished: Poll<io::Result<()>>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        finished
    }
}

/// A stream, and the layer around it.
pub struct Layered<S, L>(pub S, pub L);

impl<S: Read + Write + Unpin, L: Layer<S> + Unpin> Read for Layered<S, L> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let Self(inner, layer) = self.get_mut();
        layer.read(inner, context, buffer)
    }
}

impl<S: Read + Write + Unpin, L: Layer<S> + Unpin> Write for Layered<S, L> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self(inner, layer) = self.get_mut();
        layer.judge(Pin::new(inner).poll_flush(context), context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self(inner, layer) = self.get_mut();
        layer.judge(Pin::new(inner).poll_shutdown(context), context)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self(inner, layer) = self.get_mut();
        layer.write(inner, context, pieces)
    }
}
