//! Words of people in a rendered prompt, found by rendering it again with marks.
//!
//! The idea: the prompt is what the template makes of the conversation as it is. Marks never change it: another rendering
//! is used where it is the same text but for marks. In that one the signs in messages are marked, so what is marked in the
//! prompt is people's. Tokens that both the template and a message spell (`</think>`) stay as they are, since the template
//! may look for them; each of their places in the template is marked instead, one at a time, and where such a mark comes
//! out in the prompt, the template wrote the token. Each other one is people's. A template that looks at single signs in
//! messages leaves only the second way, for all control tokens.

use std::ops::Range;

use super::{Message, engine::TemplateError};
use crate::said::{Hidden, Marks, Rendered, places};

/// Renders a source with the texts of special tokens, and with people's words as the function makes them.
type Run<'a> = dyn Fn(&str, &[String], &dyn Fn(&str) -> String) -> Result<String, TemplateError> + 'a;

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
    if !controls.iter().any(|control| text.contains(control.as_str())) {
        return Some(Rendered { text, said: Vec::new() });
    }
    // JSON has every character of every field.
    let words = serde_json::to_string(messages).unwrap_or_default();
    let marks = Marks::new(controls, texts.iter().map(String::as_str).chain([source, words.as_str()]))?;
    let marked = |words: &dyn Fn(&str) -> String| {
        let rendered = marks.rendered(&run(source, texts, words).ok()?);
        (rendered.text == text).then_some(rendered)
    };
    // Special tokens are in the template as texts, too.
    let whole: Vec<&str> = [source].into_iter().chain(texts.iter().map(String::as_str)).collect();
    let sought = |control: &&str| words.contains(*control) && whole.iter().any(|part| part.contains(*control));
    let sought: Vec<&str> = controls.iter().map(String::as_str).filter(sought).collect();
    let (mut rendered, open) = match marked(&|words| marks.mark_but(words, &sought)) {
        Some(rendered) => (rendered, sought),
        None => (Rendered { text, said: Vec::new() }, controls.iter().map(String::as_str).collect()),
    };
    if open.is_empty() {
        return Some(rendered);
    }
    let own = written(&rendered.text, &whole, &open, &words, run)?;
    for place in places(&rendered.text, open.iter().copied()) {
        let after = own.partition_point(|own| own.end <= place.start);
        if own.get(after).is_none_or(|own| own.start > place.start || own.end < place.end) {
            rendered.said.push(place);
        }
    }
    rendered.said.sort_unstable_by_key(|said| (said.start, said.end));
    Some(rendered)
}

/// Places of a prompt in which the template itself writes one of the tokens.
fn written(text: &str, whole: &[&str], tokens: &[&str], words: &str, run: &Run<'_>) -> Option<Vec<Range<usize>>> {
    let joined = whole.join(BETWEEN);
    if joined.matches(BETWEEN).count() >= whole.len() {
        return Some(Vec::new());
    }
    let starts: Vec<usize> = places(&joined, tokens.iter().copied()).into_iter().map(|place| place.start).collect();
    let hide = |chosen: &[usize]| Hidden::new(&joined, chosen, [text, words].into_iter());
    // The prompt with the marks of the chosen places, if they change nothing else.
    let with = |chosen: &[usize]| {
        let hidden = hide(chosen)?;
        let mut parts = hidden.text.split(BETWEEN).map(str::to_owned);
        let source = parts.next()?;
        let rendered = run(&source, &parts.collect::<Vec<_>>(), &str::to_owned).ok()?;
        let same = rendered.chars().map(|sign| hidden.shown(sign)).eq(text.chars());
        same.then(|| {
            let mut at = 0;
            let mut marked = Vec::new();
            for sign in rendered.chars() {
                let plain = hidden.shown(sign);
                marked.extend((plain != sign).then_some(at));
                at += plain.len_utf8();
            }
            marked
        })
    };
    hide(&starts)?;
    // A template that looks for what no message has finds it neither with marks nor without: all of it is tried at once.
    let token = |start: usize| tokens.iter().find(|token| joined[start..].starts_with(**token));
    let (absent, sought): (Vec<usize>, Vec<usize>) =
        starts.into_iter().partition(|&start| token(start).is_some_and(|token| !words.contains(token)));
    let mut marked = if absent.is_empty() { Vec::new() } else { with(&absent).unwrap_or_default() };
    for start in sought.into_iter().take(MOST_PLACES) {
        marked.extend(with(&[start]).unwrap_or_default());
    }
    marked.sort_unstable();
    marked.dedup();
    let end = |&start: &usize| {
        let lengths = tokens.iter().filter(|token| text[start..].starts_with(**token)).map(|token| token.len());
        lengths.max().map(|length| start..start + length)
    };
    Some(marked.iter().filter_map(end).collect())
}
