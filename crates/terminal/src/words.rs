//! Numbers in words, for people.

/// Bytes for people.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// Seconds for people: three digits, in milliseconds below a second.
pub fn seconds(seconds: f64) -> String {
    if seconds < 0.9995 {
        format!("{} ms", three_digits(seconds * 1e3))
    } else {
        format!("{} s", three_digits(seconds))
    }
}

/// A number from 0 on with three digits that count.
pub fn three_digits(number: f64) -> String {
    let decimals = [9.995, 99.95].iter().filter(|&&bound| number < bound).count();
    format!("{number:.decimals$}")
}

/// Count with its noun.
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::{bytes, counted, seconds, three_digits};

    #[test]
    fn bytes_are_short() {
        assert_eq!([0, 1023, 1536, 5 << 30].map(bytes), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.0, 0.123, 9.996, 82.04, 1234.5].map(three_digits), ["0.00", "0.12", "10.0", "82.0", "1234"]);
        assert_eq!(
            [0.000_01, 0.0171, 0.9996, 1.234, 75.0].map(seconds),
            ["0.01 ms", "17.1 ms", "1.00 s", "1.23 s", "75.0 s"]
        );
    }

    #[test]
    fn one_has_no_plural() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "prompt")), ["0 prompts", "1 prompt", "2 prompts"]);
    }
}
