//! The text of an answer as it settles: stop texts, holes, and the part that was reported.

use std::ops::Range;

use demask_decode::{Event, Session};
use demask_step::TokenId;

/// Decoder of the tokens of one answer into text, token by token. The owner of a tokenizer implements it.
pub trait Detokenizer: Send {
    /// Takes the next token, and returns the text that is complete with it: no half of a character.
    fn push(&mut self, token: TokenId) -> String;

    /// Returns the rest at the end: a character of which only a part has come.
    fn finish(&mut self) -> String;

    /// Returns the text of tokens without those before them.
    fn decode(&self, tokens: &[TokenId]) -> String;
}

/// Text of a request, as far as its canvas has settled: an answer's, which a stop text may end, or a text's holes.
#[derive(Default)]
pub struct Text {
    detokenizer: Option<Box<dyn Detokenizer>>,
    stops: Vec<String>,
    include_stop: bool,
    /// Positions of the holes that are filled, and whether each was reported. None of a prompt that is answered.
    holes: Vec<Range<usize>>,
    reported_holes: Vec<bool>,
    /// Text that can no longer change.
    settled: String,
    /// Bytes of it that were reported.
    reported: usize,
    /// Bytes of it in which no stop text can begin any more.
    searched: usize,
    /// Number of settled tokens in it.
    read: usize,
    /// Length of the text up to the stop text that ended it, and the index of that stop text.
    stopped: Option<(usize, usize)>,
    finished: bool,
}

impl Text {
    /// Creates the text of a prompt's answer. The earliest of `stops` in it ends it; `include_stop` keeps that stop text.
    /// Without a detokenizer there is no text.
    pub fn of_answer(detokenizer: Option<Box<dyn Detokenizer>>, stops: Vec<String>, include_stop: bool) -> Self {
        Self { detokenizer, stops, include_stop, ..Self::default() }
    }

    /// Creates the text of holes at these positions of the canvas.
    pub fn of_holes(detokenizer: Option<Box<dyn Detokenizer>>, holes: Vec<Range<usize>>) -> Self {
        Self { reported_holes: vec![false; holes.len()], detokenizer, holes, ..Self::default() }
    }

    /// Returns the positions of the holes; none of an answer.
    pub fn holes(&self) -> &[Range<usize>] {
        &self.holes
    }

    /// Reads the tokens that have settled, and reports the text that can be shown. A stop text ends the session.
    pub(crate) fn report(&mut self, session: &mut Session, emit: &mut dyn FnMut(Event)) {
        for index in 0..self.holes.len() {
            if !self.reported_holes[index] && session.is_complete(self.holes[index].clone()) {
                self.reported_holes[index] = true;
                emit(Event::Hole { index, text: self.hole(session, index) });
            }
        }
        self.read(session);
        if session.is_over() {
            self.finish();
        }
        let end = match self.stopped {
            Some((end, _)) => end,
            None if self.finished => self.settled.len(),
            None => self.searched,
        };
        if self.reported < end {
            emit(Event::Text(self.settled[self.reported..end].to_owned()));
            self.reported = end;
        }
    }

    /// Returns the text of a session that is over, and the stop text that ended it; of holes, the text up to the end of the
    /// canvas that was asked for. None without a detokenizer.
    pub fn take(&mut self, session: &mut Session) -> (Option<String>, Option<String>) {
        self.read(session);
        self.finish();
        let Some(detokenizer) = &self.detokenizer else { return (None, None) };
        if !self.holes.is_empty() {
            // A fixed token after the decoded positions is not part of the text.
            let end = session.layout().response() + session.layout().gen_length();
            return (Some(detokenizer.decode(&session.canvas()[..end])), None);
        }
        let stop = self.stopped.map(|(end, which)| {
            self.settled.truncate(end);
            self.stops[which].clone()
        });
        (Some(std::mem::take(&mut self.settled)), stop)
    }

    /// Returns the text of each hole, as far as it is filled.
    pub fn hole_texts(&self, session: &Session) -> Vec<String> {
        (0..self.holes.len()).map(|index| self.hole(session, index)).collect()
    }

    /// Returns the text of a hole without special tokens, and without positions that are not filled yet.
    fn hole(&self, session: &Session, index: usize) -> String {
        let Some(detokenizer) = &self.detokenizer else { return String::new() };
        let filled = self.holes[index].clone().filter(|&position| session.is_complete(position..position + 1));
        let tokens: Vec<_> = filled.map(|position| session.canvas()[position]).collect();
        detokenizer.decode(&tokens)
    }

    /// Turns tokens that have settled into text, up to a stop text, which ends the session.
    fn read(&mut self, session: &mut Session) {
        if !self.holes.is_empty() || self.stopped.is_some() || self.finished {
            return;
        }
        let Some(detokenizer) = &mut self.detokenizer else { return };
        let start = session.layout().response();
        while self.read < session.settled() {
            self.settled.push_str(&detokenizer.push(session.canvas()[start + self.read]));
            self.read += 1;
            if let Some((at, which)) = find_stop(&self.settled[self.searched..], &self.stops) {
                let kept = if self.include_stop { self.stops[which].len() } else { 0 };
                self.stopped = Some((self.searched + at + kept, which));
                session.finish_at(self.read);
                return;
            }
            self.searched += safe_length(&self.settled[self.searched..], &self.stops);
        }
    }

    /// Adds half a character at the very end.
    fn finish(&mut self) {
        if self.finished || self.stopped.is_some() || !self.holes.is_empty() {
            return;
        }
        self.finished = true;
        if let Some(detokenizer) = &mut self.detokenizer {
            self.settled.push_str(&detokenizer.finish());
        }
    }
}

/// Returns the start of the earliest stop text in `text`, and its index.
fn find_stop(text: &str, stops: &[String]) -> Option<(usize, usize)> {
    stops
        .iter()
        .enumerate()
        .filter(|(_, stop)| !stop.is_empty())
        .filter_map(|(which, stop)| text.find(stop.as_str()).map(|at| (at, which)))
        .min()
}

/// Number of bytes of `text` that may be shown although more text will follow: not the start of a possible stop text.
fn safe_length(text: &str, stops: &[String]) -> usize {
    let held = |stop: &String| {
        let most = stop.len().saturating_sub(1).min(text.len());
        (1..=most).rev().find(|&n| stop.is_char_boundary(n) && text.ends_with(&stop[..n]))
    };
    text.len() - stops.iter().filter_map(held).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn the_earliest_stop_wins() {
        assert_eq!(find_stop("one two three", &stops(&["three", "two"])), Some((4, 1)));
        assert_eq!(find_stop("one", &stops(&["two", ""])), None);
    }

    #[test]
    fn text_that_may_become_a_stop_is_held_back() {
        let stops = stops(&["END", "é!"]);
        assert_eq!(safe_length("some EN", &stops), 5);
        assert_eq!(safe_length("some é", &stops), 5);
        assert_eq!(safe_length("some", &stops), 4);
    }
}
