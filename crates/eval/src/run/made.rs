//! What made the results of a directory: the program, the machine, and the calls.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use demask::{
    DeviceChoice, DeviceOptions, UnusableDevice, doctor::processor, fingerprint::fingerprint,
    layers::cpu::total_memory, receipt::VERSION,
};
use serde::{Deserialize, Serialize};

/// Program, machine and calls that made results.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MadeBy {
    /// Version of the program.
    pub version: String,
    /// Commit that it was built from; none where it was built outside its repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Records whether files differed from the commit when it was built.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dirty: bool,
    /// Fingerprint of the executable.
    pub executable: String,
    /// Name of the processor.
    pub processor: String,
    /// Cores that the program may use.
    pub cores: usize,
    /// Memory of the machine in bytes; 0 where the system does not say.
    pub memory: u64,
    /// Items at a time.
    pub batch: usize,
    /// Place where each row ran, by its name in records.
    pub rows: BTreeMap<String, RanOn>,
    /// The calls that made items, in their order: the first one, and those that continued it.
    pub calls: Vec<Call>,
}

/// Place where a row ran.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RanOn {
    /// The device: `cpu`, `cuda:0`.
    pub device: String,
    /// Instruction set of the processor that computed; empty on a GPU.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tier: String,
    /// Threads that computed.
    pub threads: usize,
}

/// A call that made items.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Call {
    /// The command line.
    pub command: String,
    /// Start, in UTC.
    pub began: String,
    /// End, in UTC; none of a call that was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Load average of the last minute at the start; none where the system does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_began: Option<f64>,
    /// Load average of the last minute at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_ended: Option<f64>,
}

impl Call {
    /// Begins a call now.
    pub fn begin(command: String) -> Self {
        Self { command, began: now(), load_began: load(), ..Self::default() }
    }

    /// Ends it now.
    pub fn end(&mut self) {
        (self.ended, self.load_ended) = (Some(now()), load());
    }
}

impl MadeBy {
    /// Returns what makes results here, `batch` of them at a time. `executable` is the file of the program or library that runs,
    /// `rows` has the device of each row by its name in records. The commit is the program's to say.
    ///
    /// # Errors
    /// If a device cannot be used.
    pub fn here<'a>(
        executable: Option<&Path>,
        batch: usize,
        rows: impl Iterator<Item = (&'a str, &'a DeviceOptions)>,
    ) -> Result<Self, UnusableDevice> {
        let rows = rows.map(|(name, device)| Ok((name.to_owned(), RanOn::of(device)?)));
        let bytes = executable.and_then(|path| fs::read(path).ok());
        Ok(Self {
            version: VERSION.to_owned(),
            executable: bytes.map(|bytes| format!("{:016x}", fingerprint([bytes]))).unwrap_or_default(),
            processor: processor(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory: total_memory(),
            batch,
            rows: rows.collect::<Result<_, UnusableDevice>>()?,
            ..Self::default()
        })
    }

    /// Returns the first difference from another call that no row may mix: its name, its earlier value and its present
    /// value.
    pub fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let text = |made: &Self| {
            let Self { version, commit, dirty, executable, processor, batch, .. } = made.clone();
            let commit = commit.unwrap_or_else(|| "none".to_owned()) + if dirty { ", changed" } else { "" };
            [
                ("version", version),
                ("commit", commit),
                ("executable", executable),
                ("processor", processor),
                ("batch", batch.to_string()),
            ]
        };
        let both = text(self).into_iter().zip(text(other));
        let rows = self.rows.iter().filter_map(|(name, was)| Some((was, other.rows.get(name)?)));
        let places = rows.flat_map(|(was, is)| {
            let text = |on: &RanOn| {
                [("device", on.device.clone()), ("tier", on.tier.clone()), ("threads", on.threads.to_string())]
            };
            text(was).into_iter().zip(text(is))
        });
        let mut differing = both.chain(places).filter(|((_, was), (_, is))| was != is);
        differing.next().map(|((name, was), (_, is))| (name, was, is))
    }

    /// Takes over the calls and rows of earlier calls.
    #[must_use]
    pub fn after(&self, earlier: Self) -> Self {
        let rows = earlier.rows.into_iter().chain(self.rows.clone()).collect();
        Self { rows, calls: earlier.calls, ..self.clone() }
    }

    /// Returns it in lines for people: names and values.
    pub fn lines(&self) -> Vec<[String; 2]> {
        let (first, last) = (self.calls.first(), self.calls.last());
        let changed = if self.dirty { ", and changes" } else { "" };
        let commit = self.commit.as_ref().map(|commit| format!(", commit {commit}{changed}")).unwrap_or_default();
        let mut places: Vec<String> = self.rows.values().map(ToString::to_string).collect();
        places.sort_unstable();
        places.dedup();
        let memory = self.memory as f64 / f64::from(1 << 30);
        let machine = format!("{}, {} cores, {memory:.1} GiB of memory", self.processor, self.cores);
        let ended = last.and_then(|call| call.ended.clone()).unwrap_or_else(|| "not ended".to_owned());
        let loads = self.calls.iter().flat_map(|call| [call.load_began, call.load_ended]).flatten();
        let loads: Vec<String> = loads.map(|load| format!("{load:.2}")).collect();
        let line = |name: &str, value: String| [name.to_owned(), value];
        let lines = [
            line("program", format!("demask {}{commit}, executable {}", self.version, self.executable)),
            line("machine", machine),
            line("ran on", places.join("; ")),
            line("batch", self.batch.to_string()),
            line("command", first.map(|call| call.command.clone()).unwrap_or_default()),
            line("began, ended", format!("{}, {ended}", first.map_or("", |call| &call.began))),
            line("load at the start and end of each call", loads.join(", ")),
            line("continued", format!("{} times", self.calls.len().saturating_sub(1))),
        ];
        lines.into_iter().filter(|[_, value]| !value.is_empty()).collect()
    }
}

impl RanOn {
    fn of(device: &DeviceOptions) -> Result<Self, UnusableDevice> {
        let tier = if matches!(device.device, DeviceChoice::Cuda(_)) { "" } else { device.isa()?.tier().name() };
        Ok(Self { device: device.device.to_string(), tier: tier.to_owned(), threads: device.thread_count()? })
    }
}

impl std::fmt::Display for RanOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { device, tier, threads } = self;
        let tier = if tier.is_empty() { String::new() } else { format!(" {tier}") };
        write!(f, "{device}{tier}, {threads} threads")
    }
}

/// Load average of the last minute; none where the system does not say.
fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

fn now() -> String {
    utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Returns seconds since 1970 as a date and time in UTC.
fn utc(seconds: u64) -> String {
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }

    #[test]
    fn rows_of_other_calls_are_no_difference() {
        let of = |row: &str, threads| {
            let rows = BTreeMap::from([(row.to_owned(), RanOn { device: "cpu".into(), tier: "avx2".into(), threads })]);
            MadeBy { batch: 1, rows, ..MadeBy::default() }
        };
        assert_eq!(of("a", 1).difference(&of("b", 2)), None);
        assert_eq!(of("a", 1).difference(&of("a", 2)), Some(("threads", "1".to_owned(), "2".to_owned())));
        let changed = MadeBy { commit: Some("c".into()), dirty: true, ..of("a", 1) };
        let clean = MadeBy { dirty: false, ..changed.clone() };
        assert_eq!(clean.difference(&changed), Some(("commit", "c".to_owned(), "c, changed".to_owned())));
    }
}
