//! Counts and times in Prometheus' text format, and the names that routers and dashboards of other servers read.

use std::{
    fmt::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use demask::internals::engine::{EngineCounters, NetworkCounters};

/// Upper bounds of times, in seconds: from a step of the demo model to minutes on a processor.
const SECONDS: [f64; 14] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0];
/// Upper bounds of counts: tokens and forwards.
const COUNTS: [f64; 10] = [1.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0, 4096.0];

/// Number of values below each bound.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    inside: Mutex<Sums>,
}

#[derive(Debug, Default, Clone)]
struct Sums {
    /// One a bound, and one for what is above all.
    buckets: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, inside: Mutex::new(Sums { buckets: vec![0; bounds.len() + 1], ..Sums::default() }) }
    }

    /// Counts a value.
    pub fn record(&self, value: f64) {
        let place = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.buckets[place] += 1;
        inside.sum += value;
        inside.count += 1;
    }

    fn write(&self, text: &mut String, name: &str, labels: &str) {
        let Sums { buckets, sum, count } = self.inside.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let _ = writeln!(text, "# TYPE {name} histogram");
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bound, bucket) in self.bounds.iter().zip(&buckets) {
            below += bucket;
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{name}_sum{{{labels}}} {sum}");
        let _ = writeln!(text, "{name}_count{{{labels}}} {count}");
    }
}

/// A count for each of a few words, which are never a client's.
#[derive(Debug)]
struct Family<const N: usize> {
    words: [&'static str; N],
    counts: [AtomicU64; N],
}

impl<const N: usize> Family<N> {
    fn new(words: [&'static str; N]) -> Self {
        Self { words, counts: [const { AtomicU64::new(0) }; N] }
    }

    fn count(&self, word: &str) {
        // What has no name of its own is counted under the last one.
        let place = self.words.iter().position(|known| *known == word).unwrap_or(N - 1);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
    }

    fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.words.iter().zip(&self.counts).map(|(word, count)| (*word, count.load(Ordering::Relaxed)))
    }
}

/// Counts and times of a server.
#[derive(Debug)]
pub struct Metrics {
    /// Answers by how they ended.
    finished: Family<4>,
    /// Requests that were refused, by status.
    refused: Family<12>,
    /// Requests whose client left before their end.
    cancelled: AtomicU64,
    /// Requests taken on.
    admitted: AtomicU64,
    /// Requests that ended with an error of the engine.
    failed: AtomicU64,
    prompt_tokens: AtomicU64,
    generation_tokens: AtomicU64,
    /// Seconds from a request to its first text.
    first_text: Histogram,
    /// Seconds between two texts of a stream.
    between: Histogram,
    /// Seconds of a request.
    total: Histogram,
    /// Seconds from a request to the beginning of its first forward.
    queue: Histogram,
    /// NFE of an answer.
    nfe: Histogram,
    prompts: Histogram,
    answers: Histogram,
}

/// Counts of a finished answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answered {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the answer.
    pub generated_tokens: usize,
    /// Forwards as papers count them.
    pub nfe: usize,
}

impl Default for Metrics {
    fn default() -> Self {
        let count = || AtomicU64::new(0);
        Self {
            finished: Family::new(["stop", "length", "error", "other"]),
            refused: Family::new([
                "400", "401", "403", "404", "405", "408", "413", "429", "500", "503", "431", "other",
            ]),
            cancelled: count(),
            admitted: count(),
            failed: count(),
            prompt_tokens: count(),
            generation_tokens: count(),
            first_text: Histogram::new(&SECONDS),
            between: Histogram::new(&SECONDS),
            total: Histogram::new(&SECONDS),
            queue: Histogram::new(&SECONDS),
            nfe: Histogram::new(&COUNTS),
            prompts: Histogram::new(&COUNTS),
            answers: Histogram::new(&COUNTS),
        }
    }
}

impl Metrics {
    /// Counts a request that got a place.
    pub fn admitted(&self) {
        self.admitted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was refused.
    pub fn refused(&self, status: u16) {
        self.refused.count(&status.to_string());
    }

    /// Counts a request whose client left.
    pub fn cancelled(&self) {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that the engine could not end.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.finished.count("error");
    }

    /// Counts the time that a request waited.
    pub fn entered(&self, queue: Duration) {
        self.queue.record(queue.as_secs_f64());
    }

    /// Counts the time until the first text.
    pub fn first_text(&self, time: Duration) {
        self.first_text.record(time.as_secs_f64());
    }

    /// Counts the time between two texts.
    pub fn next_text(&self, time: Duration) {
        self.between.record(time.as_secs_f64());
    }

    /// Counts the time of a request that got all its answers.
    pub fn total(&self, time: Duration) {
        self.total.record(time.as_secs_f64());
    }

    /// Counts an answer.
    pub fn answered(&self, finish: &str, answer: &Answered) {
        self.finished.count(finish);
        self.prompt_tokens.fetch_add(answer.prompt_tokens as u64, Ordering::Relaxed);
        self.generation_tokens.fetch_add(answer.generated_tokens as u64, Ordering::Relaxed);
        self.nfe.record(answer.nfe as f64);
        self.prompts.record(answer.prompt_tokens as f64);
        self.answers.record(answer.generated_tokens as f64);
    }

    /// Writes everything down, with the engine's own counts.
    pub fn write(&self, model: &str, engine: &EngineCounters, places: (usize, usize)) -> String {
        let mut text = String::new();
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let model = escape(model);
        let info = format!("version=\"{}\",model=\"{model}\"", env!("CARGO_PKG_VERSION"));
        line(&mut text, "gauge", "demask_build_info", &info, 1.0);
        let totals = &engine.totals;
        for (kind, name, value) in [
            ("counter", "demask_requests_admitted_total", load(&self.admitted)),
            ("counter", "demask_requests_cancelled_total", load(&self.cancelled)),
            ("counter", "demask_requests_failed_total", load(&self.failed)),
            ("gauge", "demask_places_taken", places.0 as f64),
            ("gauge", "demask_places", places.1 as f64),
            ("gauge", "demask_running", totals.running as f64),
            ("gauge", "demask_waiting", totals.waiting as f64),
            ("gauge", "demask_oldest_wait_forwards", totals.oldest as f64),
            ("gauge", "demask_waiting_rows", totals.waiting_rows as f64),
            ("gauge", "demask_mailboxes", (engine.totals.running + engine.totals.waiting) as f64),
            ("counter", "demask_forwards_total", totals.forwards as f64),
            ("counter", "demask_leaks_total", totals.leaks as f64),
            ("counter", "demask_prompt_tokens_total", load(&self.prompt_tokens)),
            ("counter", "demask_generation_tokens_total", load(&self.generation_tokens)),
        ] {
            line(&mut text, kind, name, "", value);
        }
        family(&mut text, "demask_answers_total", "finish", &self.finished);
        family(&mut text, "demask_refused_total", "status", &self.refused);
        networks(&mut text, engine);
        for (name, histogram) in [
            ("demask_first_text_seconds", &self.first_text),
            ("demask_between_texts_seconds", &self.between),
            ("demask_request_seconds", &self.total),
            ("demask_queue_seconds", &self.queue),
            ("demask_nfe", &self.nfe),
            ("demask_prompt_tokens", &self.prompts),
            ("demask_answer_tokens", &self.answers),
        ] {
            histogram.write(&mut text, name, "");
        }
        self.write_compatible(&mut text, &model, engine);
        text
    }

    /// The names of vLLM's metrics that routers, autoscalers and dashboards read.
    fn write_compatible(&self, text: &mut String, model: &str, engine: &EngineCounters) {
        let labels = format!("model_name=\"{model}\",engine=\"0\"");
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let totals = &engine.totals;
        // The model's own: its guides have pages of theirs.
        let own = engine.networks.first();
        let prefixes = own.and_then(|own| own.prefixes).map_or((0, 0), |prefixes| (prefixes.queries, prefixes.hits));
        let share = |own: &NetworkCounters| Some(own.pages.used as f64 / own.page_capacity? as f64);
        let usage = own.and_then(share).unwrap_or(0.0);
        for (kind, name, value) in [
            ("gauge", "vllm:num_requests_running", totals.running as f64),
            ("gauge", "vllm:num_requests_waiting", totals.waiting as f64),
            ("counter", "vllm:prompt_tokens_total", load(&self.prompt_tokens)),
            ("counter", "vllm:generation_tokens_total", load(&self.generation_tokens)),
            ("counter", "vllm:num_preemptions_total", totals.preempted as f64),
            ("gauge", "vllm:kv_cache_usage_perc", usage),
            ("counter", "vllm:prefix_cache_queries", prefixes.0 as f64),
            ("counter", "vllm:prefix_cache_hits", prefixes.1 as f64),
        ] {
            line(text, kind, name, &labels, value);
        }
        let _ = writeln!(text, "# TYPE vllm:request_success_total counter");
        for (finish, count) in self.finished.entries().filter(|(finish, _)| ["stop", "length"].contains(finish)) {
            let _ = writeln!(text, "vllm:request_success_total{{{labels},finished_reason=\"{finish}\"}} {count}");
        }
        for (name, histogram) in [
            ("vllm:time_to_first_token_seconds", &self.first_text),
            ("vllm:inter_token_latency_seconds", &self.between),
            ("vllm:e2e_request_latency_seconds", &self.total),
            ("vllm:request_queue_time_seconds", &self.queue),
            ("vllm:request_prompt_tokens", &self.prompts),
            ("vllm:request_generation_tokens", &self.answers),
        ] {
            histogram.write(text, name, &labels);
        }
    }
}

/// Metrics of each network: forwards, rows, and open sequences.
fn networks(text: &mut String, engine: &EngineCounters) {
    let of = |index: usize| match index {
        0 => "network=\"model\"".to_owned(),
        1 => "network=\"guide\"".to_owned(),
        more => format!("network=\"guide-{more}\""),
    };
    let _ = writeln!(text, "# TYPE demask_network_forwards_total counter");
    for (index, network) in engine.networks.iter().enumerate() {
        let _ = writeln!(text, "demask_network_forwards_total{{{}}} {}", of(index), network.forwards);
    }
    let _ = writeln!(text, "# TYPE demask_network_rows_total counter");
    for (index, network) in engine.networks.iter().enumerate() {
        let _ = writeln!(text, "demask_network_rows_total{{{}}} {}", of(index), network.rows);
    }
    pages(text, engine);
    let _ = writeln!(text, "# TYPE demask_network_open_sequences gauge");
    for (index, network) in engine.networks.iter().enumerate() {
        let _ = writeln!(text, "demask_network_open_sequences{{{}}} {}", of(index), network.open);
    }
}

/// Pages of K/V of all networks, and what was asked of published prefixes.
fn pages(text: &mut String, engine: &EngineCounters) {
    let sum = |of: fn(&NetworkCounters) -> u64| engine.networks.iter().map(of).sum::<u64>() as f64;
    for (kind, name, value) in [
        ("gauge", "demask_pages_used", sum(|network| network.pages.used as u64)),
        ("gauge", "demask_pages_free", sum(|network| network.pages.free as u64)),
        ("gauge", "demask_pages_idle", sum(|network| network.pages.idle as u64)),
        ("gauge", "demask_pages_capacity", sum(|network| network.page_capacity.unwrap_or(0))),
        ("gauge", "demask_prefix_cache_bytes", sum(|network| network.prefixes.map_or(0, |prefixes| prefixes.capacity))),
        (
            "counter",
            "demask_prefix_queries_total",
            sum(|network| network.prefixes.map_or(0, |prefixes| prefixes.queries)),
        ),
        ("counter", "demask_prefix_hits_total", sum(|network| network.prefixes.map_or(0, |prefixes| prefixes.hits))),
    ] {
        line(text, kind, name, "", value);
    }
}

fn family<const N: usize>(text: &mut String, name: &str, label: &str, family: &Family<N>) {
    let _ = writeln!(text, "# TYPE {name} counter");
    for (word, count) in family.entries() {
        let _ = writeln!(text, "{name}{{{label}=\"{word}\"}} {count}");
    }
}

fn line(text: &mut String, kind: &str, name: &str, labels: &str, value: f64) {
    let _ = writeln!(text, "# TYPE {name} {kind}");
    let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = writeln!(text, "{name}{braces} {value}");
}

/// A label's value as the format wants it.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_count_upwards() {
        let histogram = Histogram::new(&SECONDS);
        for value in [0.0005, 0.3, 0.3, 1000.0] {
            histogram.record(value);
        }
        let mut text = String::new();
        histogram.write(&mut text, "x", "a=\"b\"");
        assert!(text.contains("x_bucket{a=\"b\",le=\"0.001\"} 1\n"), "{text}");
        assert!(text.contains("x_bucket{a=\"b\",le=\"0.5\"} 3\n"), "{text}");
        assert!(text.contains("x_bucket{a=\"b\",le=\"300\"} 3\n") && text.contains("le=\"+Inf\"} 4\n"), "{text}");
        assert!(text.contains("x_count{a=\"b\"} 4\n"), "{text}");
    }

    #[test]
    fn every_line_is_of_the_format() {
        let metrics = Metrics::default();
        metrics.refused(418);
        metrics.answered("stop", &Answered { prompt_tokens: 3, generated_tokens: 2, nfe: 1 });
        let text = metrics.write("a\"b\\c\nd", &EngineCounters::default(), (0, 4));
        assert!(text.contains("model=\"a\\\"b\\\\c\\nd\""));
        assert!(text.contains("demask_refused_total{status=\"other\"} 1\n"));
        assert!(text.contains("vllm:num_requests_running{"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(name.starts_with("demask_") || name.starts_with("vllm:"), "{line}");
        }
        // A name has one type, told before its values.
        let types: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let distinct: std::collections::HashSet<_> = types.iter().collect();
        assert_eq!(types.len(), distinct.len());
    }
}
