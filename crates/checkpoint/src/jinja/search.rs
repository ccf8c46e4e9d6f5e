//! Search in texts, in which people's words may be marked: a part is found in both of its forms.

use std::{ops::Range, rc::Rc};

use super::{Trouble, meter::Meter, value::Value, write::Writer};

/// Places of a part in a text, from the start, none in another.
pub(super) fn places<'a>(meter: &Meter, text: &'a str, part: &str) -> impl Iterator<Item = Range<usize>> + use<'a> {
    // Where each form is next: no part of the text is searched twice for it.
    let forms = meter.marks.forms(part).into_iter();
    let mut forms: Vec<(String, Option<usize>)> =
        forms.filter_map(|form| text.find(&form).map(|at| (form, Some(at)))).collect();
    let mut from = 0;
    std::iter::from_fn(move || {
        let rest = text.get(from..)?;
        for (form, next) in &mut forms {
            if next.is_some_and(|at| at < from) {
                *next = rest.find(form.as_str()).map(|at| from + at);
            }
        }
        let (at, length) = forms.iter().filter_map(|(form, next)| Some(((*next)?, form.len()))).min()?;
        // An empty part is between all characters.
        from = at + if length > 0 { length } else { text[at..].chars().next().map_or(1, char::len_utf8) };
        Some(at..at + length)
    })
}

/// The same from the end; a part that is not empty.
pub(super) fn places_from_end<'a>(
    meter: &Meter,
    text: &'a str,
    part: &str,
) -> impl Iterator<Item = Range<usize>> + use<'a> {
    let forms = meter.marks.forms(part).into_iter();
    let mut forms: Vec<(String, Option<usize>)> =
        forms.filter_map(|form| text.rfind(&form).map(|at| (form, Some(at)))).collect();
    let mut end = text.len();
    std::iter::from_fn(move || {
        for (form, next) in &mut forms {
            if next.is_some_and(|at| at + form.len() > end) {
                *next = text[..end].rfind(form.as_str());
            }
        }
        let (at, length) = forms.iter().filter_map(|(form, next)| Some(((*next)?, form.len()))).max()?;
        end = at;
        Some(at..at + length)
    })
}

/// Length of a part at the start of a text, if it is there.
pub(super) fn start(meter: &Meter, text: &str, part: &str) -> Option<usize> {
    meter.marks.forms(part).iter().find(|form| text.starts_with(form.as_str())).map(String::len)
}

/// Length of a part at the end of a text, if it is there.
pub(super) fn end(meter: &Meter, text: &str, part: &str) -> Option<usize> {
    meter.marks.forms(part).iter().find(|form| text.ends_with(form.as_str())).map(String::len)
}

pub(super) fn holds(meter: &Meter, text: &str, part: &str) -> bool {
    meter.marks.forms(part).iter().any(|form| text.contains(form.as_str()))
}

/// Replaces a part of a text, at most `most` times.
pub(super) fn replace(meter: &Rc<Meter>, text: &str, from: &str, to: &str, most: usize) -> Result<Value, Trouble> {
    let mut made = Writer::new(meter);
    let mut done = 0;
    for place in places(meter, text, from).take(most) {
        meter.step(1)?;
        made.push(&text[done..place.start])?;
        made.push(to)?;
        done = place.end;
    }
    made.push(&text[done..])?;
    made.into_value()
}
