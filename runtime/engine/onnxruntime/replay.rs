//! Runs that are captured the first time and replayed from then on: their inputs and outputs stay where they are.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use flagperf_onnx::ValueInfo;
use ort::memory::{Allocator, MemoryInfo};
use ort::session::{IoBinding, Session};
use ort::value::{DynTensor, DynTensorValueType, DynValue};

use super::tensor::{dtype, element_type};
use super::{copy, failed};
use crate::engine::{DeviceTensor, EngineError, HeapMemory, LentMemory, Value};
use crate::tensor::{Dim, Tensor, TensorSpec, byte_count};

/// The provider's option that asks for it.
pub(super) const GRAPH: &str = "enable_cuda_graph";

/// Inputs and outputs on the device, for one shape of the inputs.
pub(super) struct Replay {
    shapes: Vec<Vec<usize>>,
    inputs: Vec<DynTensor>,
    /// The last run's outputs, which the next overwrites.
    last: Vec<Weak<Replayed>>,
}

impl Replay {
    /// Memory on the device for every input, bound; outputs are bound to memory that the session keeps.
    ///
    /// # Errors
    /// When it cannot be had.
    pub(super) fn bind(
        session: &Session,
        binding: &mut IoBinding,
        there: &MemoryInfo<'static>,
        inputs: &[(&str, Value)],
        tensors: &[Tensor],
        outputs: &[ValueInfo],
    ) -> Result<Self, EngineError> {
        let allocator = Allocator::new(session, there.clone()).map_err(|error| failed(&error))?;
        let mut bound = Vec::new();
        for ((name, _), tensor) in inputs.iter().zip(tensors) {
            let dtype = element_type(tensor.dtype());
            let made = DynTensor::new(&allocator, dtype, tensor.shape()).map_err(|error| failed(&error))?;
            binding.bind_input(*name, &made).map_err(|error| failed(&error))?;
            bound.push(made);
        }
        for output in outputs {
            binding.bind_output_to_device(&output.name, there).map_err(|error| failed(&error))?;
        }
        Ok(Replay { shapes: shapes(tensors), inputs: bound, last: Vec::new() })
    }

    /// Fills the inputs and runs. Outputs of the run before that somebody still has are fetched first.
    ///
    /// # Errors
    /// When inputs are of another shape, or copying or computing fails.
    pub(super) fn run(
        &mut self,
        session: &mut Session,
        binding: &IoBinding,
        tensors: &[Tensor],
    ) -> Result<Vec<Value>, EngineError> {
        if self.shapes != shapes(tensors) {
            return Err(EngineError::Failed(format!("`{GRAPH}` takes inputs of one shape only")));
        }
        for output in self.last.drain(..).filter_map(|output| output.upgrade()) {
            output.to_host()?;
        }
        for (tensor, there) in tensors.iter().zip(&mut self.inputs) {
            copy::to_device(tensor.bytes(), there)?;
        }
        let values = session.run_binding(binding).map_err(|error| failed(&error))?;
        let made = values.into_iter().map(|(name, value)| Replayed::new(name, value).map(Arc::new));
        let made = made.collect::<Result<Vec<_>, _>>()?;
        self.last = made.iter().map(Arc::downgrade).collect();
        Ok(made.into_iter().map(|output| Value::Device(output)).collect())
    }
}

fn shapes(tensors: &[Tensor]) -> Vec<Vec<usize>> {
    tensors.iter().map(|tensor| tensor.shape().to_vec()).collect()
}

/// An output of a replayed run: on the device until it is asked for, or the next run is about to overwrite it.
struct Replayed {
    spec: TensorSpec,
    output: Mutex<Lazy>,
}

enum Lazy {
    There(DynTensor),
    Here(Tensor),
}

impl Replayed {
    fn new(name: &str, value: DynValue) -> Result<Self, EngineError> {
        let there = value.downcast::<DynTensorValueType>().map_err(|error| failed(&error))?;
        let dims = there.shape().iter().map(|size| Dim::Fixed(usize::try_from(*size).unwrap_or(0))).collect();
        let spec = TensorSpec { dims, dtype: dtype(name, *there.data_type())? };
        Ok(Replayed { spec, output: Mutex::new(Lazy::There(there)) })
    }

    fn fetch(&self, there: &DynTensor) -> Result<Tensor, EngineError> {
        let shape = self.spec.fixed_shape().unwrap_or_default();
        let bytes = byte_count(&shape, self.spec.dtype).ok_or(EngineError::OutOfMemory { bytes: u64::MAX })?;
        let mut memory = HeapMemory::zeroed(bytes)?;
        copy::to_host(there, memory.bytes_mut())?;
        Tensor::from_memory(shape, self.spec.dtype, Arc::new(memory), 0)
            .map_err(|error| EngineError::Failed(error.to_string()))
    }
}

impl DeviceTensor for Replayed {
    fn spec(&self) -> TensorSpec {
        self.spec.clone()
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let tensor = match &*output {
            Lazy::Here(tensor) => return Ok(tensor.clone()),
            Lazy::There(there) => self.fetch(there)?,
        };
        *output = Lazy::Here(tensor.clone());
        Ok(tensor)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of a replayed run", self.spec)
    }
}
