//! A session whose provider computes on a device: pinned lent inputs, outputs that stay there until they are fetched.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use flagperf_onnx::ValueInfo;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, Session};
use ort::value::{DynTensor, DynTensorValueType, DynValue, TensorElementType, ValueType};

use super::failed;
use super::options::Settings;
use super::replay::{GRAPH, Replay};
use super::tensor::{dtype, lend, take};
use crate::engine::{DeviceTensor, EngineError, LentMemory, Value};
use crate::monitor::Card;
use crate::tensor::{Dim, HostMemory, Tensor, TensorSpec};

/// The device of a session.
pub(super) struct Device {
    id: i32,
    card: Option<Card>,
    binding: IoBinding,
    /// Whether runs are captured and replayed, which takes inputs and outputs that stay where they are.
    graph: bool,
    replay: Option<Replay>,
}

impl Device {
    /// The device that `provider` computes on, when it is not the processor: now CUDA and what is built on it.
    ///
    /// # Errors
    /// When the session gives no binding.
    pub(super) fn of(session: &Session, settings: &Settings<'_>) -> Result<Option<Self>, EngineError> {
        if !["cuda", "tensorrt", "nvrtx"].contains(&settings.provider.name) {
            return Ok(None);
        }
        let option = |name: &str| settings.provider_options.get(name).map(String::as_str);
        let id = option("device_id").and_then(|id| id.parse().ok()).unwrap_or(0);
        let binding = session.create_binding().map_err(|error| failed(&error))?;
        let graph = option(GRAPH) == Some("1");
        Ok(Some(Device { id, card: Card::of(id.unsigned_abs()), binding, graph, replay: None }))
    }

    /// The device with its number and, where it is known, its name: `cuda:0 H200`.
    pub(super) fn name(&self) -> String {
        let name = self.card.as_ref().map(|card| format!(" {}", card.name)).unwrap_or_default();
        format!("cuda:{}{name}", self.id)
    }

    /// What the device's driver says of it.
    pub(super) fn card(&self) -> Option<&Card> {
        self.card.as_ref()
    }

    /// Memory that the device reads directly.
    ///
    /// # Errors
    /// When it cannot be had.
    pub(super) fn lend(&self, session: &Session, bytes: usize) -> Result<Box<dyn LentMemory>, EngineError> {
        let out = |error| match failed(&error) {
            EngineError::Failed(_) => EngineError::OutOfMemory { bytes: bytes as u64 },
            other => other,
        };
        let pinned =
            MemoryInfo::new(AllocationDevice::CUDA_PINNED, self.id, AllocatorType::Device, MemoryType::CPUOutput);
        let allocator = Allocator::new(session, pinned.map_err(out)?).map_err(out)?;
        let tensor = DynTensor::new(&allocator, TensorElementType::Uint8, [bytes]).map_err(out)?;
        Ok(Box::new(Pinned(tensor)))
    }

    /// Copies inputs over, runs, and leaves outputs on the device; they are new memory each time.
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
            if self.replay.is_none() {
                let there = self.there()?;
                self.replay = Some(Replay::bind(session, &mut self.binding, &there, inputs, &tensors, outputs)?);
            }
            let replay = self.replay.as_mut().expect("made above");
            return replay.run(session, &self.binding, &tensors);
        }
        for (name, value) in inputs {
            match value {
                Value::Host(tensor) => {
                    let lent = lend(tensor).map_err(|error| failed(&error))?;
                    self.binding.bind_input(*name, &*lent).map_err(|error| failed(&error))?;
                }
                Value::Device(tensor) => match tensor.as_any().downcast_ref::<OnDevice>() {
                    Some(ours) => self.binding.bind_input(*name, &ours.0).map_err(|error| failed(&error))?,
                    None => {
                        let host = tensor.to_host()?;
                        let lent = lend(&host).map_err(|error| failed(&error))?;
                        self.binding.bind_input(*name, &*lent).map_err(|error| failed(&error))?;
                    }
                },
            }
        }
        self.binding.clear_outputs();
        let there = self.there()?;
        for output in outputs {
            self.binding.bind_output_to_device(&output.name, &there).map_err(|error| failed(&error))?;
        }
        let values = session.run_binding(&self.binding).map_err(|error| failed(&error))?;
        values.into_iter().map(|(name, value)| OnDevice::value(name, value)).collect()
    }

    fn there(&self) -> Result<MemoryInfo<'static>, EngineError> {
        MemoryInfo::new(AllocationDevice::CUDA, self.id, AllocatorType::Device, MemoryType::Default)
            .map_err(|error| failed(&error))
    }

    /// Waits until everything is computed.
    ///
    /// # Errors
    /// When computing failed.
    pub(super) fn sync(&self) -> Result<(), EngineError> {
        self.binding.synchronize_outputs().map_err(|error| failed(&error))
    }
}

/// Pinned memory.
struct Pinned(DynTensor);

impl HostMemory for Pinned {
    fn bytes(&self) -> &[u8] {
        self.0.try_extract_tensor::<u8>().map_or(&[], |(_, bytes)| bytes)
    }
}

impl LentMemory for Pinned {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.try_extract_tensor_mut::<u8>().map_or(&mut [], |(_, bytes)| bytes)
    }
}

/// An output on the device.
struct OnDevice(DynValue);

impl OnDevice {
    fn value(name: &str, value: DynValue) -> Result<Value, EngineError> {
        match value.dtype() {
            ValueType::Tensor { ty, .. } => dtype(name, *ty)?,
            other => return Err(EngineError::Failed(format!("output `{name}` is no tensor but {other}"))),
        };
        Ok(Value::Device(Arc::new(OnDevice(value))))
    }
}

impl DeviceTensor for OnDevice {
    fn spec(&self) -> TensorSpec {
        let ValueType::Tensor { ty, shape, .. } = self.0.dtype() else { unreachable!("looked at when it was made") };
        let dims = shape.iter().map(|size| Dim::Fixed(usize::try_from(*size).unwrap_or(0))).collect();
        TensorSpec { dims, dtype: dtype("output", *ty).unwrap_or_else(|_| unreachable!("looked at when it was made")) }
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        let tensor = self.0.view().downcast::<DynTensorValueType>().map_err(|error| failed(&error))?;
        let host = tensor.to(AllocationDevice::CPU, 0).map_err(|error| failed(&error))?;
        take("output", host.into_dyn())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for OnDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on the device", self.spec())
    }
}
