//! Programs that a model wrote, run where they can do no harm, and judged where they cannot reach.
//!
//! The binary starts itself again (its first argument is then [`ARGUMENT`]) as a supervisor. This makes two interpreters,
//! each limited before a line of anybody's code is read: the judge has the tests, the program's has the program. The judge
//! calls the program's functions over a socket and compares what comes back as plain data in its own process, so no frame,
//! object or file that the program can reach has an expected value or a verdict.
//!
//! The limits are the kernel's. Namespaces: a tree of files of its own, read-only but for one folder in memory of a
//! bounded size; no network; no process but the judge; everything ends with the supervisor. A filter of system calls,
//! which lists the allowed ones. CPU time, address space, open files and threads (`setrlimit`). Landlock and a cgroup,
//! which counts the memory and the processes of both interpreters together, are layers over these. The parent ends
//! whatever still runs at the wall limit.
//!
//! Nothing runs without a [`Permission`], which a caller makes explicitly.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod filter;
#[cfg(target_os = "linux")]
mod group;
mod interpreter;
#[cfg(target_os = "linux")]
mod member;
#[cfg(target_os = "linux")]
mod parent;
#[cfg(target_os = "linux")]
mod supervisor;
#[cfg(target_os = "linux")]
mod view;

use std::{fmt, io, path::PathBuf, process::ExitCode, sync::OnceLock, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use interpreter::Interpreter;

#[cfg(not(target_os = "linux"))]
use elsewhere as parent;

/// The first argument of a process that is to become the sandbox.
pub const ARGUMENT: &str = "__sandbox";

/// A program with the tests that judge it.
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
    /// Bytes of address space of each process.
    pub memory: u64,
    /// Bytes of memory of all processes together, where there is a cgroup for it.
    pub together: u64,
    /// Bytes of the largest file.
    pub file: u64,
    /// Bytes of all files together.
    pub files: u64,
    /// Files and folders.
    pub entries: u64,
    /// Open files.
    pub open_files: u64,
    /// Threads of all processes together, those processes included.
    pub threads: u64,
}

impl Default for Limits {
    /// Limits far above the needs of a right answer to a benchmark's problem.
    fn default() -> Self {
        Self {
            cpu_seconds: 10,
            wall: Duration::from_secs(30),
            memory: 2 << 30,
            // A program may fill its address space, and the judge has room beside it.
            together: 3 << 30,
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
    /// A part that is no need, but was demanded, is missing.
    #[error(
        "programs of a model cannot have every part of their confinement here: {reason}; run this where the kernel grants \
         it (cgroups: in a systemd user session, or as a user who may make groups), or take what there is with \
         --allow-code-execution"
    )]
    Incomplete {
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
    /// A cgroup that counts memory of all processes together. A second layer, as the next one is.
    Memory,
    /// A cgroup that counts processes and threads.
    Processes,
}

impl Protection {
    const ALL: [Self; 5] = [Self::Namespaces, Self::Calls, Self::Landlock, Self::Memory, Self::Processes];

    /// Parts that the group of a run holds.
    const OF_GROUP: [Self; 2] = [Self::Memory, Self::Processes];

    /// Reports whether programs are confined only with it.
    fn is_needed(self) -> bool {
        matches!(self, Self::Namespaces | Self::Calls)
    }

    /// Abilities of programs without this protection.
    fn missing(self) -> &'static str {
        match self {
            Self::Namespaces => {
                "no namespaces (programs see your files and processes, their files are on your disk, and they can \
                 outlive this process)"
            }
            Self::Calls => "no filter of system calls (programs can start processes, send signals and open sockets)",
            Self::Landlock => "no Landlock (files are held by other means alone)",
            Self::Memory => {
                "no cgroup for memory (each process's address space is bounded, not what all take together)"
            }
            Self::Processes => "no cgroup for processes (they are held by other means alone)",
        }
    }
}

/// Willingness to run programs on a kernel that denies a part of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// Programs run with every part of the sandbox, Landlock and cgroups included, or not at all.
    Complete,
    /// Programs run confined or not at all.
    Whole,
    /// Programs run with the parts that the kernel grants.
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

/// Permission to run a model's code, with interpreter, limits and confinement. By making one the caller states that the
/// user asked for it (`--allow-code-execution`).
#[derive(Debug)]
pub struct Permission {
    binary: PathBuf,
    interpreter: Interpreter,
    limits: Limits,
    held: Vec<Protection>,
    denied: Vec<Denial>,
    confinement: Confinement,
    /// The first part that was granted, and could not be had for a later program.
    lost: OnceLock<Denial>,
}

/// A part that cannot be had, and the reason.
type Denial = (Protection, String);

impl Permission {
    /// Looks for the interpreter, and finds out by an empty program which protections the kernel grants. The binary is
    /// one that calls [`entry`] before anything else: usually the running one, `std::env::current_exe`.
    pub fn grant(binary: PathBuf, limits: Limits, confinement: Confinement) -> Result<Self, SandboxError> {
        let interpreter = Interpreter::find()?;
        let (held, denied, lost) = (Protection::ALL.to_vec(), Vec::new(), OnceLock::new());
        let mut permission = Self { binary, interpreter, limits, held, denied, confinement, lost };
        let (outcome, denied) = permission.attempt(&Program::default(), |_| true)?;
        if outcome != Outcome::Passed {
            return Err(SandboxError::Refused { reason: format!("an empty program ends with \"{outcome}\"") });
        }
        permission.held.retain(|&part| denied.iter().all(|(other, _)| *other != part));
        permission.denied = denied;
        permission.accepted()
    }

    /// Runs a program with fewer and fewer protections of those that it `may` go without, until none is denied; returns
    /// those that were.
    fn attempt(
        &self,
        program: &Program,
        may: impl Fn(Protection) -> bool,
    ) -> Result<(Outcome, Vec<Denial>), SandboxError> {
        let (mut order, mut denied) = (self.order(), Vec::new());
        loop {
            match parent::run(&self.binary, &order, program)? {
                Ok(outcome) => return Ok((outcome, denied)),
                Err((Some(part), reason)) if may(part) && order.holds(part) => {
                    order.held.retain(|other| *other != part);
                    denied.push((part, reason));
                }
                Err((_, reason)) => return Err(SandboxError::Refused { reason }),
            }
        }
    }

    fn accepted(self) -> Result<Self, SandboxError> {
        let denied = |counts: fn(Protection) -> bool| {
            let denied: Vec<_> = self.denied.iter().filter(|(part, _)| counts(*part)).map(describe).collect();
            (!denied.is_empty()).then(|| denied.join("; "))
        };
        match (self.confinement, denied(Protection::is_needed), denied(|_| true)) {
            (Confinement::Partial, ..) | (Confinement::Whole, None, _) | (Confinement::Complete, _, None) => Ok(self),
            (_, Some(reason), _) => Err(SandboxError::Denied { reason }),
            (_, None, Some(reason)) => Err(SandboxError::Incomplete { reason }),
        }
    }

    /// Warning about protections that the kernel denies, in a line; none if it grants all.
    pub fn warning(&self) -> Option<String> {
        let denied: Vec<_> = self.denied.iter().map(describe).collect();
        (!denied.is_empty()).then(|| format!("programs run with less protection: {}", denied.join("; ")))
    }

    /// Warning about a protection that was granted at first and denied for a later program, in a line.
    pub fn late_warning(&self) -> Option<String> {
        self.lost.get().map(|lost| format!("some programs ran with less protection: {}", describe(lost)))
    }

    /// Runs a program to its end or to its limits. Several threads may do so at once. One for which no cgroup can be made
    /// runs without, unless every part was demanded.
    pub fn run(&self, program: &Program) -> Result<Outcome, SandboxError> {
        let may = |part| self.confinement != Confinement::Complete && Protection::OF_GROUP.contains(&part);
        let (outcome, denied) = self.attempt(program, may)?;
        for lost in denied {
            let _ = self.lost.set(lost);
        }
        Ok(outcome)
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

fn describe((protection, reason): &Denial) -> String {
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

    fn permission(denied: &[Protection], confinement: Confinement) -> Permission {
        Permission {
            binary: PathBuf::new(),
            interpreter: Interpreter { executable: PathBuf::new(), readable: Vec::new() },
            limits: Limits::default(),
            held: Vec::new(),
            denied: denied.iter().map(|&protection| (protection, "EPERM: not permitted".to_owned())).collect(),
            confinement,
            lost: OnceLock::new(),
        }
    }

    #[test]
    fn parts_that_the_kernel_denies_are_told_in_one_line() {
        let partial = |denied: &[Protection]| permission(denied, Confinement::Partial);
        assert_eq!(partial(&[]).warning(), None);
        let warning = partial(&[Protection::Namespaces, Protection::Landlock, Protection::Memory]).warning().unwrap();
        assert!(warning.starts_with("programs run with less protection: no namespaces"), "{warning}");
        assert!(warning.contains("EPERM") && warning.contains("no Landlock"), "{warning}");
        assert!(warning.contains("no cgroup for memory"), "{warning}");
        assert!(!warning.contains('\n'), "{warning}");
    }

    #[test]
    fn a_kernel_without_a_part_is_refused_unless_the_user_takes_it_as_it_is() {
        let accepted = |part, confinement| permission(&[part], confinement).accepted();
        for (part, name) in
            [(Protection::Namespaces, "no namespaces"), (Protection::Calls, "no filter of system calls")]
        {
            for confinement in [Confinement::Whole, Confinement::Complete] {
                let error = accepted(part, confinement).unwrap_err().to_string();
                assert!(error.starts_with(&format!("programs of a model cannot be confined here: {name}")), "{error}");
                assert!(error.contains("EPERM") && error.ends_with("--allow-code-execution=unconfined"), "{error}");
            }
            assert!(accepted(part, Confinement::Partial).is_ok());
        }
    }

    #[test]
    fn a_part_that_is_no_need_is_refused_only_where_every_part_is_demanded() {
        for (part, name) in [
            (Protection::Landlock, "no Landlock"),
            (Protection::Memory, "no cgroup for memory"),
            (Protection::Processes, "no cgroup for processes"),
        ] {
            let error = permission(&[part], Confinement::Complete).accepted().unwrap_err().to_string();
            let start = format!("programs of a model cannot have every part of their confinement here: {name}");
            assert!(error.starts_with(&start) && error.contains("EPERM"), "{error}");
            assert!(error.ends_with("take what there is with --allow-code-execution"), "{error}");
            assert!(permission(&[part], Confinement::Whole).accepted().is_ok());
        }
        assert!(permission(&[], Confinement::Complete).accepted().is_ok());
    }
}
