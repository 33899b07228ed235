//! The figures of the queries of both sides, which have an interval if each side was measured several times.

use flagperf_core::measure::TrialFigures;
use flagperf_core::units::Seconds;
use flagperf_result::{Record, measured_scenario};
use indexmap::IndexMap;
use serde::Serialize;

use super::comparison::{Side, runs};
use super::ratio::{RatioInterval, SpeedVerdict, geometric_mean};

/// A figure of a scenario. Its name in JSON has its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScenarioFigure {
    QueriesPerS,
    /// The median latency of a query.
    LatencyP50S,
    /// The latency that the share of all queries keeps which the scenario asks for, with 99 % confidence.
    PercentileS,
    /// The same of the time to the first token.
    FirstTokenPercentileS,
    /// The same of the mean time between the tokens of an answer.
    NextTokenPercentileS,
}

/// A figure of the scenarios of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScenarioPair {
    /// The geometric mean of the blocks or runs of each side; `None` if one of them does not know it.
    pub sides: [Option<f64>; 2],
    /// The second by the first; `None` if there is no interval.
    pub ratio: Option<RatioInterval>,
    pub verdict: Option<SpeedVerdict>,
}

impl ScenarioFigure {
    const ALL: [Self; 5] = [
        Self::QueriesPerS,
        Self::LatencyP50S,
        Self::PercentileS,
        Self::FirstTokenPercentileS,
        Self::NextTokenPercentileS,
    ];

    /// Returns its name in a table.
    pub fn title(self) -> &'static str {
        match self {
            Self::QueriesPerS => "queries/s",
            Self::LatencyP50S => "median latency",
            Self::PercentileS => "percentile, at 99 % confidence",
            Self::FirstTokenPercentileS => "percentile of the first token",
            Self::NextTokenPercentileS => "percentile of the time between tokens",
        }
    }

    /// Returns whether it is a time, of which less is better.
    pub fn is_time(self) -> bool {
        self != Self::QueriesPerS
    }

    fn of(self, trial: &TrialFigures) -> Option<f64> {
        let time = |time: Option<Seconds>| time.map(|time| time.0);
        match self {
            Self::QueriesPerS => trial.queries_per_s,
            Self::LatencyP50S => time(trial.latency.map(|latency| latency.p50_s)),
            Self::PercentileS => time(trial.percentile_s),
            Self::FirstTokenPercentileS => time(trial.first_token?.percentile_s),
            Self::NextTokenPercentileS => time(trial.next_token?.percentile_s),
        }
    }

    /// Returns the figure of the devices of a run, each of which has queries of its own: the sum of rates, the longest time.
    fn of_run(self, records: &[&Record]) -> Option<f64> {
        let own = records.iter().map(|record| self.of(measured_scenario(record)?.1));
        let join = if self.is_time() { f64::max } else { |a, b| a + b };
        own.collect::<Option<Vec<f64>>>()?.into_iter().reduce(join)
    }

    /// Returns how the second side is slower than the first by more than a percentage, as far as an interval shows.
    pub(super) fn slowdown(self, pair: &ScenarioPair, percent: f64) -> Option<String> {
        let ratio = pair.ratio?;
        let (is_slower, [by, least], word) = match self.is_time() {
            true => (ratio.low > 1.0 + percent / 100.0, [ratio.ratio - 1.0, ratio.low - 1.0], "longer"),
            false => (ratio.is_slower_by(percent), [1.0 - ratio.ratio, 1.0 - ratio.high], "fewer"),
        };
        let [by, least] = [100.0 * by, 100.0 * least];
        is_slower.then(|| format!("{}: {by:.1} % {word}, at least {least:.1} %", self.title()))
    }
}

impl ScenarioPair {
    /// Returns the figures that at least one side knows; none unless every result of both sides has a scenario.
    pub(super) fn all(sides: [&Side; 2], interleaved: bool, confidence: f64) -> IndexMap<ScenarioFigure, Self> {
        if sides.iter().flat_map(|side| &side.results).any(|(_, record)| measured_scenario(record).is_none()) {
            return IndexMap::new();
        }
        let pairs =
            ScenarioFigure::ALL.map(|figure| (figure, ScenarioPair::of(sides, figure, interleaved, confidence)));
        pairs.into_iter().filter(|(_, pair)| pair.sides.iter().any(Option::is_some)).collect()
    }

    fn of(sides: [&Side; 2], figure: ScenarioFigure, interleaved: bool, confidence: f64) -> Self {
        let values = sides
            .map(|side| runs(side, interleaved).iter().map(|run| figure.of_run(run)).collect::<Option<Vec<f64>>>());
        let ratio = match &values {
            [Some(first), Some(second)] => RatioInterval::of_blocks([first, second], interleaved, confidence),
            _ => None,
        };
        let verdict = ratio.map(|ratio| match ratio.verdict() {
            SpeedVerdict::Faster if figure.is_time() => SpeedVerdict::Slower,
            SpeedVerdict::Slower if figure.is_time() => SpeedVerdict::Faster,
            verdict => verdict,
        });
        ScenarioPair { sides: values.map(|values| Some(geometric_mean(&values?))), ratio, verdict }
    }
}
