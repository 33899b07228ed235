//! What the notices of a run have told so far, in memory that does not grow with the number of steps.

use std::collections::VecDeque;
use std::path::PathBuf;

use indexmap::IndexMap;

use super::curve::Curve;
use crate::case_report::outcome_word;
use crate::conclusion::headline_figure;
use crate::lines::LoopProgress;
use crate::text::display_text;
use flagperf_config::CaseKey;
use flagperf_core::event::Event;
use flagperf_core::measure::{Distribution, Nanos};
use flagperf_core::text::one_line;
use flagperf_core::units::Seconds;
use flagperf_result::Record;
use flagperf_run::Notice;

/// The states of a case before its result.
pub(super) const WAITING: &str = "waiting";
pub(super) const RUNNING: &str = "running";
/// How the name of the times of a trial's queries begins.
pub(super) const TRIAL: &str = "trial";
/// Most lines that are displayed.
const LINES_MAX: usize = 20;

/// The state of a run.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// Folder of the run.
    pub(super) folder: PathBuf,
    pub(super) began: Nanos,
    pub(super) cases: Vec<CaseLine>,
    /// Index of the case that runs.
    pub(super) current: Option<usize>,
    /// The folder of the current case, with a folder for each of its hosts and devices.
    pub(super) case_folder: Option<PathBuf>,
    /// The workers of the current case by host and device; one without a name on this machine.
    pub(super) workers: IndexMap<String, Worker>,
    /// Samples per second of all workers together.
    pub(super) throughput: Curve,
    /// The losses of a training.
    pub(super) loss: Curve,
    /// The times of the measured loop.
    pub(super) times: Times,
    /// The newest lines of the other displays.
    pub(super) lines: VecDeque<String>,
}

/// A case of the run.
#[derive(Clone, Debug)]
pub(super) struct CaseLine {
    key: CaseKey,
    pub(super) name: String,
    pub(super) state: &'static str,
    /// What was measured.
    pub(super) figure: String,
    pub(super) began: Option<Nanos>,
}

/// A worker of the current case.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) step: &'static str,
    pub(super) detail: String,
    /// When the step began.
    pub(super) began: Nanos,
    pub(super) progress: Option<LoopProgress>,
    /// Samples and time of the loop at the last progress.
    counted: (u64, Seconds),
    samples_per_s: f64,
}

/// The times of the measured loop, or of the queries of its scenario.
#[derive(Clone, Debug)]
pub(super) struct Times {
    /// What they are of.
    pub(super) of: String,
    pub(super) distribution: Distribution,
}

impl Times {
    fn new() -> Self {
        Times { of: String::new(), distribution: Distribution::coarse() }
    }

    /// Adds times, after those of the same.
    fn add(&mut self, of: &str, times: impl Iterator<Item = f64>) {
        if self.of != of {
            *self = Times { of: of.to_owned(), ..Times::new() };
        }
        times.for_each(|time| self.distribution.add(time));
    }
}

impl View {
    /// Creates the state of a run before its first case.
    pub(super) fn new(cases: &[CaseKey], now: Nanos) -> Self {
        let case = |key: &CaseKey| CaseLine {
            key: key.clone(),
            name: shown(&key.to_string()),
            state: WAITING,
            figure: String::new(),
            began: None,
        };
        View {
            folder: PathBuf::new(),
            began: now,
            cases: cases.iter().map(case).collect(),
            current: None,
            case_folder: None,
            workers: IndexMap::new(),
            throughput: Curve::default(),
            loss: Curve::default(),
            times: Times::new(),
            lines: VecDeque::new(),
        }
    }

    /// Whether a case runs.
    pub(super) fn is_running(&self) -> bool {
        self.current.is_some()
    }

    /// Notes a notice. `lines` are those that other displays print for it.
    pub(super) fn note(&mut self, notice: &Notice<'_>, lines: &[String], now: Nanos) {
        self.lines.extend(lines.iter().map(|line| shown(line)));
        self.lines.drain(..self.lines.len().saturating_sub(LINES_MAX));
        match notice {
            Notice::RunBegins { folder } => self.folder = folder.to_path_buf(),
            Notice::CaseBegins { key, number, .. } => self.begin_case(key, number - 1, now),
            Notice::Event { event, .. } => self.note_event("", event, now),
            Notice::ReplicaEvent { replica, event, .. } => self.note_event(&shown(replica), event, now),
            Notice::FinishedBefore { record, place: None, .. } => self.end_case(&record.key(), record),
            Notice::CaseEnds { record, is_part: false, .. } => {
                self.end_case(&record.key(), record);
                self.current = None;
            }
            Notice::SummaryEnds { summary, .. } => {
                if let Some(case) = self.cases.iter_mut().find(|case| case.key.to_string() == summary.case) {
                    case.state = summary.validity.name();
                }
                self.current = None;
            }
            _ => {}
        }
    }

    fn begin_case(&mut self, key: &CaseKey, index: usize, now: Nanos) {
        let Some(case) = self.cases.get_mut(index) else { return };
        (case.state, case.began) = (RUNNING, Some(now));
        self.current = Some(index);
        self.case_folder = Some(self.folder.join(key.folder()));
        self.workers.clear();
        (self.throughput, self.loss, self.times) = (Curve::default(), Curve::default(), Times::new());
    }

    fn end_case(&mut self, key: &str, record: &Record) {
        if let Some(case) = self.cases.iter_mut().find(|case| case.key.to_string() == key) {
            case.state = outcome_word(record.status, record.validity.verdict, false);
            case.figure = shown(&headline_figure(record));
        }
    }

    fn end_worker(&mut self, worker: &str, how: &'static str, now: Nanos) {
        self.workers.insert(worker.to_owned(), Worker::new(how, String::new(), now));
    }

    fn note_event(&mut self, worker: &str, event: &Event, now: Nanos) {
        match event {
            Event::StepBegin { step, detail } => {
                self.workers.insert(worker.to_owned(), Worker::new(step.name(), shown(detail), now));
            }
            Event::Finished { .. } => self.end_worker(worker, "done", now),
            Event::Failed(_) => self.end_worker(worker, "failed", now),
            Event::Progress { warmup, samples, elapsed_s, .. } => {
                let Some(worker) = self.workers.get_mut(worker) else { return };
                worker.progress = LoopProgress::from_event(event);
                if !warmup && worker.count(*samples, *elapsed_s) {
                    self.throughput.add(self.workers.values().map(|worker| worker.samples_per_s).sum());
                }
            }
            Event::TrialProgress { .. } => {
                let Some(worker) = self.workers.get_mut(worker) else { return };
                worker.progress = LoopProgress::from_event(event);
            }
            // One of several workers stands for all.
            Event::Steps { .. } | Event::TrialBegin { .. } | Event::Queries { .. }
                if self.workers.get_index_of(worker).is_some_and(|index| index > 0) => {}
            Event::Steps { step, times } => {
                self.times.add(step.name(), times.0.iter().map(|step| step.core_s.0));
            }
            Event::TrialBegin { trial, .. } => self.times.add(&format!("{TRIAL} {}", trial + 1), std::iter::empty()),
            Event::Queries { times } => {
                let trial = times.0.first().map_or(0, |query| query.trial);
                self.times.add(&format!("{TRIAL} {}", trial + 1), times.0.iter().map(|query| query.latency().0));
            }
            Event::EpochLosses(losses) => losses.loss.iter().for_each(|loss| self.loss.add(*loss)),
            _ => {}
        }
    }
}

impl Worker {
    fn new(step: &'static str, detail: String, now: Nanos) -> Self {
        Worker { step, detail, began: now, progress: None, counted: (0, Seconds(0.0)), samples_per_s: 0.0 }
    }

    /// Computes the throughput since the last progress of the same loop. Returns whether it is known.
    fn count(&mut self, samples: u64, elapsed: Seconds) -> bool {
        let (before, since) = std::mem::replace(&mut self.counted, (samples, elapsed));
        let (more, time) = (samples.saturating_sub(before), elapsed.0 - since.0);
        let is_known = more > 0 && time > 0.0;
        if is_known {
            self.samples_per_s = more as f64 / time;
        }
        is_known
    }
}

/// Returns text from outside on one line without control characters.
pub(super) fn shown(text: &str) -> String {
    one_line(&display_text(text)).into_owned()
}
