//! Plan of `demask bench serve` from its arguments: server, requests, rate and bounds.

use std::{str::FromStr, time::Duration};

use serde_json::{Map, Value, json};

use super::{
    http::{Address, Client},
    prompts::{self, Prompt},
};
use crate::{
    args::BenchServeArgs,
    env,
    exit::usage,
    settings::{Settings, numbers},
};

/// Requests of a level, unless somebody says otherwise.
const REQUESTS: usize = 100;
/// Words of a random prompt, likewise.
const WORDS: usize = 32;
/// Tokens of an answer, likewise.
const MAX_TOKENS: u64 = 64;
/// Seconds of a request, likewise.
const TIMEOUT: f64 = 600.0;
/// Requests that wait for their answers at the same time: each is a thread.
pub const MOST_AT_ONCE: usize = 256;
/// Requests, and words of a prompt, beyond which a number is a slip of the finger.
const MOST: usize = 10_000_000;
/// Fields that the requests set themselves, and no extra field may replace.
const OWN: [&str; 5] = ["model", "messages", "prompt", "stream", "max_tokens"];

/// Endpoint that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

impl Endpoint {
    /// Path of the endpoint.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
        }
    }

    /// Message for callers with prompts of another kind.
    pub fn refusal(self) -> &'static str {
        match self {
            Self::Chat => "--endpoint chat takes text or messages, and these are token ids",
            Self::Completions => "--endpoint completions takes text or token ids, and these are messages",
        }
    }
}

impl FromStr for Endpoint {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "chat" => Ok(Self::Chat),
            "completions" => Ok(Self::Completions),
            _ => Err(usage(format!("--endpoint is \"{text}\", expected chat or completions"))),
        }
    }
}

/// Arrival of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// Closed loop with this many requests at the same time: the next one goes out when one has ended.
    Closed(usize),
    /// Open loop with this many requests a second on average, at random moments, whatever the server does.
    Open(f64),
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed(count) => write!(f, "{count} at once"),
            Self::Open(rate) => write!(f, "{rate}/s"),
        }
    }
}

/// Bounds that a good answer keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Bound on the time to the first text.
    pub ttft: Option<Duration>,
    /// Bound on the longest gap between texts.
    pub gap: Option<Duration>,
    /// Bound on the whole answer.
    pub total: Option<Duration>,
}

impl FromStr for Bounds {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut bounds = Self::default();
        for part in text.split(',').map(str::trim) {
            let wrong = || usage(format!("--slo: \"{part}\" is no bound, expected ttft=500ms, gap=100ms or total=2s"));
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let bound = match name {
                "ttft" => &mut bounds.ttft,
                "gap" => &mut bounds.gap,
                "total" => &mut bounds.total,
                _ => return Err(wrong()),
            };
            if bound.replace(duration(value).ok_or_else(wrong)?).is_some() {
                return Err(usage(format!("--slo names {name} twice: give it once")));
            }
        }
        Ok(bounds)
    }
}

/// A time with its unit, above 0.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s')?, 1.0),
    };
    let seconds = number.parse::<f64>().ok()? * unit;
    Duration::try_from_secs_f64(seconds).ok().filter(|bound| !bound.is_zero())
}

/// Plan of a measurement: everything that is known before the first request.
#[derive(Debug)]
pub struct Plan {
    /// Client of the server.
    pub client: Client,
    /// Endpoint that is asked.
    pub endpoint: Endpoint,
    /// The model's name, if somebody gave it.
    pub model: Option<String>,
    /// Arrival of requests, one measurement each.
    pub loads: Vec<Load>,
    /// Requests of a measurement.
    pub requests: usize,
    /// Requests before the first measured one.
    pub warm: usize,
    /// Bounds that goodput counts by.
    pub bounds: Option<Bounds>,
    /// The server's process, if its time is to be reported.
    pub pid: Option<u32>,
    /// Sets whether answers are compared with those of lone requests.
    pub check: bool,
    /// Sets whether the JSON has a line of each request.
    pub details: bool,
    /// Key of arrivals, random prompts, and the first request's seed.
    pub seed: u64,
    prompts: Vec<Prompt>,
    words: usize,
    max_tokens: u64,
    extra: Map<String, Value>,
}

impl Plan {
    /// Reads arguments, the file of prompts and the environment.
    pub fn resolve(settings: &Settings, args: &BenchServeArgs) -> anyhow::Result<Self> {
        let Some(url) = &args.url else {
            return Err(usage("no server given: --url http://127.0.0.1:8080"));
        };
        let endpoint = args.endpoint.as_deref().unwrap_or("chat").parse()?;
        if args.prompts.is_some() && args.prompt_words.is_some() {
            return Err(usage("--prompt-words makes prompts and --prompts reads them: omit one of the two"));
        }
        let client = Client {
            address: Address::parse(url)?,
            key: args.api_key_env.as_deref().map(key).transpose()?,
            timeout: timeout(args.timeout.unwrap_or(TIMEOUT))?,
        };
        Ok(Self {
            client,
            endpoint,
            model: settings.source.name().map(str::to_owned),
            loads: loads(args)?,
            requests: at_least_one("--requests", args.requests.unwrap_or(REQUESTS))?,
            warm: warm(args.warm.unwrap_or(0))?,
            bounds: args.slo.as_deref().map(str::parse).transpose()?,
            pid: args.pid,
            check: args.check,
            details: args.details,
            seed: settings.seed,
            prompts: match &args.prompts {
                Some(path) => prompts::read(path, endpoint)?,
                None => Vec::new(),
            },
            words: at_least_one("--prompt-words", args.prompt_words.unwrap_or(WORDS))?,
            max_tokens: args.max_tokens.unwrap_or(MAX_TOKENS),
            extra: args.body.as_deref().map(extra).transpose()?.unwrap_or_default(),
        })
    }

    /// The body of the request of that number; the same for the same number.
    pub fn body(&self, model: &str, number: usize) -> String {
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(model));
        let drawn;
        let prompt = if self.prompts.is_empty() {
            drawn = prompts::random(self.words, self.seed, number);
            &drawn
        } else {
            &self.prompts[number % self.prompts.len()]
        };
        // Prompts that do not go with the endpoint were refused when they were read.
        let _ = prompt.put(self.endpoint, &mut body);
        body.insert("max_tokens".to_owned(), json!(self.max_tokens));
        body.insert("stream".to_owned(), json!(true));
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
        body.insert("seed".to_owned(), json!(self.seed.wrapping_add(number as u64) & SEED_BITS));
        body.extend(self.extra.clone());
        Value::Object(body).to_string()
    }

    /// Returns whether texts of a stream replace those before, as the extra fields ask for.
    pub fn replaces(&self) -> bool {
        self.extra.get("diffusing") == Some(&Value::Bool(true))
    }
}

/// Bits of a seed that all servers take: some read it as a signed number of 32.
const SEED_BITS: u64 = (1 << 31) - 1;

fn loads(args: &BenchServeArgs) -> anyhow::Result<Vec<Load>> {
    match (args.rate, &args.concurrency) {
        (Some(_), Some(_)) => {
            Err(usage("--rate lets requests come when they come, --concurrency when others end: omit one of the two"))
        }
        (Some(rate), None) if rate > 0.0 && rate.is_finite() => Ok(vec![Load::Open(rate)]),
        (Some(rate), None) => Err(usage(format!("--rate is {rate}, expected requests a second, a number above 0"))),
        (None, counts) => {
            let counts = counts.as_deref().unwrap_or("1");
            let counts: Vec<usize> = numbers("--concurrency", counts, "a number of requests")?;
            if counts.is_empty() || !counts.iter().all(|count| (1..=MOST_AT_ONCE).contains(count)) {
                return Err(usage(format!("--concurrency wants numbers from 1 to {MOST_AT_ONCE}: --concurrency 1,16")));
            }
            Ok(counts.into_iter().map(Load::Closed).collect())
        }
    }
}

fn at_least_one(flag: &str, value: usize) -> anyhow::Result<usize> {
    if (1..=MOST).contains(&value) { Ok(value) } else { Err(usage(format!("{flag} is {value}, expected 1 to {MOST}"))) }
}

fn warm(count: usize) -> anyhow::Result<usize> {
    if count <= MOST { Ok(count) } else { Err(usage(format!("--warm is {count}, expected 0 to {MOST}"))) }
}

/// The key in the environment variable of that name.
fn key(name: &str) -> anyhow::Result<String> {
    let Some(key) = env::named(name) else {
        return Err(usage(format!("--api-key-env: the environment has no {name}: set it to the server's key")));
    };
    if key.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(key)
    } else {
        Err(usage(format!("--api-key-env: {name} is no key, expected visible ASCII without blanks")))
    }
}

fn timeout(seconds: f64) -> anyhow::Result<Duration> {
    let timeout = Duration::try_from_secs_f64(seconds).ok();
    let timeout = timeout.filter(|timeout| (Duration::from_millis(1)..Duration::from_hours(1000)).contains(timeout));
    timeout.ok_or_else(|| usage(format!("--timeout is {seconds}, expected seconds, a number from 0.001 on")))
}

/// Fields of every request's body beside its own.
fn extra(text: &str) -> anyhow::Result<Map<String, Value>> {
    let expected = "expected an object: --body '{\"temperature\": 0, \"diffusion\": {\"steps\": 8}}'";
    let extra: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| usage(format!("--body: {error}: {expected}")))?;
    if let Some(name) = OWN.into_iter().find(|name| extra.contains_key(*name)) {
        return Err(usage(format!(
            "--body names {name}, which the requests have already: flags set it, --help lists them"
        )));
    }
    Ok(extra)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_have_units() {
        let bounds: Bounds = "ttft=500ms, total=2.5s".parse().unwrap();
        let expected = (Some(Duration::from_millis(500)), None, Some(Duration::from_millis(2500)));
        assert_eq!((bounds.ttft, bounds.gap, bounds.total), expected);
        let refusal = |text: &str| text.parse::<Bounds>().unwrap_err().to_string();
        for text in ["", "ttft", "ttft=5", "ttft=-1s", "ttft=0s", "ttft=xs", "first=1s", "total=NaNs"] {
            assert!(refusal(text).ends_with("is no bound, expected ttft=500ms, gap=100ms or total=2s"), "{text}");
        }
        assert_eq!(refusal("gap=1s,gap=2s"), "--slo names gap twice: give it once");
    }

    #[test]
    fn extra_fields_do_not_replace_the_requests_own() {
        assert_eq!(extra("{\"top_p\":0.5}").unwrap()["top_p"], 0.5);
        assert!(extra("[]").unwrap_err().to_string().contains("expected an object"));
        assert!(extra("{\"stream\":false}").unwrap_err().to_string().starts_with("--body names stream, which"));
    }
}
