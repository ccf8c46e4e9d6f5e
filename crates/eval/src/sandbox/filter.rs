//! System calls that an interpreter and its libraries need: files, memory, threads, time. All others are refused, and of
//! these what reaches beyond the process: modes, owners, times and attributes of files, processes, signals, sockets with
//! names, memory that no limit counts.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Test, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

/// Allowed whatever their arguments. Files are those that the tree of files and Landlock show.
const FILES: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fadvise64,
    libc::SYS_flock,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_pipe2,
    libc::SYS_umask,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
];

/// Memory, threads, time and questions about the process itself.
const SELF: &[libc::c_long] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_brk,
    libc::SYS_membarrier,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getpriority,
    libc::SYS_capget,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_getrandom,
    libc::SYS_getcpu,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_setitimer,
    libc::SYS_getitimer,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Pairs of sockets alone have anything to do with these.
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
];

/// Calls that only older processors have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_time,
    libc::SYS_alarm,
    libc::SYS_pause,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_arch_prctl,
];
#[cfg(target_arch = "aarch64")]
const OLDER: &[libc::c_long] = &[libc::SYS_renameat];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OLDER: &[libc::c_long] = &[];

/// Commands for open files that are theirs alone. Not there: owners and signals of files, leases, sizes of pipes, and locks
/// of ranges, which take memory without a limit.
const COMMANDS: [libc::c_int; 6] =
    [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL];

/// Commands for devices, by their numbers: whether it is a terminal (`TCGETS`), bytes to read (`FIONREAD`), waiting
/// (`FIONBIO`), closing at a new program (`FIOCLEX`, `FIONCLEX`).
const DEVICE_COMMANDS: [u64; 5] = [0x5401, 0x541b, 0x5421, 0x5451, 0x5450];

/// Commands for the process: names of threads and of memory. Not there: signals at its parent's end, power, other filters.
const PROCESS_COMMANDS: [libc::c_int; 3] = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA];

/// Bits of a socket's type that are not flags.
const SOCKET_TYPE: u64 = 0xf;

/// Installs the filters on this thread, and on all that it becomes.
pub fn apply() -> Result<(), Error> {
    // Its arguments are in memory, where a filter cannot look: libraries then use `clone`.
    let no_clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    apply_filter(&program(no_clone3, SeccompAction::Allow, refusal(libc::ENOSYS))?)?;
    apply_filter(&program(allowed()?, refusal(libc::EPERM), SeccompAction::Allow)?)
}

fn allowed() -> Result<BTreeMap<libc::c_long, Vec<SeccompRule>>, BackendError> {
    let own = u64::from(std::process::id());
    let argument = |index, test, value| SeccompCondition::new(index, Length::Dword, test, value);
    let one_of = |index, values: &[u64]| -> Result<Vec<SeccompRule>, BackendError> {
        values.iter().map(|&value| SeccompRule::new(vec![argument(index, Test::Eq, value)?])).collect()
    };
    let commands = |values: &[libc::c_int]| values.iter().map(|&value| u64::from(value.cast_unsigned())).collect();
    let (commands, process): (Vec<_>, Vec<_>) = (commands(&COMMANDS), commands(&PROCESS_COMMANDS));
    let mut calls: BTreeMap<_, _> = FILES.iter().chain(SELF).chain(OLDER).map(|&call| (call, Vec::new())).collect();
    // Answered by the other filter.
    calls.insert(libc::SYS_clone3, Vec::new());
    // Threads may be made, processes may not.
    let thread = libc::CLONE_THREAD as u64;
    calls.insert(libc::SYS_clone, vec![SeccompRule::new(vec![argument(0, Test::MaskedEq(thread), thread)?])?]);
    // Signals and limits are for the process itself alone.
    calls.insert(libc::SYS_kill, one_of(0, &[own])?);
    calls.insert(libc::SYS_tgkill, one_of(0, &[own])?);
    calls.insert(libc::SYS_prlimit64, one_of(0, &[0, own])?);
    calls.insert(libc::SYS_fcntl, one_of(1, &commands)?);
    calls.insert(libc::SYS_ioctl, one_of(1, &DEVICE_COMMANDS)?);
    calls.insert(libc::SYS_prctl, one_of(0, &process)?);
    // Pairs that talk to each other: of other kinds one could also talk to a name.
    let pair = vec![
        argument(0, Test::Eq, libc::AF_UNIX as u64)?,
        argument(1, Test::MaskedEq(SOCKET_TYPE), libc::SOCK_STREAM as u64)?,
    ];
    calls.insert(libc::SYS_socketpair, vec![SeccompRule::new(pair)?]);
    Ok(calls)
}

fn refusal(error: libc::c_int) -> SeccompAction {
    SeccompAction::Errno(error.cast_unsigned())
}

/// A filter with one action for the calls that are listed, and one for all others.
fn program(
    calls: BTreeMap<libc::c_long, Vec<SeccompRule>>,
    others: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, Error> {
    let target = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(calls, others, listed, target)?.try_into()?)
}
