//! Report of a load: a column of a table, or an object as vLLM's benchmark writes it.

use std::{fmt::Write, time::Duration};

use serde_json::{Map, Value, json};

use super::{
    answer::{Answer, Times},
    load::{Outcome, Run, Sample},
    plan::{Bounds, Load, Plan},
    statistics::Summary,
};

/// The measurement of one load.
pub struct Report {
    load: Load,
    /// Seconds from the first request to the last answer's end.
    duration: f64,
    counts: Counts,
    /// Tokens of all prompts and of all answers; `None` if a finished answer has no usage.
    tokens: Option<(u64, u64)>,
    /// Times in milliseconds: to the first text, for each token behind it, between texts, the whole answer, in the
    /// queue.
    ttft: Option<Summary>,
    tpot: Option<Summary>,
    itl: Option<Summary>,
    e2el: Option<Summary>,
    queue: Option<Summary>,
    /// Time until a request was refused, in milliseconds.
    refusal: Option<Summary>,
    /// Delay between planned and actual start of requests, in milliseconds (open loop).
    late: Option<Summary>,
    forwards: Option<Summary>,
    rows_per_forward: Option<f64>,
    /// Answers inside the bounds, a second.
    goodput: Option<f64>,
    /// Processor seconds of the server and of this client.
    processors: Option<(f64, f64)>,
}

struct Counts {
    finished: usize,
    refused: usize,
    /// Number of refused requests with a `Retry-After`.
    say_when: usize,
    failed: usize,
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The finished ones of a run.
pub fn finished(run: &Run) -> impl Iterator<Item = (&Sample, &Answer, &Times)> {
    run.samples.iter().filter_map(|sample| match &sample.outcome {
        Outcome::Finished(finished) => Some((sample, &finished.0, &finished.1)),
        _ => None,
    })
}

impl Report {
    /// Summarises a run, with the processor seconds that server and client took for it.
    pub fn new(load: Load, run: &Run, bounds: Option<&Bounds>, processors: Option<(f64, f64)>) -> Self {
        let times = || finished(run).map(|(_, _, times)| times);
        let summary = |values: &mut dyn Iterator<Item = f64>| Summary::of(values.collect());
        let refusals = run.samples.iter().filter_map(|sample| match sample.outcome {
            Outcome::Refused { after, says_when } => Some((after, says_when)),
            _ => None,
        });
        let refusals: Vec<_> = refusals.collect();
        let receipts: Option<Vec<_>> = finished(run).map(|(_, answer, _)| answer.receipt).collect();
        let receipts = receipts.filter(|receipts| !receipts.is_empty());
        let all_forwards = receipts.iter().flatten().map(|receipt| receipt.forwards).sum::<u64>();
        let all_rows = receipts.iter().flatten().map(|receipt| receipt.rows).sum::<u64>();
        let good = |bounds: &Bounds| times().filter(|times| is_good(times, bounds)).count() as f64 / run.seconds;
        Self {
            load,
            duration: run.seconds,
            counts: Counts::of(run, &refusals),
            tokens: tokens(run),
            ttft: summary(&mut times().filter_map(|times| times.first_text).map(milliseconds)),
            tpot: summary(&mut finished(run).filter_map(|(_, answer, times)| per_token(answer, times))),
            itl: summary(&mut times().flat_map(|times| &times.gaps).copied().map(milliseconds)),
            e2el: summary(&mut times().map(|times| milliseconds(times.total))),
            queue: summary(&mut times().filter_map(|times| times.queue).map(milliseconds)),
            refusal: summary(&mut refusals.iter().map(|&(after, _)| milliseconds(after))),
            late: match load {
                Load::Open(_) => summary(&mut run.samples.iter().map(|sample| milliseconds(sample.late))),
                Load::Closed(_) => None,
            },
            forwards: receipts.and_then(|all| summary(&mut all.iter().map(|receipt| receipt.forwards as f64))),
            rows_per_forward: (all_forwards > 0).then(|| all_rows as f64 / all_forwards as f64),
            goodput: bounds.map(good),
            processors,
        }
    }

    /// Writes the object of vLLM's benchmark, followed by fields that vLLM's lacks.
    pub fn json(&self, plan: &Plan, model: &str, run: &Run) -> Value {
        let (input, output) = self.tokens.unzip();
        let per_second = |count: Option<u64>| count.map(|count| count as f64 / self.duration);
        let (rate, at_once) = match self.load {
            Load::Closed(count) => (json!("inf"), Some(count)),
            Load::Open(rate) => (json!(rate), None),
        };
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        put("backend", json!(if plan.endpoint.path().contains("chat") { "openai-chat" } else { "openai" }));
        put("model_id", json!(model));
        put("num_prompts", json!(plan.requests));
        put("request_rate", rate);
        put("max_concurrency", json!(at_once));
        put("duration", json!(self.duration));
        put("completed", json!(self.counts.finished));
        put("failed", json!(self.counts.failed + self.counts.refused));
        put("total_input_tokens", json!(input));
        put("total_output_tokens", json!(output));
        put("request_throughput", json!(self.requests_per_second()));
        put("request_goodput", json!(self.goodput));
        put("output_throughput", json!(per_second(output)));
        put("total_token_throughput", json!(per_second(input.zip(output).map(|(input, output)| input + output))));
        let times = [
            ("ttft_ms", self.ttft),
            ("tpot_ms", self.tpot),
            ("itl_ms", self.itl),
            ("e2el_ms", self.e2el),
            ("queue_ms", self.queue),
            ("refusal_ms", self.refusal),
            ("late_ms", self.late),
            ("forwards", self.forwards),
        ];
        for (name, summary) in times {
            put(&format!("mean_{name}"), json!(summary.map(|summary| summary.mean)));
            put(&format!("median_{name}"), json!(summary.map(|summary| summary.median)));
            put(&format!("std_{name}"), json!(summary.map(|summary| summary.deviation)));
            put(&format!("p90_{name}"), json!(summary.map(|summary| summary.p90)));
            put(&format!("p99_{name}"), json!(summary.map(|summary| summary.p99)));
        }
        put("rows_per_forward", json!(self.rows_per_forward));
        put("refused", json!(self.counts.refused));
        put("refused_with_retry_after", json!(self.counts.say_when));
        put("server_processor_seconds", json!(self.processors.map(|(server, _)| server)));
        put("client_processor_seconds", json!(self.processors.map(|(_, client)| client)));
        put("seed", json!(plan.seed));
        if plan.details {
            object.extend(details(run));
        }
        Value::Object(object)
    }

    /// Rows of the table, names and values; `-` where nothing was reported.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let spread = |summary: Option<Summary>| match summary {
            Some(Summary { median, p90, p99, .. }) => format!("{median:.1} {p90:.1} {p99:.1}"),
            None => "-".to_owned(),
        };
        let Counts { finished, refused, failed, .. } = self.counts;
        let output = self.tokens.map(|(_, output)| output as f64 / self.duration);
        vec![
            ("load", self.load.to_string()),
            ("finished, refused, failed", format!("{finished} {refused} {failed}")),
            ("seconds", format!("{:.2}", self.duration)),
            ("requests/s", format!("{:.2}", self.requests_per_second())),
            ("requests/s inside --slo", number(self.goodput, 2)),
            ("answer tokens/s", number(output, 1)),
            ("first text, ms: p50 p90 p99", spread(self.ttft)),
            ("gaps between texts, ms", spread(self.itl)),
            ("whole answer, ms", spread(self.e2el)),
            ("in the queue, ms", spread(self.queue)),
            ("until refused, ms", spread(self.refusal)),
            ("sent late, ms", spread(self.late)),
            ("forwards of an answer", number(self.forwards.map(|forwards| forwards.mean), 1)),
            ("its own rows of a forward", number(self.rows_per_forward, 1)),
            ("server's processor seconds", number(self.processors.map(|(server, _)| server), 2)),
            ("client's processor seconds", number(self.processors.map(|(_, client)| client), 2)),
        ]
    }

    fn requests_per_second(&self) -> f64 {
        self.counts.finished as f64 / self.duration
    }
}

impl Counts {
    fn of(run: &Run, refusals: &[(Duration, bool)]) -> Self {
        let failed = run.samples.iter().filter(|sample| matches!(sample.outcome, Outcome::Failed(_))).count();
        Self {
            finished: finished(run).count(),
            refused: refusals.len(),
            say_when: refusals.iter().filter(|(_, says_when)| *says_when).count(),
            failed,
        }
    }
}

/// Tokens of prompts and answers, if every finished answer has them.
fn tokens(run: &Run) -> Option<(u64, u64)> {
    let usages: Option<Vec<_>> = finished(run).map(|(_, answer, _)| answer.usage).collect();
    let usages = usages?;
    let sum = |count: fn(&super::answer::Usage) -> u64| usages.iter().map(count).sum();
    Some((sum(|usage| usage.prompt_tokens), sum(|usage| usage.completion_tokens)))
}

/// Milliseconds of each token behind the first text, as vLLM counts them.
fn per_token(answer: &Answer, times: &Times) -> Option<f64> {
    let tokens = answer.usage?.completion_tokens;
    let behind = times.total.saturating_sub(times.first_text?);
    (tokens > 1).then(|| milliseconds(behind) / (tokens - 1) as f64)
}

/// Returns whether an answer keeps all bounds. One without text has no first text to wait for.
fn is_good(times: &Times, bounds: &Bounds) -> bool {
    let keeps = |bound: Option<Duration>, time: Option<Duration>| match (bound, time) {
        (Some(bound), Some(time)) => time <= bound,
        _ => true,
    };
    keeps(bounds.ttft, times.first_text)
        && keeps(bounds.gap, times.gaps.iter().max().copied())
        && keeps(bounds.total, Some(times.total))
}

/// Lists of all requests, as vLLM's benchmark writes them: empty texts and zeros where there was no answer.
fn details(run: &Run) -> Map<String, Value> {
    let of = |value: &dyn Fn(&Answer, &Times) -> Value, none: Value| {
        let one = |sample: &Sample| match &sample.outcome {
            Outcome::Finished(finished) => value(&finished.0, &finished.1),
            _ => none.clone(),
        };
        Value::Array(run.samples.iter().map(one).collect())
    };
    let seconds = |time: Option<Duration>| json!(time.unwrap_or_default().as_secs_f64());
    let error = |sample: &Sample| match &sample.outcome {
        Outcome::Finished(_) => json!(""),
        Outcome::Refused { .. } => json!("refused"),
        Outcome::Failed(failure) => json!(failure.to_string()),
    };
    let text = |answer: &Answer| answer.choices.first().map(|choice| choice.text.clone()).unwrap_or_default();
    let lists = [
        ("input_lens", of(&|answer, _| json!(answer.usage.map_or(0, |usage| usage.prompt_tokens)), json!(0))),
        ("output_lens", of(&|answer, _| json!(answer.usage.map_or(0, |usage| usage.completion_tokens)), json!(0))),
        ("ttfts", of(&|_, times| seconds(times.first_text), json!(0.0))),
        ("itls", of(&|_, times| times.gaps.iter().map(|&gap| seconds(Some(gap))).collect(), json!([]))),
        ("e2els", of(&|_, times| seconds(Some(times.total)), json!(0.0))),
        ("generated_texts", of(&|answer, _| json!(text(answer)), json!(""))),
        ("errors", run.samples.iter().map(error).collect()),
    ];
    lists.into_iter().map(|(name, list)| (name.to_owned(), list)).collect()
}

/// Columns beside each other, a row for whatever any of them has.
pub fn table(reports: &[Report]) -> String {
    let columns: Vec<_> = reports.iter().map(Report::rows).collect();
    let Some(first) = columns.first() else { return String::new() };
    let names = first.iter().map(|(name, _)| *name);
    let wide = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let name_width = wide(&mut names.clone().map(str::len));
    let widths: Vec<_> = columns.iter().map(|column| wide(&mut column.iter().map(|(_, value)| value.len()))).collect();
    let mut text = String::new();
    for (at, name) in names.enumerate() {
        let values: Vec<_> = columns.iter().map(|column| column[at].1.as_str()).collect();
        if values.iter().all(|value| *value == "-") {
            continue;
        }
        let cells: Vec<_> = values.iter().zip(&widths).map(|(value, &width)| format!("{value:>width$}")).collect();
        let _ = writeln!(text, "{name:<name_width$}  {}", cells.join("  "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::serve::{
        answer::{Receipt, Usage},
        http::Failure,
    };

    fn answered(number: usize, first: u64, gaps: &[u64], total: u64) -> Sample {
        let of = Duration::from_millis;
        let answer = Answer {
            usage: Some(Usage { prompt_tokens: 3, completion_tokens: 5 }),
            receipt: Some(Receipt { forwards: 4, rows: 40 }),
            ..Answer::default()
        };
        let times = Times {
            first_text: Some(of(first)),
            gaps: gaps.iter().copied().map(of).collect(),
            total: of(total),
            queue: None,
        };
        Sample { number, late: of(1), outcome: Outcome::Finished(Box::new((answer, times))) }
    }

    fn run() -> Run {
        let refused = Outcome::Refused { after: Duration::from_millis(2), says_when: true };
        let failed = Outcome::Failed(Failure::Reported("x".into()));
        let late = Duration::ZERO;
        let samples = vec![
            answered(0, 10, &[5, 7], 30),
            answered(1, 20, &[50], 80),
            Sample { number: 2, late, outcome: refused },
            Sample { number: 3, late, outcome: failed },
        ];
        Run { samples, seconds: 2.0 }
    }

    #[test]
    fn rates_and_goodput_count_finished_answers_alone() {
        let bounds: Bounds = "ttft=15ms".parse().unwrap();
        let report = Report::new(Load::Closed(2), &run(), Some(&bounds), Some((1.5, 0.25)));
        let rows: std::collections::HashMap<_, _> = report.rows().into_iter().collect();
        assert_eq!(rows["finished, refused, failed"], "2 1 1");
        assert_eq!(rows["requests/s"], "1.00");
        assert_eq!(rows["requests/s inside --slo"], "0.50");
        assert_eq!(rows["answer tokens/s"], "5.0");
        assert_eq!(rows["first text, ms: p50 p90 p99"], "15.0 19.0 19.9");
        assert_eq!(rows["until refused, ms"], "2.0 2.0 2.0");
        assert_eq!(
            (rows["forwards of an answer"].as_str(), rows["its own rows of a forward"].as_str()),
            ("4.0", "10.0")
        );
        assert_eq!((rows["in the queue, ms"].as_str(), rows["sent late, ms"].as_str()), ("-", "-"));
        assert_eq!(rows["server's processor seconds"], "1.50");
    }

    #[test]
    fn every_bound_is_kept_or_not() {
        let run = run();
        let good = |bounds: &str| {
            let bounds: Bounds = bounds.parse().unwrap();
            finished(&run).filter(|(_, _, times)| is_good(times, &bounds)).count()
        };
        assert_eq!([good("ttft=10ms"), good("ttft=9ms")], [1, 0]);
        assert_eq!([good("gap=7ms"), good("gap=6ms"), good("gap=50ms")], [1, 0, 2]);
        assert_eq!([good("total=80ms"), good("total=79ms"), good("ttft=20ms,total=79ms")], [2, 1, 1]);
    }

    #[test]
    fn tables_leave_out_what_nobody_tells() {
        let reports =
            [Report::new(Load::Open(2.0), &run(), None, None), Report::new(Load::Open(4.0), &run(), None, None)];
        let table = table(&reports);
        assert!(table.starts_with("load                         "), "{table}");
        assert!(table.contains("sent late, ms") && !table.contains("queue") && !table.contains("--slo"));
        let widths: Vec<_> = table.lines().map(str::len).collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
    }
}
