//! Tables for papers: CSV with nothing rounded, LaTeX with rules of booktabs.

use std::fmt::Write;

use demask_figures::{Table, short};
use demask_settings::names::{UnknownName, same};

use super::{Numbers, Summary, TaskInfo, columns::bytes, compare::NORMAL_95};

/// Form of a table in a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Comma separated values, numbers as they are, with the ends of their intervals.
    Csv,
    /// A LaTeX table with rules of booktabs.
    Latex,
}

impl Format {
    const ALL: [(&'static str, Self); 2] = [("csv", Self::Csv), ("latex", Self::Latex)];

    /// Reads a name.
    ///
    /// # Errors
    /// If there is no such form.
    pub fn read(name: &str) -> Result<Self, UnknownName> {
        let known = || Self::ALL.iter().map(|(name, _)| *name).collect();
        let found = Self::ALL.iter().find(|(known, _)| same(known, name)).map(|(_, format)| *format);
        found.ok_or_else(|| UnknownName { what: "format", found: name.to_owned(), known: known() })
    }

    /// Returns the end of its files' names.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Latex => "tex",
        }
    }
}

/// A column of such a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Name that people type.
    pub name: &'static str,
    /// Heading where it says more than the name.
    head: &'static str,
    content: Content,
}

/// Returns the ends of a row's 95 % interval, where it has one.
type Interval = fn(&Summary) -> Option<(f64, f64)>;

#[derive(Debug, Clone, Copy)]
enum Content {
    Words(fn(&Summary) -> String),
    Number {
        value: fn(&Summary) -> Option<f64>,
        /// Ends of the 95 % interval, of columns that have one.
        interval: Option<Interval>,
        /// Writes a number for a reader.
        written: fn(f64) -> String,
        better: Better,
        /// Value of the baseline, of columns that compare with it: it has no cell there, and may be the best.
        baseline: Option<f64>,
    },
}

/// Direction in which a number is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Better {
    More,
    Less,
    Neither,
}

const fn words(name: &'static str, of: fn(&Summary) -> String) -> Column {
    Column { name, head: name, content: Content::Words(of) }
}

const fn number(name: &'static str, better: Better, value: fn(&Summary) -> Option<f64>) -> Column {
    Column {
        name,
        head: name,
        content: Content::Number { value, interval: None, written: short, better, baseline: None },
    }
}

impl Column {
    const fn headed(mut self, head: &'static str) -> Self {
        self.head = head;
        self
    }

    const fn within(mut self, ends: fn(&Summary) -> Option<(f64, f64)>) -> Self {
        if let Content::Number { interval, .. } = &mut self.content {
            *interval = Some(ends);
        }
        self
    }

    const fn against(mut self, value: f64) -> Self {
        if let Content::Number { baseline, .. } = &mut self.content {
            *baseline = Some(value);
        }
        self
    }

    const fn written(mut self, as_text: fn(f64) -> String) -> Self {
        if let Content::Number { written, .. } = &mut self.content {
            *written = as_text;
        }
        self
    }
}

/// Columns that a table may have.
const COLUMNS: &[Column] = &[
    words("run", |row| row.run.clone()),
    words("model", |row| row.model.clone()),
    words("device", |row| row.device.clone()),
    words("guide", |row| row.guide.clone()),
    words("decoder", |row| row.decoder.clone()),
    words("cache", |row| row.cache.clone()),
    words("exactness", |row| row.exactness.clone()),
    number("items", Better::Neither, |row| Some(row.items as f64)),
    number("accuracy", Better::More, |row| Some(100.0 * row.accuracy))
        .headed("accuracy (%)")
        .within(accuracy_interval)
        .written(|value| format!("{value:.1}")),
    number("difference", Better::More, |row| row.difference.map(|found| 100.0 * found.mean))
        .headed("difference (points)")
        .within(|row| row.difference.map(|found| (100.0 * found.low, 100.0 * found.high)))
        .against(0.0)
        .written(|value| format!("{value:+.1}")),
    number("p", Better::Neither, |row| row.difference.and_then(|found| found.p)),
    number("s/item", Better::Less, |row| Some(row.seconds_per_item))
        .within(|row| row.seconds_within.map(|ends| (ends.low, ends.high))),
    number("CPU s/item", Better::Less, |row| row.processor_per_item),
    number("tokens/s", Better::More, |row| row.tokens_per_second),
    number("NFE", Better::Less, |row| Some(row.nfe)),
    number("tokens/NFE", Better::More, |row| row.tokens_per_nfe),
    number("GFLOP/token", Better::Less, |row| row.gflop_per_token),
    number("K/V memory", Better::Less, |row| Some(row.cache_memory as f64).filter(|bytes| *bytes > 0.0))
        .written(|value| bytes(value as u64)),
    number("memory", Better::Less, |row| Some(row.named_memory as f64).filter(|bytes| *bytes > 0.0))
        .written(|value| bytes(value as u64)),
    number("peak memory", Better::Less, |row| row.own_peak_memory.map(|bytes| bytes as f64))
        .written(|value| bytes(value as u64)),
    number("speed-up", Better::More, |row| row.compared().then_some(row.speed_up))
        .within(|row| row.faster.map(|faster| (faster.low, faster.high)))
        .against(1.0)
        .written(|value| format!("{value:.2}")),
];

/// Columns unless others are named, as far as they say something.
const USUAL: [&str; 9] =
    ["run", "accuracy", "difference", "s/item", "tokens/s", "NFE", "tokens/NFE", "GFLOP/token", "speed-up"];

/// Reads the names of columns.
///
/// # Errors
/// If there is no such column.
pub fn columns(names: &[String]) -> Result<Vec<&'static Column>, UnknownName> {
    let known = || COLUMNS.iter().map(|column| column.name).collect();
    let column = |name: &String| {
        let found = COLUMNS.iter().find(|column| same(column.name, name.trim()));
        found.ok_or_else(|| UnknownName { what: "column", found: name.trim().to_owned(), known: known() })
    };
    names.iter().map(column).collect()
}

/// Wilson's interval of an accuracy, in percent; where answers are right in part, the mean's normal one.
fn accuracy_interval(row: &Summary) -> Option<(f64, f64)> {
    let (mean, items) = (row.accuracy, row.items as f64);
    if items == 0.0 {
        return None;
    }
    let error = (mean * (1.0 - mean) / items).sqrt();
    let (low, high) = if (error - row.standard_error).abs() < 1e-9 {
        let square = NORMAL_95 * NORMAL_95;
        let center = mean + square / (2.0 * items);
        let width = NORMAL_95 * (mean * (1.0 - mean) / items + square / (4.0 * items * items)).sqrt();
        let below = 1.0 + square / items;
        ((center - width) / below, (center + width) / below)
    } else {
        (mean - NORMAL_95 * row.standard_error, mean + NORMAL_95 * row.standard_error)
    };
    Some((100.0 * low.max(0.0), 100.0 * high.min(1.0)))
}

/// Writes the table of a task in a form; without `columns`, those that are usual and say something.
pub fn table(format: Format, numbers: &Numbers, task: &TaskInfo, columns: &[&'static Column]) -> String {
    let rows: Vec<&Summary> = numbers.of_task(task).collect();
    let usual = || {
        let usual = USUAL.iter().filter_map(|name| COLUMNS.iter().find(|column| column.name == *name));
        usual.filter(|column| rows.iter().any(|row| column.says(row))).collect()
    };
    let columns: Vec<&Column> = if columns.is_empty() { usual() } else { columns.to_vec() };
    match format {
        Format::Csv => csv(&columns, &rows),
        Format::Latex => latex(&columns, &rows, &format!("{}: {}", numbers.title(), task.name), &task.name),
    }
}

impl Column {
    /// Returns whether it says something of a row.
    fn says(&self, row: &Summary) -> bool {
        match self.content {
            Content::Words(of) => !of(row).is_empty(),
            Content::Number { value, .. } => value(row).is_some(),
        }
    }

    fn value(&self, row: &Summary) -> Option<f64> {
        match self.content {
            Content::Words(_) => None,
            Content::Number { value, .. } => value(row),
        }
    }

    fn ends(&self, row: &Summary) -> Option<(f64, f64)> {
        match self.content {
            Content::Number { interval: Some(interval), .. } => interval(row),
            _ => None,
        }
    }

    /// Returns the rows that are the best, or no worse as far as the best one's interval tells: none where no number is better.
    fn best(&self, rows: &[&Summary]) -> Vec<bool> {
        let Content::Number { written, better, baseline, .. } = self.content else { return vec![false; rows.len()] };
        let value = |row: &&Summary| self.value(row).or(baseline.filter(|_| !row.compared()));
        let values: Vec<Option<f64>> = rows.iter().map(value).collect();
        let first = values.iter().flatten().next();
        let differ = values.iter().flatten().any(|value| Some(value) != first);
        let order = |place: &usize| values[*place].map(|value| if better == Better::Less { -value } else { value });
        let best = (0..rows.len())
            .filter(|place| values[*place].is_some())
            .max_by(|a, b| order(a).unwrap_or(f64::NEG_INFINITY).total_cmp(&order(b).unwrap_or(f64::NEG_INFINITY)));
        let (Some(best), true) = (best, differ && better != Better::Neither) else { return vec![false; rows.len()] };
        let holds = |place: usize, value: f64| self.ends(rows[place]).map(|(low, high)| low <= value && value <= high);
        let is_best = |place: usize| {
            let (Some(value), Some(most)) = (values[place], values[best]) else { return false };
            // The baseline has no interval: that of a row beside it tells.
            let as_good = holds(best, value).or_else(|| holds(place, most)).unwrap_or(false);
            as_good || written(value) == written(most)
        };
        (0..rows.len()).map(is_best).collect()
    }
}

/// Comma separated values: numbers with nothing rounded, the ends of an interval after its number.
fn csv(columns: &[&Column], rows: &[&Summary]) -> String {
    let has_ends = |column: &Column| rows.iter().any(|row| column.ends(row).is_some());
    let mut table = Table::default();
    for column in columns {
        table.header.push(column.head.to_owned());
        if has_ends(column) {
            table.header.extend(["low", "high"].map(|end| format!("{}, {end}", column.head)));
        }
    }
    let cell = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    table.rows.extend(rows.iter().map(|row| {
        let mut cells = Vec::new();
        for column in columns {
            cells.push(match column.content {
                Content::Words(of) => of(row),
                Content::Number { .. } => cell(column.value(row)),
            });
            if has_ends(column) {
                let ends = column.ends(row);
                cells.extend([ends.map(|ends| ends.0), ends.map(|ends| ends.1)].map(cell));
            }
        }
        cells
    }));
    table.csv()
}

/// A LaTeX table with rules of booktabs: in bold the best value, and those that the best one's interval does not tell
/// from it.
fn latex(columns: &[&Column], rows: &[&Summary], title: &str, label: &str) -> String {
    let best: Vec<Vec<bool>> = columns.iter().map(|column| column.best(rows)).collect();
    let places: String =
        columns.iter().map(|column| if matches!(column.content, Content::Words(_)) { 'l' } else { 'r' }).collect();
    let heads: Vec<String> = columns.iter().map(|column| escaped(column.head)).collect();
    let label: String = label.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    let mut text = format!(
        "% Needs \\usepackage{{booktabs}}.\n\\begin{{table}}\n  \\centering\n  \\caption{{{}. In bold: the best, and \
         what its 95\\,\\% interval does not tell from it.}}\n  \\label{{tab:{label}}}\n  \\begin{{tabular}}{{{places}}}\n    \
         \\toprule\n    {} \\\\\n    \\midrule\n",
        escaped(title),
        heads.join(" & ")
    );
    for (place, row) in rows.iter().enumerate() {
        let cells = columns.iter().zip(&best).map(|(column, best)| cell(column, row, best[place]));
        let _ = writeln!(text, "    {} \\\\", cells.collect::<Vec<_>>().join(" & "));
    }
    text + "    \\bottomrule\n  \\end{tabular}\n\\end{table}\n"
}

fn cell(column: &Column, row: &Summary, is_best: bool) -> String {
    let (value, written) = match column.content {
        Content::Words(of) => return escaped(&of(row)),
        Content::Number { value, written, .. } => (value(row), written),
    };
    let Some(value) = value else { return "--".to_owned() };
    let number = escaped(&written(value));
    let number = if is_best { format!("\\textbf{{{number}}}") } else { number };
    match column.ends(row) {
        Some((low, high)) => {
            let [low, high] = [low, high].map(|end| escaped(&written(end)));
            format!("{number} {{\\scriptsize [{low}, {high}]}}")
        }
        None => number,
    }
}

/// Text that LaTeX sets as it is; a minus becomes one.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for (place, letter) in text.chars().enumerate() {
        match letter {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => escaped.extend(['\\', letter]),
            '\\' => escaped.push_str("\\textbackslash{}"),
            '~' => escaped.push_str("\\textasciitilde{}"),
            '^' => escaped.push_str("\\textasciicircum{}"),
            '–' => escaped.push_str("--"),
            '×' => escaped.push_str("$\\times$"),
            '±' => escaped.push_str("$\\pm$"),
            '-' if place == 0 => escaped.push_str("$-$"),
            '\n' => escaped.push(' '),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
