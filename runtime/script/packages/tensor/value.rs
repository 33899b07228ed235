//! A tensor as a script holds it: counted against the script's memory, on the host or on a device.

use std::sync::Arc;

use crate::engine::{EngineError, Value};
use crate::script::budget::Budget;
use crate::script::sandbox::Fallible;
use crate::tensor::{Tensor as HostTensor, byte_count};

/// A tensor of a script's, on the host or on a device; copies share it.
#[derive(Clone)]
pub(crate) struct Tensor(Arc<Held>);

/// The tensor, counted against a script's memory for as long as the script holds it.
struct Held {
    value: Option<Value>,
    counted: Option<(Arc<Budget>, i64)>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((budget, bytes)) = &self.counted {
            budget.count_tensor(-bytes);
            Budget::uncounted(|| drop(self.value.take()));
        }
    }
}

impl Tensor {
    /// A tensor of the host's: the script holds none of its memory.
    pub(crate) fn lent(value: Value) -> Self {
        Tensor(Arc::new(Held { value: Some(value), counted: None }))
    }

    /// A tensor that was made for the script.
    pub(crate) fn counted(value: Value, budget: &Arc<Budget>) -> Self {
        let spec = value.spec();
        let bytes = spec.fixed_shape().and_then(|shape| byte_count(&shape, spec.dtype)).unwrap_or(0) as i64;
        budget.count_tensor(bytes);
        Tensor(Arc::new(Held { value: Some(value), counted: Some((budget.clone(), bytes)) }))
    }

    pub(crate) fn value(&self) -> &Value {
        self.0.value.as_ref().expect("the value is taken out only when the last holder drops it")
    }

    pub(in crate::script::packages) fn elements(&self) -> Fallible<usize> {
        Ok(self.shape()?.iter().product())
    }

    fn shape(&self) -> Fallible<Vec<usize>> {
        let spec = self.value().spec();
        spec.fixed_shape().ok_or_else(|| format!("the shape of `{spec}` is not known").into())
    }

    /// The tensor in host memory; waiting for a device is not the script's time.
    pub(in crate::script::packages) fn to_host(&self, budget: &Budget) -> Fallible<HostTensor> {
        match self.value() {
            Value::Host(tensor) => Ok(tensor.clone()),
            device => {
                budget.ask(self.elements()? as u64 * device.spec().dtype.size() as u64)?;
                let copied = budget.aside(|| device.to_host()).map_err(|error: EngineError| error.to_string())?;
                // In memory of the script's own, which is counted when it is taken and when it is given back.
                let own = HostTensor::from_bytes(copied.shape(), copied.dtype(), copied.bytes());
                Budget::uncounted(|| drop(copied));
                own.map_err(|error| error.to_string().into())
            }
        }
    }
}
