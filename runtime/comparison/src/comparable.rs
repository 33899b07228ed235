//! What two results must have in common to be compared.

use flagperf_core::event::DatasetFacts;
use flagperf_core::measure::Measurement;
use flagperf_core::step::Phase;
use flagperf_result::{Record, different_keys};
use serde::Serialize;

/// What differs if batches have other sizes.
pub const BATCH_SIZE: &str = "batch size";

/// Something that differs between two results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What differs: `dataset`.
    pub what: String,
    /// The value of the first result.
    pub first: String,
    /// The value of the second result.
    pub second: String,
    /// Whether a comparison in spite of it is meaningless.
    pub prevents: bool,
}

/// Returns what differs between two results. Without a difference that prevents it, they can be compared.
pub fn differences(first: &Record, second: &Record) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut add = |what: &str, first: String, second: String, prevents: bool| {
        if first != second {
            found.push(Difference { what: what.to_owned(), first, second, prevents });
        }
    };
    add("case", first.case.clone(), second.case.clone(), true);
    add("unit", first.unit.clone(), second.unit.clone(), true);
    let step = |record: &Record| {
        record.headline_step().map_or_else(|| "nothing".to_owned(), |step| format!("{step:?}").to_lowercase())
    };
    add("what was measured", step(first), step(second), true);
    // A script of a vendor may change the graph of inference.
    let parameters = |record: &Record| {
        let phase = record.phases.iter().find(|phase| phase.phase != Phase::Infer)?;
        phase.model.as_ref()?.parameters
    };
    if let (Some(first), Some(second)) = (parameters(first), parameters(second)) {
        add("parameters of the model", first.to_string(), second.to_string(), true);
    }
    // Processes that train together divide a batch.
    let batch = |record: &Record| {
        let of_process = headline(record).map(|loops| u64::from(loops.batch_size));
        of_process.map_or_else(|| "none".to_owned(), |size| (size * record.processes()).to_string())
    };
    add(BATCH_SIZE, batch(first), batch(second), true);
    let data = |record: &Record| {
        dataset(record).map_or_else(
            || "none".to_owned(),
            |facts| format!("{} samples, index {:.12}", facts.samples, facts.index_sha256),
        )
    };
    add("dataset", data(first), data(second), true);
    let pipeline = |record: &Record| dataset(record).map(|facts| facts.pipeline.join("; ")).unwrap_or_default();
    add("transforms", pipeline(first), pipeline(second), true);
    add("scenario", scenario(first), scenario(second), true);
    let host = |record: &Record| record.hosts.first().map(|host| host.name.clone()).unwrap_or_default();
    add("host", host(first), host(second), false);
    let names: std::collections::BTreeSet<&str> = different_keys(&first.settings, &second.settings, true).collect();
    for name in names {
        let value = |record: &Record| {
            let set = record.settings.get(name).filter(|setting| !setting.value.is_null());
            set.map_or_else(|| "not set".to_owned(), |setting| setting.value.to_string())
        };
        add(name, value(first), value(second), false);
    }
    found
}

/// Returns the measured loop that determines the headline figures.
pub(super) fn headline(record: &Record) -> Option<&Measurement> {
    record.measured_loops().next_back()
}

/// Returns how queries arrive and which share of them has to keep a bound, without the bounds and the length of the scenario.
fn scenario(record: &Record) -> String {
    let Some(setting) = record.settings.get("scenario") else { return "none".to_owned() };
    let kind = setting.value["kind"].as_str().unwrap_or("none");
    let percentile = setting.value["percentile"].as_f64();
    percentile.map_or_else(|| kind.to_owned(), |percentile| format!("{kind}, percentile {percentile}"))
}

/// Returns what is known of the data of the last phase that has some.
pub(super) fn dataset(record: &Record) -> Option<&DatasetFacts> {
    record.phases.iter().rev().find_map(|phase| phase.dataset.as_ref())
}
