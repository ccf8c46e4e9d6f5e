//! Boards: rows of small texts in coloured boxes under common columns, as SVG.
//!
//! A board shows what stands where and what became of it: tokens of a canvas, drafts, games. Boxes of a column are as wide
//! as its longest text.

use plotters::{
    element::{PathElement, Rectangle},
    style::{
        Color, RGBAColor, RGBColor,
        text_anchor::{HPos, VPos},
    },
};

use super::{
    DrawError,
    draw::{Area, Drawn, document, text},
    style,
};

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
    /// Boxes with a name before and a remark after them.
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

/// Sizes in pixels: the margin, a line, a box, a letter, the room inside and between boxes, names, and the least width.
const MARGIN: usize = 18;
const LINE: usize = 26;
const BOX: usize = 20;
const LETTER: usize = 8;
const INSIDE: usize = 10;
const BETWEEN: usize = 3;
const LABELS: usize = 110;
const LEAST: usize = 400;
/// Letters of a box at most.
const MOST_LETTERS: usize = 18;

impl Board {
    /// The picture as one SVG document, readable in bright and dark schemes.
    ///
    /// # Errors
    /// If the plotting library refuses it.
    pub fn svg(&self) -> Result<String, DrawError> {
        let pieces = self.pieces();
        let most = pieces.iter().map(|piece| piece.x + piece.width).max().unwrap_or(0);
        let foot = pieces.iter().map(|piece| piece.y).max().unwrap_or(0) + LINE + MARGIN;
        let size = ((most.max(LEAST) + MARGIN) as u32, foot as u32);
        document(&self.title, size, |area| pieces.iter().try_for_each(|piece| piece.draw(area)))
    }

    /// All boxes and words, each at its place.
    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let (mut x, mut y) = (MARGIN, MARGIN + LINE);
        for (tone, meaning) in &self.legend {
            pieces.push(Piece { x, y, width: 16, tone: Some(*tone), ..Piece::default() });
            pieces.push(Piece::words(x + 22, y, 14, style::MUTED, meaning));
            x += 22 + (meaning.chars().count() + 3) * LETTER;
        }
        y += LINE + 10;
        let mut widths = widths_of(&self.lines);
        for (index, line) in self.lines.iter().enumerate() {
            match line {
                Line::Heading(text) => {
                    widths = widths_of(&self.lines[index + 1..]);
                    y += 8;
                    pieces.push(Piece::words(MARGIN, y, 15, style::INK, text));
                }
                Line::Boxes { label, boxes, note } => {
                    pieces.push(Piece::words(MARGIN, y, 14, style::MUTED, label));
                    let mut x = MARGIN + LABELS;
                    for (Cell { text, tone }, &width) in boxes.iter().zip(&widths) {
                        pieces.push(Piece {
                            width,
                            tone: Some(*tone),
                            ..Piece::words(x, y, 13, style::INK, &shortened(text))
                        });
                        x += width + BETWEEN;
                    }
                    pieces.push(Piece::words(x + 8, y, 14, style::MUTED, note));
                }
            }
            y += LINE;
        }
        pieces
    }
}

/// A box with its text, or words alone.
#[derive(Default)]
struct Piece {
    x: usize,
    y: usize,
    width: usize,
    tone: Option<Tone>,
    text: String,
    size: u32,
    colour: RGBColor,
}

impl Piece {
    fn words(x: usize, y: usize, size: u32, colour: RGBColor, text: &str) -> Self {
        Self { x, y, width: text.chars().count() * LETTER, tone: None, text: visible(text), size, colour }
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let [x, y, width, height] = [self.x, self.y, self.width, BOX].map(|pixels| pixels as i32);
        if let Some(tone) = self.tone {
            let (fill, edge, thick) = tone.look();
            let (right, bottom) = (x + width, y + height);
            area.draw(&Rectangle::new([(x, y), (right, bottom)], fill.filled()))?;
            // A rectangle's own edge has one width.
            let around = [(x, y), (right, y), (right, bottom), (x, bottom), (x, y)];
            area.draw(&PathElement::new(around, edge.stroke_width(thick)))?;
        }
        if self.text.is_empty() {
            return Ok(());
        }
        let (across, at) = if self.tone.is_some() { (HPos::Center, x + width / 2) } else { (HPos::Left, x) };
        area.draw_text(&self.text, &text(self.size, self.colour, across, VPos::Center), (at, y + height / 2))
    }
}

impl Tone {
    /// Colours of the inside and the edge, and the edge's width.
    fn look(self) -> (RGBAColor, RGBColor, u32) {
        let [wanted, good, bad] = [0, 2, 4].map(|index| style::SERIES[index]);
        match self {
            Self::Empty => (style::GRID.to_rgba(), style::GRID, 1),
            Self::Known => (style::PAPER.to_rgba(), style::GRID, 1),
            Self::Good => (good.mix(0.35), good, 1),
            Self::Bad => (bad.mix(0.35), bad, 1),
            Self::Wanted => (style::PAPER.to_rgba(), wanted, 2),
        }
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

/// Returns a text with a sign for each invisible letter: spaces, ends of lines, control characters.
fn visible(text: &str) -> String {
    let sign = |letter: char| match letter {
        '\n' => '\u{21b5}',
        ' ' => '\u{a0}',
        letter if letter.is_control() => '\u{b7}',
        letter => letter,
    };
    text.chars().map(sign).collect()
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
        let svg = board.svg().unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<rect ").count(), 1 + 1 + 4, "paper, legend, boxes");
        assert!(
            svg.contains("\n&lt;b&gt;\u{21b5}\n") && svg.contains("tokens &lt;") && svg.contains("a\u{a0}&amp;\u{a0}b")
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
