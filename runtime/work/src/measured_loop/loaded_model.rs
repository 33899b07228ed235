//! The model of a measured loop: its sessions, the forward function that runs them, and what they report.

use flagperf_onnx::Graph;
use indexmap::IndexMap;

use super::super::engine_facts::sidecar_facts;
use super::super::operations::OperationCounter;
use super::super::phase::failure;
use super::super::step;
use flagperf_core::event::{Failure, SidecarFacts};
use flagperf_core::measure::{Clock, CopyTimeBound, OutputLink};
use flagperf_core::tensor::Tensor;
use flagperf_core::units::{Bytes, Seconds};
use flagperf_data::Batch;
use flagperf_engine::{AnswerTimes, DeferredRun, Value};
use flagperf_script::{ForwardFn, Sessions, Span, StepOutput};

/// How often the outputs of a step are copied again to measure the link to the host.
const OUTPUT_COPIES: u32 = 5;
/// Number of steps with which the link is measured at most.
const LINK_TRIES_MAX: u32 = 30;

/// A model that is loaded and ready to run.
pub struct LoadedModel {
    pub(super) sessions: Sessions,
    forward: ForwardFn,
    operations: OperationCounter,
    /// The facts of the sidecar that were last reported.
    sidecar: Option<SidecarFacts>,
}

impl LoadedModel {
    /// Creates the model of these sessions, which `forward` runs. The operations of `graphs`, by the names of their
    /// sessions, are counted.
    pub fn new(sessions: Sessions, forward: ForwardFn, graphs: IndexMap<String, Graph>) -> Self {
        LoadedModel { sessions, forward, operations: OperationCounter::new(graphs), sidecar: None }
    }

    /// Runs a batch and waits until it is computed. The outputs may still be on the device.
    pub(super) fn run(&mut self, batch: &Batch) -> Result<StepOutput<Value>, Failure> {
        let output = self.forward.call(&batch.inputs).map_err(|e| failure(&e, ""))?;
        for session in self.sessions.values() {
            let mut session = session.lock().map_err(|_| failure(&"the engine panicked earlier", ""))?;
            session.sync().map_err(|e| failure(&e, ""))?;
        }
        Ok(output)
    }

    /// Runs a step that is part of no figure. Returns its core time, the time in which its outputs reached the host, and the
    /// outputs, with padding.
    ///
    /// # Errors
    /// When computing fails, or the forward function did not run every row.
    pub fn run_unmeasured(
        &mut self,
        batch: &Batch,
        clock: &dyn Clock,
    ) -> Result<(Seconds, Seconds, StepOutput<Tensor>), Failure> {
        let start = clock.now();
        let output = self.run(batch)?;
        let computed = clock.now();
        let output = step::copy_to_host(output).map_err(|e| failure(&e, ""))?;
        let copy = clock.now().since(computed);
        self.check_all_rows_ran(batch)?;
        Ok((computed.since(start), copy, output))
    }

    /// Has the model answer queries independently of each other, or no longer do so. Returns whether it can: its only session is that of
    /// a server.
    pub(super) fn defer_runs(&self, defers: bool) -> bool {
        match self.sessions.values().collect::<Vec<_>>().as_slice() {
            [session] => session.lock().is_ok_and(|mut session| session.defer_runs(defers)),
            _ => false,
        }
    }

    /// Runs the forward function on the samples of a query while runs are deferred. Returns the runs that have yet to be sent, and its
    /// outputs, which arrive with them.
    pub(super) fn begin_query(&mut self, batch: &Batch) -> Result<(Vec<DeferredRun>, StepOutput<Value>), Failure> {
        let output = self.forward.call(&batch.inputs).map_err(|e| failure(&e, ""))?;
        self.check_all_rows_ran(batch)?;
        let runs = self.sessions.values().filter_map(|session| Some(session.lock().ok()?.take_deferred()));
        Ok((runs.flatten().collect(), output))
    }

    /// Runs steps that are part of no figure and copies their outputs to the host several times, to measure the link. A busy
    /// machine delays copies, so that it tries again while none is as fast as over the slowest link.
    pub(super) fn measure_output_link(&mut self, batch: &Batch, clock: &dyn Clock) -> Result<OutputLink, Failure> {
        let mut link = OutputLink { again_s: [Seconds(f64::INFINITY), Seconds::default()], bytes: 0 };
        for _ in 0..LINK_TRIES_MAX {
            let output = self.run(batch)?;
            let copied = step::copy_to_host(output.clone()).map_err(|e| failure(&e, ""))?;
            self.check_all_rows_ran(batch)?;
            link.bytes = step::output_bytes(&copied);
            for _ in 0..OUTPUT_COPIES {
                let start = clock.now();
                output.iter().try_for_each(|(_, value)| value.copy_again()).map_err(|e| failure(&e, ""))?;
                let time = clock.now().since(start).0;
                link.again_s = [Seconds(link.again_s[0].0.min(time)), Seconds(link.again_s[1].0.max(time))];
            }
            if link.again_s[0].0 <= CopyTimeBound::SLOWEST.seconds(step::output_count(&copied), link.bytes) {
                break;
            }
        }
        Ok(link)
    }

    /// Checks that the forward function ran sessions on at least as many rows as the batch has.
    pub(super) fn check_all_rows_ran(&mut self, batch: &Batch) -> Result<(), Failure> {
        let ran = self.forward.take_rows();
        if ran >= batch.rows as u64 {
            return Ok(());
        }
        let reason = format!("the forward function ran the model on {ran} of the {} rows of a batch", batch.rows);
        Err(failure(&reason, "pass every row of `batch`, including padding, to `run` of a model"))
    }

    /// Returns the time that the vendor's code has requested to be subtracted since the last call.
    pub(super) fn take_vendor_time(&self) -> Option<Seconds> {
        let sessions = self.sessions.values().filter_map(|session| session.lock().ok()?.vendor_time());
        sessions.reduce(|a, b| a + b)
    }

    /// Keeps the times of the answers of an engine that generates text from now on, or no longer.
    pub(super) fn keep_answers(&mut self, keeps: bool) {
        self.forward.keep_answers(keeps);
    }

    /// Returns whether the engine has told when tokens of answers arrived.
    pub(super) fn has_answers(&self) -> bool {
        self.forward.has_answers()
    }

    /// Returns the times of the answers since the last call of this function.
    pub(super) fn take_answers(&mut self) -> Vec<AnswerTimes> {
        self.forward.take_answers()
    }

    /// Returns the spans that the script measured in a pass.
    pub(super) fn take_spans(&mut self) -> Vec<Span> {
        self.forward.take_spans()
    }

    /// Counts the operations of a pass over `rows` rows, padding included.
    pub(super) fn count_operations(&mut self, rows: u64) {
        self.operations.add_pass(&self.forward.take_runs(), rows);
    }

    /// Forgets the spans, the runs and the vendor time of steps that are part of no figure.
    pub(super) fn forget_unmeasured(&mut self) {
        self.forward.take_spans();
        self.forward.take_runs();
        self.take_vendor_time();
    }

    /// Returns the multiply-adds per row of the counted passes; `None` when they are unknown.
    pub(super) fn multiply_adds_per_sample(&self) -> Option<u64> {
        self.operations.per_sample()
    }

    /// Returns the most bytes that the states of the forward function held.
    pub(super) fn state_memory_max(&self) -> Bytes {
        self.forward.state_memory_max()
    }

    /// Returns what the sidecars' runs have revealed, when there is something new.
    pub(super) fn new_sidecar_facts(&mut self) -> Option<SidecarFacts> {
        let facts = sidecar_facts(&self.sessions)
            .filter(|facts| !facts.reshaped_outputs.is_empty() || facts.third_value.is_some());
        if facts == self.sidecar {
            return None;
        }
        self.sidecar = facts;
        Some(self.sidecar.clone().unwrap_or_default())
    }

    /// Returns the sessions.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Returns whether a session is a sidecar.
    pub(super) fn has_sidecar(&self) -> bool {
        self.sessions.values().any(|session| session.lock().is_ok_and(|s| s.facts().sidecar.is_some()))
    }

    /// Runs a batch, which fails if an engine that shares memory with the host writes to its inputs.
    pub(super) fn run_with_checked_inputs(&mut self, batch: &Batch) -> Result<(), Failure> {
        self.sessions
            .values()
            .filter_map(|session| session.lock().ok())
            .for_each(|mut session| session.check_inputs_of_next_run());
        self.run(batch).map(drop)
    }

    /// Ends the processes of the engines. Returns what went wrong.
    pub(super) fn close(&self) -> Vec<String> {
        self.sessions.values().filter_map(|session| session.lock().ok()?.close()).collect()
    }
}
