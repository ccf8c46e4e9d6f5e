//! Options of decoding as flags: the one place that knows which flag is which option.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use demask::Options;

/// Options of the decoding. Options that are not typed are chosen to fit the model.
#[derive(Debug, Clone, Default)]
pub struct DecodeArgs {
    /// System message.
    pub system: Option<String>,
    /// Model that judges drafts.
    pub guide: Option<String>,
    /// Options by their names, with the text behind their flags; that of a switch is `true`.
    pub typed: Vec<(&'static str, String)>,
}

/// A flag: the option's name, what stands for its value in the help, and what it does.
struct Flag(&'static str, &'static str, &'static str);

const SYSTEM: &str = "system";
const GUIDE: &str = "guide";

/// All flags of decoding. Each is spelled as its option, with hyphens.
const FLAGS: &[Flag] = &[
    Flag(SYSTEM, "TEXT", "System message"),
    Flag("gen_length", "N", "Positions to decode; under full attention an input of the answer"),
    Flag("max_tokens", "N", "Tokens that the answer may have at most"),
    Flag("block_length", "N", "Positions of a block"),
    Flag("steps", "N", "Denoising steps over all blocks"),
    Flag("remasking", "NAME", "Ranking of predictions: low_confidence, random, margin, entropy, left_to_right, ..."),
    Flag("schedule", "NAME", "Rule by which steps share the masks: even, dream, dream_total, linear, rnd1"),
    Flag("eps", "E", "End of the time of schedule dream"),
    Flag("temperature", "T", "Temperature of tokens; 0: the most probable one"),
    Flag("alg_temp", "T", "Temperature of the order of commits; 0: the best first"),
    Flag("top_p", "P", "Probability kept by top-p filtering"),
    Flag("top_k", "K", "Tokens kept by top-k filtering"),
    Flag("cfg_scale", "SCALE", "Scale of classifier-free guidance; 0: none"),
    Flag("decoder", "SPEC", "Decoder, as name or name:key=value,key=value"),
    Flag("cache", "SPEC", "Cache policy, as name or name:key=value,key=value"),
    Flag("top_logprobs", "N", "Log-probability of each token and of the N most probable ones beside it, with --json"),
    Flag(GUIDE, "MODEL", "Model that judges drafts, with --decoder guided"),
    Flag("stop", "TEXT", "Text that ends the answer (may be given several times)"),
    Flag("include_stop", "", "Keep the stop text that ended the answer at its end"),
    Flag("stop_token_ids", "IDS", "Token ids that end the answer beside the model's own, as 1,2,3"),
    Flag("ignore_eos", "", "Decode all positions, end tokens are tokens like any other"),
    Flag("no_early_stop", "", "Go on behind an end token; the answer still ends there"),
    Flag(
        "stop_rule",
        "RULE",
        "Rule for an early end: prefix, prefix-fill, block, whole-block, fill, end-run:run=N, never",
    ),
    Flag("split_special", "BOOL", "Read control tokens from the template alone, not from messages [default: true]"),
    Flag("deadline_ms", "MS", "Time after which the answer ends with what is settled"),
    Flag("suppress_eos", "", "Never predict the end-of-text token"),
    Flag("eos_confidence_zero", "", "Predict end tokens with confidence 0"),
];

/// Returns the flag of an option, or of anything else that is named like one: `gen_length` is `--gen-length`.
pub fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

impl Flag {
    fn argument(&self) -> Arg {
        let Self(name, value, help) = *self;
        let field = Options::FIELDS.iter().find(|field| field.name == name);
        let action = match field {
            Some(field) if field.switch && value.is_empty() => ArgAction::SetTrue,
            Some(field) if field.many => ArgAction::Append,
            _ => ArgAction::Set,
        };
        let argument = Arg::new(name).long(name.replace('_', "-")).help(help).help_heading("Decoding").action(action);
        if value.is_empty() { argument } else { argument.value_name(value) }
    }
}

/// Flags that version 0.1.0 had: read, so that the refusal of their option is heard.
const GONE: &[Flag] = &[Flag("cost_curve", "FILE", "")];

impl Args for DecodeArgs {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(Flag::argument)).args(GONE.iter().map(|flag| flag.argument().hide(true)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for DecodeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for &Flag(name, value, _) in FLAGS.iter().chain(GONE) {
            if value.is_empty() {
                if matches.get_flag(name) {
                    self.typed.push((name, "true".to_owned()));
                }
                continue;
            }
            for text in matches.get_many::<String>(name).into_iter().flatten().cloned() {
                match name {
                    SYSTEM => self.system = Some(text),
                    GUIDE => self.guide = Some(text),
                    _ => self.typed.push((name, text)),
                }
            }
        }
        Ok(())
    }
}

/// Turns the names of options in a message, which stand in backticks, into the flags of this command line.
pub fn in_flags(message: &str) -> String {
    let known = flags_of(&super::command());
    let mut pieces = message.split('`');
    let mut told = pieces.next().unwrap_or_default().to_owned();
    // Pieces at odd places stood between two backticks, if the last of them was closed.
    let rest: Vec<&str> = pieces.collect();
    for (place, piece) in rest.iter().enumerate() {
        let (inside, closed) = (place % 2 == 0, place + 1 < rest.len());
        match (inside, known.contains(&flag(piece))) {
            (true, true) if closed => told.push_str(&flag(piece)),
            (true, _) => {
                told.push('`');
                told.push_str(piece);
                told.push_str(if closed { "`" } else { "" });
            }
            (false, _) => told.push_str(piece),
        }
    }
    told
}

/// Returns all long flags of a command and of those below it.
fn flags_of(command: &Command) -> Vec<String> {
    let own = command.get_arguments().filter_map(Arg::get_long).map(flag);
    own.chain(command.get_subcommands().flat_map(flags_of)).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn read(typed: &[&str]) -> DecodeArgs {
        let command = DecodeArgs::augment_args(Command::new("test").no_binary_name(true));
        DecodeArgs::from_arg_matches(&command.get_matches_from(typed.iter().map(OsStr::new))).unwrap()
    }

    #[test]
    fn every_option_has_one_flag_and_every_flag_its_option() {
        // The seed is a flag of every command, and a command has one guide, whose flag names its model.
        let options = Options::FIELDS.iter().map(|field| field.name).filter(|name| !["seed", GUIDE].contains(name));
        let mut names: Vec<_> = options.chain([SYSTEM, GUIDE]).collect();
        let mut flags: Vec<_> = FLAGS.iter().map(|flag| flag.0).collect();
        names.sort_unstable();
        flags.sort_unstable();
        assert_eq!(flags, names);
        for Flag(name, value, _) in FLAGS {
            let field = Options::FIELDS.iter().find(|field| field.name == *name);
            // A switch that is on by default has a value, with which it is turned off.
            let is_bare = field.is_some_and(|field| field.switch) && *name != "split_special";
            assert_eq!(value.is_empty(), is_bare, "{name}");
        }
    }

    #[test]
    fn what_is_typed_is_kept_in_the_order_of_the_flags() {
        let args = read(&["--stop", "a", "--guide", "g", "--ignore-eos", "--stop=b", "--steps", "4"]);
        let typed = [("steps", "4"), ("stop", "a"), ("stop", "b"), ("ignore_eos", "true")];
        assert_eq!(args.typed, typed.map(|(name, text)| (name, text.to_owned())));
        assert_eq!((args.guide.as_deref(), args.system), (Some("g"), None));
    }

    #[test]
    fn messages_name_flags_where_libraries_name_options() {
        for (message, told) in [
            ("`gen_length` is 0: try `block_length`", "--gen-length is 0: try --block-length"),
            ("use `device` cpu", "use --device cpu"),
            ("file `a_b` and `steps", "file `a_b` and `steps"),
            ("no option", "no option"),
            ("``", "``"),
        ] {
            assert_eq!(in_flags(message), told);
        }
    }
}
