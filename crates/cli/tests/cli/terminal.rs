//! `chat` on a terminal: lines are edited and remembered, and Ctrl-C ends an answer and not the conversation.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    pty::openpty,
};

use crate::harness::{command, questions};

/// Time after which a test gives up.
const PATIENCE: Duration = Duration::from_mins(1);
const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const UP: &str = "\u{1b}[A";

/// A conversation on a terminal.
struct Talk {
    child: Child,
    terminal: File,
    /// What the terminal has shown and no test has asked for.
    shown: String,
    /// What it showed before its first prompt.
    greeting: String,
}

impl Talk {
    /// Starts one whose state is kept in a folder, and waits for its prompt.
    fn start(state: &Path, arguments: &[&str]) -> Self {
        let pty = openpty(None, None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = command(&[&["chat"], arguments].concat());
        command.env("XDG_STATE_HOME", state).env("TERM", "xterm").env("NO_COLOR", "1");
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let mut talk = Self { child, terminal: File::from(pty.master), shown: String::new(), greeting: String::new() };
        talk.greeting = talk.until("/exit or Ctrl-D ends");
        talk.prompt();
        talk
    }

    /// Types.
    fn types(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a text, and returns what was shown up to its end.
    #[track_caller]
    fn until(&mut self, text: &str) -> String {
        let start = Instant::now();
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            assert!(start.elapsed() < PATIENCE, "no {text:?} in {:?}", self.shown);
            assert!(self.read(Duration::from_millis(100)), "ended without {text:?}: {:?}", self.shown);
        }
    }

    /// Waits for the editor's prompt: it turns on bracketed paste first.
    #[track_caller]
    fn prompt(&mut self) -> String {
        let before = self.until("\u{1b}[?2004h");
        before + &self.until("> ")
    }

    /// Reads what is shown; false at the end.
    fn read(&mut self, wait: Duration) -> bool {
        let mut ready = [PollFd::new(self.terminal.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, PollTimeout::try_from(wait).unwrap()).unwrap() == 0 {
            return true;
        }
        let mut buffer = [0; 4096];
        // Linux reports the end of a terminal as an error.
        let count = self.terminal.read(&mut buffer).unwrap_or(0);
        self.shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
        count > 0
    }

    /// Ends it with Ctrl-D.
    fn end(mut self) {
        self.types(CTRL_D);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

/// A test that fails leaves no conversation behind.
impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn history(state: &Path) -> String {
    fs::read_to_string(state.join("demask/history")).unwrap_or_default()
}

#[test]
fn typed_messages_are_remembered_and_no_one_else_reads_them() {
    let (question, answer) = &questions()[0];
    let state = tempfile::tempdir().unwrap();
    let mut talk = Talk::start(state.path(), &[]);
    talk.types(&format!("{question}\r"));
    talk.until(&format!("The final answer is {answer}"));
    talk.prompt();
    talk.types(" a secret\r");
    talk.prompt();
    talk.end();
    assert!(history(state.path()).contains(question.as_str()), "{}", history(state.path()));
    assert!(!history(state.path()).contains("secret"), "a space before it keeps a message out");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state.path().join("demask/history")), 0o600);
    assert_eq!(mode(&state.path().join("demask")), 0o700);
    // Another day.
    let mut talk = Talk::start(state.path(), &[]);
    talk.types(UP);
    talk.until(question);
    talk.types("\r");
    talk.until(&format!("The final answer is {answer}"));
    talk.prompt();
    talk.end();
}

#[test]
fn a_conversation_without_history_writes_none() {
    let state = tempfile::tempdir().unwrap();
    let mut talk = Talk::start(state.path(), &["--no-history", "--max-tokens", "4"]);
    talk.types("Hello?\r");
    talk.prompt();
    talk.end();
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
}

#[test]
fn a_history_that_cannot_be_written_is_named_once() {
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join("demask"), "a file").unwrap();
    let mut talk = Talk::start(state.path(), &["--max-tokens", "4"]);
    assert!(talk.greeting.contains("demask/history: Not a directory"), "{}", talk.greeting);
    talk.types("Hello?\r");
    let shown = talk.prompt();
    assert!(!shown.contains("no history is kept"), "{shown}");
    talk.end();
    assert_eq!(fs::metadata(state.path().join("demask")).unwrap().size(), 6);
}

#[test]
fn pasted_lines_and_blocks_are_one_message() {
    let state = tempfile::tempdir().unwrap();
    let mut talk = Talk::start(state.path(), &["--max-tokens", "4"]);
    talk.types("\u{1b}[200~one\rtwo\n\u{1b}[201~");
    talk.types("\r");
    talk.prompt();
    talk.types("\"\"\"three\r/exit\r\"\"\"\r");
    talk.prompt();
    talk.end();
    let entries: Vec<_> = history(state.path()).lines().skip(1).map(str::to_owned).collect();
    assert_eq!(entries, ["one\\ntwo\\n", "\"\"\"three\\n/exit\\n\"\"\""]);
}

#[test]
fn an_interruption_ends_an_answer_and_not_the_conversation() {
    let (question, _) = &questions()[0];
    let state = tempfile::tempdir().unwrap();
    let long = ["--no-history", "--gen-length", "896", "--block-length", "16", "--ignore-eos"];
    let mut talk = Talk::start(state.path(), &long);
    talk.types(CTRL_C);
    talk.until("Ctrl-D or /exit ends");
    talk.prompt();
    // Twice: the first interruption is forgotten.
    for _ in 0..2 {
        talk.types(&format!("{question}\r"));
        talk.until("\u{1b}[?2004l");
        talk.until("cups");
        // The key's signal, which a terminal sends to those that it controls.
        let killed = Command::new("kill").args(["-INT", &talk.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        talk.until("interrupted: the conversation goes on with this part of the answer");
        talk.prompt();
    }
    talk.end();
}
