//! The tables for a terminal, in columns of text.

use std::fmt::Write;

use super::{
    Numbers, Pair, Summary,
    columns::WORDS,
    pairs,
    sheets::{Sheet, main},
};

/// The rows of all tasks in one table with aligned columns, after it whether they share prefixes, and the pairs that were wanted.
pub fn plain(numbers: &Numbers) -> String {
    let rows: Vec<&Summary> = numbers.rows.iter().collect();
    let mut cells = main(&rows);
    let names = std::iter::once("task").chain(rows.iter().map(|row| row.task.as_str()));
    // Runs are told by their names here.
    cells.iter_mut().zip(names).for_each(|(row, name)| name.clone_into(&mut row[0]));
    let mut text = aligned(&cells);
    if let Some(prefixes) = numbers.about_prefixes() {
        let _ = writeln!(text, "{prefixes}");
    }
    if let Some(time) = numbers.about_time() {
        let _ = writeln!(text, "{time}");
    }
    for task in &numbers.tasks {
        let pairs: Vec<&Pair> = numbers.pairs.iter().filter(|pair| pair.task == task.name).collect();
        if let Some(Sheet { cells, note, .. }) = pairs::sheet(&pairs) {
            let _ = write!(text, "\n{}\n{}{note}\n", task.name, aligned(&cells));
        }
    }
    text
}

/// A table with aligned columns: words to the left, numbers to the right.
fn aligned(cells: &[Vec<String>]) -> String {
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..cells[0].len()).map(width).collect();
    let mut text = String::new();
    for row in cells {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let left = WORDS.contains(&cells[0][column].as_str());
            let _ = if left { write!(line, "{cell:<width$}  ") } else { write!(line, "{cell:>width$}  ") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
