//! Heat maps: cells coloured by their value, and the bar that names the colours.

use plotters::{
    element::Rectangle,
    prelude::Color,
    style::text_anchor::{HPos, VPos},
};

use super::{
    Axis, Heat, Panel,
    axis::Scale,
    draw::{Area, Drawn, text},
    short, style,
};

/// Colours that are told apart; neighbours of one colour are one rectangle.
const LEVELS: f32 = 40.0;
/// Pixels of the bar that names the colours, with its numbers.
const BAR: u32 = 64;

/// Draws a map with its title and its bar of colours.
pub fn draw(panel: &Panel, heat: &Heat, area: &Area<'_>) -> Drawn {
    let (map, bar) = area.split_horizontally(area.dim_in_pixel().0 - BAR);
    map.draw_text(&heat.title, &text(15, style::INK, HPos::Left, VPos::Top), (72, 4))?;
    let columns = heat.cells.iter().map(Vec::len).max().unwrap_or(0);
    let edges = |axis: &Axis, first: i64, count: usize| {
        let ends = [first as f64, (first + count as i64) as f64];
        Axis { shows: ends.to_vec(), ..axis.clone() }.scale(std::iter::empty())
    };
    let scales: [Scale; 2] =
        [edges(&panel.x, heat.first_column, columns), edges(&panel.y, heat.first_row, heat.cells.len())];
    let mut chart = panel.axes(&map, scales, 26)?;
    for (row, cells) in heat.cells.iter().enumerate() {
        let bottom = (heat.first_row + row as i64) as f64;
        let runs = runs(cells, heat.lowest).into_iter().map(|(from, to, level)| {
            let at = |column: usize| (heat.first_column + column as i64) as f64;
            Rectangle::new([(at(from), bottom), (at(to), bottom + 1.0)], style::heat(level / LEVELS).filled())
        });
        chart.draw_series(runs)?;
    }
    draw_bar(&bar, heat.lowest)
}

/// Neighbours of one level: first column, the one after the last, level.
fn runs(cells: &[Option<f32>], lowest: f32) -> Vec<(usize, usize, f32)> {
    let level = |value: f32| ((value - lowest) / (1.0 - lowest).max(1e-6) * LEVELS).clamp(0.0, LEVELS).round();
    let mut runs: Vec<(usize, usize, f32)> = Vec::new();
    for (column, value) in cells.iter().enumerate() {
        let Some(value) = *value else { continue };
        match runs.last_mut() {
            Some((_, to, run)) if *to == column && *run == level(value) => *to += 1,
            _ => runs.push((column, column + 1, level(value))),
        }
    }
    runs
}

/// The colours from bottom to top, with the values at the ends and in the middle.
fn draw_bar(area: &Area<'_>, lowest: f32) -> Drawn {
    let height = area.dim_in_pixel().1 as i32;
    let (top, bottom) = (26, height - 53);
    let steps = LEVELS as i32;
    for step in 0..steps {
        let edge = |step: i32| bottom - (bottom - top) * step / steps;
        let colour = style::heat((step as f32 + 0.5) / LEVELS).filled();
        area.draw(&Rectangle::new([(2, edge(step + 1)), (14, edge(step))], colour))?;
    }
    for share in [0.0, 0.5, 1.0] {
        let y = bottom - ((bottom - top) as f32 * share) as i32;
        let value = short(f64::from(lowest + (1.0 - lowest) * share));
        area.draw_text(&value, &text(13, style::MUTED, HPos::Left, VPos::Center), (19, y))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_colour_are_joined_and_gaps_are_left_out() {
        let cells = [Some(1.0), Some(0.999), None, Some(1.0), Some(0.5)];
        assert_eq!(runs(&cells, 0.5), [(0, 2, LEVELS), (3, 4, LEVELS), (4, 5, 0.0)]);
        assert_eq!(runs(&[Some(0.2)], 1.0), [(0, 1, 0.0)]);
    }
}
