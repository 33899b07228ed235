//! The ratio of two speeds, with its confidence interval.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Probability with which an interval contains the ratio of two endless measurements, unless another one is asked for. It is also that
/// of the interval of a throughput.
pub const CONFIDENCE: f64 = 0.95;

/// The ratio of two throughputs, the second by the first, with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RatioInterval {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
    /// Number of pairs of blocks that were measured one after the other, each of which is an observation; 0 if the sides were measured at
    /// different times.
    pub pairs: usize,
}

/// What the interval of a ratio says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SpeedVerdict {
    /// The second side is faster.
    Faster,
    /// The second side is slower.
    Slower,
    /// The interval contains 1.
    NoDifferenceSeen,
}

impl RatioInterval {
    /// Returns the interval of the ratio of figures that are positive, of the blocks or runs of two sides: pairs if they were measured in
    /// turns.
    pub(super) fn of_blocks([first, second]: [&[f64]; 2], interleaved: bool, confidence: f64) -> Option<Self> {
        if !interleaved {
            return RatioInterval::of_repeats([first, second], confidence);
        }
        let pairs: Vec<[f64; 2]> = first.iter().zip(second).map(|(first, second)| [*first, *second]).collect();
        RatioInterval::of_pairs(&pairs, confidence)
    }

    /// Returns the interval of the ratio of throughputs that were measured in pairs of blocks. The logarithms of the ratios
    /// are the observations, because a ratio and its inverse deviate alike; their mean has Student's interval. `None` with
    /// fewer than two pairs, or a throughput that is not positive.
    pub fn of_pairs(pairs: &[[f64; 2]], confidence: f64) -> Option<Self> {
        let logarithms: Vec<f64> = pairs.iter().map(|[first, second]| (second / first).ln()).collect();
        let Sample { mean, squared_error, degrees_of_freedom } = Sample::of(&logarithms)?;
        let half_width = student_quantile(degrees_of_freedom, confidence) * squared_error.sqrt();
        Some(RatioInterval::around(mean, half_width, pairs.len()))
    }

    /// Returns the interval of the ratio of throughputs that were measured several times at each side, at different times: Welch's
    /// interval of the logarithms (Welch 1947, "The generalization of Student's problem"). `None` with fewer than two of a side.
    pub fn of_repeats(sides: [&[f64]; 2], confidence: f64) -> Option<Self> {
        let [first, second] = sides.map(|side| Sample::of(&side.iter().map(|figure| figure.ln()).collect::<Vec<_>>()));
        let (first, second) = (first?, second?);
        let squared_error = first.squared_error + second.squared_error;
        let parts =
            [first, second].map(|side| side.squared_error.powi(2) / side.degrees_of_freedom).iter().sum::<f64>();
        // Throughputs that are equal to the last digit have no error.
        let degrees_of_freedom = if parts > 0.0 { squared_error.powi(2) / parts } else { 1.0 };
        let half_width = student_quantile(degrees_of_freedom, confidence) * squared_error.sqrt();
        Some(RatioInterval::around(second.mean - first.mean, half_width, 0))
    }

    /// Returns the interval of the ratio of two throughputs that were measured at different times, from the relative half
    /// widths of their own intervals. How the machine changed in between is not in it.
    pub fn of_intervals(
        [first, second]: [f64; 2],
        [first_width, second_width]: [f64; 2],
        confidence: f64,
    ) -> Option<Self> {
        let quantile = |confidence: f64| Normal::standard().inverse_cdf(0.5 + confidence / 2.0);
        let width = first_width.hypot(second_width) * quantile(confidence) / quantile(CONFIDENCE);
        let mean = (second / first).ln();
        (mean.is_finite() && width.is_finite()).then(|| RatioInterval::around(mean, width, 0))
    }

    fn around(mean: f64, half_width: f64, pairs: usize) -> Self {
        RatioInterval { ratio: mean.exp(), low: (mean - half_width).exp(), high: (mean + half_width).exp(), pairs }
    }

    /// Returns whether this interval shows that the second side is slower than the first by more than this percentage.
    pub fn is_slower_by(&self, percent: f64) -> bool {
        self.high < 1.0 - percent / 100.0
    }

    /// Returns whether the second side is faster, slower, or neither as far as this interval shows.
    pub fn verdict(&self) -> SpeedVerdict {
        match () {
            () if self.low > 1.0 => SpeedVerdict::Faster,
            () if self.high < 1.0 => SpeedVerdict::Slower,
            () => SpeedVerdict::NoDifferenceSeen,
        }
    }
}

/// The mean of observations.
#[derive(Clone, Copy)]
struct Sample {
    mean: f64,
    /// The square of the standard error of the mean.
    squared_error: f64,
    degrees_of_freedom: f64,
}

impl Sample {
    /// Returns the mean of at least two finite observations.
    fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        if values.len() < 2 || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Some(Sample { mean, squared_error: variance / count, degrees_of_freedom: count - 1.0 })
    }
}

pub(super) fn geometric_mean(figures: &[f64]) -> f64 {
    (figures.iter().map(|figure| figure.ln()).sum::<f64>() / figures.len() as f64).exp()
}

/// Returns half the width of an interval in standard errors.
pub(super) fn student_quantile(degrees_of_freedom: f64, confidence: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, degrees_of_freedom);
    student.map_or(f64::INFINITY, |student| student.inverse_cdf(0.5 + confidence / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students_of_the_logarithms() {
        // Ratios 1.0, 1.1, 1.2; t(0.975; 2) = 4.302653.
        let found = RatioInterval::of_pairs(&[[10.0, 10.0], [10.0, 11.0], [10.0, 12.0]], CONFIDENCE).unwrap();
        let logarithms = [0.0, 1.1f64.ln(), 1.2f64.ln()];
        let mean = logarithms.iter().sum::<f64>() / 3.0;
        let deviation = (logarithms.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
        let half_width = 4.302_653 * deviation / 3f64.sqrt();
        assert!((found.ratio - mean.exp()).abs() < 1e-12 && found.pairs == 3);
        assert!((found.high - (mean + half_width).exp()).abs() < 1e-6, "{found:?}");
        assert_eq!(found.verdict(), SpeedVerdict::NoDifferenceSeen);
    }

    #[test]
    fn one_pair_and_a_throughput_of_zero_have_no_interval() {
        assert_eq!(RatioInterval::of_pairs(&[[1.0, 2.0]], CONFIDENCE), None);
        assert_eq!(RatioInterval::of_pairs(&[[1.0, 2.0], [0.0, 2.0]], CONFIDENCE), None);
        assert_eq!(RatioInterval::of_repeats([&[1.0, 2.0], &[1.0]], CONFIDENCE), None);
    }

    #[test]
    fn the_verdict_says_on_which_side_of_one_the_interval_is() {
        let verdict = |pairs: &[[f64; 2]]| RatioInterval::of_pairs(pairs, CONFIDENCE).unwrap().verdict();
        assert_eq!(verdict(&[[10.0, 11.0], [10.0, 11.1], [10.0, 10.9]]), SpeedVerdict::Faster);
        assert_eq!(verdict(&[[11.0, 10.0], [11.1, 10.0], [10.9, 10.0]]), SpeedVerdict::Slower);
        let apart = RatioInterval::of_intervals([10.0, 10.3], [0.03, 0.04], CONFIDENCE).unwrap();
        assert!((apart.high - 1.03 * 0.05f64.exp()).abs() < 1e-9 && apart.pairs == 0);
        assert_eq!(apart.verdict(), SpeedVerdict::NoDifferenceSeen);
        // The quantiles of the normal distribution are 1.6449 and 1.9600.
        let narrower = RatioInterval::of_intervals([10.0, 10.3], [0.03, 0.04], 0.9).unwrap();
        assert!((narrower.high - 1.03 * (0.05f64 * 1.644_854 / 1.959_964).exp()).abs() < 1e-6, "{narrower:?}");
    }

    #[test]
    fn the_interval_of_repeats_is_welchs() {
        // Welch's degrees of freedom are 2.935140, and t(0.975; 2.935140) = 3.222603.
        let found = RatioInterval::of_repeats([&[9.0, 10.0, 11.0], &[20.0, 22.0]], CONFIDENCE).unwrap();
        let [first, second] = [[9f64, 10.0, 11.0].map(f64::ln).to_vec(), [20f64, 22.0].map(f64::ln).to_vec()];
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        assert!((found.ratio - (mean(&second) - mean(&first)).exp()).abs() < 1e-12);
        assert!((found.low - 1.652_616).abs() < 1e-5 && (found.high - 2.680_344).abs() < 1e-5, "{found:?}");
        assert_eq!(found.verdict(), SpeedVerdict::Faster);
        let wider = RatioInterval::of_repeats([&[9.0, 10.0, 11.0], &[20.0, 22.0]], 0.999).unwrap();
        assert!(wider.low < found.low && wider.high > found.high, "{wider:?}");
        let equal = RatioInterval::of_repeats([&[2.0, 2.0], &[2.0, 2.0]], CONFIDENCE).unwrap();
        assert_eq!((equal.low, equal.high), (1.0, 1.0));
    }

    #[test]
    fn a_slowdown_is_one_only_if_the_whole_interval_is_beyond_it() {
        let found = RatioInterval { ratio: 0.97, low: 0.96, high: 0.985, pairs: 8 };
        assert_eq!([0.0, 1.0, 2.0].map(|percent| found.is_slower_by(percent)), [true, true, false]);
    }

    #[test]
    fn a_false_alarm_is_as_rare_as_the_confidence_says() {
        // Throughputs that drift from pair to pair and vary by a few percent within a pair, from a seeded generator.
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
        };
        let trials = 2000;
        let alarms = (0..trials).filter(|_| {
            let pairs: Vec<[f64; 2]> = (0..8)
                .map(|_| {
                    let drift = 100.0 * (1.0 + uniform());
                    [drift * (1.0 + 0.06 * uniform()), drift * (1.0 + 0.06 * uniform())]
                })
                .collect();
            RatioInterval::of_pairs(&pairs, CONFIDENCE).unwrap().verdict() != SpeedVerdict::NoDifferenceSeen
        });
        let share = alarms.count() as f64 / f64::from(trials);
        assert!((0.035..=0.065).contains(&share), "{share}");
    }
}
