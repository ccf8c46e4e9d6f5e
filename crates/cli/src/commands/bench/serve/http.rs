//! A small HTTP/1.1 client: one request at a time on a connection that is kept, its answer handed on as it comes.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use super::framing::Body;
use crate::{exit::usage, interrupt};

/// Bytes that the head of an answer may have.
const LONGEST_HEAD: usize = 64 << 10;
/// Headers that it may have.
const MOST_HEADERS: usize = 128;
/// Time limit for opening a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Time of one read, after which the client looks whether the user or the time limit ends the request.
const PATIENCE: Duration = Duration::from_millis(100);

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Connection refused, or unknown name.
    #[error("cannot connect to {address}: {reason}")]
    Connect { address: String, reason: String },
    /// The system reports an error of the connection before any answer.
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    /// The system reports an error of the connection in the middle of an answer.
    #[error("the connection broke in the middle of the answer: {0}")]
    Cut(io::Error),
    /// The server ended the connection too early.
    #[error("the server closed the connection {0}")]
    Closed(&'static str),
    /// The time limit of a request is over.
    #[error("no end of the answer within {} s: a longer --timeout waits longer", .0.as_secs_f64())]
    Late(Duration),
    /// Protocol error: the server's bytes are not HTTP/1.1, or not a reply to this request.
    #[error("the answer cannot be read: {0}")]
    Protocol(String),
    /// The server reports an error in the middle of a stream.
    #[error("the server reports an error: {0}")]
    Reported(String),
    /// A status that is no success.
    #[error("HTTP {status}: {message}")]
    Status { status: u16, message: String },
    /// The user has pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl Failure {
    /// An answer that cannot be read, for this reason.
    pub fn protocol(reason: impl Into<String>) -> Self {
        Self::Protocol(reason.into())
    }

    /// Returns whether a kept connection may have been closed before the request came.
    fn is_stale(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Closed(BEFORE))
    }
}

const BEFORE: &str = "before it answered";
const AMID: &str = "in the middle of its answer";

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Name or number, without brackets.
    host: String,
    port: u16,
    /// Path before `/v1`, without a slash at the end.
    prefix: String,
}

impl Address {
    /// Reads `http://host:port`, with or without `/v1` behind it.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let expected = "expected http://HOST:PORT";
        let wrong = |why: &str| usage(format!("--url is \"{text}\": {why}{expected}"));
        if text.starts_with("https://") {
            return Err(wrong("this client speaks no TLS: measure the server itself, behind its proxy: "));
        }
        let rest = text.strip_prefix("http://").ok_or_else(|| wrong(""))?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if text.chars().any(|letter| letter.is_whitespace() || letter.is_control() || "?#@".contains(letter)) {
            return Err(wrong("no user, query, fragment or blank belongs there: "));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            _ => (authority, Some(80)),
        };
        let host = host.strip_prefix('[').map_or(host, |host| host.trim_end_matches(']'));
        let port = port.filter(|&port| port != 0).ok_or_else(|| wrong("the port is a number from 1 to 65535: "))?;
        if host.is_empty() {
            return Err(wrong(""));
        }
        let path = path.trim_end_matches('/');
        let prefix = path.strip_suffix("/v1").unwrap_or(path).to_owned();
        Ok(Self { host: host.to_owned(), port, prefix })
    }

    /// Host and port as a URL writes them.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    fn connect(&self) -> Result<TcpStream, Failure> {
        let refused = |reason: String| Failure::Connect { address: self.authority(), reason };
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let mut reason = "the name has no address".to_owned();
        for address in found.map_err(|error| refused(error.to_string()))? {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => {
                    let ready = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
                    return ready.map(|()| stream).map_err(Failure::Broken);
                }
                Err(error) => reason = error.to_string(),
            }
        }
        Err(refused(reason))
    }
}

/// The head of an answer.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// The status.
    pub status: u16,
    /// Names and values, as they were sent.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// The first value of a header; its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// Takes an answer while it comes.
pub trait Receiver {
    /// Takes the head.
    fn head(&mut self, head: &Head) -> Result<(), Failure>;
    /// Takes some of the body.
    fn content(&mut self, bytes: &[u8]) -> Result<(), Failure>;
}

/// A request as it is sent.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// Path from `/` on.
    pub path: &'a str,
    /// JSON, or nothing.
    pub body: &'a str,
}

/// A connection that is used again for as long as the server keeps it.
#[derive(Debug, Default)]
pub struct Line(Option<TcpStream>);

impl Line {
    /// Returns whether a connection is kept.
    pub fn is_open(&self) -> bool {
        self.0.is_some()
    }
}

/// Asks one server.
#[derive(Debug)]
pub struct Client {
    /// Address of the server.
    pub address: Address,
    /// Key of the server, if it requires one.
    pub key: Option<String>,
    /// Time limit of a request.
    pub timeout: Duration,
}

impl Client {
    /// Sends a request and hands on what comes back until its end.
    pub fn ask(&self, line: &mut Line, request: Request<'_>, receiver: &mut dyn Receiver) -> Result<(), Failure> {
        let ends = Instant::now() + self.timeout;
        let kept = line.0.take().map(|stream| self.exchange(stream, request, ends, receiver));
        let over = match kept {
            Some(over) if !over.as_ref().is_err_and(Failure::is_stale) => over,
            _ => self.exchange(self.address.connect()?, request, ends, receiver),
        };
        line.0 = over?;
        Ok(())
    }

    /// One request and its answer; returns the connection if it can be used again.
    fn exchange(
        &self,
        mut stream: TcpStream,
        request: Request<'_>,
        ends: Instant,
        receiver: &mut dyn Receiver,
    ) -> Result<Option<TcpStream>, Failure> {
        stream.set_write_timeout(Some(self.timeout)).map_err(Failure::Broken)?;
        stream.write_all(self.text(request).as_bytes()).map_err(Failure::Broken)?;
        let mut incoming =
            Incoming { stream: &mut stream, ends, timeout: self.timeout, buffer: Vec::new(), begun: false };
        let head = incoming.head()?;
        receiver.head(&head)?;
        let mut body = Body::of(head.status, &head.headers)?;
        let mut bytes = std::mem::take(&mut incoming.buffer);
        let mut taken = body.push(&bytes, &mut |content| receiver.content(content))?;
        while !body.is_complete() {
            bytes.clear();
            if incoming.read(&mut bytes)? == 0 {
                return if body.may_end() { Ok(None) } else { Err(Failure::Closed(AMID)) };
            }
            taken = body.push(&bytes, &mut |content| receiver.content(content))?;
        }
        let closes = head.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        Ok((taken == bytes.len() && !closes).then_some(stream))
    }

    /// The request as it is sent.
    fn text(&self, Request { method, path, body }: Request<'_>) -> String {
        let Address { prefix, .. } = &self.address;
        let authority = self.address.authority();
        let key = self.key.as_ref().map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
        let kind = "Content-Type: application/json";
        let length = body.len();
        let of_body = if body.is_empty() { String::new() } else { format!("{kind}\r\nContent-Length: {length}\r\n") };
        format!(
            "{method} {prefix}{path} HTTP/1.1\r\nHost: {authority}\r\nAccept: text/event-stream, application/json\r\n\
             User-Agent: demask-bench\r\n{key}{of_body}\r\n{body}"
        )
    }
}

/// Bytes as they come from the server.
struct Incoming<'a> {
    stream: &'a mut TcpStream,
    ends: Instant,
    timeout: Duration,
    /// Bytes that were received and not yet read.
    buffer: Vec<u8>,
    /// Something has come.
    begun: bool,
}

impl Incoming<'_> {
    /// Waits for bytes and adds them to `bytes`; 0: the connection has ended.
    fn read(&mut self, bytes: &mut Vec<u8>) -> Result<usize, Failure> {
        let mut some = [0; 16 << 10];
        loop {
            match self.stream.read(&mut some) {
                Ok(count) => {
                    bytes.extend_from_slice(&some[..count]);
                    self.begun |= count > 0;
                    return Ok(count);
                }
                Err(error) if is_pause(&error) => {}
                Err(error) if self.begun => return Err(Failure::Cut(error)),
                Err(error) => return Err(Failure::Broken(error)),
            }
            if interrupt::requested() {
                return Err(Failure::Interrupted);
            }
            if Instant::now() >= self.ends {
                return Err(Failure::Late(self.timeout));
            }
        }
    }

    /// Reads up to the end of the head; those of an answer that is still to come (status 1xx) are left out.
    fn head(&mut self) -> Result<Head, Failure> {
        loop {
            if let Some((head, length)) = parse(&self.buffer)? {
                self.buffer.drain(..length);
                if !(100..200).contains(&head.status) {
                    return Ok(head);
                }
                continue;
            }
            if self.buffer.len() > LONGEST_HEAD {
                return Err(Failure::protocol(format!("its head is longer than {LONGEST_HEAD} bytes")));
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            let count = self.read(&mut buffer)?;
            self.buffer = buffer;
            if count == 0 {
                return Err(Failure::Closed(if self.begun { AMID } else { BEFORE }));
            }
        }
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// A head and its length, if all of it is there.
fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Failure> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(bytes);
    let parsed = parsed.map_err(|error| Failure::protocol(format!("it is not HTTP/1.1: {error}")))?;
    let httparse::Status::Complete(length) = parsed else { return Ok(None) };
    let text =
        |header: &httparse::Header<'_>| (header.name.to_owned(), String::from_utf8_lossy(header.value).into_owned());
    let headers = response.headers.iter().map(text).collect();
    Ok(Some((Head { status: response.code.unwrap_or_default(), headers }, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_v1() {
        let read = |text: &str| Address::parse(text).unwrap();
        assert_eq!(read("http://127.0.0.1:8080").authority(), "127.0.0.1:8080");
        assert_eq!(read("http://localhost/v1/"), Address { host: "localhost".into(), port: 80, prefix: String::new() });
        assert_eq!(read("http://host:1/served/v1").prefix, "/served");
        assert_eq!(read("http://[::1]:8080").authority(), "[::1]:8080");
        assert_eq!(read("http://[::1]").port, 80);
    }

    #[test]
    fn addresses_that_are_none_are_refused() {
        let refusal = |text: &str| Address::parse(text).unwrap_err().to_string();
        assert_eq!(refusal("localhost:8080"), "--url is \"localhost:8080\": expected http://HOST:PORT");
        assert!(refusal("https://host").contains("no TLS"));
        for text in ["http://host:0", "http://host:99999", "http://host:x"] {
            assert!(refusal(text).contains("the port is a number from 1 to 65535"), "{text}");
        }
        for text in ["http://user@host", "http://host/?a=b", "http://host /"] {
            assert!(refusal(text).contains("no user, query, fragment or blank"), "{text}");
        }
        assert!(refusal("http://").ends_with("expected http://HOST:PORT"));
        assert!(refusal("http://:80").ends_with("expected http://HOST:PORT"));
    }

    #[test]
    fn heads_are_read_whole_or_not_at_all() {
        let text = b"HTTP/1.1 200 OK\r\nServer-Timing: queue;dur=1.5\r\n\r\nbody";
        let (head, length) = parse(text).unwrap().unwrap();
        assert_eq!((head.status, length), (200, text.len() - 4));
        assert_eq!(head.header("server-timing"), Some("queue;dur=1.5"));
        assert_eq!(head.header("content-length"), None);
        assert!((0..length).all(|count| parse(&text[..count]).unwrap().is_none()));
        assert!(parse(b"SSH-2.0-x\r\n").unwrap_err().to_string().contains("not HTTP/1.1"));
    }
}
