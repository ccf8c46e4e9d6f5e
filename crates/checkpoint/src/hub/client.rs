//! The three requests that a hub is asked: what is there, what a file is, and the file.

use std::{io::Read, time::Duration};

use serde::Deserialize;
use ureq::{Agent, Body, config::RedirectAuthHeaders, http::Response};

use super::{HubError, HubOptions, Listing};
use crate::{error::one_line, files::is_plain};

/// Longest answer about a repository.
const LARGEST_LISTING: u64 = 64 << 20;

/// Longest wait for the next bytes; a connection that stalls must not wait for ever.
const PATIENCE: Duration = Duration::from_mins(1);

/// A hub.
pub(super) struct Client {
    endpoint: String,
    token: Option<String>,
    /// Follows redirections, to the hub's file servers too; the token stays with the hub.
    agent: Agent,
    /// Takes a redirection as the answer, for it is the redirection that names the contents.
    direct: Agent,
}

/// What the hub says about a file before it is fetched.
#[derive(Default)]
pub(super) struct Metadata {
    /// Name of the contents.
    pub etag: Option<String>,
    /// Bytes.
    pub size: Option<u64>,
}

/// A file on its way.
pub(super) struct Download {
    /// First byte that comes.
    pub start: u64,
    /// Bytes that come.
    pub length: Option<u64>,
    /// The bytes.
    pub body: Box<dyn Read>,
}

#[derive(Deserialize)]
struct Answer {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Client {
    pub(super) fn new(options: &HubOptions) -> Self {
        let agent = |redirects| {
            let config = Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(redirects)
                .max_redirects_will_error(redirects > 0)
                .redirect_auth_headers(RedirectAuthHeaders::SameHost)
                .user_agent(concat!("demask/", env!("CARGO_PKG_VERSION")))
                .timeout_connect(Some(PATIENCE))
                .timeout_recv_response(Some(PATIENCE))
                .timeout_per_read(Some(PATIENCE));
            Agent::new_with_config(config.build())
        };
        let (endpoint, token) = (options.endpoint.clone(), options.token.clone());
        Self { endpoint, token, agent: agent(10), direct: agent(0) }
    }

    /// Commit and files of a revision.
    pub(super) fn listing(&self, id: &str, revision: &str) -> Result<Listing, HubError> {
        let address = format!("{}/api/models/{id}/revision/{}", self.endpoint, revision.replace('/', "%2F"));
        let reply = self.call(&self.agent, "GET", &address, 0)?;
        let mut reply = self.accept(reply, id, revision, &address)?;
        let text = reply.body_mut().with_config().limit(LARGEST_LISTING).read_to_vec();
        let text = text.map_err(|error| unreachable(&address, &error))?;
        let bad = |found: String| HubError::BadReply {
            address: address.clone(),
            found,
            expected: "the JSON description of a repository",
        };
        let answer: Answer = serde_json::from_slice(&text).map_err(|error| bad(one_line(error)))?;
        // The commit becomes a directory: it must not lead anywhere else.
        if !is_plain(&answer.sha) {
            return Err(bad("a commit that is not one".to_owned()));
        }
        let files = answer.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
        Ok(Listing { commit: answer.sha, files })
    }

    /// Name and size of a file's contents. A hub that will not say leaves both open.
    pub(super) fn metadata(&self, id: &str, commit: &str, file: &str) -> Result<Metadata, HubError> {
        let mut address = self.address(id, commit, file);
        // Renamed repositories redirect within the hub; the last answer, or the way out of the hub, has the facts.
        for _ in 0..5 {
            let reply = self.call(&self.direct, "HEAD", &address, 0)?;
            let status = reply.status().as_u16();
            if matches!(status, 405 | 501) {
                return Ok(Metadata::default());
            }
            let location = header(&reply, "location");
            let inside = location.filter(|to| (300..400).contains(&status) && to.starts_with('/'));
            if let Some(to) = inside
                && header(&reply, "x-linked-etag").is_none()
            {
                address = format!("{}{to}", self.endpoint);
                continue;
            }
            let reply = if (300..400).contains(&status) { reply } else { self.accept(reply, id, commit, &address)? };
            return Ok(facts(&reply));
        }
        Err(HubError::BadReply { address, found: "a circle of redirections".to_owned(), expected: "a file" })
    }

    /// A file's bytes from `start` on; the hub may begin at 0 instead.
    pub(super) fn download(&self, id: &str, commit: &str, file: &str, start: u64) -> Result<Download, HubError> {
        let address = self.address(id, commit, file);
        let mut reply = self.call(&self.agent, "GET", &address, start)?;
        if reply.status() == 416 {
            // What is here does not fit what is there: from the beginning.
            reply = self.call(&self.agent, "GET", &address, 0)?;
        }
        let range = header(&reply, "content-range").filter(|_| reply.status() == 206);
        let range = range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse().ok());
        let reply = self.accept(reply, id, commit, &address)?;
        let first = range.unwrap_or(0);
        if first != 0 && first != start {
            let found = format!("a range from byte {first}");
            return Err(HubError::BadReply { address, found, expected: "the range that was asked for" });
        }
        let length = reply.body().content_length();
        Ok(Download { start: first, length, body: Box::new(reply.into_body().into_reader()) })
    }

    fn address(&self, id: &str, commit: &str, file: &str) -> String {
        format!("{}/{id}/resolve/{commit}/{file}", self.endpoint)
    }

    fn call(&self, agent: &Agent, method: &str, address: &str, start: u64) -> Result<Response<Body>, HubError> {
        let mut request = if method == "HEAD" { agent.head(address) } else { agent.get(address) };
        // Sizes and ranges are those of the file, not of a compressed form.
        request = request.header("accept-encoding", "identity");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if start > 0 {
            request = request.header("range", format!("bytes={start}-"));
        }
        request.call().map_err(|error| unreachable(address, &error))
    }

    /// Turns a status that is no success into its error.
    fn accept(
        &self,
        reply: Response<Body>,
        id: &str,
        revision: &str,
        address: &str,
    ) -> Result<Response<Body>, HubError> {
        let (id, endpoint) = (id.to_owned(), self.endpoint.clone());
        match reply.status().as_u16() {
            200 | 206 => Ok(reply),
            404 => Err(HubError::NotFound { id, revision: revision.to_owned(), endpoint }),
            status @ (401 | 403) => {
                let hint = match self.token {
                    Some(_) => "ask for access with the account of this token",
                    None => "set HF_TOKEN to a token that may read it",
                };
                Err(HubError::Denied { id, endpoint, status, hint })
            }
            status => Err(HubError::BadReply {
                address: address.to_owned(),
                found: format!("status {status}"),
                expected: "status 200",
            }),
        }
    }
}

fn facts(reply: &Response<Body>) -> Metadata {
    let etag = header(reply, "x-linked-etag").or_else(|| header(reply, "etag"));
    let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
    let redirected = reply.status().is_redirection();
    let length = header(reply, "content-length").filter(|_| !redirected);
    let size = header(reply, "x-linked-size").or(length).and_then(|size| size.parse().ok());
    Metadata { etag: etag.filter(|etag| is_plain(etag)), size }
}

fn header<'a>(reply: &'a Response<Body>, name: &str) -> Option<&'a str> {
    reply.headers().get(name).and_then(|value| value.to_str().ok())
}

fn unreachable(address: &str, error: &ureq::Error) -> HubError {
    HubError::Unreachable { address: address.to_owned(), detail: one_line(error) }
}
