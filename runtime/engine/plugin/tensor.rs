//! Tensors between the host and a plug-in, as DLPack: lent inputs, checked outputs.

use std::any::Any;
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::Arc;

use flagperf_plugin::dlpack::{DLDevice, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use flagperf_plugin::{DlpackFlags, is_host, row_major};

use super::calls::{Handle, malformed};
use crate::engine::{DeviceTensor, EngineError, HeapMemory, LentMemory};
use crate::tensor::{DType, HostMemory, Tensor, TensorSpec, byte_count};

/// More dimensions than a tensor has.
const RANK_MAX: i32 = 32;

/// A tensor of the host's that a plug-in reads until it is synchronised.
pub(super) struct Lent {
    managed: Box<DLManagedTensorVersioned>,
    _shape: Vec<i64>,
    _strides: Vec<i64>,
    _tensor: Tensor,
}

// SAFETY: the pointers go to memory that this owns, and nothing changes it.
unsafe impl Send for Lent {}

impl Lent {
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
        Lent { managed: Box::new(managed), _shape: shape, _strides: strides, _tensor: tensor }
    }

    pub(super) fn as_ptr(&self) -> *mut DLManagedTensorVersioned {
        (&raw const *self.managed).cast_mut()
    }
}

/// The same type in the plug-in's crate.
fn plugin_dtype(dtype: DType) -> flagperf_plugin::DType {
    flagperf_plugin::DType::named(dtype.name()).expect("both crates have the types of the notation")
}

/// An output that a plug-in gave away; deleted once, before its session is unloaded.
pub(super) struct Given {
    tensor: NonNull<DLManagedTensorVersioned>,
    shape: Vec<usize>,
    dtype: DType,
    /// Where its elements are; `None` on a device.
    host: Option<*const u8>,
    handle: Arc<Handle>,
}

// SAFETY: the plug-in lets an output be read and deleted on any thread, and does not change it.
unsafe impl Send for Given {}
// SAFETY: as above.
unsafe impl Sync for Given {}

impl Given {
    /// Takes what a plug-in gave for the output declared as `name`; from here on it is deleted, whatever is wrong with it.
    ///
    /// # Safety
    /// `tensor` is what the plug-in wrote as an output, and nobody else takes it.
    pub(super) unsafe fn take(
        handle: &Arc<Handle>,
        name: &str,
        tensor: NonNull<DLManagedTensorVersioned>,
    ) -> Result<Self, EngineError> {
        let given = Given { tensor, shape: Vec::new(), dtype: DType::U8, host: None, handle: handle.clone() };
        // SAFETY: by the caller; the version tells how to read the rest.
        let checked = unsafe { check(&*tensor.as_ptr(), handle.library.table.copy_to_host.is_some()) };
        let refused = |reason| malformed(handle.library, &format!("gave output `{name}` {reason}"));
        let (shape, dtype, host) = checked.map_err(refused)?;
        // Fields are not moved out of what has to be dropped.
        let mut given = given;
        (given.shape, given.dtype, given.host) = (shape, dtype, host);
        Ok(given)
    }

    fn length(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        // SAFETY: every version has the deleter where this one has it, and it is called once, here.
        unsafe {
            if let Some(delete) = self.tensor.as_ref().deleter {
                delete(self.tensor.as_ptr());
            }
        }
    }
}

/// Shape, type, and the address of the elements when the processor reads them.
type Checked = (Vec<usize>, DType, Option<*const u8>);

/// What is wrong with an output, or what it is.
///
/// # Safety
/// The shape and the strides are as long as the tensor says.
unsafe fn check(managed: &DLManagedTensorVersioned, copies: bool) -> Result<Checked, String> {
    let (theirs, ours) = (managed.version.major, DLPackVersion::CURRENT.major);
    if theirs != ours {
        return Err(format!("in DLPack version `{theirs}`, this program reads `{ours}`"));
    }
    let raw = &managed.dl_tensor;
    let dtype = flagperf_plugin::DType::from_dlpack(raw.dtype).and_then(|dtype| dtype.name().parse().ok());
    let dtype: DType = dtype.ok_or_else(|| {
        let (code, bits, lanes) = (raw.dtype.code.0, raw.dtype.bits, raw.dtype.lanes);
        format!("of an unknown element type (code {code}, {bits} bits, {lanes} lanes)")
    })?;
    if !(0..=RANK_MAX).contains(&raw.ndim) || (raw.shape.is_null() && raw.ndim > 0) {
        return Err(format!("without a shape ({} dimensions)", raw.ndim));
    }
    let rank = raw.ndim as usize;
    // SAFETY: by the caller.
    let sizes = if rank == 0 { &[][..] } else { unsafe { slice::from_raw_parts(raw.shape, rank) } };
    let shape = sizes.iter().map(|size| usize::try_from(*size).ok()).collect::<Option<Vec<usize>>>();
    let bytes = shape.as_ref().and_then(|shape| byte_count(shape, dtype));
    let (Some(shape), Some(bytes)) = (shape, bytes) else { return Err(format!("of shape `{sizes:?}`")) };
    if !is_host(raw.device) {
        let device = raw.device.device_type.0;
        return if copies {
            Ok((shape, dtype, None))
        } else {
            Err(format!("on a device (DLPack type `{device}`), but has no function `copy_to_host`"))
        };
    }
    if bytes > 0 && raw.data.is_null() {
        return Err("without data".to_owned());
    }
    // Null strides are those of a dense tensor in DLPack before 1.2.
    if bytes > 0 && rank > 0 && !raw.strides.is_null() {
        // SAFETY: by the caller.
        check_dense(sizes, unsafe { slice::from_raw_parts(raw.strides, rank) })?;
    }
    let offset = usize::try_from(raw.byte_offset).map_err(|_| "with an impossible byte offset".to_owned())?;
    Ok((shape, dtype, Some(raw.data.cast::<u8>().cast_const().wrapping_add(offset))))
}

/// Refuses strides that are not those of a dense row-major tensor; of a dimension of one entry any will do.
fn check_dense(sizes: &[i64], strides: &[i64]) -> Result<(), String> {
    let dense = row_major(sizes);
    if strides.iter().zip(&dense).zip(sizes).all(|((stride, dense), size)| stride == dense || *size == 1) {
        return Ok(());
    }
    Err(format!("that is not dense and row-major (strides `{strides:?}`, shape `{sizes:?}`)"))
}

impl HostMemory for Given {
    fn bytes(&self) -> &[u8] {
        match self.host {
            // SAFETY: the plug-in keeps so many bytes there unchanged until its deleter is called.
            Some(address) if self.length() > 0 => unsafe { slice::from_raw_parts(address, self.length()) },
            _ => &[],
        }
    }
}

/// An output of a plug-in: in host memory and read in place, or on its device and copied.
pub(super) struct PluginTensor(Arc<Given>);

impl PluginTensor {
    pub(super) fn new(given: Given) -> Self {
        PluginTensor(Arc::new(given))
    }

    /// The plug-in's own pointer, for the session that it comes from.
    pub(super) fn of(&self, handle: &Arc<Handle>) -> Option<*mut DLManagedTensorVersioned> {
        Arc::ptr_eq(&self.0.handle, handle).then(|| self.0.tensor.as_ptr())
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
        let given = &self.0;
        given.handle.finish()?;
        let failed = |error: crate::tensor::TensorError| EngineError::Failed(error.to_string());
        let (shape, dtype) = (given.shape.clone(), given.dtype);
        if given.host.is_none() {
            let mut memory = HeapMemory::zeroed(given.length())?;
            let to = memory.bytes_mut();
            given.handle.call(|table, session| {
                let copy = table.copy_to_host.expect("checked when the output was taken");
                // SAFETY: the session is loaded, the tensor its own, and the memory as long as said.
                unsafe { copy(session, given.tensor.as_ptr(), to.as_mut_ptr().cast(), to.len() as u64) }
            })?;
            return Tensor::from_memory(shape, dtype, Arc::new(memory), 0).map_err(failed);
        }
        let aligned = given.bytes().as_ptr().addr().is_multiple_of(dtype.size());
        let tensor = if aligned {
            Tensor::from_memory(shape, dtype, given.clone(), 0)
        } else {
            Tensor::from_bytes(shape, dtype, given.bytes())
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
    fn the_stride_of_a_single_entry_does_not_matter() {
        assert_eq!(check_dense(&[1, 3, 1], &[99, 1, 7]), Ok(()));
        assert_eq!(check_dense(&[2, 3, 1], &[3, 1, 1]), Ok(()));
        let refused = "that is not dense and row-major (strides `[1, 2]`, shape `[2, 3]`)";
        assert_eq!(check_dense(&[2, 3], &[1, 2]), Err(refused.to_owned()));
    }

    #[test]
    fn every_type_of_the_notation_is_lent_as_dlpack_has_it() {
        for dtype in DType::ALL {
            let bytes = vec![0; 6 * dtype.size()];
            let lent = Lent::new(Tensor::from_bytes([2, 3], dtype, &bytes).unwrap());
            // SAFETY: the tensor was made just now.
            let (shape, read, address) = unsafe { check(&*lent.as_ptr(), false) }.unwrap();
            assert_eq!((shape, read), (vec![2, 3], dtype));
            assert_eq!(address, Some(lent._tensor.bytes().as_ptr()));
        }
    }
}
