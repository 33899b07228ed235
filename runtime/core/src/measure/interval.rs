//! The confidence interval of a throughput: how far the figure of another run of the same length may be from this one.
//!
//! It is the interval of a ratio, because passes differ in samples and in time. With fewer than three passes, steps are the
//! observations. It allows for the correlation of successive observations: a machine that is slow now is slow in the next step, too.
//!
//! Of 1,000 intervals of steps whose times are a first-order autoregression with the correlation 0, 0.5 and 0.9, these contain the true
//! throughput (in brackets those of Student's interval of 20 batches, or of the passes, which this one replaced):
//!
//! | steps | passes | 0 | 0.5 | 0.9 |
//! |---|---|---|---|---|
//! | 40 | 1 | 953 (945) | 924 (829) | 897 (416) |
//! | 200 | 1 | 943 (952) | 938 (934) | 932 (764) |
//! | 1,000 | 1 | 948 (956) | 945 (952) | 937 (924) |
//! | 40 | 5 | 967 (947) | 957 (932) | 869 (770) |
//! | 200 | 5 | 967 (952) | 966 (947) | 957 (928) |
//! | 400 | 40 | 951 (952) | 952 (923) | 934 (772) |
//! | 5,000 | 500 | 953 (945) | 952 (935) | 950 (768) |
//!
//! No method covers with few independent observations: of 40 steps with the correlation 0.99, 555 of 1,000 intervals contain the true
//! throughput (145 of Student's). The stationary bootstrap of Politis and Romano (1994) with the block length of Politis and White (2004)
//! covers less: with 0.5, 780 for 40 steps and 865 for 200 steps; with 0.9, 475 and 785.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::StepTimes;
use super::long_run_variance::LongRunVariance;
use crate::units::{SamplesPerSecond, Seconds};

/// Probability with which an interval contains the throughput of an endless run.
const CONFIDENCE: f64 = 0.95;
/// Number of passes from which each pass is one observation. With two, Student's t is 12.7, and the interval says nothing.
const PASSES_MIN: usize = 3;
/// Smallest number of steps that have an interval.
const STEPS_MIN: usize = 4;
/// Largest number of observations, which bounds the time of the computation. More passes or steps are joined to groups of successive
/// steps, which correlate less than the steps do.
const OBSERVATIONS_MAX: usize = 1000;

/// What one observation of an interval is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// One pass over the dataset.
    Pass,
    /// One step, or a group of successive steps, because there are too few passes or more than a thousand.
    Batch,
}

/// The 95 % confidence interval of a throughput.
///
/// The throughput is a ratio: n observations (passes or groups of steps) with `s` samples in the time `t` each give the
/// time per sample r = Σt / Σs. With the long-run variance v of the residuals e = t − r·s, its standard error is √(v / n) / mean(s)
/// (Cochran, "Sampling Techniques", 3rd edition, 1977, section 6.4), and the interval is r ± t(0.975; B) times that, where
/// t(0.975; B) is a quantile of Student's t and B the degrees of freedom of v. The bounds of throughput are the reciprocals. If all
/// observations have the same number of samples and do not correlate, this is nearly Student's interval of their mean time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ThroughputInterval {
    /// Lower bound.
    pub low_samples_per_s: SamplesPerSecond,
    /// Upper bound; `None` when the interval of the time per sample contains zero.
    pub high_samples_per_s: Option<SamplesPerSecond>,
    /// Half the width of the interval of the time per sample, divided by the time per sample.
    pub relative_half_width: f64,
    /// Number of observations.
    pub observations: u64,
    /// What an observation is.
    pub of: Observation,
    /// Degrees of freedom of Student's t: fewer, the more successive observations correlate.
    pub degrees_of_freedom: u64,
}

impl ThroughputInterval {
    /// Returns the interval of the throughput of all steps, which are in order. `part` selects the time that counts.
    /// `None` when there are fewer than four steps, no samples, or no time.
    pub fn of(steps: &[StepTimes], part: fn(&StepTimes) -> Seconds) -> Option<Self> {
        let passes: Vec<&[StepTimes]> = steps.chunk_by(|a, b| a.pass == b.pass).collect();
        let (groups, of) = match passes.len() {
            PASSES_MIN..=OBSERVATIONS_MAX => (passes, Observation::Pass),
            _ if steps.len() < STEPS_MIN => return None,
            _ => (split_evenly(steps, steps.len().min(OBSERVATIONS_MAX)), Observation::Batch),
        };
        let observations: Vec<(f64, f64)> = groups.iter().map(|steps| totals(steps, part)).collect();
        Self::of_observations(&observations, of)
    }

    /// Returns the interval for observations of samples and seconds.
    fn of_observations(observations: &[(f64, f64)], of: Observation) -> Option<Self> {
        let count = observations.len() as f64;
        let (samples, seconds) = observations.iter().fold((0.0, 0.0), |(s, t), each| (s + each.0, t + each.1));
        if observations.len() < 2 || samples <= 0.0 || seconds <= 0.0 {
            return None;
        }
        let ratio = seconds / samples;
        let residuals: Vec<f64> = observations.iter().map(|(samples, seconds)| seconds - ratio * samples).collect();
        let LongRunVariance { variance, degrees_of_freedom } = LongRunVariance::of(&residuals, 0)?;
        let error = (variance / count).sqrt() / (samples / count);
        let quantile = StudentsT::new(0.0, 1.0, degrees_of_freedom as f64).ok()?.inverse_cdf(0.5 + CONFIDENCE / 2.0);
        let half_width = quantile * error;
        let rate = |time_per_sample: f64| SamplesPerSecond(time_per_sample.recip());
        Some(ThroughputInterval {
            low_samples_per_s: rate(ratio + half_width),
            high_samples_per_s: (ratio > half_width).then(|| rate(ratio - half_width)),
            relative_half_width: half_width / ratio,
            observations: observations.len() as u64,
            of,
            degrees_of_freedom: degrees_of_freedom as u64,
        })
    }
}

/// Returns the samples and the seconds of successive steps.
fn totals(steps: &[StepTimes], part: fn(&StepTimes) -> Seconds) -> (f64, f64) {
    steps.iter().fold((0.0, 0.0), |(samples, time), step| (samples + f64::from(step.samples), time + part(step).0))
}

/// Splits steps into `count` groups whose sizes differ by at most one.
fn split_evenly<T>(steps: &[T], count: usize) -> Vec<&[T]> {
    let start = |index: usize| index * steps.len() / count;
    (0..count).map(|index| &steps[start(index)..start(index + 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::noise::Noise;
    use super::*;

    fn steps(times: &[(u32, u32, f64)]) -> Vec<StepTimes> {
        let step = |(pass, samples, core): &(u32, u32, f64)| StepTimes {
            pass: *pass,
            samples: *samples,
            core_s: Seconds(*core),
            ..StepTimes::default()
        };
        times.iter().map(step).collect()
    }

    fn interval(times: &[(u32, u32, f64)]) -> Option<ThroughputInterval> {
        ThroughputInterval::of(&steps(times), |step| step.core_s)
    }

    #[test]
    fn passes_of_equal_size_have_students_interval_of_their_mean_time() {
        // Times 1.0, 1.1, 1.2: mean 1.1, standard deviation 0.1, t(0.975; 2) = 4.302653.
        let found = interval(&[(0, 10, 1.0), (1, 10, 1.1), (2, 10, 1.2)]).unwrap();
        let half_width = 4.302_653 * 0.1 / 3f64.sqrt();
        assert!((found.relative_half_width - half_width / 1.1).abs() < 1e-6, "{found:?}");
        assert!((found.low_samples_per_s.0 - 10.0 / (1.1 + half_width)).abs() < 1e-4, "{found:?}");
        assert!((found.high_samples_per_s.unwrap().0 - 10.0 / (1.1 - half_width)).abs() < 1e-4, "{found:?}");
        assert_eq!((found.observations, found.of, found.degrees_of_freedom), (3, Observation::Pass, 2));
    }

    #[test]
    fn passes_of_different_size_at_the_same_speed_have_an_interval_of_no_width() {
        let found = interval(&[(0, 10, 1.0), (1, 20, 2.0), (2, 5, 0.5)]).unwrap();
        assert!(found.relative_half_width.abs() < 1e-12, "{found:?}");
        assert!((found.low_samples_per_s.0 - 10.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn with_few_passes_the_observations_are_steps() {
        let times: Vec<(u32, u32, f64)> = (0..41).map(|index| (0, 4, if index % 2 == 0 { 1.0 } else { 3.0 })).collect();
        let found = interval(&times).unwrap();
        assert_eq!((found.observations, found.of), (41, Observation::Batch));
        assert!(found.relative_half_width < 0.05, "the times of two steps always sum to 4: {found:?}");
        assert_eq!(interval(&times[..4]).unwrap().observations, 4);
        assert_eq!(interval(&times[..3]), None);
    }

    #[test]
    fn an_interval_that_contains_zero_has_no_upper_bound() {
        let found = interval(&[(0, 1, 0.1), (1, 1, 9.0), (2, 1, 0.1)]).unwrap();
        assert_eq!(found.high_samples_per_s, None);
        assert!(found.relative_half_width > 1.0 && found.low_samples_per_s.0 > 0.0, "{found:?}");
    }

    #[test]
    fn without_samples_or_time_there_is_no_interval() {
        assert_eq!(interval(&[(0, 0, 1.0), (1, 0, 1.0), (2, 0, 1.0)]), None);
        assert_eq!(interval(&[(0, 1, 0.0), (1, 1, 0.0), (2, 1, 0.0)]), None);
        assert_eq!(interval(&[]), None);
    }

    #[test]
    fn many_steps_or_passes_are_joined_to_a_thousand_groups() {
        let of_passes = |length: u32| {
            let times: Vec<_> = (0..3000).map(|index| (index / length, 1, 1.0 + f64::from(index % 3))).collect();
            let found = interval(&times).unwrap();
            (found.observations, found.of)
        };
        assert_eq!(of_passes(3), (1000, Observation::Pass));
        assert_eq!(of_passes(2), (1000, Observation::Batch));
        assert_eq!(of_passes(3000), (1000, Observation::Batch));
    }

    /// Returns how many of a thousand intervals contain the true throughput, if `length` steps in passes of `pass` steps are a
    /// first-order autoregression with this correlation.
    fn coverage(correlation: f64, length: u32, pass: u32) -> usize {
        let mut noise = Noise::new(42);
        let contains = |_: &i32| {
            let times = noise.autoregression(correlation, length as usize);
            let times: Vec<_> = (0..).zip(times).map(|(index, time)| (index / pass, 1, 1.0 + 0.02 * time)).collect();
            let found = interval(&times).unwrap();
            found.low_samples_per_s.0 <= 1.0 && found.high_samples_per_s.is_none_or(|high| high.0 >= 1.0)
        };
        (0..1000).filter(contains).count()
    }

    #[test]
    fn intervals_contain_the_true_throughput_as_often_as_the_table_says() {
        let found = [0.0, 0.5, 0.9].map(|correlation| {
            [(40, 40), (200, 200), (200, 40), (400, 10)].map(|(length, pass)| coverage(correlation, length, pass))
        });
        let expected = [[953, 943, 967, 951], [924, 938, 966, 952], [897, 932, 957, 934]];
        let is_near = |(found, expected): (&usize, &usize)| found.abs_diff(*expected) <= 5;
        assert!(found.iter().flatten().zip(expected.iter().flatten()).all(is_near), "{found:?}");
    }
}
