//! The side that starts sandboxes, waits for them and ends them.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::{Pid, geteuid},
};

use super::{
    ARGUMENT, Order, Outcome, Program, Protection, Report, SandboxError,
    group::Group,
    supervisor::{self, Job, READY},
    view,
};

/// Pauses between two looks at a running program: short ones first.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];

/// Longer names of exceptions are cut.
const LONGEST_NAME: usize = 60;

/// Longer reports are none.
const LONGEST_REPORT: u64 = 1 << 16;

/// Runs a program, or returns the part of the sandbox that the kernel denies and the reason.
pub fn run(
    binary: &Path,
    order: &Order,
    program: &Program,
) -> Result<Result<Outcome, (Option<Protection>, String)>, SandboxError> {
    // Only programs that see the disk need a folder on it.
    let on_disk = !order.holds(Protection::Namespaces);
    let folder = on_disk.then(|| tempfile::Builder::new().prefix("demask-program-").tempdir()).transpose()?;
    let place = folder.as_ref().map_or(Path::new(view::FOLDER), |folder| folder.path());
    let mut command = command(binary, order, place)?;
    if on_disk {
        command.current_dir(place);
    }
    let group = match Group::make(order) {
        Ok(group) => group,
        Err((part, reason)) => return Ok(Err((Some(part), reason))),
    };
    let mut child = command.spawn()?;
    // It starts nothing before it is handed the program.
    if let Err((part, reason)) = group.add(child.id()) {
        child.kill()?;
        child.wait()?;
        return Ok(Err((Some(part), reason)));
    }
    let mut answers = BufReader::new(child.stdout.take().ok_or_else(no_pipe)?.take(LONGEST_REPORT));
    let mut text = String::new();
    let sent = hand_over(&mut child, &mut answers, &mut text, program);
    let ended = wait(&mut child, order.limits.wall);
    let exhausted = group.is_exhausted();
    // Before pipes are read to their ends, which a process that has left the others would keep open.
    drop(group);
    sent?;
    answers.read_to_string(&mut text)?;
    let failure = read(child.stderr.take(), LONGEST_REPORT)?;
    folder.map_or(Ok(()), tempfile::TempDir::close)?;
    if exhausted {
        return Ok(Ok(Outcome::Memory));
    }
    if ended?.is_none() {
        return Ok(Ok(Outcome::Timeout));
    }
    match serde_json::from_str(&text) {
        Ok(Report::Denied { protection, reason }) => Ok(Err((protection, reason))),
        Ok(Report::Ended { word, judge, program, spent }) => Ok(Ok(outcome(&word, judge, program, spent))),
        Err(_) => {
            let reason = failure.lines().last().unwrap_or("it gives no answer").to_owned();
            Err(SandboxError::Refused { reason })
        }
    }
}

/// Waits until the supervisor is ready, names the users of its namespace and sends it the program. If the supervisor
/// answers otherwise, its answer is left in `text`.
fn hand_over(child: &mut Child, answers: &mut impl BufRead, text: &mut String, program: &Program) -> io::Result<()> {
    let mut stdin = child.stdin.take().ok_or_else(no_pipe)?;
    answers.read_line(text)?;
    if text.trim_end() != READY {
        return Ok(());
    }
    text.clear();
    let named = geteuid().is_root() && supervisor::name_two(child.id()).is_ok();
    let job = serde_json::to_vec(&Job { program: program.clone(), named })?;
    // One that has ended says why.
    stdin.write_all(&job).or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

fn no_pipe() -> io::Error {
    io::Error::other("no pipe to a process")
}

/// The end of a program, from the judge's word and from what ended the two.
fn outcome(word: &str, judge: Option<i32>, program: Option<i32>, spent: bool) -> Outcome {
    let by_signal = |signal: Option<i32>| match signal.and_then(|signal| Signal::try_from(signal).ok()) {
        Some(Signal::SIGXCPU) => Outcome::Timeout,
        // The supervisor ends what still runs by this signal too; so does the hard limit of CPU time.
        Some(Signal::SIGKILL) if spent => Outcome::Timeout,
        Some(Signal::SIGKILL) | None => Outcome::Exit,
        Some(signal) => Outcome::Signal(signal.to_string()),
    };
    match word {
        "passed" => Outcome::Passed,
        "memory" => Outcome::Memory,
        "exit" => Outcome::Exit,
        "lost" => by_signal(program),
        word => word.strip_prefix("exception ").map_or_else(|| by_signal(judge), exception),
    }
}

/// The binary as a sandbox: nothing of the parent's surroundings is left but the order.
fn command(binary: &Path, order: &Order, place: &Path) -> Result<Command, SandboxError> {
    let order = serde_json::to_string(order).map_err(io::Error::from)?;
    let mut command = Command::new(binary);
    command.arg(ARGUMENT).arg(order).env_clear().process_group(0);
    // One order of sets and one thread in numerical libraries, whose stacks would fill the address space.
    command.env("PYTHONHASHSEED", "0").env("LC_ALL", "C.UTF-8").env("OPENBLAS_NUM_THREADS", "1");
    command.env("HOME", place).env("TMPDIR", place);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Waits for the end, or makes one at the limit (`None`); either way nothing of the process's group is left.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<WaitStatus>> {
    let start = Instant::now();
    let id = Pid::from_raw(child.id().cast_signed());
    // The process is left unreaped until its group is ended: until then nothing else can have its number.
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let ended = loop {
        match waitid(Id::Pid(id), flags)? {
            WaitStatus::StillAlive if start.elapsed() >= limit => break None,
            WaitStatus::StillAlive => thread::sleep(PAUSES[usize::from(start.elapsed() > PAUSES[1])]),
            status => break Some(status),
        }
    };
    // The process may have left its group: it is ended by its own number too.
    let _ = killpg(id, Signal::SIGKILL);
    child.kill()?;
    child.wait()?;
    Ok(ended)
}

fn read(source: Option<impl Read>, longest: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    source.map_or(Ok(0), |source| source.take(longest).read_to_end(&mut bytes))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// An exception by its name, as far as that is a name.
fn exception(name: &str) -> Outcome {
    Outcome::Exception(name.chars().filter(|c| c.is_alphanumeric() || *c == '_').take(LONGEST_NAME).collect())
}
