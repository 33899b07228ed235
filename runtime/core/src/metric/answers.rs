//! Metrics of question answering: exact match and F1, as the evaluation of SQuAD computes them.

use std::collections::HashMap;
use std::hash::Hash;

use super::{Accumulator, MetricError};

/// Computes `exact_match` and `f1` of answers in words, both from 0 to 1 and the best over the accepted answers of each
/// question. Texts are normalised as in SQuAD's evaluation: lower case, without punctuation, without the articles `a`,
/// `an`, `the`, and with single spaces. An unanswerable question has the one answer `""`.
///
/// # Errors
/// When there are not as many predictions as questions, or a question has no answer.
pub fn answers_in_words(predictions: &[&str], answers: &[Vec<&str>]) -> Result<Accumulator, MetricError> {
    let words = |text: &str| normalise(text).split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    let predictions: Vec<Vec<String>> = predictions.iter().map(|text| words(text)).collect();
    let answers: Vec<Vec<Vec<String>>> =
        answers.iter().map(|texts| texts.iter().map(|text| words(text)).collect()).collect();
    score(&predictions, &answers)
}

/// Computes `exact_match` and `f1` of answers as token ids, which are compared as they are: nothing is normalised.
///
/// # Errors
/// When there are not as many predictions as questions.
pub fn answers_in_tokens(predictions: &[Vec<i64>], answers: &[Vec<i64>]) -> Result<Accumulator, MetricError> {
    let answers: Vec<Vec<Vec<i64>>> = answers.iter().map(|answer| vec![answer.clone()]).collect();
    score(predictions, &answers)
}

/// Returns whether an answer equals an accepted one, and the best F1, both as `evaluate-v1.1.py` of SQuAD computes them: a
/// text without words has an F1 of 0 even if both have none.
pub(super) fn score_answer(prediction: &str, accepted: &[String]) -> (bool, f64) {
    let words = |text: &str| normalise(text).split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    let found = words(prediction);
    let accepted: Vec<Vec<String>> = accepted.iter().map(|text| words(text)).collect();
    let f1 = accepted.iter().filter(|words| !words.is_empty()).map(|words| f1_of(&found, words)).fold(0.0, f64::max);
    (accepted.contains(&found), f1)
}

fn score<T: Eq + Hash>(predictions: &[Vec<T>], answers: &[Vec<Vec<T>>]) -> Result<Accumulator, MetricError> {
    if predictions.len() != answers.len() {
        return Err(MetricError::Answers { found: predictions.len(), expected: answers.len() });
    }
    if let Some(question) = answers.iter().position(Vec::is_empty) {
        return Err(MetricError::NoAnswer(question));
    }
    let (mut exact, mut f1) = (0.0, 0.0);
    for (prediction, accepted) in predictions.iter().zip(answers) {
        exact += f64::from(u8::from(accepted.contains(prediction)));
        f1 += accepted.iter().map(|answer| f1_of(prediction, answer)).fold(0.0, f64::max);
    }
    let mut figures = Accumulator::mean("exact_match", exact, predictions.len() as u64);
    figures.merge(&Accumulator::mean("f1", f1, predictions.len() as u64))?;
    Ok(figures)
}

/// Returns the harmonic mean of precision and recall over the words. If a side has no words, returns 1 if both have none,
/// else 0.
fn f1_of<T: Eq + Hash>(prediction: &[T], answer: &[T]) -> f64 {
    if prediction.is_empty() || answer.is_empty() {
        return f64::from(u8::from(prediction.len() == answer.len()));
    }
    let mut remaining: HashMap<&T, usize> = HashMap::new();
    answer.iter().for_each(|word| *remaining.entry(word).or_default() += 1);
    let mut common = 0.0;
    for word in prediction {
        if let Some(count) = remaining.get_mut(word).filter(|count| **count > 0) {
            *count -= 1;
            common += 1.0;
        }
    }
    if common == 0.0 {
        return 0.0;
    }
    let (precision, recall) = (common / prediction.len() as f64, common / answer.len() as f64);
    2.0 * precision * recall / (precision + recall)
}

/// Normalises a text as SQuAD's evaluation does. Punctuation is that of ASCII.
fn normalise(text: &str) -> String {
    let plain: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = String::with_capacity(plain.len());
    let mut rest = plain.as_str();
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_word(c) != is_word(first)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        // An article is replaced by a space even inside text without spaces, as a word boundary does.
        words.push_str(if matches!(run, "a" | "an" | "the") { " " } else { run });
        rest = after;
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_normalised_as_in_the_evaluation_of_squad() {
        for (text, normal) in [
            ("The  Cat's\tan hour.", "cats hour"),
            ("A-B", "ab"),
            ("theatre and a\u{a0}day", "theatre and day"),
            ("“a”", "“ ”"),
            ("", ""),
        ] {
            assert_eq!(normalise(text), normal, "{text}");
        }
    }

    #[test]
    fn the_best_of_the_accepted_answers_counts() {
        let predictions = ["the quick brown fox", "", "Paris"];
        let answers = [vec!["lazy dog", "Quick fox!"], vec![""], vec!["London"]];
        let figures = answers_in_words(&predictions, &answers).unwrap().finish();
        assert!((figures["f1"] - (0.8 + 1.0 + 0.0) / 3.0).abs() < 1e-15);
        assert_eq!(figures["exact_match"], 1.0 / 3.0);
    }

    #[test]
    fn repeated_words_count_as_often_as_they_occur_on_both_sides() {
        let figures = answers_in_tokens(&[vec![5, 5, 5, 6]], &[vec![5, 5, 7]]).unwrap().finish();
        assert!((figures["f1"] - 2.0 * (0.5 * 2.0 / 3.0) / (0.5 + 2.0 / 3.0)).abs() < 1e-15);
        assert_eq!(figures["exact_match"], 0.0);
    }

    #[test]
    fn predictions_and_answers_must_correspond() {
        assert_eq!(answers_in_words(&["a"], &[]).unwrap_err().to_string(), "1 predictions for 0 answers");
        let error = answers_in_words(&["x"], &[vec![]]).unwrap_err();
        assert_eq!(error.to_string(), "question 0 has no answer: an unanswerable question has the answer `\"\"`");
    }
}
