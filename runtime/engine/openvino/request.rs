//! Requests that compute one batch each, and their outputs, which stay theirs.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::api::{Outcome, Request};
use super::pool::Lease;
use super::tensor::HostTensor;
use super::understood;
use crate::engine::{DeviceTensor, EngineError, Value};
use crate::tensor::{DType, HostMemory, Tensor, TensorSpec};

/// A request and what it is at. Whoever has one of its outputs has a share of it, and it computes nothing else meanwhile.
pub(super) struct Slot(Mutex<State>);

struct State {
    request: Lease<Request>,
    /// What it reads while it computes.
    reads: Vec<Tensor>,
    failed: Option<String>,
}

impl Slot {
    /// A slot of its own request.
    pub(super) fn new(request: Lease<Request>) -> Self {
        Slot(Mutex::new(State { request, reads: Vec::new(), failed: None }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes the inputs to the end.
    pub(super) fn infer(&self, inputs: &[Tensor]) -> Outcome<()> {
        let mut state = self.state();
        state.request.set_inputs(inputs)?;
        state.request.infer()
    }

    /// Whether its outputs may be read where they lie; else they are copied when they are asked for.
    pub(super) fn pin(&self) -> bool {
        self.state().request.pin()
    }

    /// Begins to compute the inputs, and keeps them until [`Slot::wait`].
    pub(super) fn start(&self, inputs: Vec<Tensor>) -> Outcome<()> {
        let mut state = self.state();
        state.failed = None;
        state.request.set_inputs(&inputs)?;
        state.request.start()?;
        state.reads = inputs;
        Ok(())
    }

    /// Waits until what was begun is computed.
    pub(super) fn wait(&self) -> Outcome<()> {
        let mut state = self.state();
        if !state.reads.is_empty() {
            state.failed = state.request.wait().err();
            state.reads.clear();
        }
        state.failed.clone().map_or(Ok(()), Err)
    }

    /// The output at `index` of what was computed, in the request's own memory, with its shape and type.
    fn computed(&self, index: usize) -> Outcome<(HostTensor, Vec<usize>, DType)> {
        let tensor = self.state().request.output(index)?;
        let (shape, dtype) = (tensor.shape()?, tensor.dtype()?);
        Ok((tensor, shape, dtype))
    }
}

/// The output at `index` of what was computed: where it lies, or a copy when too many are kept like that.
pub(super) fn output(slot: &Arc<Slot>, index: usize) -> Outcome<Tensor> {
    let (tensor, shape, dtype) = slot.computed(index)?;
    let output = if slot.pin() {
        Tensor::from_memory(shape, dtype, Arc::new(OutputMemory { tensor, _slot: Arc::clone(slot) }), 0)
    } else {
        Tensor::from_bytes(shape, dtype, tensor.bytes())
    };
    output.map_err(|error| error.to_string())
}

/// The output at `index` of what was begun, or is to be copied; `declared` is what the model says of it.
pub(super) fn pending(slot: &Arc<Slot>, index: usize, declared: &TensorSpec) -> Value {
    Value::Device(Arc::new(Pending { slot: Arc::clone(slot), index, declared: declared.clone() }))
}

struct OutputMemory {
    tensor: HostTensor,
    _slot: Arc<Slot>,
}

impl HostMemory for OutputMemory {
    fn bytes(&self) -> &[u8] {
        self.tensor.bytes()
    }
}

/// An output that may not be computed yet, or is not copied yet.
struct Pending {
    slot: Arc<Slot>,
    index: usize,
    declared: TensorSpec,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "output {} of OpenVINO, {}", self.index, self.declared)
    }
}

impl DeviceTensor for Pending {
    fn spec(&self) -> TensorSpec {
        let computed = self.slot.wait().and_then(|()| self.slot.computed(self.index));
        computed.map_or_else(|_| self.declared.clone(), |(_, shape, dtype)| TensorSpec::new(shape, dtype))
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        let computed = self.slot.wait().and_then(|()| output(&self.slot, self.index));
        computed.map_err(|said| understood(&said))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
