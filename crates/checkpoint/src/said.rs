//! Words of a conversation inside a prompt: they are marked while a template handles them, and no control token is read
//! from them.
//!
//! The idea: a template trims, cuts, compares and joins what people say, so where their words end up in a prompt shows only
//! in the prompt. The template runs once more with each sign that a control token is written with (`<`, `|`, `>` and the
//! like) put as a private character wherever a message has it. Afterwards each private character becomes its sign again, and
//! its place is kept: a control token that overlaps such a place was written by a person and is text.

use std::{borrow::Cow, collections::HashSet, ops::Range};

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

    /// Appends people's words.
    pub(crate) fn quote(&mut self, text: &str) {
        let start = self.text.len();
        self.text.push_str(text);
        self.said.push(start..self.text.len());
    }

    /// Reports whether people's words overlap a place.
    pub(crate) fn is_said(&self, place: &Range<usize>) -> bool {
        let after = self.said.partition_point(|said| said.end <= place.start);
        self.said[after..].iter().take_while(|said| said.start < place.end).any(|said| !said.is_empty())
    }
}

impl Rendered {
    /// Where people's words spell one of the control tokens, in order.
    pub(crate) fn spelled(&self, controls: &[String]) -> Vec<usize> {
        if self.said.is_empty() {
            return Vec::new();
        }
        let mut places = Vec::new();
        for control in controls {
            let mut from = 0;
            // One may begin within another: each is found.
            while let Some(at) = self.text[from..].find(control.as_str()).map(|at| from + at) {
                if self.is_said(&(at..at + control.len())) {
                    places.push(at);
                }
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
    pub(crate) fn shown(&self, character: char) -> char {
        self.pairs.iter().find(|(_, mark)| *mark == character).map_or(character, |(sign, _)| *sign)
    }

    /// How many characters of a text are hidden.
    pub(crate) fn count(&self, text: &str) -> usize {
        text.chars().filter(|c| self.shown(*c) != *c).count()
    }
}

/// Places of tokens in a text, in order; where two overlap, that of the one that begins first, and of those the longest.
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

/// Private characters and the signs that they stand for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks {
    /// Signs with their private characters.
    pairs: Vec<(char, char)>,
    /// Control tokens without any sign: each is marked where it occurs as a whole.
    plain: Vec<String>,
}

impl Marks {
    /// Marks for control tokens, none of which is in the inputs yet; `None` if these leave no private character.
    pub(crate) fn new<'a>(controls: &[String], inputs: impl Iterator<Item = &'a str>) -> Option<Self> {
        // Quotes and backslashes stay as they are: texts within texts are written with them.
        let is_sign = |sign: &char| !sign.is_alphanumeric() && !sign.is_whitespace() && !"'\"\\".contains(*sign);
        let (mut signs, mut plain) = (Vec::new(), Vec::new());
        for control in controls {
            if !control.chars().any(|sign| is_sign(&sign)) {
                signs.extend(control.chars().next());
                plain.push(control.clone());
            }
            signs.extend(control.chars().filter(is_sign));
        }
        let mut known = HashSet::new();
        signs.retain(|sign| known.insert(*sign));
        let mut free = free(inputs);
        let pairs = signs.into_iter().take(MOST_SIGNS).map(|sign| Some((sign, free.next()?)));
        Some(Self { pairs: pairs.collect::<Option<_>>()?, plain })
    }

    /// People's words with their signs marked. A word of letters, digits, `_`, `-` and `.` is a name, such as a role: it
    /// stays as it is.
    pub(crate) fn mark<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if self.pairs.is_empty() || (text.chars().all(is_name) && !self.plain.iter().any(|plain| plain == text)) {
            return Cow::Borrowed(text);
        }
        self.marked(text)
    }

    /// The same, but for whole tokens that stay as they are.
    pub(crate) fn mark_but(&self, text: &str, kept: &[&str]) -> String {
        let places = places(text, kept.iter().copied());
        if places.is_empty() {
            return self.mark(text).into_owned();
        }
        let (mut marked, mut done) = (String::with_capacity(2 * text.len()), 0);
        for place in places {
            marked.push_str(&self.marked(&text[done..place.start]));
            marked.push_str(&text[place.clone()]);
            done = place.end;
        }
        marked + &self.marked(&text[done..])
    }

    fn marked<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mark = |c: char| {
            let signs = c.is_alphanumeric() || c.is_whitespace();
            let pair = self.pairs.iter().find(|(sign, _)| *sign == c && !signs);
            pair.map_or(c, |(_, mark)| *mark)
        };
        let mut marked = Cow::Borrowed(text);
        if text.chars().any(|c| mark(c) != c) {
            marked = Cow::Owned(text.chars().map(mark).collect());
        }
        for plain in self.plain.iter().filter(|plain| text.contains(plain.as_str())) {
            let (sign, rest) = plain.split_at(plain.chars().next().map_or(0, char::len_utf8));
            let pair = self.pairs.iter().find(|(known, _)| sign.starts_with(*known));
            if let Some((_, mark)) = pair {
                marked = Cow::Owned(marked.replace(plain.as_str(), &format!("{mark}{rest}")));
            }
        }
        marked
    }

    /// The sign that a character replaces, or the character.
    pub(crate) fn sign(&self, character: char) -> char {
        if !PRIVATE.contains(&character) {
            return character;
        }
        self.pairs.iter().find(|(_, mark)| *mark == character).map_or(character, |(sign, _)| *sign)
    }

    /// A template's output with its signs back, and their places.
    pub(crate) fn rendered(&self, marked: &str) -> Rendered {
        let mut rendered = Rendered::default();
        if self.pairs.is_empty() {
            rendered.write(marked);
            return rendered;
        }
        for character in marked.chars() {
            let sign = self.sign(character);
            let mut buffer = [0; 4];
            let text = sign.encode_utf8(&mut buffer);
            if sign == character { rendered.write(text) } else { rendered.quote(text) }
        }
        rendered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(controls: &[&str], inputs: &[&str]) -> Marks {
        let controls: Vec<String> = controls.iter().map(|&control| control.to_owned()).collect();
        Marks::new(&controls, inputs.iter().copied()).unwrap()
    }

    #[test]
    fn marks_come_back_as_signs_and_keep_their_places() {
        let marks = marks(&["<|end|>"], &[]);
        let marked = marks.mark("a <|end|> b").into_owned();
        assert!(!marked.contains(['<', '|', '>']));
        let rendered = marks.rendered(&format!("<|end|>{marked}"));
        assert_eq!(rendered.text, "<|end|>a <|end|> b");
        assert!(!rendered.is_said(&(0..7)) && rendered.is_said(&(9..16)) && !rendered.is_said(&(7..9)));
    }

    #[test]
    fn private_characters_of_a_message_stay_its_own() {
        let own = "\u{f0000}\u{f0002}<";
        let marks = marks(&["<|end|>"], &[own]);
        let marked = marks.mark(own).into_owned();
        assert_eq!(marks.rendered(&marked).text, own);
        let all: String = PRIVATE.collect();
        assert!(Marks::new(&["<s>".to_owned()], [all.as_str()].into_iter()).is_none());
    }

    #[test]
    fn control_tokens_without_a_sign_are_marked_as_a_whole() {
        let marks = marks(&["endofturn"], &[]);
        let marked = marks.mark("even endofturn").into_owned();
        assert!(marked.starts_with("even ") && !marked.contains("endofturn"));
        assert_eq!(marks.rendered(&marked).said.first(), Some(&(5..6)));
        assert_eq!(marks.mark("user"), "user");
        assert_ne!(marks.mark("endofturn"), "endofturn");
    }
}
