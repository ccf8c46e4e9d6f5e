//! The short table of a committed record, between two marks of a text: the README's figures are never typed by hand.

use std::fmt::Write;

use demask_figures::short;
use thiserror::Error;

use super::{
    Numbers, Summary,
    columns::{Column, MAIN, MORE, RATIOS, WORDS, accuracy, speed_up},
};

/// Marks at the start and the end of the table.
const MARKS: [&str; 2] = ["<!-- eval table -->", "<!-- end of eval table -->"];

/// A text without the place for a table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected {} and behind it {}, each once", MARKS[0], MARKS[1])]
pub struct NoPlace;

/// The short table: accuracy, speed and effort.
pub fn table(numbers: &Numbers) -> String {
    let mut text = String::from("| task | run | accuracy % | s/item | NFE | tokens/NFE | speed-up |\n");
    text += "|---|---|---:|---:|---:|---:|---:|\n";
    for row in &numbers.rows {
        let per_nfe = row.tokens_per_nfe.map_or_else(|| "–".to_owned(), short);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {per_nfe} | {} |",
            row.task,
            row.run.replace('|', "\\|"),
            accuracy(row),
            short(row.seconds_per_item),
            short(row.nfe),
            speed_up(row),
        );
    }
    let _ = write!(text, "\n{} on {}.\n", numbers.model, numbers.device);
    text
}

/// Columns of [`effort`] beside seconds, which depend on nothing but the run.
const EFFORT: &[&str] = &[
    "run",
    "accuracy %",
    "difference",
    "NFE",
    "tokens/NFE",
    "guide NFE",
    "GFLOP/token",
    "operations saved",
    "acceptance %",
    "accepted drafts",
    "K/V memory",
    "guide's memory",
];

/// Columns of seconds.
const SECONDS: &[&str] = &["s/item", "speed-up"];

/// The table of a run file's record: accuracy and effort, and seconds if they were taken with nothing beside.
pub fn effort(numbers: &Numbers, timed: bool) -> String {
    let rows: Vec<&Summary> = numbers.rows.iter().collect();
    let all = || MAIN.iter().chain(RATIOS).chain(MORE);
    let named = EFFORT.iter().chain(SECONDS.iter().filter(|_| timed));
    let columns: Vec<&Column> = named.filter_map(|name| all().find(|column| column.name == *name)).collect();
    let says = |column: &&Column| (column.visible)(&rows) && rows.iter().any(|row| (column.cell)(row) != "–");
    let columns: Vec<&Column> = columns.into_iter().filter(says).collect();
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(columns.iter().map(|column| column.name.to_owned()).collect());
    let side = |column: &&Column| if WORDS.contains(&column.name) { "---" } else { "---:" }.to_owned();
    text += &line(columns.iter().map(side).collect());
    for row in &rows {
        text += &line(columns.iter().map(|column| (column.cell)(row).replace('|', "\\|")).collect());
    }
    let items: Vec<String> = numbers.tasks.iter().map(|task| format!("{} of {}", task.items, task.name)).collect();
    let _ = write!(text, "\n{} on {}; {}.\n", numbers.model, numbers.device, items.join(", "));
    text
}

/// The text with these tables between the marks.
pub fn insert(text: &str, tables: &[String]) -> Result<String, NoPlace> {
    let [begin, end] = MARKS;
    let once = |mark: &str| if text.matches(mark).count() == 1 { text.find(mark) } else { None };
    let (from, to) = once(begin).zip(once(end)).filter(|(from, to)| from < to).ok_or(NoPlace)?;
    Ok(format!("{}\n{}\n{}", &text[..from + begin.len()], tables.join("\n").trim_end(), &text[to..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_the_marks_is_replaced() {
        let text = "a\n<!-- eval table -->\nold\n<!-- end of eval table -->\nb\n";
        let new = insert(text, &["| x |\n".into(), "| y |\n".into()]).unwrap();
        assert_eq!(new, "a\n<!-- eval table -->\n| x |\n\n| y |\n<!-- end of eval table -->\nb\n");
        assert_eq!(insert(&new, &["| x |\n".into(), "| y |\n".into()]).unwrap(), new);
    }

    #[test]
    fn effort_has_seconds_only_where_they_count() {
        let (baseline, items) = ("one".to_owned(), 4);
        let all = Summary { baseline, items, accuracy: 0.5, ..Summary::default() };
        let row = |run: &str, nfe| Summary { run: run.to_owned(), nfe, ..all.clone() };
        let numbers = Numbers { rows: vec![row("one", 8.0), row("two | three", 4.0)], ..Numbers::default() };
        let table = effort(&numbers, false);
        assert!(table.starts_with("| run | accuracy % | NFE |"), "{table}");
        assert!(table.contains("| two \\| three | 50.0 ± 0.0 | 4 |"), "{table}");
        assert!(!table.contains("s/item") && effort(&numbers, true).contains(" s/item | speed-up |"), "{table}");
    }

    #[test]
    fn a_text_without_a_place_is_refused() {
        let [begin, end] = MARKS;
        for text in ["", begin, end, &format!("{end}{begin}"), &format!("{begin}{begin}{end}")] {
            assert_eq!(insert(text, &[]), Err(NoPlace));
        }
    }
}
