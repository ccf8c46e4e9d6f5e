//! Rows of a file of runs: groups taken apart, sweeps multiplied out, settings laid over each other, baselines found.

use demask_settings::{
    names::nearest,
    toml::{Entry, FileError, Place, Table},
};
use serde_json::Value;

use super::{
    super::spec::{Asking, DEMO, ModelSpec, RowSpec, TaskSpec},
    Draft, Layers, Settings, allowed, known, seeds,
    settings::{Setting, Words, braced, filled, value_text},
};

/// Key of the values that a row sweeps.
const SWEEP: &str = "sweep";
/// Keys of a row besides its settings of model and answers.
const ROW: [&str; 5] = ["name", "baseline", "seeds", SWEEP, "on"];
/// Keys of what rows share.
const SHARED: [&str; 5] = ["rows", "baseline", "seeds", SWEEP, "on"];
/// Keys of a change of a row.
const CHANGE: [&str; 3] = ["baseline", "seeds", "on"];
/// Largest number of rows: more are a slip of the finger.
pub const MOST: usize = 1000;

/// A row as it is written, its sweep chosen.
#[derive(Debug)]
pub struct Row {
    pub place: Place,
    pub name: String,
    /// Values that a sweep chose for it.
    values: Vec<(String, String)>,
    own: Settings,
    /// Settings for single tasks, by their names.
    on: Vec<(String, Settings)>,
    seeds: Option<Vec<u64>>,
    baseline: Option<Named>,
}

/// A name and where it is written.
#[derive(Debug, Clone)]
pub struct Named {
    place: Place,
    name: String,
}

impl Named {
    pub fn read(table: &Table<'_>, key: &str) -> Result<Option<Self>, FileError> {
        table.get(key).map(|entry| Ok(Self { place: entry.place(), name: entry.as_text()? })).transpose()
    }
}

/// A table of a row, or of what several rows share.
struct Part<'a> {
    /// Name, with the words of sweeps in braces; empty where rows share it.
    name: String,
    place: Place,
    own: Settings,
    on: Vec<(String, Settings)>,
    sweep: Vec<(Entry<'a>, Vec<Value>)>,
    seeds: Option<Vec<u64>>,
    baseline: Option<Named>,
}

impl<'a> Part<'a> {
    /// Reads a table of the `[[row]]` that is `whole`.
    fn read(table: &Table<'a>, whole: &Table<'_>, keys: &[&str], tasks: &[&str]) -> Result<Self, FileError> {
        let named = keys.contains(&"name").then(|| table.needed("name", "a row without a name"));
        let sweep = table.table(SWEEP)?.map(Table::into_entries).unwrap_or_default();
        let sweep = sweep.into_iter().map(|entry| values(&entry, whole).map(|values| (entry, values)));
        Ok(Self {
            name: named.transpose()?.map(Entry::as_text).transpose()?.unwrap_or_default(),
            place: table.place(),
            own: Settings::read(table, "row", keys)?,
            on: on(table, tasks)?,
            sweep: sweep.collect::<Result<_, _>>()?,
            seeds: table.get("seeds").map(seeds).transpose()?,
            baseline: Named::read(table, "baseline")?,
        })
    }

    /// Number of combinations of its sweep.
    fn count(&self) -> usize {
        self.sweep.iter().fold(1, |count, (_, values)| count.saturating_mul(values.len()))
    }

    /// The values of one combination, the last name varying fastest.
    fn chosen(&self, mut index: usize) -> Vec<(&Entry<'a>, &Value)> {
        let mut chosen = Vec::new();
        for (entry, values) in self.sweep.iter().rev() {
            chosen.push((entry, &values[index % values.len()]));
            index /= values.len();
        }
        chosen.reverse();
        chosen
    }
}

impl Row {
    /// Reads the rows that a `[[row]]` makes.
    pub fn read(table: &Table<'_>, tasks: &[&str]) -> Result<Vec<Self>, FileError> {
        let (shared, parts) = match table.get("rows") {
            None => (None, vec![Part::read(table, table, &ROW, tasks)?]),
            Some(rows) => {
                let inner = table.tables("rows")?;
                if inner.is_empty() {
                    return Err(rows.refused("rows is empty: expected rows = [{ name = \"...\" }]"));
                }
                if let Some(name) = table.get("name") {
                    return Err(name.refused("name beside rows: name each of them instead"));
                }
                let parts = inner.iter().map(|inner| Part::read(inner, table, &ROW, tasks));
                (Some(Part::read(table, table, &SHARED, tasks)?), parts.collect::<Result<Vec<_>, _>>()?)
            }
        };
        let of_all = |key: &str| shared.iter().flat_map(|shared| &shared.sweep).any(|(entry, _)| entry.key == key);
        if let Some((entry, _)) = parts.iter().flat_map(|part| &part.sweep).find(|(entry, _)| of_all(&entry.key)) {
            return Err(entry.refused(format!("sweep: {} is swept for all of these rows already: omit one", entry.key)));
        }
        let outer = shared.as_ref().map_or(1, Part::count);
        let inner = parts.iter().map(Part::count).fold(0, usize::saturating_add);
        let count = outer.saturating_mul(inner);
        if count > MOST {
            return Err(table.refused(format!("sweep makes {count} rows, expected {MOST} at most: sweep less at once")));
        }
        let of_outer = |outer: usize| {
            let shared = &shared;
            parts
                .iter()
                .flat_map(move |part| (0..part.count()).map(move |inner| Self::of(shared.as_ref(), outer, part, inner)))
        };
        Ok((0..outer).flat_map(of_outer).collect())
    }

    /// The row of two combinations.
    fn of(shared: Option<&Part<'_>>, outer: usize, part: &Part<'_>, inner: usize) -> Self {
        let layers: Vec<&Part<'_>> = shared.into_iter().chain([part]).collect();
        let mut chosen = shared.map(|shared| shared.chosen(outer)).unwrap_or_default();
        chosen.extend(part.chosen(inner));
        let words: Words = chosen.iter().map(|(entry, value)| (entry.key.clone(), (*value).clone())).collect();
        let (mut own, mut on) = (Settings::default(), Vec::new());
        for layer in &layers {
            own.add(layer.own.with(&words));
            on.extend(layer.on.iter().map(|(task, settings)| (task.clone(), settings.with(&words))));
        }
        let options = chosen.into_iter().filter(|(entry, _)| is_setting(&entry.key));
        own.add(Settings(options.map(|(entry, value)| Setting::swept(entry, value.clone())).collect()));
        let appended = words.iter().filter(|(word, _)| !part.name.contains(&braced(word)));
        let values: Vec<(String, String)> = appended.map(|(word, value)| (word.clone(), value_text(value))).collect();
        let ending = values.iter().map(|(word, value)| format!(", {word}={value}"));
        let baseline = layers.iter().rev().find_map(|layer| layer.baseline.clone());
        Self {
            place: part.place.clone(),
            name: std::iter::once(filled(&part.name, &words)).chain(ending).collect(),
            values,
            own,
            on,
            seeds: layers.iter().rev().find_map(|layer| layer.seeds.clone()),
            baseline: baseline.map(|named| Named { name: filled(&named.name, &words), ..named }),
        }
    }

    /// Overrides the row's settings, seeds and baseline with those of a table.
    pub fn change(&mut self, table: &Table<'_>, tasks: &[&str]) -> Result<(), FileError> {
        self.own.add(Settings::read(table, "row", &CHANGE)?);
        self.on.extend(on(table, tasks)?);
        self.seeds = table.get("seeds").map(seeds).transpose()?.or(self.seeds.take());
        self.baseline = Named::read(table, "baseline")?.or(self.baseline.take());
        Ok(())
    }

    /// Lays the row's settings over the file's settings of tasks and of all rows; a row that names no model uses
    /// `model`.
    pub fn over(&self, draft: &Draft, model: Option<&str>) -> Result<RowSpec, FileError> {
        let asking = |(task, settings): &(TaskSpec, Settings)| {
            let on = self.on.iter().filter(|(of, _)| *of == task.name).map(|(_, settings)| settings);
            let layers: Vec<&Settings> = [&draft.defaults, settings, &self.own].into_iter().chain(on).collect();
            Layers(&layers).asking()
        };
        let asks = draft.tasks.iter().map(asking).collect::<Result<Vec<Asking>, _>>()?;
        let mut spec = Layers(&[&draft.defaults, &self.own]).model()?;
        self.guide(&asks, &mut spec)?;
        spec.load.model = match spec.load.model.as_deref().or(model) {
            Some(DEMO) => None,
            Some(model) => Some(model.to_owned()),
            None => {
                return Err(self.place.refused(format!(
                    "row \"{}\" names no model: add model = \"...\" (\"{DEMO}\" is the built-in one), or give --model",
                    self.name
                )));
            }
        };
        let names: Vec<&str> = draft.rows.iter().map(|row| row.name.as_str()).collect();
        let baseline = self.baseline.as_ref().or(draft.baseline.as_ref());
        let baseline = baseline.map(|named| known(&named.place, &named.name, "row", &names)).transpose()?;
        Ok(RowSpec {
            place: Some(self.place.clone()),
            name: Some(self.name.clone()),
            values: self.values.clone(),
            model: spec,
            seeds: self.seeds.clone().unwrap_or_else(|| draft.seeds.clone()),
            baseline: baseline.unwrap_or(0),
            asks,
        })
    }

    /// Refuses a row's own guide without a decoder that wants one, and drops the defaults' guide there. Refuses such a
    /// decoder without a guide, too.
    fn guide(&self, asks: &[Asking], model: &mut ModelSpec) -> Result<(), FileError> {
        let wanted = asks.iter().any(|ask| ask.options.wants_guide());
        let name = &self.name;
        match (wanted, &model.load.guide, self.own.get("guide")) {
            (true, None, _) => {
                Err(self.place.refused(format!("row \"{name}\" has a decoder that wants a guide: add guide = \"...\"")))
            }
            (false, Some(_), Some(setting)) => Err(setting.refused(format!(
                "row \"{name}\" has a guide, and no decoder that asks it: omit it, or add decoder = \"guided\""
            ))),
            (false, Some(_), None) => {
                model.load.guide = None;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Settings of a row for single tasks, by their names.
fn on(table: &Table<'_>, tasks: &[&str]) -> Result<Vec<(String, Settings)>, FileError> {
    let of = |entry: &Entry<'_>| {
        let key = &entry.key;
        if !tasks.contains(&key.as_str()) {
            let meant = nearest(key, tasks).map(|name| format!(", did you mean \"{name}\"?")).unwrap_or_default();
            return Err(entry.refused(format!("there is no task \"{key}\"{meant} (there are: {})", tasks.join(", "))));
        }
        Ok((key.clone(), Settings::read(&entry.as_table()?, "row on a task", &[])?))
    };
    table.table("on")?.iter().flat_map(Table::entries).map(of).collect()
}

fn is_setting(key: &str) -> bool {
    allowed("row").contains(&key.replace('-', "_").as_str())
}

/// The values of a name in a sweep of the `[[row]]` that is `whole`.
fn values(entry: &Entry<'_>, whole: &Table<'_>) -> Result<Vec<Value>, FileError> {
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
    let place = braced(key);
    if !is_setting(key) && !whole.holds(&place, SWEEP) {
        return Err(entry.refused(format!("sweep: {key} is no key of a row, and no text of the row has {place} in it")));
    }
    Ok(values)
}
