//! Programs that a model wrote, run where they can do no harm, and judged where they cannot reach.
//!
//! The binary starts itself again (its first argument is then [`ARGUMENT`]) as a supervisor. This makes two interpreters,
//! each limited before a line of anybody's code is read: the judge has the tests, the program's has the program. The judge
//! calls the program's functions over a socket and compares what comes back as plain data in its own process, so no frame,
//! object or file that the program can reach has an expected value or a verdict.
//!
//! The limits are the kernel's. Namespaces: a tree of files of its own, read-only but for one folder in memory of a bounded
//! size; no network; no process but the judge; everything ends with the supervisor. A filter of system calls, which lists
//! what is allowed. CPU time, address space, open files and threads (`setrlimit`). Landlock is a layer over these. The
//! parent ends whatever still runs at the wall limit.
//!
//! Nothing runs without a [`Permission`], and whoever makes one says so in so many words.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod filter;
mod interpreter;
#[cfg(target_os = "linux")]
mod member;
#[cfg(target_os = "linux")]
mod parent;
#[cfg(target_os = "linux")]
mod supervisor;
#[cfg(target_os = "linux")]
mod view;

use std::{fmt, io, path::PathBuf, process::ExitCode, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use interpreter::Interpreter;

#[cfg(not(target_os = "linux"))]
use elsewhere as parent;

/// The first argument of a process that is to become the sandbox.
pub const ARGUMENT: &str = "__sandbox";

/// A program and what it is judged by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Program {
    /// Code of the model.
    pub code: String,
    /// Code of the problem that the tests may use as it is, whatever the program makes of it.
    pub given: String,
    /// Tests: statements that fail by an exception. Names that they do not define are the program's.
    pub tests: String,
    /// Function that the tests name, where the problem says it.
    pub entry_point: Option<String>,
}

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
    /// Bytes of all files together.
    pub files: u64,
    /// Files and folders.
    pub entries: u64,
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
            files: 64 << 20,
            entries: 4096,
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
    /// Exception that the program or a test raised.
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
    /// The kernel lacks a part.
    #[error(
        "programs of a model cannot be confined here: {reason}; run this where the kernel grants it (in a container: \
         allow user namespaces), or accept programs that can harm your files with --allow-code-execution=unconfined"
    )]
    Denied {
        /// Names of the parts and the kernel's answers.
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

/// A part of the sandbox that a kernel may deny. Limits of time, address space and open files hold everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Protection {
    /// Namespaces of users, processes, mounts, networks and shared memory.
    Namespaces,
    /// A filter of system calls: no process, no signal, no socket with a name, no change of a mode, owner or time.
    Calls,
    /// Landlock: which files can be read and written. A second layer: all that is promised holds without it.
    Landlock,
}

impl Protection {
    const ALL: [Self; 3] = [Self::Namespaces, Self::Calls, Self::Landlock];

    /// Abilities of programs without this protection.
    fn missing(self) -> &'static str {
        match self {
            Self::Namespaces => {
                "no namespaces (programs see your files and processes, their files are on your disk, and they can \
                 outlive this process)"
            }
            Self::Calls => "no filter of system calls (programs can start processes, send signals and open sockets)",
            Self::Landlock => "no Landlock (files are held by other means alone)",
        }
    }
}

/// Willingness to run programs on a kernel that denies a part of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// Programs run confined or not at all.
    Whole,
    /// Programs run with what the kernel grants.
    Partial,
}

/// Order of the parent to the process that becomes the sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    limits: Limits,
    interpreter: Interpreter,
    held: Vec<Protection>,
    /// Process that waits for this one.
    parent: u32,
    /// Records whether the interpreters run as the user who owns nothing. Programs of the superuser do, whose threads the
    /// kernel does not count.
    nobody: bool,
    role: Role,
}

impl Order {
    fn holds(&self, protection: Protection) -> bool {
        self.held.contains(&protection)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Role {
    /// Starts the other two, and reports how they ended.
    Supervisor,
    /// Runs the tests.
    Judge,
    /// Runs the program.
    Program,
}

/// Ends of the two interpreters, or why there were none: the supervisor's one line to the parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Report {
    Ended {
        /// Word of the judge; empty if it ended before.
        word: String,
        /// Signal that ended the judge.
        judge: Option<i32>,
        /// Signal that ended the program.
        program: Option<i32>,
        /// Records whether the limit of CPU time was reached.
        spent: bool,
    },
    Denied {
        protection: Option<Protection>,
        reason: String,
    },
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
    pub fn grant(binary: PathBuf, limits: Limits, confinement: Confinement) -> Result<Self, SandboxError> {
        let interpreter = Interpreter::find()?;
        Self::try_all(Self { binary, interpreter, limits, held: Protection::ALL.to_vec(), denied: Vec::new() })?
            .accepted(confinement)
    }

    /// Runs an empty program with fewer and fewer protections, until the kernel denies none of them.
    fn try_all(mut self) -> Result<Self, SandboxError> {
        loop {
            match parent::run(&self.binary, &self.order(), &Program::default())? {
                Ok(Outcome::Passed) => return Ok(self),
                Ok(outcome) => {
                    return Err(SandboxError::Refused { reason: format!("an empty program ends with \"{outcome}\"") });
                }
                Err((Some(protection), reason)) if self.held.contains(&protection) => {
                    self.held.retain(|other| *other != protection);
                    self.denied.push((protection, reason));
                }
                Err((_, reason)) => return Err(SandboxError::Refused { reason }),
            }
        }
    }

    fn accepted(self, confinement: Confinement) -> Result<Self, SandboxError> {
        let needed = |(protection, _): &&(Protection, String)| *protection != Protection::Landlock;
        let denied: Vec<_> = self.denied.iter().filter(needed).map(told).collect();
        if confinement == Confinement::Whole && !denied.is_empty() {
            return Err(SandboxError::Denied { reason: denied.join("; ") });
        }
        Ok(self)
    }

    /// Warning about protections that the kernel denies, in a line; none if it grants all.
    pub fn warning(&self) -> Option<String> {
        let denied: Vec<_> = self.denied.iter().map(told).collect();
        (!denied.is_empty()).then(|| format!("programs run with less protection: {}", denied.join("; ")))
    }

    /// Runs a program to its end or to its limits. Several threads may do so at once.
    pub fn run(&self, program: &Program) -> Result<Outcome, SandboxError> {
        parent::run(&self.binary, &self.order(), program)?.map_err(|(_, reason)| SandboxError::Refused { reason })
    }

    fn order(&self) -> Order {
        Order {
            limits: self.limits,
            interpreter: self.interpreter.clone(),
            held: self.held.clone(),
            parent: std::process::id(),
            nobody: false,
            role: Role::Supervisor,
        }
    }
}

fn told((protection, reason): &(Protection, String)) -> String {
    format!("{}: {reason}", protection.missing())
}

/// Becomes the sandbox if that is what this process was started for; else `None`. To be called first of all in `main`,
/// while there is one thread and nothing has been read.
pub fn entry() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    #[cfg(target_os = "linux")]
    return Some(member::entry(arguments.next().as_deref()));
    #[cfg(not(target_os = "linux"))]
    Some(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(denied: &[Protection]) -> Permission {
        Permission {
            binary: PathBuf::new(),
            interpreter: Interpreter { executable: PathBuf::new(), readable: Vec::new() },
            limits: Limits::default(),
            held: Vec::new(),
            denied: denied.iter().map(|&protection| (protection, "EPERM: not permitted".to_owned())).collect(),
        }
    }

    #[test]
    fn parts_that_the_kernel_denies_are_told_in_one_line() {
        assert_eq!(permission(&[]).warning(), None);
        let warning = permission(&[Protection::Namespaces, Protection::Landlock]).warning().unwrap();
        assert!(warning.starts_with("programs run with less protection: no namespaces"), "{warning}");
        assert!(warning.contains("EPERM") && warning.contains("no Landlock"), "{warning}");
        assert!(!warning.contains('\n'), "{warning}");
    }

    #[test]
    fn a_kernel_without_a_part_is_refused_unless_the_user_takes_it_as_it_is() {
        for (part, name) in
            [(Protection::Namespaces, "no namespaces"), (Protection::Calls, "no filter of system calls")]
        {
            let error = permission(&[part]).accepted(Confinement::Whole).unwrap_err().to_string();
            assert!(error.starts_with(&format!("programs of a model cannot be confined here: {name}")), "{error}");
            assert!(error.contains("EPERM") && error.ends_with("--allow-code-execution=unconfined"), "{error}");
            assert!(permission(&[part]).accepted(Confinement::Partial).is_ok());
        }
        assert!(permission(&[Protection::Landlock]).accepted(Confinement::Whole).is_ok());
    }
}
