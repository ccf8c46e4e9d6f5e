//! Values as text: as Python prints them, and as JSON.

use std::rc::Rc;

use super::{Trouble, letters::is_printable, meter::Meter, value::Value};

/// Text that grows within a budget, and holds what it has grown to.
#[derive(Debug)]
pub(super) struct Writer {
    text: String,
    meter: Rc<Meter>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.meter.release(self.text.len());
    }
}

impl Writer {
    pub(super) fn new(meter: &Rc<Meter>) -> Self {
        Self { text: String::new(), meter: Rc::clone(meter) }
    }

    pub(super) fn push(&mut self, text: &str) -> Result<(), Trouble> {
        self.meter.claim(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    /// The text, which is no longer counted.
    pub(super) fn into_text(mut self) -> String {
        self.meter.release(self.text.len());
        std::mem::take(&mut self.text)
    }

    /// The text as a value.
    pub(super) fn into_value(self) -> Result<Value, Trouble> {
        let meter = Rc::clone(&self.meter);
        meter.text(self.into_text())
    }

    /// A value as `str` writes it.
    pub(super) fn value(&mut self, value: &Value) -> Result<(), Trouble> {
        match value {
            Value::Undefined => Ok(()),
            Value::Text(text) => self.push(text),
            other => self.literal(other, false),
        }
    }

    /// A value as `repr` writes it, or `ascii`.
    fn literal(&mut self, value: &Value, ascii: bool) -> Result<(), Trouble> {
        // A step for each: what is empty takes no bytes.
        self.meter.step(1)?;
        match value {
            Value::Undefined => self.push("Undefined"),
            Value::None => self.push("None"),
            Value::Bool(true) => self.push("True"),
            Value::Bool(false) => self.push("False"),
            Value::Int(number) => self.push(&number.to_string()),
            Value::Float(number) => self.push(&float(*number)),
            Value::Text(text) => self.quoted(text, ascii),
            Value::List(items) => {
                self.push("[")?;
                self.sequence(items, ascii)?;
                self.push("]")
            }
            Value::Tuple(items) => {
                self.push("(")?;
                self.sequence(items, ascii)?;
                self.push(if items.len() == 1 { ",)" } else { ")" })
            }
            Value::Map(items) => {
                self.push("{")?;
                for (index, (key, value)) in items.iter().enumerate() {
                    self.push(if index > 0 { ", " } else { "" })?;
                    self.literal(key, ascii)?;
                    self.push(": ")?;
                    self.literal(value, ascii)?;
                }
                self.push("}")
            }
            Value::Namespace(_) => self.push("<namespace>"),
            Value::Loop(_) => self.push("<loop>"),
            Value::Macro(_) | Value::Function(_) => self.push("<function>"),
        }
    }

    fn sequence(&mut self, items: &[Value], ascii: bool) -> Result<(), Trouble> {
        for (index, item) in items.iter().enumerate() {
            self.push(if index > 0 { ", " } else { "" })?;
            self.literal(item, ascii)?;
        }
        Ok(())
    }

    fn quoted(&mut self, text: &str, ascii: bool) -> Result<(), Trouble> {
        let quote = if text.contains('\'') && !text.contains('"') { "\"" } else { "'" };
        self.push(quote)?;
        let mut buffer = [0; 4];
        for character in text.chars() {
            // A marked sign is written as the sign would be, and stays marked.
            let sign = self.meter.marks.sign(character);
            let code = u32::from(sign);
            match sign {
                '\\' => self.push("\\\\")?,
                '\n' => self.push("\\n")?,
                '\r' => self.push("\\r")?,
                '\t' => self.push("\\t")?,
                '\'' if quote == "'" => self.push("\\'")?,
                plain if is_printable(plain) && (plain.is_ascii() || !ascii) => {
                    self.push(character.encode_utf8(&mut buffer))?;
                }
                _ if code < 0x100 => self.push(&format!("\\x{code:02x}"))?,
                _ if code < 0x10000 => self.push(&format!("\\u{code:04x}"))?,
                _ => self.push(&format!("\\U{code:08x}"))?,
            }
        }
        self.push(quote)
    }

    /// A value as `json.dumps` writes it.
    pub(super) fn json(&mut self, value: &Value, style: &Json) -> Result<(), Trouble> {
        self.json_at(value, style, 0)
    }

    fn json_at(&mut self, value: &Value, style: &Json, depth: usize) -> Result<(), Trouble> {
        self.meter.step(1)?;
        match value {
            Value::None => self.push("null"),
            Value::Bool(flag) => self.push(if *flag { "true" } else { "false" }),
            Value::Int(number) => self.push(&number.to_string()),
            Value::Float(number) if number.is_nan() => self.push("NaN"),
            Value::Float(number) if number.is_infinite() => {
                self.push(if *number > 0.0 { "Infinity" } else { "-Infinity" })
            }
            Value::Float(number) => self.push(&float(*number)),
            Value::Text(text) => self.json_text(text, style),
            Value::List(items) | Value::Tuple(items) => {
                self.json_items('[', items.len(), ']', style, depth, |writer, index| {
                    writer.json_at(&items[index], style, depth + 1)
                })
            }
            Value::Map(items) => {
                let mut order: Vec<usize> = (0..items.len()).collect();
                if style.sorted {
                    order.sort_by_key(|&index| items[index].0.as_text());
                }
                self.json_items('{', items.len(), '}', style, depth, |writer, index| {
                    let (key, value) = &items[order[index]];
                    match key {
                        Value::Text(text) => writer.json_text(text, style)?,
                        Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::None => {
                            writer.push("\"")?;
                            writer.json_at(key, style, depth + 1)?;
                            writer.push("\"")?;
                        }
                        other => return Trouble::failed(format!("{} is no key of JSON", other.kind())),
                    }
                    writer.push(&style.colon)?;
                    writer.json_at(value, style, depth + 1)
                })
            }
            other => Trouble::failed(format!("{} is nothing that JSON has", other.kind())),
        }
    }

    fn json_items(
        &mut self,
        open: char,
        count: usize,
        close: char,
        style: &Json,
        depth: usize,
        mut item: impl FnMut(&mut Self, usize) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        self.push(open.encode_utf8(&mut [0; 4]))?;
        for index in 0..count {
            self.push(if index > 0 { &style.comma } else { "" })?;
            self.json_line(style, depth + 1)?;
            item(self, index)?;
        }
        if count > 0 {
            self.json_line(style, depth)?;
        }
        self.push(close.encode_utf8(&mut [0; 4]))
    }

    fn json_line(&mut self, style: &Json, depth: usize) -> Result<(), Trouble> {
        let Some(indent) = &style.indent else { return Ok(()) };
        self.push("\n")?;
        (0..depth).try_for_each(|_| self.push(indent))
    }

    fn json_text(&mut self, text: &str, style: &Json) -> Result<(), Trouble> {
        self.meter.room(text.len().checked_mul(6))?;
        let quoted = serde_json::Value::from(text).to_string();
        if !style.ascii {
            return self.push(&quoted);
        }
        let mut buffer = [0; 4];
        for character in quoted.chars() {
            let sign = self.meter.marks.sign(character);
            if sign.is_ascii() && sign != '\u{7f}' {
                self.push(character.encode_utf8(&mut buffer))?;
                continue;
            }
            for unit in character.encode_utf16(&mut [0; 2]) {
                self.push(&format!("\\u{unit:04x}"))?;
            }
        }
        Ok(())
    }
}

/// Style in which JSON is written.
#[derive(Debug)]
pub(super) struct Json {
    pub(super) indent: Option<String>,
    pub(super) comma: String,
    pub(super) colon: String,
    pub(super) sorted: bool,
    pub(super) ascii: bool,
}

/// A value as a text that `repr` or `ascii` writes.
pub(super) fn literal(meter: &Rc<Meter>, value: &Value, ascii: bool) -> Result<Value, Trouble> {
    let mut written = Writer::new(meter);
    written.literal(value, ascii)?;
    written.into_value()
}

/// A number as Python writes it.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = format!("{number:?}");
    // Python signs exponents, and writes two digits at least.
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
            let digits = digits.strip_suffix(".0").unwrap_or(digits);
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}
