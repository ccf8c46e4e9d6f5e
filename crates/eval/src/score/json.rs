//! Values in JSON: whether they are as a schema says, by a validator that decodes nothing, and equal to the right one.

use serde_json::Value;

use super::{Verdict, fences::Fences};

/// Failure of an output that is not JSON.
const NO_JSON: &str = "no JSON";
/// Failure of a value that the schema does not allow.
const INVALID: &str = "not as the schema says";

/// Judges an output, or its last fenced block that is JSON. Without a right value every valid one is right.
pub fn judge(schema: Option<&str>, gold: Option<&str>, output: &str) -> Verdict {
    let Some(value) = value(output) else {
        return Verdict { valid: Some(false), ..Verdict::failed(NO_JSON) };
    };
    let answer = Some(value.to_string());
    match schema.map_or(Ok(true), |schema| is_valid(schema, &value)) {
        Ok(true) => {
            let correct = gold.is_none_or(|gold| serde_json::from_str(gold).is_ok_and(|gold| equal(&gold, &value)));
            Verdict { answer, correct, valid: Some(true), ..Verdict::default() }
        }
        Ok(false) => Verdict { answer, valid: Some(false), ..Verdict::failed(INVALID) },
        Err(error) => Verdict { answer, ..Verdict::failed(format!("the schema cannot be read: {error}")) },
    }
}

fn value(output: &str) -> Option<Value> {
    let read = |text: &str| serde_json::from_str(text).ok();
    read(output).or_else(|| Fences::of(output, |_| false).blocks.iter().rev().find_map(|block| read(&block.code)))
}

fn is_valid(schema: &str, value: &Value) -> Result<bool, String> {
    let schema = serde_json::from_str(schema).map_err(|error| error.to_string())?;
    let validator = jsonschema::validator_for(&schema).map_err(|error| error.to_string())?;
    Ok(validator.is_valid(value))
}

/// Reports whether two values are the same: members in any order, numbers by value.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| equal(one, other)))
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#;

    #[test]
    fn values_are_right_in_any_order_and_spelling() {
        let gold = Some(r#"{"n": 1, "of": [2.0, "x"]}"#);
        let judged = |output: &str| judge(Some(SCHEMA), gold, output);
        assert!(judged(r#" {"of":[2,"x"],"n":1.0} "#).correct);
        assert!(judged("Here it is:\n```json\n{\"n\": 1, \"of\": [2, \"x\"]}\n```\n").correct);
        for wrong in [r#"{"n": 1, "of": [2]}"#, r#"{"n": 2, "of": [2, "x"]}"#, r#"{"n": 1, "of": [2, "x"], "m": 0}"#] {
            let verdict = judged(wrong);
            assert!(!verdict.correct && verdict.valid == Some(true), "{wrong}");
        }
        let free = judge(Some(SCHEMA), None, r#"{"n": 7}"#);
        assert!(free.correct && free.valid == Some(true));
    }

    #[test]
    fn what_is_no_json_or_not_as_the_schema_says_is_told_apart() {
        let failure = |schema: &str, output: &str| {
            let verdict = judge(Some(schema), None, output);
            assert!(!verdict.correct);
            (verdict.failure.unwrap(), verdict.valid)
        };
        assert_eq!(failure(SCHEMA, "n is 7"), (NO_JSON.to_owned(), Some(false)));
        assert_eq!(failure(SCHEMA, "{\"n\": 7"), (NO_JSON.to_owned(), Some(false)));
        assert_eq!(failure(SCHEMA, r#"{"n": "7"}"#), (INVALID.to_owned(), Some(false)));
        let (told, valid) = failure(r#"{"type": 7}"#, "{}");
        assert!(told.starts_with("the schema cannot be read") && valid.is_none(), "{told}");
    }
}
