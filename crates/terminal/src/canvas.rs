//! Drawing of a canvas as it is unmasked: in place on a terminal, one line for each step anywhere else.

use std::io;

use console::{Style, Term, measure_text_width};
use demask::{Event, trace::TokenTexts};

use crate::{env, exit::usage, output};

pub mod film;
pub mod picture;

/// Positions that a canvas of a trace may have: far beyond any model, far below what memory holds.
const LONGEST: usize = 1 << 24;

/// A mask.
const MASK: &str = "\u{2591}";

/// Content of a position on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cell {
    Mask,
    Token { text: String, fresh: bool },
}

/// The part of a canvas after its prompt.
#[derive(Debug)]
pub struct Canvas {
    first: usize,
    cells: Vec<Cell>,
    fresh: usize,
}

impl Canvas {
    /// Creates the canvas after `first` positions of prompt; positions that are known already are text.
    pub fn new(first: usize, cells: impl Iterator<Item = Option<String>>) -> Self {
        let cell = |known: Option<String>| known.map_or(Cell::Mask, |text| Cell::Token { text, fresh: false });
        Self { first, cells: cells.map(cell).collect(), fresh: 0 }
    }

    /// A commit of the step that is under way.
    pub fn commit(&mut self, position: usize, text: String) {
        let cell = position.checked_sub(self.first).and_then(|index| self.cells.get_mut(index));
        if let Some(cell) = cell {
            *cell = Cell::Token { text, fresh: true };
            self.fresh += 1;
        }
    }

    /// Puts a mask where a token was taken back.
    pub fn take_back(&mut self, position: usize) {
        let cell = position.checked_sub(self.first).and_then(|index| self.cells.get_mut(index));
        if let Some(cell) = cell {
            *cell = Cell::Mask;
        }
    }

    /// The step under way is over and drawn.
    fn settle(&mut self) {
        self.fresh = 0;
        for cell in &mut self.cells {
            if let Cell::Token { fresh, .. } = cell {
                *fresh = false;
            }
        }
    }

    fn unmasked(&self) -> usize {
        self.cells.iter().filter(|cell| **cell != Cell::Mask).count()
    }

    /// Writes the canvas on one line, without colours.
    fn line(&self) -> String {
        let shown = |cell: &Cell| match cell {
            Cell::Mask => MASK.to_owned(),
            Cell::Token { text, .. } => harmless(text).replace('\n', "\u{21b5}"),
        };
        self.cells.iter().map(shown).collect()
    }

    /// Writes the canvas on lines of at most `width` columns, and returns the index of the line with the first mask.
    fn lines(&self, width: usize, paint: &Paint) -> (Vec<String>, usize) {
        let (mut lines, mut column, mut first_mask) = (vec![String::new()], 0, None);
        for cell in &self.cells {
            let (text, style) = match cell {
                Cell::Mask => (MASK.to_owned(), &paint.mask),
                Cell::Token { text, fresh: true } => (harmless(text), &paint.fresh),
                Cell::Token { text, fresh: false } => (harmless(text), &paint.old),
            };
            // Styled piece by piece: a piece ends where a line or a cell does.
            let mut piece = String::new();
            for character in text.chars() {
                let columns = measure_text_width(character.encode_utf8(&mut [0; 4]));
                if character == '\n' || column + columns > width {
                    append(&mut lines, &mut piece, style);
                    lines.push(String::new());
                    column = 0;
                }
                if character != '\n' {
                    column += columns;
                    piece.push(character);
                }
            }
            append(&mut lines, &mut piece, style);
            if *cell == Cell::Mask {
                first_mask.get_or_insert(lines.len() - 1);
            }
        }
        let first_mask = first_mask.unwrap_or(lines.len() - 1);
        (lines, first_mask)
    }
}

/// Puts a styled piece at the end of the last line.
fn append(lines: &mut [String], piece: &mut String, style: &Style) {
    if let Some(line) = lines.last_mut().filter(|_| !piece.is_empty()) {
        line.push_str(&style.apply_to(&*piece).to_string());
        piece.clear();
    }
}

/// Text without characters that move the cursor or worse.
pub fn harmless(text: &str) -> String {
    let replace = |character: char| if character.is_control() && character != '\n' { '\u{b7}' } else { character };
    text.chars().map(replace).collect()
}

/// Styles, or none of them.
struct Paint {
    mask: Style,
    fresh: Style,
    old: Style,
}

impl Paint {
    fn new() -> Self {
        let style = || Style::new().for_stderr().force_styling(env::wants_colour());
        Self { mask: style().dim(), fresh: style().green().bold(), old: style() }
    }
}

/// Output of a player.
pub enum Stage {
    /// Terminal, drawn over in place.
    Terminal(Term),
    /// One line for each step.
    Lines(fn(&str) -> io::Result<()>),
}

impl Stage {
    /// Standard error, beside an answer on standard output.
    pub fn stderr() -> Self {
        let term = Term::stderr();
        let note = |line: &str| {
            output::note(line);
            Ok(())
        };
        if term.is_term() { Self::Terminal(term) } else { Self::Lines(note) }
    }

    /// Standard output.
    pub fn stdout() -> Self {
        let term = Term::stdout();
        if term.is_term() { Self::Terminal(term) } else { Self::Lines(output::line) }
    }
}

/// Fate of the tokens that a step drafted.
#[derive(Debug, Clone, Copy)]
pub struct Drafted {
    /// Drafted tokens that stand.
    pub accepted: usize,
    /// Drafted tokens that do not.
    pub rejected: usize,
}

/// Draws a canvas step by step.
pub struct Player {
    canvas: Canvas,
    stage: Stage,
    paint: Paint,
    drawn: usize,
}

impl Player {
    /// Begins with a canvas.
    pub fn new(canvas: Canvas, stage: Stage) -> Self {
        Self { canvas, stage, paint: Paint::new(), drawn: 0 }
    }

    /// Reports whether it draws in place.
    pub fn is_animated(&self) -> bool {
        matches!(self.stage, Stage::Terminal(_))
    }

    /// A commit.
    pub fn commit(&mut self, position: usize, text: String) {
        self.canvas.commit(position, text);
    }

    /// A token that takes the place of another one; without a text it is a mask.
    pub fn replace(&mut self, position: usize, text: Option<String>) {
        match text {
            Some(text) => self.canvas.commit(position, text),
            None => self.canvas.take_back(position),
        }
    }

    /// The end of a step: draws.
    pub fn step(&mut self, step: usize, nfe: usize, drafted: Drafted) -> io::Result<()> {
        let head = self.head(step, nfe, drafted);
        match &self.stage {
            Stage::Lines(write) => write(&format!("{head} {}", self.canvas.line()))?,
            Stage::Terminal(term) => {
                let (rows, columns) = term.size();
                let (lines, first_mask) = self.canvas.lines(usize::from(columns).max(2) - 1, &self.paint);
                // Longer than the screen: the part around the first mask.
                let room = usize::from(rows).saturating_sub(2).max(1);
                let start = first_mask.saturating_sub(room / 2).min(lines.len().saturating_sub(room));
                let shown = &lines[start..lines.len().min(start + room)];
                term.clear_last_lines(self.drawn)?;
                term.write_line(&head)?;
                shown.iter().try_for_each(|line| term.write_line(line))?;
                self.drawn = shown.len() + 1;
            }
        }
        self.canvas.settle();
        Ok(())
    }

    /// Wipes the canvas off the terminal.
    fn wipe(&mut self) -> io::Result<()> {
        match &self.stage {
            Stage::Terminal(term) => term.clear_last_lines(std::mem::take(&mut self.drawn)),
            Stage::Lines(_) => Ok(()),
        }
    }

    /// Summary of a step, in a line.
    fn head(&self, step: usize, nfe: usize, Drafted { accepted, rejected }: Drafted) -> String {
        let (fresh, unmasked, all) = (self.canvas.fresh, self.canvas.unmasked(), self.canvas.cells.len());
        let drafts = if accepted + rejected > 0 {
            format!(" drafts {accepted} accepted {rejected} rejected")
        } else {
            String::new()
        };
        format!("step {step} nfe {nfe} +{fresh} {unmasked}/{all}{drafts}")
    }

    /// Takes an event of a session.
    pub fn event(&mut self, event: &Event, texts: &TokenTexts) -> io::Result<()> {
        match *event {
            Event::Commit { position, token, .. } => {
                self.commit(position as usize, token_text(token, texts.text(token)));
                Ok(())
            }
            Event::Replace { position, to, .. } => {
                self.replace(position as usize, to.map(|token| token_text(token, texts.text(token))));
                Ok(())
            }
            Event::Step { step, nfe, accepted, rejected, .. } => self.step(step, nfe, Drafted { accepted, rejected }),
            _ => Ok(()),
        }
    }
}

/// Refuses a trace whose canvas is longer than any model's.
pub fn bounded(length: usize) -> anyhow::Result<()> {
    if length > LONGEST {
        anyhow::bail!("the trace has {length} positions, expected at most {LONGEST}");
    }
    Ok(())
}

/// Reads the forwards that are shown in a second; the usual ones where none are named.
///
/// # Errors
/// If they are no number above 0.
pub fn speed(flag: &str, named: Option<f64>) -> anyhow::Result<f64> {
    let speed = named.unwrap_or(picture::SPEED);
    if speed > 0.0 && speed.is_finite() {
        return Ok(speed);
    }
    Err(usage(format!("{flag} is {speed}, expected steps a second, a number above 0")))
}

/// A token as its text, or as its number.
pub fn token_text(token: u32, text: Option<&str>) -> String {
    text.map_or_else(|| format!("[{token}]"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canvas() -> Canvas {
        Canvas::new(2, [None, None, Some("c\n".to_owned()), None].into_iter())
    }

    #[test]
    fn a_line_shows_masks_tokens_and_nothing_harmful() {
        let mut canvas = canvas();
        canvas.commit(3, "\u{1b}[2J".into());
        canvas.commit(1, "in the prompt".into());
        canvas.commit(9, "outside".into());
        assert_eq!(canvas.line(), "\u{2591}\u{b7}[2Jc\u{21b5}\u{2591}");
        assert_eq!((canvas.fresh, canvas.unmasked()), (1, 2));
        canvas.settle();
        assert_eq!(canvas.fresh, 0);
        canvas.commit(3, "d".into());
        canvas.take_back(4);
        canvas.take_back(99);
        assert_eq!((canvas.line(), canvas.fresh), ("\u{2591}d\u{2591}\u{2591}".into(), 1));
    }

    #[test]
    fn steps_say_what_became_of_drafts() {
        let mut player = Player::new(canvas(), Stage::Lines(|_| Ok(())));
        let none = Drafted { accepted: 0, rejected: 0 };
        assert_eq!(player.head(0, 1, none), "step 0 nfe 1 +0 1/4");
        player.commit(2, "a".into());
        player.commit(3, "b".into());
        let some = Drafted { accepted: 1, rejected: 2 };
        assert_eq!(player.head(1, 2, some), "step 1 nfe 2 +2 3/4 drafts 1 accepted 2 rejected");
    }

    #[test]
    fn lines_are_cut_at_the_width_and_at_newlines() {
        let plain = || Style::new().force_styling(false);
        let paint = Paint { mask: plain(), fresh: plain(), old: plain() };
        let mut canvas = canvas();
        canvas.commit(2, "abcde".into());
        canvas.commit(3, "f".into());
        assert_eq!(canvas.lines(4, &paint), (["abcd", "efc", "\u{2591}"].map(str::to_owned).to_vec(), 2));
    }
}
