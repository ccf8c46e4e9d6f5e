//! The pictures of stability: maps over steps and positions, means of steps, correlations with V.

use demask_figures::{Axis, Content, Figure, Heat, Join, Panel, Point, Series, Table, short};

use super::joined::{COLUMNS, FEATURES, KEY, Map, STORED, Stability, VALUE};

const POSITION: &str = "position from the answer's start";
const SIMILARITY: &str = "cosine with the step before";

/// All pictures: maps, means of steps, correlations.
pub fn figures(stability: &Stability) -> Vec<Figure> {
    let mut figures = vec![map("stability_average", "average over layers", &stability.average)];
    let chosen = stability.chosen.iter();
    figures
        .extend(chosen.map(|(layer, cells)| map(&format!("stability_layer{layer}"), &format!("layer {layer}"), cells)));
    figures.push(steps(&stability.average));
    figures.push(correlations(stability));
    figures
}

/// Heat maps of the four features over steps and positions.
fn map(name: &str, of: &str, cells: &Map) -> Figure {
    let (steps, first, end) = cells.bounds();
    let mut data = Table::new(&["step", "position", COLUMNS[0], COLUMNS[1], COLUMNS[2], COLUMNS[3]]);
    let mut grids = vec![vec![vec![None; (end - first) as usize]; steps]; FEATURES.len()];
    for (&(step, offset), cell) in &cells.0 {
        let means = cell.means();
        for (grid, mean) in grids.iter_mut().zip(means) {
            grid[step][(offset - first) as usize] = Some(mean as f32);
        }
        let mut row = vec![(step + 1).to_string(), offset.to_string()];
        row.extend(means.map(|mean| mean.to_string()));
        data.rows.push(row);
    }
    // One scale for all four, so that they can be compared.
    let lowest = darkest(grids.iter().flatten().flatten().flatten().copied().collect());
    let panels = FEATURES.iter().zip(grids).map(|(feature, cells)| Panel {
        x: Axis::new(POSITION),
        y: Axis::new("step"),
        content: Content::Heat(Heat { title: (*feature).to_owned(), cells, first_column: first, first_row: 1, lowest }),
    });
    Figure {
        name: name.to_owned(),
        title: format!("Similarity of features between consecutive steps, {of}"),
        caption:
            "Cosine of each position's feature with that of the step before; the prompt stands before position 0. \
                  Bright: nothing changes, a cache would be right. Dark: that much or less."
                .to_owned(),
        panels: panels.collect(),
        data,
    }
}

/// The value that one cell in a hundred falls below, a little rounded: a few that change altogether shall not make all
/// others look alike.
fn darkest(mut values: Vec<f32>) -> f32 {
    values.sort_by(f32::total_cmp);
    let value = values.get(values.len() / 100).copied().unwrap_or(1.0);
    ((value * 20.0).floor() / 20.0).min(0.95)
}

/// Means of each step over the prompt and over the answer.
fn steps(cells: &Map) -> Figure {
    let mut data = Table::new(&["part", "step", COLUMNS[0], COLUMNS[1], COLUMNS[2], COLUMNS[3]]);
    let parts = [("prompt", false), ("answer", true)].into_iter().filter_map(|(part, answer)| {
        let steps = cells.by_step(answer);
        for (step, means) in &steps {
            let mut row = vec![part.to_owned(), (step + 1).to_string()];
            row.extend(means.map(|mean| mean.to_string()));
            data.rows.push(row);
        }
        let series = FEATURES.iter().enumerate().map(|(feature, label)| {
            let point = |(step, means): &(usize, [f64; 4])| Point::at((step + 1) as f64, means[feature]);
            // A line says where steps go; marks on each of many steps would hide it.
            Series::new(*label, Join::Path, steps.iter().map(point).collect())
        });
        let (x, y) = (Axis::new(&format!("step ({part})")), Axis::showing(SIMILARITY, &[1.0]));
        (!steps.is_empty()).then(|| Panel::series(x, y, series.collect()))
    });
    let panels = parts.collect();
    Figure {
        name: "stability_steps".to_owned(),
        title: "Similarity by step, average over layers and positions".to_owned(),
        caption: "Prompts hardly change, answers do where something was decoded.".to_owned(),
        panels,
        data,
    }
}

/// Figure of the correlation between the changes of K and V and those of the other features: it shows which features
/// can tell a cache which positions to renew.
fn correlations(stability: &Stability) -> Figure {
    let cloud = stability.average.cloud();
    let others = |stored: usize| (0..FEATURES.len()).filter(move |&feature| feature != stored);
    // V against K is shown once.
    let pairs = [(VALUE, KEY)].into_iter().chain(STORED.into_iter().flat_map(|stored| {
        others(stored).filter(|feature| !STORED.contains(feature)).map(move |feature| (stored, feature))
    }));
    let mut panels: Vec<Panel> = pairs
        .map(|(stored, feature)| {
            let point = |means: &[f64; 4]| Point::at(means[stored], means[feature]);
            let label = FEATURES[feature].to_owned();
            let series = Series::new(label, Join::Cloud, cloud.iter().map(point).collect());
            let r = stability.average_correlations(stored)[feature];
            let r = r.map_or_else(String::new, |r| format!(" (r = {r:.2})"));
            Panel::series(
                Axis::new(&format!("cosine of {}", FEATURES[stored])),
                Axis::new(&format!("{}{r}", FEATURES[feature])),
                vec![series],
            )
        })
        .collect();
    panels.extend(STORED.map(|stored| {
        let series = others(stored).map(|feature| {
            let point = |layer: usize| {
                let y = stability.correlations(layer, stored)[feature]?;
                Some(Point::at(layer as f64, y))
            };
            let points = (0..stability.layers).filter_map(point).collect();
            Series::new(FEATURES[feature], Join::Line, points)
        });
        Panel::series(
            Axis::new("layer"),
            Axis::showing(&format!("correlation with {}", FEATURES[stored]), &[1.0]),
            series.collect(),
        )
    }));
    Figure {
        name: "stability_correlation".to_owned(),
        title: "Where K and V change, the others change".to_owned(),
        caption: format!(
            "Each point is one position of an answer in one step, averaged over layers; last, Pearson's coefficient of \
             each layer. Coefficients of the averages: {}.",
            STORED.map(|stored| words(stability, stored)).join("; ")
        ),
        panels,
        data: coefficients(stability),
    }
}

/// Coefficients of the averages with one stored feature, in words.
fn words(stability: &Stability, stored: usize) -> String {
    let average = stability.average_correlations(stored);
    let others = (0..FEATURES.len()).filter(|&feature| feature != stored);
    let told = others.filter_map(|of| average[of].map(|r| format!("{} {}", FEATURES[of], short(r))));
    format!("with {}: {}", FEATURES[stored], told.collect::<Vec<_>>().join(", "))
}

/// Coefficients with K and with V, by layer and of the averages.
fn coefficients(stability: &Stability) -> Table {
    let mut data = Table::new(&["with", "layer", COLUMNS[0], COLUMNS[1], COLUMNS[2], COLUMNS[3]]);
    for stored in STORED {
        let told = |r: Option<f64>| r.map(|r| r.to_string()).unwrap_or_default();
        let mut row = |name: String, found: [Option<f64>; 4]| {
            let cells = [COLUMNS[stored].to_owned(), name].into_iter().chain(found.map(told));
            data.rows.push(cells.collect());
        };
        for layer in 0..stability.layers {
            row(layer.to_string(), stability.correlations(layer, stored));
        }
        row("average".to_owned(), stability.average_correlations(stored));
    }
    data
}
