//! Settings of a row on a task, every one of them with its value, and where each comes from.

use std::{collections::BTreeMap, fmt};

use demask::{Chosen, Options, Settings as _};
use demask_settings::{Field, Kind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Ask, AskOptions, Choosing, Row};

/// Source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// A flag, or a word of a program.
    Flag,
    /// A file of runs.
    File,
    /// The task.
    Task,
    /// The checkpoint's files.
    Checkpoint,
    /// The model's family.
    Family,
    /// Nobody: the program's default.
    Default,
}

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "flag",
            Self::File => "file",
            Self::Task => "task",
            Self::Checkpoint => "checkpoint",
            Self::Family => "family",
            Self::Default => "default",
        })
    }
}

/// A setting of a row on a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effective {
    /// The value; null where the setting has no meaning, or bounds nothing.
    pub value: Value,
    /// Source of the value.
    pub from: From,
}

/// Settings by their names.
pub type Table = BTreeMap<String, Effective>;

/// Name of the keys of randomness in the table.
const SEED: &str = "seed";
/// Options that no evaluation has, or that have another name in the table: an end that is never early is a stop rule.
const ELSEWHERE: [&str; 6] = [SEED, "top_logprobs", "deadline_ms", "deadline", "no_early_stop", "guide"];

/// Returns the names of settings in the order of tables.
pub fn names() -> impl Iterator<Item = &'static str> {
    let options = Options::FIELDS.iter().map(|field| field.name).filter(|name| !ELSEWHERE.contains(name));
    AskOptions::FIELDS.iter().map(|field| field.name).chain(options).chain([SEED])
}

/// Returns the settings of a row on a task. `chosen` has the options of an answer; none where likelihoods are compared.
pub fn effective(row: &Row, ask: &Ask, chosen: Option<&Chosen>) -> Table {
    let given = if row.place.is_some() { From::File } else { From::Flag };
    let is_given = |name: &str| ask.given.contains(&name);
    let of = |name: &str, other: From| if is_given(name) { given } else { other };
    let mut table = Table::new();
    let mut emit = |name: &str, value: Value, from: From| {
        table.insert(name.to_owned(), Effective { value, from });
    };
    emit("prompt_style", ask.wording().into(), of("prompt_style", From::Task));
    emit("shots", ask.shots.count().into(), of("shots", From::Task));
    if let Some(system) = &ask.system {
        emit("system", system.clone().into(), given);
    }
    emit(SEED, row.seeds.clone().into(), if row.seeds == [0] { From::Default } else { given });
    if let Some(choosing) = &ask.choosing {
        emit("score", choosing.answering().name().into(), given);
    }
    if let Some(Choosing::Likelihood(likelihood)) = &ask.choosing {
        emit("likelihood_draws", likelihood.draws.into(), of("likelihood_draws", From::Default));
        emit(
            "cfg_scale",
            Options { cfg_scale: Some(likelihood.cfg_scale), ..Options::default() }.json("cfg_scale").into(),
            of("cfg_scale", From::Default),
        );
    }
    let Some(chosen) = chosen else { return table };
    for field in Options::FIELDS.iter().filter(|field| !ELSEWHERE.contains(&field.name)) {
        let own = match field.name {
            "stop_rule" if is_given("no_early_stop") => given,
            // A task's texts stand beside those that are given.
            "stop" if !ask.style.stop.is_empty() => From::Task,
            "gen_length" => From::Task,
            name if chosen.by_checkpoint.contains(&name) => From::Checkpoint,
            name if chosen.by_family.contains(&name) => From::Family,
            _ => From::Default,
        };
        emit(field.name, chosen.options.json(field.name).unwrap_or_else(|| off(field)), of(field.name, own));
    }
    table
}

/// Value of an option that is not set.
fn off(field: &Field) -> Value {
    match field.kind {
        // Control tokens are read from the template alone.
        Kind::Switch if field.name == "split_special" => true.into(),
        Kind::Switch => false.into(),
        Kind::Texts | Kind::Tokens => Value::Array(Vec::new()),
        Kind::Biases => Value::Object(serde_json::Map::new()),
        _ => Value::Null,
    }
}

/// Returns the values without their sources, as a results directory remembers them.
pub fn values(table: &Table) -> Value {
    Value::Object(table.iter().map(|(name, setting)| (name.clone(), setting.value.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        run::{Asking, tests},
        tasks,
    };

    #[test]
    fn every_setting_has_its_value_and_its_source() {
        let model = demask::Model::demo().unwrap();
        let options = Options { temperature: Some(0.5), no_early_stop: Some(true), ..Options::default() };
        let plan =
            tests::plan(tasks::find("wordmath").unwrap(), tests::two(), &Asking { options, ..Asking::default() });
        let dry_run = plan.dry_run(0, &|prompt, options| model.prepare(prompt, options)).unwrap();
        let table = &dry_run.settings[0];
        let told = |name: &str| (table[name].value.to_string(), table[name].from);
        for (name, value, from) in [
            ("temperature", "0.5", From::Flag),
            ("stop_rule", "\"never\"", From::Flag),
            ("gen_length", "64", From::Task),
            ("prompt_style", "\"demo\"", From::Task),
            ("block_length", "16", From::Checkpoint),
            ("decoder", "\"threshold:tau=0.9\"", From::Default),
            ("top_p", "1.0", From::Default),
            ("ignore_eos", "false", From::Default),
            ("split_special", "true", From::Default),
            ("stop", "[]", From::Default),
            ("max_tokens", "null", From::Default),
            ("seed", "[0]", From::Default),
        ] {
            assert_eq!(told(name), (value.to_owned(), from), "{name}");
        }
        // No option of decoding is left out.
        let missing: Vec<_> =
            names().filter(|name| Options::field(name).is_some() && !table.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
