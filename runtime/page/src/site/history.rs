//! The history of a case: the throughput of its results that are neither invalid nor wrong, by the time at which they began.

use flagperf_report::rate;
use flagperf_result::Validity;
use indexmap::IndexMap;
use jiff::Timestamp;
use serde::Serialize;

use super::super::chart::{Chart, Part};
use super::super::entry::Entry;
use super::super::result::text;
use super::ranking::{configuration, started};

/// Most series of a history, those of the fastest results.
const SERIES_MAX: usize = 8;

#[derive(Serialize)]
pub(super) struct HistoryChart {
    pub(super) elements: String,
    pub(super) legend: Vec<(usize, String)>,
}

/// Draws a line for each configuration that was measured more than once; `None` without one.
pub(super) fn history<'e>(entries: impl Iterator<Item = &'e Entry<'e>>) -> Option<HistoryChart> {
    let mut series: IndexMap<String, Vec<(f64, f64)>> = IndexMap::new();
    for entry in entries.filter(|entry| entry.validity() != Validity::Invalid && !entry.is_wrong()) {
        if let (Some(time), Some(core)) = (started(entry), entry.core()) {
            series.entry(configuration(entry)).or_default().push((time as f64, core.0));
        }
    }
    series.retain(|_, points| points.len() > 1);
    series.truncate(SERIES_MAX);
    let all: Vec<(f64, f64)> = series.values().flatten().copied().collect();
    let first = all.iter().map(|point| point.0).reduce(f64::min)?;
    let last = all.iter().copied().reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))?;
    let mut parts = Vec::new();
    for (colour, points) in series.values_mut().enumerate() {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        parts.extend([Part::Line(points.clone(), colour), Part::Dots(points.clone(), colour)]);
    }
    let chart = Chart {
        x: first..last.0,
        y: 0.0..last.1 * 1.05,
        x_label: |time| {
            let date = Timestamp::from_second(time as i64).map(|time| time.strftime("%Y-%m-%d").to_string());
            date.unwrap_or_default()
        },
        y_label: |value| rate(flagperf_core::units::SamplesPerSecond(value)),
        parts,
    };
    let legend = series.keys().enumerate().map(|(colour, name)| (colour, text(name))).collect();
    Some(HistoryChart { elements: chart.elements(), legend })
}
