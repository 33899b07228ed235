//! Suggestions for messages about unknown names: `; did you mean ...?` when a known name is close, else the known
//! names.

use std::fmt;

/// Largest number of known names that a message lists.
const LISTED: usize = 12;

/// Longer names are not compared: the cost of a comparison is the product of both lengths.
const COMPARED_BYTES: usize = 200;

/// What to append after an unknown name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Suggestion {
    /// The closest known name.
    Near(String),
    /// All known names, which are few.
    Known(Vec<String>),
    /// Nothing.
    Nothing,
}

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Suggestion::Near(near) => write!(f, "; did you mean `{near}`?"),
            Suggestion::Known(known) => write!(f, " (known: {})", known.join(", ")),
            Suggestion::Nothing => Ok(()),
        }
    }
}

/// Returns what to append after an unknown name.
pub(super) fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Suggestion {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    known.dedup();
    if name.len() > COMPARED_BYTES {
        return Suggestion::Nothing;
    }
    match flagperf_config::nearest(name, known.iter().copied()) {
        Some(near) => Suggestion::Near(near.to_owned()),
        None if !known.is_empty() && known.len() <= LISTED => {
            Suggestion::Known(known.into_iter().map(str::to_owned).collect())
        }
        None => Suggestion::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::{Suggestion, suggestion};

    #[test]
    fn a_close_name_is_suggested_and_a_distant_one_lists_the_known_names() {
        let known = ["images", "labels"];
        assert_eq!(suggestion("image", known.into_iter()).to_string(), "; did you mean `images`?");
        assert_eq!(suggestion("weather", known.into_iter()).to_string(), " (known: images, labels)");
        assert_eq!(suggestion("x", std::iter::empty()).to_string(), "");
        assert_eq!(suggestion(&"x".repeat(1 << 20), known.into_iter()), Suggestion::Nothing);
    }
}
