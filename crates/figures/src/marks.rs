//! Points and the texts beside them.

use plotters::{
    element::{Circle, EmptyElement, Polygon, Text},
    prelude::{Color, RGBColor},
    style::text_anchor::{HPos, VPos},
};

use super::{
    Join, Marker, Series,
    draw::{Chart, Drawn, text},
    style,
};

/// Half of a point's width, in pixels.
pub const RADIUS: i32 = 4;
/// Size of the texts, and the width of one of their letters, in pixels.
const TEXT: u32 = 13;
const LETTER: i32 = 7;

/// Places of a text beside its point, in the order of preference: pixels to the side and down, and the side that is held.
const PLACES: [(i32, i32, HPos); 5] =
    [(6, -3, HPos::Left), (-6, -3, HPos::Right), (6, 16, HPos::Left), (-6, 16, HPos::Right), (0, -8, HPos::Center)];

/// Corners of a form around its middle, in pixels; none of a circle.
pub fn corners(marker: Marker) -> Option<Vec<(i32, i32)>> {
    let wide = RADIUS + 1;
    Some(match marker {
        Marker::Circle => return None,
        Marker::Square => vec![(-RADIUS, -RADIUS), (RADIUS, -RADIUS), (RADIUS, RADIUS), (-RADIUS, RADIUS)],
        Marker::Triangle => vec![(0, -wide), (wide, RADIUS), (-wide, RADIUS)],
        Marker::Diamond => vec![(0, -wide), (wide, 0), (0, wide), (-wide, 0)],
        Marker::Wedge => vec![(0, wide), (wide, -RADIUS), (-wide, -RADIUS)],
    })
}

/// Draws a point.
pub fn draw(chart: &mut Chart<'_, '_>, place: (f64, f64), marker: Marker, colour: RGBColor) -> Drawn {
    match corners(marker) {
        None => chart.draw_series([EmptyElement::at(place) + Circle::new((0, 0), RADIUS, colour.filled())]).map(drop),
        Some(corners) => {
            chart.draw_series([EmptyElement::at(place) + Polygon::new(corners, colour.filled())]).map(drop)
        }
    }
}

/// A rectangle: left, top, right, bottom.
type Room = [i32; 4];

/// Draws the texts of all points, each where it hides no other and no point, as far as there is room.
pub fn draw_texts(chart: &mut Chart<'_, '_>, all: &[Series]) -> Drawn {
    let marked = |series: &&Series| matches!(series.join, Join::None | Join::Line);
    let points: Vec<_> = all.iter().filter(marked).flat_map(|series| &series.points).collect();
    let middles: Vec<(i32, i32)> = points.iter().map(|point| chart.backend_coord(&(point.x, point.y))).collect();
    let mut taken: Vec<Room> = middles.iter().map(|&(x, y)| [x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS]).collect();
    let (across, down) = chart.plotting_area().get_pixel_range();
    let page = [across.start, down.start, across.end, down.end];
    for (point, &middle) in points.iter().zip(&middles).filter(|(point, _)| !point.mark.is_empty()) {
        let width = point.mark.chars().count() as i32 * LETTER;
        let place = best(middle, width, page, &taken);
        taken.push(room(middle, width, place));
        let (right, below, side) = place;
        let style = text(TEXT, style::INK, side, VPos::Bottom);
        let element = EmptyElement::at((point.x, point.y)) + Text::new(point.mark.clone(), (right, below), style);
        chart.draw_series([element])?;
    }
    Ok(())
}

/// Returns the first place of a text that is on the page and free, else the first that is on the page, else the first.
fn best(middle: (i32, i32), width: i32, page: Room, taken: &[Room]) -> (i32, i32, HPos) {
    let inside = |place: &&(i32, i32, HPos)| {
        let [left, top, right, bottom] = room(middle, width, **place);
        left >= page[0] && top >= page[1] && right <= page[2] && bottom <= page[3]
    };
    let free = |place: &&(i32, i32, HPos)| {
        let own = room(middle, width, **place);
        taken.iter().all(|other| own[0] >= other[2] || other[0] >= own[2] || own[1] >= other[3] || other[1] >= own[3])
    };
    let places = || PLACES.iter().filter(inside);
    *places().find(free).or_else(|| places().next()).unwrap_or(&PLACES[0])
}

/// Room that a text takes.
fn room((x, y): (i32, i32), width: i32, (right, below, side): (i32, i32, HPos)) -> Room {
    let start = match side {
        HPos::Left => x + right,
        HPos::Right => x + right - width,
        HPos::Center => x + right - width / 2,
    };
    [start, y + below - TEXT as i32, start + width, y + below]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_beside_each_other_go_where_there_is_room() {
        let page = [0, 0, 400, 300];
        let told = |middle, taken: &[Room]| {
            let (right, below, _) = best(middle, 60, page, taken);
            (right, below)
        };
        assert_eq!(told((100, 100), &[]), (6, -3));
        // At the right edge it goes to the left of its point.
        assert_eq!(told((390, 100), &[]), (-6, -3));
        // A text that is there already is not hidden.
        let first = room((100, 100), 60, PLACES[0]);
        assert_eq!(told((104, 102), &[first]), (-6, -3));
        // Without any room it is drawn all the same.
        assert_eq!(told((100, 100), &[page]), (6, -3));
    }
}
