//! The interpreter that programs are run with.

use std::{path::PathBuf, process::Command};

use serde::{Deserialize, Serialize};

use super::SandboxError;

/// Question to the `python3` on PATH. That may be a launcher, which the sandbox could not run: the answer names the
/// real one, and all folders that it reads.
const QUESTION: &str = "import json, sys; assert sys.version_info >= (3, 8), 'it is older than 3.8'; \
    folders = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix] + sys.path; \
    print(json.dumps({'executable': sys.executable, 'readable': sorted({name for name in folders if name})}))";

/// Folders of libraries that every program needs.
const SYSTEM: [&str; 8] =
    ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo", "/dev/urandom"];

/// An interpreter of Python.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpreter {
    /// The program.
    pub executable: PathBuf,
    /// Folders and files that it reads.
    pub readable: Vec<PathBuf>,
}

impl Interpreter {
    /// Asks the `python3` on PATH.
    pub fn find() -> Result<Self, SandboxError> {
        let refused = |reason: String| SandboxError::Interpreter { reason };
        let output = Command::new("python3").args(["-I", "-c", QUESTION]).output();
        let output = output.map_err(|error| refused(format!("python3: {error}")))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(refused(format!("python3: {}", text.lines().last().unwrap_or("it failed"))));
        }
        let mut found: Self = serde_json::from_slice(&output.stdout)
            .map_err(|error| refused(format!("python3 answers oddly: {error}")))?;
        if found.executable.as_os_str().is_empty() {
            return Err(refused("python3 does not know where it lies".to_owned()));
        }
        found.readable.extend(SYSTEM.map(PathBuf::from));
        Ok(found)
    }
}
