//! How two sets of outputs vary over the samples, each around its own mean. A relative error does not show this when
//! most of each output is common to all samples.

/// Sums over the samples of one output. They are relative to the first sample of each side, so that a large common part
/// does not reduce precision. Holds four `f64` per element of a sample in memory.
#[derive(Debug, Default)]
pub(super) struct VariationMeter {
    first: Option<[Vec<f64>; 2]>,
    sums: [Vec<f64>; 2],
    squares: [f64; 2],
    dot: f64,
    samples: u64,
    lengths_differ: bool,
}

/// Sums of products of both sides after subtracting each element's mean over the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Variation {
    pub(super) squares_a: f64,
    pub(super) squares_b: f64,
    pub(super) dot: f64,
}

impl VariationMeter {
    /// Adds one sample of both sides, which must have the same length.
    pub(super) fn push(&mut self, a: &[f64], b: &[f64]) {
        let [first_a, first_b] = self.first.get_or_insert_with(|| {
            self.sums = [vec![0.0; a.len()], vec![0.0; b.len()]];
            [a.to_vec(), b.to_vec()]
        });
        if first_a.len() != a.len() {
            self.lengths_differ = true;
            return;
        }
        self.samples += 1;
        let [sums_a, sums_b] = &mut self.sums;
        for (index, (a, b)) in a.iter().zip(b).enumerate() {
            let (a, b) = (a - first_a[index], b - first_b[index]);
            sums_a[index] += a;
            sums_b[index] += b;
            self.squares[0] += a * a;
            self.squares[1] += b * b;
            self.dot += a * b;
        }
    }

    /// Returns the sums around the means; `None` with fewer than two samples or with samples of different lengths.
    pub(super) fn finish(&self) -> Option<Variation> {
        if self.samples < 2 || self.lengths_differ {
            return None;
        }
        let [a, b] = &self.sums;
        let of_means = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / self.samples as f64;
        Some(Variation {
            squares_a: (self.squares[0] - of_means(a, a)).max(0.0),
            squares_b: (self.squares[1] - of_means(b, b)).max(0.0),
            dot: self.dot - of_means(a, b),
        })
    }
}

impl Variation {
    /// Returns the cosine similarity of both sides; 0 when only the second one does not vary, `None` when the first one
    /// does not.
    pub(super) fn correlation(self) -> Option<f64> {
        let norms = (self.squares_a * self.squares_b).sqrt();
        (self.squares_a > 0.0).then(|| if norms > 0.0 { (self.dot / norms).clamp(-1.0, 1.0) } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variation(a: &[[f64; 2]], b: &[[f64; 2]]) -> Option<Variation> {
        let mut meter = VariationMeter::default();
        a.iter().zip(b).for_each(|(a, b)| meter.push(a, b));
        meter.finish()
    }

    #[test]
    fn a_part_common_to_all_samples_has_no_effect() {
        let a = [[1e6, 2.0], [1e6 + 1.0, 2.0], [1e6 + 2.0, 2.0]];
        let shifted = variation(&a, &a.map(|[x, y]| [x + 7.0, y])).unwrap();
        assert_eq!(shifted, Variation { squares_a: 2.0, squares_b: 2.0, dot: 2.0 });
        assert_eq!(shifted.correlation(), Some(1.0));
        let reversed = variation(&a, &[a[2], a[1], a[0]]).unwrap();
        assert_eq!(reversed.correlation(), Some(-1.0));
    }

    #[test]
    fn a_side_that_does_not_vary_has_no_correlation() {
        let (varied, same) = ([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0]; 2]);
        assert_eq!(variation(&varied, &same).unwrap().correlation(), Some(0.0));
        assert_eq!(variation(&same, &varied).unwrap().correlation(), None);
        assert_eq!(variation(&varied[..1], &varied[..1]), None);
    }

    #[test]
    fn samples_of_different_lengths_have_no_variation() {
        let mut meter = VariationMeter::default();
        meter.push(&[1.0, 2.0], &[1.0, 2.0]);
        meter.push(&[1.0], &[1.0]);
        meter.push(&[3.0, 4.0], &[3.0, 4.0]);
        assert_eq!(meter.finish(), None);
    }
}
