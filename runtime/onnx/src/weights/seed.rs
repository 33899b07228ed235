//! Random weights that are the same on every machine.
//!
//! Each weight has its own [`RandomStream`], named after the weight, so that a weight does not depend on the other
//! weights of the graph.

use crate::{Init, RandomStream};

/// Returns the values of a weight in row-major order; `None` when there is not enough memory.
pub(super) fn random_values(seed: u64, name: &str, init: Init, count: usize) -> Option<Vec<f32>> {
    let mut stream = RandomStream::new(seed, name);
    let mut values = Vec::new();
    values.try_reserve_exact(count).ok()?;
    match init {
        Init::Constant(value) => values.resize(count, value),
        Init::Uniform { bound } => values.extend((0..count).map(|_| (2.0 * stream.unit_f32() - 1.0) * bound)),
        Init::Normal { std } => values.extend((0..count).map(|_| normal(&mut stream) * std)),
    }
    Some(values)
}

/// Draws a nearly normal number with mean 0 and standard deviation 1, never beyond ±6: the sum of twelve uniform
/// numbers (Irwin-Hall distribution), minus 6.
fn normal(stream: &mut RandomStream) -> f32 {
    (0..12).map(|_| stream.unit_f32()).sum::<f32>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_depend_only_on_seed_and_name() {
        let values = |seed, name, count| random_values(seed, name, Init::Uniform { bound: 1.0 }, count).unwrap();
        let first = values(7, "conv1.weight", 3);
        assert_eq!(first, values(7, "conv1.weight", 4)[..3]);
        assert_ne!(first, values(8, "conv1.weight", 3));
        assert_ne!(first, values(7, "conv2.weight", 3));
    }

    #[test]
    fn a_weight_that_exceeds_the_memory_does_not_abort_the_process() {
        for init in [Init::Constant(1.0), Init::Uniform { bound: 1.0 }, Init::Normal { std: 1.0 }] {
            assert_eq!(random_values(1, "w", init, usize::MAX / 4), None);
        }
    }

    #[test]
    fn the_values_have_the_requested_distribution() {
        let uniform = random_values(1, "w", Init::Uniform { bound: 0.5 }, 10_000).unwrap();
        assert!(uniform.iter().all(|x| x.abs() <= 0.5));
        let normal = random_values(1, "w", Init::Normal { std: 2.0 }, 10_000).unwrap();
        for (values, deviation) in [(uniform, 0.5 / 3f64.sqrt()), (normal, 2.0)] {
            let mean = values.iter().map(|x| f64::from(*x)).sum::<f64>() / values.len() as f64;
            let square = values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / values.len() as f64;
            assert!(mean.abs() < 0.05 * deviation, "{mean}");
            assert!((square.sqrt() / deviation - 1.0).abs() < 0.05, "{square}");
        }
    }
}
