//! States: outputs of one run that are inputs of the next, such as the keys and values of an attention.
//!
//! A language model is one graph for prompts and for single tokens, so that every engine and every file holds its
//! weights once. The cache of keys and values has size 0 before the first run.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use flagperf_onnx::ValueInfo;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, NativeCallContext};

use crate::budget::Budget;
use crate::packages::tensor::Tensor;
use crate::sandbox::{Fallible, lock, script_state};
use flagperf_core::tensor::{Dim, NamedSizes, Tensor as HostTensor, byte_count};
use flagperf_engine::{HeapMemory, Value};

/// The states of one sequence of runs. They stay where the engine computed them, and count as its memory.
#[derive(Clone)]
pub(crate) struct States(Arc<StateValues>);

struct StateValues {
    /// How the names of outputs that are states begin.
    output_prefix: String,
    /// How the names of inputs that are states begin.
    input_prefix: String,
    /// The states by the rest of their name.
    values: Mutex<IndexMap<String, Value, RandomState>>,
    /// Receives the bytes of the states when they are dropped, if they are more than ever before.
    bytes_max: Arc<AtomicU64>,
}

impl StateValues {
    /// Returns the bytes of all states.
    fn bytes(&self) -> u64 {
        let bytes = |value: &Value| {
            let spec = value.spec();
            spec.fixed_shape().and_then(|shape| byte_count(&shape, spec.dtype)).unwrap_or(0) as u64
        };
        lock(&self.values).values().map(bytes).sum()
    }

    fn clear(&self) {
        self.bytes_max.fetch_max(self.bytes(), Ordering::Relaxed);
        let values = std::mem::take(&mut *lock(&self.values));
        Budget::uncounted(|| drop(values));
    }
}

impl Drop for StateValues {
    fn drop(&mut self) {
        self.clear();
    }
}

impl States {
    fn new(output_prefix: &str, input_prefix: &str, bytes_max: Arc<AtomicU64>) -> Self {
        States(Arc::new(StateValues {
            output_prefix: output_prefix.to_owned(),
            input_prefix: input_prefix.to_owned(),
            values: Mutex::default(),
            bytes_max,
        }))
    }

    /// Returns whether the input `name` is a state.
    pub(super) fn serves(&self, name: &str) -> bool {
        name.starts_with(&self.0.input_prefix)
    }

    /// Returns the state for the input `name`, if a run has produced it.
    pub(super) fn value(&self, name: &str) -> Option<Value> {
        lock(&self.0.values).get(name.strip_prefix(&self.0.input_prefix)?).cloned()
    }

    /// Keeps those of the outputs of a run that are states, and returns the others.
    pub(super) fn keep<'n>(&self, outputs: impl Iterator<Item = (&'n str, Value)>) -> Vec<(&'n str, Value)> {
        let mut values = lock(&self.0.values);
        let keep = |(name, output): (&'n str, Value)| {
            let Some(state) = name.strip_prefix(&self.0.output_prefix) else { return Some((name, output)) };
            match values.get_mut(state) {
                Some(value) => *value = output,
                None => drop(values.insert(state.to_owned(), output)),
            }
            None
        };
        outputs.filter_map(keep).collect()
    }

    /// Replaces missing inputs by zeros. A dimension whose size neither the model nor another input determines has size
    /// 0: an attention begins without keys.
    pub(super) fn fill_missing(infos: &[ValueInfo], given: Vec<Option<Value>>) -> Fallible<Vec<Value>> {
        let mut sizes = NamedSizes::default();
        for (info, value) in infos.iter().zip(&given) {
            let shape = value.as_ref().and_then(|value| value.spec().fixed_shape());
            // A conflict is reported by the engine, which checks its inputs.
            shape.into_iter().for_each(|shape| drop(sizes.bind(&info.spec, &shape)));
        }
        let zeros = |info: &ValueInfo| {
            let shape: Vec<usize> = info.spec.dims.iter().map(|dim: &Dim| sizes.size(dim).unwrap_or(0)).collect();
            let failed = || format!("the state `{}` of `{}` cannot be allocated", info.name, info.spec);
            let bytes = byte_count(&shape, info.spec.dtype).ok_or_else(failed)?;
            let memory = HeapMemory::zeroed(bytes).map_err(|_| failed())?;
            let tensor = HostTensor::from_memory(shape, info.spec.dtype, Arc::new(memory), 0).map_err(|_| failed());
            Ok(Value::Host(tensor?))
        };
        infos.iter().zip(given).map(|(info, value)| value.map_or_else(|| zeros(info), Ok)).collect()
    }
}

#[export_module]
pub(super) mod functions {
    /// Creates states for `model.run(inputs, states)`. Each run keeps the outputs whose names begin with
    /// `output_prefix`, and they serve as the inputs of the next run that have the same name with `input_prefix` in its
    /// place, without a copy. Before the first run, a state is zero; its dimensions whose size neither the model nor
    /// another input determines have size 0.
    ///
    /// ```rhai
    /// let cache = session::states("present.", "past.");
    /// ```
    #[rhai_fn(return_raw)]
    pub fn states(context: NativeCallContext, output_prefix: &str, input_prefix: &str) -> Fallible<States> {
        let script = script_state(&context)?;
        script.budget.check()?;
        if output_prefix.is_empty() || input_prefix.is_empty() {
            return Err("the prefixes of states must not be empty: every output would be a state".into());
        }
        Ok(States::new(output_prefix, input_prefix, script.state_bytes_max.clone()))
    }

    /// The bytes of all states.
    ///
    /// ```rhai
    /// let bytes = session::states("present.", "past.").bytes;
    /// ```
    #[rhai_fn(get = "bytes", pure)]
    pub fn bytes(states: &mut States) -> i64 {
        i64::try_from(states.0.bytes()).unwrap_or(i64::MAX)
    }

    /// The names of the states without their prefixes, in the order in which the model first returned them.
    ///
    /// ```rhai
    /// let none = session::states("present.", "past.").names;
    /// ```
    #[rhai_fn(get = "names", pure)]
    pub fn names(states: &mut States) -> Array {
        lock(&states.0.values).keys().map(|name| Dynamic::from(ImmutableString::from(name.as_str()))).collect()
    }

    /// Returns the state `name` as a tensor, or `()` if no run has produced it. The tensor shares the engine's memory.
    ///
    /// ```rhai
    /// let missing = session::states("present.", "past.").get("0.key");
    /// ```
    #[rhai_fn(global, pure)]
    pub fn get(states: &mut States, name: &str) -> Dynamic {
        let value = lock(&states.0.values).get(name).cloned();
        value.map_or(Dynamic::UNIT, |value| Dynamic::from(Tensor::uncounted(value)))
    }

    /// Sets the state `name`, for example to continue with some of its rows.
    ///
    /// ```rhai
    /// session::states("present.", "past.").set("0.key", tensor::zeros("1,2,3,f32"));
    /// ```
    #[rhai_fn(global, return_raw, volatile)]
    pub fn set(context: NativeCallContext, states: &mut States, name: &str, tensor: Tensor) -> Fallible<()> {
        script_state(&context)?.budget.check()?;
        let value = tensor.value().clone();
        Budget::uncounted(|| lock(&states.0.values).insert(name.to_owned(), value));
        Ok(())
    }

    /// Forgets all states: the next run begins with zeros.
    ///
    /// ```rhai
    /// session::states("present.", "past.").clear();
    /// ```
    #[rhai_fn(global, volatile)]
    pub fn clear(states: &mut States) {
        states.0.clear();
    }
}
