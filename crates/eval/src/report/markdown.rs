//! `report.md`: tables, what their columns mean, and the pictures.

use std::fmt::Write;

use demask_figures::{Figure, short};

use super::{Numbers, Summary, TaskInfo};

/// A column of the table.
struct Column {
    name: &'static str,
    /// What stands in it, in words.
    about: &'static str,
    cell: fn(&Summary) -> String,
    /// Whether it is shown: columns that say nothing are left out.
    shown: fn(&[&Summary]) -> bool,
}

const fn column(name: &'static str, about: &'static str, cell: fn(&Summary) -> String) -> Column {
    Column { name, about, cell, shown: |_| true }
}

/// All columns behind the run's number.
const COLUMNS: &[Column] = &[
    column("run", "decoder and cache, and what else differs", |row| row.run.clone()),
    column("items", "judged items", |row| row.items.to_string()),
    column(
        "accuracy %",
        "mean worth of answers, 1 where right, ± its standard error, sqrt(p (1 - p) / n) where none is right in part",
        |row| format!("{:.1} ± {:.1}", 100.0 * row.accuracy, 100.0 * row.standard_error),
    ),
    column("s/item", "mean seconds of an item, prompt included; of items that share forwards, their shares", |row| {
        short(row.seconds_per_item)
    }),
    column("tokens/s", "decoded tokens of all items by their seconds", |row| optional(row.tokens_per_second)),
    column("NFE", "mean forwards of an item, as the method's paper counts them", |row| short(row.nfe)),
    column("tokens/NFE", "decoded tokens of all items by their forwards", |row| optional(row.tokens_per_nfe)),
    column("GFLOP/token", "operations by formula, a guide's included, by decoded tokens", |row| {
        optional(row.gflop_per_token)
    }),
    Column {
        shown: |rows| rows.iter().any(|row| row.guide_nfe > 0.0),
        ..column("guide NFE", "mean forwards of the guide for an item", |row| short(row.guide_nfe))
    },
    column(
        "peak memory",
        "largest resident memory of the process while the run went on, mapped files included",
        |row| bytes(row.peak_memory),
    ),
    column("speed-up", "seconds per item of run 1 by those of this one", |row| format!("{:.2}x", row.speed_up)),
    Column {
        shown: |rows| rows.iter().any(|row| !row.exactness.is_empty()),
        ..column("exactness", "what the answers may claim, and against which run", exactness)
    },
];

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), short)
}

fn exactness(row: &Summary) -> String {
    if row.against.is_empty() { row.exactness.clone() } else { format!("{} ({})", row.exactness, row.against) }
}

/// Bytes for people.
fn bytes(count: u64) -> String {
    let mib = count as f64 / f64::from(1 << 20);
    match mib {
        0.0 => "–".to_owned(),
        1024.0.. => format!("{:.1} GiB", mib / 1024.0),
        _ => format!("{mib:.0} MiB"),
    }
}

/// Header and rows of a task's table, the number of the run in front.
pub(super) fn table(rows: &[&Summary]) -> Vec<Vec<String>> {
    let shown: Vec<&Column> = COLUMNS.iter().filter(|column| (column.shown)(rows)).collect();
    let header = std::iter::once("#".to_owned()).chain(shown.iter().map(|column| column.name.to_owned())).collect();
    let cells = rows.iter().enumerate().map(|(index, row)| {
        let number = (index + 1).to_string();
        std::iter::once(number).chain(shown.iter().map(|column| (column.cell)(row))).collect()
    });
    std::iter::once(header).chain(cells).collect()
}

/// What the columns mean: name and words.
pub(super) fn legend(rows: &[&Summary]) -> Vec<(&'static str, &'static str)> {
    let shown = COLUMNS.iter().filter(|column| (column.shown)(rows));
    shown.map(|column| (column.name, column.about)).collect()
}

/// How a task was asked, in a sentence.
pub(super) fn task_line(task: &TaskInfo, rows: &[&Summary]) -> String {
    let most = rows.iter().map(|row| row.items).max().unwrap_or(0);
    let shots = if task.shots == 1 { "1 exemplar".to_owned() } else { format!("{} exemplars", task.shots) };
    format!("{most} of {} items, {shots}, prompts in the style `{}`", task.available.max(most), task.style)
}

/// A Markdown table; the first row is the header.
pub(super) fn lines(table: &[Vec<String>], aligned_left: &[&str]) -> String {
    let Some((header, rows)) = table.split_first() else { return String::new() };
    let mut text = line(header);
    let rule = header.iter().map(|name| if aligned_left.contains(&name.as_str()) { "---" } else { "---:" });
    let _ = writeln!(text, "|{}|", rule.collect::<Vec<_>>().join("|"));
    for row in rows {
        text += &line(row);
    }
    text
}

fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// `report.md`.
pub fn markdown(numbers: &Numbers, figures: &[Figure]) -> String {
    let mut text = format!("# Evaluation of {}\n\nOn {}.\n", numbers.model, numbers.device);
    for task in &numbers.tasks {
        let rows: Vec<&Summary> = numbers.of_task(task).collect();
        let _ = write!(text, "\n## {}\n\n", task.name);
        if rows.is_empty() {
            text += "No item was judged.\n";
            continue;
        }
        let _ = write!(text, "{}.\n\n{}", task_line(task, &rows), lines(&table(&rows), &["run", "exactness"]));
    }
    let all: Vec<&Summary> = numbers.rows.iter().collect();
    if !all.is_empty() {
        text += "\n## Columns\n\n";
        for (name, about) in legend(&all) {
            let _ = writeln!(text, "* {name}: {about}");
        }
    }
    if !figures.is_empty() {
        text += "\n## Pictures\n";
    }
    for Figure { name, title, caption, .. } in figures {
        let _ = write!(text, "\n![{title}](plots/{name}.svg)\n\n{caption} Data: [{name}.csv](plots/{name}.csv).\n");
    }
    text
}
