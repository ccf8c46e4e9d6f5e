//! Commands of a conversation: lines that begin with `/`.

use std::{fmt::Write, io::Write as _, ops::ControlFlow, path::Path};

use demask::{Chat, Options, Settings};
use demask_settings::names::{in_a_line, nearest, same};
use demask_terminal::{
    exit::usage,
    files::OutFile,
    output::{self, counted},
    settings::notes,
    texts,
};
use serde::Deserialize;

use super::Conversation;

/// Whether the conversation goes on.
type Done = anyhow::Result<ControlFlow<()>>;

/// A command: its names, its description, and its function.
pub struct Command {
    /// Its names; the first is the one that is listed.
    names: &'static [&'static str],
    /// Text after its name: none if empty, in brackets if it may be left out.
    argument: &'static str,
    /// Description, in a line.
    about: &'static str,
    run: fn(&mut Conversation<'_>, &str) -> Done,
}

/// All commands, in the order in which they are listed.
const COMMANDS: &[Command] = &[
    Command { names: &["help", "?"], argument: "", about: "lists the commands", run: help },
    Command { names: &["bye", "exit", "quit"], argument: "", about: "ends", run: |_, _| Ok(ControlFlow::Break(())) },
    Command {
        names: &["system"],
        argument: "[TEXT]",
        about: "sets the system message from now on; alone: shows it",
        run: system,
    },
    Command {
        names: &["set"],
        argument: "[NAME VALUE]",
        about: "sets an option of the answers, such as temperature 0.7; alone: shows those that are set",
        run: set,
    },
    Command {
        names: &["save"],
        argument: "FILE",
        about: "writes the conversation as JSON, [{\"role\", \"content\"}]",
        run: save,
    },
    Command {
        names: &["load"],
        argument: "FILE",
        about: "goes on with a conversation that was saved, in place of this one",
        run: load,
    },
    Command { names: &["retry"], argument: "", about: "answers the last message once more", run: retry },
    Command {
        names: &["reset"],
        argument: "",
        about: "forgets the conversation, but for the system message",
        run: reset,
    },
    Command { names: &["read"], argument: "FILE", about: "sends the text of a file as a message", run: read },
];

impl Command {
    /// Returns the line that says how it is typed.
    fn usage(&self) -> String {
        format!("/{} {}", self.names[0], self.argument).trim_end().to_owned()
    }

    /// Refuses an argument that it does not take, or the lack of one that it needs.
    fn check(&self, argument: &str) -> anyhow::Result<()> {
        match (self.argument, argument) {
            ("", "") => Ok(()),
            ("", _) => Err(usage(format!("/{} takes nothing after it: {}", self.names[0], self.about))),
            (needed, "") if !needed.starts_with('[') => {
                Err(usage(format!("{needed} is missing: {} {}", self.usage(), self.about)))
            }
            _ => Ok(()),
        }
    }
}

/// Returns a command by its name, and the text after it.
fn find(line: &str) -> (Option<&'static Command>, &str) {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let command = COMMANDS.iter().find(|command| command.names.iter().any(|known| same(known, name)));
    (command, argument.trim())
}

/// Returns whether a line, whose slash is gone, begins with the name of a command.
pub fn is_command(line: &str) -> bool {
    find(line).0.is_some()
}

/// Runs a command line without its slash, and returns whether the conversation goes on.
pub fn run(conversation: &mut Conversation<'_>, line: &str) -> anyhow::Result<ControlFlow<()>> {
    let (command, argument) = read_line(line)?;
    (command.run)(conversation, argument)
}

/// Reads a command line, whose slash is gone.
fn read_line(line: &str) -> anyhow::Result<(&'static Command, &str)> {
    let (command, argument) = find(line);
    let command = command.ok_or_else(|| unknown(line.split_whitespace().next().unwrap_or_default()))?;
    command.check(argument)?;
    Ok((command, argument))
}

fn unknown(name: &str) -> anyhow::Error {
    let known: Vec<_> = COMMANDS.iter().flat_map(|command| command.names).copied().collect();
    let meant = nearest(name, &known).map(|name| format!(", did you mean /{name}?")).unwrap_or_default();
    let name = in_a_line(name);
    usage(format!("/{name} is no command{meant} (/help lists them; //{name} sends /{name})"))
}

/// Returns the names of all commands, for a line about them.
pub fn names() -> String {
    COMMANDS.iter().map(|command| format!("/{}", command.names[0])).collect::<Vec<_>>().join(" ")
}

/// Returns a line for each command.
fn listed() -> String {
    let width = COMMANDS.iter().map(|command| command.usage().len()).max().unwrap_or(0);
    let mut text = String::new();
    for command in COMMANDS {
        let (typed, about) = (command.usage(), command.about);
        let others = match command.names[1..].join(", /") {
            others if others.is_empty() => others,
            others => format!(" (also /{others})"),
        };
        let _ = writeln!(text, "{typed:width$}  {about}{others}");
    }
    text + "//TEXT sends /TEXT as a message"
}

const GOES_ON: Done = Ok(ControlFlow::Continue(()));

fn help(_: &mut Conversation<'_>, _: &str) -> Done {
    output::note(&listed());
    GOES_ON
}

fn system(conversation: &mut Conversation<'_>, text: &str) -> Done {
    if text.is_empty() {
        output::note(conversation.chat.system().unwrap_or("there is no system message: /system TEXT sets one"));
        return GOES_ON;
    }
    conversation.check(Some(text), &conversation.options)?;
    conversation.chat.set_system(Some(text));
    conversation.screen.remark("the system message is set: it counts from the next message on");
    GOES_ON
}

fn set(conversation: &mut Conversation<'_>, text: &str) -> Done {
    let Some((name, value)) = text.split_once(char::is_whitespace) else {
        return if text.is_empty() { show_options(&conversation.options) } else { Err(no_value(text)) };
    };
    // A list is replaced, not extended.
    let mut options = Options::default();
    options.set(name, value.trim())?;
    let names_seed = conversation.names_seed || options.seed.is_some();
    options.fill(conversation.options.clone());
    conversation.check(conversation.chat.system(), &options)?;
    let draws = |options: &Options| Options { seed: None, ..options.clone() }.draw_seed();
    if let (false, None, Some(seed)) = (names_seed, draws(&conversation.options), draws(&options)) {
        options.seed = Some(seed);
        conversation.screen.remark(&format!("seed {seed}: /set seed {seed} draws the same again"));
    }
    conversation.names_seed = names_seed;
    if options.gen_length != conversation.options.gen_length {
        notes(conversation.model.info(), &options).for_each(|note| conversation.screen.remark(&note));
    }
    conversation.decode_with(options);
    GOES_ON
}

/// The refusal of a setting without a value, or of a name that no setting has.
fn no_value(name: &str) -> anyhow::Error {
    match Options::field(name) {
        Some(field) => {
            usage(format!("/set {} has no value: give it one, as its flag {} takes it", field.name, field.flag()))
        }
        None => Options::unknown(name).into(),
    }
}

/// Shows the options that are set.
fn show_options(options: &Options) -> Done {
    for name in options.given() {
        if let Some(value) = options.json(name) {
            output::note(&format!("{name} {value}"));
        }
    }
    GOES_ON
}

fn save(conversation: &mut Conversation<'_>, path: &str) -> Done {
    let mut file = OutFile::create(Path::new(path))?;
    let messages = conversation.chat.messages();
    serde_json::to_writer_pretty(&mut file, messages)?;
    file.write_all(b"\n")?;
    file.finish()?;
    conversation.screen.remark(&format!("{} saved in {path}", counted(messages.len(), "message")));
    GOES_ON
}

fn load(conversation: &mut Conversation<'_>, path: &str) -> Done {
    let text = texts::read_file(Path::new(path))?;
    let chat = saved(&text).map_err(|why| usage(format!("{path} is no conversation: {why}")))?;
    conversation.screen.remark(&format!("{} of {path}", counted(chat.messages().len(), "message")));
    conversation.go_on_with(chat);
    GOES_ON
}

/// A message as it is saved.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    role: String,
    content: String,
}

/// Reads a conversation: a system message if there is one, then messages of the user, each with its answer.
fn saved(text: &str) -> Result<Chat, String> {
    let mut messages: &[Saved] = &serde_json::from_str::<Vec<Saved>>(text).map_err(|error| error.to_string())?;
    let mut chat = Chat::new(None);
    if let [Saved { role, content }, rest @ ..] = messages
        && role == "system"
    {
        chat.set_system(Some(content));
        messages = rest;
    }
    let first = chat.messages().len() + 1;
    for (place, message) in messages.iter().enumerate() {
        let expected = ["user", "assistant"][place % 2];
        if message.role != expected {
            let found = in_a_line(&message.role);
            return Err(format!("message {} is of role \"{found}\", expected {expected}", first + place));
        }
    }
    let (turns, rest) = messages.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("the last message has no answer: remove it, or add one of role assistant".to_owned());
    }
    for [message, answer] in turns {
        chat.heard(&message.content, &answer.content);
    }
    Ok(chat)
}

fn retry(conversation: &mut Conversation<'_>, _: &str) -> Done {
    conversation.retry()?;
    GOES_ON
}

fn reset(conversation: &mut Conversation<'_>, _: &str) -> Done {
    conversation.forget();
    conversation.screen.remark("the conversation is forgotten");
    GOES_ON
}

fn read(conversation: &mut Conversation<'_>, path: &str) -> Done {
    let text = texts::read_file(Path::new(path))?;
    if text.trim().is_empty() {
        return Err(usage(format!("{path} is empty: expected a message")));
    }
    conversation.say(text.trim_end())?;
    GOES_ON
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> String {
        read_line(line).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn each_command_is_found_by_its_names_and_says_what_it_takes() {
        for command in COMMANDS {
            for name in command.names {
                let argument = if command.argument.is_empty() { "" } else { " a b" };
                let line = format!("{}{argument} ", name.to_uppercase());
                let (found, rest) = read_line(&line).unwrap();
                assert_eq!((found.names, rest), (command.names, argument.trim()));
            }
            let same = COMMANDS.iter().flat_map(|other| other.names).filter(|name| command.names.contains(name));
            assert_eq!(same.count(), command.names.len(), "{} is there twice", command.names[0]);
            assert!(listed().contains(&command.usage()) && names().contains(command.names[0]));
        }
        assert_eq!(
            refusal("reset all"),
            "/reset takes nothing after it: forgets the conversation, but for the system message"
        );
        assert_eq!(refusal("read"), "FILE is missing: /read FILE sends the text of a file as a message");
        assert_eq!(refusal("set"), "");
    }

    #[test]
    fn an_unknown_command_names_the_nearest_and_how_it_is_sent() {
        assert_eq!(
            refusal("sytem x"),
            "/sytem is no command, did you mean /system? (/help lists them; //sytem sends /sytem)"
        );
        assert_eq!(
            refusal("etc/passwd"),
            "/etc/passwd is no command (/help lists them; //etc/passwd sends /etc/passwd)"
        );
        assert!(refusal("").starts_with("/ is no command (/help lists them"));
        assert!(!refusal(&format!("{}\u{1b}", "x".repeat(10_000))).contains('\u{1b}'));
    }

    #[test]
    fn a_conversation_is_read_as_it_is_saved() {
        let mut chat = Chat::new(Some("Be brief."));
        chat.heard("a", "b\n\u{1f600}");
        let text = serde_json::to_string(chat.messages()).unwrap();
        assert_eq!(
            text,
            r#"[{"role":"system","content":"Be brief."},{"role":"user","content":"a"},{"role":"assistant","content":"b\n😀"}]"#
        );
        let read = saved(&text).unwrap();
        assert_eq!((read.messages(), read.system(), read.turns()), (chat.messages(), Some("Be brief."), 1));
        assert_eq!(saved("[]").unwrap().messages(), []);
        for (text, told) in [
            ("{}", "invalid type: map, expected a sequence at line 1 column 0"),
            (r#"[{"role":"user"}]"#, "missing field `content` at line 1 column 16"),
            (r#"[{"role":"tool","content":"x"}]"#, "message 1 is of role \"tool\", expected user"),
            (
                r#"[{"role":"system","content":"x"},{"role":"user","content":"x"},{"role":"user","content":"x"}]"#,
                "message 3 is of role \"user\", expected assistant",
            ),
            (
                r#"[{"role":"user","content":"x"}]"#,
                "the last message has no answer: remove it, or add one of role assistant",
            ),
            (r#"[{"role":"user","content":[]}]"#, "invalid type: sequence, expected a string at line 1 column 26"),
        ] {
            assert_eq!(saved(text).err().as_deref(), Some(told), "{text}");
        }
    }
}
