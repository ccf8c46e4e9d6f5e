//! A connection on which what hyper says of a head that it cannot read comes in the envelope of all refusals.
//!
//! hyper writes such a response itself, without a body, before any service is asked. It is told from the server's own by the
//! request's name, which all of those have.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use http::{Response, StatusCode};
use hyper::rt::{Read, Write};

use super::layer::Layer;
use crate::{Refusal, Service, date};

/// Replaces such a response.
pub struct Envelope {
    service: Service,
    /// Replacement that is not written yet, and the bytes that it stands for.
    instead: Option<(Bytes, usize)>,
}

impl Envelope {
    /// Takes the service whose refusals these are.
    pub fn new(service: &Service) -> Self {
        Self { service: service.clone(), instead: None }
    }

    /// Returns the response for the status that hyper has written; none if these bytes are something else.
    fn replaced(&self, written: &[u8]) -> Option<Bytes> {
        let refusal = Refusal::head(bare_status(written)?);
        Some(as_bytes(&self.service.refuse(&refusal)))
    }

    /// Writes what stands for `written`, if something does; otherwise nothing.
    fn poll_instead(
        &mut self,
        inner: &mut (impl Write + Unpin),
        context: &mut Context<'_>,
        written: Option<&[u8]>,
    ) -> Poll<Option<io::Result<usize>>> {
        if self.instead.is_none()
            && let Some(written) = written
        {
            self.instead = self.replaced(written).map(|bytes| (bytes, written.len()));
        }
        let Some((bytes, length)) = &mut self.instead else { return Poll::Ready(None) };
        while !bytes.is_empty() {
            match ready!(Pin::new(&mut *inner).poll_write(context, bytes)) {
                Ok(0) => return Poll::Ready(Some(Err(io::ErrorKind::WriteZero.into()))),
                Ok(count) => bytes.advance(count),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        let length = *length;
        self.instead = None;
        Poll::Ready(Some(Ok(length)))
    }
}

/// The status of a response of hyper's own: an error of the client's, without a body and without a request's name.
fn bare_status(written: &[u8]) -> Option<StatusCode> {
    let head = std::str::from_utf8(written.strip_prefix(b"HTTP/1.")?).ok()?;
    let (head, behind) = head.split_once("\r\n\r\n")?;
    let status = head.get(2..5).and_then(|digits| digits.parse().ok()).filter(StatusCode::is_client_error)?;
    let named = head.lines().any(|line| line.starts_with("x-request-id:"));
    (behind.is_empty() && !named).then_some(status)
}

/// A whole response.
fn as_bytes(response: &Response<Bytes>) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.extend_from_slice(format!("HTTP/1.1 {}\r\n", response.status()).as_bytes());
    for (name, value) in response.headers() {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    let length = response.body().len();
    bytes.extend_from_slice(b"date: ");
    bytes.extend_from_slice(date::header().as_bytes());
    bytes.extend_from_slice(format!("\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n").as_bytes());
    bytes.extend_from_slice(response.body());
    bytes.freeze()
}

impl<S: Read + Write + Unpin> Layer<S> for Envelope {
    fn write(&mut self, inner: &mut S, context: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        // A response of hyper's own is a piece of its own, and the only one.
        let mut filled = pieces.iter().filter(|piece| !piece.is_empty());
        let only = filled.next().filter(|_| filled.next().is_none()).map(|piece| &**piece);
        match ready!(self.poll_instead(inner, context, only)) {
            Some(written) => Poll::Ready(written),
            None => Pin::new(inner).poll_write_vectored(context, pieces),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_responses_without_a_name_are_replaced() {
        let status = |text: &str| bare_status(text.as_bytes()).map(|status| status.as_u16());
        let bare = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\ndate: Mon, 23 Nov 2026 03:00:00 GMT\r\n\r\n";
        assert_eq!(status(bare), Some(400));
        assert_eq!(status("HTTP/1.0 431 Request Header Fields Too Large\r\n\r\n"), Some(431));
        for other in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\nx-request-id: a\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 400 Bad Request\r\n",
            "HTTP/1.1 4",
            "data: HTTP/1.1 400 Bad Request\r\n\r\n",
            "",
        ] {
            assert_eq!(status(other), None, "{other}");
        }
    }
}
