//! `report.html`: one file without scripts and without anything to fetch.

use std::fmt::Write;

use demask_figures::{
    Figure,
    page::{Page, escaped},
};

use super::{
    Numbers, Summary,
    markdown::{legend, table, task_line},
};

/// `report.html`; each figure with its picture.
pub fn report(numbers: &Numbers, figures: &[Figure], pictures: &[String]) -> String {
    let mut page = Page::new(&format!("Evaluation of {}", numbers.model), &format!("On {}.", numbers.device));
    for task in &numbers.tasks {
        let rows: Vec<&Summary> = numbers.of_task(task).collect();
        page.heading(&task.name);
        if rows.is_empty() {
            page.paragraph("No item was judged.");
            continue;
        }
        page.paragraph(&(task_line(task, &rows).replace('`', "") + "."));
        page.table(&table(&rows), &["run", "exactness"]);
    }
    let all: Vec<&Summary> = numbers.rows.iter().collect();
    if !all.is_empty() {
        let mut list = String::from("<details><summary>What the columns mean</summary><dl>");
        for (name, about) in legend(&all) {
            let _ = write!(list, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(about));
        }
        page.raw(&(list + "</dl></details>\n"));
    }
    for (figure, picture) in figures.iter().zip(pictures) {
        page.figure(figure, picture);
    }
    page.finish()
}
