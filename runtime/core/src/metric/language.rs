//! Metrics of language models: accuracy of tokens, and perplexity.

use super::elements::{for_each_row, integers, unsupported};
use super::state::{MetricState, MetricSum};
use super::top_k::rank_of;
use super::{Accumulator, MetricError};
use crate::tensor::Tensor;

/// Which positions of `N,L` tokens count.
#[derive(Clone, Copy, Debug)]
pub enum Positions<'t> {
    /// Every position whose token is not this one: -100 by convention.
    Except(i64),
    /// The first positions of each row: lengths as `N` integers.
    Lengths(&'t Tensor),
}

/// Computes `token_accuracy`, the share of positions whose prediction is the label. For masked language modelling, the
/// labels are the tokens at the masked positions and `ignore` everywhere else, which does not count.
///
/// `predictions`: logits as `N,L,V` of a float type, or predicted tokens as `N,L` of an integer type; `labels`: `N,L` of
/// an integer type. Equal logits rank by index, lower first; NaN ranks last.
///
/// # Errors
/// When shapes or types differ from these, or a label that counts is outside the vocabulary of the logits.
pub fn token_accuracy(predictions: &Tensor, labels: &Tensor, ignore: i64) -> Result<Accumulator, MetricError> {
    let expected = labels.spec().to_string();
    let (&[rows, length], Some(wanted)) = (labels.shape(), integers(labels)) else {
        return Err(unsupported("the labels are", labels, "`N,L` of an integer type"));
    };
    let mut hits = MetricSum::default();
    match (predictions.shape(), integers(predictions)) {
        (shape, Some(tokens)) if *shape == [rows, length] => {
            let counted = tokens.iter().zip(&wanted).filter(|(_, label)| **label != ignore);
            counted.for_each(|(token, label)| hits.add(f64::from(u8::from(token == label)), 1));
        }
        (&[n, l, vocabulary], None) if [n, l] == [rows, length] => {
            let needed = |at: usize| wanted[at] != ignore;
            for_each_row(predictions, needed, |at, logits| {
                let (token, row, position) = (wanted[at], at / length, at % length);
                let rank = rank_of(logits, token);
                let rank = rank.ok_or(MetricError::TokenOutOfRange { token, row, position, vocabulary })?;
                hits.add(f64::from(u8::from(rank == 0)), 1);
                Ok(())
            })?;
        }
        _ => {
            let wanted =
                format!("logits as `{rows},{length},V` or tokens as `{rows},{length}` for labels `{expected}`");
            return Err(unsupported("the predictions are", predictions, &wanted));
        }
    }
    Ok(Accumulator::of("token_accuracy", MetricState::Mean(hits)))
}

/// Computes `perplexity`: the exponential of the mean negative log likelihood of each token given those before it. The
/// logits at one position predict the token at the next, so the first token of a row is never predicted.
///
/// `scores`: logits as `N,L,V` of a float type, or the log-probability of the next token at each position as `N,L`;
/// `tokens`: `N,L` of an integer type.
///
/// # Errors
/// When shapes or types differ from these, a token that counts is outside the vocabulary, or a length is outside 0..=L.
pub fn perplexity(scores: &Tensor, tokens: &Tensor, positions: Positions<'_>) -> Result<Accumulator, MetricError> {
    let (rows, length, vocabulary) = match (scores.shape(), scores.dtype().is_float()) {
        (&[rows, length, vocabulary], true) => (rows, length, Some(vocabulary)),
        (&[rows, length], true) => (rows, length, None),
        _ => {
            let wanted = "logits as `N,L,V` or log-probabilities as `N,L`, of a float type";
            return Err(unsupported("the scores are", scores, wanted));
        }
    };
    let ids = integers(tokens).filter(|_| tokens.shape() == [rows, length]);
    let ids =
        ids.ok_or_else(|| unsupported("the tokens are", tokens, &format!("`{rows},{length}` of an integer type")))?;
    let counts = match positions {
        Positions::Except(_) => vec![length; rows],
        Positions::Lengths(lengths) => row_lengths(lengths, rows, length)?,
    };
    let mut likelihood = MetricSum::default();
    let needed = |at: usize| {
        let (row, position) = (at / length, at % length + 1);
        position < counts[row] && !matches!(positions, Positions::Except(ignore) if ignore == ids[at + 1])
    };
    match vocabulary {
        None => {
            let values = scores.to_f64();
            (0..rows * length).filter(|at| needed(*at)).for_each(|at| likelihood.add(-values[at], 1));
        }
        Some(vocabulary) => for_each_row(scores, needed, |at, values| {
            let (row, position, token) = (at / length, at % length + 1, ids[at + 1]);
            let index = usize::try_from(token).ok().filter(|token| *token < vocabulary);
            let index = index.ok_or(MetricError::TokenOutOfRange { token, row, position, vocabulary })?;
            likelihood.add(negative_log_likelihood(values, index), 1);
            Ok(())
        })?,
    }
    Ok(Accumulator::of("perplexity", MetricState::ExpOfMean(likelihood)))
}

/// Returns `-log(softmax(logits)[index])`.
fn negative_log_likelihood(logits: &[f64], index: usize) -> f64 {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
    sum.ln() + largest - logits[index]
}

/// Returns the lengths of the rows.
fn row_lengths(lengths: &Tensor, rows: usize, max: usize) -> Result<Vec<usize>, MetricError> {
    let found = integers(lengths).filter(|_| lengths.shape() == [rows]);
    let found =
        found.ok_or_else(|| unsupported("the lengths are", lengths, &format!("`{rows}` of an integer type")))?;
    let length = |(row, length): (usize, i64)| {
        let fits = usize::try_from(length).ok().filter(|length| *length <= max);
        fits.ok_or(MetricError::LengthOutOfRange { length, row, max })
    };
    found.into_iter().enumerate().map(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn ids(shape: [usize; 2], values: &[i64]) -> Tensor {
        Tensor::from_vec(shape, values.to_vec()).unwrap()
    }

    fn logits() -> Tensor {
        Tensor::from_vec([1, 3, 4], vec![0.0f32, 1.0, 0.5, -1.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0]).unwrap()
    }

    #[test]
    fn token_accuracy_counts_only_the_labelled_positions() {
        let figures = token_accuracy(&logits(), &ids([1, 3], &[1, -100, 2]), -100).unwrap();
        assert_eq!((figures.finish()["token_accuracy"], figures.observations()), (0.5, 2));
        let predicted = token_accuracy(&ids([1, 3], &[1, 0, 3]), &ids([1, 3], &[1, -100, 2]), -100).unwrap();
        assert_eq!(predicted, figures);
        let half = token_accuracy(&logits().cast(DType::BF16), &ids([1, 3], &[1, -100, 2]), -100).unwrap();
        assert_eq!(half, figures);
    }

    #[test]
    fn perplexity_is_the_exponential_of_the_mean_negative_log_likelihood() {
        // torch.nn.functional.cross_entropy(logits[0, :2], tensor([1, 3])).exp()
        let figures = perplexity(&logits(), &ids([1, 3], &[0, 1, 3]), Positions::Except(-1)).unwrap();
        let soft = |values: [f64; 4], at: usize| values.iter().map(|v| v.exp()).sum::<f64>().ln() - values[at];
        let expected = (soft([0.0, 1.0, 0.5, -1.0], 1) + soft([2.0, 2.0, 0.0, 0.0], 3)) / 2.0;
        assert!((figures.finish()["perplexity"] - expected.exp()).abs() < 1e-12);
        assert_eq!(figures.observations(), 2);
    }

    #[test]
    fn padding_does_not_count_for_perplexity_by_length_or_by_token() {
        let lengths = Tensor::from_vec([1], vec![2i64]).unwrap();
        let by_length = perplexity(&logits(), &ids([1, 3], &[0, 1, 0]), Positions::Lengths(&lengths)).unwrap();
        let by_token = perplexity(&logits(), &ids([1, 3], &[0, 1, -1]), Positions::Except(-1)).unwrap();
        assert_eq!(by_length, by_token);
        assert_eq!(by_length.observations(), 1);
    }

    #[test]
    fn log_probabilities_of_the_next_tokens_give_the_perplexity_of_the_logits() {
        let tokens = ids([1, 3], &[0, 1, 3]);
        let log_softmax = |values: [f64; 4], at: usize| values[at] - values.iter().map(|v| v.exp()).sum::<f64>().ln();
        let likely = [log_softmax([0.0, 1.0, 0.5, -1.0], 1), log_softmax([2.0, 2.0, 0.0, 0.0], 3), 7.0];
        let likely = Tensor::from_vec([1, 3], likely.map(|value| value as f32).to_vec()).unwrap();
        let of = |scores: &Tensor| perplexity(scores, &tokens, Positions::Except(-1)).unwrap();
        assert!((of(&likely).finish()["perplexity"] - of(&logits()).finish()["perplexity"]).abs() < 1e-6);
        assert_eq!(of(&likely).observations(), 2);
    }

    #[test]
    fn perplexity_over_batches_is_not_the_mean_of_their_perplexities() {
        let of = |tokens: &[i64]| perplexity(&logits(), &ids([1, 3], tokens), Positions::Except(-1)).unwrap();
        let (first, second) = (of(&[0, 1, 3]), of(&[0, 3, -1]));
        let mut both = first.clone();
        both.merge(&second).unwrap();
        let log = |figures: &Accumulator| figures.finish()["perplexity"].ln();
        assert!((log(&both) - (2.0 * log(&first) + log(&second)) / 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_token_outside_the_vocabulary_and_a_length_beyond_the_row_are_named() {
        let error = perplexity(&logits(), &ids([1, 3], &[0, 1, 4]), Positions::Except(-1)).unwrap_err();
        let expected = "token 4 at row 0, position 2 is out of range: the logits have 4 entries; does the tokenizer \
                        match the model?";
        assert_eq!(error.to_string(), expected);
        let error = token_accuracy(&logits(), &ids([1, 3], &[1, -2, 9]), -100).unwrap_err();
        assert!(error.to_string().starts_with("token -2 at row 0, position 1 is out of range"), "{error}");
        let lengths = Tensor::from_vec([1], vec![4i64]).unwrap();
        let error = perplexity(&logits(), &ids([1, 3], &[0, 1, 2]), Positions::Lengths(&lengths)).unwrap_err();
        assert_eq!(error.to_string(), "length 4 of row 0 is out of range (0 to 3)");
    }

    #[test]
    fn shapes_that_do_not_correspond_are_refused_with_both() {
        let error = token_accuracy(&logits(), &ids([1, 2], &[1, 2]), -100).unwrap_err();
        let expected = "the predictions are `1,3,4,f32` (expected: logits as `1,2,V` or tokens as `1,2` for labels \
                        `1,2,i64`)";
        assert_eq!(error.to_string(), expected);
        let error = perplexity(&logits(), &ids([1, 2], &[1, 2]), Positions::Except(-1)).unwrap_err();
        assert_eq!(error.to_string(), "the tokens are `1,2,i64` (expected: `1,3` of an integer type)");
    }
}
