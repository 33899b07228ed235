//! Tensors that the host and a plug-in exchange as DLPack tensors: borrowed inputs and checked outputs.

use std::any::Any;
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::Arc;

use flagperf_plugin::abi::FLAGPERF_SHARED_TENSORS;
use flagperf_plugin::dlpack::{DLDevice, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use flagperf_plugin::{DlpackFlags, is_host, row_major};

use super::calls::{SessionHandle, interface_error};
use crate::{DeviceTensor, EngineError, HeapMemory, LentMemory};
use flagperf_core::tensor::{DType, HostMemory, Tensor, TensorSpec, byte_count};

/// The largest accepted number of dimensions; no tensor has as many.
const RANK_MAX: i32 = 32;

/// A tensor of the host that a plug-in may read until the session is synchronised.
pub(super) struct BorrowedInput {
    managed: Box<DLManagedTensorVersioned>,
    _shape: Vec<i64>,
    _strides: Vec<i64>,
    _tensor: Tensor,
}

// SAFETY: the pointers refer to memory that this value owns and that does not change.
unsafe impl Send for BorrowedInput {}

impl BorrowedInput {
    pub(super) fn new(tensor: Tensor) -> Self {
        let mut shape: Vec<i64> = tensor.shape().iter().map(|size| size.cast_signed() as i64).collect();
        let mut strides = row_major(&shape);
        let raw = DLTensor {
            data: tensor.bytes().as_ptr().cast_mut().cast(),
            device: DLDevice::CPU,
            ndim: shape.len() as i32,
            dtype: plugin_dtype(tensor.dtype()).to_dlpack(),
            shape: shape.as_mut_ptr(),
            strides: strides.as_mut_ptr(),
            byte_offset: 0,
        };
        let managed = DLManagedTensorVersioned {
            version: DLPackVersion::CURRENT,
            manager_ctx: null_mut(),
            deleter: None,
            flags: DlpackFlags::READ_ONLY,
            dl_tensor: raw,
        };
        BorrowedInput { managed: Box::new(managed), _shape: shape, _strides: strides, _tensor: tensor }
    }

    pub(super) fn as_ptr(&self) -> *mut DLManagedTensorVersioned {
        (&raw const *self.managed).cast_mut()
    }
}

/// Returns the same element type as a type of the plug-in crate.
fn plugin_dtype(dtype: DType) -> flagperf_plugin::DType {
    flagperf_plugin::DType::from_name(dtype.name()).expect("both crates have the types of the notation")
}

/// An output that a plug-in handed over. Its deleter is called exactly once, before its session is unloaded.
pub(super) struct PluginOutput {
    tensor: NonNull<DLManagedTensorVersioned>,
    shape: Vec<usize>,
    dtype: DType,
    /// Address of the elements in host memory; `None` if they are on a device.
    host: Option<*const u8>,
    handle: Arc<SessionHandle>,
}

// SAFETY: a plug-in allows reading and deleting an output on any thread, and does not change it.
unsafe impl Send for PluginOutput {}
// SAFETY: as above.
unsafe impl Sync for PluginOutput {}

impl PluginOutput {
    /// Takes ownership of a tensor that a plug-in returned for the output declared as `name`, and checks it. The tensor
    /// is deleted also if it is refused.
    ///
    /// # Safety
    /// The plug-in wrote `tensor` as an output, and nothing else takes ownership of it.
    pub(super) unsafe fn from_raw(
        handle: &Arc<SessionHandle>,
        name: &str,
        tensor: NonNull<DLManagedTensorVersioned>,
    ) -> Result<Self, EngineError> {
        let mut output =
            PluginOutput { tensor, shape: Vec::new(), dtype: DType::U8, host: None, handle: handle.clone() };
        // SAFETY: the caller guarantees it; the version determines how the rest is read.
        let checked = unsafe { check_layout(&*tensor.as_ptr(), handle.library.table.copy_to_host.is_some()) };
        let refused = |reason| interface_error(handle.library, &format!("returned output `{name}` {reason}"));
        (output.shape, output.dtype, output.host) = checked.map_err(refused)?;
        Ok(output)
    }

    fn byte_length(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }
}

impl Drop for PluginOutput {
    fn drop(&mut self) {
        // SAFETY: the deleter has the same place in every version, and this is its only call.
        unsafe {
            if let Some(delete) = self.tensor.as_ref().deleter {
                delete(self.tensor.as_ptr());
            }
        }
    }
}

/// Shape, element type, and the address of the elements if they are in host memory.
type Layout = (Vec<usize>, DType, Option<*const u8>);

/// Checks an output and returns its layout, or a reason that continues "returned output `name`". `has_copy` is whether
/// the plug-in has the function `copy_to_host`.
///
/// # Safety
/// The shape and the strides have as many entries as the tensor has dimensions.
unsafe fn check_layout(managed: &DLManagedTensorVersioned, has_copy: bool) -> Result<Layout, String> {
    let (theirs, ours) = (managed.version.major, DLPackVersion::CURRENT.major);
    if theirs != ours {
        return Err(format!("in DLPack version `{theirs}`, but this program reads version `{ours}`"));
    }
    let raw = &managed.dl_tensor;
    let dtype = flagperf_plugin::DType::from_dlpack(raw.dtype).and_then(|dtype| dtype.name().parse().ok());
    let dtype: DType = dtype.ok_or_else(|| {
        let (code, bits, lanes) = (raw.dtype.code.0, raw.dtype.bits, raw.dtype.lanes);
        format!("with an unsupported element type (DLPack code {code}, {bits} bits, {lanes} lanes)")
    })?;
    if !(0..=RANK_MAX).contains(&raw.ndim) || (raw.shape.is_null() && raw.ndim > 0) {
        return Err(format!("without a valid shape (rank {})", raw.ndim));
    }
    let rank = raw.ndim as usize;
    // SAFETY: the caller guarantees it.
    let sizes = if rank == 0 { &[][..] } else { unsafe { slice::from_raw_parts(raw.shape, rank) } };
    let shape = sizes.iter().map(|size| usize::try_from(*size).ok()).collect::<Option<Vec<usize>>>();
    let bytes = shape.as_ref().and_then(|shape| byte_count(shape, dtype));
    let (Some(shape), Some(bytes)) = (shape, bytes) else { return Err(format!("with the invalid shape `{sizes:?}`")) };
    if !is_host(raw.device) {
        let device = raw.device.device_type.0;
        return if has_copy {
            Ok((shape, dtype, None))
        } else {
            Err(format!("on a device (DLPack device type `{device}`), but has no function `copy_to_host`"))
        };
    }
    if bytes > 0 && raw.data.is_null() {
        return Err("with a null data pointer".to_owned());
    }
    // Before DLPack 1.2, null strides stand for a dense row-major tensor.
    if bytes > 0 && rank > 0 && !raw.strides.is_null() {
        // SAFETY: the caller guarantees it.
        check_dense(sizes, unsafe { slice::from_raw_parts(raw.strides, rank) })?;
    }
    let offset = usize::try_from(raw.byte_offset).map_err(|_| "with an invalid byte offset".to_owned())?;
    Ok((shape, dtype, Some(raw.data.cast::<u8>().cast_const().wrapping_add(offset))))
}

/// Refuses strides other than those of a dense row-major tensor. The stride of a dimension of size 1 does not matter.
fn check_dense(sizes: &[i64], strides: &[i64]) -> Result<(), String> {
    let dense = row_major(sizes);
    if strides.iter().zip(&dense).zip(sizes).all(|((stride, dense), size)| stride == dense || *size == 1) {
        return Ok(());
    }
    Err(format!("that is not dense and row-major (strides `{strides:?}`, shape `{sizes:?}`)"))
}

impl HostMemory for PluginOutput {
    fn bytes(&self) -> &[u8] {
        match self.host {
            // SAFETY: the plug-in keeps these bytes unchanged until the deleter is called.
            Some(address) if self.byte_length() > 0 => unsafe { slice::from_raw_parts(address, self.byte_length()) },
            _ => &[],
        }
    }
}

/// An output of a plug-in. One in host memory is read in place; one on a device is copied.
pub(super) struct PluginTensor(Arc<PluginOutput>);

impl PluginTensor {
    pub(super) fn new(output: PluginOutput) -> Self {
        PluginTensor(Arc::new(output))
    }

    /// Returns the plug-in's own pointer if the session of `handle` can read it: the tensor is one of its outputs, or one of another
    /// session of a plug-in that shares them. All sessions of a process compute on the same device.
    pub(super) fn raw_for(&self, handle: &Arc<SessionHandle>) -> Option<*mut DLManagedTensorVersioned> {
        let shares = handle.library.table.artifacts & FLAGPERF_SHARED_TENSORS != 0;
        let is_shared = shares && std::ptr::eq(self.0.handle.library, handle.library);
        (is_shared || Arc::ptr_eq(&self.0.handle, handle)).then(|| self.0.tensor.as_ptr())
    }
}

impl fmt::Debug for PluginTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PluginTensor({})", self.spec())
    }
}

impl DeviceTensor for PluginTensor {
    fn spec(&self) -> TensorSpec {
        TensorSpec::new(self.0.shape.iter().copied(), self.0.dtype)
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        let output = &self.0;
        output.handle.synchronize()?;
        let failed = |error: flagperf_core::tensor::TensorError| EngineError::Failed(error.to_string());
        let (shape, dtype) = (output.shape.clone(), output.dtype);
        if output.host.is_none() {
            let mut memory = HeapMemory::zeroed(output.byte_length())?;
            let to = memory.bytes_mut();
            output.handle.call(|table, session| {
                let copy = table.copy_to_host.expect("checked when the output was taken");
                // SAFETY: the session is loaded, the tensor belongs to it, and `to` has the given length.
                unsafe { copy(session, output.tensor.as_ptr(), to.as_mut_ptr().cast(), to.len() as u64) }
            })?;
            return Tensor::from_memory(shape, dtype, Arc::new(memory), 0).map_err(failed);
        }
        let aligned = output.bytes().as_ptr().addr().is_multiple_of(dtype.size());
        let tensor = if aligned {
            Tensor::from_memory(shape, dtype, output.clone(), 0)
        } else {
            Tensor::from_bytes(shape, dtype, output.bytes())
        };
        tensor.map_err(failed)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stride_of_a_dimension_of_size_one_does_not_matter() {
        assert_eq!(check_dense(&[1, 3, 1], &[99, 1, 7]), Ok(()));
        assert_eq!(check_dense(&[2, 3, 1], &[3, 1, 1]), Ok(()));
        let refused = "that is not dense and row-major (strides `[1, 2]`, shape `[2, 3]`)";
        assert_eq!(check_dense(&[2, 3], &[1, 2]), Err(refused.to_owned()));
    }

    #[test]
    fn the_element_types_of_the_interface_are_those_of_the_host() {
        for dtype in DType::ALL {
            let own = plugin_dtype(dtype);
            assert_eq!((own.name(), own.size()), (dtype.name(), dtype.size()));
            assert_eq!(format!("{own:?}"), format!("{dtype:?}"));
            assert_eq!(own as usize, dtype as usize, "both lists have the same order");
        }
        assert_eq!(flagperf_plugin::DType::COUNT, DType::ALL.len());
    }

    #[test]
    fn every_element_type_is_borrowed_with_its_dlpack_type() {
        for dtype in DType::ALL {
            let bytes = vec![0; 6 * dtype.size()];
            let borrowed = BorrowedInput::new(Tensor::from_bytes([2, 3], dtype, &bytes).unwrap());
            // SAFETY: the tensor has just been created.
            let (shape, read, address) = unsafe { check_layout(&*borrowed.as_ptr(), false) }.unwrap();
            assert_eq!((shape, read), (vec![2, 3], dtype));
            assert_eq!(address, Some(borrowed._tensor.bytes().as_ptr()));
        }
    }
}
