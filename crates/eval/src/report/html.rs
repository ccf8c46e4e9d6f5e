//! `report.html`: one file without scripts and without anything to fetch.

use demask_figures::{DrawError, Figure, page::Page};

use super::{
    Numbers, Summary,
    settings::{made, settings},
    sheets::{Sheet, legend, of_task, over_tasks},
};

fn sheet(page: &mut Page, sheet: &Sheet) {
    if !sheet.title.is_empty() {
        page.heading(3, sheet.title);
    }
    if !sheet.note.is_empty() {
        page.paragraph(&sheet.note.replace('`', ""));
    }
    page.table(&sheet.cells, &sheet.left());
}

/// `report.html`; each figure with its picture.
pub fn report(numbers: &Numbers, figures: &[Figure], pictures: &[String]) -> Result<String, DrawError> {
    let mut page = Page::new(&numbers.title(), &format!("{} on {}.", numbers.model, numbers.device));
    if !numbers.heading.about.is_empty() {
        page.paragraph(&numbers.heading.about);
    }
    if let Some(prefixes) = numbers.about_prefixes() {
        page.paragraph(prefixes);
    }
    if let Some(time) = numbers.about_time() {
        page.paragraph(&time);
    }
    for task in &numbers.tasks {
        let rows: Vec<&Summary> = numbers.of_task(task).collect();
        page.heading(2, &task.name);
        if rows.is_empty() {
            page.paragraph("No item was judged.");
            continue;
        }
        for one in of_task(numbers, task, &rows) {
            sheet(&mut page, &one);
        }
    }
    for warning in numbers.warnings() {
        page.paragraph(&format!("Warning: {warning}."));
    }
    let together = over_tasks(numbers);
    if !together.is_empty() {
        page.heading(2, "All tasks");
        for one in &together {
            sheet(&mut page, one);
        }
    }
    for (title, sheets) in [("Settings", settings(numbers)), ("What made these numbers", made(numbers))] {
        for (place, one) in sheets.iter().enumerate() {
            if place == 0 {
                page.heading(2, title);
            }
            sheet(&mut page, one);
        }
    }
    let all: Vec<&Summary> = numbers.rows.iter().collect();
    if !all.is_empty() {
        page.terms("What the columns mean", &legend(&all));
    }
    for (figure, picture) in figures.iter().zip(pictures) {
        page.figure(figure, picture);
    }
    page.finish()
}
