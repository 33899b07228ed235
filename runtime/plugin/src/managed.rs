//! Converts outputs to DLPack's managed tensors, and reads inputs from them.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use dlpark::DlpackFlags;
use dlpark::ffi::{DLDevice, DLDeviceType, DLManagedTensorVersioned, DLPackVersion, DLTensor};

use crate::{DType, DeviceTensor, Error, HostView, Input, Output};

/// An output and the arrays that its managed tensor points to. The managed tensor is the first field: its address is
/// also the address of the whole.
#[repr(C)]
struct ManagedOutput<T> {
    managed: DLManagedTensorVersioned,
    sizes: Vec<i64>,
    strides: Vec<i64>,
    output: Output<T>,
}

/// What marks a tensor as an output of this library, whose sessions all have one type of tensors: the address of this value.
static MARK: u8 = 0;

fn mark() -> *mut c_void {
    (&raw const MARK).cast_mut().cast()
}

/// Hands an output over to the host, which calls its deleter.
pub(crate) fn into_raw<T: DeviceTensor>(output: Output<T>) -> *mut DLManagedTensorVersioned {
    let (shape, dtype, device, data) = match &output {
        Output::Host { shape, dtype, memory } => {
            (shape.clone(), *dtype, DLDevice::CPU, memory.bytes().as_ptr().cast_mut().cast())
        }
        Output::Device(tensor) => (tensor.shape(), tensor.dtype(), tensor.device(), tensor.address() as *mut c_void),
    };
    let sizes: Vec<i64> = shape.iter().map(|size| size.cast_signed() as i64).collect();
    let strides = row_major(&sizes);
    let tensor = DLTensor {
        data,
        device,
        ndim: i32::try_from(sizes.len()).unwrap_or(i32::MAX),
        dtype: dtype.to_dlpack(),
        shape: sizes.as_ptr().cast_mut(),
        strides: strides.as_ptr().cast_mut(),
        byte_offset: 0,
    };
    let managed = DLManagedTensorVersioned {
        version: DLPackVersion::CURRENT,
        manager_ctx: mark(),
        deleter: Some(delete::<T>),
        flags: DlpackFlags::empty(),
        dl_tensor: tensor,
    };
    Box::into_raw(Box::new(ManagedOutput { managed, sizes, strides, output })).cast()
}

/// Checks that the memory of an output is as long as its shape and type require, and that a device tensor is not in
/// host memory, where the host would read it directly.
pub(crate) fn check_output<T: DeviceTensor>(output: &Output<T>) -> Result<(), Error> {
    let (shape, dtype, memory) = match output {
        Output::Host { shape, dtype, memory } => (shape, dtype, memory),
        Output::Device(tensor) if is_host(tensor.device()) => {
            return Err(Error::failed("an output that was returned as a device tensor is in host memory"));
        }
        Output::Device(_) => return Ok(()),
    };
    let (needs, has) = (shape.iter().product::<usize>() * dtype.size(), memory.bytes().len());
    if needs == has {
        return Ok(());
    }
    Err(Error::Failed(format!("an output of shape {shape:?} in `{}` needs {needs} bytes, it has {has}", dtype.name())))
}

/// Whether the processor can read the memory of this device.
pub fn is_host(device: DLDevice) -> bool {
    [DLDeviceType::CPU, DLDeviceType::CUDAHOST, DLDeviceType::ROCMHOST].contains(&device.device_type)
}

/// Returns the strides, in elements, of a dense row-major tensor.
pub fn row_major(sizes: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; sizes.len()];
    for axis in (1..sizes.len()).rev() {
        strides[axis - 1] = strides[axis] * sizes[axis].max(1);
    }
    strides
}

extern "C" fn delete<T>(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: `into_raw` made it from a box of this type; the host calls a deleter exactly once.
    let managed = unsafe { Box::from_raw(tensor.cast::<ManagedOutput<T>>()) };
    // A panic must not reach the host, which could not handle it.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(managed)));
}

/// Returns the session's own device tensor behind an output that comes back; `None` if the output is in host memory.
///
/// # Safety
/// `tensor` is an output of a session whose tensors are `T`, and lives as long as `'a`.
pub(crate) unsafe fn device_tensor<'a, T>(tensor: *const DLManagedTensorVersioned) -> Option<&'a T> {
    // SAFETY: `into_raw` made it, so it is a `ManagedOutput` of the session's tensor type.
    match unsafe { &(*tensor.cast::<ManagedOutput<T>>()).output } {
        Output::Device(own) => Some(own),
        Output::Host { .. } => None,
    }
}

/// An input that the host lends for a submit.
pub(crate) struct BorrowedInput<'a, T> {
    shape: Vec<usize>,
    dtype: DType,
    bytes: &'a [u8],
    own: Option<&'a T>,
}

impl<'a, T> BorrowedInput<'a, T> {
    /// Reads an input that the host lends for a submit.
    ///
    /// # Safety
    /// `tensor` points to an input as the interface describes it, and lives as long as `'a`.
    pub(crate) unsafe fn read(tensor: *const DLManagedTensorVersioned) -> Result<Self, Error> {
        // SAFETY: the caller guarantees it.
        let managed = unsafe { &*tensor };
        let raw = &managed.dl_tensor;
        let dtype =
            DType::from_dlpack(raw.dtype).ok_or_else(|| Error::failed("an input has an unsupported element type"))?;
        let rank = usize::try_from(raw.ndim).unwrap_or(0);
        // SAFETY: the shape has `ndim` entries.
        let sizes = if rank == 0 { &[] } else { unsafe { slice::from_raw_parts(raw.shape, rank) } };
        let shape: Vec<usize> = sizes.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect();
        // SAFETY: the mark is this library's, so one of its sessions handed the tensor over.
        let own = if managed.manager_ctx == mark() { unsafe { device_tensor::<T>(tensor) } } else { None };
        let length = shape.iter().product::<usize>() * dtype.size();
        let bytes: &[u8] = match (own, length) {
            (Some(_), _) | (None, 0) => &[],
            // SAFETY: an input that is not on the device is dense and in host memory, at its byte offset.
            (None, _) => unsafe { slice::from_raw_parts(raw.data.cast::<u8>().add(raw.byte_offset as usize), length) },
        };
        Ok(BorrowedInput { shape, dtype, bytes, own })
    }

    /// Returns the input in the form that a session accepts.
    pub(crate) fn as_input(&self) -> Input<'_, T> {
        match self.own {
            Some(own) => Input::Own(own),
            None => Input::Host(HostView { shape: &self.shape, dtype: self.dtype, bytes: self.bytes }),
        }
    }
}
