//! The choice of the next token from its scores.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0: the most probable token; otherwise the scores are divided by it.
    pub temperature: f64,
    /// Only the most probable tokens that together have this probability are chosen from.
    pub top_p: f64,
    /// The most tokens that are chosen from; 0 is no limit.
    pub top_k: usize,
    /// The seed of the random numbers; `None` for another one each time.
    pub seed: Option<u64>,
}

/// Chooses the tokens of an answer.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: ChaCha8Rng,
}

impl Sampler {
    /// Creates the sampler of an answer.
    pub fn new(sampling: Sampling) -> Self {
        // Without random numbers of the system, the answers are those of seed 0.
        let seed = sampling.seed.unwrap_or_else(|| getrandom::u64().unwrap_or(0));
        Sampler { sampling, random: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// Returns a token by the scores of all; `None` if no score is a number.
    pub fn choose(&mut self, scores: &[f32]) -> Option<i64> {
        let best = most_probable(scores)?;
        if self.sampling.temperature == 0.0 {
            return Some(best as i64);
        }
        let shares = self.shares(scores, scores[best]);
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        // 53 bits: every number below 1 that the type has at this distance.
        let mut left = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * sum;
        for (token, share) in &shares {
            left -= share;
            if left < 0.0 {
                return Some(*token as i64);
            }
        }
        shares.last().map(|(token, _)| *token as i64)
    }

    /// Returns the tokens that are chosen from with their shares, the most probable first. `best` is the highest score.
    fn shares(&self, scores: &[f32], best: f32) -> Vec<(usize, f64)> {
        let Sampling { temperature, top_p, top_k, .. } = self.sampling;
        let share = |score: f32| ((f64::from(score) - f64::from(best)) / temperature).exp();
        let mut shares: Vec<(usize, f64)> = scores.iter().map(|score| share(*score)).enumerate().collect();
        shares.retain(|(_, share)| *share > 0.0);
        if top_k == 0 && top_p >= 1.0 {
            return shares;
        }
        // Equal shares keep the order of their tokens.
        shares.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        if top_k > 0 {
            shares.truncate(top_k);
        }
        let wanted = top_p * shares.iter().map(|(_, share)| share).sum::<f64>();
        // A token belongs to them if those before it do not reach the probability; the first one always does.
        let before = shares.iter().scan(0.0, |sum, (_, share)| {
            let before = *sum;
            *sum += share;
            Some(before)
        });
        let count = before.take_while(|before| *before < wanted).count();
        shares.truncate(count.max(1));
        shares
    }
}

/// Returns the token with the highest score, the first of equals; `None` if no score is a number.
fn most_probable(scores: &[f32]) -> Option<usize> {
    let numbers = scores.iter().enumerate().filter(|(_, score)| !score.is_nan() && **score > f32::NEG_INFINITY);
    let best = numbers.reduce(|best, other| if other.1 > best.1 { other } else { best })?;
    best.1.is_finite().then_some(best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCORES: [f32; 4] = [1.0, 3.0, 2.0, 3.0];

    fn sampler(temperature: f64, top_p: f64, top_k: usize, seed: u64) -> Sampler {
        Sampler::new(Sampling { temperature, top_p, top_k, seed: Some(seed) })
    }

    fn chosen(mut sampler: Sampler) -> Vec<i64> {
        (0..200).map(|_| sampler.choose(&SCORES).unwrap()).collect()
    }

    #[test]
    fn without_temperature_the_first_of_the_best_is_chosen() {
        assert_eq!(sampler(0.0, 1.0, 0, 1).choose(&SCORES), Some(1));
        assert_eq!(sampler(0.0, 1.0, 0, 1).choose(&[f32::NAN, 0.5]), Some(1));
        assert_eq!(sampler(0.0, 1.0, 0, 1).choose(&[f32::NAN, f32::NEG_INFINITY]), None);
        assert_eq!(sampler(1.0, 1.0, 0, 1).choose(&[f32::INFINITY, 0.0]), None);
    }

    #[test]
    fn a_seed_gives_the_same_tokens_and_all_tokens_occur() {
        let tokens = chosen(sampler(1.0, 1.0, 0, 7));
        assert_eq!(tokens, chosen(sampler(1.0, 1.0, 0, 7)));
        assert_ne!(tokens, chosen(sampler(1.0, 1.0, 0, 8)));
        assert!((0..4).all(|token| tokens.contains(&token)));
        let share = tokens.iter().filter(|token| **token == 1).count();
        // Its probability is 0.400.
        assert!((55..=105).contains(&share), "{share}");
    }

    #[test]
    fn only_the_most_probable_tokens_are_chosen_from() {
        let only = |allowed: &[i64], tokens: Vec<i64>| tokens.iter().all(|token| allowed.contains(token));
        assert!(only(&[1, 3], chosen(sampler(1.0, 0.5, 0, 7))), "1 and 3 have 0.80");
        assert!(only(&[1, 3], chosen(sampler(1.0, 1.0, 2, 7))));
        assert!(only(&[1], chosen(sampler(1.0, 0.000_1, 0, 7))));
        assert!(only(&[1, 3], chosen(sampler(0.01, 1.0, 0, 7))));
    }
}
