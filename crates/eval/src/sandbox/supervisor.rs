//! The process between: it makes the judge and the program's interpreter, waits for both and reports.

use std::{
    fs,
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::ExitStatusExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
};

use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        prctl::set_pdeathsig,
        resource::{UsageWho, getrusage},
        signal::Signal,
    },
    unistd::{getegid, geteuid, getppid},
};

use serde::{Deserialize, Serialize};

use super::{ARGUMENT, Limits, Order, Program, Protection, Report, Role};

/// Seconds after the wall limit at which the judge ends by itself, and everything with it.
const GRACE: u64 = 5;

/// Longer times are no limits.
const LONGEST_ALARM: u64 = 1 << 30;

/// Longer words are no verdicts.
const LONGEST_WORD: u64 = 4096;

/// The user who owns nothing.
pub const NOBODY: u32 = 65534;

/// Line to the parent: the namespace of users is there, and its users can be named.
pub const READY: &str = "ready";

/// Job of the parent, after the line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    pub program: Program,
    /// Records whether the parent has named two users: this one, and the one who owns nothing.
    pub named: bool,
}

/// Input of the judge, as JSON.
#[derive(Serialize)]
struct Case {
    #[serde(flatten)]
    program: Program,
    /// Seconds after which it ends by itself.
    seconds: u64,
}

/// Runs the program of standard input, and reports on standard output.
pub fn run(order: Order) -> Result<(), String> {
    let report = report(order).map_err(|error| error.to_string())?;
    serde_json::to_writer(io::stdout(), &report).map_err(|error| error.to_string())
}

fn report(mut order: Order) -> io::Result<Report> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let denied =
        |error: io::Error| Report::Denied { protection: Some(Protection::Namespaces), reason: error.to_string() };
    let apart = order.holds(Protection::Namespaces);
    if apart && let Err(error) = unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID) {
        return Ok(denied(error.into()));
    }
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid().as_raw() != order.parent.cast_signed() {
        return Err(io::Error::other("the process that waits for it has ended"));
    }
    writeln!(io::stdout(), "{READY}")?;
    let Job { program, named } = serde_json::from_reader(io::stdin())?;
    if apart
        && !named
        && let Err(error) = name_self(user, group)
    {
        return Ok(denied(error));
    }
    order.nobody = named;
    let seconds = order.limits.wall.as_secs().saturating_add(GRACE).min(LONGEST_ALARM);
    watch(&order, &Case { program, seconds })
}

/// Names this process's own user in its namespace, the only one that it may.
fn name_self(user: u32, group: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1\n"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1\n"))
}

/// Names the superuser and the user who owns nothing in the namespace of a process that has just made one: only a process
/// outside of it may.
pub fn name_two(process: u32) -> io::Result<()> {
    let map = format!("0 0 1\n{NOBODY} {NOBODY} 1\n");
    fs::write(format!("/proc/{process}/uid_map"), &map)?;
    fs::write(format!("/proc/{process}/gid_map"), &map)
}

/// Starts both, hands the judge its job, and waits. The judge is the first: where processes have a namespace, its end is
/// the end of all others in it.
fn watch(order: &Order, case: &Case) -> io::Result<Report> {
    let case = serde_json::to_vec(case)?;
    let (ours, theirs) = UnixStream::pair()?;
    let mut judge = start(order, Role::Judge, ours, Stdio::piped())?;
    let mut program = start(order, Role::Program, theirs, Stdio::null())?;
    let sent = judge.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&case));
    let word = read(&mut judge)?;
    let _ = program.kill();
    let ended = program.wait()?;
    // The first process of a namespace ends after all others have been waited for.
    let judged = judge.wait()?;
    let of_program = read(&mut program)?;
    if let Some(denied) = [&of_program, &word].into_iter().find_map(|text| serde_json::from_str(text).ok()) {
        return Ok(denied);
    }
    if word.is_empty() && judged.signal().is_none() {
        sent?;
    }
    let signal = |status: ExitStatus| status.signal();
    Ok(Report::Ended { word, judge: signal(judged), program: signal(ended), spent: is_spent(&order.limits)? })
}

/// This binary again, in another role.
fn start(order: &Order, role: Role, socket: UnixStream, stdin: Stdio) -> io::Result<Child> {
    let order = serde_json::to_string(&Order { role, parent: 0, ..order.clone() })?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(ARGUMENT).arg(order).stdin(stdin).stdout(Stdio::piped()).stderr(OwnedFd::from(socket));
    command.spawn()
}

fn read(child: &mut Child) -> io::Result<String> {
    let mut bytes = Vec::new();
    child.stdout.take().map_or(Ok(0), |stdout| stdout.take(LONGEST_WORD).read_to_end(&mut bytes))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn is_spent(limits: &Limits) -> io::Result<bool> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = usage.user_time().tv_sec() + usage.system_time().tv_sec();
    Ok(seconds.cast_unsigned() >= limits.cpu_seconds)
}
