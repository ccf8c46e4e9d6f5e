//! Settings of all rows: one table of those that are the same everywhere, and one of those that differ.

use demask_figures::short;
use serde_json::Value;

use super::{Numbers, Summary, sheets::Sheet};
use crate::run::{Effective, MadeBy, setting_names};

/// The tables of settings; none where no row says its own.
pub fn settings(numbers: &Numbers) -> Vec<Sheet> {
    let rows: Vec<&Summary> = numbers.rows.iter().filter(|row| !row.settings.is_empty()).collect();
    let known = || setting_names().filter(|name| rows.iter().any(|row| row.settings.contains_key(*name)));
    let value = |row: &Summary, name: &str| row.settings.get(name).map(|setting| setting.value.clone());
    let differs = |name: &&str| rows.iter().any(|row| value(row, name) != value(rows[0], name));
    let (apart, alike): (Vec<&str>, Vec<&str>) = known().partition(differs);
    let alike = Sheet {
        title: "The same in all rows",
        note: String::new(),
        cells: std::iter::once(["setting", "value", "from"].map(str::to_owned).to_vec())
            .chain(alike.iter().map(|name| common(&rows, name)))
            .collect(),
    };
    let mut header = vec!["run".to_owned(), "task".to_owned()];
    header.extend(apart.iter().map(|name| (*name).to_owned()));
    let cells = rows.iter().map(|row| {
        let own = apart.iter().map(|name| row.settings.get(*name).map_or_else(|| "–".to_owned(), describe));
        [row.run.clone(), row.task.clone()].into_iter().chain(own).collect()
    });
    let apart = Sheet {
        title: "Different between rows",
        note: "Where a value is not the program's default, its source is in brackets.".to_owned(),
        cells: std::iter::once(header).chain(cells).collect(),
    };
    // A header with nothing below it but names says nothing.
    [(alike.cells.len() > 1).then_some(alike), (apart.cells[0].len() > 2).then_some(apart)]
        .into_iter()
        .flatten()
        .collect()
}

/// The tables of what made the records, one for each directory.
pub fn made(numbers: &Numbers) -> Vec<Sheet> {
    let sheet = |made: &MadeBy| Sheet {
        title: "",
        note: String::new(),
        cells: std::iter::once(["setting", "value"].map(str::to_owned).to_vec())
            .chain(made.lines().into_iter().map(Vec::from))
            .collect(),
    };
    numbers.made.iter().map(sheet).collect()
}

/// The line of a setting that all rows share, with all of its sources.
fn common(rows: &[&Summary], name: &str) -> Vec<String> {
    let mut from: Vec<_> = rows.iter().filter_map(|row| Some(row.settings.get(name)?.from)).collect();
    from.sort_unstable();
    from.dedup();
    let from: Vec<String> = from.iter().map(ToString::to_string).collect();
    let value = rows[0].settings.get(name).map(|setting| value_text(&setting.value)).unwrap_or_default();
    vec![name.to_owned(), value, from.join(", ")]
}

fn describe(setting: &Effective) -> String {
    match (value_text(&setting.value), setting.from) {
        (value, crate::run::From::Default) => value,
        (value, from) => format!("{value} ({from})"),
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::Bool(on) => if *on { "on" } else { "off" }.to_owned(),
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        Value::Array(list) => list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        Value::Number(number) => number.as_f64().filter(|_| !number.is_u64()).map_or_else(|| number.to_string(), short),
        Value::String(text) => text.escape_debug().to_string().replace("\\'", "'"),
        Value::Object(_) => value.to_string(),
    }
}
