//! The pictures of acceptance: rates by place, forward and rank, and reliability diagrams.

use std::collections::BTreeMap;

use demask_figures::{Axis, Figure, Join, Panel, Point, Series, Table};

use super::{Acceptance, BINS, Calibration, Rate};

/// All pictures: of drafts, if there were any, and of confidences.
pub fn figures(found: &Acceptance) -> Vec<Figure> {
    let mut figures = Vec::new();
    if found.all.drafted > 0 {
        figures.push(rates(found));
    }
    figures.push(calibration(found));
    figures
}

/// Shares of drafts that stood, and how many of a forward did.
fn rates(found: &Acceptance) -> Figure {
    let mut data = Table::new(&["by", "at", "accepted", "reached", "drafted"]);
    let mut panels = Vec::new();
    let by = [
        ("place in the block", 0, &found.places),
        ("forward", 1, &found.steps),
        ("number of the draft", 0, &found.ranks),
    ];
    for (name, first, rates) in by {
        data.rows.extend(rates.iter().map(|(at, rate)| {
            let numbers = [at + first, rate.accepted, rate.reached, rate.drafted].map(|number| number.to_string());
            std::iter::once(name.to_owned()).chain(numbers).collect()
        }));
        let series =
            |label: &str, share: fn(Rate) -> Option<f64>| Series::new(label, Join::Line, points(rates, first, share));
        panels.push(Panel::series(
            Axis::new(name),
            Axis { most: Some(1.0), ..Axis::showing("share that stood", &[0.0, 1.0]) },
            vec![
                series("of those that were reached", Rate::of_reached),
                series("of all that were drafted", Rate::of_all),
            ],
        ));
    }
    let forwards = found.stood.values().sum::<usize>().max(1) as f64;
    data.rows.extend(found.stood.iter().map(|(stood, count)| {
        vec!["forwards with so many".to_owned(), stood.to_string(), count.to_string(), String::new(), String::new()]
    }));
    let share = |(&stood, &count): (&usize, &usize)| Point::at(stood as f64, count as f64 / forwards);
    let stood = found.stood.iter().map(share).collect();
    panels.push(Panel::series(
        Axis::new("drafted tokens that stood in a forward"),
        Axis::showing("share of forwards", &[0.0]),
        vec![Series::new("forwards", Join::Line, stood)],
    ));
    Figure {
        name: "acceptance_drafts".to_owned(),
        title: "Where drafts stand".to_owned(),
        caption:
            "Share of drafted tokens that stood. A draft is reached if everything drafted before it in its forward \
                  stood; the others were never tested. Bars are standard errors."
                .to_owned(),
        panels,
        data,
    }
}

fn points(rates: &BTreeMap<usize, Rate>, first: usize, share: fn(Rate) -> Option<f64>) -> Vec<Point> {
    let point = |(at, rate): (&usize, &Rate)| {
        let y = share(*rate)?;
        let error = (y * (1.0 - y) / (rate.accepted as f64 / y.max(1e-9)).max(1.0)).sqrt();
        Some(Point { x: (at + first) as f64, y, error: if y > 0.0 { error } else { 0.0 }, mark: String::new() })
    };
    rates.iter().filter_map(point).collect()
}

/// Confidence against the share that was right; a calibrated model is on the diagonal.
fn calibration(found: &Acceptance) -> Figure {
    let mut data = Table::new(&["of", "from", "count", "mean_confidence", "right"]);
    let mut lines = vec![Series::new("calibrated", Join::Path, [0.0, 1.0].map(|at| Point::at(at, at)).to_vec())];
    let mut counts = Vec::new();
    for (name, of) in found.calibrations().into_iter().filter(|(_, of)| of.count() > 0) {
        for (from, bin) in BINS.iter().zip(&of.0) {
            let (mean, right) =
                bin.means().map_or_else(Default::default, |(mean, right)| (mean.to_string(), right.to_string()));
            data.rows.push(vec![name.to_owned(), from.to_string(), bin.count.to_string(), mean, right]);
        }
        lines.push(Series::new(name, Join::Line, reliability(of)));
        counts.push(Series::new(name, Join::Line, shares(of)));
    }
    let unit = |label: &str| Axis { most: Some(1.0), ..Axis::showing(label, &[0.0, 1.0]) };
    Figure {
        name: "acceptance_calibration".to_owned(),
        title: "What a confidence is worth".to_owned(),
        caption: "Mean confidence of a bin against the share that is right: for predictions, that the position holds the \
                  token in the end; for drafts, that they stood. Above the diagonal the model is surer than it says. Right: \
                  the share of each bin."
            .to_owned(),
        panels: vec![
            Panel::series(unit("mean confidence"), unit("share that is right"), lines),
            Panel::series(unit("mean confidence"), Axis::showing("share of all", &[0.0]), counts),
        ],
        data,
    }
}

fn reliability(of: &Calibration) -> Vec<Point> {
    let point = |bin: &super::Bin| {
        let (x, y) = bin.means()?;
        Some(Point { x, y, error: (y * (1.0 - y) / bin.count as f64).sqrt(), mark: String::new() })
    };
    of.0.iter().filter_map(point).collect()
}

fn shares(of: &Calibration) -> Vec<Point> {
    let all = of.count().max(1) as f64;
    let point = |bin: &super::Bin| Some(Point::at(bin.means()?.0, bin.count as f64 / all));
    of.0.iter().filter_map(point).collect()
}
