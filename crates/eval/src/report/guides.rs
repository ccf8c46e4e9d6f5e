//! Effects of guides and matching rules: the share of the drafts that they accept, and its costs and gains.

use demask_figures::{Axis, Figure, Panel, Point, Series, Table};

use super::{Summary, TaskInfo, columns::differ};

/// Vertical axis, against which acceptance is plotted, by the names of its column and of its axis.
type Held = (&'static str, &'static str, fn(&Summary) -> Option<f64>);

const HELD: [Held; 3] = [
    ("accuracy_percent", "accuracy (%)", |row| Some(100.0 * row.accuracy)),
    ("tokens_per_nfe", "tokens per NFE", |row| row.tokens_per_nfe),
    ("guide_share_percent", "guide's share of time (%)", |row| row.guide_share.map(|share| 100.0 * share)),
];

/// Accuracy, tokens of a step and the guide's share of time against acceptance, a point for each guided run.
pub(super) fn guides(task: &TaskInfo, rows: &[&Summary], suffix: &str) -> Option<Figure> {
    let guided: Vec<(usize, &Summary, f64)> =
        (1..).zip(rows).filter_map(|(number, row)| Some((number, *row, 100.0 * row.acceptance?))).collect();
    if guided.len() < 2 {
        return None;
    }
    let models = differ(rows, |row| row.model.as_str());
    let label = |row: &Summary| match (models, row.guide.is_empty()) {
        (true, _) => format!("{} by {}", row.model, row.guide),
        (false, false) => format!("by {}", row.guide),
        (false, true) => String::new(),
    };
    let panels = HELD.iter().filter_map(|&(name, axis, value)| {
        let mut all: Vec<Series> = Vec::new();
        for &(number, row, x) in &guided {
            let Some(y) = value(row) else { continue };
            let error = if name == HELD[0].0 { 100.0 * row.standard_error } else { 0.0 };
            let point = Point { x, y, error, mark: number.to_string() };
            Series::gather(&mut all, &label(row), point);
        }
        let share = |axis: Axis| Axis { most: Some(100.0), ..axis };
        let y = if name == HELD[1].0 { Axis::new(axis) } else { share(Axis::new(axis)) };
        let x = share(Axis::new("drafts that the guide took (%)"));
        (!all.is_empty()).then_some(Panel::series(x, y, all))
    });
    let panels = panels.collect();
    let mut header = vec!["number", "run", "model", "guide", "acceptance_percent"];
    header.extend(HELD.map(|(name, ..)| name));
    let mut data = Table::new(&header);
    for &(number, row, acceptance) in &guided {
        let mut cells = vec![number.to_string(), row.run.clone(), row.model.clone(), row.guide.clone()];
        cells.push(acceptance.to_string());
        cells.extend(HELD.map(|(.., value)| value(row).map(|value| value.to_string()).unwrap_or_default()));
        data.rows.push(cells);
    }
    Some(Figure {
        name: format!("guides{suffix}"),
        title: format!("{}: guides and matching rules", task.name),
        caption: "Numbers are those of the table; bars are standard errors. A rule that takes more drafts needs fewer \
                  steps, and answers are right only as far as it takes the right ones."
            .to_owned(),
        panels,
        data,
    })
}

#[cfg(test)]
mod tests {
    use demask_figures::Content;

    use super::*;

    fn row(run: &str, guide: &str, acceptance: Option<f64>) -> Summary {
        let (run, guide) = (run.to_owned(), guide.to_owned());
        Summary { run, guide, acceptance, accuracy: 0.75, guide_share: Some(0.25), ..Summary::default() }
    }

    #[test]
    fn guided_runs_are_points_with_the_numbers_of_their_rows() {
        let rows = [row("static", "", None), row("exact", "small", Some(0.5)), row("topk", "large", Some(0.875))];
        let figure = guides(&TaskInfo::default(), &rows.iter().collect::<Vec<_>>(), "").unwrap();
        let told: Vec<String> = figure.data.rows.iter().map(|row| row.join(" ")).collect();
        assert_eq!(told, ["2 exact  small 50 75  25", "3 topk  large 87.5 75  25"]);
        let series = |panel: &Panel| match &panel.content {
            Content::Series(series) => series.iter().map(|series| series.label.clone()).collect::<Vec<_>>(),
            Content::Heat(_) => Vec::new(),
        };
        // Nothing is known of tokens per NFE.
        assert_eq!(figure.panels.iter().map(series).collect::<Vec<_>>(), [["by small", "by large"]; 2]);
        assert!(guides(&TaskInfo::default(), &[&rows[0], &rows[1]], "").is_none(), "one run is no picture");
    }
}
