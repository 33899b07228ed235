//! Seeded random numbers that are the same on every machine.
//!
//! A stream is that of ChaCha8 (Bernstein 2008), keyed by the SHA-256 of the seed (8 bytes, little-endian) followed by a
//! name. Floats are computed with additions, multiplications and the functions of `libm`, because those of the
//! platform's mathematics library could round differently.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

/// A stream of random numbers that depends only on a seed and a name.
pub struct RandomStream(ChaCha8Rng);

impl RandomStream {
    /// Returns the stream of a seed and a name.
    pub fn new(seed: u64, name: &str) -> Self {
        let key = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(name).finalize();
        RandomStream(ChaCha8Rng::from_seed(key.into()))
    }

    /// Draws a number uniformly from 0..1: a multiple of 2⁻²⁴, which is exact in f32.
    pub(crate) fn unit_f32(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 / (1 << 24) as f32
    }

    /// Draws a number uniformly from 0..1: a multiple of 2⁻⁵³, which is exact in f64.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws two independent normal numbers with mean 0 and standard deviation 1 (Box and Muller 1958).
    pub fn normal_pair(&mut self) -> [f64; 2] {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        let angle = 2.0 * std::f64::consts::PI * self.unit();
        [radius * libm::cos(angle), radius * libm::sin(angle)]
    }

    /// Draws a whole number uniformly from 0..`end`, by rejection (Lemire 2019); 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let threshold = end.wrapping_neg().checked_rem(end).unwrap_or(0);
        loop {
            let product = u128::from(self.0.next_u64()) * u128::from(end);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_below_a_bound_are_uniform() {
        let mut stream = RandomStream::new(1, "test");
        let mut counts = [0; 5];
        (0..10_000).for_each(|_| counts[stream.below(5) as usize] += 1);
        assert!(counts.iter().all(|count| (1900..2100).contains(count)), "{counts:?}");
        assert_eq!((stream.below(1), stream.below(0)), (0, 0));
    }

    #[test]
    fn normal_numbers_have_mean_0_and_deviation_1() {
        let mut stream = RandomStream::new(1, "test");
        let numbers: Vec<f64> = (0..10_000).flat_map(|_| stream.normal_pair()).collect();
        let mean = numbers.iter().sum::<f64>() / 20_000.0;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }
}
