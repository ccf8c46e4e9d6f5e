//! Available memory: free memory of the system, within control groups and the limits of the process.

use std::{
    fs,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use demask_step::OutOfMemory;
use demask_tensor::AlignedBytes;

/// Time for which a reading counts: small requests come by the thousand a second, and a reading takes 20 files.
const FRESH: Duration = Duration::from_millis(50);

/// The last reading.
static LAST: Mutex<Option<Reading>> = Mutex::new(None);

/// Bytes of pages that somebody holds and has not written yet. The system gives their memory when they are written, and
/// counts it as free until then.
static PROMISED: AtomicU64 = AtomicU64::new(0);

/// Counts bytes that are granted before the system gives them.
pub(crate) fn promise(bytes: u64) {
    PROMISED.fetch_add(bytes, Ordering::Relaxed);
}

/// Counts promised bytes that the system has given, or that were given up.
pub(crate) fn keep(bytes: u64) {
    PROMISED.fetch_sub(bytes, Ordering::Relaxed);
}

/// A reading of the memory that is left, less the grants since.
struct Reading {
    at: Instant,
    rest: u64,
}

impl Reading {
    /// Grants `needed` bytes without another reading: while this one is fresh, and at most a quarter of its rest, since
    /// others take memory, too.
    fn grant(&mut self, needed: u64, now: Instant) -> bool {
        let granted = now.duration_since(self.at) < FRESH && needed <= self.rest / 4;
        if granted {
            self.rest -= needed;
        }
        granted
    }
}

/// Reports whether `needed` more bytes may be taken.
pub(crate) fn check(needed: u64) -> Result<(), OutOfMemory> {
    // The system's reports are files: a request whose pages are all reused does not read them.
    if needed == 0 {
        return Ok(());
    }
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    if last.as_mut().is_some_and(|last| last.grant(needed, now)) {
        return Ok(());
    }
    let available = available();
    *last = Some(Reading { at: now, rest: available.saturating_sub(needed) });
    if needed <= available { Ok(()) } else { Err(OutOfMemory { needed, available }) }
}

/// Zeroed memory, unless the system refuses it.
pub(crate) fn zeroed(bytes: usize) -> Result<AlignedBytes, OutOfMemory> {
    AlignedBytes::try_zeroed(bytes).ok_or_else(|| refused(bytes))
}

/// The error of an allocation that the system has refused.
pub(crate) fn refused(bytes: usize) -> OutOfMemory {
    OutOfMemory { needed: bytes as u64, available: available() }
}

/// Returns the bytes of memory that this process may still take, the least of three: the memory that the system gives
/// without swapping and the rest of control groups, both less the pages promised and not written yet, and the rest of
/// the process's limits (`ulimit -d`, `ulimit -v`), which count mapped memory. `u64::MAX` where none is known.
pub fn available() -> u64 {
    let system = system("MemAvailable:");
    #[cfg(target_os = "macos")]
    let system = system.or_else(crate::macos::available);
    let groups = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| group_available(&text));
    let status = fs::read_to_string("/proc/self/status").ok();
    let limits = fs::read_to_string("/proc/self/limits").ok();
    let own = limits.zip(status).and_then(|(limits, status)| own_available(&limits, &status));
    let promised = PROMISED.load(Ordering::Relaxed);
    let given = [system, groups].into_iter().flatten().map(|rest| rest.saturating_sub(promised));
    given.chain(own).min().unwrap_or(u64::MAX)
}

/// Memory that the limits of the process on its data and on its address space leave (`ulimit -d` and `-v`).
fn own_available(limits: &str, status: &str) -> Option<u64> {
    let rest = |limit: Option<u64>, used: &str| Some(limit?.saturating_sub(kibibytes(status, used)?));
    let rests = [rest(entry(limits, "Max data size"), "VmData:"), rest(entry(limits, "Max address space"), "VmSize:")];
    rests.into_iter().flatten().min()
}

/// Bytes of the machine's memory; 0 where nothing is known.
pub fn total() -> u64 {
    let total = system("MemTotal:");
    #[cfg(target_os = "macos")]
    let total = total.or_else(|| crate::macos::number(c"hw.memsize"));
    total.unwrap_or(0)
}

/// An entry of Linux's report.
fn system(name: &str) -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/meminfo").ok()?, name)
}

/// The bytes of an entry that a report has in KiB.
fn kibibytes(report: &str, name: &str) -> Option<u64> {
    entry(report, name)?.checked_mul(1024)
}

/// The number after a name at the start of a report's line.
fn entry(report: &str, name: &str) -> Option<u64> {
    report.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Memory that the tightest control group of this process leaves: limits hold for a group and everything below it.
fn group_available(groups: &str) -> Option<u64> {
    groups.lines().filter_map(group_directory).filter_map(|(root, path)| tightest(root, path)).min()
}

/// Folder of the memory limits of a line of `/proc/self/cgroup`, and the group's path there: `0::/path` in the unified
/// hierarchy, `id:controllers:/path` in the older ones.
fn group_directory(line: &str) -> Option<(&'static str, &str)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    match controllers {
        "" => Some(("/sys/fs/cgroup", path)),
        _ if controllers.split(',').any(|name| name == "memory") => Some(("/sys/fs/cgroup/memory", path)),
        _ => None,
    }
}

/// The smallest rest of a group and its ancestors. Inside a container the path may name a directory that is not
/// visible; then only the visible ancestors count.
fn tightest(root: &str, path: &str) -> Option<u64> {
    let mut path = path.trim_end_matches('/');
    let mut smallest = None;
    loop {
        if let Some(rest) = rest_of(&format!("{root}{path}")) {
            smallest = Some(smallest.map_or(rest, |other: u64| other.min(rest)));
        }
        let Some(parent) = path.rfind('/') else { return smallest };
        path = &path[..parent];
    }
}

/// Limit less use of one group; the files that it would let go of do not count as used.
fn rest_of(directory: &str) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(format!("{directory}/{name}")).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let cached = read("memory.stat").and_then(|text| entry(&text, "inactive_file "));
    Some(limit.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let report = "MemTotal: 9 kB\nMemAvailable:   1234 kB\n";
        assert_eq!(kibibytes(report, "MemAvailable:"), Some(1234 * 1024));
        assert_eq!(kibibytes(report, "MemFree:"), None);
        assert!(total() >= available() || available() == u64::MAX);
        assert_eq!(group_directory("0::/a/b"), Some(("/sys/fs/cgroup", "/a/b")));
        assert_eq!(group_directory("4:cpu,memory:/x"), Some(("/sys/fs/cgroup/memory", "/x")));
        assert_eq!(group_directory("4:cpu:/x"), None);
    }

    #[test]
    fn the_tightest_limit_of_the_process_counts() {
        let status = "VmSize:\t     100 kB\nVmData:\t      20 kB\n";
        let limits = |data: &str, space: &str| {
            format!(
                "Limit  Soft Limit  Hard Limit  Units\nMax data size   {data}  unlimited bytes\nMax address space {space} unlimited bytes\n"
            )
        };
        let available = |data, space| own_available(&limits(data, space), status);
        assert_eq!(available("unlimited", "unlimited"), None);
        assert_eq!(available("30720", "unlimited"), Some(10 << 10));
        assert_eq!(available("30720", "104448"), Some(2 << 10));
        assert_eq!(available("unlimited", "1024"), Some(0));
    }

    #[test]
    fn a_fresh_reading_grants_a_quarter_of_what_it_leaves() {
        let at = Instant::now();
        let mut reading = Reading { at, rest: 1000 };
        assert!(!reading.grant(251, at));
        assert!(reading.grant(250, at));
        assert_eq!(reading.rest, 750);
        assert!(!reading.grant(188, at), "what was granted counts");
        assert!(!reading.grant(1, at + FRESH), "it is too old");
    }

    #[test]
    fn an_absurd_need_is_refused() {
        let error = check(u64::MAX / 2).unwrap_err();
        assert_eq!(error.needed, u64::MAX / 2);
        assert!(error.available < error.needed);
        assert_eq!(check(1), Ok(()));
    }
}
