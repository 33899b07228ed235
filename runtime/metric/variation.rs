//! How two sets of outputs vary over the samples, each around its own mean: what a common part of all outputs hides from
//! an error relative to their norm.

/// Sums over the samples of one output, taken relative to the first sample of each side, so that a large common part
/// costs no digits. Memory: four `f64` an element of a sample.
#[derive(Debug, Default)]
pub(super) struct VariationMeter {
    first: Option<[Vec<f64>; 2]>,
    sums: [Vec<f64>; 2],
    squares: [f64; 2],
    dot: f64,
    samples: u64,
    shapes_differ: bool,
}

/// Sums of products of what is left of each side when each element's mean over the samples is taken off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Variation {
    pub(super) squares_a: f64,
    pub(super) squares_b: f64,
    pub(super) dot: f64,
}

impl VariationMeter {
    /// Takes one sample of both sides, which have one length.
    pub(super) fn push(&mut self, a: &[f64], b: &[f64]) {
        let [first_a, first_b] = self.first.get_or_insert_with(|| {
            self.sums = [vec![0.0; a.len()], vec![0.0; b.len()]];
            [a.to_vec(), b.to_vec()]
        });
        if first_a.len() != a.len() {
            self.shapes_differ = true;
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

    /// The sums around the means; `None` with fewer than two samples, or samples of several shapes.
    pub(super) fn finish(&self) -> Option<Variation> {
        if self.samples < 2 || self.shapes_differ {
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
    /// Cosine of the angle between both sides; 0 when only the second does not vary, `None` when the first does not.
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
    fn a_common_part_of_all_samples_does_not_count() {
        let a = [[1e6, 2.0], [1e6 + 1.0, 2.0], [1e6 + 2.0, 2.0]];
        let seen = variation(&a, &a.map(|[x, y]| [x + 7.0, y])).unwrap();
        assert_eq!(seen, Variation { squares_a: 2.0, squares_b: 2.0, dot: 2.0 });
        assert_eq!(seen.correlation(), Some(1.0));
        let backwards = variation(&a, &[a[2], a[1], a[0]]).unwrap();
        assert_eq!(backwards.correlation(), Some(-1.0));
    }

    #[test]
    fn a_side_that_does_not_vary_correlates_with_nothing() {
        let (varied, same) = ([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0]; 2]);
        assert_eq!(variation(&varied, &same).unwrap().correlation(), Some(0.0));
        assert_eq!(variation(&same, &varied).unwrap().correlation(), None);
        assert_eq!(variation(&varied[..1], &varied[..1]), None);
    }

    #[test]
    fn samples_of_several_shapes_have_no_mean() {
        let mut meter = VariationMeter::default();
        meter.push(&[1.0, 2.0], &[1.0, 2.0]);
        meter.push(&[1.0], &[1.0]);
        meter.push(&[3.0, 4.0], &[3.0, 4.0]);
        assert_eq!(meter.finish(), None);
    }
}
