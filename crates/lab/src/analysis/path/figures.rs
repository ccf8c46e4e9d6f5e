//! The pictures of paths: forwards against drafts with the bounds, and forwards of each prompt.

use demask_figures::{Axis, Figure, Join, Panel, Point, Series, Table};

use super::{Paths, Way};

/// All pictures.
pub fn figures(found: &Paths) -> Vec<Figure> {
    vec![drafts(found), prompts(found)]
}

/// Mean forwards against the number of drafts; bounds and `auto` are level lines.
fn drafts(found: &Paths) -> Figure {
    let mut data = Table::new(&["way", "drafts", "mean_forwards"]);
    let (mut curve, mut levels) = (Vec::new(), Vec::new());
    for (index, way) in found.ways.iter().enumerate() {
        let mean = found.mean(index);
        let drafts = if let Way::FreeDave(drafts) = way { drafts.parse::<f64>().ok() } else { None };
        let told = drafts.map(|drafts| drafts.to_string()).unwrap_or_default();
        data.rows.push(vec![found.name(way), told, mean.to_string()]);
        match drafts {
            Some(drafts) => curve.push(Point::at(drafts, mean)),
            None => levels.push((found.name(way), mean)),
        }
    }
    let (first, last) = (curve.first().map_or(1.0, |point| point.x), curve.last().map_or(32.0, |point| point.x));
    let mut series = vec![Series::new("freedave", Join::Line, curve)];
    series.extend(levels.into_iter().map(|(label, y)| {
        let points = [first, last].map(|x| Point::at(x, y)).to_vec();
        Series::new(label, Join::Path, points)
    }));
    Figure {
        name: "path_drafts".to_owned(),
        title: "Forwards against drafts, and the least that there could be".to_owned(),
        caption: format!(
            "Mean forwards of an answer. Along static decoding: exact, a forward jumps as far as its surest predictions are \
             what static decoding commits next. Any order: a forward commits any predictions that are right in the end; \
             found by a beam search of width {}, so that there may be shorter ways.",
            found.width
        ),
        panels: vec![Panel::series(Axis::log("drafts d"), Axis::showing("forwards", &[0.0]), series)],
        data,
    }
}

/// Forwards of each prompt.
fn prompts(found: &Paths) -> Figure {
    let mut data = Table::new(&["prompt", "tokens", "way", "forwards"]);
    let mut series = Vec::new();
    for (index, way) in found.ways.iter().enumerate() {
        for (number, (prompt, forwards)) in found.prompts.iter().zip(found.of(index)).enumerate() {
            let numbers = [(number + 1).to_string(), prompt.tokens.to_string()];
            data.rows.push(numbers.into_iter().chain([found.name(way), forwards.to_string()]).collect());
        }
        let shown = match way {
            Way::FreeDave(drafts) => ["4", "32"].contains(&drafts.as_str()),
            _ => true,
        };
        if shown {
            let points =
                found.of(index).enumerate().map(|(number, forwards)| Point::at((number + 1) as f64, forwards as f64));
            series.push(Series::new(found.name(way), Join::Line, points.collect()));
        }
    }
    Figure {
        name: "path_prompts".to_owned(),
        title: "Forwards of each answer".to_owned(),
        caption: "Every way ends with the tokens of static decoding.".to_owned(),
        panels: vec![Panel::series(Axis::new("prompt"), Axis::showing("forwards", &[0.0]), series)],
        data,
    }
}
