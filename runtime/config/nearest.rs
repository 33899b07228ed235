//! The known name that somebody probably meant.

use strsim::damerau_levenshtein;

/// A longer name is nobody's slip, and comparing it takes memory by the square.
const NAME_BYTES_MAX: usize = 256;

/// The known name nearest to `name`, if one is near enough to be what was meant.
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let lower = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().min(name.len()) / 4)
        .map(|(_, candidate)| candidate)
}

/// The known names as a list for a message; `none` when there are none.
pub fn known<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_finds_the_name_and_a_foreign_word_does_not() {
        let names = ["batch_size", "fp16", "compiler"];
        assert_eq!(nearest("batchsize", names), Some("batch_size"));
        assert_eq!(nearest("FP16", names), Some("fp16"));
        assert_eq!(nearest("compilre", names), Some("compiler"));
        assert_eq!(nearest("temperature", names), None);
        assert_eq!(nearest("x", []), None);
    }
}
