//! The side that starts sandboxes, waits for them and ends them.

use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Read},
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
    unistd::Pid,
};

use super::{ARGUMENT, Interpreter, Limits, Order, Outcome, Protection, SandboxError, Task};

/// The program, behind a line with the key; removed before its first line runs.
pub const PROGRAM: &str = "program.py";

/// Mark of the program's end, behind the key.
pub const VERDICT: &str = "verdict";

/// Pauses between two looks at a running program: short ones first.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];

/// Longer names of exceptions are cut.
const LONGEST_NAME: usize = 60;

/// Finds the protections that the kernel denies, and the reasons.
pub fn probe(
    binary: &Path,
    interpreter: &Interpreter,
    limits: Limits,
) -> Result<Vec<(Protection, String)>, SandboxError> {
    let folder = folder()?;
    let order = Order { limits, interpreter: interpreter.clone(), task: Task::Probe };
    let output = command(binary, &order, folder.path())?.stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
    let answer = serde_json::from_slice(&output.stdout).ok().filter(|_| output.status.success());
    answer.ok_or_else(|| {
        let text = String::from_utf8_lossy(&output.stderr);
        SandboxError::Refused { reason: text.lines().last().unwrap_or("it gives no answer").to_owned() }
    })
}

/// Runs a program in a folder of its own.
pub fn run(binary: &Path, order: &Order, program: &str) -> Result<Outcome, SandboxError> {
    let folder = folder()?;
    let key = key();
    fs::write(folder.path().join(PROGRAM), format!("{key}\n{program}"))?;
    let mut child = command(binary, order, folder.path())?.spawn()?;
    let ended = wait(&mut child, order.limits.wall)?;
    let told = fs::symlink_metadata(folder.path().join(VERDICT)).is_ok_and(|file| file.is_file());
    let word = if told { word(&folder.path().join(VERDICT), &key)? } else { None };
    match (ended, word.as_deref()) {
        (_, Some(word)) if word.starts_with("refused ") => {
            Err(SandboxError::Refused { reason: word["refused ".len()..].to_owned() })
        }
        (None | Some(WaitStatus::Signaled(_, Signal::SIGXCPU, _)), _) => Ok(Outcome::Timeout),
        (Some(WaitStatus::Signaled(_, signal, _)), _) => Ok(Outcome::Signal(signal.to_string())),
        (Some(_), Some("passed")) => Ok(Outcome::Passed),
        (Some(_), Some("memory")) => Ok(Outcome::Memory),
        (Some(_), Some(word)) => Ok(word.strip_prefix("exception ").map_or(Outcome::Exit, exception)),
        (Some(_), None) => Ok(Outcome::Exit),
    }
}

fn folder() -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("demask-program-").tempdir()
}

/// Draws a key that the program cannot guess: its verdict is believed only behind it.
fn key() -> String {
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word())
}

/// The binary as a sandbox: nothing of the parent's surroundings is left but the order.
fn command(binary: &Path, order: &Order, folder: &Path) -> Result<Command, SandboxError> {
    let order = serde_json::to_string(order).map_err(io::Error::from)?;
    let mut command = Command::new(binary);
    command.arg(ARGUMENT).arg(order).env_clear().current_dir(folder).process_group(0);
    // One order of sets and one thread in numerical libraries, whose stacks would fill the address space.
    command.env("PYTHONHASHSEED", "0").env("LC_ALL", "C.UTF-8").env("OPENBLAS_NUM_THREADS", "1");
    command.env("HOME", folder).env("TMPDIR", folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
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

/// The word behind the key.
fn word(path: &Path, key: &str) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(4096).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.strip_prefix(key).and_then(|rest| rest.strip_prefix(' ')).map(str::to_owned))
}

/// An exception by its name, as far as that is a name.
fn exception(name: &str) -> Outcome {
    Outcome::Exception(name.chars().filter(|c| c.is_alphanumeric() || *c == '_').take(LONGEST_NAME).collect())
}
