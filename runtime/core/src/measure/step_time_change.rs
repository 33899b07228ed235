//! A lasting change of the step times within a measured loop.

use serde::{Deserialize, Serialize};

use super::StepTimes;
use super::time_change::{ChangeShape, TimeChange};
use crate::units::Seconds;

/// A step of a measured loop, and when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct StepPlace {
    /// Index of the step in the loop, from 0; the number of steps for the end of the loop.
    pub step: u64,
    /// Index of its pass, from 0.
    pub pass: u32,
    /// Time from the begin of the pass to that of the step.
    pub in_pass_s: Seconds,
}

/// A [`TimeChange`] of the core times of the steps of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct StepTimeChange {
    /// How the times changed.
    pub shape: ChangeShape,
    /// The first step with another time.
    pub begin: StepPlace,
    /// The step after the last one with another time.
    pub end: StepPlace,
    /// The mean core time of these steps divided by that of the others, less one; of a drift, that of the last step divided by that of
    /// the first on the fitted line, less one. Positive if steps became slower.
    pub relative_change: f64,
    /// Probability of so large a deviation in steps whose times do not change.
    pub p_value: f64,
}

impl StepTimeChange {
    /// Returns the change of the core times of the steps of a loop, in order; `None` if the test shows none of at least 1 %.
    pub fn of(steps: &[StepTimes]) -> Option<Self> {
        let times: Vec<Seconds> = steps.iter().map(|step| step.core_s).collect();
        let TimeChange { shape, begin, end, relative_change, p_value } = TimeChange::of(&times)?;
        let [begin, end] = [begin, end].map(|step| StepPlace::of(steps, step as usize));
        Some(StepTimeChange { shape, begin, end, relative_change, p_value })
    }
}

impl StepPlace {
    /// Returns the place of a step of a loop, or of the end of the loop.
    fn of(steps: &[StepTimes], step: usize) -> Self {
        let pass = steps.get(step).or(steps.last()).map_or(0, |step| step.pass);
        let first = steps.partition_point(|step| step.pass < pass);
        // The sum of nothing is -0.
        let in_pass_s = Seconds(0.0) + steps[first..step].iter().map(StepTimes::total).sum::<Seconds>();
        StepPlace { step: step as u64, pass, in_pass_s }
    }
}

#[cfg(test)]
mod tests {
    use super::super::noise::Noise;
    use super::*;

    /// The number of loops of each kind, which a debug build tests in a few seconds.
    const LOOPS: usize = 100;

    /// Returns steps of 10 ms in passes of 250 steps, with noise of 1 % and a relative change that depends on the place in the loop, from 0 to 1.
    fn steps(noise: &mut Noise, correlation: f64, count: usize, change: impl Fn(f64) -> f64) -> Vec<StepTimes> {
        let times = noise.autoregression(correlation, count);
        let step = |(index, time): (usize, f64)| StepTimes {
            pass: (index / 250) as u32,
            samples: 8,
            core_s: Seconds(0.01 * (1.0 + 0.01 * time + change(index as f64 / count as f64))),
            ..StepTimes::default()
        };
        times.into_iter().enumerate().map(step).collect()
    }

    fn found(correlation: f64, count: usize, change: impl Fn(f64) -> f64 + Copy) -> Vec<StepTimeChange> {
        let mut noise = Noise::new(7);
        (0..LOOPS).filter_map(|_| StepTimeChange::of(&steps(&mut noise, correlation, count, change))).collect()
    }

    fn count(changes: &[StepTimeChange], shape: ChangeShape) -> usize {
        changes.iter().filter(|change| change.shape == shape).count()
    }

    #[test]
    fn a_false_alarm_is_rare_however_the_times_correlate() {
        let alarms = [0.0, 0.5, 0.9, 0.99]
            .map(|correlation| [40, 200, 1000, 3000].map(|count| found(correlation, count, |_| 0.0).len()));
        assert!(alarms.iter().flatten().all(|alarms| *alarms < 5), "{alarms:?}");
    }

    #[test]
    fn a_slow_down_of_two_percent_is_found_where_it_begins() {
        let slower = |place: f64| if place >= 0.6 { 0.02 } else { 0.0 };
        let numbers = [(0.0, 200), (0.5, 200), (0.5, 1000), (0.9, 1000)].map(|(correlation, steps)| {
            let found = found(correlation, steps, slower);
            (found.len(), count(&found, ChangeShape::Level))
        });
        assert!(numbers.iter().zip([100, 95, 100, 70]).all(|((found, _), least)| *found >= least), "{numbers:?}");
        let change = StepTimeChange::of(&steps(&mut Noise::new(3), 0.0, 1000, slower)).unwrap();
        assert_eq!((change.shape, change.begin.pass, change.end.step), (ChangeShape::Level, 2, 1000));
        assert!(change.begin.step.abs_diff(600) <= 5 && (change.relative_change - 0.02).abs() < 2e-3, "{change:?}");
        assert!((change.begin.in_pass_s.0 - 1.0).abs() < 0.06 && change.p_value < 1e-3, "{change:?}");
    }

    #[test]
    fn a_slow_interval_and_a_drift_are_told_from_a_level() {
        let interval = found(0.5, 1000, |place| if (0.3..0.5).contains(&place) { 0.02 } else { 0.0 });
        let drift = found(0.5, 1000, |place| 0.03 * place);
        let numbers = [count(&interval, ChangeShape::Interval), count(&drift, ChangeShape::Drift)];
        assert!(numbers.iter().all(|number| *number >= 95), "{numbers:?}");
        let [begin, end] = [interval[0].begin.step, interval[0].end.step];
        assert!(begin.abs_diff(300) < 15 && end.abs_diff(500) < 15, "{:?}", interval[0]);
        assert!((drift[0].relative_change - 0.03).abs() < 5e-3, "{:?}", drift[0]);
    }

    #[test]
    fn single_long_steps_and_a_pattern_that_each_pass_repeats_are_no_change() {
        let mut long = steps(&mut Noise::new(5), 0.0, 1000, |_| 0.0);
        long[700].core_s = Seconds(5.0);
        long[701].core_s = Seconds(3.0);
        assert_eq!(StepTimeChange::of(&long), None);
        let mut pattern = steps(&mut Noise::new(5), 0.0, 2000, |_| 0.0);
        for (index, step) in pattern.iter_mut().enumerate() {
            step.core_s.0 *= 1.0 + 0.3 * (index % 250) as f64 / 250.0;
        }
        assert_eq!(StepTimeChange::of(&pattern), None);
    }

    #[test]
    fn faster_steps_are_a_change_and_equal_or_few_ones_are_none() {
        let change =
            StepTimeChange::of(&steps(&mut Noise::new(1), 0.0, 400, |place| if place < 0.25 { 0.05 } else { 0.0 }));
        assert!((change.unwrap().relative_change + 0.0476).abs() < 3e-3, "{change:?}");
        assert_eq!(StepTimeChange::of(&[StepTimes { core_s: Seconds(0.1), ..StepTimes::default() }; 300]), None);
        assert_eq!(StepTimeChange::of(&steps(&mut Noise::new(1), 0.0, 39, |place| place)), None);
    }
}
