//! An output that stays on its GPU.

use flagperf_plugin::dlpack::{DLDevice, DLDeviceType};
use flagperf_plugin::{DType, DeviceTensor};

use crate::memory::PooledBuffer;

/// An output on a GPU.
#[derive(Debug)]
pub struct GpuTensor {
    /// The sizes.
    pub sizes: Vec<usize>,
    /// The type.
    pub dtype: DType,
    /// The number of the GPU.
    pub gpu: i32,
    /// The memory of the elements.
    pub buffer: PooledBuffer,
}

impl DeviceTensor for GpuTensor {
    fn shape(&self) -> Vec<usize> {
        self.sizes.clone()
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn device(&self) -> DLDevice {
        DLDevice { device_type: DLDeviceType::CUDA, device_id: self.gpu }
    }

    fn address(&self) -> usize {
        self.buffer.address() as usize
    }
}
