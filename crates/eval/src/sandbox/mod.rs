//! Programs that a model wrote, run where they can do no harm.
//!
//! The binary starts itself again (its first argument is then [`ARGUMENT`]), limits itself, and becomes the interpreter:
//! the limits hold before a line of the model's code is read. They are the kernel's: CPU time, address space, file sizes,
//! open files and threads (`setrlimit`); no network (a namespace of its own); no file outside of a fresh folder but those
//! that the interpreter needs (Landlock); no other process, no signal to one, no socket (a filter of system calls). The
//! parent ends whatever still runs at the wall limit.
//!
//! Nothing runs without a [`Permission`], and whoever makes one says so in so many words.

#[cfg(target_os = "linux")]
mod child;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod filter;
mod interpreter;
#[cfg(target_os = "linux")]
mod parent;

use std::{fmt, io, path::PathBuf, process::ExitCode, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use interpreter::Interpreter;

#[cfg(not(target_os = "linux"))]
use elsewhere as parent;

/// The first argument of a process that is to become the sandbox.
pub const ARGUMENT: &str = "__sandbox";

/// Limits of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Seconds of CPU time.
    pub cpu_seconds: u64,
    /// Time until the parent ends it: longer than the CPU time, for machines that are busy with something else.
    pub wall: Duration,
    /// Bytes of address space.
    pub memory: u64,
    /// Bytes of the largest file.
    pub file: u64,
    /// Open files.
    pub open_files: u64,
    /// Threads.
    pub threads: u64,
}

impl Default for Limits {
    /// Far above what a right answer to a benchmark's problem takes.
    fn default() -> Self {
        Self {
            cpu_seconds: 10,
            wall: Duration::from_secs(30),
            memory: 2 << 30,
            file: 16 << 20,
            open_files: 64,
            threads: 64,
        }
    }
}

/// End of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Passed: all of its tests passed.
    Passed,
    /// Timeout: the program took too much time.
    Timeout,
    /// Memory: the program requested too much memory.
    Memory,
    /// Exception that the program raised.
    Exception(String),
    /// Exit: the program ended before its tests did.
    Exit,
    /// A signal ended it.
    Signal(String),
}

/// Writes the outcome as a verdict's failure.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Timeout => f.write_str("timeout"),
            Self::Memory => f.write_str("memory"),
            Self::Exception(name) => write!(f, "exception: {name}"),
            Self::Exit => f.write_str("exit"),
            Self::Signal(name) => write!(f, "signal: {name}"),
        }
    }
}

/// Reason why programs cannot be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The system has no such limits.
    #[error("programs of a model are run on Linux only: the limits that they need are Linux's")]
    Unsupported,
    /// No interpreter.
    #[error("no Python to run programs with: {reason}; install python3 (3.8 or later) or put it on PATH")]
    Interpreter {
        /// Description of the failure.
        reason: String,
    },
    /// The sandbox itself does not work here.
    #[error("the sandbox for programs does not work here: {reason}")]
    Refused {
        /// Description of the failure.
        reason: String,
    },
    /// A folder, a file or a process could not be made.
    #[error("the sandbox for programs: {0}")]
    Io(#[from] io::Error),
}

/// A part of the sandbox that a kernel may deny. Limits of time, memory and files hold everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Protection {
    /// A network namespace without interfaces.
    Network,
    /// Landlock: which files can be read and written.
    Files,
    /// A filter of system calls: no processes, no signals, no sockets.
    Calls,
}

impl Protection {
    const ALL: [Self; 3] = [Self::Network, Self::Files, Self::Calls];

    /// Abilities of programs without this protection.
    fn missing(self) -> &'static str {
        match self {
            Self::Network => "no network namespace (sockets are refused by the filter of system calls alone)",
            Self::Files => "no Landlock (programs can read and write what you can)",
            Self::Calls => "no filter of system calls (programs can start processes and send signals)",
        }
    }
}

/// Order of the parent to the process that becomes the sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    limits: Limits,
    interpreter: Interpreter,
    task: Task,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Task {
    /// Try every protection and report which ones the kernel denies.
    Probe,
    /// Take on these protections, or refuse; then run the program in the working directory.
    Run(Vec<Protection>),
}

/// Leave to run what a model wrote, and how. Making one is the caller's word that the user asked for it
/// (`--allow-code-execution`).
#[derive(Debug)]
pub struct Permission {
    binary: PathBuf,
    interpreter: Interpreter,
    limits: Limits,
    held: Vec<Protection>,
    denied: Vec<(Protection, String)>,
}

impl Permission {
    /// Looks for the interpreter, and tries what the kernel grants. The binary is one that calls [`entry`] before anything
    /// else: usually the running one, `std::env::current_exe`.
    pub fn grant(binary: PathBuf, limits: Limits) -> Result<Self, SandboxError> {
        let interpreter = Interpreter::find()?;
        let denied = parent::probe(&binary, &interpreter, limits)?;
        let is_denied = |protection: &Protection| denied.iter().any(|(other, _)| other == protection);
        let held = Protection::ALL.into_iter().filter(|protection| !is_denied(protection)).collect();
        let permission = Self { binary, interpreter, limits, held, denied };
        match permission.run("pass")? {
            Outcome::Passed => Ok(permission),
            outcome => Err(SandboxError::Refused { reason: format!("an empty program ends with \"{outcome}\"") }),
        }
    }

    /// Warning about protections that the kernel denies, in a line; none if it grants all.
    pub fn warning(&self) -> Option<String> {
        let tell = |(protection, reason): &(Protection, String)| format!("{}: {reason}", protection.missing());
        let denied: Vec<_> = self.denied.iter().map(tell).collect();
        (!denied.is_empty()).then(|| format!("programs run with less protection: {}", denied.join("; ")))
    }

    /// Runs a program to its end or to its limits. Several threads may do so at once.
    pub fn run(&self, program: &str) -> Result<Outcome, SandboxError> {
        let order =
            Order { limits: self.limits, interpreter: self.interpreter.clone(), task: Task::Run(self.held.clone()) };
        parent::run(&self.binary, &order, program)
    }
}

/// Becomes the sandbox if that is what this process was started for; else `None`. To be called first of all in `main`,
/// while there is one thread and nothing has been read.
pub fn entry() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    #[cfg(target_os = "linux")]
    return Some(child::run(arguments.next().as_deref()));
    #[cfg(not(target_os = "linux"))]
    Some(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_denies_is_told_in_one_line() {
        let mut permission = Permission {
            binary: PathBuf::new(),
            interpreter: Interpreter { executable: PathBuf::new(), readable: Vec::new() },
            limits: Limits::default(),
            held: Protection::ALL.to_vec(),
            denied: Vec::new(),
        };
        assert_eq!(permission.warning(), None);
        permission.denied.push((Protection::Network, "EPERM: Operation not permitted".to_owned()));
        permission.denied.push((Protection::Files, "the kernel has no Landlock".to_owned()));
        let warning = permission.warning().unwrap();
        assert!(warning.starts_with("programs run with less protection: no network namespace"), "{warning}");
        assert!(warning.contains("EPERM") && warning.contains("no Landlock"), "{warning}");
        assert!(!warning.contains('\n'), "{warning}");
    }
}
