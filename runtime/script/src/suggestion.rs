//! Suggestions for messages about unknown names: `; did you mean ...?` when a known name is close, else the known
//! names.

/// Largest number of known names that a message lists.
const LISTED: usize = 12;

/// Longer names are not compared: the cost of a comparison is the product of both lengths.
const COMPARED_BYTES: usize = 200;

/// Returns the text to append after an unknown name: the closest known name, or all of `known` when they are few; empty
/// when neither applies.
pub(super) fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    known.dedup();
    if name.len() > COMPARED_BYTES {
        return String::new();
    }
    match flagperf_config::nearest(name, known.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if !known.is_empty() && known.len() <= LISTED => format!(" (known: {})", known.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::suggestion;

    #[test]
    fn a_close_name_is_suggested_and_a_distant_one_lists_the_known_names() {
        let known = ["images", "labels"];
        assert_eq!(suggestion("image", known.into_iter()), "; did you mean `images`?");
        assert_eq!(suggestion("weather", known.into_iter()), " (known: images, labels)");
        assert_eq!(suggestion("x", std::iter::empty()), "");
        assert_eq!(suggestion(&"x".repeat(1 << 20), known.into_iter()), "");
    }
}
