//! Suggestions for misspelled names.

use strsim::damerau_levenshtein;

/// A longer name is no typing mistake, and comparing it takes memory that grows with the square of its length.
const NAME_BYTES_MAX: usize = 256;

/// Returns the known name that is most similar to `name`, if it is similar enough for a typing mistake.
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

/// Returns the known name that differs from `name` in one letter at most: one that is missing, added or replaced, or two
/// neighbours that are exchanged. Upper and lower case are the same.
pub fn one_letter_off<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let lower = name.to_lowercase();
    known.into_iter().find(|candidate| damerau_levenshtein(&lower, &candidate.to_lowercase()) <= 1)
}

/// Joins names into a list for a message; returns `none` when there are none.
pub fn list_names<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Lists known names for the message about an unknown one, with the nearest if one is similar: `cpu, nvidia; nearest: nvidia`.
pub fn list_known<'n>(name: &str, known: impl IntoIterator<Item = &'n str> + Clone) -> String {
    let near = nearest(name, known.clone()).map(|near| format!("; nearest: {near}")).unwrap_or_default();
    list_names(known) + &near
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_name_is_matched_and_an_unrelated_word_is_not() {
        let names = ["batch_size", "fp16", "compiler"];
        assert_eq!(nearest("batchsize", names), Some("batch_size"));
        assert_eq!(nearest("FP16", names), Some("fp16"));
        assert_eq!(nearest("compilre", names), Some("compiler"));
        assert_eq!(nearest("temperature", names), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn a_name_that_is_two_letters_off_is_another_name() {
        for (name, expected) in
            [("side", None), ("Seed", Some("seed")), ("sede", Some("seed")), ("seeds", Some("seed"))]
        {
            assert_eq!(one_letter_off(name, ["unit", "seed"]), expected, "{name}");
        }
    }
}
