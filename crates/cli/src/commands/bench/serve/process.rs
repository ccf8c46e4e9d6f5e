//! Processor seconds of a process, as the system counts them.

use std::fs;

use anyhow::{Context, bail};

/// Ticks of a second in which Linux reports processor time to programs: the same number on every machine that this runs on,
/// whatever its kernel counts in.
const TICKS: f64 = 100.0;
/// Fields of `stat` between the program's name and the ticks that it has run, and behind them those of the system for it.
const BEHIND_NAME: usize = 11;

/// Seconds that all threads of a process have run so far.
pub fn seconds(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| {
        format!("--pid {pid}: cannot read {path}, expected a running process of this Linux machine")
    })?;
    match parse(&text) {
        Some(seconds) => Ok(seconds),
        None => bail!("--pid {pid}: {path} does not have its processor time: name a process that runs"),
    }
}

fn parse(stat: &str) -> Option<f64> {
    // The name stands in parentheses and may itself hold some, and blanks.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(BEHIND_NAME);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 7 7 20 0 4 0 999";
        assert_eq!(parse(stat), Some(3.0));
        assert_eq!(parse("42 (a) S 1"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_run() {
        assert!(seconds(std::process::id()).unwrap() >= 0.0);
        assert!(seconds(u32::MAX).unwrap_err().to_string().contains("expected a running process"));
    }
}
