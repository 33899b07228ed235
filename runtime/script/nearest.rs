//! The nearest known name for an error: `; did you mean ...?` when one is near, else what is known.

/// Known names that a message lists at most.
const LISTED: usize = 12;

/// A longer name is no slip of the pen, and comparing it would take its length times that of each known name.
const COMPARED_BYTES: usize = 200;

/// A hint that follows the unknown name; empty when nothing is known.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    known.dedup();
    if name.len() > COMPARED_BYTES {
        return String::new();
    }
    match crate::config::nearest(name, known.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if !known.is_empty() && known.len() <= LISTED => format!(" (known: {})", known.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_near_name_is_offered_and_a_far_one_lists_what_is_known() {
        let known = ["images", "labels"];
        assert_eq!(nearest("image", known.into_iter()), "; did you mean `images`?");
        assert_eq!(nearest("weather", known.into_iter()), " (known: images, labels)");
        assert_eq!(nearest("x", std::iter::empty()), "");
        assert_eq!(nearest(&"x".repeat(1 << 20), known.into_iter()), "");
    }
}
