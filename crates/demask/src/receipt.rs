//! Receipt of an answer: the record of how it was made, part of every result.

use demask_step::DeviceMemory;
use serde::Serialize;

use crate::Options;

/// Version of this program, as receipts have it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Methods, counts, time and memory of one answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Receipt {
    /// Version of the program.
    pub version: String,
    /// The model.
    pub model: String,
    /// Device, tier, threads, element type.
    pub device: String,
    /// Methods, claims and counts.
    #[serde(flatten)]
    pub decoding: demask_decode::DecodingReceipt,
    /// Options of the answer that the other fields do not have, each with its value: with these fields enough to decode alike.
    /// `steps` is among them only where a number was set.
    pub settings: Options,
    /// How to get a longer answer, if its length, a deadline or memory cut this one; names of options stand in backticks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<String>,
    /// Reason why the method wins little on this model, if it is one that it was not trained for, or why a canvas of this length
    /// may have a wrong answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Forwards of the guide.
    pub guide_nfe: usize,
    /// Counts of the guide, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guide: Option<Guided>,
    /// Time of each part.
    pub seconds: Seconds,
    /// Memory of each part.
    pub memory: MemoryUse,
}

/// Counts of a guide.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Guided {
    /// The guide.
    pub model: String,
    /// Live rows of its forwards.
    pub rows: usize,
    /// Tokens of its prompt that were not computed, because another request had left their K/V; left out if there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub cached_tokens: usize,
    /// Floating point operations by formula.
    pub flops: f64,
    /// Drafts that it agreed with.
    pub accepted: usize,
    /// Drafts that it disagreed with, the first of a step.
    pub rejected: usize,
    /// The share of accepted ones among both.
    pub acceptance: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Seconds by part. Where requests share forwards, a request's part of a forward is its rows' (see
/// [`Spent`](demask_engine::Spent)), so that the seconds of all requests together are the clock's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Seconds {
    /// Loading the model, before the answer.
    pub load: f64,
    /// Inside the network.
    pub model: f64,
    /// Inside the guide.
    pub guide: f64,
    /// Wall time from the request to the first tokens that were final, others' parts included; `wall` where there are none.
    pub first_token: f64,
    /// The whole answer, loading not included.
    pub total: f64,
    /// Wall time from the request to its end, others' parts included: `total` if it ran alone.
    pub wall: f64,
    /// Tokens a second of wall time: of a causal model those after the first ones, so that the time of the prompt does not count,
    /// of others all tokens in all of the time.
    pub tokens_per_second: f64,
}

/// Bytes by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryUse {
    /// Packed weights.
    pub weights: usize,
    /// Packed weights of all guides.
    pub guide: usize,
    /// K/V pages.
    pub cache: usize,
    /// Peak resident memory of the process.
    pub peak: u64,
    /// Device memory of the model and its guides; left out where the processor computes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceUse>,
}

/// Bytes of a GPU's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DeviceUse {
    /// Allocated by the model and its guides when the answer was done.
    pub current: u64,
    /// Allocated by them at most; where several networks take some, the sum of their peaks.
    pub peak: u64,
    /// Bytes in use on the whole card when the answer was done, as its driver reports them, including those of other
    /// processes and of the driver itself.
    pub in_use: u64,
}

impl From<DeviceMemory> for DeviceUse {
    fn from(memory: DeviceMemory) -> Self {
        let DeviceMemory { current, peak, in_use } = memory;
        Self { current, peak, in_use }
    }
}

/// Peak resident memory of this process in bytes; 0 where the system does not report it.
pub fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.unwrap_or(0) * 1024
}

/// Lets [`peak_memory`] begin again with the memory that is resident now. Where the system does not offer it, nothing changes.
pub fn forget_peak_memory() {
    // 5: the peak alone (proc_pid_clear_refs(5)).
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
