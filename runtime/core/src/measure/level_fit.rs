//! The curve that fits the level of a series best, and whether chance explains it.

use super::long_run_variance::{LongRunVariance, neighbour_correlation};

/// Smallest share of the values on each side of a change of the level.
const SHARE_MIN: f64 = 0.05;
/// Fewest values on each side of a change of the level.
const VALUES_MIN: usize = 5;
/// Fewest degrees of freedom of the long-run variance with which a test says something.
const DEGREES_MIN: usize = 4;
/// Most terms of the series of a probability. Later ones are below 1e-9 for every statistic that is significant.
const TERMS_MAX: usize = 200;

/// A curve for the level of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Another level from this index on.
    Level(usize),
    /// Another level from the first index until before the second one.
    Interval(usize, usize),
    /// A straight line.
    Drift,
}

impl Fit {
    /// Returns the number of parameters besides the mean.
    fn parameters(self) -> usize {
        match self {
            Fit::Drift => 1,
            Fit::Level(_) => 2,
            Fit::Interval(..) => 3,
        }
    }
}

/// The curve that fits a series best, with the test of [`super::StepTimeChange`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LevelFit {
    /// The curve.
    pub(super) fit: Fit,
    /// Probability of the deviation of the cumulative sums in a series whose level does not change.
    pub(super) p_value: f64,
}

impl LevelFit {
    /// Fits the curves to at least 20 values, in order. `None` if the values are equal or correlate too much to show anything.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let mut sums = vec![0.0];
        for value in values {
            sums.push(sums[sums.len() - 1] + value - mean);
        }
        let fits = candidates(&sums)?.map(|fit| (fit, residuals(values, fit)));
        let correlation = fits.iter().map(|(_, residuals)| neighbour_correlation(residuals, 0)).fold(0.0, f64::max);
        let correlation = correlation.min(0.99);
        let independent = (count * (1.0 - correlation) / (1.0 + correlation)).max(2.0);
        // Schwarz, "Estimating the dimension of a model", Annals of Statistics 6, 1978.
        let criterion = |(fit, residuals): &(Fit, Vec<f64>)| {
            independent * squares(residuals).ln() + fit.parameters() as f64 * independent.ln()
        };
        let (fit, residuals) = fits.into_iter().min_by(|a, b| criterion(a).total_cmp(&criterion(b)))?;
        let LongRunVariance { variance, degrees_of_freedom } = LongRunVariance::of(&residuals, fit.parameters())?;
        if degrees_of_freedom < DEGREES_MIN || sums.iter().all(|sum| *sum == 0.0) {
            return None;
        }
        let statistic = deviation(&sums, fit) / (count * variance).sqrt();
        let p_value = probability(statistic, degrees_of_freedom, matches!(fit, Fit::Interval(..)));
        Some(LevelFit { fit, p_value })
    }
}

/// Returns the best level, the best interval, and the line. `sums` are the cumulative sums of the values less their mean, from 0.
fn candidates(sums: &[f64]) -> Option<[Fit; 3]> {
    let count = sums.len() - 1;
    let least = ((SHARE_MIN * count as f64).ceil() as usize).max(VALUES_MIN);
    let is_long = |length: usize| length == 0 || length >= least;
    // The squares that a level within a range explains.
    let explained = |begin: usize, end: usize| {
        let length = end - begin;
        (sums[end] - sums[begin]).powi(2) / (length as f64 * (count - length) as f64)
    };
    let (mut level, mut interval) = ((0.0, None), (0.0, None));
    for begin in (0..count).filter(|begin| is_long(*begin)) {
        for end in (begin + least..=count).filter(|end| is_long(count - end) && end - begin + least <= count) {
            let gain = explained(begin, end);
            if gain > interval.0 {
                interval = (gain, Some(Fit::Interval(begin, end)));
            }
            if end == count && gain > level.0 {
                level = (gain, Some(Fit::Level(begin)));
            }
        }
    }
    Some([level.1?, interval.1?, Fit::Drift])
}

fn residuals(values: &[f64], fit: Fit) -> Vec<f64> {
    let count = values.len();
    let (begin, end) = match fit {
        Fit::Level(begin) => (begin, count),
        Fit::Interval(begin, end) => (begin, end),
        Fit::Drift => return line_residuals(values),
    };
    let inside = values[begin..end].iter().sum::<f64>();
    let outside = (values.iter().sum::<f64>() - inside) / (count - (end - begin)) as f64;
    let inside = inside / (end - begin) as f64;
    let level = |index: usize| if (begin..end).contains(&index) { inside } else { outside };
    values.iter().enumerate().map(|(index, value)| value - level(index)).collect()
}

fn line_residuals(values: &[f64]) -> Vec<f64> {
    let count = values.len() as f64;
    let (mean, centre) = (values.iter().sum::<f64>() / count, (count - 1.0) / 2.0);
    let places = || (0..values.len()).map(|index| index as f64 - centre);
    let slope = values.iter().zip(places()).map(|(value, place)| value * place).sum::<f64>()
        / (count * (count * count - 1.0) / 12.0);
    values.iter().zip(places()).map(|(value, place)| value - mean - slope * place).collect()
}

fn squares(residuals: &[f64]) -> f64 {
    residuals.iter().map(|residual| residual * residual).sum()
}

/// Returns the deviation of the cumulative sums that a curve stands for.
fn deviation(sums: &[f64], fit: Fit) -> f64 {
    match fit {
        Fit::Level(begin) => sums[begin].abs(),
        Fit::Interval(begin, end) => (sums[end] - sums[begin]).abs(),
        Fit::Drift => sums.iter().fold(0.0, |most, sum| sum.abs().max(most)),
    }
}

/// Returns the probability that a Brownian bridge, divided by the root of an independent chi-square variable with some degrees of freedom
/// over these degrees, deviates by more than `statistic`: its largest absolute value, or its range.
///
/// For the bridge alone, these are Kolmogorov's 2 Σ (−1)^(k−1) exp(−2k²x²) and Kuiper's 2 Σ (4k²x² − 1) exp(−2k²x²), for k from 1. With
/// a = 2k²x² and the chi-square variable s over its n degrees, the expectation of exp(−a s) is (1 + 2a/n)^(−n/2), and that of
/// s exp(−a s) is (1 + 2a/n)^(−n/2 − 1).
fn probability(statistic: f64, degrees: usize, is_range: bool) -> f64 {
    let mut sum = 0.0;
    for k in 1..=TERMS_MAX {
        let a = 2.0 * (k as f64 * statistic).powi(2);
        let base = 1.0 / (1.0 + 2.0 * a / degrees as f64);
        // A product has the same digits on every machine, which a power need not have.
        let power = (0..degrees).fold(1.0, |power, _| power * base.sqrt());
        sum += match (is_range, k % 2) {
            (true, _) => 2.0 * a * power * base - power,
            (false, 1) => power,
            (false, _) => -power,
        };
    }
    (2.0 * sum).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_many_degrees_of_freedom_the_probabilities_are_those_of_kolmogorov_and_kuiper() {
        // The 1 % points: 1.6276 (Smirnov, Annals of Mathematical Statistics 19, 1948) and 2.001 (Stephens, Biometrika 52, 1965).
        assert!((probability(1.6276, 5_000, false) - 0.01).abs() < 2e-4);
        assert!((probability(2.001, 5_000, true) - 0.01).abs() < 2e-4);
        assert!(probability(1.6276, 5, false) > 0.05, "an estimated variance makes large deviations likelier");
    }

    #[test]
    fn the_curve_that_made_the_values_is_selected() {
        let wave = |index: usize| [0.3, -0.2, 0.1, -0.3, 0.2, -0.1, 0.0][index % 7];
        let fit = |level: fn(usize) -> f64| {
            let values: Vec<f64> = (0..100).map(|index| level(index) + wave(index)).collect();
            let found = LevelFit::of(&values).unwrap();
            (found.fit, found.p_value < 1e-3)
        };
        assert_eq!(fit(|index| if index < 40 { 0.0 } else { 2.0 }), (Fit::Level(40), true));
        assert_eq!(fit(|index| if (40..70).contains(&index) { 2.0 } else { 0.0 }), (Fit::Interval(40, 70), true));
        assert_eq!(fit(|index| index as f64 / 20.0).0, Fit::Drift);
        assert!(!fit(|_| 0.0).1);
    }

    #[test]
    fn equal_values_have_no_fit() {
        assert_eq!(LevelFit::of(&[1.0; 50]), None);
    }
}
