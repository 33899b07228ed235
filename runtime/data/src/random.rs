//! The random numbers of training: each stream depends only on seed, epoch, sample and purpose, so they are the same for any
//! number of workers and any order of reading.

use std::ops::Range;

use flagperf_core::hash::Seed;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// One pass of a training over its samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// The seed of the training.
    pub seed: u64,
    /// Number of the epoch, from 0.
    pub number: u64,
}

impl Epoch {
    /// Returns the stream of a purpose that concerns the whole epoch, or one of its samples.
    pub(crate) fn stream(self, purpose: &str, sample: u64) -> RandomStream {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        seed[8..16].copy_from_slice(&self.number.to_le_bytes());
        RandomStream(ChaCha8Rng::from_seed(Seed::from(seed).derive(purpose, sample).bytes()))
    }
}

/// A sample as it is read in an epoch: what the random transforms of a pipeline depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleDraw {
    /// Index of the sample in its dataset.
    pub sample: u64,
    pub epoch: Epoch,
}

impl SampleDraw {
    /// Returns the stream of the transform at a place in the pipeline.
    pub(crate) fn stream(&self, place: usize) -> RandomStream {
        let mut stream = self.epoch.stream("transforms", self.sample);
        stream.0.set_stream(place as u64);
        stream
    }
}

/// A stream of random numbers: ChaCha8 (Bernstein 2008).
pub(crate) struct RandomStream(ChaCha8Rng);

impl RandomStream {
    /// Draws a number uniformly from 0..1: a multiple of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws a number uniformly between two bounds.
    pub fn uniform(&mut self, (least, most): (f64, f64)) -> f64 {
        least + (most - least) * self.unit()
    }

    /// Draws a number whose logarithm is uniform between those of two bounds above 0.
    pub fn log_uniform(&mut self, (least, most): (f64, f64)) -> f64 {
        libm::exp(self.uniform((libm::log(least), libm::log(most))))
    }

    /// Returns true with a probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Draws a whole number uniformly from 0..`end`, which is above 0, by rejection (Lemire 2019).
    pub fn below(&mut self, end: usize) -> usize {
        let end = end as u64;
        let threshold = end.wrapping_neg() % end;
        loop {
            let product = u128::from(self.0.next_u64()) * u128::from(end);
            if product as u64 >= threshold {
                return (product >> 64) as usize;
            }
        }
    }

    /// Exchanges elements so that every order has the same probability (Fisher and Yates).
    pub fn shuffle<T>(&mut self, elements: &mut [T]) {
        for last in (1..elements.len()).rev() {
            elements.swap(last, self.below(last + 1));
        }
    }

    /// Draws a place for `part` in `whole`, both in pixels: the range that it covers.
    pub fn place(&mut self, part: usize, whole: usize) -> Range<usize> {
        let start = self.below(whole - part + 1);
        start..start + part
    }

    /// Draws a normal number with mean 0 and standard deviation 1 (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        radius * libm::cos(2.0 * std::f64::consts::PI * self.unit())
    }

    /// Draws from the beta distribution with both parameters `alpha`, which is above 0.
    pub fn beta(&mut self, alpha: f64) -> f64 {
        let (one, other) = (self.log_gamma(alpha), self.log_gamma(alpha));
        // In logarithms, because for a small `alpha` both numbers may be below the smallest of f64.
        1.0 / (1.0 + libm::exp(other - one))
    }

    /// Draws the logarithm of a gamma number (Marsaglia and Tsang 2000).
    fn log_gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            return self.log_gamma(shape + 1.0) + libm::log(1.0 - self.unit()) / shape;
        }
        let scaled = shape - 1.0 / 3.0;
        loop {
            let normal = self.normal();
            let cube = (1.0 + normal / (9.0 * scaled).sqrt()).powi(3);
            if cube <= 0.0 {
                continue;
            }
            let log_unit = libm::log(1.0 - self.unit());
            if log_unit < 0.5 * normal * normal + scaled * (1.0 - cube + libm::log(cube)) {
                return libm::log(scaled * cube);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> RandomStream {
        Epoch { seed: 3, number: 1 }.stream("test", 0)
    }

    #[test]
    fn a_stream_depends_on_seed_epoch_sample_and_place_only() {
        let first =
            |seed, number, sample, place| SampleDraw { sample, epoch: Epoch { seed, number } }.stream(place).unit();
        let numbers = [first(1, 2, 3, 4), first(0, 2, 3, 4), first(1, 0, 3, 4), first(1, 2, 0, 4), first(1, 2, 3, 0)];
        assert_eq!(numbers[0], first(1, 2, 3, 4));
        assert!(numbers[1..].iter().all(|number| *number != numbers[0]), "{numbers:?}");
    }

    #[test]
    fn shuffled_elements_have_every_place_equally_often() {
        let mut random = stream();
        let mut counts = [[0; 4]; 4];
        for _ in 0..4000 {
            let mut order = [0, 1, 2, 3];
            random.shuffle(&mut order);
            order.iter().enumerate().for_each(|(place, element)| counts[place][*element] += 1);
        }
        assert!(counts.iter().flatten().all(|count| (900..1100).contains(count)), "{counts:?}");
    }

    #[test]
    fn beta_numbers_have_the_mean_and_the_variance_of_the_distribution() {
        for alpha in [0.2, 1.0, 2.5] {
            let mut random = stream();
            let numbers: Vec<f64> = (0..20_000).map(|_| random.beta(alpha)).collect();
            let mean = numbers.iter().sum::<f64>() / 20_000.0;
            let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / 20_000.0;
            let expected = 0.25 / (2.0 * alpha + 1.0);
            assert!(
                (mean - 0.5).abs() < 0.01 && (variance / expected - 1.0).abs() < 0.05,
                "{alpha}: {mean} {variance}"
            );
        }
        assert!((0..1000).all(|_| (0.0..=1.0).contains(&stream().beta(1e-6))));
    }
}
