//! The tensor type of scripts: in host or device memory, and counted against the script's memory.

use std::sync::Arc;

use crate::budget::Budget;
use crate::sandbox::Fallible;
use flagperf_core::tensor::{Tensor as HostTensor, byte_count};
use flagperf_engine::{EngineError, Value};

/// A tensor of a script, in host or device memory. Clones share the elements.
#[derive(Clone)]
pub(crate) struct Tensor(Arc<TensorStorage>);

/// The value that clones of a [`Tensor`] share, and its bytes in the script's budget; the drop subtracts these bytes.
struct TensorStorage {
    value: Option<Value>,
    counted: Option<(Arc<Budget>, i64)>,
}

impl Drop for TensorStorage {
    fn drop(&mut self) {
        if let Some((budget, bytes)) = &self.counted {
            budget.count_tensor(-bytes);
            Budget::uncounted(|| drop(self.value.take()));
        }
    }
}

impl Tensor {
    /// Wraps a tensor of the host, whose memory does not count against the script.
    pub(crate) fn uncounted(value: Value) -> Self {
        Tensor(Arc::new(TensorStorage { value: Some(value), counted: None }))
    }

    /// Wraps a tensor that was created for the script and counts its bytes in `budget`.
    pub(crate) fn counted(value: Value, budget: &Arc<Budget>) -> Self {
        let spec = value.spec();
        let bytes = spec.fixed_shape().and_then(|shape| byte_count(&shape, spec.dtype)).unwrap_or(0) as i64;
        budget.count_tensor(bytes);
        Tensor(Arc::new(TensorStorage { value: Some(value), counted: Some((budget.clone(), bytes)) }))
    }

    pub(crate) fn value(&self) -> &Value {
        self.0.value.as_ref().expect("the value is taken out only when the last clone is dropped")
    }

    pub(in crate::packages) fn elements(&self) -> Fallible<usize> {
        Ok(self.shape()?.iter().product())
    }

    fn shape(&self) -> Fallible<Vec<usize>> {
        let spec = self.value().spec();
        spec.fixed_shape().ok_or_else(|| format!("the shape of `{spec}` is not fixed").into())
    }

    /// Returns the tensor in host memory. Waiting for the device does not count against the script's time.
    pub(in crate::packages) fn to_host(&self, budget: &Budget) -> Fallible<HostTensor> {
        match self.value() {
            Value::Host(tensor) => Ok(tensor.clone()),
            device => {
                budget.check_request(self.elements()? as u64 * device.spec().dtype.size() as u64)?;
                let copied = budget.paused(|| device.to_host()).map_err(|error: EngineError| error.to_string())?;
                // A copy in the script's own memory, which the allocator counts when it is allocated and freed.
                let counted = HostTensor::from_bytes(copied.shape(), copied.dtype(), copied.bytes());
                Budget::uncounted(|| drop(copied));
                counted.map_err(|error| error.to_string().into())
            }
        }
    }
}
