//! Inference requests, each of which computes one batch and owns its outputs.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::api::{OpenVinoResult, Request};
use super::classify_error;
use super::pool::Lease;
use super::tensor::HostTensor;
use crate::{DeviceTensor, EngineError, RunProfile, Value};
use flagperf_core::tensor::{DType, HostMemory, Tensor, TensorSpec};

/// An inference request shared by the session and its outputs. It computes nothing else while an output refers to it.
pub(super) struct SharedRequest(Mutex<State>);

struct State {
    request: Lease<Request>,
    /// The inputs of the running computation; empty when none is running.
    inputs_in_use: Vec<Tensor>,
    /// The error of the last computation that was waited for.
    error: Option<String>,
}

impl SharedRequest {
    /// Wraps a leased request.
    pub(super) fn new(request: Lease<Request>) -> Self {
        SharedRequest(Mutex::new(State { request, inputs_in_use: Vec::new(), error: None }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the model on the inputs, and waits until it has finished.
    pub(super) fn infer(&self, inputs: &[Tensor]) -> OpenVinoResult<()> {
        let mut state = self.state();
        state.request.set_inputs(inputs)?;
        state.request.infer()
    }

    /// Returns the times of the nodes of the last computation.
    pub(super) fn node_times(&self) -> OpenVinoResult<RunProfile> {
        self.state().request.node_times()
    }

    /// Pins the request, so that its outputs can be used without a copy. Returns `false` when too many are pinned; the
    /// outputs are then copied when the host fetches them.
    pub(super) fn pin(&self) -> bool {
        self.state().request.pin()
    }

    /// Starts running the model on the inputs, which are kept until [`SharedRequest::wait`].
    pub(super) fn start(&self, inputs: Vec<Tensor>) -> OpenVinoResult<()> {
        let mut state = self.state();
        state.error = None;
        state.request.set_inputs(&inputs)?;
        state.request.start()?;
        state.inputs_in_use = inputs;
        Ok(())
    }

    /// Waits until the started computation has finished.
    pub(super) fn wait(&self) -> OpenVinoResult<()> {
        let mut state = self.state();
        if !state.inputs_in_use.is_empty() {
            state.error = state.request.wait().err();
            state.inputs_in_use.clear();
        }
        state.error.clone().map_or(Ok(()), Err)
    }

    /// Returns the computed output at `index`, in the request's own memory, with its shape and type.
    fn output(&self, index: usize) -> OpenVinoResult<(HostTensor, Vec<usize>, DType)> {
        let tensor = self.state().request.output(index)?;
        let (shape, dtype) = (tensor.shape()?, tensor.dtype()?);
        Ok((tensor, shape, dtype))
    }
}

/// Returns the computed output at `index`: in the request's own memory, or as a copy when too many requests are pinned.
pub(super) fn finished_output(request: &Arc<SharedRequest>, index: usize) -> OpenVinoResult<Tensor> {
    let (tensor, shape, dtype) = request.output(index)?;
    let output = if tensor.bytes().is_empty() {
        // There is no memory to share.
        Tensor::from_bytes(shape, dtype, &[])
    } else if request.pin() {
        Tensor::from_memory(shape, dtype, Arc::new(OutputMemory { tensor, _request: Arc::clone(request) }), 0)
    } else {
        Tensor::from_bytes(shape, dtype, tensor.bytes())
    };
    output.map_err(|error| error.to_string())
}

/// Returns the output at `index` of a computation that may still be running; `declared` is its spec in the model.
pub(super) fn pending_output(request: &Arc<SharedRequest>, index: usize, declared: &TensorSpec) -> Value {
    Value::Device(Arc::new(PendingOutput { request: Arc::clone(request), index, declared: declared.clone() }))
}

struct OutputMemory {
    tensor: HostTensor,
    _request: Arc<SharedRequest>,
}

impl HostMemory for OutputMemory {
    fn bytes(&self) -> &[u8] {
        self.tensor.bytes()
    }
}

/// An output that has not been copied yet, and may not have been computed yet.
struct PendingOutput {
    request: Arc<SharedRequest>,
    index: usize,
    declared: TensorSpec,
}

impl fmt::Debug for PendingOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "output {} of OpenVINO, {}", self.index, self.declared)
    }
}

impl DeviceTensor for PendingOutput {
    fn spec(&self) -> TensorSpec {
        let output = self.request.wait().and_then(|()| self.request.output(self.index));
        output.map_or_else(|_| self.declared.clone(), |(_, shape, dtype)| TensorSpec::new(shape, dtype))
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        let output = self.request.wait().and_then(|()| finished_output(&self.request, self.index));
        output.map_err(|message| classify_error(&message))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
