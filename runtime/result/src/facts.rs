//! What the conductor of a case observed and decided itself. The last event of a case contains it, so that `verify` can compare the
//! record with the events: everything else in a record is computed from the events of the workers and from other files.

use serde_json::{Value, json};

use super::Record;

/// The keys of a record that are computed from other files of the result.
const COMPUTED: [&str; 6] = ["schema", "validity", "accuracy", "agreement", "audit", "flops"];
/// The keys of a phase that follow from the events of its worker, from the samples of the monitors and from its files.
const COMPUTED_OF_PHASE: [&str; 12] = [
    "agreement",
    "audit",
    "dataset",
    "engine",
    "failed_samples",
    "files",
    "measured",
    "memory_bytes_max",
    "model",
    "protection",
    "steps",
    "usage",
];
const E2E_TIME: &str = "e2e_time(second)";

/// Returns the parts of a record that nothing but the conductor knows, by their keys in the record.
pub fn conductor_facts(record: &Record) -> Value {
    let mut facts = serde_json::to_value(record).expect("a record is plain data");
    COMPUTED.iter().for_each(|key| remove(&mut facts, key));
    for phase in facts["phases"].as_array_mut().into_iter().flatten() {
        COMPUTED_OF_PHASE.iter().for_each(|key| remove(phase, key));
    }
    remove(&mut facts["provenance"], "events_sha256");
    facts["finish_info"] = json!({ E2E_TIME: facts["finish_info"][E2E_TIME] });
    facts
}

fn remove(value: &mut Value, key: &str) {
    if let Some(entries) = value.as_object_mut() {
        entries.remove(key);
    }
}
