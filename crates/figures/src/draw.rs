//! Drawing of figures as SVG: panels, axes, series and the legend that they share.

use plotters::{
    chart::{ChartBuilder, ChartContext, LabelAreaPosition},
    coord::{Shift, cartesian::Cartesian2d},
    drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea},
    element::{Circle, PathElement, Polygon},
    prelude::{Color, IntoFont, RGBColor, SVGBackend, ShapeStyle},
    style::{
        TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};
use thiserror::Error;

use super::{Content, Figure, Join, Marker, Panel, Point, Series, axis::Scale, heat, marks, style};

/// A picture or page that a library refuses.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{figure} cannot be drawn: {reason}")]
pub struct DrawError {
    /// Its title.
    pub figure: String,
    /// The library's words.
    pub reason: String,
}

/// A piece of a picture.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A panel with its axes.
pub(super) type Chart<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<Scale, Scale>>;
/// Result of drawing.
pub(super) type Drawn<T = ()> = Result<T, DrawingAreaErrorKind<std::io::Error>>;

/// Sizes in pixels: the picture, its heading, a panel that has a row to itself and one that shares it, a legend's line.
const WIDTH: u32 = 860;
const HEADING: u32 = 40;
const SINGLE: u32 = 380;
const SHARED: u32 = 290;
const LEGEND_LINE: u32 = 22;
/// Room between entries in one line of the legend.
const LEGEND_GAP: u32 = 28;
/// Width of a letter of the legend; the browser's own font may be a little narrower.
const LETTER: u32 = 7;

impl Figure {
    /// The picture as one SVG document, its texts as text, readable in bright and dark schemes.
    pub fn svg(&self) -> Result<String, DrawError> {
        let legend = Legend::new(self);
        let rows = self.panels.len().div_ceil(self.columns());
        let height = HEADING + rows as u32 * self.panel_height() + legend.height();
        document(&self.title, (WIDTH, height), |root| self.draw(&legend, root))
    }

    fn columns(&self) -> usize {
        if self.panels.len() > 1 { 2 } else { 1 }
    }

    fn panel_height(&self) -> u32 {
        if self.panels.len() > 1 { SHARED } else { SINGLE }
    }

    fn draw(&self, legend: &Legend, root: &Area<'_>) -> Drawn {
        let (_, body) = root.split_vertically(HEADING);
        let (body, foot) = body.split_vertically(body.dim_in_pixel().1 - legend.height());
        let rows = self.panels.len().div_ceil(self.columns());
        for (panel, area) in self.panels.iter().zip(body.split_evenly((rows, self.columns()))) {
            panel.draw(&area, legend)?;
        }
        legend.draw(&foot)
    }
}

/// A document of a size with a title, which is drawn and said inside, and the style sheet.
pub(super) fn document(
    title: &str,
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String, DrawError> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let head = text(17, style::INK, HPos::Left, VPos::Top);
    let drawn =
        root.fill(&style::PAPER).and_then(|()| root.draw_text(title, &head, (18, 14))).and_then(|()| draw(&root));
    drawn
        .and_then(|()| root.present())
        .map_err(|error| DrawError { figure: title.to_owned(), reason: error.to_string() })?;
    drop(root);
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let head = format!("<title>{title}</title>\n<style>{}</style>\n", style::sheet());
    Ok(match svg.split_once(">\n") {
        Some((tag, rest)) => format!("{tag} role=\"img\">\n{head}{rest}"),
        None => svg,
    })
}

/// Text of a size and a colour, held at a corner or in the middle.
pub(super) fn text(size: u32, colour: RGBColor, across: HPos, up: VPos) -> TextStyle<'static> {
    TextStyle { font: ("sans-serif", size).into_font(), color: colour.to_backend_color(), pos: Pos::new(across, up) }
}

impl Panel {
    fn draw(&self, area: &Area<'_>, legend: &Legend) -> Drawn {
        match &self.content {
            Content::Series(series) => self.draw_series(area, series, legend),
            Content::Heat(cells) => heat::draw(self, cells, area),
        }
    }

    fn draw_series(&self, area: &Area<'_>, all: &[Series], legend: &Legend) -> Drawn {
        let points = || all.iter().flat_map(|series| &series.points);
        let scales = [
            self.x.scale(points().map(|point| point.x)),
            self.y.scale(points().flat_map(|point| [point.y - point.error, point.y + point.error])),
        ];
        let mut chart = self.axes(area, scales, 6)?;
        for series in all {
            series.draw(&mut chart, legend.colour(series.hue()), self.y.most)?;
        }
        marks::draw_texts(&mut chart, all)
    }

    /// Axes, their numbers and names, and a grid; `top` pixels stay free above.
    pub(super) fn axes<'a, 'b>(&self, area: &'b Area<'a>, [x, y]: [Scale; 2], top: u32) -> Drawn<Chart<'a, 'b>>
    where
        'a: 'b,
    {
        let mut chart = ChartBuilder::on(area)
            .margin_top(top)
            .margin_right(22)
            .margin_left(6)
            .margin_bottom(10)
            .set_label_area_size(LabelAreaPosition::Left, 62)
            .set_label_area_size(LabelAreaPosition::Bottom, 42)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .bold_line_style(style::GRID)
            .light_line_style(style::GRID.mix(0.0))
            .axis_style(style::MUTED)
            .label_style(text(14, style::MUTED, HPos::Center, VPos::Center))
            .axis_desc_style(text(15, style::MUTED, HPos::Center, VPos::Center))
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .draw()?;
        Ok(chart)
    }
}

impl Series {
    /// Draws it; error bars end at `most`.
    fn draw(&self, chart: &mut Chart<'_, '_>, colour: RGBColor, most: Option<f64>) -> Drawn {
        let places: Vec<(f64, f64)> = self.points.iter().map(|point| (point.x, point.y)).collect();
        let line = ShapeStyle::from(&colour).stroke_width(2);
        match self.join {
            Join::Path => return chart.draw_series([PathElement::new(places, line)]).map(drop),
            Join::Line => drop(chart.draw_series([PathElement::new(places, line)])?),
            Join::Front => {
                let faint = ShapeStyle::from(&style::MUTED).stroke_width(1);
                let edge = chart.x_range().end;
                return chart.draw_series([PathElement::new(steps(&places, edge), faint)]).map(drop);
            }
            Join::Cloud => {
                let pale = colour.mix(0.35).filled();
                return chart.draw_series(places.into_iter().map(|place| Circle::new(place, 2, pale))).map(drop);
            }
            Join::None => {}
        }
        for point in &self.points {
            point.draw_error(chart, colour, most.unwrap_or(f64::INFINITY))?;
            marks::draw(chart, (point.x, point.y), self.marker, colour)?;
        }
        Ok(())
    }
}

/// The corners of a staircase through points that rise from left to right, led on to the right edge.
fn steps(places: &[(f64, f64)], edge: f64) -> Vec<(f64, f64)> {
    let mut corners = Vec::new();
    for (index, &(x, y)) in places.iter().enumerate() {
        let next = places.get(index + 1).map_or(edge, |next| next.0);
        corners.extend([(x, y), (next, y)]);
    }
    corners
}

impl Point {
    /// Draws its error bar.
    fn draw_error(&self, chart: &mut Chart<'_, '_>, colour: RGBColor, most: f64) -> Drawn {
        if self.error > 0.0 {
            let ends = [self.y - self.error, (self.y + self.error).min(most.max(self.y))].map(|end| (self.x, end));
            let bar = ShapeStyle::from(&colour.mix(0.6)).stroke_width(1);
            chart.draw_series([PathElement::new(ends.to_vec(), bar)])?;
        }
        Ok(())
    }
}

/// The labels of a figure's series, each with its colour and form, broken into lines.
struct Legend {
    labels: Vec<String>,
    /// Name of each label's colour, and its form.
    looks: Vec<(String, Marker)>,
    /// Names of colours, in the order in which these are given away.
    hues: Vec<String>,
    /// Start of each label: line and pixel.
    places: Vec<(u32, u32)>,
}

impl Legend {
    fn new(figure: &Figure) -> Self {
        let (mut labels, mut looks, mut hues): (Vec<String>, Vec<_>, Vec<String>) = Default::default();
        for panel in &figure.panels {
            let Content::Series(all) = &panel.content else { continue };
            for series in all.iter().filter(|series| !series.label.is_empty()) {
                if !labels.contains(&series.label) {
                    labels.push(series.label.clone());
                    looks.push((series.hue().to_owned(), series.marker));
                }
            }
        }
        for (hue, _) in &looks {
            if !hues.contains(hue) {
                hues.push(hue.clone());
            }
        }
        let (mut line, mut across) = (0, 0);
        let mut place = |label: &String| {
            let width = label.chars().count() as u32 * LETTER + LEGEND_GAP;
            if across > 0 && across + width > WIDTH - 40 {
                (line, across) = (line + 1, 0);
            }
            across += width;
            (line, across - width)
        };
        let places = labels.iter().map(&mut place).collect();
        Self { labels, looks, hues, places }
    }

    fn height(&self) -> u32 {
        self.places.last().map_or(6, |&(line, _)| (line + 1) * LEGEND_LINE + 12)
    }

    /// The colour of a name; those without one have the first.
    fn colour(&self, hue: &str) -> RGBColor {
        let index = self.hues.iter().position(|known| known == hue).unwrap_or(0);
        style::SERIES[index % style::SERIES.len()]
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        for ((label, (hue, marker)), &(line, across)) in self.labels.iter().zip(&self.looks).zip(&self.places) {
            let (x, y) = (26 + across as i32, 8 + (line * LEGEND_LINE) as i32);
            let colour = self.colour(hue).filled();
            match marks::corners(*marker) {
                None => area.draw(&Circle::new((x, y), marks::RADIUS, colour))?,
                Some(corners) => {
                    let corners: Vec<(i32, i32)> = corners.iter().map(|corner| (x + corner.0, y + corner.1)).collect();
                    area.draw(&Polygon::new(corners, colour))?;
                }
            }
            area.draw_text(label, &text(14, style::INK, HPos::Left, VPos::Center), (x + 10, y))?;
        }
        Ok(())
    }
}
