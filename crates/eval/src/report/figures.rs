//! The pictures of a report: each appears where the sweep has the data for it.

use demask_decode::methods::{DecoderKind, Static};
use demask_figures::{Axis, Figure, Join, Marker, Panel, Point, Series, Table};

use super::{
    Numbers, Summary, TaskInfo,
    ablation::{Ablation, ablations, groups, traits},
    columns::differ,
    guides::guides,
};

/// A number of a row that a picture shows.
struct Metric {
    /// Column in CSV files.
    name: &'static str,
    /// Label of its axis.
    label: &'static str,
    value: fn(&Summary) -> Option<f64>,
}

impl Metric {
    /// Axis of the metric; it ends where all answers are right.
    fn axis(&self) -> Axis {
        Axis { most: (self.name == ACCURACY.name).then_some(100.0), ..Axis::new(self.label) }
    }
}

const ACCURACY: Metric =
    Metric { name: "accuracy_percent", label: "accuracy (%)", value: |row| Some(100.0 * row.accuracy) };
const SECONDS: Metric =
    Metric { name: "seconds_per_item", label: "seconds per item (s)", value: |row| Some(row.seconds_per_item) };

/// Metrics that the panels of an ablation show.
const EFFECTS: [Metric; 6] = [
    ACCURACY,
    Metric { name: "tokens_per_nfe", label: "tokens per NFE", value: |row| row.tokens_per_nfe },
    SECONDS,
    Metric { name: "tokens_per_second", label: "tokens/s", value: |row| row.tokens_per_second },
    Metric { name: "cache_mib", label: "K/V memory (MiB)", value: |row| mib(row.cache_memory) },
    Metric { name: "memory_mib", label: "memory (MiB)", value: |row| mib(row.named_memory) },
];

/// Bytes in the unit of pictures; none where nothing was measured.
fn mib(bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| bytes as f64 / f64::from(1 << 20))
}

/// Largest number of runs that each have their number in a picture; of more runs, those on the front have.
const MARKED: usize = 12;

/// Letters of the longest name that is drawn beside its point.
const SHORT: usize = 28;

/// All pictures, in the order of the report.
pub fn figures(numbers: &Numbers) -> Vec<Figure> {
    let mut figures = Vec::new();
    for task in &numbers.tasks {
        let rows: Vec<&Summary> = numbers.of_task(task).collect();
        let suffix = if numbers.tasks.len() > 1 { format!("_{}", slug(&task.name)) } else { String::new() };
        figures.extend(accuracy_latency(task, &rows, &suffix));
        figures.extend(fewer_steps(task, &rows, &suffix));
        figures.extend(guides(task, &rows, &suffix));
    }
    figures.extend(accuracy_steps(&numbers.rows));
    figures.extend(ablations(&numbers.rows).iter().map(effects));
    figures
}

/// A name for files: letters, digits and hyphens.
pub(super) fn slug(text: &str) -> String {
    let mut slug = String::new();
    for letter in text.chars() {
        match letter {
            'a'..='z' | '0'..='9' | '.' => slug.push(letter),
            'A'..='Z' => slug.push(letter.to_ascii_lowercase()),
            _ if slug.ends_with('-') || slug.is_empty() => {}
            _ => slug.push('-'),
        }
    }
    slug.trim_end_matches(['-', '.']).to_owned()
}

fn cell(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn accuracy_point(x: f64, row: &Summary, mark: String) -> Point {
    Point { x, y: 100.0 * row.accuracy, error: 100.0 * row.standard_error, mark }
}

/// The method of a spec without its parameters.
fn method(spec: &str) -> &str {
    spec.split(':').next().unwrap_or_default()
}

/// Accuracy against latency with the Pareto front (FlashDLM, figure 1b).
fn accuracy_latency(task: &TaskInfo, rows: &[&Summary], suffix: &str) -> Option<Figure> {
    if rows.len() < 2 {
        return None;
    }
    let front = pareto(rows);
    let models = differ(rows, |row| row.model.as_str());
    let mut caches: Vec<&str> = Vec::new();
    for row in rows.iter().map(|row| method(&row.cache)) {
        if !caches.contains(&row) {
            caches.push(row);
        }
    }
    let mut all: Vec<Series> = Vec::new();
    let mut data = Table::new(&["number", "run", SECONDS.name, ACCURACY.name, "standard_error_percent", "on_front"]);
    for (index, row) in rows.iter().enumerate() {
        let number = (index + 1).to_string();
        let marked = rows.len() <= MARKED || front.contains(&index);
        let told = if row.run.chars().count() <= SHORT { &row.run } else { &number };
        let point = accuracy_point(row.seconds_per_item, row, if marked { told.clone() } else { String::new() });
        data.rows.push(vec![
            number,
            row.run.clone(),
            point.x.to_string(),
            point.y.to_string(),
            point.error.to_string(),
            front.contains(&index).to_string(),
        ]);
        let decoder = method(&row.decoder);
        let hue = if models { format!("{}, {decoder}", row.model) } else { decoder.to_owned() };
        let cache = method(&row.cache);
        let label = if caches.len() > 1 { format!("{hue}, {cache}") } else { hue.clone() };
        Series::gather(&mut all, &label, point);
        let form = caches.iter().position(|known| *known == cache).unwrap_or(0) % Marker::ALL.len();
        if let Some(series) = all.iter_mut().find(|series| series.label == label) {
            (series.hue, series.marker) = (hue, Marker::ALL[form]);
        }
    }
    let best = |&index: &usize| accuracy_point(rows[index].seconds_per_item, rows[index], String::new());
    all.insert(0, Series::new("", Join::Front, front.iter().map(best).collect()));
    Some(Figure {
        name: format!("accuracy_latency{suffix}"),
        title: format!("{}: accuracy against latency", task.name),
        caption: "Points have the name of their run, or its number in the table; colours are decoders, forms are caches; bars \
                  are standard errors; the line is the Pareto front: no run left of it is as accurate."
            .to_owned(),
        panels: vec![Panel::series(Axis::log(SECONDS.label), ACCURACY.axis(), all)],
        data,
    })
}

/// Rows that no other beats in both seconds and accuracy, from fast to slow.
pub(super) fn pareto(rows: &[&Summary]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let key = |index: &usize| (rows[*index].seconds_per_item, -rows[*index].accuracy);
    order.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
    let mut best = f64::NEG_INFINITY;
    order.retain(|&index| {
        let better = rows[index].accuracy > best;
        best = best.max(rows[index].accuracy);
        better
    });
    order
}

/// Accuracy against steps for the remasking rules (FlashDLM, figure 1a).
fn accuracy_steps(rows: &[Summary]) -> Option<Figure> {
    let fixed = rows.iter().filter(|row| method(&row.decoder) == Static::NAME);
    let points = fixed.map(|row| (row.steps as f64, row, traits(row, Some(("decoder", "steps")))));
    let groups = groups(points.collect());
    let mut data = Table::new(&["series", "steps", ACCURACY.name, "standard_error_percent"]);
    let series = groups.iter().map(|group| {
        let points = group.points.iter().map(|&(x, row)| accuracy_point(x, row, String::new()));
        let points: Vec<Point> = points.collect();
        let rows =
            points.iter().map(|p| vec![group.label.clone(), p.x.to_string(), p.y.to_string(), p.error.to_string()]);
        data.rows.extend(rows);
        Series::new(group.label.clone(), Join::Line, points)
    });
    let series: Vec<Series> = series.collect();
    (!series.is_empty()).then(|| Figure {
        name: "accuracy_steps".to_owned(),
        title: "Accuracy against steps, static decoding".to_owned(),
        caption: "Quantity that ranks predictions, and accuracy by steps; bars are standard errors.".to_owned(),
        panels: vec![Panel::series(Axis::log("denoising steps"), ACCURACY.axis(), series)],
        data,
    })
}

/// Reports whether a cache beats fewer steps without one (dLLM-Cache's comparison with 32 steps).
fn fewer_steps(task: &TaskInfo, rows: &[&Summary], suffix: &str) -> Option<Figure> {
    let fixed = || rows.iter().copied().filter(|row| method(&row.decoder) == Static::NAME);
    let first = fixed().find(|row| row.cache != "none")?;
    let alike = |row: &&Summary| {
        (&row.remasking, row.early_stop, &row.others) == (&first.remasking, first.early_stop, &first.others)
    };
    let (mut plain, cached): (Vec<&Summary>, Vec<&Summary>) =
        fixed().filter(alike).partition(|row| row.cache == "none");
    plain.sort_by_key(|row| row.steps);
    if plain.first().map(|row| row.steps) == plain.last().map(|row| row.steps) {
        return None;
    }
    let point = |row: &Summary, mark| accuracy_point(row.seconds_per_item, row, mark);
    let points = plain.iter().map(|row| point(row, format!("{} steps", row.steps))).collect();
    let mut all = vec![Series::new("no cache", Join::Line, points)];
    for row in &cached {
        let (label, point) = (method(&row.cache), point(row, String::new()));
        Series::gather(&mut all, label, point);
    }
    let mut data = Table::new(&["cache", "steps", SECONDS.name, ACCURACY.name, "standard_error_percent"]);
    data.rows.extend(plain.iter().chain(&cached).map(|row| {
        let Point { x, y, error, .. } = point(row, String::new());
        vec![row.cache.clone(), row.steps.to_string(), x.to_string(), y.to_string(), error.to_string()]
    }));
    Some(Figure {
        name: format!("fewer_steps{suffix}"),
        title: format!("{}: a cache, or fewer steps without one", task.name),
        caption: "Static decoding. A cache is worth its name where its point lies above the line.".to_owned(),
        panels: vec![Panel::series(Axis::log(SECONDS.label), ACCURACY.axis(), all)],
        data,
    })
}

/// Figure of a parameter's effects (FreeDave, figure 2; the ablations of dLLM-Cache).
fn effects(ablation: &Ablation<'_>) -> Figure {
    let Ablation { side, method, parameter, doc, counts, groups } = ablation;
    let points = || groups.iter().flat_map(|group| &group.points);
    let told = EFFECTS.iter().filter(|metric| points().any(|(_, row)| (metric.value)(row).is_some()));
    let panels = told.map(|metric| {
        let series = groups.iter().map(|group| {
            let point = |&(x, row): &(f64, &Summary)| {
                let error = if metric.name == ACCURACY.name { 100.0 * row.standard_error } else { 0.0 };
                Some(Point { x, y: (metric.value)(row)?, error, mark: String::new() })
            };
            let points = group.points.iter().filter_map(point).collect();
            Series::new(group.label.clone(), Join::Line, points)
        });
        let x = Axis { log: *counts, ..Axis::new(&format!("{method} {parameter}")) };
        Panel::series(x, metric.axis(), series.collect())
    });
    let mut header = vec!["series", parameter];
    header.extend(EFFECTS.iter().map(|metric| metric.name));
    header.push("standard_error_percent");
    let mut data = Table::new(&header);
    for group in groups {
        for &(x, row) in &group.points {
            let mut cells = vec![group.label.clone(), x.to_string()];
            cells.extend(EFFECTS.iter().map(|metric| cell((metric.value)(row))));
            cells.push((100.0 * row.standard_error).to_string());
            data.rows.push(cells);
        }
    }
    Figure {
        name: format!("{side}_{method}_{parameter}"),
        title: format!("What {parameter} does ({side} {method})"),
        caption: format!("{parameter}: {doc}. Along a line everything else is equal; bars are standard errors."),
        panels: panels.collect(),
        data,
    }
}
