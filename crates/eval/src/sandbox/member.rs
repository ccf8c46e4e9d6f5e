//! The side that limits itself and becomes an interpreter.

use std::{
    ffi::OsStr,
    fmt::Display,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use nix::{
    sys::{
        prctl::set_pdeathsig,
        resource::{Resource, setrlimit},
        signal::Signal,
    },
    unistd::{Gid, Uid, setgroups, setresgid, setresuid},
};
use rustix::thread::{CapabilitiesSecureBits, set_capabilities_secure_bits};

use super::{
    Limits, Order, Protection, Report, Role, filter,
    supervisor::{self, NOBODY},
    view,
};

/// Code that both interpreters run first.
const VALUES: &str = include_str!("python/values.py");

/// Code that the judge runs.
const JUDGE: &str = include_str!("python/judge.py");

/// Code that the program's interpreter runs.
const PROGRAM: &str = include_str!("python/program.py");

/// The newest version of Landlock whose rights are asked for; older kernels grant those that they know.
const LANDLOCK: ABI = ABI::V6;

/// Follows the order. An interpreter comes back from it only if it could not be started.
pub fn entry(order: Option<&OsStr>) -> ExitCode {
    let result = read(order).and_then(|order| match order.role {
        Role::Supervisor => supervisor::run(order),
        Role::Judge => become_interpreter(&order, JUDGE, Stdio::inherit()),
        Role::Program => become_interpreter(&order, PROGRAM, Stdio::null()),
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

/// Takes on the limits and becomes the interpreter. If that fails, the supervisor is told why.
fn become_interpreter(order: &Order, script: &str, stdout: Stdio) -> Result<(), String> {
    let (protection, reason) = match limit(order) {
        Ok(()) => {
            let mut command = Command::new(&order.interpreter.executable);
            command.args(["-s", "-B", "-c", &format!("{VALUES}\n\n{script}")]).stdout(stdout);
            (None, format!("{}: {}", order.interpreter.executable.display(), command.exec()))
        }
        Err(denied) => denied,
    };
    serde_json::to_writer(io::stdout(), &Report::Denied { protection, reason }).map_err(|error| error.to_string())
}

/// Takes on every limit; the first one that the kernel denies is returned with its answer.
fn limit(order: &Order) -> Result<(), (Option<Protection>, String)> {
    let other = |error: &dyn Display| (None, error.to_string());
    let denied = |part: Protection, error: &dyn Display| (Some(part), error.to_string());
    if order.holds(Protection::Namespaces) {
        let entered = view::enter(&order.interpreter, &order.limits).map_err(|error| error.to_string());
        entered.and_then(|()| give_up_power(order.nobody)).map_err(|error| denied(Protection::Namespaces, &error))?;
    }
    // After the user is another: that takes this back.
    set_pdeathsig(Signal::SIGKILL).map_err(|error| other(&error))?;
    limit_resources(order).map_err(|error| other(&format!("setrlimit: {error}")))?;
    if order.holds(Protection::Landlock) {
        hold_files(order).map_err(|error| denied(Protection::Landlock, &error))?;
    }
    if order.holds(Protection::Calls) {
        filter::apply().map_err(|error| denied(Protection::Calls, &error))?;
    }
    Ok(())
}

/// The interpreter has no power over the namespaces that were made for it.
fn give_up_power(nobody: bool) -> Result<(), String> {
    let bits = CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED;
    set_capabilities_secure_bits(bits).map_err(|error| error.to_string())?;
    if nobody {
        let change = || {
            let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
            setgroups(&[])?;
            setresgid(group, group, group)?;
            setresuid(user, user, user)
        };
        change().map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Lets the process write the working directory and read the interpreter's files, and nothing else.
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

/// Sets the kernel's limits. The limit of threads counts all processes of the user, and these alone only in a namespace
/// of their own: elsewhere the filter of system calls replaces it.
fn limit_resources(order: &Order) -> nix::Result<()> {
    let limits: &Limits = &order.limits;
    let same = |resource, value| setrlimit(resource, value, value);
    // The hard limit ends those who ignore the signal of the soft one.
    setrlimit(Resource::RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)?;
    same(Resource::RLIMIT_FSIZE, limits.file)?;
    same(Resource::RLIMIT_NOFILE, limits.open_files)?;
    same(Resource::RLIMIT_CORE, 0)?;
    same(Resource::RLIMIT_MEMLOCK, 0)?;
    if order.holds(Protection::Namespaces) {
        same(Resource::RLIMIT_NPROC, limits.threads)?;
    }
    same(Resource::RLIMIT_AS, limits.memory)
}
