//! The values that pass through a session: its inputs and outputs, on the host or on a device.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use flagperf_onnx::ValueInfo;

use super::EngineError;
use flagperf_core::tensor::{DType, NamedSizes, Tensor, TensorSpec};

/// A tensor on the host or on a device.
#[derive(Clone, Debug)]
pub enum Value {
    /// In host memory.
    Host(Tensor),
    /// On a device, or not yet computed.
    Device(Arc<dyn DeviceTensor>),
}

impl Value {
    /// The shape and the element type.
    pub fn spec(&self) -> TensorSpec {
        match self {
            Value::Host(tensor) => tensor.spec(),
            Value::Device(tensor) => tensor.spec(),
        }
    }

    /// The shape and the element type, without an allocation for a tensor on the host; `None` while the engine does not
    /// know a dimension.
    pub fn shape_and_dtype(&self) -> Option<(Cow<'_, [usize]>, DType)> {
        match self {
            Value::Host(tensor) => Some((Cow::Borrowed(tensor.shape()), tensor.dtype())),
            Value::Device(tensor) => {
                let spec = tensor.spec();
                Some((Cow::Owned(spec.fixed_shape()?), spec.dtype))
            }
        }
    }

    /// Returns the tensor in host memory, copying it when it is on a device.
    ///
    /// # Errors
    /// When the tensor's computation or the copy fails.
    pub fn to_host(&self) -> Result<Tensor, EngineError> {
        match self {
            Value::Host(tensor) => Ok(tensor.clone()),
            Value::Device(tensor) => tensor.to_host(),
        }
    }

    /// Copies a tensor on a device to the host once more, although it is there already.
    ///
    /// # Errors
    /// As [`Value::to_host`].
    pub fn copy_again(&self) -> Result<(), EngineError> {
        match self {
            Value::Host(_) => Ok(()),
            Value::Device(tensor) => tensor.copy_again(),
        }
    }
}

/// A tensor that an engine keeps on its device.
pub trait DeviceTensor: Send + Sync + std::fmt::Debug {
    /// The shape and the element type.
    fn spec(&self) -> TensorSpec;

    /// Copies the tensor to host memory.
    ///
    /// # Errors
    /// When the tensor's computation or the copy fails.
    fn to_host(&self) -> Result<Tensor, EngineError>;

    /// Copies the tensor to host memory once more. An engine that keeps the copy implements this.
    ///
    /// # Errors
    /// As [`DeviceTensor::to_host`].
    fn copy_again(&self) -> Result<(), EngineError> {
        self.to_host().map(drop)
    }

    /// Returns `self` for downcasting, so that a session recognizes its own tensors as inputs.
    fn as_any(&self) -> &dyn Any;
}

/// Returns the number of rows of a batch: the outermost dimension of its first input, or 1 without one.
pub(crate) fn row_count(inputs: &[Value]) -> usize {
    let shape = inputs.first().and_then(Value::shape_and_dtype);
    shape.and_then(|(shape, _)| shape.first().copied()).unwrap_or(1)
}

/// Checks inputs against the model's, including that every dimension of the same name has the same size. Returns the
/// sizes of the named dimensions.
///
/// # Errors
/// [`EngineError::InputCount`] or [`EngineError::Input`].
pub fn check_inputs<'a>(expected: &'a [ValueInfo], given: &[Value]) -> Result<NamedSizes<'a>, EngineError> {
    if expected.len() != given.len() {
        return Err(EngineError::InputCount { expected: expected.len(), given: given.len() });
    }
    let mut sizes = NamedSizes::default();
    for (info, value) in expected.iter().zip(given) {
        let mismatch =
            || EngineError::Input { name: info.name.clone(), expected: info.spec.clone(), given: value.spec() };
        let (shape, dtype) = value.shape_and_dtype().ok_or_else(mismatch)?;
        if !info.spec.admits(&shape, dtype) || sizes.bind(&info.spec, &shape).is_err() {
            return Err(mismatch());
        }
    }
    Ok(sizes)
}
