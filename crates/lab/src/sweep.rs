//! `--sweep`: the product of values of decoding flags.

use demask::{Options, Settings};
use demask_settings::{Kind, foreign, names::nearest};

use crate::{args::DecodeArgs, exit::usage};

/// Largest number of combinations: more are a slip of the finger.
const MOST: usize = 1000;

/// Options that cannot be swept: they belong to the prompts, or to all combinations, or change no answer, or
/// change it by the clock.
const FIXED: [&str; 8] =
    ["stop", "include_stop", "stop_token_ids", "seed", "guide", "top_logprobs", "deadline_ms", "deadline"];
/// The option that turns early stops off, and its name in a sweep.
const NO_EARLY_STOP: &str = "no_early_stop";
const EARLY_STOP: &str = "early-stop";

/// One combination: the swept values, and the decoding flags with them.
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

/// Reports whether a name can be swept.
fn check(name: &str) -> anyhow::Result<()> {
    let options = Options::FIELDS.iter().map(|field| field.name).filter(|name| !FIXED.contains(name));
    let known: Vec<String> = options.map(in_sweeps).collect();
    if known.iter().any(|known| known == name) {
        return Ok(());
    }
    if let Some(foreign) = foreign::setting(name) {
        return Err(usage(format!("--sweep: unknown name \"{name}\", {foreign}")));
    }
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let meant = nearest(name, &known).map(|name| format!(", did you mean \"{name}\"?")).unwrap_or_default();
    Err(usage(format!("--sweep: unknown name \"{name}\"{meant} (known: {})", known.join(", "))))
}

/// The name of an option in a sweep.
fn in_sweeps(option: &str) -> String {
    if option == NO_EARLY_STOP { EARLY_STOP.to_owned() } else { option.replace('_', "-") }
}

/// Decoding flags with swept values over them.
fn with(base: &DecodeArgs, chosen: &[(String, String)]) -> anyhow::Result<DecodeArgs> {
    let mut decode = base.clone();
    for (name, value) in chosen {
        let field = Options::FIELDS.iter().find(|field| in_sweeps(field.name) == *name);
        let Some(field) = field else { return Err(usage(format!("--sweep: unknown name \"{name}\""))) };
        let value = match value.as_str() {
            "on" | "off" if field.kind == Kind::Switch => ((value == "on") != (name == EARLY_STOP)).to_string(),
            _ if field.kind == Kind::Switch => {
                return Err(usage(format!("--sweep: {name} is \"{value}\", expected on or off")));
            }
            _ => value.clone(),
        };
        Options::default().set(field.name, &value).map_err(|error| usage(format!("--sweep: {error}")))?;
        decode.options.replace(field.name, value);
    }
    Ok(decode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::generate_options;

    fn base(typed: &[(&'static str, &str)]) -> DecodeArgs {
        let mut decode = DecodeArgs::default();
        for &(name, text) in typed {
            decode.options.replace(name, text);
        }
        decode
    }

    fn made(sweep: &str, typed: &[(&'static str, &str)]) -> Vec<(Combination, Options)> {
        let options = |one: Combination| {
            let options = generate_options(&one.decode, 0).unwrap();
            (one, options)
        };
        combinations(Some(sweep), &base(typed)).unwrap().into_iter().map(options).collect()
    }

    #[test]
    fn the_product_runs_in_order() {
        let made = made("decoder=static|freedave:d=4; cache=none|dual;steps=8", &[("steps", "4"), ("top_p", "0.5")]);
        let methods: Vec<_> = made
            .iter()
            .map(|(_, one)| (one.decoder.as_ref().unwrap().to_string(), one.cache.as_ref().unwrap().to_string()))
            .collect();
        let expected = [("static", "none"), ("static", "dual"), ("freedave:d=4", "none"), ("freedave:d=4", "dual")];
        assert_eq!(methods, expected.map(|(decoder, cache)| (decoder.to_owned(), cache.to_owned())));
        assert!(made.iter().all(|(_, one)| one.steps == Some(8) && one.top_p == Some(0.5)));
        assert_eq!(made[1].0.values[1], ("cache".to_owned(), "dual".to_owned()));
        let one = combinations(None, &base(&[("steps", "4")])).unwrap().remove(0);
        assert_eq!(generate_options(&one.decode, 0).unwrap().steps, Some(4));
    }

    #[test]
    fn switches_are_on_or_off_and_others_stay() {
        let made = made("early-stop=on|off", &[("ignore_eos", "true"), ("no_early_stop", "true")]);
        let stops: Vec<_> = made.iter().map(|(_, one)| (one.no_early_stop, one.ignore_eos)).collect();
        assert_eq!(stops, [(Some(false), Some(true)), (Some(true), Some(true))]);
        let refused = combinations(Some("ignore-eos=maybe"), &base(&[])).unwrap_err().to_string();
        assert_eq!(refused, "--sweep: ignore-eos is \"maybe\", expected on or off");
    }
}
