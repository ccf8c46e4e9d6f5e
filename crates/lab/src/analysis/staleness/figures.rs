//! The pictures of staleness: distances by layer, forward and age, and maps over layers and positions.

use demask_figures::{Axis, Content, Figure, Heat, Join, Panel, Point, Series, Table};

use super::{OfCache, PLACES, Staleness, Sum, Sums, TENSORS};

const DISTANCE: &str = "1 - cosine";

/// All pictures.
pub fn figures(found: &Staleness) -> Vec<Figure> {
    let layers = |sums: &[Sums]| sums.iter().copied().enumerate().collect::<Vec<_>>();
    let mut figures = vec![
        lines(found, &About::new("layers", "layer", "by layer, along the runs"), |cache| layers(&cache.layers)),
        lines(found, &About::new("end", "layer", "by layer, at the end"), |cache| layers(&cache.ends)),
        lines(found, &About::new("steps", "forward", "by forward"), |cache| {
            cache.steps.iter().map(|(&step, &sums)| (step + 1, sums)).collect()
        }),
        lines(found, &About::new("age", "age in forwards", "by age"), |cache| {
            cache.ages.iter().map(|(&age, &sums)| (age, sums)).collect()
        }),
    ];
    figures.extend(found.caches.iter().enumerate().map(|(index, cache)| map(index, cache)));
    figures
}

/// Subject of a picture of lines.
struct About {
    name: &'static str,
    across: &'static str,
    by: &'static str,
}

impl About {
    fn new(name: &'static str, across: &'static str, by: &'static str) -> Self {
        Self { name, across, by }
    }
}

/// A line for each cache, a panel for K and V of prompts and answers.
fn lines(found: &Staleness, about: &About, of: impl Fn(&OfCache) -> Vec<(usize, Sums)>) -> Figure {
    let all: Vec<(&str, Vec<(usize, Sums)>)> =
        found.caches.iter().map(|cache| (cache.name.as_str(), of(cache))).collect();
    let mut data = Table::new(&["cache", "tensor", "part", about.across, "mean", "largest", "slots"]);
    let mut panels = Vec::new();
    for (place, part) in PLACES.iter().enumerate().rev() {
        for (tensor, name) in TENSORS.iter().enumerate() {
            let mut series = Vec::new();
            for (label, points) in &all {
                let told: Vec<(usize, Sum, f64)> = points
                    .iter()
                    .filter_map(|(x, sums)| Some((*x, sums[tensor][place], sums[tensor][place].mean()?)))
                    .collect();
                data.rows.extend(told.iter().map(|(x, sum, mean)| {
                    let words = [*label, *name, *part].map(str::to_owned);
                    let numbers = [x.to_string(), mean.to_string(), sum.largest.to_string(), sum.count.to_string()];
                    words.into_iter().chain(numbers).collect()
                }));
                let point = |(x, _, mean): &(usize, Sum, f64)| Point::at(*x as f64, *mean);
                // Marks on each of many forwards would hide the line.
                let join = if told.len() > 24 { Join::Path } else { Join::Line };
                series.push(Series::new(*label, join, told.iter().map(point).collect()));
            }
            if series.iter().any(|series| !series.points.is_empty()) {
                let y = Axis::showing(&format!("{DISTANCE}: {name}, {part}"), &[0.0]);
                panels.push(Panel::series(Axis::new(about.across), y, series));
            }
        }
    }
    Figure {
        name: format!("staleness_{}", about.name),
        title: format!("Distance of cached K and V from the true ones, {}", about.by),
        caption: "Mean distance of the slots that attention reads from K and V of a forward without a cache over the \
                  same canvas. Age 0: computed in that forward, from what the other slots held."
            .to_owned(),
        panels,
        data,
    }
}

/// Map of a cache's staleness: cosines over layers and positions.
fn map(index: usize, cache: &OfCache) -> Figure {
    let offsets = || cache.cells.keys().map(|key| key.1);
    let first = offsets().min().unwrap_or(0);
    let width = (offsets().max().unwrap_or(-1) + 1 - first).max(0) as usize;
    let mut data = Table::new(&["layer", "position", "key", "value", "slots"]);
    let mut grids = vec![vec![vec![None; width]; cache.layers.len()]; TENSORS.len()];
    for (&(layer, offset), sums) in &cache.cells {
        let means = sums.map(|sum| sum.mean().unwrap_or(0.0));
        for (grid, mean) in grids.iter_mut().zip(means) {
            grid[layer][(offset - first) as usize] = Some(1.0 - mean as f32);
        }
        let numbers = means.map(|mean| mean.to_string());
        let place = [layer.to_string(), offset.to_string()];
        data.rows.push(place.into_iter().chain(numbers).chain([sums[0].count.to_string()]).collect());
    }
    let lowest = grids.iter().flatten().flatten().flatten().copied().fold(0.95f32, f32::min);
    let lowest = (lowest * 20.0).floor() / 20.0;
    let panels = TENSORS.iter().zip(grids).map(|(tensor, cells)| Panel {
        x: Axis::new("position from the answer's start"),
        y: Axis::new("layer"),
        content: Content::Heat(Heat { title: (*tensor).to_owned(), cells, first_column: first, first_row: 0, lowest }),
    });
    Figure {
        name: format!("staleness_map{index}"),
        title: format!("Where slots are stale: cache {}", cache.name),
        caption: "Cosine of cached K and V with the true ones, averaged over the forwards that could read them; the \
                  prompt stands before position 0. Bright: the slot is right."
            .to_owned(),
        panels: panels.collect(),
        data,
    }
}
