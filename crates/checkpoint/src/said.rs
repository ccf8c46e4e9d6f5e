//! Words of a conversation inside a prompt: they are marked while a template handles them, and no control token is read
//! from them.
//!
//! The idea: a template trims, cuts, compares and joins what people say, so where their words end up in a prompt shows only
//! in the prompt. The template runs once more with each sign that a control token is written with (`<`, `|`, `>` and the
//! like) put as a private character wherever a message has it. Afterwards each private character becomes its sign again, and
//! its place is kept: a control token that overlaps such a place was written by a person and is text.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

/// Characters that stand for signs while a template runs: all are for private use, so text hardly ever has them.
const PRIVATE: Range<char> = '\u{f0000}'..'\u{ffffe}';
/// Most signs that are told apart.
const MOST_SIGNS: usize = 256;

/// A prompt, and the places in it that are people's words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The whole prompt.
    pub text: String,
    /// Byte ranges of people's words, or at least of all their signs that could be a control token's; in order.
    pub(crate) said: Vec<Range<usize>>,
}

impl Rendered {
    /// Appends the template's own text.
    pub(crate) fn write(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Appends people's words; nothing of an empty text.
    pub fn quote(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let start = self.text.len();
        self.text.push_str(text);
        match self.said.last_mut().filter(|last| last.end == start) {
            Some(last) => last.end = self.text.len(),
            None => self.said.push(start..self.text.len()),
        }
    }

    /// The first place in a range that is people's words, if they overlap it.
    pub(crate) fn first_said(&self, range: &Range<usize>) -> Option<usize> {
        let after = self.said.partition_point(|said| said.end <= range.start);
        let mut overlapping = self.said[after..].iter().take_while(|said| said.start < range.end);
        overlapping.find(|said| !said.is_empty()).map(|said| said.start.max(range.start))
    }

    /// Where people's words begin in each control token that they spell or are a part of, in order.
    pub(crate) fn spelled(&self, controls: &[String]) -> Vec<usize> {
        if self.said.is_empty() {
            return Vec::new();
        }
        let mut places = Vec::new();
        for control in controls {
            let mut from = 0;
            // One may begin within another: each is found.
            while let Some(at) = self.text[from..].find(control.as_str()).map(|at| from + at) {
                places.extend(self.first_said(&(at..at + control.len())));
                from = at + self.text[at..].chars().next().map_or(1, char::len_utf8);
            }
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// A text in which the characters at some places are hidden from a search.
pub(crate) struct Hidden {
    /// The text with private characters in these places.
    pub(crate) text: String,
    /// Characters with the private ones that stand for them.
    pairs: Vec<(char, char)>,
}

impl Hidden {
    /// Hides the characters at the places, which are in order; `None` if the text and the others leave no private character.
    pub(crate) fn new<'a>(text: &'a str, places: &[usize], others: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut signs: Vec<char> = places.iter().filter_map(|&at| text[at..].chars().next()).collect();
        signs.sort_unstable();
        signs.dedup();
        let mut free = free(others.chain([text]));
        let pairs: Vec<(char, char)> =
            signs.into_iter().map(|sign| Some((sign, free.next()?))).collect::<Option<_>>()?;
        let (mut hidden, mut done) = (String::with_capacity(text.len() + 3 * places.len()), 0);
        for &at in places {
            let Some(sign) = text[at..].chars().next() else { continue };
            hidden.push_str(&text[done..at]);
            hidden.extend(pairs.iter().find(|(known, _)| *known == sign).map(|(_, mark)| *mark));
            done = at + sign.len_utf8();
        }
        hidden.push_str(&text[done..]);
        Some(Self { text: hidden, pairs })
    }

    /// The character that a private one replaces, or the character.
    pub(crate) fn visible(&self, character: char) -> char {
        self.pairs.iter().find(|(_, mark)| *mark == character).map_or(character, |(sign, _)| *sign)
    }

    /// Bytes of a text with what its private characters replace.
    pub(crate) fn shown_length(&self, text: &str) -> usize {
        text.chars().map(|character| self.visible(character).len_utf8()).sum()
    }

    /// How many characters of a text are hidden.
    pub(crate) fn count(&self, text: &str) -> usize {
        text.chars().filter(|c| self.visible(*c) != *c).count()
    }
}

/// Places of tokens in a text, in order. Of two that overlap the first counts, and of equal beginnings the longest.
pub(crate) fn places<'a>(text: &str, tokens: impl Iterator<Item = &'a str>) -> Vec<Range<usize>> {
    let mut places: Vec<Range<usize>> = tokens
        .filter(|token| !token.is_empty())
        .flat_map(|token| text.match_indices(token).map(move |(at, _)| at..at + token.len()))
        .collect();
    places.sort_unstable_by_key(|place| (place.start, usize::MAX - place.end));
    let mut done = 0;
    places.retain(|place| {
        let apart = place.start >= done;
        done = if apart { place.end } else { done };
        apart
    });
    places
}

/// Private characters that are in none of the texts.
fn free<'a>(texts: impl Iterator<Item = &'a str>) -> impl Iterator<Item = char> {
    let used: HashSet<char> = texts.flat_map(str::chars).filter(|used| PRIVATE.contains(used)).collect();
    PRIVATE.filter(move |mark| !used.contains(mark))
}

/// Private characters and the characters that they stand for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks {
    /// Private characters of the texts that are marked everywhere.
    marked: HashMap<char, char>,
    /// The character that each private one replaces.
    visible: HashMap<char, char>,
    /// Control tokens without any marked sign, each with its replacement: it is marked where it occurs as a whole.
    plain: Vec<(String, String)>,
    controls: Vec<String>,
    /// Set if letters are marked, too.
    every: bool,
}

impl Marks {
    /// Marks for the signs of control tokens, none of which is in the inputs yet; `None` if these leave no private character.
    pub(crate) fn of_signs<'a>(
        controls: &[String],
        words: &str,
        inputs: impl Iterator<Item = &'a str>,
    ) -> Option<Self> {
        let is_sign = |sign: &char| !sign.is_alphanumeric() && is_marked(*sign);
        // What is not ASCII may be a sign once it is normalised.
        let others = words.chars().filter(|sign| !sign.is_ascii());
        let signs = controls.iter().flat_map(|control| control.chars()).chain(others).filter(is_sign);
        Self { controls: controls.to_vec(), ..Self::default() }.with(signs, MOST_SIGNS, free(inputs))
    }

    /// The same for all characters of the words, but for spaces.
    pub(crate) fn of_all<'a>(controls: &[String], words: &str, inputs: impl Iterator<Item = &'a str>) -> Option<Self> {
        let marks = Self { controls: controls.to_vec(), every: true, ..Self::default() };
        marks.with(words.chars().filter(|sign| is_marked(*sign)), usize::MAX, free(inputs))
    }

    fn with(
        mut self,
        signs: impl Iterator<Item = char>,
        most: usize,
        mut free: impl Iterator<Item = char>,
    ) -> Option<Self> {
        for sign in signs {
            if self.marked.len() < most && !self.marked.contains_key(&sign) {
                let mark = free.next()?;
                self.marked.insert(sign, mark);
                self.visible.insert(mark, sign);
            }
        }
        for control in
            self.controls.iter().filter(|control| !control.chars().any(|sign| self.marked.contains_key(&sign)))
        {
            let Some(first) = control.chars().next() else { continue };
            let mark = free.next()?;
            self.visible.insert(mark, first);
            self.plain.push((control.clone(), format!("{mark}{}", &control[first.len_utf8()..])));
        }
        Some(self)
    }

    /// People's words with their marks. A word of letters, digits, `_`, `-` and `.` that spells no control token is a name:
    /// a role or a field's name stays as it is, and so do others where signs alone are marked.
    pub(crate) fn mark(&self, text: &str, is_name: bool) -> String {
        let part_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let is_plain =
            || text.chars().all(part_of_name) && !self.controls.iter().any(|control| text.contains(control.as_str()));
        if (is_name || !self.every) && is_plain() { text.to_owned() } else { self.marked(text) }
    }

    /// A template's text in which tokens that it may look for in people's words have the marks that they have there.
    pub(crate) fn mark_tokens(&self, text: &str, tokens: &[&str]) -> String {
        let (mut marked, mut done) = (String::with_capacity(text.len()), 0);
        for place in places(text, tokens.iter().copied()) {
            marked.push_str(&text[done..place.start]);
            marked.push_str(&self.marked(&text[place.clone()]));
            done = place.end;
        }
        marked + &text[done..]
    }

    fn marked(&self, text: &str) -> String {
        let marked: String = text.chars().map(|c| self.marked.get(&c).copied().unwrap_or(c)).collect();
        self.plain.iter().fold(marked, |marked, (plain, with_mark)| marked.replace(plain, with_mark))
    }

    /// A template's output without its marks, and their places.
    pub(crate) fn rendered(&self, marked: &str) -> Rendered {
        let mut rendered = Rendered::default();
        for character in marked.chars() {
            let shown = self.visible.get(&character);
            let mut buffer = [0; 4];
            let text = shown.unwrap_or(&character).encode_utf8(&mut buffer);
            if shown.is_none() { rendered.write(text) } else { rendered.quote(text) }
        }
        rendered
    }
}

/// Reports whether a character may be marked. Templates trim spaces, and write texts within texts with quotes and
/// backslashes: these stay.
fn is_marked(character: char) -> bool {
    !character.is_whitespace() && !character.is_control() && !"'\"\\".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(controls: &[&str], inputs: &[&str]) -> Marks {
        let controls: Vec<String> = controls.iter().map(|&control| control.to_owned()).collect();
        Marks::of_signs(&controls, &inputs.concat(), inputs.iter().copied()).unwrap()
    }

    #[test]
    fn marks_come_back_as_signs_and_keep_their_places() {
        let marks = marks(&["<|end|>"], &[]);
        let marked = marks.mark("a <|end|> b", false);
        assert!(!marked.contains(['<', '|', '>']));
        let rendered = marks.rendered(&format!("<|end|>{marked}"));
        assert_eq!(rendered.text, "<|end|>a <|end|> b");
        assert_eq!([0..7, 7..9, 8..16].map(|range| rendered.first_said(&range)), [None, None, Some(9)]);
    }

    #[test]
    fn private_characters_of_a_message_stay_its_own() {
        let own = "\u{f0000}\u{f0002}<";
        let marks = marks(&["<|end|>"], &[own]);
        let marked = marks.mark(own, false);
        assert_eq!(marks.rendered(&marked).text, own);
        let all: String = PRIVATE.collect();
        assert!(Marks::of_signs(&["<s>".to_owned()], "", [all.as_str()].into_iter()).is_none());
    }

    #[test]
    fn control_tokens_without_a_sign_are_marked_as_a_whole() {
        let marks = marks(&["endofturn"], &[]);
        let marked = marks.mark("even endofturn", false);
        assert!(marked.starts_with("even ") && !marked.contains("endofturn"));
        assert_eq!(marks.rendered(&marked).said.first(), Some(&(5..6)));
        assert_eq!(marks.mark("user", false), "user");
        assert_ne!(marks.mark("endofturn", true), "endofturn");
    }
}
