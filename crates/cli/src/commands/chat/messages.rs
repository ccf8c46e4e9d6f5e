//! Messages that are typed: lines of a pipe, or lines edited on a terminal with a history.

use std::{
    fs::DirBuilder,
    io::{self, BufRead, IsTerminal},
    path::{Path, PathBuf},
};

use demask::plain;
use demask_terminal::output::{self, Screen};
use rustyline::{
    Config, Editor, Helper,
    completion::Completer,
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::FileHistory,
    validate::{ValidationContext, ValidationResult, Validator},
};

use super::commands;

const PROMPT: &str = "> ";
/// Opens and closes a message of several lines.
const FENCE: &str = "\"\"\"";
/// Messages in the history, and bytes of the longest one in it: a pasted message may be a book.
const KEPT: usize = 1000;
const LONGEST_KEPT: usize = 16 << 10;

/// One thing that was typed.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    /// A message for the model.
    Message(String),
    /// An empty line.
    Nothing,
    /// A line that begins with a slash, without it: a command.
    Command(String),
    /// Ctrl-C, where nothing runs.
    Interruption,
    /// The conversation is over.
    End,
}

/// Source of messages.
pub enum Messages {
    /// Each line is one.
    Lines {
        /// Whether a person types them, who sees a prompt.
        invites: bool,
    },
    /// A person edits them.
    Edited(Box<Edited>),
}

impl Messages {
    /// Opens standard input. Lines are edited where it and standard output are a terminal; their history is a file, or is
    /// forgotten at the end.
    ///
    /// # Errors
    /// If the terminal cannot be read.
    pub fn open(history: Option<PathBuf>, screen: Screen) -> anyhow::Result<Self> {
        let invites = io::stdin().is_terminal();
        if !(invites && output::stdout_is_terminal()) {
            return Ok(Self::Lines { invites });
        }
        Ok(Self::Edited(Box::new(Edited::open(history, screen)?)))
    }

    /// Returns the line that says how to use it, to a person.
    pub fn usage(&self) -> Option<String> {
        let names = commands::names();
        match self {
            Self::Lines { invites: false } => None,
            Self::Lines { invites: true } => Some(names),
            Self::Edited(_) => Some(format!("{names}; Ctrl-D ends, \"\"\" opens and closes several lines")),
        }
    }

    /// Waits for the next one.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub fn next(&mut self) -> anyhow::Result<Typed> {
        match self {
            Self::Lines { invites } => {
                if *invites {
                    output::text(PROMPT)?;
                }
                let mut line = String::new();
                let read = io::stdin().lock().read_line(&mut line)?;
                Ok(if read == 0 { Typed::End } else { understood(&plain::clean(&line)) })
            }
            Self::Edited(edited) => edited.next(),
        }
    }
}

/// Reads a command, or a message. Code that is pasted may begin with slashes: what has several lines is a command only if it
/// begins with the name of one.
fn understood(text: &str) -> Typed {
    let text = text.trim();
    let message = |text: &str| if text.is_empty() { Typed::Nothing } else { Typed::Message(text.to_owned()) };
    let Some(after) = text.strip_prefix('/') else { return message(text) };
    match (after.starts_with('/'), text.contains('\n')) {
        (true, false) => message(after),
        (false, is_long) if !is_long || commands::is_command(after) => Typed::Command(after.to_owned()),
        _ => message(text),
    }
}

/// Reads a command or a message that may be between fences; a block is never a command.
fn understood_in_blocks(text: &str) -> Typed {
    let Some(inside) = text.trim().strip_prefix(FENCE) else { return understood(text) };
    match inside.strip_suffix(FENCE).unwrap_or(inside).trim() {
        "" => Typed::Nothing,
        message => Typed::Message(message.to_owned()),
    }
}

/// Lines edited on a terminal.
pub struct Edited {
    editor: Editor<Blocks, FileHistory>,
    /// File of the history, while it can be used.
    file: Option<PathBuf>,
    screen: Screen,
}

impl Edited {
    fn open(file: Option<PathBuf>, screen: Screen) -> anyhow::Result<Self> {
        let config = Config::builder().max_history_size(KEPT)?.history_ignore_space(true).build();
        let history = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history)?;
        editor.set_helper(Some(Blocks));
        let mut edited = Self { editor, file, screen };
        edited.with_file(|editor, path| match editor.load_history(path) {
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        });
        Ok(edited)
    }

    fn next(&mut self) -> anyhow::Result<Typed> {
        let text = match self.editor.readline(PROMPT) {
            Ok(text) => text,
            Err(ReadlineError::Interrupted) => return Ok(Typed::Interruption),
            Err(ReadlineError::Eof) => return Ok(Typed::End),
            Err(error) => return Err(error.into()),
        };
        let typed = understood_in_blocks(&plain::clean(&text));
        if matches!(typed, Typed::Message(_) | Typed::Command(_)) && text.len() <= LONGEST_KEPT {
            self.editor.add_history_entry(text)?;
            self.with_file(|editor, path| {
                create_parent(path)?;
                editor.append_history(path)
            });
        }
        Ok(typed)
    }

    /// Uses the history's file. One that fails is named once and left alone from then on.
    fn with_file(&mut self, work: impl FnOnce(&mut Editor<Blocks, FileHistory>, &Path) -> rustyline::Result<()>) {
        let Some(path) = self.file.take() else { return };
        match work(&mut self.editor, &path) {
            Ok(()) => self.file = Some(path),
            Err(error) => self.screen.remark(&format!("note: no history is kept: {}: {error}", path.display())),
        }
    }
}

/// Makes the history's folder, for its user alone.
fn create_parent(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    path.parent().map_or(Ok(()), |parent| builder.create(parent))
}

/// Tells the editor where a message ends: at the end of its line, or of its block.
struct Blocks;

impl Validator for Blocks {
    fn validate(&self, typed: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        let inside = typed.input().trim().strip_prefix(FENCE);
        let is_open = inside.is_some_and(|inside| !inside.ends_with(FENCE));
        Ok(if is_open { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Blocks {
    type Candidate = String;
}

impl Hinter for Blocks {
    type Hint = String;
}

impl Highlighter for Blocks {}

impl Helper for Blocks {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_are_no_part_of_a_message_and_a_block_is_no_command() {
        let message = |text: &str| Typed::Message(text.to_owned());
        assert_eq!(understood_in_blocks("\"\"\"a\nb\n\"\"\"\n"), message("a\nb"));
        assert_eq!(understood_in_blocks(" \"\"\"/exit\"\"\""), message("/exit"));
        assert_eq!(understood_in_blocks("\"\"\"\n\"\"\""), Typed::Nothing);
        assert_eq!(understood_in_blocks("a \"\"\"b\"\"\""), message("a \"\"\"b\"\"\""));
        assert_eq!(understood_in_blocks("/reset "), Typed::Command("reset".to_owned()));
        assert_eq!(understood("\"\"\"a\n"), message("\"\"\"a"), "in a pipe a line is a message");
    }

    #[test]
    fn a_line_with_a_slash_is_a_command_and_one_with_two_a_message() {
        let command = |text: &str| Typed::Command(text.to_owned());
        let message = |text: &str| Typed::Message(text.to_owned());
        for (typed, read) in [
            (" /no such\n", command("no such")),
            ("/", command("")),
            ("//help", message("/help")),
            ("///x", message("//x")),
            ("exit", message("exit")),
            ("a /help", message("a /help")),
            // Pasted code loses no slash, and a system message may have several lines.
            ("// a comment\nint x;", message("// a comment\nint x;")),
            ("/* a\ncomment */", message("/* a\ncomment */")),
            ("/system Be brief.\nBe kind.", command("system Be brief.\nBe kind.")),
        ] {
            assert_eq!(understood(typed), read, "{typed:?}");
        }
    }
}
