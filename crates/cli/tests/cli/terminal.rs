//! `chat` and `generate` on a terminal: lines are edited and remembered, commands are run, and Ctrl-C ends an answer and not the
//! conversation, whatever is computed.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    pty::openpty,
    unistd::ttyname,
};

use crate::harness::{command, demask, project, questions};

/// Time after which a test gives up.
const PATIENCE: Duration = Duration::from_mins(1);
const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const UP: &str = "\u{1b}[A";

/// A conversation on a terminal.
struct Talk {
    child: Child,
    terminal: File,
    /// The end of the terminal that the program has.
    device: PathBuf,
    /// What the terminal has shown and no test has asked for.
    shown: String,
    /// What it showed before its first prompt.
    greeting: String,
}

impl Talk {
    /// Starts one whose state is kept in a folder, and waits for its prompt.
    fn start(state: &Path, arguments: &[&str]) -> Self {
        Self::start_slowly(state, arguments, &[])
    }

    /// Starts one with variables of the environment.
    fn start_slowly(state: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = command(&[&["chat"], arguments].concat());
        command.env("XDG_STATE_HOME", state).envs(environment.iter().copied());
        let mut talk = Self::of(command);
        talk.greeting = talk.until("Ctrl-D ends");
        talk.prompt();
        talk
    }

    /// Starts a program on a terminal.
    fn of(mut command: Command) -> Self {
        let pty = openpty(None, None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        command.env("TERM", "xterm").env("NO_COLOR", "1");
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let device = ttyname(&pty.slave).unwrap();
        Self { child, terminal: File::from(pty.master), device, shown: String::new(), greeting: String::new() }
    }

    /// Sends the signal of Ctrl-C, which a terminal sends to those that it controls.
    fn interrupt(&self) {
        self.signal("-INT");
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
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

    /// Sends a command that shows its outcome in a line, and returns that up to the next prompt.
    #[track_caller]
    fn commands(&mut self, line: &str, outcome: &str) -> String {
        self.types(&format!("{line}\r"));
        self.until("\u{1b}[?2004l");
        let shown = self.until(outcome);
        shown + &self.prompt()
    }

    /// Waits for the end.
    fn wait(&mut self) -> ExitStatus {
        while self.read(Duration::from_millis(100)) {}
        self.child.wait().unwrap()
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
    talk.until("Ctrl-D or /bye ends");
    talk.prompt();
    // Twice: the first interruption is forgotten.
    for _ in 0..2 {
        talk.types(&format!("{question}\r"));
        talk.until("\u{1b}[?2004l");
        talk.until("cups");
        talk.interrupt();
        talk.until("interrupted: the conversation goes on with this part of the answer");
        talk.prompt();
    }
    talk.end();
}

/// A canvas that is full after milliseconds cannot be watched.
#[test]
fn a_watched_canvas_has_a_pace_and_no_second_copy() {
    let question = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";
    let arguments = ["generate", "--watch=50", "--decoder", "static", "--steps", "16", "--gen-length", "32", question];
    let started = Instant::now();
    let mut talk = Talk::of(command(&arguments));
    let canvas = talk.until("step 15 nfe 16");
    assert!(started.elapsed() >= Duration::from_millis(15 * 20), "16 forwards, 50 a second");
    assert_eq!(canvas.matches("step ").count(), 16, "each forward is drawn: {canvas:?}");
    // Where the canvas was, the text is.
    talk.until("The final answer is 7");
    let rest = talk.until("tokens/s");
    assert_eq!(rest.matches("The final answer is 7").count(), 1, "{rest:?}");
}

#[test]
fn commands_never_reach_the_model() {
    let (question, answer) = &questions()[0];
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("talk.json");
    let mut talk = Talk::start(state.path(), &["--no-history"]);
    let listed = talk.commands("/help", "//TEXT sends /TEXT as a message");
    assert!(listed.contains("/system [TEXT]") && listed.contains("/read FILE"), "{listed}");
    talk.commands(
        "/sytem x",
        "error: /sytem is no command, did you mean /system? (/help lists them; //sytem sends /sytem)",
    );
    talk.commands("/retry", "error: there is no message to answer once more: type one");
    talk.commands("/set temperature warm", "error: --temperature is \"warm\", expected a number");
    talk.commands("/set temperture 1", "unknown option \"temperture\", did you mean \"temperature\"?");
    talk.commands("/set steps 0", "error: the number of steps is 0, expected at least 1");
    talk.commands("/set top-logprobs 2", "error: --top-logprobs is shown by generate and chat with --json");
    talk.types("/set max-tokens 40\r");
    talk.prompt();
    talk.commands("/set gen-length 256", "note: --gen-length 256 is an input");
    talk.commands("/set gen-length 64", "");
    // As for the flag, one is drawn.
    talk.commands("/set temperature 0.5", " draws the same again");
    talk.commands("/set temperature 0", "");
    talk.commands("/set", "max_tokens 40");
    talk.commands("/system Be brief.", "the system message is set");
    talk.commands("/system", "Be brief.");
    talk.types(&format!("{question}\r"));
    talk.until(&format!("The final answer is {answer}"));
    talk.prompt();
    talk.commands("/retry", &format!("The final answer is {answer}"));
    talk.commands(&format!("/save {}", file.display()), "3 messages saved in ");
    talk.commands("/load /nowhere/talk.json", "error: cannot read /nowhere/talk.json: No such file or directory");
    let saved: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(saved[0], serde_json::json!({"role": "system", "content": "Be brief."}));
    assert_eq!(saved[1], serde_json::json!({"role": "user", "content": question}));
    assert!(saved[2]["content"].as_str().unwrap().ends_with(&format!("The final answer is {answer}")));
    talk.commands("/reset", "the conversation is forgotten");
    talk.commands(&format!("/load {}", file.display()), "3 messages of ");
    // A message that begins with a slash is sent with two.
    talk.commands("//tmp", "");
    talk.commands(&format!("/save {}", file.display()), "5 messages saved in ");
    assert!(fs::read_to_string(&file).unwrap().contains("\"/tmp\""));
    talk.types("/BYE\r");
    assert_eq!(talk.wait().code(), Some(0));
}

/// A model of the demo's folder that takes prompts of any length.
fn far_sighted(name: &str) -> tempfile::TempDir {
    let (copy, own) = (tempfile::tempdir().unwrap(), PathBuf::from(project("demo")).join(name));
    for file in fs::read_dir(own).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let config = copy.path().join("config.json");
    let text = fs::read_to_string(&config).unwrap();
    let longer = text.replace("position_embeddings\": 1024", "position_embeddings\": 200000");
    let longer = longer.replace("max_sequence_length\": 1024", "max_sequence_length\": 200000");
    assert_ne!(text, longer);
    fs::write(config, longer).unwrap();
    copy
}

/// A text that takes a minute to read, without fast kernels.
fn long_text(directory: &Path) -> PathBuf {
    let path = directory.join("long.txt");
    fs::write(&path, "Ada has 3 pears. ".repeat(6000)).unwrap();
    path
}

/// Time in which an interruption is heard, with all that a busy machine adds.
const HEARD: Duration = Duration::from_secs(5);

#[test]
fn an_interruption_is_heard_while_a_long_prompt_is_read() {
    let state = tempfile::tempdir().unwrap();
    let model = far_sighted("demo-qwen");
    let arguments = ["--no-history", "--threads", "1", "--model", model.path().to_str().unwrap(), "--max-tokens", "4"];
    let mut talk = Talk::start_slowly(state.path(), &arguments, &[("DEMASK_ISA", "portable")]);
    talk.types(&format!("/read {}\r", long_text(state.path()).display()));
    talk.until("reading the prompt");
    // The second piece has 512 rows more than the first.
    talk.until(" 1024/");
    let start = Instant::now();
    talk.interrupt();
    talk.until("interrupted: the message is not part of the conversation");
    assert!(start.elapsed() < HEARD, "{:?}", start.elapsed());
    talk.prompt();
    // The engine has dropped the request, and answers another one.
    let shown = talk.commands("Hello?", "reading the prompt");
    assert!(!shown.contains("error: "), "{shown}");
    talk.end();
}

/// Under full attention a prompt is read in one forward: the program does not wait for its end.
#[test]
fn an_interruption_is_heard_in_the_middle_of_a_forward() {
    let (state, model) = (tempfile::tempdir().unwrap(), far_sighted("demo-llada"));
    let (model, prompt) = (model.path().to_str().unwrap(), long_text(state.path()));
    let mut call =
        command(&["generate", "--threads", "1", "--model", model, "--prompt-file", prompt.to_str().unwrap()]);
    call.env("DEMASK_ISA", "portable");
    let mut talk = Talk::of(call);
    talk.until("reading the prompt");
    // The forward begins when its request has entered.
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    talk.interrupt();
    assert_eq!(talk.wait().code(), Some(130));
    assert!(start.elapsed() < HEARD, "{:?}", start.elapsed());
    assert!(talk.shown.contains("error: interrupted"), "{}", talk.shown);
}

#[test]
fn the_oldest_turns_make_room() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("talk.json");
    let mut talk = Talk::start(state.path(), &["--no-history", "--system", "Be brief.", "--max-tokens", "8"]);
    let message = |number: usize| format!("{number} {}", "pears ".repeat(140));
    for number in 0..6 {
        talk.commands(&message(number), "");
    }
    let shown = talk.commands(&message(6), "forgotten");
    assert!(shown.contains("the oldest turn no longer fits and is forgotten"), "{shown}");
    talk.commands(
        &format!("{} and {}", message(7), "pears ".repeat(260)),
        "the oldest 3 turns no longer fit and are forgotten",
    );
    // One that has no room alone is refused, and nothing is forgotten for it.
    talk.commands(&"pears ".repeat(1100), "shorten the prompt or lower --max-tokens");
    talk.commands(&format!("/save {}", file.display()), "messages saved");
    let saved: Vec<serde_json::Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let starts = |place: usize, text: &str| saved[place]["content"].as_str().unwrap().starts_with(text);
    assert!(starts(0, "Be brief.") && starts(1, "4 pears") && starts(saved.len() - 2, "7 pears"), "{saved:?}");
    talk.end();
}

#[test]
fn a_pasted_text_of_100_kilobytes_arrives_whole() {
    let state = tempfile::tempdir().unwrap();
    let text = format!("{}Wo ist die Birne \u{1f350}?", "Ada has 3 p\u{e4}rs.\n".repeat(6000));
    let file = state.path().join("text.txt");
    fs::write(&file, &text).unwrap();
    // The refusal counts its bytes.
    let from_file = demask(&["generate", "--prompt-file", file.to_str().unwrap()]);
    let line = from_file.stderr.trim_end();
    assert!(line.starts_with("error: the prompt has 1") && line.contains(" bytes, and the "), "{line}");
    let mut talk = Talk::start(state.path(), &["--no-history"]);
    talk.types(&format!("\u{1b}[200~{text}\u{1b}[201~"));
    talk.commands("", line);
    talk.end();
}

#[test]
fn a_line_is_whole_where_the_terminal_changes_its_width() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("talk.json");
    let mut talk = Talk::start(state.path(), &["--no-history", "--max-tokens", "2"]);
    let width = |talk: &Talk, columns: &str| {
        let device = File::open(&talk.device).unwrap();
        assert!(Command::new("stty").args(["cols", columns]).stdin(device).status().unwrap().success());
        talk.signal("-WINCH");
    };
    width(&talk, "40");
    talk.types("Zwei \u{1f350} und drei \u{65e5}\u{672c}\u{8a9e}, ");
    talk.until("drei");
    width(&talk, "11");
    // An accent of its own, a family of one sign, and the end of the line is edited: n becomes m.
    talk.types("e\u{301} \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} n\u{7f}m");
    talk.commands("", "");
    talk.commands(&format!("/save {}", file.display()), "2 messages");
    let saved: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let whole =
        "Zwei \u{1f350} und drei \u{65e5}\u{672c}\u{8a9e}, e\u{301} \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} m";
    assert_eq!(saved[0]["content"], whole);
    talk.end();
}
