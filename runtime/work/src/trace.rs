//! The trace of some batches, which run after the measurement in sessions of their own: what the loader, the script, the sessions
//! and their operators did, and when. What is measured knows nothing of it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use flagperf_onnx::ValueInfo;

use super::facts::KnownModel;
use super::phase::Worker;
use flagperf_core::event::{DatasetFacts, Event, Failure, Level};
use flagperf_core::measure::{Clock, Nanos, TraceSpan};
use flagperf_core::units::{Bytes, Seconds};
use flagperf_data::{Dataset, Epoch, Field, Mixing, OpenLength, SampleError};
use flagperf_engine::{AnswerTimes, DeferredRun, EngineError, LentMemory, RunProfile, Session, SessionFacts, Value};
use flagperf_script::{CaseScripts, Sessions};

/// Largest number of spans of a trace, so that no trace fills the disk.
const SPANS_MAX: usize = 200_000;
/// Largest number of spans in an event.
const SPANS_PER_EVENT: usize = 5_000;

/// The spans of a trace, which several threads add.
#[derive(Clone, Debug)]
pub struct Spans {
    clock: Arc<dyn Clock>,
    origin: Nanos,
    spans: Arc<Mutex<Vec<TraceSpan>>>,
}

impl Spans {
    fn new(clock: Arc<dyn Clock>) -> Self {
        Spans { origin: clock.now(), clock, spans: Arc::default() }
    }

    /// Adds what ran in a row from `begin` for this time.
    pub fn add(&self, row: &str, name: &str, begin: Nanos, time_s: Seconds) {
        let begin_s = begin.since(self.origin);
        let span = TraceSpan { row: row.to_owned(), name: name.to_owned(), operator: None, begin_s, time_s };
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).push(span);
    }

    fn take(&self) -> Vec<TraceSpan> {
        std::mem::take(&mut self.spans.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Worker<'_> {
    /// Traces some batches, if the case wants it. `load` loads the model once more, with the profile of its engine. A trace that fails
    /// is a warning: what was measured remains.
    pub(super) fn trace(
        &self,
        scripts: &CaseScripts,
        dataset: Arc<dyn Dataset>,
        model: KnownModel,
        load: impl FnOnce(Option<Arc<dyn Clock>>) -> Result<Sessions, Failure>,
    ) -> Result<(), Failure> {
        self.keep_memory_peak();
        self.run_step(self.job.phase().measured_step(), "tracing some batches", || {
            let spans = Spans::new(Arc::clone(&self.clock));
            let traced = load(Some(Arc::clone(&self.clock))).and_then(|sessions| {
                let runs: Vec<RunTimes> = sessions.iter().map(|_| RunTimes::default()).collect();
                let sessions = trace_sessions(sessions, &spans, &runs);
                let dataset = Arc::new(TracedDataset { dataset, spans: spans.clone() });
                let kept = sessions.clone();
                let from = self.prepare_loop(scripts, dataset, sessions, model)?.run_traced(&spans)?;
                Ok((kept, runs, from.since(spans.origin)))
            });
            match traced {
                Ok((sessions, runs, from)) => {
                    let operators = self.operator_spans(&sessions, &runs, &spans);
                    let traced = spans.take().into_iter().chain(operators).filter(|span| span.begin_s.0 >= from.0);
                    self.emit_spans(traced.collect());
                }
                Err(error) => self.warn(format!("no trace: {}", error.reason)),
            }
            Ok(())
        })
    }

    /// Returns the operators of the runs of each session, which began at `runs`.
    fn operator_spans(&self, sessions: &Sessions, runs: &[RunTimes], spans: &Spans) -> Vec<TraceSpan> {
        let mut operators = Vec::new();
        for ((name, session), begins) in sessions.iter().zip(runs) {
            let Ok(mut session) = session.lock() else { continue };
            let unknown = |reason: &str| self.warn(format!("the trace has no operators of model `{name}`: {reason}"));
            let profiles = match session.operator_times() {
                Ok(Some(profiles)) => profiles,
                Ok(None) => {
                    unknown(&format!("engine `{}` does not tell their times", self.job.engine.name));
                    continue;
                }
                Err(error) => {
                    unknown(&error.to_string());
                    continue;
                }
            };
            let begins = begins.lock().unwrap_or_else(PoisonError::into_inner);
            if profiles.len() != begins.len() {
                unknown(&format!("there are times of {} runs, not of {}", profiles.len(), begins.len()));
                continue;
            }
            let row = format!("operators of {name}");
            for (profile, begin) in profiles.into_iter().zip(&*begins) {
                operators.extend(profile.into_iter().map(|time| TraceSpan {
                    row: row.clone(),
                    name: time.name,
                    operator: Some(time.operator),
                    begin_s: begin.since(spans.origin) + time.begin_s,
                    time_s: time.time_s,
                }));
            }
        }
        operators
    }

    fn emit_spans(&self, mut spans: Vec<TraceSpan>) {
        if spans.len() > SPANS_MAX {
            self.warn(format!("the trace was cut: it has {SPANS_MAX} of {} spans", spans.len()));
            spans.truncate(SPANS_MAX);
        }
        spans.retain(|span| span.begin_s.0.is_finite() && span.time_s.0.is_finite());
        spans.chunks(SPANS_PER_EVENT).for_each(|spans| (self.emit)(Event::Trace { spans: spans.to_vec() }));
    }

    fn warn(&self, message: String) {
        (self.emit)(Event::Log { level: Level::Warning, source: "trace".to_owned(), message });
    }
}

/// The beginnings of the runs of a session.
type RunTimes = Arc<Mutex<Vec<Nanos>>>;

/// Wraps fresh sessions, so that each run is a span and its beginning is kept.
fn trace_sessions(sessions: Sessions, spans: &Spans, runs: &[RunTimes]) -> Sessions {
    let mut traced = Sessions::new();
    for ((name, session), runs) in sessions.into_iter().zip(runs) {
        let session = Arc::into_inner(session).expect("nothing else has the fresh session");
        let session = session.into_inner().unwrap_or_else(PoisonError::into_inner);
        let row = format!("runs of {name}");
        let session = TracedSession { session, row, runs: Arc::clone(runs), spans: spans.clone() };
        traced.insert(name, Arc::new(Mutex::new(Box::new(session) as Box<dyn Session>)));
    }
    traced
}

/// A session whose runs are spans.
struct TracedSession {
    session: Box<dyn Session>,
    row: String,
    runs: RunTimes,
    spans: Spans,
}

impl TracedSession {
    /// Calls the session, and adds a span.
    fn span<T>(&mut self, name: &str, begin: Nanos, call: impl FnOnce(&mut dyn Session) -> T) -> T {
        let result = call(&mut *self.session);
        self.spans.add(&self.row, name, begin, self.spans.clock.now().since(begin));
        result
    }
}

impl Session for TracedSession {
    fn inputs(&self) -> &[ValueInfo] {
        self.session.inputs()
    }

    fn outputs(&self) -> &[ValueInfo] {
        self.session.outputs()
    }

    fn lend(&mut self, index: usize, bytes: usize) -> Result<Box<dyn LentMemory>, EngineError> {
        self.session.lend(index, bytes)
    }

    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        // The times of operators count from where a device begins with the run, which must not wait for an earlier one.
        self.session.sync()?;
        let begin = self.spans.clock.now();
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(begin);
        self.span("submit", begin, |session| session.compute(inputs))
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        self.span("sync", self.spans.clock.now(), |session| session.sync())
    }

    fn facts(&self) -> SessionFacts {
        self.session.facts()
    }

    fn device_memory(&self) -> Option<Bytes> {
        self.session.device_memory()
    }

    fn modules(&self) -> BTreeSet<PathBuf> {
        self.session.modules()
    }

    fn ask(&mut self, question: &str, argument: &serde_json::Value) -> Result<serde_json::Value, EngineError> {
        self.session.ask(question, argument)
    }

    fn tune(&mut self, setting: &str, value: &serde_json::Value) -> Result<(), EngineError> {
        self.session.tune(setting, value)
    }

    fn vendor_time(&mut self) -> Option<Seconds> {
        self.session.vendor_time()
    }

    fn answer_times(&mut self) -> Vec<AnswerTimes> {
        self.session.answer_times()
    }

    fn defer_runs(&mut self, defers: bool) -> bool {
        self.session.defer_runs(defers)
    }

    fn take_deferred(&mut self) -> Vec<DeferredRun> {
        self.session.take_deferred()
    }

    fn check_inputs_of_next_run(&mut self) {
        self.session.check_inputs_of_next_run();
    }

    fn operator_times(&mut self) -> Result<Option<Vec<RunProfile>>, EngineError> {
        self.session.operator_times()
    }

    fn close(&mut self) -> Option<String> {
        self.session.close()
    }
}

/// A dataset whose samples are spans of the threads that read them.
struct TracedDataset {
    dataset: Arc<dyn Dataset>,
    spans: Spans,
}

impl TracedDataset {
    fn span<T>(&self, index: usize, read: impl FnOnce(&dyn Dataset) -> T) -> T {
        let begin = self.spans.clock.now();
        let result = read(&*self.dataset);
        let thread = std::thread::current();
        let row = thread.name().unwrap_or("load");
        self.spans.add(row, &self.dataset.sample_name(index), begin, self.spans.clock.now().since(begin));
        result
    }
}

impl Dataset for TracedDataset {
    fn facts(&self) -> &DatasetFacts {
        self.dataset.facts()
    }

    fn fields(&self) -> &[Field] {
        self.dataset.fields()
    }

    fn open_length(&self) -> Option<OpenLength> {
        self.dataset.open_length()
    }

    fn sample_name(&self, index: usize) -> String {
        self.dataset.sample_name(index)
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        self.span(index, |dataset| dataset.read(index, fields))
    }

    fn read_in_epoch(&self, index: usize, epoch: Epoch, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        self.span(index, |dataset| dataset.read_in_epoch(index, epoch, fields))
    }

    fn mixing(&self) -> Option<&Mixing> {
        self.dataset.mixing()
    }
}
