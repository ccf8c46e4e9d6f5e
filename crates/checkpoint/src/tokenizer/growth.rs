//! How much longer a normalizer can make a text: somebody else's file decides.

use serde_json::Value;

use crate::error::quoted;

/// Most bytes that a normalizer may make of one. Those of released models make 33 at most: compatibility forms make up to
/// 11 of one, and `▁` for a space is 3.
const MOST: f64 = 64.0;

/// Bytes that Unicode's forms make of one, at most.
const COMPOSED: f64 = 3.0;
const COMPATIBLE: f64 = 11.0;

/// Refuses a normalizer that can make a text much longer.
pub(super) fn check(normalizer: &Value) -> Result<(), String> {
    let growth = growth(normalizer);
    if growth <= MOST {
        return Ok(());
    }
    let found = if growth < 1e15 { format!("{growth:.0}") } else { "more than 10^15".to_owned() };
    Err(format!(
        "its normalizer can make {found} bytes of one, expected at most {MOST:.0}: {}",
        quoted(&longest(normalizer))
    ))
}

/// Bytes that a normalizer makes of one, at most.
fn growth(step: &Value) -> f64 {
    let length = |key: &str| step.get(key).and_then(Value::as_str).map_or(0, str::len) as f64;
    match step.get("type").and_then(Value::as_str).unwrap_or_default() {
        "Sequence" => steps(step).map(growth).product(),
        "Replace" => {
            // An expression may match nothing, between all characters.
            let text =
                step.get("pattern").and_then(|pattern| pattern.get("String")?.as_str()).filter(|it| !it.is_empty());
            match text {
                Some(text) => (length("content") / text.len() as f64).max(1.0),
                None => length("content") + 1.0,
            }
        }
        "Prepend" => length("prepend") + 1.0,
        "NFC" | "NFD" | "Lowercase" => COMPOSED,
        "NFKC" | "NFKD" => COMPATIBLE,
        // Spaces around ideographs, small letters, and accents apart.
        "BertNormalizer" => 2.0 * COMPOSED,
        "ByteLevel" => 2.0,
        "Precompiled" => longest_entry(step).max(COMPATIBLE),
        _ => 1.0,
    }
}

fn steps(sequence: &Value) -> impl Iterator<Item = &Value> {
    sequence.get("normalizers").and_then(Value::as_array).into_iter().flatten()
}

/// Name and content of the step that grows most.
fn longest(step: &Value) -> String {
    let most = steps(step).max_by(|a, b| growth(a).total_cmp(&growth(b)));
    match most {
        Some(inner) => longest(inner),
        None => step.to_string().chars().take(80).collect(),
    }
}

/// Length of the longest text that a table of SentencePiece puts for a character: texts in a row, each with a zero after it.
fn longest_entry(step: &Value) -> f64 {
    let table = base64(step.get("precompiled_charsmap").and_then(Value::as_str).unwrap_or_default());
    let size = table.first_chunk::<4>().map_or(0, |size| u32::from_le_bytes(*size) as usize);
    let texts = table.get(4 + size..).unwrap_or_default();
    texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or(0) as f64
}

/// Bytes of a text in base64. Its library refuses others.
fn base64(text: &str) -> Vec<u8> {
    let (mut bytes, mut held, mut bits) = (Vec::with_capacity(text.len() / 4 * 3), 0_u32, 0);
    for digit in text.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        held = (held << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn normalizers_of_released_models_are_taken() {
        let llama = json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
        let t5 = json!({"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]});
        let albert = json!({"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"String": "``"}, "content": "\""}, {"type": "NFKD"},
            {"type": "StripAccents"}, {"type": "Lowercase"}]});
        for normalizer in [Value::Null, json!({"type": "NFC"}), llama, t5, albert] {
            check(&normalizer).unwrap();
        }
    }

    #[test]
    fn normalizers_that_grow_are_refused_with_what_they_grow_to() {
        let step = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"});
        let message = check(&json!({"type": "Sequence", "normalizers": [step, step, step]})).unwrap_err();
        assert!(message.starts_with("its normalizer can make 1000 bytes of one, expected at most 64: "), "{message}");
        let long = "a".repeat(100);
        check(&json!({"type": "Replace", "pattern": {"Regex": "b"}, "content": long})).unwrap_err();
        check(&json!({"type": "Prepend", "prepend": long})).unwrap_err();
        let nested = json!({"type": "Sequence", "normalizers": [step, {"type": "Sequence", "normalizers": [step]}]});
        check(&nested).unwrap_err();
        // A table of four bytes and one text of 99 letters.
        let table = "BAAAAAAAAAB".to_owned() + &"h".repeat(132);
        check(&json!({"type": "Precompiled", "precompiled_charsmap": table})).unwrap_err();
    }

    #[test]
    fn base64_comes_back() {
        assert_eq!(base64("aGVsbG8="), b"hello");
    }
}
