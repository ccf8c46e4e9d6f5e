//! Programs that a model wrote, run by the binary as a sandbox: every misdeed is a counted failure, and none hangs.

use std::{
    io::{ErrorKind, Write},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use demask_eval::{
    Gold, Problem,
    sandbox::{Limits, Outcome, Permission},
    score::judge_program,
};

/// The wall limit of programs that are expected to end by themselves: long, for a machine that is busy.
const PATIENCE: Duration = Duration::from_mins(2);

/// Start of the error where there is no interpreter.
pub(super) const NO_PYTHON: &str = "no Python to run programs with: python3: No such file or directory";

/// Grants programs a sandbox. Where there is no Python at all, the test that asks says that it is skipped.
pub(super) fn permission(limits: Limits) -> Option<Permission> {
    let granted = Permission::grant(env!("CARGO_BIN_EXE_demask").into(), limits);
    if let (Err(error), false) = (&granted, has_python()) {
        let _ = writeln!(std::io::stderr(), "skipped: {error}");
        assert!(error.to_string().starts_with(NO_PYTHON), "{error}");
        return None;
    }
    Some(granted.unwrap())
}

/// Reports whether there is a program `python3` on PATH.
pub(super) fn has_python() -> bool {
    !Command::new("python3").arg("--version").output().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn patient() -> Option<Permission> {
    permission(Limits { wall: PATIENCE, ..Limits::default() })
}

fn outcome(permission: &Permission, program: &str) -> String {
    permission.run(program).unwrap().to_string()
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
        ("import os\nos.closerange(0, 1000)", "passed"),
        ("import os\nos.closerange(0, 1000)\nassert False", "exception: AssertionError"),
        ("import os\nos.chdir('/usr/lib')", "passed"),
        ("import os\nassert not os.path.exists('program.py')", "passed"),
        ("import sys\nassert sys.argv == ['-c']", "passed"),
        ("import os\nos.mkfifo('verdict')", "exception: PermissionError"),
    ] {
        assert_eq!(outcome(&permission, program), expected, "{program}");
    }
}

#[test]
fn processes_signals_sockets_and_foreign_files_are_refused() {
    let Some(permission) = patient() else { return };
    let outside = tempfile::tempdir().unwrap();
    let kept = outside.path().join("kept");
    std::fs::write(&kept, "kept").unwrap();
    let (new, kept_name) = (outside.path().join("new"), kept.display());
    let foreign = [
        format!("open({:?}, 'w')", new.display().to_string()),
        format!("open('{kept_name}')"),
        format!("open('{kept_name}', 'w')"),
        format!("import os\nos.remove('{kept_name}')"),
        format!("import os\nos.listdir('{}')", outside.path().display()),
        "open('/etc/passwd')".to_owned(),
        "import os\nos.fork()".to_owned(),
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'])".to_owned(),
        "import multiprocessing\nmultiprocessing.Process(target=print).start()".to_owned(),
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)".to_owned(),
        "import os, signal\nos.kill(-1, signal.SIGKILL)".to_owned(),
        "import socket\nsocket.socket()".to_owned(),
        "import os\nos.setsid()".to_owned(),
        "import resource, os\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))".to_owned(),
    ];
    for program in foreign {
        assert_eq!(outcome(&permission, &program), "exception: PermissionError", "{program}");
    }
    assert!(!new.exists());
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "kept");
}

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
    ] {
        assert_eq!(outcome(&permission, program), expected, "{program}");
    }
    let threads = "import threading, time\n\
                   for _ in range(1000): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()";
    // Where threads cannot be counted, their stacks fill the address space.
    let refused = ["exception: RuntimeError", "memory"];
    assert!(refused.contains(&outcome(&permission, threads).as_str()));
    let overflow = "import sys\nsys.setrecursionlimit(10**9)\n\
                    class A:\n    def __repr__(self): return repr(self)\nrepr(A())";
    // From Python 3.12 on the interpreter counts its own stack.
    let ended = ["signal: SIGSEGV", "exception: RecursionError"];
    assert!(ended.contains(&outcome(&permission, overflow).as_str()));
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
        assert_eq!(permission.run(program).unwrap(), Outcome::Timeout, "{program}");
        assert!(start.elapsed() < wall + Duration::from_secs(20), "{program}: {:?}", start.elapsed());
    }
}

#[test]
fn nothing_is_left_of_a_program() {
    let before = leftovers();
    let Some(permission) = permission(Limits { wall: Duration::from_secs(2), ..Limits::default() }) else { return };
    permission.run("open('file', 'w').write('x')\nimport time\ntime.sleep(1000)").unwrap();
    assert!(leftovers() <= before, "{} then {}", before, leftovers());
}

/// Folders of programs that the tests of this process have left behind; others run at the same time.
fn leftovers() -> usize {
    let entries = std::fs::read_dir(std::env::temp_dir()).unwrap().filter_map(Result::ok);
    entries.filter(|entry| entry.path().join("file").exists() && is_program_folder(&entry.path())).count()
}

fn is_program_folder(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("demask-program-"))
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
    let error = Permission::grant("/bin/false".into(), Limits::default()).unwrap_err().to_string();
    assert!(error.starts_with("the sandbox for programs does not work here"), "{error}");
    let error = Permission::grant("/no/such/binary".into(), Limits::default()).unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
}

#[test]
fn the_hidden_argument_is_for_the_program_itself() {
    for arguments in [&["__sandbox"][..], &["__sandbox", "{}"]] {
        let run = super::harness::demask(arguments);
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
