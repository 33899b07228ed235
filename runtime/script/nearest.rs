//! The nearest known name for an error: `; did you mean ...?` when one is near, else what is known.

/// A hint that follows the unknown name; empty when nothing is known.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    known.dedup();
    let distance = |other: &&str| strsim::damerau_levenshtein(name, other);
    match known.iter().min_by_key(|other| distance(other)) {
        Some(near) if distance(near) <= (name.chars().count() / 3).max(2) => format!("; did you mean `{near}`?"),
        Some(_) if known.len() <= 12 => format!(" (known: {})", known.join(", ")),
        _ => String::new(),
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
    }
}
