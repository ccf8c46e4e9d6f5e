//! System calls that a program has no use for: other processes, signals, sockets, the kernel's own affairs.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Test, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

/// Refused whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_socket,
    libc::SYS_io_uring_setup,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_setpgid,
    libc::SYS_setsid,
];

/// Calls of older processors that make processes.
#[cfg(target_arch = "x86_64")]
const FORKS: &[libc::c_long] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const FORKS: &[libc::c_long] = &[];

/// Installs the filters on this thread, and on all that it becomes.
pub fn apply() -> Result<(), Error> {
    apply_filter(&refusals()?)?;
    // Its arguments lie in memory, where a filter cannot look: libraries then use `clone`.
    apply_filter(&program(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?)
}

fn refusals() -> Result<BpfProgram, Error> {
    let own = u64::from(std::process::id());
    let argument = |index, test, value| SeccompCondition::new(index, Length::Dword, test, value);
    let rule = |conditions| Ok::<_, BackendError>(vec![SeccompRule::new(conditions)?]);
    let thread = libc::CLONE_THREAD as u64;
    let mut calls: BTreeMap<_, _> = REFUSED.iter().chain(FORKS).map(|&call| (call, Vec::new())).collect();
    // Threads may be made, processes may not.
    calls.insert(libc::SYS_clone, rule(vec![argument(0, Test::MaskedEq(thread), 0)?])?);
    // Signals and limits are for the process itself alone.
    calls.insert(libc::SYS_kill, rule(vec![argument(0, Test::Ne, own)?])?);
    calls.insert(libc::SYS_tgkill, rule(vec![argument(0, Test::Ne, own)?])?);
    calls.insert(libc::SYS_prlimit64, rule(vec![argument(0, Test::Ne, own)?, argument(0, Test::Ne, 0)?])?);
    program(calls, libc::EPERM)
}

fn program(calls: BTreeMap<libc::c_long, Vec<SeccompRule>>, error: libc::c_int) -> Result<BpfProgram, Error> {
    let target = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(error.cast_unsigned());
    Ok(SeccompFilter::new(calls, SeccompAction::Allow, refuse, target)?.try_into()?)
}
