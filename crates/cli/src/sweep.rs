//! `--sweep`: the product of values of decoding flags.

use clap::{Arg, Args, Command, FromArgMatches};
use demask::decode::names::nearest;

use crate::{
    args::{self, DecodeArgs},
    exit::{self, usage},
};

/// More combinations than this are a slip of the finger.
const MOST: usize = 1000;

/// Flags that cannot be swept: they belong to the prompts, or to all combinations.
const FIXED: [&str; 3] = ["system", "guide", "stop"];
/// The flag that turns early stops off, and what it is called in a sweep.
const NO_EARLY_STOP: &str = "no-early-stop";
const EARLY_STOP: &str = "early-stop";

/// One combination: what was swept, and the decoding flags with it.
#[derive(Debug)]
pub struct Combination {
    /// Names and values in the order of the sweep.
    pub values: Vec<(String, String)>,
    /// All decoding flags.
    pub decode: DecodeArgs,
}

/// All combinations of a sweep over the decoding flags that were given beside it, the last name varying fastest; one if
/// there is no sweep.
pub fn combinations(sweep: Option<&str>, base: &DecodeArgs) -> anyhow::Result<Vec<Combination>> {
    let names = sweep.map(parse).transpose()?.unwrap_or_default();
    let count = names.iter().fold(1usize, |count, (_, values)| count.saturating_mul(values.len()));
    if count > MOST {
        return Err(usage(format!("--sweep makes {count} combinations, expected {MOST} at most: sweep less at once")));
    }
    (0..count)
        .map(|mut index| {
            let mut chosen = Vec::new();
            for (name, values) in names.iter().rev() {
                chosen.push((name.clone(), values[index % values.len()].clone()));
                index /= values.len();
            }
            chosen.reverse();
            Ok(Combination { decode: with(base, &chosen)?, values: chosen })
        })
        .collect()
}

/// Names with their values.
fn parse(sweep: &str) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let mut names: Vec<(String, Vec<String>)> = Vec::new();
    for part in sweep.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((name, values)) = part.split_once('=') else {
            return Err(usage(format!("--sweep: \"{part}\" has no values: expected name=value|value")));
        };
        let name = name.trim().to_owned();
        let values: Vec<_> = values.split('|').map(|value| value.trim().to_owned()).collect();
        if values.iter().any(String::is_empty) {
            return Err(usage(format!("--sweep: {name} has an empty value: expected {name}=value|value")));
        }
        check(&name)?;
        if names.iter().any(|(other, _)| *other == name) {
            return Err(usage(format!("--sweep names {name} twice: write all its values behind one {name}=")));
        }
        names.push((name, values));
    }
    if names.is_empty() {
        return Err(usage("--sweep is empty: expected name=value|value;name=value"));
    }
    Ok(names)
}

/// Whether a name can be swept.
fn check(name: &str) -> anyhow::Result<()> {
    let command = command();
    let flags = command.get_arguments().filter_map(Arg::get_long).filter(|flag| !FIXED.contains(flag));
    let known: Vec<_> = flags.map(|flag| if flag == NO_EARLY_STOP { EARLY_STOP } else { flag }).collect();
    if known.contains(&name) {
        return Ok(());
    }
    let meant = nearest(name, &known).map(|name| format!(", did you mean \"{name}\"?")).unwrap_or_default();
    Err(usage(format!("--sweep: unknown name \"{name}\"{meant} (known: {})", known.join(", "))))
}

/// A parser of decoding flags and nothing else.
fn command() -> Command {
    args::negative(DecodeArgs::augment_args(Command::new("sweep").no_binary_name(true).disable_help_flag(true)))
}

/// Decoding flags with swept values over them.
fn with(base: &DecodeArgs, chosen: &[(String, String)]) -> anyhow::Result<DecodeArgs> {
    let mut decode = base.clone();
    let mut typed = Vec::new();
    for (name, value) in chosen {
        let (flag, on) = if name == EARLY_STOP { (NO_EARLY_STOP, "off") } else { (name.as_str(), "on") };
        match switches(&mut decode).into_iter().find(|(switch, _)| *switch == flag) {
            None => typed.push(format!("--{flag}={value}")),
            Some((_, switch)) if ["on", "off"].contains(&value.as_str()) => *switch = value == on,
            Some(_) => return Err(usage(format!("--sweep: {name} is \"{value}\", expected on or off"))),
        }
    }
    let switched = switches(&mut decode).map(|(_, on)| *on);
    let updated = command().try_get_matches_from(typed).and_then(|typed| decode.update_from_arg_matches(&typed));
    updated.map_err(|error| usage(format!("--sweep: {}", exit::one_line_of_clap(&error.render().to_string()))))?;
    // To the parser, a flag that was not typed is one that is off.
    switches(&mut decode).into_iter().zip(switched).for_each(|((_, switch), on)| *switch = on);
    Ok(decode)
}

/// The flags without a value.
fn switches(decode: &mut DecodeArgs) -> [(&'static str, &mut bool); 4] {
    [
        ("ignore-eos", &mut decode.ignore_eos),
        (NO_EARLY_STOP, &mut decode.no_early_stop),
        ("suppress-eos", &mut decode.suppress_eos),
        ("eos-confidence-zero", &mut decode.eos_confidence_zero),
    ]
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    fn base(typed: &[&str]) -> DecodeArgs {
        DecodeArgs::from_arg_matches(&command().get_matches_from(typed)).unwrap()
    }

    fn made(sweep: &str, typed: &[&str]) -> Vec<Combination> {
        combinations(Some(sweep), &base(typed)).unwrap()
    }

    #[test]
    fn the_product_runs_in_order() {
        let made = made("decoder=static|freedave:d=4; cache=none|dual;steps=8", &["--steps", "4", "--top-p", "0.5"]);
        let methods: Vec<_> =
            made.iter().map(|one| (one.decode.decoder.clone().unwrap(), one.decode.cache.clone().unwrap())).collect();
        let expected = [("static", "none"), ("static", "dual"), ("freedave:d=4", "none"), ("freedave:d=4", "dual")];
        assert_eq!(methods, expected.map(|(decoder, cache)| (decoder.to_owned(), cache.to_owned())));
        assert!(made.iter().all(|one| one.decode.steps == Some(8) && one.decode.top_p == Some(0.5)));
        assert_eq!(made[1].values[1], ("cache".to_owned(), "dual".to_owned()));
        assert_eq!(combinations(None, &base(&["--steps", "4"])).unwrap()[0].decode.steps, Some(4));
    }

    #[test]
    fn switches_are_on_or_off_and_others_stay() {
        let made = made("early-stop=on|off", &["--ignore-eos", "--no-early-stop"]);
        let stops: Vec<_> = made.iter().map(|one| (one.decode.no_early_stop, one.decode.ignore_eos)).collect();
        assert_eq!(stops, [(false, true), (true, true)]);
        let switches = switches(&mut base(&[])).map(|(name, _)| name.to_owned());
        let command = command();
        let flags = command.get_arguments().filter(|flag| matches!(flag.get_action(), ArgAction::SetTrue));
        assert!(
            flags.eq(command.get_arguments().filter(|flag| switches.contains(&flag.get_long().unwrap().to_owned())))
        );
    }
}
