//! Tensors of OpenVINO: over our memory, or with memory of their own that others read and write.

use std::ffi::c_void;
use std::ptr;
use std::slice;

use flagperf_onnx::HostMemory;
use openvino_sys::{self as sys, ov_element_type_e};

use super::api::{Outcome, checked};
use crate::engine::LentMemory;
use crate::tensor::{DType, Tensor};

/// A tensor in host memory.
pub(super) struct HostTensor {
    raw: *mut sys::ov_tensor_t,
}

// SAFETY: OpenVINO's tensors belong to no thread.
unsafe impl Send for HostTensor {}
// SAFETY: through a shared reference a tensor is only read.
unsafe impl Sync for HostTensor {}

impl Drop for HostTensor {
    fn drop(&mut self) {
        // SAFETY: made by the library, freed once.
        unsafe { sys::ov_tensor_free(self.raw) }
    }
}

impl HostTensor {
    /// Takes over what the library gave.
    pub(super) fn from_raw(raw: *mut sys::ov_tensor_t) -> Self {
        HostTensor { raw }
    }

    /// A view of a tensor of ours, which the caller keeps as long as OpenVINO may read it.
    pub(super) fn over(tensor: &Tensor) -> Outcome<Self> {
        let mut dims = dims(tensor.shape());
        let memory = tensor.bytes().as_ptr().cast_mut().cast::<c_void>();
        let mut raw = ptr::null_mut();
        // SAFETY: the memory holds as many elements as the shape says, and inputs are only read.
        checked(unsafe {
            sys::ov_tensor_create_from_host_ptr(theirs(tensor.dtype()), shape(&mut dims), memory, &mut raw)
        })?;
        Ok(HostTensor { raw })
    }

    /// `bytes` of zeros that OpenVINO allocates, aligned as it likes them.
    pub(super) fn zeroed(bytes: usize) -> Outcome<Self> {
        let mut dims = dims(&[bytes]);
        let mut raw = ptr::null_mut();
        // SAFETY: the shape lives through the call.
        checked(unsafe { sys::ov_tensor_create(ov_element_type_e::U8, shape(&mut dims), &mut raw) })?;
        let tensor = HostTensor { raw };
        // SAFETY: the tensor has as many bytes, and nobody else has seen them.
        unsafe { ptr::write_bytes(tensor.data(), 0, bytes) };
        Ok(tensor)
    }

    /// For calls that take a tensor.
    pub(super) fn as_ptr(&self) -> *const sys::ov_tensor_t {
        self.raw
    }

    /// Its shape.
    pub(super) fn shape(&self) -> Outcome<Vec<usize>> {
        let mut given = sys::ov_shape_t { rank: 0, dims: ptr::null_mut() };
        // SAFETY: the place for the result is ours.
        checked(unsafe { sys::ov_tensor_get_shape(self.raw, &mut given) })?;
        let sizes = match usize::try_from(given.rank) {
            Ok(rank) if rank > 0 => {
                // SAFETY: the library gave `rank` sizes.
                let sizes = unsafe { slice::from_raw_parts(given.dims, rank) };
                sizes.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect()
            }
            _ => Vec::new(),
        };
        // SAFETY: what the library filled above is freed once.
        checked(unsafe { sys::ov_shape_free(&mut given) })?;
        Ok(sizes)
    }

    /// Our type for its elements.
    pub(super) fn dtype(&self) -> Outcome<DType> {
        let mut given = ov_element_type_e::DYNAMIC;
        // SAFETY: the place for the result is ours.
        checked(unsafe { sys::ov_tensor_get_element_type(self.raw, &mut given) })?;
        ours(given)
    }

    fn data(&self) -> *mut u8 {
        let mut data = ptr::null_mut();
        // SAFETY: the place for the result is ours. On failure it stays null, and so does the size.
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
            // SAFETY: the tensor has `size` bytes there as long as it lives, and nobody writes to them while it is read.
            (data, size) => unsafe { slice::from_raw_parts(data, size) },
        }
    }
}

impl LentMemory for HostTensor {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match (self.data(), self.size()) {
            (data, size) if data.is_null() || size == 0 => &mut [],
            // SAFETY: as above, and the reference is the only one.
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

fn theirs(dtype: DType) -> ov_element_type_e {
    match dtype {
        DType::F64 => ov_element_type_e::F64,
        DType::F32 => ov_element_type_e::F32,
        DType::F16 => ov_element_type_e::F16,
        DType::BF16 => ov_element_type_e::BF16,
        DType::I64 => ov_element_type_e::I64,
        DType::I32 => ov_element_type_e::I32,
        DType::I8 => ov_element_type_e::I8,
        DType::U8 => ov_element_type_e::U8,
        DType::Bool => ov_element_type_e::OV_BOOLEAN,
    }
}

/// Our type for one of OpenVINO's.
pub(super) fn ours(theirs: ov_element_type_e) -> Outcome<DType> {
    Ok(match theirs {
        ov_element_type_e::F64 => DType::F64,
        ov_element_type_e::F32 => DType::F32,
        ov_element_type_e::F16 => DType::F16,
        ov_element_type_e::BF16 => DType::BF16,
        ov_element_type_e::I64 => DType::I64,
        ov_element_type_e::I32 => DType::I32,
        ov_element_type_e::I8 => DType::I8,
        ov_element_type_e::U8 => DType::U8,
        ov_element_type_e::OV_BOOLEAN => DType::Bool,
        other => return Err(format!("elements of type `{other:?}`, which flagperf has not")),
    })
}
