//! The comparison of two sides.

use std::path::PathBuf;

use flagperf_core::measure::Measurement;
use flagperf_core::step::Phase;
use flagperf_core::units::Seconds;
use flagperf_result::{Record, Status, measured_scenario};
use indexmap::IndexMap;
use serde::Serialize;

use super::comparable::{Difference, differences, headline};
use super::outputs::{OutputErrors, compare_outputs};
use super::ratio::{RatioInterval, SpeedVerdict};

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
    /// Throughput without the loader and the evaluator.
    pub core: Option<Speed>,
    /// Throughput of whole passes.
    pub whole: Option<Speed>,
    /// How far outputs differ, by name.
    pub outputs: IndexMap<String, OutputErrors>,
    /// Why outputs were not compared; `None` if they were.
    pub outputs_unknown: Option<String>,
    /// The scenarios of the last results; `None` unless both have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<ScenarioPair>,
    /// Metrics of both sides, by name.
    pub metrics: IndexMap<String, MetricPair>,
}

/// The throughputs of both sides in samples per second, and their ratio.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// The geometric mean of the blocks of each side.
    pub throughput_samples_per_s: [f64; 2],
    /// The second by the first; `None` if there is no interval.
    pub ratio: Option<RatioInterval>,
    pub verdict: Option<SpeedVerdict>,
    /// The blocks in pairs, in the order in which they were measured.
    pub blocks: Vec<[f64; 2]>,
}

/// The scenarios of both sides. Their figures have no interval, so that there is no verdict about them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScenarioPair {
    pub queries_per_s: [Option<f64>; 2],
    /// The median latency of a query.
    pub latency_p50_s: [Option<Seconds>; 2],
    /// The latency that the share of all queries keeps which the scenario asks for, with 99 % confidence.
    pub percentile_s: [Option<Seconds>; 2],
    /// The same of the time to the first token, and of the mean time between the tokens of an answer.
    pub first_token_percentile_s: [Option<Seconds>; 2],
    pub next_token_percentile_s: [Option<Seconds>; 2],
}

impl ScenarioPair {
    /// Returns the figures of the last results of both sides; `None` unless both have a scenario.
    fn of(records: [&Record; 2]) -> Option<Self> {
        let [first, second] = records.map(|record| measured_scenario(record).map(|(_, trial)| trial));
        let trials = [first?, second?];
        Some(ScenarioPair {
            queries_per_s: trials.map(|trial| trial.queries_per_s),
            latency_p50_s: trials.map(|trial| trial.latency.map(|latency| latency.p50_s)),
            percentile_s: trials.map(|trial| trial.percentile_s),
            first_token_percentile_s: trials.map(|trial| trial.first_token?.percentile_s),
            next_token_percentile_s: trials.map(|trial| trial.next_token?.percentile_s),
        })
    }
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
}

impl Comparison {
    /// Returns in words which throughput of the second side is shown to be lower than that of the first by more than this percentage.
    /// A throughput without an interval shows nothing.
    pub fn slowdowns(&self, percent: f64) -> Vec<String> {
        let speeds = [("core", &self.core), ("whole", &self.whole)];
        let slower = speeds.into_iter().filter_map(|(name, speed)| Some((name, speed.as_ref()?.ratio?)));
        let slower = slower.filter(|(_, ratio)| ratio.is_slower_by(percent));
        let text = |(name, ratio): (&str, RatioInterval)| {
            let [by, least] = [ratio.ratio, ratio.high].map(|ratio| 100.0 * (1.0 - ratio));
            format!("{name} is {by:.1} % slower, at least {least:.1} % with 95 % confidence (allowed: {percent} %)")
        };
        slower.map(text).collect()
    }

    /// Returns whether neither throughput has an interval, so that no slowdown could be shown.
    pub fn shows_nothing(&self) -> bool {
        [&self.core, &self.whole].into_iter().flatten().all(|speed| speed.ratio.is_none())
    }
}

/// Compares two sides. Blocks are paired in order if `interleaved` says that they were measured one after the other.
/// `anyway` compares what is not of the same work, too.
///
/// # Errors
/// When a side has no usable result, or the sides are not of the same work.
pub fn compare(sides: [&Side; 2], interleaved: bool, anyway: bool) -> Result<Comparison, ComparisonError> {
    sides.into_iter().try_for_each(check_usable)?;
    let last = sides.map(|side| side.results.last().expect("a usable side has a result"));
    let differences = differences(&last[0].1, &last[1].1);
    let prevented: Vec<Difference> = differences.iter().filter(|difference| difference.prevents).cloned().collect();
    if !prevented.is_empty() && !anyway {
        return Err(ComparisonError::NotComparable(prevented));
    }
    let devices = last.map(|(_, record)| record.processes());
    if devices[0] != devices[1] {
        sides.into_iter().zip(devices).try_for_each(|(side, devices)| check_complete(side, devices))?;
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
        core: speed(sides, interleaved, core),
        whole: speed(sides, interleaved, whole),
        outputs,
        outputs_unknown,
        scenario: ScenarioPair::of(last.map(|(_, record)| record)),
        metrics: metrics(last.map(|(_, record)| record)),
    })
}

fn check_usable(side: &Side) -> Result<(), ComparisonError> {
    let unusable = |reason: &str| ComparisonError::Unusable { side: side.name.clone(), reason: reason.to_owned() };
    if side.results.is_empty() {
        return Err(unusable("it has no result"));
    }
    let failed = side.results.iter().find(|(_, record)| record.status != Status::Ok || headline(record).is_none());
    match failed {
        Some((path, _)) => {
            Err(unusable(&format!("the result `{}` has not succeeded, so it has no figures", path.display())))
        }
        None => Ok(()),
    }
}

/// Checks that a side has the results of all of its devices, of which the sum is compared.
fn check_complete(side: &Side, devices: u64) -> Result<(), ComparisonError> {
    let found = side.results.len();
    if devices == 1 || found as u64 == devices {
        return Ok(());
    }
    let reason = format!(
        "it has the results of {found} of the {devices} devices that trained together: give the folder of the case"
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

/// Returns the throughputs of two sides; `None` if a result lacks the figure.
pub(super) fn speed(sides: [&Side; 2], interleaved: bool, figure: Figure) -> Option<Speed> {
    let figures = sides.map(|side| {
        let figures = side.results.iter().map(|(_, record)| headline(record).and_then(figure));
        let figures = figures.collect::<Option<Vec<(f64, Option<f64>)>>>()?;
        let devices = side.results.len() as u64;
        let are_of_one_training = devices > 1 && side.results.iter().all(|(_, record)| record.processes() == devices);
        Some(if are_of_one_training { vec![sum(&figures)] } else { figures })
    });
    let [Some(first), Some(second)] = figures else { return None };
    let blocks: Vec<[f64; 2]> = first.iter().zip(&second).map(|((first, _), (second, _))| [*first, *second]).collect();
    let mean = |figures: &[(f64, Option<f64>)]| {
        (figures.iter().map(|(figure, _)| figure.ln()).sum::<f64>() / figures.len() as f64).exp()
    };
    let ratio = match (interleaved, &first[..], &second[..]) {
        (true, ..) => RatioInterval::of_pairs(&blocks),
        (false, [(first, Some(first_width))], [(second, Some(second_width))]) => {
            RatioInterval::of_intervals([*first, *second], [*first_width, *second_width])
        }
        (false, ..) => None,
    };
    Some(Speed {
        throughput_samples_per_s: [mean(&first), mean(&second)],
        verdict: ratio.as_ref().map(RatioInterval::verdict),
        ratio,
        blocks,
    })
}

/// Returns the sum of figures with the relative half width of its interval. Devices that train together wait for each other, so that
/// their errors add up.
fn sum(figures: &[(f64, Option<f64>)]) -> (f64, Option<f64>) {
    let sum = figures.iter().map(|(figure, _)| figure).sum::<f64>();
    let error = figures.iter().map(|(figure, width)| Some(figure * (*width)?)).sum::<Option<f64>>();
    (sum, error.map(|error| error / sum))
}

fn metrics([first, second]: [&Record; 2]) -> IndexMap<String, MetricPair> {
    let accuracy = |record: &Record| headline(record).map(|measured| measured.accuracy.clone()).unwrap_or_default();
    let [first, second] = [accuracy(first), accuracy(second)];
    let names: IndexMap<String, ()> = first.keys().chain(second.keys()).map(|name| (name.clone(), ())).collect();
    let pair = |name: &String| MetricPair { first: first.get(name).copied(), second: second.get(name).copied() };
    names.keys().map(|name| (name.clone(), pair(name))).collect()
}
