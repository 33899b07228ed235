//! The result of an evaluator: states of metrics that are merged over the batches of a pass and then turned into
//! figures.

use indexmap::IndexMap;
use indexmap::map::Entry;
use serde::{Deserialize, Serialize};

use super::MetricError;
use super::state::{MetricState, MetricSum};

/// Mergeable states of metrics over some samples. [`Accumulator::finish`] turns them into named figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accumulator {
    states: IndexMap<String, MetricState>,
}

impl Accumulator {
    /// Returns an accumulator with one metric.
    pub fn of(name: &str, state: MetricState) -> Self {
        Accumulator { states: IndexMap::from([(name.to_owned(), state)]) }
    }

    /// Returns the mean of `count` observations with the total `sum` as the metric `name`.
    pub fn mean(name: &str, sum: f64, count: u64) -> Self {
        Accumulator::of(name, MetricState::Mean(MetricSum { sum, count }))
    }

    /// Adds the observations of another accumulator.
    ///
    /// # Errors
    /// When a metric of the same name was computed in another way or over other classes, or has grown too large; the
    /// metrics before it have been merged.
    pub fn merge(&mut self, other: &Accumulator) -> Result<(), MetricError> {
        for (name, state) in &other.states {
            match self.states.entry(name.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(state.clone());
                }
                Entry::Occupied(mut entry) => entry.get_mut().merge(name, state)?,
            }
        }
        Ok(())
    }

    /// Returns the figures by name, without those of metrics that have no observations.
    pub fn finish(&self) -> IndexMap<String, f64> {
        let observed = self.states.iter().filter(|(_, state)| state.count() > 0);
        observed.flat_map(|(name, state)| state.finish(name)).collect()
    }

    /// Returns the names of all figures, with and without observations.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.states.iter().flat_map(|(name, state)| state.names(name))
    }

    /// Returns the number of observations of each metric.
    pub fn counts(&self) -> IndexMap<String, u64> {
        self.states.iter().map(|(name, state)| (name.clone(), state.count())).collect()
    }

    /// Returns the largest number of observations of any metric.
    pub fn observations(&self) -> u64 {
        self.states.values().map(MetricState::count).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_without_observations_has_no_figure_but_a_name() {
        let mut sums = Accumulator::mean("top1", 0.0, 0);
        sums.merge(&Accumulator::mean("top3", 0.0, 0)).unwrap();
        assert!(sums.finish().is_empty());
        assert_eq!(sums.names().collect::<Vec<_>>(), ["top1", "top3"]);
        assert_eq!(sums.observations(), 0);
        sums.merge(&Accumulator::mean("top1", 1.0, 2)).unwrap();
        assert_eq!(sums.finish().keys().collect::<Vec<_>>(), ["top1"]);
    }

    #[test]
    fn an_overflowing_count_makes_the_figure_nan() {
        let mut seen = Accumulator::mean("words", 1.0, u64::MAX - 1);
        assert_eq!(seen.finish()["words"], 1.0 / u64::MAX as f64);
        seen.merge(&Accumulator::mean("words", 1.0, 2)).unwrap();
        assert!(seen.finish()["words"].is_nan());
        let other = seen.clone();
        seen.merge(&other).unwrap();
        assert!(seen.finish()["words"].is_nan());
        assert_eq!(seen.observations(), u64::MAX);
    }

    #[test]
    fn a_metric_computed_in_two_ways_is_refused() {
        let mut seen = Accumulator::mean("perplexity", 3.0, 1);
        let other = MetricState::ExpOfMean(MetricSum { sum: 1.0, count: 1 });
        let error = seen.merge(&Accumulator::of("perplexity", other)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the metric `perplexity` is computed in two ways or over different classes: give one another name"
        );
    }
}
