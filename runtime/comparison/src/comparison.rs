//! The comparison of two sides.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use flagperf_core::measure::Measurement;
use flagperf_core::step::Phase;
use flagperf_result::{Record, Status, different_setting};
use indexmap::IndexMap;
use serde::Serialize;

use super::comparable::{Difference, differences, headline};
use super::outputs::{OutputErrors, compare_outputs};
use super::ratio::{RatioInterval, SpeedVerdict, geometric_mean};
use super::scenario::{ScenarioFigure, ScenarioPair};

/// The results of one side, in the order in which they were measured.
#[derive(Clone, Debug)]
pub struct Side {
    /// What the side is called: a path, or a case with its settings.
    pub name: String,
    /// The folder of each result with its record.
    pub results: Vec<(PathBuf, Record)>,
}

/// Two sides of a case compared with each other.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The names of the sides.
    pub sides: [String; 2],
    /// What differs between the sides beside their figures.
    pub differences: Vec<Difference>,
    /// The probability of the intervals.
    pub confidence: f64,
    /// Throughput without the loader and the evaluator.
    pub core: Option<Speed>,
    /// Throughput of whole passes.
    pub whole: Option<Speed>,
    /// How far outputs differ, by name.
    pub outputs: IndexMap<String, OutputErrors>,
    /// Why outputs were not compared; `None` if they were.
    pub outputs_unknown: Option<String>,
    /// The figures of their queries; empty unless every result has a scenario.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub scenario: IndexMap<ScenarioFigure, ScenarioPair>,
    /// Metrics of both sides, by name.
    pub metrics: IndexMap<String, MetricPair>,
}

/// The throughputs of both sides in samples per second, and their ratio.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// The geometric mean of the blocks or runs of each side, each of which is the sum over its devices.
    pub throughput_samples_per_s: [f64; 2],
    /// The second by the first; `None` if there is no interval.
    pub ratio: Option<RatioInterval>,
    pub verdict: Option<SpeedVerdict>,
    /// The blocks in pairs, in the order in which they were measured.
    pub blocks: Vec<[f64; 2]>,
}

/// A metric of both sides; `None` if a side does not know it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MetricPair {
    pub first: Option<f64>,
    pub second: Option<f64>,
}

/// Why two sides cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComparisonError {
    /// A side has no result, or one that failed.
    #[error("`{side}`: {reason}")]
    Unusable { side: String, reason: String },
    /// The results are not of the same work.
    #[error("the results are not of the same work: {}", .0.iter().map(|difference| format!("{} is {} and {}", difference.what, difference.first, difference.second)).collect::<Vec<_>>().join("; "))]
    NotComparable(Vec<Difference>),
    /// A result, or a copy of it, is in two sides.
    #[error("two sides have the result `{}`", .0.display())]
    InTwoSides(PathBuf),
}

impl Comparison {
    /// Returns in words which throughput of the second side is shown to be lower, or which time of its queries to be longer, than that of
    /// the first by more than this percentage. A figure without an interval shows nothing.
    pub fn slowdowns(&self, percent: f64) -> Vec<String> {
        let confidence = self.confidence_percent();
        let speeds = [("core", &self.core), ("whole", &self.whole)];
        let slower = speeds.into_iter().filter_map(|(name, speed)| Some((name, speed.as_ref()?.ratio?)));
        let slower = slower.filter(|(_, ratio)| ratio.is_slower_by(percent)).map(|(name, ratio)| {
            let [by, least] = [ratio.ratio, ratio.high].map(|ratio| 100.0 * (1.0 - ratio));
            format!("{name} is {by:.1} % slower, at least {least:.1} %")
        });
        let of_queries = self.scenario.iter().filter_map(|(figure, pair)| figure.slowdown(pair, percent));
        let all = slower.chain(of_queries);
        all.map(|text| format!("{text} with {confidence} % confidence (allowed: {percent} %)")).collect()
    }

    /// Returns the probability of the intervals in percent.
    pub fn confidence_percent(&self) -> f64 {
        // Rounded, because 0.999 is 99.9 % only to the last digit.
        (self.confidence * 1e6).round() / 1e4
    }

    /// Returns whether neither throughput has an interval, so that no slowdown could be shown.
    pub fn shows_nothing(&self) -> bool {
        [&self.core, &self.whole].into_iter().flatten().all(|speed| speed.ratio.is_none())
    }
}

/// How two sides are compared.
#[derive(Clone, Copy, Debug)]
pub struct CompareOptions {
    /// Whether the blocks of the sides were measured in turns, so that they are pairs.
    pub interleaved: bool,
    /// Compares what is not of the same work, too.
    pub anyway: bool,
    /// The probability of the intervals.
    pub confidence: f64,
}

/// Compares two sides.
///
/// # Errors
/// When a side has no usable result, or the sides are not of the same work.
pub fn compare(sides: [&Side; 2], options: CompareOptions) -> Result<Comparison, ComparisonError> {
    let CompareOptions { interleaved, anyway, confidence } = options;
    sides.into_iter().try_for_each(|side| check_usable(side, options))?;
    if let Some(path) = result_of_both(sides).filter(|_| !interleaved) {
        return Err(ComparisonError::InTwoSides(path.to_owned()));
    }
    let last = sides.map(|side| side.results.last().expect("a usable side has a result"));
    let mut differences = differences(&last[0].1, &last[1].1);
    let devices = sides.map(|side| runs(side, interleaved)[0].len());
    let processes = last.map(|(_, record)| record.processes());
    if processes[0] != processes[1] {
        sides.into_iter().zip(processes).try_for_each(|(side, processes)| check_complete(side, processes))?;
    }
    if devices[0] != devices[1] {
        let [first, second] = devices.map(|devices| devices.to_string());
        // Processes that train together divide the work, so that batches are compared.
        let prevents = processes == [1, 1];
        differences.push(Difference { what: "devices".to_owned(), first, second, prevents });
    }
    let prevented: Vec<Difference> = differences.iter().filter(|difference| difference.prevents).cloned().collect();
    if !prevented.is_empty() && !anyway {
        return Err(ComparisonError::NotComparable(prevented));
    }
    let is_training = |record: &Record| record.headline_phase().is_some_and(|phase| phase.phase == Phase::Train);
    let compared = match last.iter().any(|(_, record)| is_training(record)) {
        true => Err("a training stores no outputs".to_owned()),
        false => compare_outputs(&last[0].0, &last[1].0),
    };
    let (outputs, outputs_unknown) = match compared {
        Ok(outputs) => (outputs, None),
        Err(reason) => (IndexMap::new(), Some(reason)),
    };
    Ok(Comparison {
        sides: sides.map(|side| side.name.clone()),
        differences,
        confidence,
        core: speed(sides, interleaved, core, confidence),
        whole: speed(sides, interleaved, whole, confidence),
        outputs,
        outputs_unknown,
        scenario: ScenarioPair::all(sides, interleaved, confidence),
        metrics: metrics(last.map(|(_, record)| record)),
    })
}

fn check_usable(
    side: &Side,
    CompareOptions { interleaved, anyway, .. }: CompareOptions,
) -> Result<(), ComparisonError> {
    let unusable = |reason: &str| ComparisonError::Unusable { side: side.name.clone(), reason: reason.to_owned() };
    if side.results.is_empty() {
        return Err(unusable("it has no result"));
    }
    let failed = side.results.iter().find(|(_, record)| record.status != Status::Ok || headline(record).is_none());
    if let Some((path, _)) = failed {
        return Err(unusable(&format!("the result `{}` has not succeeded, so it has no figures", path.display())));
    }
    let devices: Vec<usize> = runs(side, false).iter().map(Vec::len).collect();
    if devices.iter().any(|count| *count != devices[0]) {
        let counts: Vec<String> = devices.iter().map(usize::to_string).collect();
        return Err(unusable(&format!("its runs have results of different numbers of devices: {}", counts.join(", "))));
    }
    let (first_path, first) = &side.results[0];
    let mut known: IndexMap<_, &Path> = IndexMap::new();
    for (path, record) in &side.results {
        if let Some(other) = known.insert(record.identity(), path).filter(|_| !interleaved) {
            let paths = [other, path].map(|path| path.display().to_string());
            return Err(unusable(&format!("`{}` and `{}` are results of one run on one device", paths[0], paths[1])));
        }
        let of_work = differences(first, record).into_iter().find(|found| found.prevents);
        let of_work = of_work.map(|found| format!("{} is {} and {}", found.what, found.second, found.first));
        if let Some(what) = of_work.or_else(|| different_setting(&first.settings, &record.settings, false))
            && !anyway
        {
            let (path, other) = (path.display(), first_path.display());
            return Err(unusable(&format!("its results are of different work: {what}, in `{path}` and `{other}`")));
        }
    }
    Ok(())
}

/// Returns the path of a result that both sides have, itself or as a copy.
pub(super) fn result_of_both([first, second]: [&Side; 2]) -> Option<&Path> {
    let of_first: HashSet<_> = first.results.iter().map(|(_, record)| record.identity()).collect();
    let both = second.results.iter().find(|(_, record)| of_first.contains(&record.identity()));
    both.map(|(path, _)| path.as_path())
}

/// Checks that a side has the results of all of its processes, of which the sum is compared.
fn check_complete(side: &Side, processes: u64) -> Result<(), ComparisonError> {
    let found = runs(side, false)[0].len();
    if found as u64 == processes {
        return Ok(());
    }
    let reason = format!(
        "it has the results of {found} of the {processes} devices that trained together: give the folder of the case"
    );
    Err(ComparisonError::Unusable { side: side.name.clone(), reason })
}

/// Returns a throughput of a measured loop with the relative half width of its interval.
pub(super) type Figure = fn(&Measurement) -> Option<(f64, Option<f64>)>;

pub(super) fn core(measured: &Measurement) -> Option<(f64, Option<f64>)> {
    let width = measured.throughput_core_interval.map(|interval| interval.relative_half_width);
    Some((measured.throughput_core_samples_per_s?.0, width))
}

pub(super) fn whole(measured: &Measurement) -> Option<(f64, Option<f64>)> {
    let width = measured.throughput_whole_interval.map(|interval| interval.relative_half_width);
    Some((measured.throughput_whole_samples_per_s?.0, width))
}

/// Returns the throughputs of two sides, of which each block or run is one; `None` if a result lacks the figure.
pub(super) fn speed(sides: [&Side; 2], interleaved: bool, figure: Figure, confidence: f64) -> Option<Speed> {
    let sums = sides.map(|side| {
        runs(side, interleaved).iter().map(|run| sum(run, figure)).collect::<Option<Vec<(f64, Option<f64>)>>>()
    });
    let [Some(first), Some(second)] = sums else { return None };
    let figures = [&first, &second].map(|side| side.iter().map(|(figure, _)| *figure).collect::<Vec<f64>>());
    let ratio = match (interleaved, &first[..], &second[..]) {
        (false, [(first, Some(first_width))], [(second, Some(second_width))]) => {
            RatioInterval::of_intervals([*first, *second], [*first_width, *second_width], confidence)
        }
        _ => RatioInterval::of_blocks([&figures[0], &figures[1]], interleaved, confidence),
    };
    Some(Speed {
        throughput_samples_per_s: [geometric_mean(&figures[0]), geometric_mean(&figures[1])],
        verdict: ratio.as_ref().map(RatioInterval::verdict),
        ratio,
        blocks: figures[0].iter().zip(&figures[1]).map(|(first, second)| [*first, *second]).collect(),
    })
}

/// Returns the records of each run of a side, one for each device. Blocks that were measured in turns have one device.
pub(super) fn runs(side: &Side, interleaved: bool) -> Vec<Vec<&Record>> {
    let records = side.results.iter().map(|(_, record)| record);
    if interleaved {
        return records.map(|record| vec![record]).collect();
    }
    let mut runs: IndexMap<&str, Vec<&Record>> = IndexMap::new();
    records.for_each(|record| runs.entry(&record.run).or_default().push(record));
    runs.into_values().collect()
}

/// Returns the sum of a figure over the devices of a run with the relative half width of its interval. They share the time and the
/// machine, or wait for each other, so that their errors may be equal and add up.
fn sum(records: &[&Record], figure: Figure) -> Option<(f64, Option<f64>)> {
    let own: Vec<(f64, Option<f64>)> =
        records.iter().map(|record| headline(record).and_then(figure)).collect::<Option<_>>()?;
    let sum: f64 = own.iter().map(|(figure, _)| figure).sum();
    let error = own.iter().map(|(figure, width)| Some(figure * (*width)?)).sum::<Option<f64>>();
    Some((sum, error.map(|error| error / sum)))
}

fn metrics([first, second]: [&Record; 2]) -> IndexMap<String, MetricPair> {
    let accuracy = |record: &Record| headline(record).map(|measured| measured.accuracy.clone()).unwrap_or_default();
    let [first, second] = [accuracy(first), accuracy(second)];
    let names: IndexMap<String, ()> = first.keys().chain(second.keys()).map(|name| (name.clone(), ())).collect();
    let pair = |name: &String| MetricPair { first: first.get(name).copied(), second: second.get(name).copied() };
    names.keys().map(|name| (name.clone(), pair(name))).collect()
}

#[cfg(test)]
mod tests;
