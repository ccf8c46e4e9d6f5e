//! Programs as people meet them: run with arguments, standard input and a clean environment.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// Output of a run.
pub struct Run {
    /// Exit code.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Run {
    /// Returns the output of a run that worked.
    #[track_caller]
    pub fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stdout
    }

    /// Returns the one JSON document of a run that worked.
    #[track_caller]
    pub fn json(self) -> Value {
        let text = self.success();
        assert_eq!(text.lines().count(), 1, "{text}");
        serde_json::from_str(&text).unwrap()
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// A program, without the settings of the user who runs the tests, and without the network.
pub fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    for name in ["DEMASK_ISA", "HF_ENDPOINT", "HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH"] {
        command.env_remove(name);
    }
    // A machine with a GPU answers as one without: what the GPU's backend computes is tested elsewhere.
    for name in ["DEMASK_CUDA_DRIVER", "DEMASK_NVRTC", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"] {
        command.env_remove(name);
    }
    command.env("CUDA_VISIBLE_DEVICES", "").env("XDG_CACHE_HOME", "/nowhere/cache");
    command.env("HF_HUB_OFFLINE", "1").env("HF_HOME", "/nowhere/huggingface");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a program with arguments.
pub fn run(program: &str, arguments: &[&str]) -> Run {
    command(program, arguments).output().unwrap().into()
}

/// Runs a program with arguments and standard input.
pub fn run_with_input(program: &str, arguments: &[&str], input: &str) -> Run {
    let mut child = command(program, arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

/// A path in the project.
pub fn project(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(path).display().to_string()
}

/// Expects a refusal with exactly this message.
#[track_caller]
pub fn refused(run: &Run, code: i32, message: &str) {
    assert_eq!(run.stderr, format!("error: {message}\n"));
    assert_eq!((run.code, run.stdout.as_str()), (Some(code), ""));
}

/// Questions of the demo's test set with their answers.
pub fn questions() -> Vec<(String, i64)> {
    let text = std::fs::read_to_string(project("demo/wordmath-test.jsonl")).unwrap();
    let read = |line: &str| {
        let item: Value = serde_json::from_str(line).unwrap();
        (item["question"].as_str().unwrap().to_owned(), item["answer"].as_i64().unwrap())
    };
    text.lines().map(read).collect()
}
