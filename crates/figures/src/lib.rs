//! Pictures as data: figures drawn as SVG, their numbers as CSV, pages that hold both.
//!
//! A [`Figure`] is a grid of panels with one legend: [`Figure::svg`] draws it, [`Table::csv`] lists its numbers. A
//! [`board::Board`] draws rows of small texts. A [`page::Page`] puts pictures and tables into one HTML document, [`files`] writes documents whole or not at all. Nothing
//! here knows the meaning of the numbers.
#![forbid(unsafe_code)]

mod axis;
pub mod board;
mod draw;
pub mod files;
mod heat;
mod marks;
pub mod page;
mod style;

use std::fmt::Write;

pub use axis::Axis;
pub use draw::DrawError;

/// One picture.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figure {
    /// The name of its files.
    pub name: String,
    /// Title above the figure.
    pub title: String,
    /// Explanation of how to read the figure.
    pub caption: String,
    /// Panels of the figure.
    pub panels: Vec<Panel>,
    /// The numbers of it.
    pub data: Table,
}

/// One pair of axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Across.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Content between them.
    pub content: Content,
}

impl Panel {
    /// A panel of points and lines.
    pub fn series(x: Axis, y: Axis, all: Vec<Series>) -> Self {
        Self { x, y, content: Content::Series(all) }
    }
}

/// Drawing between two axes.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Points and lines.
    Series(Vec<Series>),
    /// A value for each cell.
    Heat(Heat),
}

/// Points that belong together; in all panels of a figure, the same label has the same colour and the same marker.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// Name in the legend; not in the legend if empty.
    pub label: String,
    /// Connection of the points.
    pub join: Join,
    /// The points, in the order in which they are joined.
    pub points: Vec<Point>,
    /// Name that it shares its colour with; its label if empty.
    pub hue: String,
    /// Form of its points.
    pub marker: Marker,
}

/// Form of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Marker {
    /// A filled circle.
    #[default]
    Circle,
    /// A square on its side.
    Square,
    /// A triangle that points up.
    Triangle,
    /// A square on its corner.
    Diamond,
    /// A triangle that points down.
    Wedge,
}

impl Marker {
    /// All forms, in the order in which they are given away.
    pub const ALL: [Self; 5] = [Self::Circle, Self::Square, Self::Triangle, Self::Diamond, Self::Wedge];
}

impl Series {
    /// A series with a name in the legend; without one if it is empty.
    pub fn new(label: impl Into<String>, join: Join, points: Vec<Point>) -> Self {
        Self { label: label.into(), join, points, ..Self::default() }
    }

    /// Gives it the colour of a name and a form.
    #[must_use]
    pub fn like(self, hue: impl Into<String>, marker: Marker) -> Self {
        Self { hue: hue.into(), marker, ..self }
    }

    /// Returns the name that its colour is of.
    fn hue(&self) -> &str {
        if self.hue.is_empty() { &self.label } else { &self.hue }
    }

    /// Adds a mark to the series with this label, which is made if there is none.
    pub fn gather(all: &mut Vec<Self>, label: &str, point: Point) {
        match all.iter_mut().find(|series| series.label == label) {
            Some(series) => series.points.push(point),
            None => all.push(Self::new(label, Join::None, vec![point])),
        }
    }
}

/// Connection of the points of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Join {
    /// Marks alone.
    #[default]
    None,
    /// Straight lines with marks.
    Line,
    /// Straight lines without marks, for many points.
    Path,
    /// Steps without marks: the best value up to each point.
    Front,
    /// Small, pale marks alone, for many points.
    Cloud,
}

/// One point.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
    /// Standard error of `y`; 0: none is drawn.
    pub error: f64,
    /// Text beside it.
    pub mark: String,
}

impl Point {
    /// A point without an error and a text.
    pub fn at(x: f64, y: f64) -> Self {
        Self { x, y, ..Self::default() }
    }
}

/// A value for each cell of a grid.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heat {
    /// Title above the panel.
    pub title: String,
    /// `[rows][columns]`; none where there is no value.
    pub cells: Vec<Vec<Option<f32>>>,
    /// Number of the first column.
    pub first_column: i64,
    /// Number of the first row.
    pub first_row: i64,
    /// The darkest colour is this value or less; the brightest is 1.
    pub lowest: f32,
}

/// Numbers of a picture.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// Names of the columns.
    pub header: Vec<String>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    /// Writes the table as comma separated values (RFC 4180).
    pub fn csv(&self) -> String {
        let mut text = String::new();
        for row in std::iter::once(&self.header).chain(&self.rows) {
            let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
            let _ = writeln!(text, "{}", cells.join(","));
        }
        text
    }
}

/// A cell of a CSV file: in quotes where it holds what separates cells.
fn quoted(cell: &str) -> String {
    if cell.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

/// A number with as many digits as people read.
pub fn short(value: f64) -> String {
    let digits = match value.abs() {
        0.0 | 1000.0.. => 0,
        100.0.. => 1,
        1.0.. => 2,
        0.1.. => 3,
        // Three digits that say something, as people write them: 0.0312.
        1e-6.. => (2.0 - value.abs().log10().floor()) as usize,
        _ => return format!("{value:.2e}"),
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests;
