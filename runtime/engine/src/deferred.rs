//! Runs whose inputs a session has taken and whose outputs arrive later: a server answers several queries at the same time.
//!
//! Starts no thread and reads no clock of its own: whoever waits for a run brings both.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use flagperf_onnx::ValueInfo;

use crate::{AnswerTimes, DeviceTensor, EngineError, Value};
use flagperf_core::measure::Clock;
use flagperf_core::tensor::{Tensor, TensorSpec};

/// The outputs of a run, and when the answers to its prompts arrived, which is empty for an engine that generates no text.
pub(crate) type Answered = (Vec<Value>, Vec<AnswerTimes>);

/// Sends the inputs of a run and waits for its outputs.
type Answer = Box<dyn FnOnce(&dyn Clock) -> Result<Answered, EngineError> + Send>;

/// A run that has yet to be sent.
pub struct DeferredRun {
    answer: Answer,
    outputs: Arc<OnceLock<Vec<Value>>>,
}

impl DeferredRun {
    /// Sends the inputs, and waits until the outputs have arrived, which [`crate::Session::submit`] had returned before. Returns when
    /// the answer to each prompt arrived, by this clock.
    ///
    /// # Errors
    /// As [`crate::Session::submit`].
    pub fn wait(self, clock: &dyn Clock) -> Result<Vec<AnswerTimes>, EngineError> {
        let (outputs, times) = (self.answer)(clock)?;
        self.outputs.set(outputs).expect("a run is sent once");
        Ok(times)
    }
}

/// The runs of a session that defers them.
#[derive(Default)]
pub(crate) struct DeferredRuns {
    /// `None` while runs are not deferred.
    runs: Option<Vec<DeferredRun>>,
}

impl DeferredRuns {
    /// Defers later runs, or no longer does so.
    pub(crate) fn set(&mut self, defers: bool) {
        self.runs = defers.then(Vec::new);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.runs.is_some()
    }

    /// Adds a run. Returns its outputs, which arrive later.
    pub(crate) fn add(
        &mut self,
        outputs: &[ValueInfo],
        answer: impl FnOnce(&dyn Clock) -> Result<Answered, EngineError> + Send + 'static,
    ) -> Vec<Value> {
        let arrived = Arc::new(OnceLock::new());
        let values = outputs.iter().enumerate().map(|(index, info)| {
            Value::Device(Arc::new(DeferredOutput {
                index,
                declared: info.spec.clone(),
                arrived: Arc::clone(&arrived),
            }))
        });
        let values = values.collect();
        self.runs.get_or_insert_default().push(DeferredRun { answer: Box::new(answer), outputs: arrived });
        values
    }

    /// Returns the runs since the last call.
    pub(crate) fn take(&mut self) -> Vec<DeferredRun> {
        self.runs.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// An output that arrives later.
struct DeferredOutput {
    index: usize,
    declared: TensorSpec,
    arrived: Arc<OnceLock<Vec<Value>>>,
}

impl fmt::Debug for DeferredOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeferredOutput({})", self.declared)
    }
}

impl DeviceTensor for DeferredOutput {
    fn spec(&self) -> TensorSpec {
        self.arrived.get().map_or_else(|| self.declared.clone(), |outputs| outputs[self.index].spec())
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        match self.arrived.get() {
            Some(outputs) => outputs[self.index].to_host(),
            None => Err(EngineError::Failed(
                "the answer of the server has not arrived: in a scenario, the forward function must return the outputs of `run` \
                 without computing with them"
                    .to_owned(),
            )),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::{FixedClock, Nanos};

    #[test]
    fn outputs_are_known_once_the_run_was_waited_for() {
        let info = ValueInfo { name: "y".to_owned(), spec: "N,2,f32".parse().unwrap() };
        let mut runs = DeferredRuns::default();
        runs.set(true);
        let outputs = runs.add(&[info], |clock| {
            let tensor = Tensor::from_vec([1, 2], vec![1.0f32, 2.0]).unwrap();
            Ok((vec![Value::Host(tensor)], vec![AnswerTimes { sent: clock.now(), arrivals: Vec::new() }]))
        });
        assert_eq!(outputs[0].spec().to_string(), "N,2,f32");
        assert!(outputs[0].to_host().unwrap_err().to_string().contains("has not arrived"));
        let run = runs.take().pop().unwrap();
        assert!(runs.take().is_empty() && runs.is_set());
        assert_eq!(run.wait(&FixedClock::default()).unwrap()[0].sent, Nanos(0));
        assert_eq!(outputs[0].to_host().unwrap().shape(), [1, 2]);
    }
}
