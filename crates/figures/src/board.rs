//! Boards: rows of small texts in coloured boxes under common columns, as SVG.
//!
//! A board shows what stands where and what became of it: tokens of a canvas, drafts, games. Boxes of a column are as wide
//! as its longest text.

use std::fmt::Write;

use super::style;

/// Rows of boxes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Board {
    /// Title above the board.
    pub title: String,
    /// Meaning of each tone, in the order of the legend.
    pub legend: Vec<(Tone, String)>,
    /// Rows from top to bottom.
    pub lines: Vec<Line>,
}

/// A line of a board.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// Words over the whole width, and the start of new columns.
    Heading(String),
    /// Boxes with a name before and a remark behind them.
    Boxes {
        /// The name.
        label: String,
        /// The boxes, one a column.
        boxes: Vec<Cell>,
        /// The remark.
        note: String,
    },
}

/// A box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Text in the box.
    pub text: String,
    /// State of the token, shown as a tone.
    pub tone: Tone,
}

/// Look of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Empty box.
    Empty,
    /// Token that an earlier line already shows.
    Known,
    /// Token that is right.
    Good,
    /// Token that is wrong.
    Bad,
    /// Token that should stand there.
    Wanted,
}

/// Sizes in pixels: the margin, a line, a letter, the room inside and between boxes, names.
const MARGIN: usize = 18;
const LINE: usize = 26;
const LETTER: usize = 8;
const INSIDE: usize = 10;
const BETWEEN: usize = 3;
const LABELS: usize = 110;
/// Letters of a box at most.
const MOST_LETTERS: usize = 18;

impl Board {
    /// The picture as one SVG document, readable in bright and dark schemes.
    pub fn svg(&self) -> String {
        let mut body = String::new();
        let mut y = MARGIN + LINE;
        words(&mut body, MARGIN, y - 8, 17, style::INK, &self.title);
        let mut x = MARGIN;
        for (tone, meaning) in &self.legend {
            boxed(&mut body, x, y, 16, &Cell { text: String::new(), tone: *tone });
            words(&mut body, x + 22, y + 15, 14, style::MUTED, meaning);
            x += 22 + (meaning.chars().count() + 3) * LETTER;
        }
        y += LINE + 10;
        let mut most = x;
        let mut widths = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            match line {
                Line::Heading(text) => {
                    widths = widths_of(&self.lines[index + 1..]);
                    y += 8;
                    words(&mut body, MARGIN, y + 15, 15, style::INK, text);
                }
                Line::Boxes { label, boxes, note } => {
                    if widths.is_empty() {
                        widths = widths_of(&self.lines[index..]);
                    }
                    words(&mut body, MARGIN, y + 15, 14, style::MUTED, label);
                    let mut x = MARGIN + LABELS;
                    for (cell, width) in boxes.iter().zip(&widths) {
                        boxed(&mut body, x, y, *width, cell);
                        x += width + BETWEEN;
                    }
                    words(&mut body, x + 8, y + 15, 14, style::MUTED, note);
                    most = most.max(x + 8 + note.chars().count() * LETTER);
                }
            }
            y += LINE;
        }
        let (width, height) = (most.max(400) + MARGIN, y + MARGIN);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n<style>{}</style>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n{body}</svg>\n",
            escaped(&self.title),
            style::sheet(),
            style::hex(style::PAPER)
        )
    }
}

/// Widths of the columns of the boxes up to the next heading.
fn widths_of(lines: &[Line]) -> Vec<usize> {
    let mut widths: Vec<usize> = Vec::new();
    let rows = lines.iter().map_while(|line| if let Line::Boxes { boxes, .. } = line { Some(boxes) } else { None });
    for boxes in rows {
        widths.resize(widths.len().max(boxes.len()), LETTER + INSIDE);
        for (width, cell) in widths.iter_mut().zip(boxes) {
            *width = (*width).max(shortened(&cell.text).chars().count() * LETTER + INSIDE);
        }
    }
    widths
}

fn shortened(text: &str) -> String {
    let mut letters: Vec<char> = text.chars().take(MOST_LETTERS + 1).collect();
    if letters.len() > MOST_LETTERS {
        letters.truncate(MOST_LETTERS - 1);
        letters.push('\u{2026}');
    }
    letters.into_iter().collect()
}

fn boxed(body: &mut String, x: usize, y: usize, width: usize, cell: &Cell) {
    let (paper, grid, ink) = (style::hex(style::PAPER), style::hex(style::GRID), style::INK);
    let (good, bad) = (style::SERIES[2], style::SERIES[4]);
    let (fill, stroke, opacity) = match cell.tone {
        Tone::Empty => (grid.clone(), grid, "1"),
        Tone::Known => (paper, grid, "1"),
        Tone::Good => (style::hex(good), style::hex(good), "0.35"),
        Tone::Bad => (style::hex(bad), style::hex(bad), "0.35"),
        Tone::Wanted => (paper, style::hex(style::SERIES[0]), "1"),
    };
    let dashes = if cell.tone == Tone::Wanted { " stroke-dasharray=\"4 2\" stroke-width=\"2\"" } else { "" };
    let _ = writeln!(
        body,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"20\" rx=\"3\" fill=\"{fill}\" fill-opacity=\"{opacity}\" \
         stroke=\"{stroke}\"{dashes}/>"
    );
    if !cell.text.is_empty() {
        let middle = x + width / 2;
        let _ = writeln!(
            body,
            "<text x=\"{middle}\" y=\"{}\" font-size=\"13\" text-anchor=\"middle\" fill=\"{}\">{}</text>",
            y + 15,
            style::hex(ink),
            escaped(&shortened(&cell.text))
        );
    }
}

fn words(body: &mut String, x: usize, y: usize, size: usize, colour: plotters::style::RGBColor, text: &str) {
    if !text.is_empty() {
        let colour = style::hex(colour);
        let _ =
            writeln!(body, "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{colour}\">{}</text>", escaped(text));
    }
}

/// Text inside a document: without what is markup, or no character of XML at all.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '\n' => escaped.push('\u{21b5}'),
            ' ' => escaped.push('\u{a0}'),
            letter if letter.is_control() => escaped.push('\u{b7}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str, tone: Tone) -> Cell {
        Cell { text: text.to_owned(), tone }
    }

    #[test]
    fn boxes_stand_in_columns_and_hold_no_markup() {
        let row = |boxes: &[Cell]| Line::Boxes { label: "draft".into(), boxes: boxes.to_vec(), note: "a & b".into() };
        let board = Board {
            title: "tokens <".into(),
            legend: vec![(Tone::Good, "stands".into())],
            lines: vec![
                Line::Heading("step 1".into()),
                row(&[cell("a", Tone::Known), cell("<b>\n", Tone::Good)]),
                row(&[cell("long word", Tone::Bad), cell("", Tone::Empty)]),
            ],
        };
        let svg = board.svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<rect ").count(), 1 + 1 + 4, "paper, legend, boxes");
        assert!(
            svg.contains(">&lt;b>\u{21b5}<") && svg.contains("tokens\u{a0}&lt;") && svg.contains("a\u{a0}&amp;\u{a0}b")
        );
        let wide = 9 * LETTER + INSIDE;
        assert_eq!(svg.matches(&format!("width=\"{wide}\"")).count(), 2, "a column is as wide as its longest text");
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(shortened(&"x".repeat(30)).chars().count(), MOST_LETTERS);
        assert_eq!(shortened("short"), "short");
    }
}
