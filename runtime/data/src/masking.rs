//! Masked language modelling as in BERT: chooses the tokens to hide, and their replacements.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The label of a position that does not count.
pub const IGNORED_LABEL: i64 = -100;
/// Of the chosen tokens, the share that the mask replaces.
const MASKED: f64 = 0.8;
/// Of the chosen tokens, the share that the mask or a random token replaces; the rest stays.
const REPLACED: f64 = 0.9;

/// How tokens are hidden. Of the chosen ones, 80 % become the mask, 10 % a random token, and 10 % stay (Devlin et al.,
/// "BERT", 2018, section 3.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Masking {
    /// Probability that a token is chosen; 0.15 in BERT.
    pub share: f64,
    /// The token that replaces others: `[MASK]`.
    pub mask: i64,
    /// Number of tokens from which random ones are drawn.
    pub vocabulary: u32,
    /// Tokens that are never chosen, such as `[CLS]` and `[SEP]`.
    pub special: Vec<i64>,
    /// Seed; the choice for a sample depends only on the seed and its index.
    pub seed: u64,
}

impl Masking {
    /// Hides tokens of the sample `index`; returns the labels: the original token where one was chosen, otherwise
    /// [`IGNORED_LABEL`].
    pub fn apply(&self, index: u64, tokens: &mut [i64]) -> Vec<i64> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(index);
        let mut unit = move || f64::from(random.next_u32()) / (f64::from(u32::MAX) + 1.0);
        let label = |token: &mut i64| {
            // Every token draws the same numbers, so that a special token does not shift the choice of those after it.
            let (choice, fate, drawn) = (unit(), unit(), unit());
            if choice >= self.share || self.special.contains(token) {
                return IGNORED_LABEL;
            }
            let original = *token;
            if fate < MASKED {
                *token = self.mask;
            } else if fate < REPLACED {
                *token = (drawn * f64::from(self.vocabulary)) as i64;
            }
            original
        };
        tokens.iter_mut().map(label).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masking() -> Masking {
        Masking { share: 0.15, mask: 103, vocabulary: 1000, special: vec![101], seed: 4 }
    }

    #[test]
    fn fifteen_percent_are_chosen_of_which_80_10_10_percent_are_masked_replaced_and_kept() {
        let original: Vec<i64> = (0..100_000).map(|at| if at % 10 == 0 { 101 } else { 2000 + at }).collect();
        let mut tokens = original.clone();
        let labels = masking().apply(7, &mut tokens);
        let chosen: Vec<usize> = (0..labels.len()).filter(|at| labels[*at] != IGNORED_LABEL).collect();
        assert!(chosen.iter().all(|at| labels[*at] == original[*at] && original[*at] != 101));
        let is_near = |count: usize, of: usize, percent: f64| (count as f64 / of as f64 * 100.0 - percent).abs() < 1.5;
        assert!(is_near(chosen.len(), 90_000, 15.0));
        let masked = chosen.iter().filter(|at| tokens[**at] == 103).count();
        let kept = chosen.iter().filter(|at| tokens[**at] == original[**at]).count();
        assert!(is_near(masked, chosen.len(), 80.0) && is_near(kept, chosen.len(), 10.0), "{masked} {kept}");
        assert!(chosen.iter().all(|at| tokens[*at] == original[*at] || (0..1000).contains(&tokens[*at])));
        let others = (0..labels.len()).filter(|at| labels[*at] == IGNORED_LABEL);
        assert!(others.into_iter().all(|at| tokens[at] == original[at]));
    }

    #[test]
    fn the_choice_depends_on_the_seed_and_the_index_only() {
        let apply = |masking: Masking, index| {
            let mut tokens = vec![500; 200];
            (masking.apply(index, &mut tokens), tokens)
        };
        assert_eq!(apply(masking(), 3), apply(masking(), 3));
        assert_ne!(apply(masking(), 3), apply(masking(), 4));
        assert_ne!(apply(masking(), 3), apply(Masking { seed: 5, ..masking() }, 3));
    }
}
