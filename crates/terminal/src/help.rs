//! Help of a program's commands: the shared flags that each uses, the few flags that `-h` shows, and groups of flags.

use clap::{Arg, ArgMatches, Command, parser::ValueSource};

use crate::exit::usage;

/// Shared flags that name a model.
pub const MODEL: &[&str] = &["model", "family", "adapter", "adapter_use"];
/// Shared flags that say where and in which numbers it runs.
pub const DEVICE: &[&str] = &["device", "dtype", "quantize", "activations", "threads"];
/// The flag with the key of all randomness.
pub const SEED: &[&str] = &["seed"];
/// Output for programs.
pub const JSON: &[&str] = &["json"];
/// Shared flags that every command uses.
const LOG: &[&str] = &["verbose", "quiet"];

/// Groups of flags, as headings; a flag of none is an option of its command.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Model",
        &[
            "model",
            "family",
            "adapter",
            "adapter_use",
            "guide",
            "device",
            "dtype",
            "quantize",
            "activations",
            "threads",
        ],
    ),
    ("Prompt", &["prompt_file", "prompt_tokens", "system", "raw", "infill", "split_special"]),
    (
        "Answer",
        &[
            "prompt_text",
            "gen_length",
            "max_tokens",
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "seed",
            "stop",
            "include_stop",
            "stop_token_ids",
            "stop_rule",
            "ignore_eos",
            "no_early_stop",
            "suppress_eos",
            "eos_confidence_zero",
            "logit_bias",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "min_tokens",
            "bad_words",
            "deadline_ms",
            "decoder",
            "cache",
        ],
    ),
    (
        "Structure",
        &[
            "json_schema",
            "json_object",
            "regex",
            "choice",
            "json_space",
            "constraint_before",
            "constraint_behind",
            "constraint_after",
            "constraint_confidence",
            "constraint_forced",
            "deadline",
        ],
    ),
    ("Method", &["block_length", "steps", "remasking", "schedule", "eps", "alg_temp", "cfg_scale"]),
];

/// A command as its help shows it.
pub struct Page {
    /// Its name, after those of the commands above it: `bench step`.
    pub command: &'static str,
    /// Shared flags that it uses, beside those of the log.
    pub shared: &'static [&'static [&'static str]],
    /// Flags that `-h` shows; none: all that the command has.
    pub brief: &'static [&'static str],
}

impl Page {
    fn uses(&self, flag: &str) -> bool {
        LOG.contains(&flag) || self.shared.iter().any(|group| group.contains(&flag))
    }
}

/// A program whose commands show their own flags and the shared ones that they use, in groups, and few of them by `-h`.
pub fn arranged(program: Command, pages: &'static [Page]) -> Command {
    let shared: Vec<Arg> = program.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    below(program, "", &shared, pages)
}

/// Arranges the commands below one, whose name stands before theirs.
fn below(command: Command, above: &str, shared: &[Arg], pages: &'static [Page]) -> Command {
    // It has no flags of its own: what is shared goes behind the commands below it.
    let command = command.mut_args(|arg| if is_shared(&arg) { hidden(arg) } else { arg });
    command.mut_subcommands(|command| {
        let name = format!("{above}{}", command.get_name());
        let page = pages.iter().find(|page| page.command == name);
        // A shared flag is one of the command's own from here on, so that it can be shown as the command uses it.
        let uses = |arg: &Arg| page.is_some_and(|page| page.uses(arg.get_id().as_str()));
        let command = command.args(shared.iter().map(|arg| if uses(arg) { arg.clone() } else { hidden(arg.clone()) }));
        match page {
            Some(page) => command.mut_args(|arg| shown(arg, page)),
            None => below(command, &format!("{name} "), shared, pages),
        }
    })
}

fn is_shared(arg: &Arg) -> bool {
    arg.is_global_set()
}

fn hidden(arg: Arg) -> Arg {
    if LOG.contains(&arg.get_id().as_str()) { arg } else { arg.hide(true) }
}

/// A flag in its group, and in `-h` if it is one of the few.
fn shown(arg: Arg, page: &Page) -> Arg {
    if arg.is_positional() {
        return arg;
    }
    let id = arg.get_id().as_str().to_owned();
    let group = GROUPS.iter().find(|(_, flags)| flags.contains(&id.as_str())).map(|(heading, _)| *heading);
    let left_out = !page.brief.is_empty() && !page.brief.contains(&id.as_str());
    arg.help_heading(group).hide_short_help(left_out)
}

/// Refuses shared flags that were typed before a command which does not use them.
///
/// # Errors
/// If there is one: the line names the flag and the command.
pub fn refuse_unused(program: &Command, matches: &ArgMatches, pages: &[Page]) -> anyhow::Result<()> {
    let (mut names, mut at) = (Vec::new(), matches);
    while let Some((name, below)) = at.subcommand() {
        names.push(name);
        at = below;
    }
    let name = names.join(" ");
    let Some(page) = pages.iter().find(|page| page.command == name) else { return Ok(()) };
    for arg in program.get_arguments().filter(|arg| is_shared(arg)) {
        let id = arg.get_id().as_str();
        if !page.uses(id) && at.value_source(id) == Some(ValueSource::CommandLine) {
            let flag = arg.get_long().unwrap_or(id);
            return Err(usage(format!("--{flag} has no meaning with {name}: omit it")));
        }
    }
    Ok(())
}

/// Returns the mistakes of a program's pages, for its tests: commands without a page, pages of none, flags that a
/// command does not have, and more than twelve flags in `-h`.
pub fn mistakes(program: &Command, pages: &[Page]) -> Vec<String> {
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    look(program, "", pages, &mut seen, &mut found);
    let unknown = pages.iter().filter(|page| !seen.contains(&page.command.to_owned()));
    found.extend(unknown.map(|page| format!("{}: no such command", page.command)));
    found
}

fn look(command: &Command, above: &str, pages: &[Page], seen: &mut Vec<String>, found: &mut Vec<String>) {
    for below in command.get_subcommands() {
        let name = format!("{above}{}", below.get_name());
        if below.has_subcommands() {
            look(below, &format!("{name} "), pages, seen, found);
            continue;
        }
        let Some(page) = pages.iter().find(|page| page.command == name) else {
            found.push(format!("{name}: no page"));
            continue;
        };
        let shown = |id: &str| below.get_arguments().any(|arg| arg.get_id().as_str() == id && !arg.is_hide_set());
        found.extend(page.brief.iter().filter(|id| !shown(id)).map(|id| format!("{name}: no flag {id}")));
        let flags = below.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
        // Help itself is one more.
        let brief = flags.filter(|arg| !arg.is_hide_short_help_set()).count() + 1;
        if brief > 12 {
            found.push(format!("{name}: -h shows {brief} flags"));
        }
        seen.push(name);
    }
}
