//! Reads the sources of a case, each in a thread of its own, until the case ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use indexmap::IndexMap;

use super::contradictions::ContradictionFinder;
use super::state::SourceState;
use super::{MonitorFiles, MonitorRecord, Reading, Source, SourceContext, SourceReader};
use flagperf_core::measure::Nanos;
use flagperf_core::units::Seconds;

/// Longest wait for all sources at the end of a case. The thread of a source that does not answer is abandoned.
const LAST_READINGS_WAIT: Seconds = Seconds(2.0);
/// Longest wait for the first readings, and for those before a phase, which show what was in use before.
const FIRST_READINGS_WAIT: Seconds = Seconds(1.0);
/// Longest interval of a source that is read once more when the case ends.
const LAST_READING_INTERVAL_MAX: Seconds = Seconds(1.0);

/// Options of the sampler.
#[derive(Clone, Copy, Debug)]
pub struct SamplerOptions {
    /// Readings of each source per second; a source that is slow to read is read less often.
    pub rate_per_s: u32,
    /// When the case began. The times of samples are relative to this.
    pub started: Nanos,
}

/// Reads the sources of a case until it is finished or dropped.
pub struct Sampler {
    options: SamplerOptions,
    context: SourceContext,
    files: Arc<Mutex<MonitorFiles>>,
    threads: Vec<SourceThread>,
}

/// A source with its thread.
struct SourceThread {
    source: &'static dyn Source,
    state: Arc<Mutex<SourceState>>,
    /// Requests readings; dropping it ends the thread.
    requests: Option<Sender<ReadingRequest>>,
    /// Is disconnected after the first reading, or when there will be none.
    first: Receiver<()>,
    /// Disconnects when the thread has ended.
    done: Receiver<()>,
}

impl Sampler {
    /// Starts to read the sources that apply to the case.
    pub fn start(
        options: SamplerOptions,
        context: SourceContext,
        files: MonitorFiles,
        sources: &[&'static dyn Source],
    ) -> Self {
        let files = Arc::new(Mutex::new(files));
        let sources = sources.iter().filter(|source| options.rate_per_s > 0 && source.applies(&context));
        let threads = sources.map(|source| SourceThread::start(*source, options, &context, &files)).collect();
        Sampler { options, context, files, threads }
    }

    /// Returns the context of the sources.
    pub fn context(&self) -> &SourceContext {
        &self.context
    }

    /// Waits until power, energy and devices have been read once, but at most a second.
    pub fn wait_for_first_readings(&self) {
        let began = self.context.clock.now();
        for thread in self.threads.iter().filter(|thread| thread.source.follows_passes()) {
            let waited = self.context.clock.now().since(began);
            // Nothing is ever sent.
            let _ = thread.first.recv_timeout(time_left(FIRST_READINGS_WAIT, waited));
        }
    }

    /// Requests readings of power, energy and devices, because a pass begins or ends.
    pub fn follow_pass(&self) {
        for thread in self.threads.iter().filter(|thread| thread.source.follows_passes()) {
            // The channel is full if a request is already pending.
            let _ = thread
                .requests
                .as_ref()
                .map(|requests| requests.try_send(ReadingRequest { trigger: Trigger::Pass, pending: None }));
        }
    }

    /// Reads the devices before the worker of a phase starts; waits at most a second.
    pub fn read_before_phase(&self) {
        let began = self.context.clock.now();
        let left = || time_left(FIRST_READINGS_WAIT, self.context.clock.now().since(began));
        let mut readings = Vec::new();
        for thread in self.threads.iter().filter(|thread| thread.source.precedes_phases()) {
            let (pending, done) = bounded(0);
            let request = ReadingRequest { trigger: Trigger::Phase, pending: Some(pending) };
            // This fails if the thread has ended, or hangs.
            if thread.requests.as_ref().is_some_and(|requests| requests.send_timeout(request, left()).is_ok()) {
                readings.push(done);
            }
        }
        for done in readings {
            // Nothing is ever sent.
            let _ = done.recv_timeout(left());
        }
    }

    /// Stops reading and closes the files. Returns the record of the sources, and a warning for each problem.
    pub fn finish(mut self) -> (MonitorRecord, Vec<String>) {
        self.context.end();
        for thread in &mut self.threads {
            thread.requests = None;
        }
        let began = self.context.clock.now();
        for thread in &self.threads {
            let waited = self.context.clock.now().since(began);
            if thread.done.recv_timeout(time_left(LAST_READINGS_WAIT, waited)) == Err(RecvTimeoutError::Timeout) {
                let mut state = lock(&thread.state);
                let since = state.busy_since.unwrap_or(began);
                state.note_abandoned(self.context.clock.now().since(since));
            }
        }
        let mut warnings = lock(&self.files).close();
        let mut sources = IndexMap::new();
        for SourceThread { source, state, .. } in &self.threads {
            let state = lock(state);
            warnings.extend(state.warning(*source));
            sources.insert(source.name().to_owned(), state.record());
        }
        let lines_lost = lock(&self.files).lines_lost();
        (MonitorRecord { rate_per_s: self.options.rate_per_s, lines_lost, sources }, warnings)
    }

    /// Returns the files.
    pub fn files(&self) -> Arc<Mutex<MonitorFiles>> {
        self.files.clone()
    }
}

impl SourceThread {
    fn start(
        source: &'static dyn Source,
        options: SamplerOptions,
        context: &SourceContext,
        files: &Arc<Mutex<MonitorFiles>>,
    ) -> Self {
        let state = Arc::new(Mutex::new(SourceState::default()));
        let (sender, requests) = bounded(1);
        let ((running, done), (pending, first)) = (bounded(0), bounded(0));
        let (context, files) = (context.clone(), files.clone());
        let sampling = SourceLoop { source, options, context, files, state: state.clone(), requests };
        thread::spawn(move || {
            sampling.run(pending);
            drop(running);
        });
        SourceThread { source, state, requests: Some(sender), first, done }
    }
}

/// The loop that the thread of a source runs.
struct SourceLoop {
    source: &'static dyn Source,
    options: SamplerOptions,
    context: SourceContext,
    files: Arc<Mutex<MonitorFiles>>,
    state: Arc<Mutex<SourceState>>,
    requests: Receiver<ReadingRequest>,
}

/// A request for a reading.
struct ReadingRequest {
    trigger: Trigger,
    /// Is dropped after the reading.
    pending: Option<Sender<()>>,
}

/// Why a source is read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trigger {
    /// The next reading is due.
    Interval,
    /// The worker of a phase is about to start.
    Phase,
    /// A pass begins or ends.
    Pass,
    CaseEnd,
}

impl SourceLoop {
    /// Reads the source until the case ends; `pending` is dropped after the first reading.
    fn run(self, pending: Sender<()>) {
        lock(&self.state).busy_since = Some(self.context.clock.now());
        let opened = catch_unwind(AssertUnwindSafe(|| self.source.open(&self.context)));
        let opened = opened.unwrap_or_else(|panic| Err(panic_reason(&*panic)));
        lock(&self.state).note_opened(opened.as_ref().map(drop).map_err(String::clone));
        let Ok(mut reader) = opened else { return };
        let interval_min = reader.interval_min();
        let interval = Seconds((1.0 / f64::from(self.options.rate_per_s)).max(interval_min.0));
        lock(&self.state).interval = interval;
        let mut finder = ContradictionFinder::default();
        // Readings are due at whole multiples of the interval, so that delays do not add up.
        let mut done = self.read(&mut *reader, &mut finder, Trigger::Interval);
        drop(pending);
        let mut due = self.next_due(done, interval);
        loop {
            let (trigger, pending) = self.wait(due, done, interval_min);
            if trigger == Trigger::CaseEnd && interval > LAST_READING_INTERVAL_MAX {
                return;
            }
            let began = self.context.clock.now();
            done = self.read(&mut *reader, &mut finder, trigger);
            drop(pending);
            if trigger == Trigger::CaseEnd {
                return;
            }
            let next = self.next_due(done, interval);
            let missed = ((next.0 - due.0) / interval.0).round() as u64;
            let delay = Seconds(self.since_start(began) - due.0);
            lock(&self.state).note_late(missed.saturating_sub(1), delay, done.since(began));
            due = next;
        }
    }

    /// Waits until a reading is due. Returns its trigger, and the senders that are dropped after the reading. A reading before a
    /// phase is due at once; one that a pass requests is due at once, but at least `distance` after the last one.
    fn wait(&self, due: Seconds, last: Nanos, distance: Seconds) -> (Trigger, Vec<Sender<()>>) {
        let (mut asked, mut pending) = (Trigger::Interval, Vec::new());
        loop {
            let now = self.context.clock.now();
            let next = if asked == Trigger::Pass { due.0.min(self.since_start(last) + distance.0) } else { due.0 };
            let left = next - self.since_start(now);
            if left <= 0.0 || !pending.is_empty() {
                return (asked, pending);
            }
            match self.requests.recv_timeout(Duration::from_secs_f64(left)) {
                Ok(request) => {
                    asked = asked.max(request.trigger);
                    pending.extend(request.pending);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return (Trigger::CaseEnd, pending),
            }
        }
    }

    /// Reads the source, writes the samples, and returns the time afterwards.
    fn read(&self, reader: &mut dyn SourceReader, finder: &mut ContradictionFinder, trigger: Trigger) -> Nanos {
        let began = self.context.clock.now();
        lock(&self.state).busy_since = Some(began);
        let read = catch_unwind(AssertUnwindSafe(|| reader.read(trigger >= Trigger::Pass)));
        let ended = self.context.clock.now();
        let at = Seconds((self.since_start(began) + self.since_start(ended)) / 2.0);
        let mut state = lock(&self.state);
        state.busy_since = None;
        match read {
            Ok(Ok(readings)) => {
                let (refused, kept): (Vec<_>, Vec<_>) = readings.into_iter().map(Reading::checked).unzip();
                let mut kept: Vec<Reading> = kept.into_iter().flatten().collect();
                state.note_reading(&refused.concat(), &finder.check(&mut kept));
                drop(state);
                lock(&self.files).write(self.source.name(), at, ended.since(began), &kept);
            }
            // The end of the case stops a command that is still running.
            Ok(Err(_)) if self.context.has_ended() => state.note_stopped(),
            Ok(Err(reason)) => state.note_failure(&reason),
            Err(panic) => state.note_failure(&panic_reason(&*panic)),
        }
        ended
    }

    /// Returns the next multiple of the interval after `now`.
    fn next_due(&self, now: Nanos, interval: Seconds) -> Seconds {
        Seconds(((self.since_start(now) / interval.0).floor() + 1.0) * interval.0)
    }

    fn since_start(&self, now: Nanos) -> f64 {
        now.since(self.options.started).0
    }
}

fn time_left(limit: Seconds, waited: Seconds) -> Duration {
    Duration::from_secs_f64((limit - waited).0.max(0.0))
}

fn panic_reason(panic: &(dyn std::any::Any + Send)) -> String {
    format!("panicked: {}", flagperf_core::panic::panic_text(panic))
}

/// Locks a mutex and ignores poisoning: the protected values are consistent after each statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
