//! `demask health`: asks a server how it is, for containers that hold nothing else that could.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use demask::SettingError;
use demask_serve::ServeOptions;
use demask_settings::layers::Layered;

use crate::{args::serve::HealthArgs, exit::usage, output};

/// Bytes of a response that are read.
const MOST: u64 = 64 << 10;

/// Asks once.
pub fn run(args: &HealthArgs) -> anyhow::Result<()> {
    let address = match &args.url {
        Some(url) => url.clone(),
        None => format!("http://127.0.0.1:{}", port()?),
    };
    let (host, path) = parts(&address)?;
    let time = Duration::from_secs(args.timeout.unwrap_or(5));
    let response = ask(&host, &path, time).with_context(|| format!("{address} does not answer"))?;
    let (status, body) = read(&response).ok_or_else(|| anyhow!("{address} does not answer in HTTP"))?;
    if status != 200 {
        let body: String = body.chars().take(300).collect();
        return Err(anyhow!("{address} answers with status {status}: {body}"));
    }
    Ok(output::line(body.trim_end())?)
}

/// The port of a server on this machine, by the variable that it is started with.
fn port() -> Result<u16, SettingError> {
    let mut server = Layered::new(ServeOptions::default());
    server.add_environment(|name| name == "port", |name| std::env::var_os(name))?;
    Ok(server.settings().port())
}

/// The host with its port, and the path.
fn parts(address: &str) -> anyhow::Result<(String, String)> {
    let wrong = || usage(format!("--url is {address:?}, expected http://HOST:PORT, without TLS"));
    let rest = address.strip_prefix("http://").ok_or_else(wrong)?;
    let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if host.is_empty() || host.contains('@') || !plain(host) || !plain(path) {
        return Err(wrong());
    }
    let named = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let host = if named { host.to_owned() } else { format!("{host}:80") };
    Ok((host, if path.is_empty() { "/health".to_owned() } else { format!("/{path}") }))
}

/// Sends the request, and returns what comes within the time.
fn ask(host: &str, path: &str, time: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + time;
    let mut last = io::Error::other("the host has no address");
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(until)?) {
            Ok(stream) => return exchange(stream, host, path, until),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn exchange(mut stream: TcpStream, host: &str, path: &str, until: Instant) -> io::Result<Vec<u8>> {
    stream.set_write_timeout(Some(left(until)?))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let (mut response, mut piece) = (Vec::new(), [0; 4096]);
    while (response.len() as u64) < MOST {
        // Each read gets what is left: a server that dribbles does not hold the command for longer.
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut piece).map_err(in_time)? {
            0 => break,
            count => response.extend_from_slice(&piece[..count]),
        }
    }
    Ok(response)
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(late()) } else { Ok(left) }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "its time is up (--timeout)")
}

/// Names a read that is over time as that, whatever the system calls it.
fn in_time(error: io::Error) -> io::Error {
    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) { late() } else { error }
}

/// The status of a response, and its body.
fn read(response: &[u8]) -> Option<(u16, String)> {
    let text = String::from_utf8_lossy(response);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut words = head.lines().next()?.split(' ');
    let status = words.next().filter(|version| version.starts_with("HTTP/1.")).and(words.next())?;
    Some((status.parse().ok()?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let apart = |address: &str| parts(address).map(|(host, path)| format!("{host} {path}")).unwrap_or_default();
        assert_eq!(apart("http://127.0.0.1:8080"), "127.0.0.1:8080 /health");
        assert_eq!(apart("http://localhost/live"), "localhost:80 /live");
        assert_eq!(apart("http://[::1]:9/"), "[::1]:9 /health");
        assert_eq!(apart("http://[::1]"), "[::1]:80 /health");
        for wrong in ["127.0.0.1:8080", "https://x", "http://", "http://a b/", "http://x/\r\nEvil: 1", "http://u:p@x"] {
            let refused = parts(wrong).unwrap_err().to_string();
            assert!(refused.ends_with("expected http://HOST:PORT, without TLS"), "{refused}");
        }
    }

    #[test]
    fn responses_are_read() {
        let status = |text: &str| read(text.as_bytes()).map(|(status, body)| format!("{status} {body}"));
        assert_eq!(status("HTTP/1.1 200 OK\r\na: b\r\n\r\nfine").as_deref(), Some("200 fine"));
        assert_eq!(status("HTTP/1.1 503 Service Unavailable\r\n\r\n").as_deref(), Some("503 "));
        for text in ["", "SSH-2.0-x\r\n\r\n", "HTTP/1.1\r\n\r\n", "HTTP/1.1 two\r\n\r\n", "HTTP/1.1 200 OK\r\n"] {
            assert_eq!(status(text), None, "{text}");
        }
    }
}
