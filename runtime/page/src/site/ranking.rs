//! The places of results in the rankings of their case: by throughput, and those of scenarios by the queries/s that kept the bound.

use std::collections::HashMap;

use flagperf_result::{Validity, measured_scenario};

use super::super::entry::Entry;
use jiff::Timestamp;

/// The place of a result in a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Rank(usize),
    /// Why it is not ranked; empty for a result that has nothing to do with the ranking.
    Unranked(&'static str),
}

/// What a result is compared by.
pub(super) struct Competitor {
    /// What the results of a ranking have in common.
    among: String,
    /// What it was measured with. Of each, only the newest result is ranked.
    configuration: String,
    figure: f64,
}

/// Returns the place of each of some results.
pub(super) fn places(
    entries: &[Entry],
    indices: &[usize],
    compete: fn(&Entry) -> Result<Competitor, &'static str>,
) -> HashMap<usize, Place> {
    let mut places = HashMap::new();
    let mut newest: HashMap<[String; 2], (usize, f64)> = HashMap::new();
    for index in indices.iter().copied() {
        let Competitor { among, configuration, figure } = match compete(&entries[index]) {
            Ok(competitor) => competitor,
            Err(reason) => {
                places.insert(index, Place::Unranked(reason));
                continue;
            }
        };
        places.insert(index, Place::Unranked("a newer result is ranked"));
        let known = newest.entry([among, configuration]).or_insert((index, figure));
        if started(&entries[index]) > started(&entries[known.0]) {
            *known = (index, figure);
        }
    }
    let mut ranked: Vec<_> = newest.into_iter().map(|([among, _], (index, figure))| (among, figure, index)).collect();
    ranked.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
    for group in ranked.chunk_by(|a, b| a.0 == b.0) {
        places.extend(group.iter().zip(1..).map(|((_, _, index), rank)| (*index, Place::Rank(rank))));
    }
    places
}

/// Returns how a result competes by its throughput: with those on the same number of devices.
///
/// # Errors
/// With the reason why it does not.
pub(super) fn by_throughput(entry: &Entry) -> Result<Competitor, &'static str> {
    check(entry)?;
    let figure = entry.core().ok_or("it has no throughput")?.0;
    Ok(Competitor { among: entry.devices().to_string(), configuration: configuration(entry), figure })
}

/// Returns how a result competes by the queries/s that kept the latency bound of its scenario: with those of the same scenario on as many
/// devices.
///
/// # Errors
/// With the reason why it does not; empty without a scenario.
pub(super) fn by_queries(entry: &Entry) -> Result<Competitor, &'static str> {
    let found = measured_scenario(entry.record()).filter(|_| entry.summary.is_none());
    let (scenario, trial) =
        found.and_then(|(figures, trial)| Some((&figures.report.as_ref()?.scenario, trial))).ok_or("")?;
    check(entry)?;
    if !trial.holds.ok_or("it has no latency bound")? {
        return Err("it misses the bound");
    }
    let bounds: Vec<_> = scenario.bounds().collect();
    let among = format!(
        "{} {} {} {} {bounds:?}",
        entry.devices(),
        scenario.kind.name(),
        scenario.samples_per_query,
        scenario.percentile
    );
    let figure = trial.queries_per_s.ok_or("it has no throughput")?;
    Ok(Competitor { among, configuration: configuration(entry), figure })
}

fn check(entry: &Entry) -> Result<(), &'static str> {
    if entry.summary.is_none() && entry.results[0].0.is_part() {
        return Err("it is part of a result on several devices");
    }
    if entry.is_wrong() {
        return Err("it is wrong");
    }
    match entry.validity() {
        Validity::Valid => Ok(()),
        Validity::Unofficial => Err("it is unofficial"),
        Validity::Invalid => Err("it is invalid"),
    }
}

/// Returns when a result began, in seconds since 1970.
pub(super) fn started(entry: &Entry) -> Option<i64> {
    entry.started().parse::<Timestamp>().ok().map(Timestamp::as_second)
}

/// Returns what distinguishes the ranked results of a case.
pub(super) fn configuration(entry: &Entry) -> String {
    let record = entry.record();
    let info = &record.finish_info;
    let compiler = info.compiler.as_deref().unwrap_or(&record.framework);
    let device = match entry.scale() {
        Some(scale) => format!("{} {scale}", entry.device_names()),
        None => entry.device_names(),
    };
    [&record.vendor, &device, compiler, &info.precision, &info.batchsize.to_string()].join(", ")
}
