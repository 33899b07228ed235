//! The variance of the mean of observations that correlate with each other.

use std::f64::consts::PI;

/// Most cosines. More make an interval hardly narrower (Student's t is 2.09 with 20 and 1.96 with any number), and cover less often
/// where a slow variation hides behind a fast one.
const COSINES_MAX: usize = 20;
/// Fewest cosines. With one, Student's t is 12.7, and an interval says nothing.
const COSINES_MIN: usize = 2;
/// Largest share by which the cosines may underestimate the variance of a first-order autoregression.
const BIAS_MAX: f64 = 0.05;
/// Largest autocorrelation that is assumed.
const CORRELATION_MAX: f64 = 0.999;

/// The long-run variance of a series: the number of observations times the variance of their mean.
///
/// It is the mean of the squares of the first B coefficients of the discrete cosine transform of the residuals, so that the mean divided by
/// its standard error has Student's t distribution with B degrees of freedom: Lazarus, Lewis, Stock and Watson, "HAR inference:
/// recommendations for practice", Journal of Business & Economic Statistics 36, 2018, section 3.2. If B is the number of observations less
/// one, this is the sample variance, and the interval is Student's.
///
/// B follows from the correlation r of neighbours. The spectrum of a first-order autoregression is lower at the frequency of the j-th
/// cosine than at zero, by the share r (πj/n)² / (1 − r)² for small j. B is the largest number for which the mean of these shares is at
/// most 5 %, from 2 to 20.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LongRunVariance {
    /// Estimate of the variance, in the square of the unit of the observations.
    pub(super) variance: f64,
    /// Degrees of freedom of the estimate.
    pub(super) degrees_of_freedom: usize,
}

impl LongRunVariance {
    /// Estimates the variance from at least two residuals, in order, whose mean is zero. `fitted` is the number of parameters besides the
    /// mean that were fitted to the observations: each of them absorbs one of the cosines. `None` if the parameters absorb all.
    pub(super) fn of(residuals: &[f64], fitted: usize) -> Option<Self> {
        let count = residuals.len();
        let cosines = cosines(neighbour_correlation(residuals, fitted), count).min(count.checked_sub(1)?);
        let degrees_of_freedom = cosines.checked_sub(fitted).filter(|degrees| *degrees > 0)?;
        let sum: f64 = (1..=cosines).map(|index| coefficient(residuals, index).powi(2)).sum();
        Some(LongRunVariance { variance: sum / degrees_of_freedom as f64, degrees_of_freedom })
    }
}

/// Returns the number of cosines for observations whose neighbours correlate by `correlation`.
fn cosines(correlation: f64, count: usize) -> usize {
    if correlation <= 0.0 {
        return COSINES_MAX;
    }
    // The mean of j² up to B is near B²/3.
    let unbiased = count as f64 * (1.0 - correlation) / PI * (3.0 * BIAS_MAX / correlation).sqrt();
    (unbiased as usize).clamp(COSINES_MIN, COSINES_MAX)
}

/// Returns the correlation of neighbours. The estimate from n residuals is too small by (1 + 3r)/n for each fitted parameter, the mean
/// included (Kendall, "Note on bias in the estimation of autocorrelation", Biometrika 41, 1954), which is added.
pub(super) fn neighbour_correlation(residuals: &[f64], fitted: usize) -> f64 {
    let squares: f64 = residuals.iter().map(|residual| residual * residual).sum();
    if squares <= 0.0 {
        return 0.0;
    }
    let products: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let correlation = products / squares;
    let bias = (1.0 + 3.0 * correlation) * (fitted + 1) as f64 / residuals.len() as f64;
    (correlation + bias).min(CORRELATION_MAX)
}

/// Returns a coefficient of the discrete cosine transform of some values: √(2/n) Σ x(i) cos(π index (i + ½) / n).
fn coefficient(values: &[f64], index: usize) -> f64 {
    let count = values.len();
    let sum: f64 = values.iter().enumerate().map(|(i, value)| value * cosine(index * (2 * i + 1), count)).sum();
    (2.0 / count as f64).sqrt() * sum
}

/// Returns cos(π `numerator` / (2 `count`)) by additions and multiplications alone. The functions of the standard library differ in the last
/// digit from machine to machine, and `verify` must find the same figures on each.
fn cosine(numerator: usize, count: usize) -> f64 {
    let turn = 4 * count;
    let folded = numerator % turn;
    let half = folded.min(turn - folded);
    let (sign, quarter) = if half > count { (-1.0, 2 * count - half) } else { (1.0, half) };
    // An angle above an eighth of a turn is computed by the sine of what is left to a quarter.
    let is_small = 2 * quarter <= count;
    let angle = PI * if is_small { quarter } else { count - quarter } as f64 / (2 * count) as f64;
    let square = angle * angle;
    let series = |first: f64, start: f64| {
        let terms = (0..7).map(|term| start + 2.0 * f64::from(term));
        let next = |(sum, last): (f64, f64), n: f64| (sum + last, -last * square / (n * (n + 1.0)));
        terms.fold((0.0, first), next).0
    };
    sign * if is_small { series(1.0, 1.0) } else { series(angle, 2.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_are_those_of_the_standard_library() {
        for count in [1, 2, 3, 7, 40, 1000] {
            for numerator in 0..9 * count {
                let expected = (PI * numerator as f64 / (2.0 * count as f64)).cos();
                let found = cosine(numerator, count);
                assert!((found - expected).abs() < 1e-11, "{numerator} of {count}: {found} for {expected}");
            }
        }
    }

    #[test]
    fn with_all_cosines_the_variance_is_that_of_the_sample() {
        let residuals = [0.5, -1.0, 0.75, -0.5, 0.25];
        let expected = residuals.iter().map(|residual| residual * residual).sum::<f64>() / 4.0;
        let found = LongRunVariance::of(&residuals, 0).unwrap();
        assert!((found.variance - expected).abs() < 1e-12 && found.degrees_of_freedom == 4, "{found:?}");
    }

    #[test]
    fn the_number_of_cosines_falls_with_the_correlation() {
        let numbers = [-0.5, 0.0, 0.5, 0.9, 0.99, 1.0].map(|correlation| cosines(correlation, 1000));
        assert_eq!(numbers, [20, 20, 20, 12, 2, 2]);
        let residuals: Vec<f64> = (0..40).map(|index| f64::from(index) - 19.5).collect();
        assert_eq!(LongRunVariance::of(&residuals, 0).unwrap().degrees_of_freedom, 2);
        assert_eq!(LongRunVariance::of(&residuals, 2), None, "both cosines are absorbed");
    }

    #[test]
    fn residuals_of_zero_have_no_variance_and_one_residual_has_no_estimate() {
        assert_eq!(LongRunVariance::of(&[0.0; 30], 0).unwrap().variance, 0.0);
        assert_eq!(LongRunVariance::of(&[0.0], 0), None);
        assert_eq!(LongRunVariance::of(&[], 0), None);
    }
}
