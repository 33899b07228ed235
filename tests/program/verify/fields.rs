//! Each field of a record follows from another file, or `verify` says that only the run itself states it.

use std::fs;
use std::path::Path;

use flagperf_core::event::Event;
use flagperf_core::measure::Nanos;
use flagperf_result::{ChainReader, EventChain, Record, ValidityCheck, conductor_facts};
use flagperf_verify::{Standing, recomputed};
use serde_json::Value;

use super::forgeries::write_log_again;
use super::{findings, runs, verified};
use crate::support::leaves::{field, leaves, others, remove};
use crate::support::results;

/// Returns the record of the first run.
fn honest_record() -> Value {
    let text = fs::read_to_string(runs().first.0.join("record.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns whether two texts of a record mean the same.
fn is_same(one: &Value, other: &Value) -> bool {
    let parse = |value: &Value| serde_json::from_value::<Record>(value.clone()).ok();
    let text = |record: Record| serde_json::to_value(record).unwrap();
    matches!((parse(one), parse(other)), (Some(one), Some(other)) if text(one.clone()) == text(other.clone()))
}

/// Calls `work` with the fields of the record, in several threads. Each has a copy of the result.
fn for_each_field(record: &Value, work: impl Fn(&Path, &str) -> Option<String> + Sync) -> Vec<String> {
    let fields = leaves(record);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let work = &work;
    std::thread::scope(|scope| {
        let parts = fields.chunks(fields.len().div_ceil(threads));
        let threads: Vec<_> = parts
            .map(|fields| {
                scope.spawn(move || {
                    let copy = results::copy(&runs().first.0);
                    fields.iter().filter_map(|field| work(copy.path(), field)).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn every_field_of_a_record_that_is_changed_or_deleted_is_found() {
    let honest = honest_record();
    let is_found = |result: &Path, changed: &Value| {
        results::change_record(result, |record| record.clone_from(changed));
        verified(result).standing > Standing::Consistent
    };
    let missed = for_each_field(&honest, |result, pointer| {
        let mut deleted = honest.clone();
        if remove(&mut deleted, pointer) && !is_same(&deleted, &honest) && !is_found(result, &deleted) {
            return Some(format!("{} deleted", field(pointer)));
        }
        let value = honest.pointer(pointer).unwrap();
        let missed = others(value).into_iter().find(|other| {
            let mut changed = honest.clone();
            changed.pointer_mut(pointer).unwrap().clone_from(other);
            !is_same(&changed, &honest) && !is_found(result, &changed)
        });
        missed.map(|other| format!("{}: {value} -> {other}", field(pointer)))
    });
    assert_eq!(missed, [""; 0]);
}

/// Writes a record, and the last event, the log and the manifest as the run would have written them for it.
pub(super) fn forge(result: &Path, record: &Record) {
    let path = result.join("events.jsonl");
    let events = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let (mut reader, mut chain) = (ChainReader::new(&events[..]), EventChain::create(&path).unwrap());
    while let Some(mut read) = reader.read().unwrap() {
        if let Event::Observed { facts } = &mut read.event {
            *facts = conductor_facts(record);
        }
        chain.push(read.at.since(Nanos(0)), read.phase, &read.event).unwrap();
    }
    let mut record = record.clone();
    chain.hash().clone_into(&mut record.provenance.events_sha256);
    write_log_again(result, &record);
    results::change_record(result, |text| *text = serde_json::to_value(&record).unwrap());
}

/// Returns the record with a field changed and with everything that follows from it; `None` when the value does not fit the field.
fn forged(honest: &Value, pointer: &str, other: &Value) -> Option<Record> {
    let mut changed = honest.clone();
    changed.pointer_mut(pointer)?.clone_from(other);
    let record: Record = serde_json::from_value(changed.clone()).ok()?;
    if is_same(&changed, honest) {
        return None;
    }
    let whole = recomputed(&record);
    let is_kept = serde_json::to_value(&whole).unwrap().pointer(pointer) == Some(other);
    let record = if is_kept { whole } else { record };
    let record = Record { validity: ValidityCheck::judge(&record), ..record };
    // The verdict and the last hash follow from the rest, so that they are written as before.
    let is_undone = pointer == "/provenance/events_sha256" || is_same(&serde_json::to_value(&record).unwrap(), honest);
    (!is_undone).then_some(record)
}

#[test]
fn a_field_for_which_the_last_event_is_forged_too_is_found_or_named_as_not_checkable() {
    let honest = honest_record();
    let report = verified(&runs().first.0);
    let covers = |field: &str| {
        let name = report.not_checkable.iter().find(|name| {
            field.strip_prefix(**name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        });
        name.copied()
    };
    let tried = for_each_field(&honest, |result, pointer| {
        let forgeries = others(honest.pointer(pointer).unwrap()).into_iter();
        let mut records = forgeries.filter_map(|other| forged(&honest, pointer, &other)).peekable();
        records.peek()?;
        let is_missed = records.any(|record| {
            forge(result, &record);
            verified(result).standing == Standing::Consistent
        });
        Some(format!("{}{}", if is_missed { MISSED } else { "" }, field(pointer)))
    });
    let missed: Vec<&str> = tried.iter().filter_map(|field| field.strip_prefix(MISSED)).collect();
    let unnamed: Vec<&&str> = missed.iter().filter(|field| covers(field).is_none()).collect();
    assert_eq!(unnamed, Vec::<&&str>::new(), "nothing contradicts these fields, and `verify` does not say so");
    // The list names no field that is checked. The place of the checkout follows from paths in it, which a result need not have,
    // and all warnings of this record follow from its figures.
    let is_needed = |name: &str| {
        name.contains("FLAGPERF_PATH") || name == "warnings" || missed.iter().any(|field| covers(field) == Some(name))
    };
    let found = tried.iter().filter(|field| !field.starts_with(MISSED));
    let checked: Vec<&str> = found.filter_map(|field| covers(field)).filter(|name| !is_needed(name)).collect();
    assert_eq!(checked, [""; 0], "these are checked");
}

/// Marks a field whose forgery was not found.
const MISSED: &str = "missed: ";

#[test]
fn a_result_without_the_conductors_event_is_not_verifiable() {
    let copy = results::copy(&runs().first.0);
    let path = copy.path().join("events.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let last = text.trim_end().rfind('\n').unwrap();
    fs::write(&path, &text[..=last]).unwrap();
    let before_last = text[..last].rsplit('\n').next().unwrap();
    let hash = flagperf_core::hash::hash_bytes(before_last.as_bytes());
    results::change_record(copy.path(), |record| record["provenance"]["events_sha256"] = hash.into());
    let report = verified(copy.path());
    assert_eq!((report.standing, findings(&report)), (Standing::NotVerifiable, Vec::new()));
    assert!(report.unchecked[0].starts_with("`events.jsonl` lacks the last event"), "{:?}", report.unchecked);
}
