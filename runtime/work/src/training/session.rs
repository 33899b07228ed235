//! A session of a model whose parameters are inputs, for forward functions that know only the model's own inputs.

use std::sync::{Arc, Mutex, PoisonError};

use flagperf_core::tensor::Tensor;
use flagperf_core::units::Bytes;
use flagperf_engine::{EngineError, LentMemory, Session, SessionFacts, Value};
use flagperf_onnx::ValueInfo;

/// The parameters with which a model is evaluated.
pub type SharedParameters = Arc<Mutex<Vec<Tensor>>>;

/// A session that adds the parameters to the inputs of each run.
pub struct ParameterizedSession {
    inner: Box<dyn Session>,
    /// The model's own inputs.
    inputs: Vec<ValueInfo>,
    parameters: SharedParameters,
}

impl ParameterizedSession {
    /// Wraps a session whose last inputs are the parameters, of which there are `count`.
    pub fn new(inner: Box<dyn Session>, count: usize, parameters: SharedParameters) -> Self {
        let inputs = inner.inputs()[..inner.inputs().len() - count].to_vec();
        ParameterizedSession { inner, inputs, parameters }
    }
}

impl Session for ParameterizedSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        self.inner.outputs()
    }

    fn lend(&mut self, index: usize, bytes: usize) -> Result<Box<dyn LentMemory>, EngineError> {
        self.inner.lend(index, bytes)
    }

    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        let parameters = self.parameters.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<Value> = inputs.iter().cloned().chain(parameters.iter().cloned().map(Value::Host)).collect();
        self.inner.compute(&all)
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        self.inner.sync()
    }

    fn facts(&self) -> SessionFacts {
        self.inner.facts()
    }

    fn device_memory(&self) -> Option<Bytes> {
        self.inner.device_memory()
    }

    fn close(&mut self) -> Option<String> {
        self.inner.close()
    }
}
