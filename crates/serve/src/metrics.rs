//! Counts and times in the format of OpenMetrics, and the names that routers and dashboards of other servers read.

use std::{fmt, time::Duration};

use demask::layers::engine::{EngineCounters, NetworkCounters};
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, text::encode},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::ConstGauge,
        histogram::Histogram,
    },
    registry::Registry,
};

/// Upper bounds of times, in seconds: from a step of the demo model to minutes on a processor.
const SECONDS: [f64; 14] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0];
/// Upper bounds of counts: tokens and forwards.
const COUNTS: [f64; 10] = [1.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0, 4096.0];
/// Ways in which answers end. The last one is for every other.
const ENDS: [&str; 4] = ["stop", "length", "error", "other"];
/// Statuses of refusals. The last one is for every other.
const STATUSES: [&str; 12] = ["400", "401", "403", "404", "405", "408", "413", "429", "500", "503", "431", "other"];

/// A label with its value.
type Label = [(&'static str, &'static str); 1];

/// Counts and times of a server.
#[derive(Debug)]
pub struct Metrics {
    finished: Family<Label, Counter>,
    refused: Family<Label, Counter>,
    cancelled: Counter,
    admitted: Counter,
    failed: Counter,
    prompt_tokens: Counter,
    generation_tokens: Counter,
    first_text: Histogram,
    between: Histogram,
    total: Histogram,
    queue: Histogram,
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
        let (seconds, counts) = (|| Histogram::new(SECONDS), || Histogram::new(COUNTS));
        Self {
            finished: family("finish", &ENDS),
            refused: family("status", &STATUSES),
            cancelled: Counter::default(),
            admitted: Counter::default(),
            failed: Counter::default(),
            prompt_tokens: Counter::default(),
            generation_tokens: Counter::default(),
            first_text: seconds(),
            between: seconds(),
            total: seconds(),
            queue: seconds(),
            nfe: counts(),
            prompts: counts(),
            answers: counts(),
        }
    }
}

/// Returns a counter for each of a few words, which are never a client's.
fn family(label: &'static str, words: &[&'static str]) -> Family<Label, Counter> {
    let family = Family::default();
    for word in words {
        drop(family.get_or_create(&[(label, *word)]));
    }
    family
}

/// Counts a word; one without a counter of its own under the last one.
fn count(family: &Family<Label, Counter>, label: &'static str, words: &[&'static str], word: &str) {
    let known = words.iter().find(|known| **known == word).or_else(|| words.last());
    known.map(|known| family.get_or_create(&[(label, *known)]).inc());
}

impl Metrics {
    /// Counts a request that got a place.
    pub fn admitted(&self) {
        self.admitted.inc();
    }

    /// Counts a request that was refused.
    pub fn refused(&self, status: u16) {
        count(&self.refused, "status", &STATUSES, &status.to_string());
    }

    /// Counts a request whose client left.
    pub fn cancelled(&self) {
        self.cancelled.inc();
    }

    /// Counts a request that the engine could not end.
    pub fn failed(&self) {
        self.failed.inc();
        count(&self.finished, "finish", &ENDS, "error");
    }

    /// Counts the time that a request waited.
    pub fn entered(&self, queue: Duration) {
        self.queue.observe(queue.as_secs_f64());
    }

    /// Counts the time until the first text.
    pub fn first_text(&self, time: Duration) {
        self.first_text.observe(time.as_secs_f64());
    }

    /// Counts the time between two texts.
    pub fn next_text(&self, time: Duration) {
        self.between.observe(time.as_secs_f64());
    }

    /// Counts the time of a request that got all its answers.
    pub fn total(&self, time: Duration) {
        self.total.observe(time.as_secs_f64());
    }

    /// Counts an answer.
    pub fn answered(&self, finish: &str, answer: &Answered) {
        count(&self.finished, "finish", &ENDS, finish);
        self.prompt_tokens.inc_by(answer.prompt_tokens as u64);
        self.generation_tokens.inc_by(answer.generated_tokens as u64);
        self.nfe.observe(answer.nfe as f64);
        self.prompts.observe(answer.prompt_tokens as f64);
        self.answers.observe(answer.generated_tokens as f64);
    }

    /// Writes everything down, with the engine's own counts.
    pub fn write(&self, model: &str, engine: &EngineCounters, places: (usize, usize)) -> String {
        // The encoder writes values as they are.
        let model = model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let mut registry = Registry::default();
        self.register(&mut registry, engine, places);
        let info = [("version".into(), env!("CARGO_PKG_VERSION").into()), ("model".into(), model.clone().into())];
        gauge(registry.sub_registry_with_labels(info.into_iter()), "demask_build_info", "Version and model", 1);
        networks(&mut registry, engine);
        let labels = [("model_name".into(), model.into()), ("engine".into(), "0".into())];
        self.register_compatible(registry.sub_registry_with_labels(labels.into_iter()), engine);
        let mut text = String::new();
        // A text takes whatever is written.
        let _ = encode(&mut text, &registry);
        text
    }

    fn register(&self, registry: &mut Registry, engine: &EngineCounters, places: (usize, usize)) {
        let totals = &engine.totals;
        for (name, help, count) in [
            ("demask_requests_admitted", "Requests that were taken on", &self.admitted),
            ("demask_requests_cancelled", "Requests whose client left", &self.cancelled),
            ("demask_requests_failed", "Requests that the engine could not end", &self.failed),
            ("demask_prompt_tokens", "Tokens of prompts", &self.prompt_tokens),
            ("demask_generation_tokens", "Tokens of answers", &self.generation_tokens),
        ] {
            registry.register(name, help, count.clone());
        }
        registry.register("demask_answers", "Answers", self.finished.clone());
        registry.register("demask_refused", "Refusals", self.refused.clone());
        for (name, help, value) in [
            ("demask_places_taken", "Places that are taken", places.0 as u64),
            ("demask_places", "Places", places.1 as u64),
            ("demask_running", "Requests in the engine", totals.running as u64),
            ("demask_waiting", "Requests that wait for memory", totals.waiting as u64),
            ("demask_oldest_wait_forwards", "Age of the oldest of them", totals.oldest),
            ("demask_waiting_rows", "Positions of requests that run or wait", totals.waiting_rows),
            ("demask_mailboxes", "Requests of the engine that are not over", (totals.running + totals.waiting) as u64),
        ] {
            gauge(registry, name, help, value);
        }
        registry.register("demask_forwards", "Forwards of all networks", ConstCounter::new(totals.forwards));
        registry.register(
            "demask_leaks",
            "Times that an idle engine held memory: a bug",
            ConstCounter::new(totals.leaks),
        );
        for (name, help, histogram) in [
            ("demask_first_text_seconds", "From a request to its first text", &self.first_text),
            ("demask_between_texts_seconds", "Between 2 texts of a stream", &self.between),
            ("demask_request_seconds", "Whole requests", &self.total),
            ("demask_queue_seconds", "From a request to the beginning of its first forward", &self.queue),
            ("demask_nfe", "Forwards of an answer", &self.nfe),
            ("demask_request_prompt_tokens", "Tokens of a prompt", &self.prompts),
            ("demask_answer_tokens", "Tokens of an answer", &self.answers),
        ] {
            registry.register(name, help, histogram.clone());
        }
    }

    /// The names of vLLM's metrics that routers, autoscalers and dashboards read.
    fn register_compatible(&self, registry: &mut Registry, engine: &EngineCounters) {
        let totals = &engine.totals;
        // The model's own: its guides have pages of theirs.
        let own = engine.networks.first();
        let prefixes = own.and_then(|own| own.prefixes).map_or((0, 0), |prefixes| (prefixes.queries, prefixes.hits));
        let share = |own: &NetworkCounters| Some(own.pages.used as f64 / own.page_capacity? as f64);
        let usage = own.and_then(share).unwrap_or(0.0);
        gauge(registry, "vllm:num_requests_running", "Requests in the engine", totals.running as u64);
        gauge(registry, "vllm:num_requests_waiting", "Requests that wait for memory", totals.waiting as u64);
        registry.register("vllm:kv_cache_usage_perc", "Share of pages in use", ConstGauge::new(usage));
        registry.register("vllm:prompt_tokens", "Tokens of prompts", self.prompt_tokens.clone());
        registry.register("vllm:generation_tokens", "Tokens of answers", self.generation_tokens.clone());
        for (name, help, value) in [
            ("vllm:num_preemptions", "Requests that gave up their memory", totals.preempted),
            ("vllm:prefix_cache_queries", "Tokens of prompts that were looked up", prefixes.0),
            ("vllm:prefix_cache_hits", "Tokens of prompts that were found", prefixes.1),
        ] {
            registry.register(name, help, ConstCounter::new(value));
        }
        let success = family("finished_reason", &ENDS[..2]);
        for finish in &ENDS[..2] {
            let made = self.finished.get_or_create(&[("finish", *finish)]).get();
            success.get_or_create(&[("finished_reason", *finish)]).inc_by(made);
        }
        registry.register("vllm:request_success", "Answers", success);
        for (name, help, histogram) in [
            ("vllm:time_to_first_token_seconds", "From a request to its first text", &self.first_text),
            ("vllm:inter_token_latency_seconds", "Between 2 texts of a stream", &self.between),
            ("vllm:e2e_request_latency_seconds", "Whole requests", &self.total),
            ("vllm:request_queue_time_seconds", "From a request to its first forward", &self.queue),
            ("vllm:request_prompt_tokens", "Tokens of a prompt", &self.prompts),
            ("vllm:request_generation_tokens", "Tokens of an answer", &self.answers),
        ] {
            registry.register(name, help, histogram.clone());
        }
    }
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    registry.register(name, help, ConstGauge::new(value));
}

/// Metrics of each network: forwards, rows, open sequences; of all together their pages of K/V, and published prefixes.
fn networks(registry: &mut Registry, engine: &EngineCounters) {
    registry.register("demask_network_forwards", "Forwards", Each::counter(engine, |network| network.forwards));
    registry.register("demask_network_rows", "Rows of forwards", Each::counter(engine, |network| network.rows));
    let open = engine.networks.iter().map(|network| ConstGauge::new(network.open as u64)).collect();
    let open = Each { kind: MetricType::Gauge, values: open };
    registry.register("demask_network_open_sequences", "Sequences that hold memory", open);
    let sum = |of: fn(&NetworkCounters) -> u64| engine.networks.iter().map(of).sum::<u64>();
    for (name, help, value) in [
        ("demask_pages_used", "Pages of K/V that requests hold", sum(|network| network.pages.used as u64)),
        ("demask_pages_free", "Pages without a holder", sum(|network| network.pages.free as u64)),
        ("demask_pages_idle", "Pages kept for prompts to come", sum(|network| network.pages.idle as u64)),
        ("demask_pages_capacity", "Pages that there can be", sum(|network| network.page_capacity.unwrap_or(0))),
        (
            "demask_prefix_cache_bytes",
            "Bytes of K/V of earlier prompts that are kept at most",
            sum(|network| network.prefixes.map_or(0, |prefixes| prefixes.capacity)),
        ),
    ] {
        gauge(registry, name, help, value);
    }
    let (queries, hits) = (
        sum(|network| network.prefixes.map_or(0, |prefixes| prefixes.queries)),
        sum(|network| network.prefixes.map_or(0, |prefixes| prefixes.hits)),
    );
    registry.register("demask_prefix_queries", "Tokens of prompts that were looked up", ConstCounter::new(queries));
    registry.register("demask_prefix_hits", "Tokens of prompts that were found", ConstCounter::new(hits));
}

/// A value for each network.
#[derive(Debug)]
struct Each<M> {
    kind: MetricType,
    values: Vec<M>,
}

impl Each<ConstCounter<u64>> {
    fn counter(engine: &EngineCounters, of: fn(&NetworkCounters) -> u64) -> Self {
        let kind = MetricType::Counter;
        Self { kind, values: engine.networks.iter().map(|network| ConstCounter::new(of(network))).collect() }
    }
}

impl<M: EncodeMetric + fmt::Debug> EncodeMetric for Each<M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (index, value) in self.values.iter().enumerate() {
            let name = match index {
                0 => "model".to_owned(),
                1 => "guide".to_owned(),
                more => format!("guide-{more}"),
            };
            value.encode(encoder.encode_family(&[("network", name)])?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        self.kind
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_line_is_of_the_format() {
        let metrics = Metrics::default();
        metrics.refused(418);
        metrics.first_text(Duration::from_millis(300));
        metrics.answered("stop", &Answered { prompt_tokens: 3, generated_tokens: 2, nfe: 1 });
        let engine = EngineCounters { networks: vec![NetworkCounters::default(); 2], ..EngineCounters::default() };
        let text = metrics.write("a\"b\\c\nd", &engine, (0, 4));
        assert!(text.contains("model=\"a\\\"b\\\\c\\nd\""), "{text}");
        for line in [
            "demask_refused_total{status=\"other\"} 1\n",
            "demask_answers_total{finish=\"stop\"} 1\n",
            "demask_answers_total{finish=\"length\"} 0\n",
            "demask_requests_cancelled_total 0\n",
            "demask_places 4\n",
            "demask_network_rows_total{network=\"guide\"} 0\n",
            "demask_first_text_seconds_bucket{le=\"0.25\"} 0\n",
            "demask_first_text_seconds_bucket{le=\"0.5\"} 1\n",
            "demask_first_text_seconds_count 1\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(text.contains("vllm:num_requests_running{") && text.ends_with("# EOF\n"), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(name.starts_with("demask_") || name.starts_with("vllm:"), "{line}");
        }
        // A name has one type, before its values.
        let types: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        let distinct: HashSet<_> = types.iter().collect();
        assert_eq!(types.len(), distinct.len(), "{types:?}");
    }
}
