//! Settings of a server, whether they come from flags, the environment, a file or a program.

use std::{net::IpAddr, time::Duration};
use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

use demask::SettingError;
use demask_settings::{List, settings};

use crate::{
    Limits,
    config::HttpConfig,
    http::{host, origin},
};

/// Longest time that a setting may name: a year, in seconds.
const YEAR: u64 = 365 * 24 * 60 * 60;
/// Largest count of things that each hold memory: connections, places.
const MANY: u64 = 1_000_000;

settings! {
    /// Settings of a server. Fields that are `None` have their defaults.
    pub struct ServeOptions of "setting" {
        /// Address to listen on.
        host: String = "127.0.0.1".to_owned(), "ADDRESS";
        /// Port to listen on; 0: any that is free.
        port: u16 = 8080, "PORT" in (0, 65_535);
        /// Names that requests may call the model by, separated by commas; responses have the first one.
        served_model_name: List, "NAMES" or "any, and the model's own in responses";
        /// Tokens that an answer may have at most.
        max_gen_length: usize = 4096, "N" in (1, 1 << 24);
        /// Answers that are made or wait at the same time; beyond that requests are refused with 503.
        max_queue: usize = 256, "N" in (1, MANY);
        /// Bytes of a request's body.
        max_body_bytes: usize = 2 << 20, "N" in (1, 1 << 30);
        /// MiB of all requests' bodies together that are not yet read as JSON; beyond that requests are refused with 503.
        max_body_memory: usize, "MIB" or "64, or room for 2 bodies" in (1, 1 << 20);
        /// Answers to a prompt (n).
        max_choices: usize = 16, "N" in (1, 4096);
        /// Prompts of a request.
        max_prompts: usize = 64, "N" in (1, 4096);
        /// Connections at the same time.
        max_connections: usize = 4096, "N" in (1, MANY);
        /// Connections of one address at the same time.
        max_connections_per_address: usize = 4096, "N" in (1, MANY);
        /// Seconds in which a request's head must arrive; a connection that asks for nothing is closed after it, too.
        head_timeout: u64 = 15, "SECONDS" in (1, YEAR);
        /// Seconds in which a request's body must arrive.
        body_timeout: u64 = 30, "SECONDS" in (1, YEAR);
        /// Seconds after which a connection is closed whose client reads nothing of its answer.
        write_timeout: u64 = 60, "SECONDS" in (1, YEAR);
        /// Least time between 2 chunks of a stream, in milliseconds. With N streams, N over 8, it grows to N/8 times that. Earlier text
        /// joins the next chunk, and the last chunk is never delayed; 0: a chunk for each forward.
        stream_interval: u64 = 10, "MS" in (0, 60_000);
        /// Seconds of silence after which a stream gets a heartbeat.
        heartbeat: u64 = 15, "SECONDS" in (1, YEAR);
        /// Seconds that requests get to end after SIGTERM.
        drain_timeout: u64 = 30, "SECONDS" in (0, YEAR);
        /// Seconds after SIGTERM in which requests are refused and connections still taken, for balancers to notice.
        drain_notice: u64 = 0, "SECONDS" in (0, YEAR);
        /// File with keys, one a line: NAME KEY [weight=NUMBER] [rate=REQUESTS_PER_MINUTE].
        api_key_file: PathBuf, "FILE" or "no key is needed";
        /// Origins whose pages may ask, separated by commas.
        cors_origin: List, "ORIGINS" or "none";
        /// Names of this machine that requests may be sent to, separated by commas.
        allowed_host: List, "HOSTS" or "on loopback localhost, 127.0.0.1, [::1] and the address itself, else all";
        /// Let a request in once there is memory for its whole length, so that none is ever preempted.
        no_preemption: bool, "";
        /// Serve no page.
        no_ui: bool, "";
        /// Write no line for each request.
        no_log: bool, "";
    }
}

impl ServeOptions {
    /// Returns the address to listen on.
    ///
    /// # Errors
    /// If this machine has no such address.
    pub fn address(&self) -> Result<SocketAddr, SettingError> {
        let (host, port) = (self.host(), self.port());
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let found = (bare, port).to_socket_addrs().ok().and_then(|mut found| found.next());
        found.ok_or_else(|| {
            SettingError::Content(format!(
                "`host` is {host:?}, expected an address of this machine, such as 127.0.0.1 or 0.0.0.0"
            ))
        })
    }

    /// Returns the bounds of requests.
    ///
    /// # Errors
    /// If there is less memory for bodies than 2 of the largest take: one key of several has half of it.
    pub fn limits(&self) -> Result<Limits, SettingError> {
        let limits = Limits::of(self);
        let Limits { body_bytes, all_bodies, .. } = limits;
        if all_bodies < 2 * body_bytes {
            let memory = all_bodies >> 20;
            return Err(SettingError::Content(format!(
                "a body may have {body_bytes} bytes and all together {memory} MiB, expected room for two: raise \
                 `max_body_memory`, or lower `max_body_bytes`"
            )));
        }
        Ok(limits)
    }

    /// Returns the bounds of connections to an address. On loopback a request's name for this host must be this machine's, or the
    /// address itself: a page of another site may point a name of its own there.
    ///
    /// # Errors
    /// If a list is empty, or has a name that no client sends.
    pub fn http(&self, address: IpAddr) -> Result<HttpConfig, SettingError> {
        let hosts = names("allowed_host", self.allowed_host.as_ref(), host)?;
        let origins = names("cors_origin", self.cors_origin.as_ref(), origin)?;
        let config = HttpConfig::of(self, address);
        Ok(HttpConfig { hosts: hosts.unwrap_or(config.hosts), origins: origins.unwrap_or_default(), ..config })
    }
}

/// The names of a setting, each as requests have it: one that never takes effect is refused before anything is served.
fn names(
    setting: &str,
    list: Option<&List>,
    read: fn(&str) -> Result<&str, String>,
) -> Result<Option<Vec<String>>, SettingError> {
    let Some(List(names)) = list else { return Ok(None) };
    if names.is_empty() {
        return Err(SettingError::Content(format!("`{setting}` names nothing: name one, or omit it")));
    }
    let name = |name: &String| {
        read(name).map(str::to_owned).map_err(|why| SettingError::Content(format!("`{setting}`: {why}")))
    };
    names.iter().map(name).collect::<Result<_, _>>().map(Some)
}

impl Limits {
    pub(crate) fn of(options: &ServeOptions) -> Self {
        let body_bytes = options.max_body_bytes();
        Self {
            body_bytes,
            all_bodies: options.max_body_memory.map_or((64 << 20).max(2 * body_bytes), |memory| memory << 20),
            gen_length: options.max_gen_length(),
            choices: options.max_choices(),
            prompts: options.max_prompts(),
            places: options.max_queue(),
            stops: 16,
            stop_bytes: 256,
            top_logprobs: 20,
            listed: 1 << 20,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(&ServeOptions::default())
    }
}

impl HttpConfig {
    pub(crate) fn of(options: &ServeOptions, address: IpAddr) -> Self {
        let mut hosts = Vec::new();
        if address.is_loopback() {
            hosts = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec();
            let own = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
            if !hosts.contains(&own) {
                hosts.push(own);
            }
        }
        Self {
            connections: options.max_connections(),
            per_address: options.max_connections_per_address(),
            head_time: Duration::from_secs(options.head_timeout()),
            body_time: Duration::from_secs(options.body_timeout()),
            write_time: Duration::from_secs(options.write_timeout()),
            stream_interval: Duration::from_millis(options.stream_interval()),
            heartbeat: Duration::from_secs(options.heartbeat()),
            drain_time: Duration::from_secs(options.drain_timeout()),
            drain_notice: Duration::from_secs(options.drain_notice()),
            hosts,
            origins: Vec::new(),
        }
    }
}

impl Default for HttpConfig {
    /// The bounds for an address that other machines reach: requests may be sent to any name.
    fn default() -> Self {
        Self::of(&ServeOptions::default(), IpAddr::from([0, 0, 0, 0]))
    }
}
