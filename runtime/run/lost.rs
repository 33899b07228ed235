//! The record of a case whose process ended before it wrote a record: the results in its events, and why the process ended.

use std::io::BufReader;
use std::path::Path;

use flagperf_onnx::open_regular;

use super::case::{empty_record, time_text};
use super::conclude::conclude;
use crate::measure::Nanos;
use crate::plan::{CasePlan, EffectiveValue, Plan};
use crate::result::{
    ChainReader, FailureRecord, PhaseCollector, PhaseRecord, Provenance, ReceivedEvent, Record, Status, ValidityCheck,
};

/// Returns the record of a case of the run `run` whose files are in `folder`. `reason` states why the case did not write a
/// record itself.
///
/// The record covers the events up to the first one that cannot be read; an incomplete last line is ignored.
pub fn lost_record(
    (plan, rows, case): (&Plan, &[EffectiveValue], &CasePlan),
    run: &Path,
    folder: &Path,
    reason: String,
    hint: &str,
) -> Record {
    let mut record = empty_record(plan, rows, run, &Provenance::of_this_program(), case);
    let (phases, warnings, last) = replay(&folder.join("events.jsonl"), &mut record.provenance.events_sha256);
    // Where the file system does not tell when, the time of this record remains.
    record.started = began(folder).unwrap_or(record.started);
    record.phases = phases;
    record.warnings.extend(warnings);
    record.status = Status::Failed;
    let phase = record.phases.last().map(|phase| phase.phase);
    let step = record.phases.last().and_then(|phase| phase.steps.last()).map(|step| step.step);
    record.failures.push(FailureRecord { phase, step, reason, hint: hint.to_owned(), stderr: Vec::new() });
    if let Some(job) = case.jobs.last() {
        // Facts about the machine on which the case ran are not available.
        conclude(&mut record, Vec::new(), &case.settings, &job.parameters, last.since(Nanos(0)));
    }
    record.validity = ValidityCheck::judge(&record);
    record
}

/// Returns when the case began: when its file of events was created here.
fn began(folder: &Path) -> Option<String> {
    let created = std::fs::metadata(folder.join("events.jsonl")).and_then(|found| found.created()).ok()?;
    Some(time_text(&jiff::Timestamp::try_from(created).ok()?.to_zoned(jiff::tz::TimeZone::system())))
}

/// Replays the events of a file. Returns the phases, their warnings, and the time of the last event.
fn replay(path: &Path, last_hash: &mut String) -> (Vec<PhaseRecord>, Vec<String>, Nanos) {
    let (mut phases, mut warnings, mut last) = (Vec::new(), Vec::new(), Nanos(0));
    let mut open: Option<PhaseCollector> = None;
    let mut close = |open: Option<PhaseCollector>, at: Nanos| {
        let Some(collector) = open else { return };
        let (phase, own) = collector.finish(at, None);
        phases.push(phase);
        warnings.extend(own);
    };
    if let Ok(file) = open_regular(path) {
        let mut reader = ChainReader::new(BufReader::new(file));
        while let Ok(Some(event)) = reader.read() {
            if open.as_ref().is_none_or(|collector| collector.phase() != event.phase) {
                close(open.take(), last);
                open = Some(PhaseCollector::new(event.phase, event.at));
            }
            last = event.at;
            open.iter_mut().for_each(|collector| collector.add(ReceivedEvent { at: last, event: &event.event }));
            reader.hash().clone_into(last_hash);
        }
    }
    close(open, last);
    (phases, warnings, last)
}
