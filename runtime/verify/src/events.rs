//! Reads the events of a result: the records of its phases and the hashes of its samples files follow from them.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::path::Path;

use flagperf_core::regular_file::open_regular;
use indexmap::IndexMap;
use serde_json::Value;

use super::CaseReport;
use flagperf_core::event::Event;
use flagperf_core::hash::{OutputDigest, Seed, WrittenHash};
use flagperf_core::measure::Nanos;
use flagperf_core::run_files::{EVENTS_FILE, RECORD_FILE};
use flagperf_result::{
    ChainError, ChainReader, ChainedEvent, EVENTS_BYTES_MAX, LogText, PhaseCollector, PhaseRecord, ReceivedEvent,
    Record, SampleHashers, Status, TrainingLog,
};
use flagperf_sampling::WindowCollector;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// What the events yield.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// The phases, in order.
    pub(super) phases: Vec<ReplayedPhase>,
    /// When the phases and their passes began and ended.
    pub(super) windows: WindowCollector,
    /// SHA-256 of the files that contain the same as the events, by path: the samples files and the logs of a training.
    pub(super) derived: BTreeMap<String, String>,
    /// What the conductor observed itself, by the keys of the record; `None` when the events do not end with it.
    pub(super) facts: Option<Value>,
}

/// What the events of a phase yield.
#[derive(Debug)]
pub(super) struct ReplayedPhase {
    /// The record, without what only the conductor knows.
    pub(super) record: PhaseRecord,
    pub(super) warnings: Vec<String>,
    /// The passes of the measured loop, in order.
    pub(super) passes: Vec<ReplayedPass>,
    /// The learning rates of the steps of each training, in order.
    pub(super) learning_rates: Vec<Vec<f64>>,
    /// Why the phase did not succeed; `None` when the worker reported success.
    pub(super) failure: Option<String>,
}

/// What the events of a pass yield for its outputs.
#[derive(Debug, Default)]
pub(super) struct ReplayedPass {
    /// The digest of the outputs of each step.
    pub(super) digests: Vec<OutputDigest>,
    /// The metrics of the pass.
    pub(super) accuracy: IndexMap<String, f64>,
    pub(super) is_accuracy_known: bool,
}

/// Reads the events of the result with this record. Returns `None` when the events cannot be read.
pub(super) fn replay(folder: &Path, record: &Record, report: &mut CaseReport) -> Option<Replay> {
    let events_sha256 = &record.provenance.events_sha256;
    let file = match open_regular(&folder.join(EVENTS_FILE)) {
        Ok(file) => file,
        Err(error) => {
            report.give_up(format!("`{EVENTS_FILE}` cannot be read: {error}"));
            return None;
        }
    };
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    if bytes > EVENTS_BYTES_MAX {
        report.add(EVENTS_FILE, format!("it has {bytes} bytes (a run writes at most {EVENTS_BYTES_MAX})"), None, None);
        return None;
    }
    let mut reader = ChainReader::new(BufReader::with_capacity(BUFFER_BYTES, file));
    let run_seed = known_seed(record);
    let has_log = record.training_key.is_some();
    if has_log && run_seed.is_none() {
        report.unchecked.push("the logs of the training: its seed was lost with the process of the run".to_owned());
    }
    let log = (has_log && run_seed.is_some()).then(|| {
        let host = record.hosts.first().map_or_else(String::new, |host| host.name.clone());
        TrainingLog::new(record, &host)
    });
    let mut replayer = Replayer { passes: record.repeat(), run_seed, log, ..Replayer::default() };
    loop {
        match reader.read() {
            Ok(Some(event)) => {
                if let Err(reason) = replayer.add(&event) {
                    report.add(EVENTS_FILE, reason, None, None);
                    return None;
                }
            }
            Ok(None) => break,
            Err(ChainError::Read(error)) => {
                report.give_up(format!("`{EVENTS_FILE}` cannot be read: {error}"));
                return None;
            }
            Err(error) => {
                report.add(EVENTS_FILE, error.to_string(), None, None);
                return None;
            }
        }
    }
    report.compare(RECORD_FILE, "provenance.events_sha256", reader.hash(), events_sha256);
    match replayer.finish() {
        Ok(replay) => Some(replay),
        Err(error) => {
            report.give_up(format!("the expected samples files cannot be computed: {error}"));
            None
        }
    }
}

/// Returns the seed of the run; `None` if it was lost with the process that had drawn it.
pub(super) fn known_seed(record: &Record) -> Option<Seed> {
    let seed = record.provenance.run_seed;
    (seed != Seed::default() || record.status == Status::Ok).then_some(seed)
}

/// Collects events as the conductor does.
#[derive(Default)]
struct Replayer {
    passes: u32,
    run_seed: Option<Seed>,
    last: Option<Nanos>,
    open: Option<(PhaseCollector, SampleHashers)>,
    /// The passes of the open phase.
    passes_found: Vec<ReplayedPass>,
    /// The logs of a training, and the hashes of their files.
    log: Option<TrainingLog>,
    log_files: BTreeMap<String, WrittenHash>,
    learning_rates: Vec<Vec<f64>>,
    replay: Replay,
}

impl Replayer {
    fn add(&mut self, ChainedEvent { at, phase, event }: &ChainedEvent) -> Result<(), String> {
        if self.last.is_some_and(|last| *at < last) {
            return Err("an event has an earlier arrival time than the event before it".to_owned());
        }
        self.last = Some(*at);
        if self.replay.facts.is_some() {
            return Err("an event follows the conductor's own, which is the last one".to_owned());
        }
        if let Event::Observed { facts } = event {
            self.replay.facts = Some(facts.clone());
            return Ok(());
        }
        if let Event::Started { run_seed_sha256, .. } = event
            && self.run_seed.is_some_and(|seed| seed.sha256() != *run_seed_sha256)
        {
            return Err("a worker started with another `provenance.run_seed` than the record states".to_owned());
        }
        if self.open.as_ref().is_none_or(|(collector, _)| collector.phase() != *phase) {
            self.close().map_err(|error| error.to_string())?;
            self.open = Some((PhaseCollector::new(*phase, *at), SampleHashers::default()));
        }
        for LogText { path, text } in
            self.log.as_mut().map(|log| log.add(at.since(Nanos(0)), event)).unwrap_or_default()
        {
            self.log_files.entry(path).or_default().add(text.as_bytes());
        }
        let Some((collector, samples)) = &mut self.open else { return Ok(()) };
        collector.add(ReceivedEvent { at: *at, event });
        self.replay.windows.add(*phase, *at, event);
        samples.add(event).map_err(|error| error.to_string())?;
        match event {
            Event::PassBegin { .. } => self.passes_found.push(ReplayedPass::default()),
            Event::Steps { times, .. } => {
                if let Some(pass) = self.passes_found.last_mut() {
                    pass.digests.extend(times.0.iter().map(|step| step.outputs));
                }
            }
            Event::EpochLosses(losses) => {
                if self.learning_rates.len() <= losses.round as usize {
                    self.learning_rates.push(Vec::new());
                }
                self.learning_rates.last_mut().into_iter().for_each(|rates| rates.extend(&losses.learning_rate));
            }
            Event::PassEnd(found) => {
                if let Some(pass) = self.passes_found.last_mut() {
                    pass.accuracy = found.accuracy.clone();
                    pass.is_accuracy_known = found.accuracy_unknown.is_none();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        let Some((collector, samples)) = self.open.take() else { return Ok(()) };
        let passes = std::mem::take(&mut self.passes_found);
        let learning_rates = std::mem::take(&mut self.learning_rates);
        let phase = collector.phase();
        self.replay.derived.extend(samples.finish(phase)?);
        let reported = collector.failure().map(|failure| failure.reason.clone());
        let contradiction = || collector.contradiction().map(str::to_owned);
        let unfinished = || (!collector.is_finished()).then(|| "the worker did not report success".to_owned());
        let failure = reported.or_else(contradiction).or_else(unfinished).or_else(|| collector.missing(self.passes));
        let (record, warnings) = collector.finish(self.last.unwrap_or(Nanos(0)), None);
        self.replay.phases.push(ReplayedPhase { record, warnings, passes, learning_rates, failure });
        Ok(())
    }

    fn finish(mut self) -> io::Result<Replay> {
        self.close()?;
        self.replay.derived.extend(self.log_files.into_iter().map(|(path, hash)| (path, hash.hexadecimal())));
        Ok(self.replay)
    }
}
