//! An output that stays on its device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flagperf_plugin::dlpack::{DLDevice, DLDeviceType};
use flagperf_plugin::{DType, DeviceTensor, Error};
use tch::Device;

use crate::session::plugin_dtype;
use crate::tensor::{self, TorchTensor};

/// An output that stays on its device.
pub struct DeviceOutput(Arc<HeldTensor>);

/// The tensor of an output. Outputs that are caches lie in the memory that the next captured run overwrites.
pub struct HeldTensor(Mutex<Held>);

struct Held {
    tensor: TorchTensor,
    is_overwritten: bool,
}

impl DeviceOutput {
    pub fn new(tensor: TorchTensor) -> Self {
        DeviceOutput(Arc::new(HeldTensor(Mutex::new(Held { tensor, is_overwritten: false }))))
    }

    pub fn held(&self) -> &Arc<HeldTensor> {
        &self.0
    }

    /// Returns the tensor.
    ///
    /// # Errors
    /// When a captured run has overwritten it.
    pub fn tensor(&self) -> Result<TorchTensor, Error> {
        let held = self.0.lock();
        if held.is_overwritten {
            return Err(Error::failed(
                "this state no longer exists: the run that it was an input of has updated it in place (`cuda_graph`)",
            ));
        }
        Ok(held.tensor.clone())
    }
}

impl HeldTensor {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tensor, overwritten or not.
    pub fn memory(&self) -> TorchTensor {
        self.lock().tensor.clone()
    }

    /// Replaces the tensor by a copy of it, because a run overwrites its memory.
    pub fn move_to(&self, copy: TorchTensor) {
        self.lock().tensor = copy;
    }

    /// Notes that a run has overwritten the tensor.
    pub fn note_overwritten(&self) {
        self.lock().is_overwritten = true;
    }
}

impl DeviceTensor for DeviceOutput {
    fn shape(&self) -> Vec<usize> {
        tensor::shape(&self.0.memory().0)
    }

    fn dtype(&self) -> DType {
        plugin_dtype(&self.0.memory().0).expect("the plug-in interface has every type of the host")
    }

    fn device(&self) -> DLDevice {
        let Device::Cuda(index) = self.0.memory().0.device() else {
            unreachable!("outputs on the CPU are host outputs")
        };
        DLDevice { device_type: DLDeviceType::CUDA, device_id: index as i32 }
    }

    fn address(&self) -> usize {
        self.0.memory().0.data_ptr() as usize
    }
}
