//! A session's CUDA device: inputs are lent in pinned memory, and outputs stay on the device until the host fetches
//! them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use flagperf_onnx::ValueInfo;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, Session};
use ort::value::{DynTensor, DynTensorValueType, DynValue, TensorElementType, ValueType};

use super::options::OrtOptions;
use super::replay::{CudaGraphRun, ENABLE_CUDA_GRAPH};
use super::tensor::{dtype, from_ort, to_ort};
use super::to_engine_error;
use crate::{DeviceTensor, EngineError, LentMemory, Value};
use flagperf_core::tensor::{Dim, HostMemory, Tensor, TensorSpec};
use flagperf_monitor::NvmlDevice;

/// The CUDA device of a session, and the binding of its inputs and outputs.
pub(super) struct CudaDevice {
    id: i32,
    nvml: Option<NvmlDevice>,
    binding: IoBinding,
    /// Whether runs are captured as a CUDA graph and replayed, which needs inputs and outputs at fixed addresses.
    graph: bool,
    graph_run: Option<CudaGraphRun>,
}

impl CudaDevice {
    /// Returns the device of a session whose provider uses CUDA (`cuda`, `tensorrt`, `nvrtx`); `None` for any other
    /// provider, and for one that is selected by a device: its memory need not have the names used here.
    ///
    /// # Errors
    /// When ONNX Runtime cannot create a binding.
    pub(super) fn of_session(session: &Session, settings: &OrtOptions<'_>) -> Result<Option<Self>, EngineError> {
        let uses_cuda = ["cuda", "tensorrt", "nvrtx"].contains(&settings.provider.name());
        if !uses_cuda || settings.by_device() {
            return Ok(None);
        }
        let option = |name: &str| settings.provider_options.get(name).map(String::as_str);
        let id = option("device_id").and_then(|id| id.parse().ok()).unwrap_or(0);
        let binding = session.create_binding().map_err(|error| to_engine_error(&error))?;
        let graph = option(ENABLE_CUDA_GRAPH) == Some("1");
        Ok(Some(CudaDevice {
            id,
            nvml: NvmlDevice::with_cuda_index(id.unsigned_abs()),
            binding,
            graph,
            graph_run: None,
        }))
    }

    /// Returns the device's number and, if known, its name: `cuda:0 H200`.
    pub(super) fn name(&self) -> String {
        let name = self.nvml.as_ref().map(|nvml| format!(" {}", nvml.name)).unwrap_or_default();
        format!("cuda:{}{name}", self.id)
    }

    /// The device as its driver reports it; `None` when the driver's library is not available.
    pub(super) fn nvml(&self) -> Option<&NvmlDevice> {
        self.nvml.as_ref()
    }

    /// Allocates pinned memory, which the device reads directly.
    ///
    /// # Errors
    /// When the allocation fails.
    pub(super) fn lend(&self, session: &Session, bytes: usize) -> Result<Box<dyn LentMemory>, EngineError> {
        let allocation_error = |error| match to_engine_error(&error) {
            EngineError::Failed(_) => EngineError::OutOfMemory { bytes: bytes as u64 },
            other => other,
        };
        let pinned =
            MemoryInfo::new(AllocationDevice::CUDA_PINNED, self.id, AllocatorType::Device, MemoryType::CPUOutput);
        let allocator = Allocator::new(session, pinned.map_err(allocation_error)?).map_err(allocation_error)?;
        let tensor = DynTensor::new(&allocator, TensorElementType::Uint8, [bytes]).map_err(allocation_error)?;
        Ok(Box::new(PinnedMemory(tensor)))
    }

    /// Copies the inputs to the device and runs the model. The outputs stay on the device, each time in new memory.
    ///
    /// # Errors
    /// When copying or computing fails.
    pub(super) fn run(
        &mut self,
        session: &mut Session,
        inputs: &[(&str, Value)],
        outputs: &[ValueInfo],
    ) -> Result<Vec<Value>, EngineError> {
        if self.graph {
            let tensors = inputs.iter().map(|(_, value)| value.to_host()).collect::<Result<Vec<_>, _>>()?;
            if self.graph_run.is_none() {
                let memory = self.memory_info()?;
                let run = CudaGraphRun::bind(session, &mut self.binding, &memory, inputs, &tensors, outputs)?;
                self.graph_run = Some(run);
            }
            let graph_run = self.graph_run.as_mut().expect("set above");
            return graph_run.run(session, &self.binding, &tensors);
        }
        for (name, value) in inputs {
            match value {
                Value::Host(tensor) => {
                    let view = to_ort(tensor).map_err(|error| to_engine_error(&error))?;
                    self.binding.bind_input(*name, &*view).map_err(|error| to_engine_error(&error))?;
                }
                Value::Device(tensor) => match tensor.as_any().downcast_ref::<CudaTensor>() {
                    Some(own) => self.binding.bind_input(*name, &own.0).map_err(|error| to_engine_error(&error))?,
                    None => {
                        let host = tensor.to_host()?;
                        let view = to_ort(&host).map_err(|error| to_engine_error(&error))?;
                        self.binding.bind_input(*name, &*view).map_err(|error| to_engine_error(&error))?;
                    }
                },
            }
        }
        self.binding.clear_outputs();
        let memory = self.memory_info()?;
        for output in outputs {
            self.binding.bind_output_to_device(&output.name, &memory).map_err(|error| to_engine_error(&error))?;
        }
        let values = session.run_binding(&self.binding).map_err(|error| to_engine_error(&error))?;
        values.into_iter().map(|(name, value)| CudaTensor::value(name, value)).collect()
    }

    /// Describes the memory of the device to ONNX Runtime.
    fn memory_info(&self) -> Result<MemoryInfo<'static>, EngineError> {
        MemoryInfo::new(AllocationDevice::CUDA, self.id, AllocatorType::Device, MemoryType::Default)
            .map_err(|error| to_engine_error(&error))
    }

    /// Waits until everything has been computed.
    ///
    /// # Errors
    /// When the computation failed.
    pub(super) fn sync(&self) -> Result<(), EngineError> {
        self.binding.synchronize_outputs().map_err(|error| to_engine_error(&error))
    }
}

/// Pinned host memory, in a tensor of bytes.
struct PinnedMemory(DynTensor);

impl HostMemory for PinnedMemory {
    fn bytes(&self) -> &[u8] {
        self.0.try_extract_tensor::<u8>().map_or(&[], |(_, bytes)| bytes)
    }
}

impl LentMemory for PinnedMemory {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.try_extract_tensor_mut::<u8>().map_or(&mut [], |(_, bytes)| bytes)
    }
}

/// An output on the device.
struct CudaTensor(DynValue);

impl CudaTensor {
    fn value(name: &str, value: DynValue) -> Result<Value, EngineError> {
        match value.dtype() {
            ValueType::Tensor { ty, .. } => dtype(name, *ty)?,
            other => return Err(EngineError::Failed(format!("output `{name}` is not a tensor but {other}"))),
        };
        Ok(Value::Device(Arc::new(CudaTensor(value))))
    }
}

impl DeviceTensor for CudaTensor {
    fn spec(&self) -> TensorSpec {
        let ValueType::Tensor { ty, shape, .. } = self.0.dtype() else {
            unreachable!("checked in `CudaTensor::value`")
        };
        let dims = shape.iter().map(|size| Dim::Fixed(usize::try_from(*size).unwrap_or(0))).collect();
        TensorSpec {
            dims,
            dtype: dtype("output", *ty).unwrap_or_else(|_| unreachable!("checked in `CudaTensor::value`")),
        }
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        let tensor = self.0.view().downcast::<DynTensorValueType>().map_err(|error| to_engine_error(&error))?;
        let host = tensor.to(AllocationDevice::CPU, 0).map_err(|error| to_engine_error(&error))?;
        from_ort("output", host.into_dyn())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for CudaTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on the device", self.spec())
    }
}
