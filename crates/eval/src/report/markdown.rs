//! `report.md`: tables, what their columns mean, and the pictures.

use std::fmt::Write;

use demask_figures::Figure;

use super::{
    Numbers, Summary,
    settings::{made, settings},
    sheets::{Sheet, legend, of_task, over_tasks},
};

/// A Markdown table; the first row is the header.
fn lines(table: &[Vec<String>], aligned_left: &[&str]) -> String {
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

fn sheet(text: &mut String, sheet: &Sheet) {
    if !sheet.title.is_empty() {
        let _ = write!(text, "\n### {}\n\n", sheet.title);
    }
    if !sheet.note.is_empty() {
        let _ = write!(text, "{}\n\n", sheet.note);
    }
    *text += &lines(&sheet.cells, &sheet.left());
}

/// `report.md`.
pub fn markdown(numbers: &Numbers, figures: &[Figure]) -> String {
    let mut text = format!("# {}\n\n", numbers.title());
    if !numbers.heading.about.is_empty() {
        let _ = write!(text, "{}\n\n", numbers.heading.about.trim());
    }
    let _ = match (numbers.heading.title.as_str(), numbers.model.as_str()) {
        ("", _) | (_, "") => writeln!(text, "On {}.", numbers.device),
        (_, model) => writeln!(text, "{model} on {}.", numbers.device),
    };
    if let Some(prefixes) = numbers.about_prefixes() {
        let _ = write!(text, "\n{prefixes}\n");
    }
    if let Some(time) = numbers.about_time() {
        let _ = write!(text, "\n{time}\n");
    }
    for task in &numbers.tasks {
        let rows: Vec<&Summary> = numbers.of_task(task).collect();
        let _ = write!(text, "\n## {}\n\n", task.name);
        if rows.is_empty() {
            text += "No item was judged.\n";
            continue;
        }
        for one in of_task(numbers, task, &rows) {
            sheet(&mut text, &one);
        }
    }
    for warning in numbers.warnings() {
        let _ = write!(text, "\nWarning: {warning}.\n");
    }
    let together = over_tasks(numbers);
    if !together.is_empty() {
        text += "\n## All tasks\n";
        for one in &together {
            sheet(&mut text, one);
        }
    }
    for (title, sheets) in [("Settings", settings(numbers)), ("What made these numbers", made(numbers))] {
        for (place, one) in sheets.iter().enumerate() {
            let heading = if place == 0 { format!("\n## {title}\n") } else { String::new() };
            let _ = write!(text, "{heading}{}", if one.title.is_empty() { "\n" } else { "" });
            sheet(&mut text, one);
        }
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
