//! A loaded graph and its runs.

use std::collections::HashMap;

use super::ExecError;
use super::evaluate::{evaluate, shape_of};
use super::load::{Plan, Slot, Step, failure, stays_on_host};
use super::op::Op;
use super::operands::{Operands, Value};
use super::ops::TensorOps;
use super::reference::{Array, ReferenceOps};
use crate::{DType, Dim, Graph, Tensor, TensorSpec, ValueInfo};

/// A graph loaded into a tensor library: operators resolved, weights converted, constants computed, once.
pub struct Executor<O: TensorOps> {
    ops: O,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    input_slots: Vec<Slot>,
    output_slots: Vec<Slot>,
    constants: Vec<Option<Value<O::Tensor>>>,
    steps: Vec<Step>,
    /// The slots that nothing reads after each step.
    last_used: Vec<Vec<Slot>>,
}

impl<O: TensorOps> Executor<O> {
    /// Loads a graph.
    ///
    /// # Errors
    /// When an operator or element type is lacking, an attribute or weight is bad, or a value is never made.
    pub fn load(graph: &Graph, ops: O) -> Result<Self, ExecError> {
        check_types(graph, &ops)?;
        let mut plan = Plan::new(graph)?;
        if ops.fuses() {
            plan.fuse();
        }
        let mut executor = Executor {
            inputs: graph.inputs.clone(),
            outputs: graph.outputs.clone(),
            input_slots: plan.inputs.clone(),
            output_slots: plan.outputs.clone(),
            constants: constants(&mut plan, &ops)?,
            steps: Vec::new(),
            last_used: Vec::new(),
            ops,
        };
        for step in plan.steps {
            executor.add(step)?;
        }
        executor.drop_unused();
        Ok(executor)
    }

    /// What a run takes, in order.
    pub fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    /// What a run gives, in order.
    pub fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    /// The tensor library.
    pub fn ops(&self) -> &O {
        &self.ops
    }

    /// Runs the graph on tensors of the library, in the order of [`Executor::inputs`].
    ///
    /// # Errors
    /// When an input does not fit the graph (the input is named) or an operator fails (the node is named).
    pub fn run(&self, inputs: Vec<O::Tensor>) -> Result<Vec<O::Tensor>, ExecError> {
        self.run_watched(inputs, &mut |_| ())
    }

    /// Runs the graph on host tensors and brings the outputs back, in the types that the graph declares.
    ///
    /// # Errors
    /// As [`Executor::run`].
    pub fn run_host(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, ExecError> {
        let name = |i: usize| self.inputs.get(i).map_or("?", |input| input.name.as_str());
        let uploaded = inputs
            .iter()
            .enumerate()
            .map(|(i, input)| self.ops.upload(input).map_err(|reason| failure(name(i), "input", reason)))
            .collect::<Result<_, _>>()?;
        self.run(uploaded)?.iter().zip(0..).map(|(output, i)| self.download(i, output)).collect()
    }

    /// Output `i` of a run on the host, in the type that the graph declares.
    ///
    /// # Errors
    /// When the library fails to hand it over.
    pub fn download(&self, i: usize, output: &O::Tensor) -> Result<Tensor, ExecError> {
        let declared = &self.outputs[i];
        self.ops.download(output, declared.spec.dtype).map_err(|reason| failure(&declared.name, "output", reason))
    }

    /// Runs the graph; `watch` learns after each step how many values are alive.
    pub(super) fn run_watched(
        &self,
        inputs: Vec<O::Tensor>,
        watch: &mut dyn FnMut(usize),
    ) -> Result<Vec<O::Tensor>, ExecError> {
        self.check_inputs(&inputs)?;
        let mut values: Vec<Option<Value<O::Tensor>>> = vec![None; self.constants.len()];
        for (slot, input) in self.input_slots.iter().zip(inputs) {
            values[*slot] = Some(Value::Library(input));
        }
        for (step, last_used) in self.steps.iter().zip(&self.last_used) {
            let made = self.apply(step, &values)?;
            for (slot, value) in step.outputs.iter().zip(made) {
                values[*slot] = Some(value);
            }
            for slot in last_used {
                values[*slot] = None;
            }
            watch(values.iter().flatten().count());
        }
        self.output_slots
            .iter()
            .zip(&self.outputs)
            .map(|(slot, info)| {
                let given = Operands { ops: &self.ops, values: vec![self.value(*slot, &values)] };
                given.tensor(0).map_err(|reason| failure(&info.name, "output", reason))
            })
            .collect()
    }

    fn value(&self, slot: Slot, values: &[Option<Value<O::Tensor>>]) -> Option<Value<O::Tensor>> {
        values[slot].as_ref().or(self.constants[slot].as_ref()).cloned()
    }

    /// Runs one step: on the host when everything it reads is there, else in the library.
    fn apply(&self, step: &Step, values: &[Option<Value<O::Tensor>>]) -> Result<Vec<Value<O::Tensor>>, ExecError> {
        let read = |slot: &Option<Slot>| slot.and_then(|slot| self.value(slot, values));
        let given = Operands { ops: &self.ops, values: step.inputs.iter().map(read).collect() };
        let made = if let Op::Shape { start, end } = step.op {
            given.shape(0).map(|shape| vec![Value::Host(shape_of(&shape, start, end))])
        } else if let Some(host) = on_host(&given.values) {
            let given = Operands { ops: &ReferenceOps, values: host };
            evaluate(&step.op, &given).map(|made| made.into_iter().map(Value::Host).collect())
        } else {
            evaluate(&step.op, &given).map(|made| made.into_iter().map(Value::Library).collect())
        };
        made.map_err(|reason| failure(&step.name, &step.op_name, reason))
    }

    /// Keeps a step, or its result when that depends on constants only.
    fn add(&mut self, step: Step) -> Result<(), ExecError> {
        let constant = |slot: &Slot| self.constants[*slot].is_some();
        if !step.inputs.iter().flatten().all(constant) {
            self.steps.push(step);
            return Ok(());
        }
        let nothing = vec![None; self.constants.len()];
        for (slot, value) in step.outputs.iter().zip(self.apply(&step, &nothing)?) {
            self.constants[*slot] = Some(value);
        }
        Ok(())
    }

    /// Frees the constants that no step reads any more, and notes after which step each value is free.
    fn drop_unused(&mut self) {
        let mut last: HashMap<Slot, usize> = HashMap::new();
        for (i, step) in self.steps.iter().enumerate() {
            last.extend(step.inputs.iter().flatten().chain(&step.outputs).map(|slot| (*slot, i)));
        }
        for (slot, constant) in self.constants.iter_mut().enumerate() {
            if !last.contains_key(&slot) && !self.output_slots.contains(&slot) {
                *constant = None;
            }
        }
        self.last_used = vec![Vec::new(); self.steps.len()];
        for (slot, step) in last {
            if !self.output_slots.contains(&slot) {
                self.last_used[step].push(slot);
            }
        }
    }

    fn check_inputs(&self, given: &[O::Tensor]) -> Result<(), ExecError> {
        if given.len() != self.inputs.len() {
            let expected = self.inputs.iter().map(|input| input.name.clone()).collect();
            return Err(ExecError::InputCount { expected, given: given.len() });
        }
        let mut bound: HashMap<&str, usize> = HashMap::new();
        for (input, tensor) in self.inputs.iter().zip(given) {
            let (shape, mut dtype) = (self.ops.shape(tensor), self.ops.dtype(tensor));
            if (input.spec.dtype, dtype) == (DType::Bool, DType::U8) {
                dtype = DType::Bool;
            }
            if !input.spec.admits(&shape, dtype) {
                let given = TensorSpec::new(shape, dtype);
                return Err(ExecError::Input { name: input.name.clone(), expected: input.spec.clone(), given });
            }
            for (dim, size) in input.spec.dims.iter().zip(shape) {
                let Dim::Named(name) = dim else { continue };
                let bound = *bound.entry(name).or_insert(size);
                if bound != size {
                    let (name, dim) = (input.name.clone(), name.clone());
                    return Err(ExecError::Dimension { name, dim, bound, given: size });
                }
            }
        }
        Ok(())
    }
}

fn check_types<O: TensorOps>(graph: &Graph, ops: &O) -> Result<(), ExecError> {
    let inputs = graph.inputs.iter().map(|input| (&input.name, &input.spec));
    let weights = graph.weights.iter().map(|(name, weight)| (name, &weight.spec));
    for (value, spec) in inputs.chain(weights).chain(&graph.values) {
        if !ops.dtypes().contains(&spec.dtype) {
            return Err(ExecError::DType { ops: ops.name(), value: value.clone(), dtype: spec.dtype });
        }
    }
    Ok(())
}

/// The constants that are read, by slot; their host tensors are dropped one by one.
fn constants<O: TensorOps>(plan: &mut Plan, ops: &O) -> Result<Vec<Option<Value<O::Tensor>>>, ExecError> {
    let uses = plan.uses();
    let load = |slot: Slot| {
        let Some(tensor) = plan.constants.remove(&slot).filter(|_| uses[slot] > 0) else { return Ok(None) };
        if stays_on_host(&tensor) {
            return Ok(Some(Value::Host(Array::from_tensor(&tensor))));
        }
        ops.upload(&tensor).map(Value::Library).map(Some).map_err(|reason| failure("weights", "load", reason))
    };
    (0..plan.specs.len()).map(load).collect()
}

/// The values as the reference's, when all are on the host.
fn on_host<T>(values: &[Option<Value<T>>]) -> Option<Vec<Option<Value<Array>>>> {
    let host = |value: &Option<Value<T>>| match value {
        None => Some(None),
        Some(Value::Host(array)) => Some(Some(Value::Library(array.clone()))),
        Some(Value::Library(_)) => None,
    };
    values.iter().map(host).collect()
}
