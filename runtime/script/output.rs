//! What a forward function gives back: one tensor, several in order, or several by name.

use indexmap::IndexMap;
use rhai::{Array, Dynamic, Map};

use crate::engine::Value;
use crate::tensor::Tensor as HostTensor;

use super::packages::tensor::Tensor;

/// The output of one step.
#[derive(Clone, Debug)]
pub enum Output<T> {
    /// One tensor.
    One(T),
    /// Several, in order.
    Many(Vec<T>),
    /// Several, by name.
    Named(IndexMap<String, T>),
}

impl<T> Output<T> {
    /// Every tensor with its name (`0`, `1`, ... where it has none), in order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (String, &T)> + '_> {
        match self {
            Output::One(one) => Box::new(std::iter::once(("0".to_owned(), one))),
            Output::Many(many) => Box::new(many.iter().enumerate().map(|(index, t)| (index.to_string(), t))),
            Output::Named(named) => Box::new(named.iter().map(|(name, t)| (name.clone(), t))),
        }
    }

    /// The same with every tensor changed, until one fails.
    ///
    /// # Errors
    /// The first error of `change`.
    pub fn try_map<U, E>(self, mut change: impl FnMut(T) -> Result<U, E>) -> Result<Output<U>, E> {
        Ok(match self {
            Output::One(one) => Output::One(change(one)?),
            Output::Many(many) => Output::Many(many.into_iter().map(change).collect::<Result<_, _>>()?),
            Output::Named(named) => {
                let pairs = named.into_iter().map(|(name, t)| Ok((name, change(t)?)));
                Output::Named(pairs.collect::<Result<_, E>>()?)
            }
        })
    }
}

impl Output<Value> {
    /// From what a script returned.
    pub(super) fn from_script(returned: &Dynamic) -> Result<Self, String> {
        let tensor = |value: &Dynamic| {
            let tensor = value.read_lock::<Tensor>().map(|tensor| tensor.value().clone());
            tensor.ok_or_else(|| value.type_name().to_owned())
        };
        let none = || Err("it must return at least one tensor".to_owned());
        let wrong = |is: String| format!("it must return a tensor, an array of tensors or a map of tensors, not {is}");
        if let Some(array) = returned.read_lock::<Array>() {
            if array.is_empty() {
                return none();
            }
            return Ok(Output::Many(array.iter().map(tensor).collect::<Result<_, _>>().map_err(wrong)?));
        }
        if let Some(map) = returned.read_lock::<Map>() {
            if map.is_empty() {
                return none();
            }
            let pairs = map.iter().map(|(name, value)| Ok((name.to_string(), tensor(value)?)));
            return Ok(Output::Named(pairs.collect::<Result<_, _>>().map_err(wrong)?));
        }
        tensor(returned).map(Output::One).map_err(wrong)
    }
}

impl Output<HostTensor> {
    /// As an evaluator sees it: in the form in which the forward function gave it.
    pub(super) fn to_script(&self) -> Dynamic {
        let lent = |tensor: &HostTensor| Dynamic::from(Tensor::lent(Value::Host(tensor.clone())));
        match self {
            Output::One(one) => lent(one),
            Output::Many(many) => Dynamic::from(many.iter().map(lent).collect::<Array>()),
            Output::Named(named) => {
                named.iter().map(|(name, tensor)| (name.into(), lent(tensor))).collect::<Map>().into()
            }
        }
    }
}
