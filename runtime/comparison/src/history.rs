//! The results of a case over time: which can be compared, how each differs from the one before it, and where the level of the throughput
//! changed.

use std::path::PathBuf;

use flagperf_core::measure::Measurement;
use flagperf_core::units::SamplesPerSecond;
use flagperf_result::{PhaseRecord, Record, Validity};
use jiff::Timestamp;
use serde::Serialize;

use super::comparable::{Difference, differences, headline};
use super::level_changes::{LevelChange, level_changes};
use super::ratio::{CONFIDENCE, RatioInterval, student_quantile};

/// The results of a case, in groups that can be compared, each in the order of time.
#[derive(Clone, Debug, Serialize)]
pub struct History {
    /// The case.
    pub case: String,
    /// The groups; that with the earliest result is the first.
    pub series: Vec<Series>,
    /// The results that are not used.
    pub unused: Vec<UnusedResult>,
}

/// Results of the same work on the same device with the same engine.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The case with its framework, or the key of a training.
    pub key: String,
    /// The vendor.
    pub vendor: String,
    /// The engine's name for the device.
    pub device: String,
    /// The engine of the figures.
    pub engine: String,
    /// Numeric precision.
    pub precision: String,
    /// Samples in a batch of all processes.
    pub batch_size: u64,
    /// The step of the figures: `inference`.
    pub step: String,
    /// What a sample is.
    pub unit: String,
    /// What differs from an earlier series whose facts above are equal; empty if there is none.
    pub unlike_earlier: Vec<Difference>,
    /// The results, in the order of their starts.
    pub results: Vec<HistoryResult>,
    /// Where the level of the throughput changed, in the order of time.
    pub change_points: Vec<ChangePoint>,
}

/// A result in a series.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryResult {
    /// The folder of the result, or its record.
    pub path: PathBuf,
    /// Start of the case (RFC 3339).
    pub started: String,
    /// The commit of the checkout; `None` if it is unknown.
    pub git_revision: Option<String>,
    /// Whether the checkout was as in the commit; `None` if it is unknown.
    pub git_clean: Option<bool>,
    /// Version of flagperf.
    pub flagperf: String,
    /// Version of the engine.
    pub engine_version: String,
    /// Whether the result counts as an official one.
    pub validity: Validity,
    /// Throughput without the loader and the evaluator.
    pub throughput_core_samples_per_s: f64,
    /// Lower bound of its 95 % confidence interval; `None` without one.
    pub low_samples_per_s: Option<f64>,
    /// Upper bound of its 95 % confidence interval.
    pub high_samples_per_s: Option<f64>,
    /// The throughput by that of the result before; `None` for the first result and without intervals.
    pub by_previous: Option<RatioInterval>,
}

/// A place in a series from which on the level of the throughput is different.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangePoint {
    /// Index of the first result with the new level.
    pub result: usize,
    /// The level of the throughput from this result up to the next change, by that since the change before.
    pub ratio: RatioInterval,
    /// Probability of so large a change in a series without one.
    pub p_value: f64,
    /// What differs between this result and the one before it.
    pub differences: Vec<Difference>,
}

/// A result that is not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("`{}`: {reason}", .path.display())]
pub struct UnusedResult {
    /// The folder of the result, or its record.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

impl History {
    /// Sorts the results of a case, and finds where the level of the throughput changed. Results that are invalid, or without a throughput
    /// or a time, are not used, and neither are those in `unused`.
    pub fn of(case: &str, results: Vec<(PathBuf, Record)>, mut unused: Vec<UnusedResult>) -> Self {
        let mut usable: Vec<(Timestamp, PathBuf, Record)> = Vec::new();
        for (path, record) in results {
            match usable_start(&record) {
                Ok(start) => usable.push((start, path, record)),
                Err(reason) => unused.push(UnusedResult { path, reason }),
            }
        }
        usable.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let mut groups: Vec<Vec<(PathBuf, Record)>> = Vec::new();
        for (_, path, record) in usable {
            match groups.iter_mut().find(|group| are_comparable(&group[0].1, &record)) {
                Some(group) => group.push((path, record)),
                None => groups.push(vec![(path, record)]),
            }
        }
        unused.sort_by(|a, b| a.path.cmp(&b.path));
        let mut series: Vec<Series> = groups.iter().filter_map(|group| Series::of(group)).collect();
        for index in 1..series.len() {
            let earlier = (0..index).find(|earlier| series[*earlier].has_facts_of(&series[index]));
            let unlike = earlier.map(|earlier| unlike(&groups[earlier][0].1, &groups[index][0].1));
            series[index].unlike_earlier = unlike.unwrap_or_default();
        }
        History { case: case.to_owned(), series, unused }
    }
}

impl Series {
    /// Describes results that can be compared, in the order of time; `None` if there are none.
    fn of(results: &[(PathBuf, Record)]) -> Option<Self> {
        let (_, first) = results.first()?;
        let work = Work::of(first);
        let figures: Vec<(f64, Option<f64>)> =
            results.iter().filter_map(|(_, record)| figure(headline(record)?)).collect();
        let values: Vec<f64> = figures.iter().map(|(throughput, _)| throughput.ln()).collect();
        let errors: Vec<f64> = results.iter().map(|(_, record)| relative_error(record).unwrap_or(0.0)).collect();
        let change_point = |change: LevelChange| ChangePoint {
            result: change.index,
            ratio: ratio_of(&change),
            p_value: change.p_value,
            differences: changed(&results[change.index - 1].1, &results[change.index].1),
        };
        let described = results.iter().enumerate().map(|(index, (path, record))| {
            let previous = index.checked_sub(1).map(|previous| figures[previous]);
            HistoryResult::of(path, record, figures[index], previous)
        });
        Some(Series {
            key: first.key(),
            vendor: work.vendor.to_owned(),
            device: work.device.to_owned(),
            engine: work.engine.to_owned(),
            precision: work.precision.to_owned(),
            batch_size: headline(first).map_or(0, |measured| u64::from(measured.batch_size) * first.processes()),
            step: headline(first).map_or_else(String::new, |measured| measured.step.name().to_owned()),
            unit: first.unit.clone(),
            unlike_earlier: Vec::new(),
            results: described.collect(),
            change_points: level_changes(&values, &errors).into_iter().map(change_point).collect(),
        })
    }

    /// Returns whether what is known of both series themselves is equal.
    fn has_facts_of(&self, other: &Series) -> bool {
        let facts = |series: &Series| {
            let Series { key, vendor, device, engine, precision, step, unit, batch_size, .. } = series.clone();
            ([key, vendor, device, engine, precision, step, unit], batch_size)
        };
        facts(self) == facts(other)
    }
}

/// Returns why two results are not in one series.
fn unlike(first: &Record, second: &Record) -> Vec<Difference> {
    let number = |of_record: Option<u64>| of_record.map_or_else(|| "none".to_owned(), |number| number.to_string());
    let numbers = |record: &Record| [number(Some(record.processes())), number(record.device.map(u64::from))];
    let of_group =
        ["processes", "number of the device"].into_iter().zip(numbers(first).into_iter().zip(numbers(second)));
    let of_group =
        of_group.map(|(what, (first, second))| Difference { what: what.to_owned(), first, second, prevents: true });
    of_group
        .filter(|found| found.first != found.second)
        .chain(differences(first, second).into_iter().filter(|found| found.prevents))
        .collect()
}

impl HistoryResult {
    fn of(
        path: &std::path::Path,
        record: &Record,
        figure: (f64, Option<f64>),
        previous: Option<(f64, Option<f64>)>,
    ) -> Self {
        let interval = headline(record).and_then(|measured| measured.throughput_core_interval);
        let by_previous = previous.and_then(|(throughput, width)| {
            RatioInterval::of_intervals([throughput, figure.0], [width?, figure.1?], CONFIDENCE)
        });
        HistoryResult {
            path: path.to_owned(),
            started: record.started.clone(),
            git_revision: record.provenance.git_revision.clone(),
            git_clean: record.provenance.git_clean,
            flagperf: record.provenance.flagperf.clone(),
            engine_version: engine(record).map_or_else(String::new, |facts| facts.version.clone()),
            validity: record.validity.verdict,
            throughput_core_samples_per_s: figure.0,
            low_samples_per_s: interval.map(|interval| interval.low_samples_per_s.0),
            high_samples_per_s: interval.and_then(|interval| Some(interval.high_samples_per_s?.0)),
            by_previous,
        }
    }
}

/// What must be equal besides what [`differences`] compares, so that results can be in one series.
#[derive(PartialEq, Eq)]
struct Work<'r> {
    key: String,
    vendor: &'r str,
    device: &'r str,
    engine: &'r str,
    precision: &'r str,
    processes: u64,
    index: Option<u32>,
}

impl<'r> Work<'r> {
    fn of(record: &'r Record) -> Self {
        let engine = engine(record);
        Work {
            key: record.key(),
            vendor: &record.vendor,
            device: engine.map_or("", |engine| &engine.device),
            engine: engine.map_or("", |engine| &engine.name),
            precision: engine.map_or("", |engine| &engine.precision),
            processes: record.processes(),
            index: record.device,
        }
    }
}

fn are_comparable(first: &Record, second: &Record) -> bool {
    Work::of(first) == Work::of(second) && !differences(first, second).iter().any(|difference| difference.prevents)
}

/// Returns the engine of the headline figures.
fn engine(record: &Record) -> Option<&flagperf_core::event::EngineFacts> {
    record.headline_phase()?.engine.as_ref()
}

/// Returns the throughput of a loop with the relative half width of its interval.
fn figure(measured: &Measurement) -> Option<(f64, Option<f64>)> {
    let SamplesPerSecond(throughput) = measured.throughput_core_samples_per_s?;
    let width = measured.throughput_core_interval.map(|interval| interval.relative_half_width);
    (throughput.is_finite() && throughput > 0.0).then_some((throughput, width))
}

/// Returns the standard error of the throughput of a result by the throughput; `None` without an interval.
fn relative_error(record: &Record) -> Option<f64> {
    let interval = headline(record)?.throughput_core_interval?;
    Some(interval.relative_half_width / student_quantile(interval.degrees_of_freedom as f64, CONFIDENCE))
}

/// Returns when a result started, or why it cannot be used.
fn usable_start(record: &Record) -> Result<Timestamp, String> {
    if record.validity.verdict == Validity::Invalid {
        let reasons = record.validity.reasons.first();
        return Err(reasons.map_or_else(|| "invalid".to_owned(), |reason| format!("invalid: {reason}")));
    }
    if headline(record).and_then(figure).is_none() {
        return Err("it has no throughput".to_owned());
    }
    record.started.parse().map_err(|_| format!("its start is `{}`, which is not a time", record.started))
}

/// Returns the ratio of two levels of logarithms with its 95 % interval.
fn ratio_of(change: &LevelChange) -> RatioInterval {
    let quantile = student_quantile(change.degrees_of_freedom, CONFIDENCE);
    let [low, high] = [-1.0, 1.0].map(|sign| (change.difference + sign * quantile * change.error).exp());
    RatioInterval { ratio: change.difference.exp(), low, high, pairs: 0 }
}

/// Returns what differs between two results of a series: settings, the commit, versions, and the machine.
fn changed(first: &Record, second: &Record) -> Vec<Difference> {
    type Fact = (&'static str, fn(&Record) -> Option<String>);
    const FACTS: [Fact; 8] = [
        ("git revision", |record| record.provenance.git_revision.clone()),
        ("checkout as in its revision", |record| record.provenance.git_clean.map(|clean| clean.to_string())),
        ("flagperf", |record| Some(record.provenance.flagperf.clone())),
        ("program", |record| record.provenance.binary_sha256.as_ref().map(|hash| format!("{hash:.12}"))),
        ("Rust compiler", |record| Some(record.provenance.rustc.clone())),
        ("image", |record| record.provenance.image.as_ref().map(|image| format!("{:.19}", image.id))),
        ("system", |record| record.hosts.first().map(|host| host.machine.system.clone())),
        ("kernel", |record| record.hosts.first().map(|host| host.machine.kernel.clone())),
    ];
    let mut found = Vec::new();
    let mut add = |what: &str, first: Option<String>, second: Option<String>| {
        if first != second {
            let [first, second] = [first, second].map(|value| value.unwrap_or_else(|| "unknown".to_owned()));
            found.push(Difference { what: what.to_owned(), first, second, prevents: false });
        }
    };
    for phase in &second.phases {
        let facts = |phase: &PhaseRecord| {
            let engine = phase.engine.as_ref()?;
            Some((format!("{} {}", engine.name, engine.version), engine.driver.clone()))
        };
        let before = first.phases.iter().find(|before| before.phase == phase.phase).and_then(facts);
        let now = facts(phase);
        let name = phase.phase.name();
        let versions = [&before, &now].map(|facts| facts.as_ref().map(|(version, _)| version.clone()));
        let drivers = [before, now].map(|facts| facts.and_then(|(_, driver)| driver));
        for (what, [first, second]) in [("engine", versions), ("driver", drivers)] {
            add(&format!("{what} of {name}"), first, second);
        }
    }
    for (what, fact) in FACTS {
        add(what, fact(first), fact(second));
    }
    found.extend(differences(first, second));
    found
}

#[cfg(test)]
mod tests;
