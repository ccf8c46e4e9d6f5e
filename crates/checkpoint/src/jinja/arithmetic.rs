//! Operators of numbers, texts and lists, as in Python.

use std::rc::Rc;

use super::{Trouble, format, meter::Meter, tree::Operator, value::Value, write::Writer};

/// The result of an operator on two values.
pub(super) fn binary(meter: &Rc<Meter>, operator: Operator, a: &Value, b: &Value) -> Result<Value, Trouble> {
    match (operator, a, b) {
        (Operator::Join, a, b) => {
            let mut joined = Writer::new(meter);
            joined.value(a)?;
            joined.value(b)?;
            joined.into_value()
        }
        (Operator::Add, Value::Text(a), Value::Text(b)) => {
            let mut joined = Writer::new(meter);
            joined.push(a)?;
            joined.push(b)?;
            joined.into_value()
        }
        (Operator::Add, Value::List(a), Value::List(b)) => meter.list(both(meter, a, b)?),
        (Operator::Add, Value::Tuple(a), Value::Tuple(b)) => meter.tuple(both(meter, a, b)?),
        (Operator::Multiply, Value::Text(text), count) | (Operator::Multiply, count, Value::Text(text)) => {
            let count = copies(count)?;
            meter.room(text.len().checked_mul(count))?;
            meter.text(text.repeat(count))
        }
        (Operator::Multiply, Value::List(items), count) | (Operator::Multiply, count, Value::List(items)) => {
            meter.list(repeated(meter, items, count)?)
        }
        (Operator::Multiply, Value::Tuple(items), count) | (Operator::Multiply, count, Value::Tuple(items)) => {
            meter.tuple(repeated(meter, items, count)?)
        }
        (Operator::Remainder, Value::Text(text), values) => format::percent(meter, text, values),
        (operator, a, b) => arithmetic(operator, a, b),
    }
}

fn copies(count: &Value) -> Result<usize, Trouble> {
    Ok(usize::try_from(count.int("the number of copies")?).unwrap_or(0))
}

fn repeated(meter: &Meter, items: &[Value], count: &Value) -> Result<Vec<Value>, Trouble> {
    let count = copies(count)?;
    meter.room(items.len().checked_mul(count).and_then(|all| all.checked_mul(size_of::<Value>())))?;
    Ok(std::iter::repeat_n(items.iter(), count).flatten().cloned().collect())
}

fn both(meter: &Meter, a: &[Value], b: &[Value]) -> Result<Vec<Value>, Trouble> {
    let count = a.len() + b.len();
    meter.room(count.checked_mul(size_of::<Value>()))?;
    meter.step(count / 16)?;
    Ok(a.iter().chain(b).cloned().collect())
}

/// The value with the other sign.
pub(super) fn negative(value: &Value) -> Result<Value, Trouble> {
    match (value.as_int(), value.as_float()) {
        (Some(number), _) => number
            .checked_neg()
            .map_or_else(|| Trouble::failed("a number is too large"), |number| Ok(Value::Int(number))),
        (None, Some(number)) => Ok(Value::Float(-number)),
        _ => Trouble::failed(format!("- needs a number, found {}", value.kind())),
    }
}

fn arithmetic(operator: Operator, a: &Value, b: &Value) -> Result<Value, Trouble> {
    let numbers = a.as_float().zip(b.as_float());
    let Some((x, y)) = numbers else {
        return Trouble::failed(format!("{operator:?} is not for {} and {}", a.kind(), b.kind()).to_lowercase());
    };
    let zero = matches!(operator, Operator::Divide | Operator::Floor | Operator::Remainder) && y == 0.0;
    if zero {
        return Trouble::failed("a number is divided by zero");
    }
    if operator == Operator::Divide {
        return Ok(Value::Float(x / y));
    }
    if let (Some(a), Some(b)) = (a.as_int(), b.as_int()) {
        let whole = match operator {
            Operator::Add => a.checked_add(b),
            Operator::Subtract => a.checked_sub(b),
            Operator::Multiply => a.checked_mul(b),
            Operator::Floor => a.checked_div(b).map(|q| if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q }),
            Operator::Remainder => a.checked_rem(b).map(|r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r }),
            Operator::Power if b >= 0 => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
            _ => return Ok(Value::Float(x.powf(y))),
        };
        return whole.map_or_else(|| Trouble::failed("a number is too large"), |number| Ok(Value::Int(number)));
    }
    Ok(Value::Float(match operator {
        Operator::Add => x + y,
        Operator::Subtract => x - y,
        Operator::Multiply => x * y,
        Operator::Floor => (x / y).floor(),
        Operator::Remainder => x - y * (x / y).floor(),
        _ => x.powf(y),
    }))
}
