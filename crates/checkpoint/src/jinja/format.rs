//! Texts with places for values: Python's `%` and `format`.

use std::{iter::Peekable, rc::Rc, str::CharIndices};

use super::{
    Trouble, brief,
    given::Given,
    meter::Meter,
    value::Value,
    write::{Writer, float, literal},
};

/// Widest field, and most digits behind a point.
const WIDEST: usize = 10_000;

/// How a value is written into its place.
#[derive(Debug, Clone, Default)]
struct Field {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternative: bool,
    zeros: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

/// `text % values`.
pub(super) fn percent(meter: &Rc<Meter>, text: &str, values: &Value) -> Result<Value, Trouble> {
    let (mut several, single);
    let items: &[Value] = match values {
        Value::Tuple(items) => items,
        other => {
            single = [other.clone()];
            &single
        }
    };
    several = items.iter();
    let mut named = false;
    let mut written = Writer::new(meter);
    let mut rest = text.char_indices().peekable();
    while let Some((at, character)) = rest.next() {
        meter.step(usize::from(character == '%'))?;
        if character != '%' {
            written.push(&text[at..at + character.len_utf8()])?;
            continue;
        }
        let key = key(text, &mut rest)?;
        let mut field = Field::default();
        while let Some((_, flag)) = rest.next_if(|(_, flag)| "#0- +".contains(*flag)) {
            match flag {
                '#' => field.alternative = true,
                '0' => field.zeros = true,
                '-' => field.align = Some('<'),
                sign => field.sign = if field.sign == Some('+') { Some('+') } else { Some(sign) },
            }
        }
        let star = |several: &mut std::slice::Iter<'_, Value>| match several.next() {
            Some(value) => value.int("a width"),
            None => Trouble::failed("not enough values for a text with %"),
        };
        if rest.next_if(|(_, c)| *c == '*').is_some() {
            let width = star(&mut several)?;
            field.align = if width < 0 { Some('<') } else { field.align };
            field.width = size(width.unsigned_abs())?;
        } else {
            field.width = number(&mut rest)?.unwrap_or(0);
        }
        if rest.next_if(|(_, c)| *c == '.').is_some() {
            field.precision = Some(if rest.next_if(|(_, c)| *c == '*').is_some() {
                size(u64::try_from(star(&mut several)?).unwrap_or(0))?
            } else {
                number(&mut rest)?.unwrap_or(0)
            });
        }
        while rest.next_if(|(_, c)| matches!(c, 'h' | 'l' | 'L')).is_some() {}
        let Some((_, kind)) = rest.next() else { return Trouble::failed("a text with % ends inside of a place") };
        if kind == '%' {
            written.push("%")?;
            continue;
        }
        let value = match key {
            Some(key) => {
                named = true;
                let Value::Map(_) = values else { return Trouble::failed("%(name) needs a dictionary of values") };
                let found = values.get(&meter.text(key.to_owned())?, meter)?;
                found.map_or_else(|| Trouble::failed(format!("% finds no value {}", brief(key))), Ok)?
            }
            None => match several.next() {
                Some(value) => value.clone(),
                None => return Trouble::failed("not enough values for a text with %"),
            },
        };
        written.push(&placed(meter, &value, kind, field)?)?;
    }
    let unused = !named && !matches!(values, Value::Map(_)) && several.next().is_some();
    if unused {
        return Trouble::failed("not all values are used by a text with %");
    }
    written.into_value()
}

/// The name in `%(name)s`.
fn key<'a>(text: &'a str, rest: &mut Peekable<CharIndices<'_>>) -> Result<Option<&'a str>, Trouble> {
    if rest.next_if(|(_, c)| *c == '(').is_none() {
        return Ok(None);
    }
    let start = rest.peek().map_or(text.len(), |(at, _)| *at);
    let mut open = 1;
    for (at, character) in rest {
        match character {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Ok(Some(&text[start..at]));
        }
    }
    Trouble::failed("a name in a text with % has no )")
}

fn size(number: u64) -> Result<usize, Trouble> {
    let found = usize::try_from(number).ok().filter(|size| *size <= WIDEST);
    found.map_or_else(|| Trouble::failed(format!("a width of {number} is more than {WIDEST}")), Ok)
}

fn number(rest: &mut Peekable<CharIndices<'_>>) -> Result<Option<usize>, Trouble> {
    let mut found: Option<u64> = None;
    while let Some((_, digit)) = rest.next_if(|(_, c)| c.is_ascii_digit()) {
        let digit = u64::from(digit) - u64::from('0');
        found = Some(found.unwrap_or(0).saturating_mul(10).saturating_add(digit));
    }
    found.map(size).transpose()
}

/// A value in a place of a text with `%`.
fn placed(meter: &Rc<Meter>, value: &Value, kind: char, mut field: Field) -> Result<String, Trouble> {
    field.kind = Some(kind);
    let text = |written: Value| match (&written, field.precision) {
        (Value::Text(text), Some(most)) => Ok(text.chars().take(most).collect::<String>()),
        (written, _) => written.text("%").map(str::to_owned),
    };
    let wrong = || Trouble::failed(format!("%{kind} needs a number, found {}", value.kind()));
    field.align = field.align.or(Some('>'));
    match kind {
        's' => Ok(pad(text(meter.written(value)?)?, "", &Field { zeros: false, ..field.clone() })),
        'r' | 'a' => {
            let literal = literal(meter, value, kind == 'a')?;
            Ok(pad(text(literal)?, "", &Field { zeros: false, ..field.clone() }))
        }
        'c' => {
            let character = match value {
                Value::Text(text) if text.chars().count() == 1 => text.to_string(),
                other => match other.as_int().and_then(|code| char::from_u32(u32::try_from(code).ok()?)) {
                    Some(character) => character.to_string(),
                    None => return Trouble::failed("%c needs a character"),
                },
            };
            Ok(pad(character, "", &Field { zeros: false, ..field }))
        }
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
            let number = match value {
                Value::Float(number) if matches!(kind, 'd' | 'i' | 'u') && number.is_finite() => *number as i64,
                other => match other.as_int() {
                    Some(number) => number,
                    None => return wrong(),
                },
            };
            let least = field.precision.take().unwrap_or(0);
            if matches!(kind, 'i' | 'u') {
                field.kind = Some('d');
            }
            let (sign, digits) = whole(number, &field);
            Ok(pad(format!("{digits:0>least$}"), &sign, &field))
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => match value.as_float() {
            Some(number) => Ok(real(number, &field)),
            None => wrong(),
        },
        other => Trouble::failed(format!("%{other} is not known")),
    }
}

/// Sign with prefix, and digits of a whole number.
fn whole(number: i64, field: &Field) -> (String, String) {
    let size = number.unsigned_abs();
    let (prefix, digits) = match field.kind {
        Some('x') => ("0x", format!("{size:x}")),
        Some('X') => ("0X", format!("{size:X}")),
        Some('o') => ("0o", format!("{size:o}")),
        Some('b') => ("0b", format!("{size:b}")),
        _ => ("", size.to_string()),
    };
    (sign(number < 0, field) + if field.alternative { prefix } else { "" }, digits)
}

fn sign(negative: bool, field: &Field) -> String {
    match field.sign {
        _ if negative => "-".to_owned(),
        Some('+') => "+".to_owned(),
        Some(' ') => " ".to_owned(),
        _ => String::new(),
    }
}

/// A number with a point, as `e`, `f`, `g` or `%` writes it.
fn real(number: f64, field: &Field) -> String {
    let kind = field.kind.unwrap_or('g');
    let digits = field.precision.unwrap_or(6);
    let size = number.abs();
    let mut text = if size.is_nan() {
        "nan".to_owned()
    } else if size.is_infinite() {
        "inf".to_owned()
    } else {
        match kind.to_ascii_lowercase() {
            'e' => exponential(size, digits, field.alternative),
            'f' => format!("{size:.digits$}"),
            '%' => format!("{:.digits$}%", size * 100.0),
            _ => general(size, digits.max(1), field.alternative, false),
        }
    };
    if kind.is_ascii_uppercase() {
        text = text.to_ascii_uppercase();
    }
    pad(grouped(&text, field.grouping), &sign(number.is_sign_negative() && !number.is_nan(), field), field)
}

fn exponential(size: f64, digits: usize, point: bool) -> String {
    let text = format!("{size:.digits$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    let point = if point && !digits.contains('.') { "." } else { "" };
    format!("{digits}{point}e{sign}{exponent:0>2}")
}

/// The shorter of both ways, with so many digits at most.
fn general(size: f64, digits: usize, keeps_zeros: bool, like_repr: bool) -> String {
    let scientific = exponential(size, digits - 1, false);
    let exponent: i64 = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let most = if like_repr { digits as i64 - 1 } else { digits as i64 };
    let trim = |text: &str| {
        if keeps_zeros || !text.contains('.') {
            return text.to_owned();
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if exponent < -4 || exponent >= most {
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "+00"));
        return format!("{}e{exponent}", trim(digits));
    }
    let behind = usize::try_from(digits as i64 - 1 - exponent).unwrap_or(0);
    let text = trim(&format!("{size:.behind$}"));
    if like_repr && !text.contains('.') { text + ".0" } else { text }
}

/// Digits in groups of three in front of the point.
fn grouped(text: &str, separator: Option<char>) -> String {
    let Some(separator) = separator else { return text.to_owned() };
    let length = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut made = String::new();
    for (index, digit) in text[..length].chars().enumerate() {
        if index > 0 && (length - index) % 3 == 0 {
            made.push(separator);
        }
        made.push(digit);
    }
    made + &text[length..]
}

/// A text in a field of its width; its sign stays in front of zeros.
fn pad(text: String, sign: &str, field: &Field) -> String {
    let length = text.chars().count() + sign.chars().count();
    let missing = field.width.saturating_sub(length);
    if missing == 0 && sign.is_empty() {
        return text;
    }
    let zeros = field.zeros && field.align != Some('<');
    let align = if zeros { '=' } else { field.align.unwrap_or('>') };
    let fill = field.fill.unwrap_or(if zeros { '0' } else { ' ' });
    let run = |count: usize| std::iter::repeat_n(fill, count).collect::<String>();
    match align {
        '<' => format!("{sign}{text}{}", run(missing)),
        '=' => format!("{sign}{}{text}", run(missing)),
        '^' => format!("{}{sign}{text}{}", run(missing / 2), run(missing - missing / 2)),
        _ => format!("{}{sign}{text}", run(missing)),
    }
}

/// Looks up an attribute and an item of a value.
pub(super) trait Finds {
    fn attribute(&self, value: &Value, name: &str) -> Result<Value, Trouble>;
    fn item(&self, value: &Value, index: &Value) -> Result<Value, Trouble>;
}

/// `text.format(values)`.
pub(super) fn format(meter: &Rc<Meter>, finds: &dyn Finds, text: &str, given: &Given) -> Result<Value, Trouble> {
    let mut next = Some(0);
    let made = Formatter { meter, finds, given }.write(text, &mut next, 2)?;
    meter.text(made)
}

struct Formatter<'a> {
    meter: &'a Rc<Meter>,
    finds: &'a dyn Finds,
    given: &'a Given,
}

impl Formatter<'_> {
    /// The text with its places filled; `next` is the value of the next place without a name, unless places are numbered.
    fn write(&self, text: &str, next: &mut Option<usize>, depth: usize) -> Result<String, Trouble> {
        if depth == 0 && !text.is_empty() {
            return Trouble::failed("places of format nest too deep");
        }
        let mut made = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            self.meter.step(1)?;
            made.push_str(&rest[..at]);
            let sign = &rest[at..=at];
            let tail = &rest[at + 1..];
            if let Some(behind) = tail.strip_prefix(sign) {
                made.push_str(sign);
                rest = behind;
                continue;
            }
            if sign == "}" {
                return Trouble::failed("a text to format has a } without {");
            }
            let length = closing(tail)?;
            made.push_str(&self.place(&tail[..length], next, depth)?);
            self.meter.room(Some(made.len()))?;
            rest = &tail[length + 1..];
        }
        Ok(made + rest)
    }

    /// What comes into one place: `name.attribute[item]!conversion:form`.
    fn place(&self, place: &str, next: &mut Option<usize>, depth: usize) -> Result<String, Trouble> {
        let end = name_end(place);
        let (name, rest) = place.split_at(end);
        let (conversion, form) = match rest.strip_prefix('!') {
            Some(rest) => rest.split_once(':').map_or((rest, ""), |(conversion, form)| (conversion, form)),
            None => ("", rest.strip_prefix(':').unwrap_or("")),
        };
        let value = self.value(name, next)?;
        let value = match conversion {
            "" => value,
            "s" => self.meter.written(&value)?,
            "r" => literal(self.meter, &value, false)?,
            "a" => literal(self.meter, &value, true)?,
            other => return Trouble::failed(format!("format knows no !{}", brief(other))),
        };
        let form = self.write(form, next, depth - 1)?;
        formatted(self.meter, &value, &form)
    }

    fn value(&self, name: &str, next: &mut Option<usize>) -> Result<Value, Trouble> {
        let length = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut rest) = name.split_at(length);
        let missing = || Trouble::failed(format!("format is given no value {}", brief(first)));
        let positional = |place: usize| self.given.positional.get(place).cloned();
        let found = if first.is_empty() {
            let Some(place) = *next else { return Trouble::failed("format has places with numbers and without") };
            *next = Some(place + 1);
            positional(place)
        } else if let Ok(place) = first.parse::<usize>() {
            if next.is_some_and(|next| next > 0) {
                return Trouble::failed("format has places with numbers and without");
            }
            *next = None;
            positional(place)
        } else {
            self.given.named.iter().find(|(known, _)| known == first).map(|(_, value)| value.clone())
        };
        let Some(mut value) = found else { return missing() };
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix('.') {
                let length = tail.find(['.', '[']).unwrap_or(tail.len());
                value = self.finds.attribute(&value, &tail[..length])?;
                rest = &tail[length..];
                continue;
            }
            let inside = rest.strip_prefix('[').and_then(|inside| inside.split_once(']'));
            let Some((key, tail)) = inside else { return Trouble::failed("a place of format has [ without ]") };
            let key = key.parse().map_or_else(|_| self.meter.text(key.to_owned()), |index| Ok(Value::Int(index)))?;
            value = self.finds.item(&value, &key)?;
            if matches!(value, Value::Undefined) {
                return Trouble::failed("format asks for an item that is not there");
            }
            rest = tail;
        }
        Ok(value)
    }
}

/// Where a place ends, which may hold places itself.
fn closing(text: &str) -> Result<usize, Trouble> {
    let (mut open, mut item) = (1, false);
    for (at, character) in text.char_indices() {
        match character {
            '[' => item = true,
            ']' => item = false,
            '{' if !item => open += 1,
            '}' if !item => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Ok(at);
        }
    }
    Trouble::failed("a text to format has a { without }")
}

/// Where the name of a place ends: at `!` or `:` outside of brackets.
fn name_end(place: &str) -> usize {
    let mut item = false;
    for (at, character) in place.char_indices() {
        match character {
            '[' => item = true,
            ']' => item = false,
            '!' | ':' if !item => return at,
            _ => {}
        }
    }
    place.len()
}

/// A value in the form that a place asks for.
fn formatted(meter: &Rc<Meter>, value: &Value, form: &str) -> Result<String, Trouble> {
    let text = |value: &Value| meter.written(value)?.text("format").map(str::to_owned);
    if form.is_empty() {
        return text(value);
    }
    let field = parsed(form)?;
    let wrong = || Trouble::failed(format!("format cannot write {} as {}", value.kind(), brief(form)));
    match value {
        Value::Text(held) => {
            if !matches!(field.kind, None | Some('s')) || field.sign.is_some() || field.align == Some('=') {
                return wrong();
            }
            let short: String = held.chars().take(field.precision.unwrap_or(usize::MAX)).collect();
            let align = field.align.unwrap_or('<');
            let fill = field.fill.or(field.zeros.then_some('0'));
            Ok(pad(short, "", &Field { align: Some(align), fill, zeros: false, ..field }))
        }
        Value::Int(_) | Value::Bool(_) | Value::Float(_) => {
            let field =
                Field { align: field.align.or(Some('>')), zeros: field.zeros && field.align.is_none(), ..field };
            match (field.kind, value.as_int()) {
                (None | Some('d' | 'n' | 'x' | 'X' | 'o' | 'b'), Some(number)) => {
                    if field.precision.is_some() {
                        return wrong();
                    }
                    let (sign, digits) = whole(number, &field);
                    let digits = if matches!(field.kind, Some('x' | 'X' | 'o' | 'b')) {
                        digits
                    } else {
                        grouped(&digits, field.grouping)
                    };
                    Ok(pad(digits, &sign, &field))
                }
                (Some('c'), Some(code)) => match u32::try_from(code).ok().and_then(char::from_u32) {
                    Some(character) => Ok(pad(character.to_string(), "", &field)),
                    None => wrong(),
                },
                (Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%' | 'n'), _) => {
                    Ok(real(value.as_float().unwrap_or(0.0), &field))
                }
                (None, None) => {
                    let number = value.as_float().unwrap_or(0.0);
                    let written = match field.precision {
                        Some(digits) if number.is_finite() => general(number.abs(), digits.max(1), false, true),
                        _ => float(number.abs()),
                    };
                    Ok(pad(grouped(&written, field.grouping), &sign(number.is_sign_negative(), &field), &field))
                }
                _ => wrong(),
            }
        }
        _ => wrong(),
    }
}

/// `[[fill]align][sign][#][0][width][grouping][.precision][type]`.
fn parsed(form: &str) -> Result<Field, Trouble> {
    let mut field = Field::default();
    let is_align = |c: char| matches!(c, '<' | '>' | '=' | '^');
    let mut characters = form.chars();
    let (first, second) = (characters.next(), characters.next());
    let mut rest = form.char_indices().peekable();
    if second.is_some_and(is_align) {
        (field.fill, field.align) = (first, second);
        rest.next();
        rest.next();
    } else if first.is_some_and(is_align) {
        field.align = first;
        rest.next();
    }
    field.sign = rest.next_if(|(_, c)| matches!(c, '+' | '-' | ' ')).map(|(_, sign)| sign);
    field.alternative = rest.next_if(|(_, c)| *c == '#').is_some();
    field.zeros = rest.next_if(|(_, c)| *c == '0').is_some();
    field.width = number(&mut rest)?.unwrap_or(0);
    field.grouping = rest.next_if(|(_, c)| matches!(c, ',' | '_')).map(|(_, sign)| sign);
    if rest.next_if(|(_, c)| *c == '.').is_some() {
        let Some(digits) = number(&mut rest)? else { return Trouble::failed("a form has no digits behind its point") };
        field.precision = Some(digits);
    }
    field.kind = rest.next().map(|(_, kind)| kind);
    if rest.next().is_some() {
        return Trouble::failed(format!("format knows no form {}", brief(form)));
    }
    Ok(field)
}
