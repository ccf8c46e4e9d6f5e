//! The file of `serve`: which keys stand in it, each with its value as it would be typed behind a flag.
//!
//! It knows no flag, and depends on the TOML reader alone.

/// Reads a file's text; an error is one line, with the place in the file.
///
/// # Errors
/// If it is no TOML, or a value is no text, list of texts, number, true or false.
pub fn entries(text: &str) -> Result<Vec<(String, String)>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        let message: Vec<_> = error.message().split_whitespace().collect();
        format!("line {line}: {}", message.join(" "))
    })?;
    table.into_iter().map(|(name, value)| Ok((name.clone(), typed(&name, value)?))).collect()
}

/// A value as it would be typed.
fn typed(name: &str, value: toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text),
        toml::Value::Array(list) => {
            let texts = list.iter().map(|value| value.as_str().map(str::to_owned));
            let texts = texts.collect::<Option<Vec<_>>>();
            Ok(texts.ok_or_else(|| format!("{name:?} has what is no text"))?.join(","))
        }
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(switch) => Ok(switch.to_string()),
        other => Err(format!("{name:?} is a {}, expected a text, a number, true or false", other.type_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_would_be_typed() {
        let read = entries("port = 80\nno_ui = true\nhost = \"a\"\ncors_origin = [\"x\", \"y\"]\n").unwrap();
        let expected = [("port", "80"), ("no_ui", "true"), ("host", "a"), ("cors_origin", "x,y")];
        let mut expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        expected.sort();
        let mut read = read;
        read.sort();
        assert_eq!(read, expected);
    }

    #[test]
    fn what_cannot_be_read_is_told_in_one_line() {
        for (text, told) in [
            ("port = 1\nport = 2\n", "line 2: duplicate key"),
            ("\n\n[serve]\nport = 1\n", "\"serve\" is a table, expected a text, a number, true or false"),
            ("port = 1.5", "\"port\" is a float, expected"),
            ("host = [\"a\", 1]", "\"host\" has what is no text"),
            ("port = 1979-05-27", "\"port\" is a datetime"),
            ("\"two\\nlines\" = 1.5", "\"two\\nlines\" is a float"),
            ("host = \"a", "line 1: "),
            ("= 1", "line 1: "),
            ("\u{feff}\0", "line 1: "),
        ] {
            let refused = entries(text).unwrap_err();
            assert!(refused.starts_with(told) && !refused.contains('\n'), "{text:?}: {refused:?}");
        }
    }
}
