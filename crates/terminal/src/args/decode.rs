//! Options of decoding as flags.

use clap::{Arg, Args, Command};
use demask::Options;

use super::flags::{Flags, OfDecoding, flag};

/// Options of the decoding. Options that are not typed are chosen to fit the model.
#[derive(Debug, Clone, Default, Args)]
pub struct DecodeArgs {
    /// System message
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Model that judges drafts, with --decoder guided
    #[arg(long, value_name = "MODEL")]
    pub guide: Option<String>,
    /// Options by their names.
    #[command(flatten)]
    pub options: Flags<Options, OfDecoding>,
}

/// Turns the names of options in a message, which are in backticks, into the flags of a program's command line.
pub fn in_flags(program: &Command, message: &str) -> String {
    let known = flags_of(program);
    let mut pieces = message.split('`');
    let mut told = pieces.next().unwrap_or_default().to_owned();
    // Pieces at odd places were between two backticks, if the last of them was closed.
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

    use clap::FromArgMatches;

    use super::*;
    use crate::args::SharedArgs;

    fn read(typed: &[&str]) -> DecodeArgs {
        let command = DecodeArgs::augment_args(Command::new("test").no_binary_name(true));
        DecodeArgs::from_arg_matches(&command.get_matches_from(typed.iter().map(OsStr::new))).unwrap()
    }

    #[test]
    fn typed_flags_become_options() {
        let args = read(&["--stop", "a", "--guide", "g", "--ignore-eos", "--stop=b", "--steps", "4"]);
        let options = Options {
            steps: Some(4),
            stop: Some(vec!["a".into(), "b".into()]),
            ignore_eos: Some(true),
            ..Options::default()
        };
        assert_eq!(args.options.settings().unwrap(), options);
        assert_eq!((args.guide.as_deref(), args.system), (Some("g"), None));
        let refused = read(&["--steps", "x"]).options.settings().unwrap_err().to_string();
        assert_eq!(refused, "`steps` is \"x\", expected a whole number from 0 on");
        let removed = read(&["--cost-curve", "x"]).options.settings().unwrap_err().to_string();
        assert!(removed.starts_with("`cost_curve` was removed, version 0.1.0 had it"), "{removed}");
    }

    #[test]
    fn messages_name_flags_where_libraries_name_options() {
        let below = DecodeArgs::augment_args(Command::new("below"));
        let program = SharedArgs::augment_args(Command::new("program")).subcommand(below);
        for (message, told) in [
            ("`gen_length` is 0: try `block_length`", "--gen-length is 0: try --block-length"),
            ("use `device` cpu", "use --device cpu"),
            ("file `a_b` and `steps", "file `a_b` and `steps"),
            ("no option", "no option"),
            ("``", "``"),
        ] {
            assert_eq!(in_flags(&program, message), told);
        }
    }
}
