//! The record of a case whose process ended before it wrote a record: the results in the events that had arrived, and
//! why the process ended. A replica on a lost host gets such a record, and so does a case on this machine that was cut
//! off and that `flagperf resume` runs again.

use std::io::BufReader;
use std::path::Path;

use flagperf_core::regular_file::open_regular;

use super::case::{config_json, empty_record, time_text};
use super::conclude::conclude;
use super::sources::{CaseSources, hash_copies};
use flagperf_core::event::Event;
use flagperf_core::measure::Nanos;
use flagperf_core::run_files::EVENTS_FILE;
use flagperf_plan::{CasePlan, EffectiveValue, Plan};
use flagperf_result::{
    ChainReader, FailureRecord, PhaseCollector, PhaseRecord, Provenance, ReceivedEvent, Record, Status, ValidityCheck,
};

/// A case whose process ended before it wrote a record.
#[derive(Clone, Copy, Debug)]
pub struct LostCase<'a> {
    /// The plan of the run.
    pub plan: &'a Plan,
    /// The effective values.
    pub rows: &'a [EffectiveValue],
    pub case: &'a CasePlan,
    /// Folder of the run.
    pub run: &'a Path,
    /// Folder of the files of the case.
    pub folder: &'a Path,
    /// The program that was to measure the case, and the checkout.
    pub program: &'a Provenance,
    /// Whether a process that was killed had started the case, perhaps from other sources.
    pub is_resumed: bool,
    /// Why it is not certain that the case had its host for itself.
    pub host_doubts: &'a [String],
}

impl LostCase<'_> {
    /// Returns the record of the case. `reason` states why the case did not write a record itself.
    ///
    /// The record covers the events up to the first one that cannot be read; an incomplete last line is ignored.
    pub fn record(&self, reason: String, hint: &str) -> Record {
        let LostCase { plan, rows, case, run, folder, program, is_resumed, host_doubts } = *self;
        let mut record = empty_record(plan, rows, run, program, case);
        hash_copies(folder, &mut record.provenance);
        if !is_resumed && record.provenance.scripts_sha256.is_empty() {
            // Its host was lost before the copies arrived, and has the files that this machine has sent.
            let config = case.jobs.last().map(|job| config_json(&job.config)).unwrap_or_default();
            let hashes = CaseSources::of(plan, rows, case, config).map(|sources| sources.hash()).unwrap_or_default();
            record.provenance.scripts_sha256 = hashes.scripts;
            record.provenance.config_files_sha256 = hashes.config_files;
        }
        let (phases, warnings, last) = replay(&folder.join(EVENTS_FILE), &mut record.provenance);
        // Where the file system does not tell when, the time of this record remains.
        record.started = began(folder).unwrap_or(record.started);
        record.phases = phases;
        record.warnings.extend(warnings);
        record.doubt_host(host_doubts.iter().cloned());
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
}

/// Returns when the case began: when its file of events was created here.
fn began(folder: &Path) -> Option<String> {
    let created = std::fs::metadata(folder.join(EVENTS_FILE)).and_then(|found| found.created()).ok()?;
    Some(time_text(&jiff::Timestamp::try_from(created).ok()?.to_zoned(jiff::tz::TimeZone::system())))
}

/// Replays the events of a file. Returns the phases, their warnings, and the time of the last event. The hash of that event
/// becomes part of `provenance`. The seed of the case is lost.
fn replay(path: &Path, provenance: &mut Provenance) -> (Vec<PhaseRecord>, Vec<String>, Nanos) {
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
            reader.hash().clone_into(&mut provenance.events_sha256);
            if matches!(event.event, Event::Observed { .. }) {
                continue;
            }
            if open.as_ref().is_none_or(|collector| collector.phase() != event.phase) {
                close(open.take(), last);
                open = Some(PhaseCollector::new(event.phase, event.at));
            }
            last = event.at;
            open.iter_mut().for_each(|collector| collector.add(ReceivedEvent { at: last, event: &event.event }));
        }
    }
    close(open, last);
    (phases, warnings, last)
}
