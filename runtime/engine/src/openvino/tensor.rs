//! OpenVINO's tensors in host memory: views of the host's memory, or memory that OpenVINO allocates.

use std::ffi::c_void;
use std::ptr;
use std::slice;

use flagperf_onnx::HostMemory;
use openvino_sys::{self as sys, ov_element_type_e, ov_status_e};

use super::api::{OpenVinoResult, check_status};
use crate::LentMemory;
use flagperf_core::tensor::{DType, Tensor};

/// A tensor in host memory.
pub(super) struct HostTensor {
    raw: *mut sys::ov_tensor_t,
}

// SAFETY: OpenVINO's tensors are not bound to a thread.
unsafe impl Send for HostTensor {}
// SAFETY: a shared reference only allows reading the tensor.
unsafe impl Sync for HostTensor {}

impl Drop for HostTensor {
    fn drop(&mut self) {
        // SAFETY: the library created the tensor, and it is freed once.
        unsafe { sys::ov_tensor_free(self.raw) }
    }
}

impl HostTensor {
    /// Takes ownership of a tensor that the library returned.
    pub(super) fn from_raw(raw: *mut sys::ov_tensor_t) -> Self {
        HostTensor { raw }
    }

    /// Creates a view of `tensor`, which the caller keeps alive as long as OpenVINO may read it.
    pub(super) fn over(tensor: &Tensor) -> OpenVinoResult<Self> {
        let mut dims = dims(tensor.shape());
        let memory = tensor.bytes().as_ptr().cast_mut().cast::<c_void>();
        let mut raw = ptr::null_mut();
        // SAFETY: the memory holds all elements of the shape, and OpenVINO only reads inputs.
        check_status(unsafe {
            sys::ov_tensor_create_from_host_ptr(element_type(tensor.dtype()), shape(&mut dims), memory, &mut raw)
        })?;
        Ok(HostTensor { raw })
    }

    /// Allocates `bytes` zero bytes through OpenVINO, with OpenVINO's preferred alignment.
    pub(super) fn zeroed(bytes: usize) -> OpenVinoResult<Self> {
        let mut dims = dims(&[bytes]);
        let mut raw = ptr::null_mut();
        // SAFETY: the shape outlives the call.
        check_status(unsafe { sys::ov_tensor_create(ov_element_type_e::U8, shape(&mut dims), &mut raw) })?;
        let tensor = HostTensor { raw };
        // SAFETY: the tensor has `bytes` bytes, and nothing else refers to it yet.
        unsafe { ptr::write_bytes(tensor.data(), 0, bytes) };
        Ok(tensor)
    }

    /// The raw pointer, for calls of the C interface.
    pub(super) fn as_ptr(&self) -> *const sys::ov_tensor_t {
        self.raw
    }

    /// Returns the shape.
    pub(super) fn shape(&self) -> OpenVinoResult<Vec<usize>> {
        let mut shape = sys::ov_shape_t { rank: 0, dims: ptr::null_mut() };
        // SAFETY: the out-pointer is valid.
        let status = unsafe { sys::ov_tensor_get_shape(self.raw, &mut shape) };
        // The library cannot describe the shape of a scalar.
        if status != ov_status_e::OK && self.element_count() == 1 {
            return Ok(Vec::new());
        }
        check_status(status)?;
        let sizes = match usize::try_from(shape.rank) {
            Ok(rank) if rank > 0 => {
                // SAFETY: the library returned `rank` sizes.
                let sizes = unsafe { slice::from_raw_parts(shape.dims, rank) };
                sizes.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect()
            }
            _ => Vec::new(),
        };
        // SAFETY: the library filled the shape above, and it is freed once.
        check_status(unsafe { sys::ov_shape_free(&mut shape) })?;
        Ok(sizes)
    }

    /// Returns the element type.
    pub(super) fn dtype(&self) -> OpenVinoResult<DType> {
        let mut element_type = ov_element_type_e::DYNAMIC;
        // SAFETY: the out-pointer is valid.
        check_status(unsafe { sys::ov_tensor_get_element_type(self.raw, &mut element_type) })?;
        dtype_of(element_type)
    }

    fn element_count(&self) -> usize {
        let mut count = 0;
        // SAFETY: the out-pointer is valid. When the call fails, the count stays 0.
        unsafe { sys::ov_tensor_get_size(self.raw, &mut count) };
        count
    }

    fn data(&self) -> *mut u8 {
        let mut data = ptr::null_mut();
        // SAFETY: the out-pointer is valid. When the call fails, the pointer stays null, and `size` returns 0.
        unsafe { sys::ov_tensor_data(self.raw, &mut data) };
        data.cast()
    }

    fn size(&self) -> usize {
        let mut bytes = 0;
        // SAFETY: as above.
        unsafe { sys::ov_tensor_get_byte_size(self.raw, &mut bytes) };
        bytes
    }
}

impl HostMemory for HostTensor {
    fn bytes(&self) -> &[u8] {
        match (self.data(), self.size()) {
            (data, size) if data.is_null() || size == 0 => &[],
            // SAFETY: the tensor owns `size` bytes at `data` while it lives, and nothing writes to them during a read.
            (data, size) => unsafe { slice::from_raw_parts(data, size) },
        }
    }
}

impl LentMemory for HostTensor {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match (self.data(), self.size()) {
            (data, size) if data.is_null() || size == 0 => &mut [],
            // SAFETY: as above, and the reference is exclusive.
            (data, size) => unsafe { slice::from_raw_parts_mut(data, size) },
        }
    }
}

fn dims(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect()
}

fn shape(dims: &mut [i64]) -> sys::ov_shape_t {
    sys::ov_shape_t { rank: dims.len() as i64, dims: dims.as_mut_ptr() }
}

fn element_type(dtype: DType) -> ov_element_type_e {
    match dtype {
        DType::F64 => ov_element_type_e::F64,
        DType::F32 => ov_element_type_e::F32,
        DType::F16 => ov_element_type_e::F16,
        DType::BF16 => ov_element_type_e::BF16,
        DType::I64 => ov_element_type_e::I64,
        DType::I32 => ov_element_type_e::I32,
        DType::I16 => ov_element_type_e::I16,
        DType::I8 => ov_element_type_e::I8,
        DType::U64 => ov_element_type_e::U64,
        DType::U32 => ov_element_type_e::U32,
        DType::U16 => ov_element_type_e::U16,
        DType::U8 => ov_element_type_e::U8,
        DType::Bool => ov_element_type_e::OV_BOOLEAN,
    }
}

/// Converts an element type from OpenVINO's.
pub(super) fn dtype_of(element_type: ov_element_type_e) -> OpenVinoResult<DType> {
    let same = |dtype: &DType| self::element_type(*dtype) == element_type;
    DType::ALL.into_iter().find(same).ok_or_else(|| {
        let supported = DType::ALL.map(|dtype| dtype.name()).join(", ");
        format!("unsupported element type `{element_type:?}` (supported: {supported})")
    })
}
