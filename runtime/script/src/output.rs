//! The return value of a forward function: one tensor, several tensors in order, or several tensors by name.

use indexmap::IndexMap;
use rhai::{Array, Dynamic, Map};

use flagperf_core::tensor::Tensor as HostTensor;
use flagperf_engine::Value;

use super::names::script_type;
use super::packages::tensor::Tensor;

/// The output of one step.
#[derive(Clone, Debug)]
pub enum StepOutput<T> {
    One(T),
    /// Several tensors, in order.
    Many(Vec<T>),
    /// Several tensors, by name.
    Named(IndexMap<String, T>),
}

impl<T> StepOutput<T> {
    /// Returns every tensor with its name, in order. Tensors without a name are called `0`, `1`, and so on.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (String, &T)> + '_> {
        match self {
            StepOutput::One(one) => Box::new(std::iter::once(("0".to_owned(), one))),
            StepOutput::Many(many) => Box::new(many.iter().enumerate().map(|(index, t)| (index.to_string(), t))),
            StepOutput::Named(named) => Box::new(named.iter().map(|(name, t)| (name.clone(), t))),
        }
    }

    /// Applies `change` to every tensor and keeps the form of the output.
    ///
    /// # Errors
    /// Returns the first error of `change`.
    pub fn try_map<U, E>(self, mut change: impl FnMut(T) -> Result<U, E>) -> Result<StepOutput<U>, E> {
        Ok(match self {
            StepOutput::One(one) => StepOutput::One(change(one)?),
            StepOutput::Many(many) => StepOutput::Many(many.into_iter().map(change).collect::<Result<_, _>>()?),
            StepOutput::Named(named) => {
                let pairs = named.into_iter().map(|(name, t)| Ok((name, change(t)?)));
                StepOutput::Named(pairs.collect::<Result<_, E>>()?)
            }
        })
    }
}

impl StepOutput<Value> {
    /// Converts the return value of a script function. The error is the reason why it cannot be an output.
    pub(super) fn from_script(returned: &Dynamic) -> Result<Self, String> {
        let tensor = |value: &Dynamic| {
            let tensor = value.read_lock::<Tensor>().map(|tensor| tensor.value().clone());
            tensor.ok_or_else(|| script_type(value))
        };
        let none = || Err("the function must return at least one tensor".to_owned());
        let wrong = |actual: String| {
            format!("the function must return a tensor, an array of tensors or a map of tensors, not {actual}")
        };
        if let Some(array) = returned.read_lock::<Array>() {
            if array.is_empty() {
                return none();
            }
            return Ok(StepOutput::Many(array.iter().map(tensor).collect::<Result<_, _>>().map_err(wrong)?));
        }
        if let Some(map) = returned.read_lock::<Map>() {
            if map.is_empty() {
                return none();
            }
            let pairs = map.iter().map(|(name, value)| Ok((name.to_string(), tensor(value)?)));
            return Ok(StepOutput::Named(pairs.collect::<Result<_, _>>().map_err(wrong)?));
        }
        tensor(returned).map(StepOutput::One).map_err(wrong)
    }
}

impl StepOutput<HostTensor> {
    /// Converts the output for an evaluator, in the form in which the forward function returned it.
    pub(super) fn to_script(&self) -> Dynamic {
        let to_dynamic = |tensor: &HostTensor| Dynamic::from(Tensor::uncounted(Value::Host(tensor.clone())));
        match self {
            StepOutput::One(one) => to_dynamic(one),
            StepOutput::Many(many) => Dynamic::from(many.iter().map(to_dynamic).collect::<Array>()),
            StepOutput::Named(named) => {
                named.iter().map(|(name, tensor)| (name.into(), to_dynamic(tensor))).collect::<Map>().into()
            }
        }
    }
}
