//! The side that limits itself and becomes the interpreter.

use std::{
    ffi::OsStr,
    fmt::Display,
    fs,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        prctl::set_pdeathsig,
        resource::{Resource, setrlimit},
        signal::Signal,
    },
};

use super::{
    Limits, Order, Protection, Task, filter,
    parent::{PROGRAM, VERDICT},
};

/// Script that runs the program.
const RUNNER: &str = include_str!("runner.py");

/// The newest version of Landlock whose rights are asked for; older kernels grant those that they know.
const LANDLOCK: ABI = ABI::V6;

/// Follows the order. Comes back only if that fails, or was a probe.
pub fn run(order: Option<&OsStr>) -> ExitCode {
    let result = read(order).and_then(|order| match &order.task {
        Task::Probe => probe(&order),
        Task::Run(protections) => become_interpreter(&order, protections),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn read(order: Option<&OsStr>) -> Result<Order, String> {
    let text = order.and_then(OsStr::to_str).ok_or("this argument is for the program's own use")?;
    serde_json::from_str(text).map_err(|error| format!("this argument is for the program's own use: {error}"))
}

/// Tries every protection on this process, and returns which ones are denied.
fn probe(order: &Order) -> Result<(), String> {
    let denied = |protection: Protection| Some((protection, hold(protection, order).err()?));
    let denied: Vec<_> = Protection::ALL.into_iter().filter_map(denied).collect();
    serde_json::to_writer(io::stdout(), &denied).map_err(|error| error.to_string())
}

/// Takes on the limits and becomes the interpreter. If that fails, the program is not run, and the verdict says why.
fn become_interpreter(order: &Order, protections: &[Protection]) -> Result<(), String> {
    let text = fs::read_to_string(PROGRAM).map_err(|error| error.to_string())?;
    let key = text.lines().next().unwrap_or_default();
    let reason = match limit(order, protections) {
        Ok(()) => {
            let mut command = Command::new(&order.interpreter.executable);
            command.args(["-s", "-B", "-c", RUNNER]).exec().to_string()
        }
        Err(reason) => reason,
    };
    let _ = fs::write(VERDICT, format!("{key} refused {reason}"));
    Err(reason)
}

fn limit(order: &Order, protections: &[Protection]) -> Result<(), String> {
    set_pdeathsig(Signal::SIGKILL).map_err(|error| format!("prctl: {error}"))?;
    for &protection in protections {
        hold(protection, order).map_err(|error| format!("{protection:?}: {error}"))?;
    }
    limit_resources(&order.limits, protections).map_err(|error| format!("setrlimit: {error}"))
}

fn hold(protection: Protection, order: &Order) -> Result<(), String> {
    let tell = |error: &dyn Display| error.to_string();
    match protection {
        Protection::Network => unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC)
            .map_err(|error| tell(&error)),
        Protection::Files => hold_files(order).map_err(|error| tell(&error)),
        Protection::Calls => filter::apply().map_err(|error| tell(&error)),
    }
}

/// The working directory may be written, what the interpreter needs may be read, and nothing else.
fn hold_files(order: &Order) -> Result<(), Box<dyn std::error::Error>> {
    let no_programs =
        AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock | AccessFs::MakeFifo;
    let everything: BitFlags<AccessFs> = AccessFs::from_all(LANDLOCK);
    let folder = PathBeneath::new(PathFd::new(Path::new("."))?, everything & !no_programs);
    let sink = PathBeneath::new(PathFd::new("/dev/null")?, AccessFs::ReadFile | AccessFs::WriteFile);
    let read = AccessFs::from_read(LANDLOCK);
    let programs = [&order.interpreter.executable];
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?
        .add_rules(path_beneath_rules(&order.interpreter.readable, read))?
        .add_rules(path_beneath_rules(programs, AccessFs::Execute | AccessFs::ReadFile))?
        .add_rule(folder)?
        .add_rule(sink)?
        .restrict_self()?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err("the kernel has no Landlock".into()),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

/// Limits of the kernel. That of threads counts all processes of the user, and counts this one alone only in a namespace
/// of its own: elsewhere the filter of system calls has to do.
fn limit_resources(limits: &Limits, protections: &[Protection]) -> nix::Result<()> {
    let same = |resource, value| setrlimit(resource, value, value);
    // The hard limit ends those who ignore the signal of the soft one.
    setrlimit(Resource::RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)?;
    same(Resource::RLIMIT_FSIZE, limits.file)?;
    same(Resource::RLIMIT_NOFILE, limits.open_files)?;
    same(Resource::RLIMIT_CORE, 0)?;
    if protections.contains(&Protection::Network) {
        same(Resource::RLIMIT_NPROC, limits.threads)?;
    }
    same(Resource::RLIMIT_AS, limits.memory)
}
