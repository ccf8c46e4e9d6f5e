//! Rows of a file of runs: sweeps multiplied out, settings laid over each other, baselines found.

use demask::internals::decode::names::nearest;
use serde_json::Value;

use super::{
    super::spec::{Asking, FileError, ModelSpec, RowSpec, TaskSpec},
    Layers, Settings, allowed, known,
    settings::{Setting, shown},
    text::{Entry, Table},
};

/// Keys of a row beside what it says of model and answers.
const ROW: [&str; 5] = ["name", "baseline", "seeds", "sweep", "on"];
/// Largest number of rows: more are a slip of the finger.
const MOST: usize = 1000;
/// Name of the built-in model.
const DEMO: &str = "demo";

/// The rows of a file.
pub struct Rows<'a> {
    pub file: &'a Table<'a>,
    pub defaults: &'a Settings,
    pub tasks: &'a [(TaskSpec, Settings)],
    /// The model of rows that name none.
    pub model: Option<&'a str>,
}

impl Rows<'_> {
    /// Reads all rows.
    pub fn read(&self) -> Result<Vec<RowSpec>, FileError> {
        let tables = self.file.tables("row")?;
        if tables.is_empty() {
            return Err(self.file.refused("no [[row]]: expected at least one"));
        }
        let mut rows: Vec<RowSpec> = Vec::new();
        let mut of = Vec::new();
        for (index, table) in tables.iter().enumerate() {
            for row in self.of_table(table)? {
                let name = row.name.as_deref().unwrap_or_default();
                if let Some(other) = rows.iter().find(|other| other.name == row.name) {
                    let first = other.line;
                    return Err(table
                        .refused(format!("row \"{name}\" is there twice, first on line {first}: name one otherwise")));
                }
                rows.push(row);
                of.push(index);
            }
            if rows.len() > MOST {
                return Err(table.refused(format!("there are more than {MOST} rows: sweep less at once")));
            }
        }
        let names: Vec<String> = rows.iter().map(|row| row.name.clone().unwrap_or_default()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for (row, index) in rows.iter_mut().zip(of) {
            let baseline = tables[index].get("baseline").or(self.file.get("baseline"));
            let name = baseline.map(|entry| known(entry, "row", &names)).transpose()?;
            row.baseline = name.and_then(|name| names.iter().position(|other| *other == name)).unwrap_or(0);
        }
        Ok(rows)
    }

    /// The rows that one table makes.
    fn of_table(&self, table: &Table<'_>) -> Result<Vec<RowSpec>, FileError> {
        let name = table.needed("name", "a row without a name")?.as_text()?;
        let own = Settings::read(table, "row", &ROW)?;
        let on = self.on(table)?;
        let seeds = table.get("seeds").or(self.file.get("seeds")).map(Entry::as_seeds).transpose()?.unwrap_or_default();
        let sweep = table.table("sweep")?;
        let sweep: Vec<(&Entry<'_>, Vec<Value>)> = match &sweep {
            Some(sweep) => {
                sweep.entries().map(|entry| Ok((entry, values(entry, &own, &on)?))).collect::<Result<_, _>>()?
            }
            None => Vec::new(),
        };
        let count = sweep.iter().fold(1usize, |count, (_, values)| count.saturating_mul(values.len()));
        if count > MOST {
            return Err(table.refused(format!("sweep makes {count} rows, expected {MOST} at most: sweep less at once")));
        }
        (0..count)
            .map(|index| {
                let chosen = chosen(&sweep, index);
                let words: Vec<(String, Value)> =
                    chosen.iter().map(|(entry, value)| (entry.key.clone(), (*value).clone())).collect();
                let mut own = own.with(&words);
                let options = chosen.iter().filter(|(entry, _)| is_setting(&entry.key));
                own.0.extend(
                    options.map(|(entry, value)| Setting::swept(entry, entry.key.replace('-', "_"), (*value).clone())),
                );
                let on: Vec<(usize, Settings)> =
                    on.iter().map(|(task, settings)| (*task, settings.with(&words))).collect();
                let values: Vec<(String, String)> =
                    words.iter().map(|(name, value)| (name.clone(), shown(value))).collect();
                let others = values.iter().map(|(name, value)| format!(", {name}={value}"));
                let name = std::iter::once(name.clone()).chain(others).collect();
                self.row(table, name, &own, &on, values, seeds.clone())
            })
            .collect()
    }

    fn row(
        &self,
        table: &Table<'_>,
        name: String,
        own: &Settings,
        on: &[(usize, Settings)],
        values: Vec<(String, String)>,
        seeds: Vec<u64>,
    ) -> Result<RowSpec, FileError> {
        let none = Settings::default();
        let asking = |(index, (_, task)): (usize, &(TaskSpec, Settings))| {
            let on = on.iter().find(|(of, _)| *of == index).map_or(&none, |(_, settings)| settings);
            Layers(&[self.defaults, task, own, on]).asking()
        };
        let asks = self.tasks.iter().enumerate().map(asking).collect::<Result<Vec<Asking>, _>>()?;
        let mut model = Layers(&[self.defaults, own]).model()?;
        guide(table, &name, own, &asks, &mut model)?;
        model.model = match model.model.as_deref().or(self.model) {
            Some(DEMO) => None,
            Some(model) => Some(model.to_owned()),
            None => {
                return Err(table.refused(format!(
                    "row \"{name}\" names no model: add model = \"...\" (\"{DEMO}\" is the built-in one), or give --model"
                )));
            }
        };
        Ok(RowSpec { line: table.line, name: Some(name), values, model, seeds, baseline: 0, asks })
    }

    /// Settings of a row for single tasks, by their indices.
    fn on(&self, table: &Table<'_>) -> Result<Vec<(usize, Settings)>, FileError> {
        let Some(on) = table.table("on")? else { return Ok(Vec::new()) };
        let names: Vec<&str> = self.tasks.iter().map(|(task, _)| task.name.as_str()).collect();
        let of = |entry: &Entry<'_>| {
            let Some(place) = names.iter().position(|name| *name == entry.key) else {
                let meant = nearest(&entry.key, &names).map(|name| format!(", did you mean \"{name}\"?"));
                let (meant, key) = (meant.unwrap_or_default(), &entry.key);
                return Err(
                    entry.refused(format!("there is no task \"{key}\"{meant} (there are: {})", names.join(", ")))
                );
            };
            Ok((place, Settings::read(&entry.as_table()?, "row on a task", &[])?))
        };
        on.entries().map(of).collect()
    }
}

/// A guide stands beside a decoder that wants one; the defaults' guide only there.
fn guide(
    table: &Table<'_>,
    name: &str,
    own: &Settings,
    asks: &[Asking],
    model: &mut ModelSpec,
) -> Result<(), FileError> {
    let wanted = asks.iter().any(|ask| ask.options.wants_guide());
    match (wanted, &model.guide, own.get("guide")) {
        (true, None, _) => {
            Err(table.refused(format!("row \"{name}\" has a decoder that wants a guide: add guide = \"...\"")))
        }
        (false, Some(_), Some(setting)) => Err(setting.refused(format!(
            "row \"{name}\" has a guide, and no decoder that asks it: omit it, or add decoder = \"guided\""
        ))),
        (false, Some(_), None) => {
            model.guide = None;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn is_setting(key: &str) -> bool {
    allowed("row").contains(&key.replace('-', "_").as_str())
}

/// The values of a name in a sweep.
fn values(entry: &Entry<'_>, own: &Settings, on: &[(usize, Settings)]) -> Result<Vec<Value>, FileError> {
    let key = &entry.key;
    let Value::Array(values) = entry.json()? else {
        return Err(entry.refused(format!("sweep: {key} is no list: expected {key} = [value, value]")));
    };
    if values.is_empty() {
        return Err(entry.refused(format!("sweep: {key} has no values: expected {key} = [value, value]")));
    }
    if let Some(value) = values.iter().enumerate().find(|(index, value)| values[..*index].contains(value)) {
        return Err(entry.refused(format!("sweep: {key} has {} twice: omit one", value.1)));
    }
    let place = format!("{{{key}}}");
    let texts = own.0.iter().chain(on.iter().flat_map(|(_, settings)| &settings.0));
    let stands = |setting: &Setting| setting.value.as_str().is_some_and(|text| text.contains(&place));
    if !is_setting(key) && !texts.clone().any(stands) {
        return Err(entry.refused(format!("sweep: {key} is no key of a row, and no text of the row has {place} in it")));
    }
    Ok(values)
}

/// The values of one row of a sweep, the last name varying fastest.
fn chosen<'a, 'b>(sweep: &'b [(&'b Entry<'a>, Vec<Value>)], mut index: usize) -> Vec<(&'b Entry<'a>, &'b Value)> {
    let mut chosen: Vec<(&Entry<'a>, &Value)> = Vec::new();
    for (entry, values) in sweep.iter().rev() {
        chosen.push((*entry, &values[index % values.len()]));
        index /= values.len();
    }
    chosen.reverse();
    chosen
}
