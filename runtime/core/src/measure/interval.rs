//! The confidence interval of a throughput: how far the figure of another run of the same length may be from this one.
//!
//! It is the interval of a ratio, because passes differ in samples and in time. With fewer than three passes, groups of
//! successive steps are the observations.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::StepTimes;
use crate::units::{SamplesPerSecond, Seconds};

/// Probability with which an interval contains the throughput of an endless run.
const CONFIDENCE: f64 = 0.95;
/// Number of passes from which each pass is one observation. With two, Student's t is 12.7, and the interval says nothing.
const PASSES_MIN: usize = 3;
/// Largest number of batches of steps. Ten to thirty suffice at any length of a run (Schmeiser, "Batch size effects in
/// the analysis of simulation output", Operations Research 30, 1982).
const BATCHES_MAX: usize = 20;
/// Smallest number of steps in a batch.
const BATCH_STEPS_MIN: usize = 2;

/// What one observation of an interval is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// One pass over the dataset.
    Pass,
    /// Successive steps, because there are too few passes.
    Batch,
}

/// The 95 % confidence interval of a throughput.
///
/// The throughput is a ratio: n observations (passes or batches of steps) with `s` samples in the time `t` each give the
/// time per sample r = Σt / Σs. With the residuals e = t − r·s, its standard error is √(Σe² / (n (n − 1))) / mean(s)
/// (Cochran, "Sampling Techniques", 3rd edition, 1977, section 6.4), and the interval is r ± t(0.975; n − 1) times that,
/// where t(0.975; n − 1) is a quantile of Student's t. The bounds of throughput are the reciprocals. If all observations
/// have the same number of samples, this is Student's interval of their mean time.
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
}

impl ThroughputInterval {
    /// Returns the interval of the throughput of all steps, which are in order. `part` selects the time that counts.
    /// `None` when there are fewer than four steps, no samples, or no time.
    pub fn of(steps: &[StepTimes], part: fn(&StepTimes) -> Seconds) -> Option<Self> {
        let mut passes: Vec<&[StepTimes]> = steps.chunk_by(|a, b| a.pass == b.pass).collect();
        let mut of = Observation::Pass;
        if passes.len() < PASSES_MIN {
            let batches = (steps.len() / BATCH_STEPS_MIN).min(BATCHES_MAX);
            (passes, of) = (split_evenly(steps, batches), Observation::Batch);
        }
        let observations: Vec<(f64, f64)> = passes.iter().map(|steps| totals(steps, part)).collect();
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
        let squares: f64 = observations.iter().map(|(samples, seconds)| (seconds - ratio * samples).powi(2)).sum();
        let error = (squares / (count * (count - 1.0))).sqrt() / (samples / count);
        let quantile = StudentsT::new(0.0, 1.0, count - 1.0).ok()?.inverse_cdf(0.5 + CONFIDENCE / 2.0);
        let half_width = quantile * error;
        let rate = |time_per_sample: f64| SamplesPerSecond(time_per_sample.recip());
        Some(ThroughputInterval {
            low_samples_per_s: rate(ratio + half_width),
            high_samples_per_s: (ratio > half_width).then(|| rate(ratio - half_width)),
            relative_half_width: half_width / ratio,
            observations: observations.len() as u64,
            of,
        })
    }
}

/// Returns the samples and the seconds of successive steps.
fn totals(steps: &[StepTimes], part: fn(&StepTimes) -> Seconds) -> (f64, f64) {
    steps.iter().fold((0.0, 0.0), |(samples, time), step| (samples + f64::from(step.samples), time + part(step).0))
}

/// Splits steps into `count` groups whose sizes differ by at most one.
fn split_evenly(steps: &[StepTimes], count: usize) -> Vec<&[StepTimes]> {
    let start = |index: usize| index * steps.len() / count;
    (0..count).map(|index| &steps[start(index)..start(index + 1)]).collect()
}

#[cfg(test)]
mod tests {
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
        assert_eq!((found.observations, found.of), (3, Observation::Pass));
    }

    #[test]
    fn passes_of_different_size_at_the_same_speed_have_an_interval_of_no_width() {
        let found = interval(&[(0, 10, 1.0), (1, 20, 2.0), (2, 5, 0.5)]).unwrap();
        assert!(found.relative_half_width.abs() < 1e-12, "{found:?}");
        assert!((found.low_samples_per_s.0 - 10.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn with_few_passes_the_observations_are_batches_of_steps() {
        let times: Vec<(u32, u32, f64)> = (0..41).map(|index| (0, 4, if index % 2 == 0 { 1.0 } else { 3.0 })).collect();
        let found = interval(&times).unwrap();
        assert_eq!((found.observations, found.of), (20, Observation::Batch));
        assert!(found.relative_half_width < 0.05, "the times of two steps always sum to 4: {found:?}");
        assert_eq!(interval(&times[..4]).unwrap().observations, 2);
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
    fn nineteen_of_twenty_intervals_contain_the_true_throughput() {
        // A seeded linear congruential generator; each step takes 0.5 to 1.5 s, so the true rate is 1 sample per second.
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let trials = 2000;
        let contained = (0..trials).filter(|_| {
            let times: Vec<_> =
                (0..5).flat_map(|pass| (0..8).map(move |_| pass)).map(|pass| (pass, 1, 0.5 + uniform())).collect();
            let found = interval(&times).unwrap();
            found.low_samples_per_s.0 <= 1.0 && found.high_samples_per_s.is_none_or(|high| high.0 >= 1.0)
        });
        let share = contained.count() as f64 / f64::from(trials);
        assert!((0.935..=0.965).contains(&share), "{share}");
    }
}
