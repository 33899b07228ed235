//! Runs that are captured as a CUDA graph the first time and replayed afterwards, with inputs and outputs at fixed
//! addresses.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use flagperf_onnx::ValueInfo;
use ort::memory::{Allocator, MemoryInfo};
use ort::session::{IoBinding, Session};
use ort::value::{DynTensor, DynTensorValueType, DynValue};

use super::tensor::{dtype, element_type};
use super::{copy, to_engine_error};
use crate::{DeviceTensor, EngineError, HeapMemory, LentMemory, Value};
use flagperf_core::tensor::{Dim, Tensor, TensorSpec, byte_count};

/// The provider option that enables CUDA graphs.
pub(super) const ENABLE_CUDA_GRAPH: &str = "enable_cuda_graph";

/// The captured run for one set of input shapes, with its inputs and outputs on the device.
pub(super) struct CudaGraphRun {
    shapes: Vec<Vec<usize>>,
    inputs: Vec<DynTensor>,
    /// The outputs of the last run, which the next run overwrites.
    last_outputs: Vec<Weak<ReplayOutput>>,
}

impl CudaGraphRun {
    /// Allocates and binds device memory for every input, and binds the outputs to device memory that ONNX Runtime
    /// allocates.
    ///
    /// # Errors
    /// When an allocation fails.
    pub(super) fn bind(
        session: &Session,
        binding: &mut IoBinding,
        memory: &MemoryInfo<'static>,
        inputs: &[(&str, Value)],
        tensors: &[Tensor],
        outputs: &[ValueInfo],
    ) -> Result<Self, EngineError> {
        let allocator = Allocator::new(session, memory.clone()).map_err(|error| to_engine_error(&error))?;
        let mut bound = Vec::new();
        for ((name, _), tensor) in inputs.iter().zip(tensors) {
            let dtype = element_type(tensor.dtype());
            let input = DynTensor::new(&allocator, dtype, tensor.shape()).map_err(|error| to_engine_error(&error))?;
            binding.bind_input(*name, &input).map_err(|error| to_engine_error(&error))?;
            bound.push(input);
        }
        for output in outputs {
            binding.bind_output_to_device(&output.name, memory).map_err(|error| to_engine_error(&error))?;
        }
        Ok(CudaGraphRun { shapes: shapes(tensors), inputs: bound, last_outputs: Vec::new() })
    }

    /// Copies the inputs to the device and runs the model. Outputs of the previous run that are still referenced are
    /// fetched first, because this run overwrites them.
    ///
    /// # Errors
    /// When the inputs have other shapes than the captured run, or copying or computing fails.
    pub(super) fn run(
        &mut self,
        session: &mut Session,
        binding: &IoBinding,
        tensors: &[Tensor],
    ) -> Result<Vec<Value>, EngineError> {
        if self.shapes != shapes(tensors) {
            return Err(EngineError::Failed(format!(
                "`{ENABLE_CUDA_GRAPH}` requires inputs of the same shape in every step"
            )));
        }
        for output in self.last_outputs.drain(..).filter_map(|output| output.upgrade()) {
            output.to_host()?;
        }
        for (tensor, input) in tensors.iter().zip(&mut self.inputs) {
            copy::to_device(tensor.bytes(), input)?;
        }
        let values = session.run_binding(binding).map_err(|error| to_engine_error(&error))?;
        let outputs = values.into_iter().map(|(name, value)| ReplayOutput::new(name, value).map(Arc::new));
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        self.last_outputs = outputs.iter().map(Arc::downgrade).collect();
        Ok(outputs.into_iter().map(|output| Value::Device(output)).collect())
    }
}

fn shapes(tensors: &[Tensor]) -> Vec<Vec<usize>> {
    tensors.iter().map(|tensor| tensor.shape().to_vec()).collect()
}

/// An output of a replayed run. It stays on the device until the host fetches it, or until the next run is about to
/// overwrite it.
struct ReplayOutput {
    spec: TensorSpec,
    output: Mutex<OutputLocation>,
}

enum OutputLocation {
    Device(DynTensor),
    Host(Tensor),
}

impl ReplayOutput {
    fn new(name: &str, value: DynValue) -> Result<Self, EngineError> {
        let tensor = value.downcast::<DynTensorValueType>().map_err(|error| to_engine_error(&error))?;
        let dims = tensor.shape().iter().map(|size| Dim::Fixed(usize::try_from(*size).unwrap_or(0))).collect();
        let spec = TensorSpec { dims, dtype: dtype(name, *tensor.data_type())? };
        Ok(ReplayOutput { spec, output: Mutex::new(OutputLocation::Device(tensor)) })
    }

    fn fetch(&self, tensor: &DynTensor) -> Result<Tensor, EngineError> {
        let shape = self.spec.fixed_shape().unwrap_or_default();
        let bytes = byte_count(&shape, self.spec.dtype).ok_or(EngineError::OutOfMemory { bytes: u64::MAX })?;
        let mut memory = HeapMemory::zeroed(bytes)?;
        copy::to_host(tensor, memory.bytes_mut())?;
        Tensor::from_memory(shape, self.spec.dtype, Arc::new(memory), 0)
            .map_err(|error| EngineError::Failed(error.to_string()))
    }
}

impl DeviceTensor for ReplayOutput {
    fn spec(&self) -> TensorSpec {
        self.spec.clone()
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let tensor = match &*output {
            OutputLocation::Host(tensor) => return Ok(tensor.clone()),
            OutputLocation::Device(tensor) => self.fetch(tensor)?,
        };
        *output = OutputLocation::Host(tensor.clone());
        Ok(tensor)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for ReplayOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of a replayed run", self.spec)
    }
}
