//! Words of people in a rendered prompt, found by rendering it again with marks.
//!
//! The idea: the prompt is the template's rendering of the conversation as it is. Marks never change it: another
//! rendering is used where it is the same text but for marks. In that one the characters of messages are marked, so the
//! marked ones in the prompt are people's. Tokens that both the template and a message spell (`</think>`) have the same
//! marks in both, since the template may look for them; each of their places in the template is marked alone, too, and
//! where such marks come out in the prompt, the template wrote it. All other marked characters are people's. A template
//! that looks at letters in messages gets marks in the place of signs alone, and one that looks at signs leaves only
//! the second way: all that it is not seen to write is people's.

use std::ops::Range;

use super::{Message, as_they_are, engine::TemplateError};
use crate::said::{Hidden, Marks, Rendered, places};

/// Turns people's words into the text that the template gets in their place; the second argument is set for a role or
/// the name of a field.
pub(super) type Words<'a> = dyn Fn(&str, bool) -> String + 'a;
/// Renders a source with the texts of special tokens, and with people's words as the function makes them.
type Run<'a> = dyn Fn(&str, &[String], &Words<'_>) -> Result<String, TemplateError> + 'a;

/// Most places of a template that are marked one at a time.
const MOST_PLACES: usize = 64;
/// Sign between a template and its texts while they are searched together; a template that has it writes no token.
const BETWEEN: &str = "\0";

/// A prompt with the places of people's words among its control tokens; `None` if the inputs leave no private character.
pub(super) fn separated(
    text: String,
    source: &str,
    texts: &[String],
    messages: &[Message],
    controls: &[String],
    run: &Run<'_>,
) -> Option<Rendered> {
    if controls.is_empty() {
        return Some(Rendered { text, said: Vec::new() });
    }
    // JSON has every character of every field.
    let words = serde_json::to_string(messages).unwrap_or_default();
    // Special tokens are in the template as texts, too.
    let whole: Vec<&str> = [source].into_iter().chain(texts.iter().map(String::as_str)).collect();
    let sought = |control: &&str| words.contains(*control) && whole.iter().any(|part| part.contains(*control));
    let sought: Vec<&str> = controls.iter().map(String::as_str).filter(sought).collect();
    let marked = |marks: &Marks| {
        let texts: Vec<String> = texts.iter().map(|text| marks.mark_tokens(text, &sought)).collect();
        let source = marks.mark_tokens(source, &sought);
        let rendered = marks.rendered(&run(&source, &texts, &|words, is_name| marks.mark(words, is_name)).ok()?);
        (rendered.text == text).then_some(rendered.said)
    };
    let inputs = || whole.iter().copied().chain([words.as_str()]);
    let signs = Marks::of_signs(controls, &words, inputs())?;
    // Unmarked text may turn one token into another, and then no mark says who wrote it.
    let nests = |control: &String| {
        text.contains(control.as_str())
            && controls.iter().any(|other| other != control && control.contains(other.as_str()))
    };
    let said = if controls.iter().any(nests) {
        None
    } else {
        let all = Marks::of_all(controls, &words, inputs());
        all.and_then(|all| marked(&all)).or_else(|| marked(&signs))
    };
    let (said, open) = match said {
        Some(said) => (said, sought),
        None => (Vec::from_iter(Some(0..text.len())), controls.iter().map(String::as_str).collect()),
    };
    let said = if open.is_empty() { said } else { without(said, &written(&text, &whole, &open, &words, run)?) };
    Some(Rendered { text, said })
}

/// Ranges without the characters at some places; both are in order.
fn without(ranges: Vec<Range<usize>>, places: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut left = Vec::new();
    for Range { mut start, end } in ranges {
        let from = places.partition_point(|place| place.end <= start);
        for place in places[from..].iter().take_while(|place| place.start < end) {
            if start < place.start {
                left.push(start..place.start);
            }
            start = place.end;
        }
        if start < end {
            left.push(start..end);
        }
    }
    left
}

/// Characters of a prompt that the template itself writes as parts of the tokens.
fn written(text: &str, whole: &[&str], tokens: &[&str], words: &str, run: &Run<'_>) -> Option<Vec<Range<usize>>> {
    let joined = whole.join(BETWEEN);
    if joined.matches(BETWEEN).count() >= whole.len() {
        return Some(Vec::new());
    }
    let found = places(&joined, tokens.iter().copied());
    let hide = |chosen: &[Range<usize>]| {
        let signs = |place: &Range<usize>| {
            let start = place.start;
            joined[place.clone()].char_indices().map(move |(at, _)| start + at)
        };
        let signs: Vec<usize> = chosen.iter().flat_map(signs).collect();
        Hidden::new(&joined, &signs, [text, words].into_iter())
    };
    // The prompt with the marks of the chosen places, if they change nothing else.
    let with = |chosen: &[Range<usize>]| {
        let hidden = hide(chosen)?;
        let mut parts = hidden.text.split(BETWEEN).map(str::to_owned);
        let source = parts.next()?;
        let rendered = run(&source, &parts.collect::<Vec<_>>(), &as_they_are).ok()?;
        let same = rendered.chars().map(|sign| hidden.visible(sign)).eq(text.chars());
        same.then(|| {
            let mut at = 0;
            let mut marked = Vec::new();
            for sign in rendered.chars() {
                let plain = hidden.visible(sign);
                marked.extend((plain != sign).then_some(at..at + plain.len_utf8()));
                at += plain.len_utf8();
            }
            marked
        })
    };
    hide(&found)?;
    // A template that looks for what no message has finds it neither with marks nor without: all of it is tried at once.
    let (sought, absent): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|place| words.contains(&joined[place.clone()]));
    let mut marked = if absent.is_empty() { Vec::new() } else { with(&absent).unwrap_or_default() };
    for place in sought.into_iter().take(MOST_PLACES) {
        marked.extend(with(&[place]).unwrap_or_default());
    }
    marked.sort_unstable_by_key(|place| place.start);
    marked.dedup();
    Some(marked)
}
