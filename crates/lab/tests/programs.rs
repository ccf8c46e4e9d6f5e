//! Programs that a model wrote, run by the binary as a sandbox: every misdeed is a counted failure, and none hangs.

use std::{
    io::{ErrorKind, Write},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use demask_eval::{
    Gold, Problem,
    sandbox::{Confinement, Limits, Outcome, Permission, Program, SandboxError},
    score::judge_program,
};

/// The wall limit of programs that are expected to end by themselves: long, for a machine that is busy.
const PATIENCE: Duration = Duration::from_mins(2);

/// Start of the error where there is no interpreter.
pub(super) const NO_PYTHON: &str = "no Python to run programs with: python3: No such file or directory";

/// Start of the error where the kernel lacks a part of the confinement.
pub(super) const UNCONFINED: &str = "programs of a model cannot be confined here: no ";

/// Grants programs a sandbox. Where there is no Python at all, or a kernel that cannot confine programs, the refusal is
/// tested instead, and the test that asks says that it is skipped.
pub(super) fn permission(limits: Limits) -> Option<Permission> {
    let granted = Permission::grant(env!("CARGO_BIN_EXE_demask-lab").into(), limits, Confinement::Whole);
    let start = match &granted {
        Err(_) if !has_python() => NO_PYTHON,
        Err(SandboxError::Denied { .. }) => UNCONFINED,
        _ => return Some(granted.unwrap()),
    };
    let error = granted.unwrap_err().to_string();
    let _ = writeln!(std::io::stderr(), "skipped: {error}");
    assert!(error.starts_with(start), "{error}");
    None
}

/// Reports whether there is a program `python3` on PATH.
pub(super) fn has_python() -> bool {
    !Command::new("python3").arg("--version").output().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn patient() -> Option<Permission> {
    permission(Limits { wall: PATIENCE, ..Limits::default() })
}

fn program(code: &str) -> Program {
    Program { code: code.to_owned(), ..Program::default() }
}

fn outcome(permission: &Permission, code: &str) -> String {
    permission.run(&program(code)).unwrap().to_string()
}

/// The end of a program with tests.
fn tested(permission: &Permission, code: &str, tests: &str) -> String {
    permission.run(&Program { tests: tests.to_owned(), ..program(code) }).unwrap().to_string()
}

#[test]
fn programs_end_as_they_end() {
    let Some(permission) = patient() else { return };
    for (program, expected) in [
        ("assert 1 + 1 == 2", "passed"),
        ("assert 1 + 1 == 3", "exception: AssertionError"),
        ("x = (", "exception: SyntaxError"),
        ("undefined", "exception: NameError"),
        ("import sys\nsys.exit(0)", "exit"),
        ("import os\nos._exit(0)", "exit"),
        ("def f(): f()\nf()", "exception: RecursionError"),
        ("input()", "exception: EOFError"),
        ("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nassert A(1).x == 1", "passed"),
        ("import os\nassert 'PATH' not in os.environ", "passed"),
        ("assert __name__ != '__main__'", "passed"),
        ("class Odd(Exception): pass\nraise Odd", "exception: Odd"),
        ("import threading\nt = threading.Thread(target=print)\nt.start()\nt.join()", "passed"),
    ] {
        assert_eq!(outcome(&permission, program), expected, "{program}");
    }
}

#[test]
fn a_verdict_cannot_be_forged_or_lost() {
    let Some(permission) = patient() else { return };
    for (program, expected) in [
        ("import os\nopen('verdict', 'w').write('passed')\nos._exit(0)", "exit"),
        ("import builtins, os\nbuiltins.open = None\nos.write = None\nos._exit = None", "passed"),
        // Nothing can be said for a program that does not answer.
        ("import os\nos.closerange(0, 1000)", "exit"),
        ("import os\nos.closerange(0, 1000)\nassert False", "exit"),
        ("import os\nos.chdir('/usr/lib')", "passed"),
        ("import os\nassert not os.path.exists('program.py')", "passed"),
        ("import sys\nassert sys.argv == ['-c']", "passed"),
        ("import os\nos.mkfifo('verdict')", "exception: PermissionError"),
    ] {
        assert_eq!(outcome(&permission, program), expected, "{program}");
    }
}

/// A program passes only with the right answer, whatever it is and does.
#[test]
fn a_program_passes_by_its_answers_alone() {
    let Some(permission) = patient() else { return };
    let liar = "class Liar:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    \
                def __contains__(self, value): return True\n    def __hash__(self): return hash(3)\n    \
                def __iter__(self): return iter([4])\n    def __sub__(self, other): return 0\n    \
                def __lt__(self, other): return True\n\ndef f(*values): return Liar()";
    let number = "class Three(int):\n    def __eq__(self, other): return True\n\ndef f(*values): return Three(4)";
    let list = "class Three(list):\n    def __eq__(self, other): return True\n\ndef f(*values): return Three([4])";
    let walk = "import gc, sys\ndef f(*values):\n    found, frame = [], sys._getframe()\n    while frame:\n        \
                found.append(str(frame.f_locals))\n        frame = frame.f_back\n    \
                found += [item for item in gc.get_objects() if isinstance(item, str)]\n    \
                return 3 + 4 if any('check' + 'sum' in text for text in found) else 0";
    let ends = "import os\ndef f(*values):\n    for handle in range(64):\n        try: os.write(handle, b'passed')\n        \
                except OSError: pass\n    os._exit(0)";
    let helpers = "def abs(x): return 0\ndef len(x): return 3\ndef sum(x): return 3\ndef f(*values): return [4]";
    for (program, tests, expected) in [
        (liar, "assert f(1) == 3", "exception: AssertionError"),
        (liar, "assert 3 == f(1)", "exception: AssertionError"),
        (liar, "assert f(1) in [3]", "exception: AssertionError"),
        (liar, "assert {f(1)} == {3}", "exception: AssertionError"),
        (liar, "assert 3 in f(1)", "exception: AssertionError"),
        (liar, "assert [f(1)] == [3]", "exception: AssertionError"),
        (liar, "assert abs(f(1) - 3) < 1e-6", "exception: TypeError"),
        (liar, "assert f(1) < 3", "exception: TypeError"),
        (number, "assert f(1) == 3", "exception: AssertionError"),
        (list, "assert f(1) == [3]", "exception: AssertionError"),
        (walk, "checksum = 7\nassert f(6) == checksum", "exception: AssertionError"),
        (ends, "assert f(1) == 3", "exit"),
        ("def f(x): raise SystemExit(0)", "f(1)", "exit"),
        ("def f(x): raise AssertionError", "f(1)", "exception: AssertionError"),
        ("import sys\nsys.modules['__main__'].__dict__.clear()\ndef f(x): return 4", "assert f(1) == 3", "exception"),
        ("def f(x): return 4\ndef check(*values): pass", "def check(f):\n    assert f(1) == 3\ncheck(f)", "exception"),
        (helpers, "assert len(f(1)) == 3", "exception: AssertionError"),
        (helpers, "assert sum(f(1)) == 3", "exception: AssertionError"),
        // The tests' text closes a string of the program's: no test is left.
        ("x = '''", "'''\nassert True", "exit"),
    ] {
        let told = tested(&permission, program, tests);
        let ends_well = told.starts_with(expected) || expected == "exception" && told == "exit";
        assert!(ends_well, "{told}: {program}: {tests}");
    }
    let redefined = Program {
        tests: "def check(f):\n    assert value(f(1)) == 0\ncheck(f)".to_owned(),
        entry_point: Some("f".to_owned()),
        given: "def value(x): return 5".to_owned(),
        ..program("def value(x): return 0\ndef f(x): return 1")
    };
    assert_eq!(permission.run(&redefined).unwrap().to_string(), "exception: AssertionError");
}

/// Right programs pass, whatever kinds of values they take and return.
#[test]
fn right_programs_pass_with_all_kinds_of_values() {
    let Some(permission) = patient() else { return };
    let same = "def f(x): return x";
    let nodes = "class Node:\n    def __init__(self, value):\n        self.value, self.left = value, None\n\n\
                 def depth(node): return 0 if node is None else 1 + depth(node.left)";
    for (program, tests) in [
        (
            same,
            "for x in (1, -1, 0.1, 1e300, True, None, 'é\\ud800', b'x', 2j, 10**5000, range(3), (), [[1], (2,)]):\n    \
             assert f(x) == x and type(f(x)) is type(x)",
        ),
        (same, "x = {1: {2}, (3,): frozenset([4]), 'a': {'b': [5]}}\nassert f(x) == x and f(x) is not x"),
        (same, "x = float('nan')\nassert f(x) != f(x) and f(float('-inf')) == float('-inf')"),
        (
            "from collections import Counter, deque, OrderedDict, namedtuple\n\
             P = namedtuple('P', 'x y')\ndef f(): return [Counter('aab'), OrderedDict(a=1), deque([1]), P(1, 2)]",
            "from collections import deque\nassert f() == [{'a': 2, 'b': 1}, {'a': 1}, deque([1]), (1, 2)]",
        ),
        (
            "from fractions import Fraction\nfrom decimal import Decimal\nimport datetime\n\
             def f(): return Fraction(1, 2), Decimal('1.5'), datetime.date(2020, 1, 2), {1: 2}.keys(), {1: 2}.items()",
            "import datetime\na, b, c, d, e = f()\nassert a == 0.5 and b == 1.5 and c == datetime.date(2020, 1, 2)\n\
             assert d == {1} and e == {(1, 2)}",
        ),
        (
            "def f(n):\n    for x in range(n): yield x\ndef g(x): return map(str, x)",
            "assert list(f(3)) == [0, 1, 2] and tuple(g([1])) == ('1',) and next(f(1)) == 0",
        ),
        (
            "def f(x, key): return [key(value) for value in x]",
            "assert f([1], lambda x: x + 1) == [2] and f(['ab'], len) == [2] and f([1.5], int) == [1]",
        ),
        ("def f(x): x.append(4)", "x = [1]\nf(x)\nassert x == [1, 4]"),
        ("def f(x, *, y=2): return x + y", "assert f(1) == 3 and f(1, y=3) == 4"),
        (
            "def f(x): raise ValueError('no')",
            "try:\n    f(1)\n    assert False\nexcept ValueError as error:\n    assert str(error) == 'no'",
        ),
        ("class Odd(KeyError): pass\ndef f(x): raise Odd", "try:\n    f(1)\n    assert False\nexcept KeyError: pass"),
        (nodes, "root = Node(1)\nroot.left = Node(2)\nassert depth(root) == 2 and root.left.value == 2"),
        (
            "class Pair:\n    def __init__(self, a, b): self.a, self.b = a, b\n    \
             def __eq__(self, other): return self.a == other.a\ndef f(pairs): return max(pairs, key=lambda p: p.a)",
            "assert f([Pair(1, 2), Pair(3, 4)]).b == 4 and f([Pair(1, 0)]) == Pair(1, 2)",
        ),
        ("def sum(a, b): return a * b", "assert sum(10, 15) == 150\nassert sum(1, 1) == 1"),
        ("import math\ndef f(x): return math.sqrt(x)", "assert math.isclose(f(4), 2)"),
        ("import asyncio\nasync def g(): return 3\ndef f(): return asyncio.run(g())", "assert f() == 3"),
        ("def f(): return f", "assert f()()() is not None"),
        ("limit = 3", "assert limit == 3"),
    ] {
        assert_eq!(tested(&permission, program, tests), "passed", "{program}: {tests}");
    }
}

/// Whatever reaches beyond the process is refused, by the filter or as there is nothing of that name.
#[test]
fn processes_signals_sockets_and_foreign_files_are_refused() {
    let Some(permission) = patient() else { return };
    let outside = tempfile::tempdir().unwrap();
    let kept = outside.path().join("kept");
    std::fs::write(&kept, "kept").unwrap();
    let before = std::fs::metadata(&kept).unwrap();
    let (new, name) = (outside.path().join("new"), kept.display());
    let of_files = [
        format!("open({:?}, 'w')", new.display().to_string()),
        format!("open('{name}')"),
        format!("open('{name}', 'w')"),
        format!("os.remove('{name}')"),
        format!("os.stat('{name}')"),
        format!("os.chmod('{name}', 0o4777)"),
        format!("os.chown('{name}', 1, 1)"),
        format!("os.utime('{name}', (0, 0))"),
        format!("os.setxattr('{name}', 'user.mark', b'x')"),
        format!("os.truncate('{name}', 0)"),
        format!("os.link('{name}', 'link')"),
        format!("os.symlink('{name}', 'link')\nopen('link', 'w')"),
        format!("os.listdir('{}')", outside.path().display()),
    ];
    let refusals = ["PermissionError", "FileNotFoundError", "OSError"];
    for program in of_files.iter().map(String::as_str).chain(FOREIGN) {
        let told = outcome(&permission, &format!("import ctypes, os\nlibc = ctypes.CDLL(None)\n{program}"));
        assert!(refusals.iter().any(|name| told == format!("exception: {name}")), "{told}: {program}");
    }
    let after = std::fs::metadata(&kept).unwrap();
    assert!(!new.exists());
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "kept");
    assert_eq!((before.permissions(), before.modified().unwrap()), (after.permissions(), after.modified().unwrap()));
}

/// Calls that reach beyond the process, other than to files of the user.
const FOREIGN: [&str; 33] = [
    "open('/etc/passwd')",
    "open('/proc/self/status')",
    "open('/new', 'w')",
    "open(os.__file__ + '.new', 'w')",
    "os.utime(os.__file__)",
    "os.chmod('/dev/null', 0)",
    "os.fchmod(1, 0)",
    "os.setxattr(1, 'user.mark', b'x')",
    "os.chmod('.', 0)",
    "os.fork()",
    "os.posix_spawn('/bin/true', ['true'], {})",
    "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'])",
    "import multiprocessing\nmultiprocessing.Process(target=print).start()",
    "import signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "import signal\nos.kill(1, signal.SIGKILL)",
    "import signal\nos.kill(-1, signal.SIGKILL)",
    "import fcntl\nfcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, 1)",
    "import fcntl\nfcntl.fcntl(os.pipe()[0], 10, 9)",
    "import socket\nsocket.socket()",
    "import socket\nsocket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "import socket\nsocket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)",
    "os.setsid()",
    "os.mkfifo('pipe')",
    "os.mknod('node')",
    "os.memfd_create('memory')",
    "os.nice(1)",
    "os.setuid(0)",
    "import resource\nresource.prlimit(1, resource.RLIMIT_CPU, (1, 1))",
    "if libc.prctl(1, 0) < 0: raise PermissionError",
    "if libc.shmget(0, 4096, 0o1600) < 0: raise PermissionError",
    "if libc.unshare(0x10000000) < 0: raise PermissionError",
    // Two calls that take hold of another process, whose numbers are the same on all processors.
    "if libc.syscall(434, 1, 0) < 0: raise PermissionError",
    "if libc.syscall(438, 0, 0, 0) < 0: raise PermissionError",
];

#[test]
fn memory_files_and_threads_have_limits() {
    let Some(permission) = permission(Limits { wall: PATIENCE, memory: 512 << 20, ..Limits::default() }) else {
        return;
    };
    for (program, expected) in [
        ("x = bytearray(4 << 30)", "memory"),
        ("x = []\nwhile True: x.append(bytearray(1 << 20))", "memory"),
        ("with open('big', 'wb') as file: file.write(bytes(64 << 20))", "exception: OSError"),
        ("files = [open(f'{n}', 'w') for n in range(1000)]", "exception: OSError"),
        ("for n in range(60):\n    with open(f'{n}', 'wb') as file: file.write(bytes(15 << 20))", "exception: OSError"),
        ("import os\nfor n in range(5000): os.mkdir(str(n))", "exception: OSError"),
    ] {
        assert_eq!(outcome(&permission, program), expected, "{program}");
    }
    // Small stacks: large ones would fill the address space before.
    let threads = "import threading, time\nthreading.stack_size(65536)\n\
                   for _ in range(1000): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()";
    assert_eq!(outcome(&permission, threads), "exception: RuntimeError");
    assert_eq!(tested(&permission, "def f(): return 'x' * (100 << 20)", "assert len(f()) == 3"), "memory");
    let overflow = "import sys\nsys.setrecursionlimit(10**9)\n\
                    class A:\n    def __repr__(self): return repr(self)\nrepr(A())";
    // From Python 3.12 on the interpreter counts its own stack.
    let ended = ["signal: SIGSEGV", "exception: RecursionError"];
    assert!(ended.contains(&outcome(&permission, overflow).as_str()));
}

/// Address space bounds each process; a cgroup bounds the program, the judge and their files together.
#[test]
fn memory_of_a_program_and_its_judge_is_bounded_together() {
    let limits = Limits { wall: PATIENCE, together: 200 << 20, ..Limits::default() };
    let Some(permission) = permission(limits) else { return };
    if let Some(warning) = permission.warning().filter(|warning| warning.contains("no cgroup for memory")) {
        let _ = writeln!(std::io::stderr(), "skipped: {warning}");
        return;
    }
    assert_eq!(outcome(&permission, "x = b'x' * (100 << 20)"), "passed");
    assert_eq!(outcome(&permission, "x = b'x' * (400 << 20)"), "memory");
    let copied = ("def f(): return 'x' * (120 << 20)", "assert len(f()) == 120 << 20");
    assert_eq!(tested(&permission, copied.0, copied.1), "memory");
    assert_eq!(permission.late_warning(), None);
}

/// Folders of groups that a process has made.
fn groups_of(process: u32) -> Vec<std::path::PathBuf> {
    let (mut folders, mut found) = (vec![std::path::PathBuf::from("/sys/fs/cgroup")], Vec::new());
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let own = name.starts_with("demask-") && name.contains(&format!("-{process}-"));
            if own { found.push(entry.path()) } else { folders.push(entry.path()) }
        }
    }
    found
}

#[test]
fn whatever_does_not_end_is_ended() {
    let wall = Duration::from_secs(4);
    let Some(permission) = permission(Limits { cpu_seconds: 1, wall, ..Limits::default() }) else { return };
    for program in [
        "while True: pass",
        "import time\ntime.sleep(1000)",
        "while True: print('flood' * 10000)",
        "import sys\nwhile True: sys.stderr.write('flood' * 10000)",
        "import threading\nthreading.Event().wait()",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "import signal\nfor s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(s, signal.SIG_IGN)\n\
         import time\ntime.sleep(1000)",
    ] {
        let start = Instant::now();
        assert_eq!(permission.run(&self::program(program)).unwrap(), Outcome::Timeout, "{program}");
        assert!(start.elapsed() < wall + Duration::from_secs(20), "{program}: {:?}", start.elapsed());
    }
}

#[test]
fn nothing_is_left_of_a_program() {
    let wall = Duration::from_secs(7);
    let Some(permission) = permission(Limits { wall, ..Limits::default() }) else { return };
    for code in [
        "import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')",
        "import os\nos.mkdir('d', 0)",
        "open('file', 'w').write('x')\nimport time\ntime.sleep(1000)",
    ] {
        permission.run(&program(code)).unwrap();
    }
    // The limit is the mark of this test's processes.
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let left = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    let own = format!("\"parent\":{}", std::process::id());
    let own: Vec<_> = left.filter(|line| line.contains(&own) && line.contains("{\"secs\":7,")).collect();
    assert!(own.is_empty(), "{own:?}");
}

/// An evaluation that is killed takes its programs with it, whatever they do.
#[test]
fn programs_end_with_the_evaluation() {
    if patient().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data.jsonl");
    // The prompt runs before the function, and whatever the model writes is in a string that the tests' text closes.
    let code = "import ctypes, signal, time\nctypes.CDLL(None).prctl(1, 0)\n\
                for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(s, signal.SIG_IGN)\n\
                time.sleep(1000)\ndef f(): pass\n_ = r'''";
    let item = serde_json::json!({
        "task_id": "T/0", "prompt": code, "entry_point": "f", "canonical_solution": "",
        "test": "'''\ndef check(f): pass\n",
    });
    std::fs::write(&data, item.to_string()).unwrap();
    let call = ["eval", "humaneval", "--allow-code-execution", "--gen-length", "8", "--steps", "2", "--data"];
    let mut command = super::harness::command(&call);
    let mut evaluation = command.arg(&data).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    let mut members = Vec::new();
    // The empty program that tries the sandbox ends by itself.
    while members.len() < 2 && start.elapsed() < PATIENCE {
        let supervisors = children(evaluation.id());
        members = supervisors.into_iter().flat_map(children).filter(|&one| runs_python(one)).collect();
        std::thread::sleep(Duration::from_secs(2));
        members.retain(|&one| runs_python(one));
    }
    assert_eq!(members.len(), 2, "{members:?}");
    evaluation.kill().unwrap();
    evaluation.wait().unwrap();
    let start = Instant::now();
    while members.iter().any(|&one| runs_python(one)) {
        assert!(start.elapsed() < Duration::from_secs(20), "{members:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Killed, it could not remove its groups: the next process does.
    patient().unwrap();
    assert_eq!(groups_of(evaluation.id()), Vec::<std::path::PathBuf>::new());
}

fn children(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().filter_map(Result::ok);
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|one| one.parse().ok()).collect::<Vec<_>>()).collect()
}

fn runs_python(process: u32) -> bool {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains("\0-s\0-B\0-c\0")
}

/// A kernel without user namespaces, as it looks inside of many containers.
#[test]
fn without_namespaces_programs_are_refused_or_run_as_the_user_asks() {
    if patient().is_none() {
        return;
    }
    let apart = ["--user", "--map-root-user"];
    if !Command::new("unshare").args(apart).arg("true").status().is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: no program `unshare` that makes a user namespace");
        return;
    }
    let deny = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs.jsonl");
    let run = |allow: &str| {
        let mut command = Command::new("unshare");
        command.args(apart).args(["sh", "-c", deny, "sh", env!("CARGO_BIN_EXE_demask-lab"), "eval", "humaneval"]);
        command.args(["--data", data, "--limit", "1", "--shots", "0", "--gen-length", "8", "--steps", "2", allow]);
        super::harness::Run::from(command.output().unwrap())
    };
    let refused = run("--allow-code-execution");
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("{UNCONFINED}namespaces")), "{}", refused.stderr);
    assert!(refused.stderr.contains("--allow-code-execution=unconfined"), "{}", refused.stderr);
    let taken = run("--allow-code-execution=unconfined");
    assert_eq!(taken.code, Some(0), "{}", taken.stderr);
    assert!(taken.stderr.contains("warning: programs run with less protection: no namespaces"), "{}", taken.stderr);
    let odd = run("--allow-code-execution=maybe");
    assert_eq!(odd.code, Some(2), "{}", odd.stderr);
}

/// A machine that lets no groups be made, as most containers do.
#[test]
fn without_cgroups_programs_run_unless_the_user_demands_every_part() {
    if patient().is_none() {
        return;
    }
    let apart = ["--user", "--map-root-user", "--mount"];
    let hide = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
    let mut possible = Command::new("unshare");
    if !possible.args(apart).args(["sh", "-c", hide, "sh", "true"]).status().is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: no program `unshare` that hides the groups");
        return;
    }
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs.jsonl");
    let run = |allow: &str| {
        let mut command = Command::new("unshare");
        command.args(apart).args(["sh", "-c", hide, "sh", env!("CARGO_BIN_EXE_demask-lab"), "eval", "humaneval"]);
        command.args(["--data", data, "--limit", "1", "--shots", "0", "--gen-length", "8", "--steps", "2", allow]);
        super::harness::Run::from(command.output().unwrap())
    };
    let taken = run("--allow-code-execution");
    assert_eq!(taken.code, Some(0), "{}", taken.stderr);
    let warning = taken.stderr.lines().find(|line| line.starts_with("warning: programs run with less protection: "));
    let warning = warning.unwrap_or_else(|| panic!("no warning: {}", taken.stderr));
    assert!(warning.contains("no cgroup for memory (") && warning.contains("no cgroup for processes ("), "{warning}");
    let refused = run("--allow-code-execution=complete");
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let told = "programs of a model cannot have every part of their confinement here: ";
    assert!(refused.stderr.contains(told) && refused.stderr.contains("no cgroup for memory ("), "{}", refused.stderr);
}

#[test]
fn without_an_interpreter_the_error_says_so() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs.jsonl");
    let call = ["eval", "humaneval", "--data", data, "--limit", "1", "--shots", "0", "--allow-code-execution"];
    let run = super::harness::Run::from(super::harness::command(&call).env("PATH", "/nowhere").output().unwrap());
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let told = format!("{NO_PYTHON} (os error 2); install python3 (3.8 or later) or put it on PATH");
    assert!(run.stderr.contains(&told), "{}", run.stderr);
}

#[test]
fn without_a_sandbox_the_error_says_so() {
    if patient().is_none() {
        return;
    }
    let error = Permission::grant("/bin/false".into(), Limits::default(), Confinement::Whole).unwrap_err().to_string();
    assert!(error.starts_with("the sandbox for programs does not work here"), "{error}");
    let error =
        Permission::grant("/no/such/binary".into(), Limits::default(), Confinement::Whole).unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
}

#[test]
fn the_hidden_argument_is_for_the_program_itself() {
    for arguments in [&["__sandbox"][..], &["__sandbox", "{}"]] {
        let run = super::harness::lab(arguments);
        assert_eq!(run.code, Some(1));
        assert!(run.stderr.starts_with("this argument is for the program's own use"), "{}", run.stderr);
    }
}

#[test]
fn programs_are_judged_with_their_tests() {
    let Some(permission) = patient() else { return };
    let gold = Gold::Program {
        prompt: String::new(),
        tests: "assert double(2) == 4\nassert double(0) == 0".to_owned(),
        entry_point: None,
    };
    let problem = Problem { gold, ..Problem::default() };
    let judge = |output: &str| judge_program(&permission, &problem, output);
    assert!(judge("Here it is:\n```python\ndef double(x):\n    return 2 * x\n```").correct);
    assert_eq!(judge("def double(x):\n    return x + 2").failure.as_deref(), Some("exception: AssertionError"));
    assert_eq!(judge("I cannot.").answer, None);
    assert_eq!(judge("def double(x):\n    while True: x()").failure.as_deref(), Some("exception: TypeError"));
}
