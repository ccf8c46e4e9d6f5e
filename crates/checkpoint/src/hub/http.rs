//! Requests to a hub and their redirections, which are followed here: a token stays with the hub that it is for, and the
//! first answer is the one that describes a file.

use std::io::Read;

use ureq::{
    Agent, Body,
    http::{HeaderMap, Response, header},
};

use super::{HubError, HubOptions, RepositoryKind};
use crate::error::one_line;

/// Most redirections of a request.
const MOST_REDIRECTIONS: usize = 10;

/// An answer with contents.
pub(super) struct Reply {
    /// First name of the contents on the way to them, a store's for large files before others.
    pub(super) etag: Option<String>,
    /// First commit that was named.
    pub(super) commit: Option<String>,
    response: Response<Body>,
}

/// Bytes of a whole file that an answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// The first one.
    pub(super) start: u64,
    /// Length of the whole file.
    pub(super) whole: u64,
}

impl Reply {
    /// The part of the file that comes, if the answer says so. One that ignores the range has the whole file.
    pub(super) fn part(&self) -> Option<Part> {
        let headers = self.response.headers();
        if self.response.status() != 206 {
            return Some(Part { start: 0, whole: text(headers, "content-length")?.parse().ok()? });
        }
        let range = text(headers, "content-range")?.strip_prefix("bytes ")?;
        let (bytes, whole) = range.split_once('/')?;
        Some(Part { start: bytes.split_once('-')?.0.parse().ok()?, whole: whole.parse().ok()? })
    }

    /// The contents, as they come.
    pub(super) fn into_reader(self) -> impl Read {
        self.response.into_body().into_reader()
    }
}

/// The client of all requests. Answers are taken as they are sent: nothing unpacks them.
fn agent(options: &HubOptions) -> Agent {
    let patience = Some(options.patience);
    let config = Agent::config_builder()
        .user_agent(concat!("demask/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_resolve(patience)
        .timeout_connect(patience)
        .timeout_recv_response(patience)
        .timeout_per_read(patience)
        .timeout_per_write(patience);
    config.build().into()
}

/// One repository of a hub, as it is asked for.
pub(super) struct Remote<'a> {
    pub(super) kind: RepositoryKind,
    pub(super) id: &'a str,
    pub(super) options: &'a HubOptions,
    agent: Agent,
}

impl<'a> Remote<'a> {
    pub(super) fn new(kind: RepositoryKind, id: &'a str, options: &'a HubOptions) -> Self {
        Self { kind, id, options, agent: agent(options) }
    }

    /// Asks for an address, or for a part of its contents (the first byte, and perhaps the last). `revision` is for
    /// messages.
    pub(super) fn get(
        &self,
        address: &str,
        revision: &str,
        range: Option<(u64, Option<u64>)>,
    ) -> Result<Reply, HubError> {
        let (mut at, mut linked, mut etag, mut commit) = (address.to_owned(), None, None, None);
        for _ in 0..MOST_REDIRECTIONS {
            let response = self.ask(&at, range)?;
            let headers = response.headers();
            linked = linked.or_else(|| tag(headers, "x-linked-etag"));
            etag = etag.or_else(|| tag(headers, "etag"));
            commit = commit.or_else(|| text(headers, "x-repo-commit").map(str::to_owned));
            let status = response.status().as_u16();
            match (status, text(headers, "location")) {
                (301..=303 | 307 | 308, Some(location)) => {
                    let target = target(&at, location);
                    at =
                        target.ok_or_else(|| bad_reply(&at, format!("a redirection to {location:?}"), "an address"))?;
                }
                (200 | 206, _) => {
                    let coding = text(headers, "content-encoding").filter(|coding| *coding != "identity");
                    if let Some(coding) = coding {
                        let found = format!("contents in {coding:?}");
                        return Err(bad_reply(&at, found, "them as they are, for nothing else was asked for"));
                    }
                    return Ok(Reply { etag: linked.or(etag), commit, response });
                }
                _ => return Err(self.refused(status, revision, address)),
            }
        }
        Err(bad_reply(address, format!("more than {MOST_REDIRECTIONS} redirections"), "what a hub answers"))
    }

    /// One request.
    fn ask(&self, address: &str, range: Option<(u64, Option<u64>)>) -> Result<Response<Body>, HubError> {
        let mut request = self.agent.get(address);
        if let Some(token) = &self.options.token
            && origin(address).eq_ignore_ascii_case(origin(&self.options.endpoint))
        {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some((first, last)) = range {
            let last = last.map(|last| last.to_string()).unwrap_or_default();
            request = request.header(header::RANGE, format!("bytes={first}-{last}"));
        }
        request.call().map_err(|error| match error {
            error @ (ureq::Error::Protocol(_) | ureq::Error::LargeResponseHeader(..)) => {
                bad_reply(address, one_line(error), "what a hub answers")
            }
            error => HubError::Unreachable { address: address.to_owned(), detail: one_line(error) },
        })
    }

    /// A status that is none of contents.
    fn refused(&self, status: u16, revision: &str, address: &str) -> HubError {
        let (id, endpoint) = (self.id.to_owned(), self.options.endpoint.clone());
        match status {
            404 => HubError::NotFound { kind: self.kind, id, revision: revision.to_owned(), endpoint },
            401 | 403 => {
                let hint = match self.options.token {
                    Some(_) => "ask for access with the account of this token",
                    None => "set HF_TOKEN to a token that may read it",
                };
                HubError::Denied { id, endpoint, status, hint }
            }
            _ => bad_reply(address, format!("status {status}"), "status 200"),
        }
    }
}

pub(super) fn bad_reply(address: &str, found: String, expected: &'static str) -> HubError {
    HubError::BadReply { address: address.to_owned(), found, expected }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// An etag without its quotes, and without the sign that it is a weak one.
fn tag(headers: &HeaderMap, name: &str) -> Option<String> {
    let tag = text(headers, name)?;
    Some(tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"').to_owned())
}

/// Scheme, host and port of an address.
fn origin(address: &str) -> &str {
    let host = address.find("://").map_or(0, |at| at + 3);
    let end = address[host..].find(['/', '?', '#']).map_or(address.len(), |at| host + at);
    &address[..end]
}

/// The address that a redirection from another one leads to, if it is one of the web.
fn target(from: &str, location: &str) -> Option<String> {
    let scheme = location.find("://").filter(|&at| location[..at].bytes().all(|byte| byte.is_ascii_alphabetic()));
    if let Some(scheme) = scheme {
        let known = ["http", "https"].iter().any(|known| location[..scheme].eq_ignore_ascii_case(known));
        return known.then(|| location.to_owned());
    }
    if let Some(rest) = location.strip_prefix("//") {
        return Some(format!("{}//{rest}", &from[..=from.find(':')?]));
    }
    if location.starts_with('/') {
        return Some(format!("{}{location}", origin(from)));
    }
    // Beside the last part of the path; another scheme is none of the web.
    let path = from.split(['?', '#']).next()?;
    let beside = path.rfind('/').filter(|&at| at >= origin(from).len());
    (!location.contains(':')).then(|| format!("{}/{location}", &path[..beside.unwrap_or(path.len())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_lead_to_addresses_of_the_web_alone() {
        let from = "https://hub.example/org/name/resolve/main/config.json?x=/y";
        for (location, to) in [
            ("https://cdn.example/a", Some("https://cdn.example/a")),
            ("http://cdn.example/a", Some("http://cdn.example/a")),
            ("/a/b?next=http://c", Some("https://hub.example/a/b?next=http://c")),
            ("//cdn.example/a", Some("https://cdn.example/a")),
            ("other.json", Some("https://hub.example/org/name/resolve/main/other.json")),
            ("file:///etc/passwd", None),
            ("ftp://cdn.example/a", None),
            ("data:text/plain,a", None),
        ] {
            assert_eq!(target(from, location).as_deref(), to, "{location}");
        }
        assert_eq!(target("http://hub.example", "a").as_deref(), Some("http://hub.example/a"));
    }

    #[test]
    fn hosts_and_ports_tell_servers_apart() {
        assert_eq!(origin("http://hub.example:80/a/b"), "http://hub.example:80");
        assert_eq!(origin("http://hub.example?a"), "http://hub.example");
        assert_eq!(origin("http://hub.example"), "http://hub.example");
    }
}
