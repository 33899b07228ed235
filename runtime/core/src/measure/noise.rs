//! Seeded random series for the tests of intervals and of changes.

use std::f64::consts::PI;

/// A generator of random numbers (SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
pub(super) struct Noise {
    state: u64,
}

impl Noise {
    pub(super) fn new(seed: u64) -> Self {
        Noise { state: seed }
    }

    /// Returns a number that is uniform from 0 to 1.
    pub(super) fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number with the standard normal distribution (Box and Muller, 1958).
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (2.0 * PI * self.uniform()).cos()
    }

    /// Returns a stationary first-order autoregression with the standard deviation 1.
    pub(super) fn autoregression(&mut self, correlation: f64, length: usize) -> Vec<f64> {
        let innovation = (1.0 - correlation * correlation).sqrt();
        let mut value = self.normal();
        let mut next = || {
            value = correlation * value + innovation * self.normal();
            value
        };
        (0..length).map(|_| next()).collect()
    }
}
