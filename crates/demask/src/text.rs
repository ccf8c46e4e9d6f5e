//! Stop texts, searched in what can no longer change.

/// Returns the start of the earliest stop text in `text`, and its index.
pub fn find_stop(text: &str, stops: &[String]) -> Option<(usize, usize)> {
    stops
        .iter()
        .enumerate()
        .filter(|(_, stop)| !stop.is_empty())
        .filter_map(|(which, stop)| text.find(stop.as_str()).map(|at| (at, which)))
        .min()
}

/// Number of bytes of `text` that may be shown although more text will follow: not the start of a possible stop text.
pub fn safe_length(text: &str, stops: &[String]) -> usize {
    let held = stops
        .iter()
        .filter_map(|stop| (1..stop.len()).rev().find(|&n| stop.is_char_boundary(n) && text.ends_with(&stop[..n])))
        .max()
        .unwrap_or(0);
    text.len() - held
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn the_earliest_stop_wins() {
        assert_eq!(find_stop("one two three", &stops(&["three", "two"])), Some((4, 1)));
        assert_eq!(find_stop("one", &stops(&["two", ""])), None);
    }

    #[test]
    fn text_that_may_become_a_stop_is_held_back() {
        let stops = stops(&["END", "é!"]);
        assert_eq!(safe_length("some EN", &stops), 5);
        assert_eq!(safe_length("some é", &stops), 5);
        assert_eq!(safe_length("some", &stops), 4);
    }
}
