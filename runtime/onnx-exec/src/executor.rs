//! The executor: a loaded graph and its runs.

use std::borrow::Cow;
use std::collections::HashMap;

use super::evaluate::{check_dropout, element_count, evaluate, shape_of};
use super::execution_plan::{ExecutionPlan, Slot, Step, node_error, stays_on_host};
use super::op::Op;
use super::operands::{Operands, Value};
use super::ops::TensorOps;
use super::reference::{Array, ReferenceOps};
use super::resolve::has_kernel;
use super::{ExecError, OpError};
use flagperf_onnx::{DType, Graph, NamedSizes, Node, Operator, Tensor, TensorSpec, ValueInfo};
use flagperf_onnx::{find_operator, lower, upgrade};

/// A graph loaded into a tensor library. Operators are resolved, weights converted and constants computed once, on
/// load.
pub struct Executor<O: TensorOps> {
    ops: O,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    input_slots: Vec<Slot>,
    output_slots: Vec<Slot>,
    constants: Vec<Option<Value<O::Tensor>>>,
    steps: Vec<Step>,
    /// For each step, the slots that are not read after it.
    freed_after: Vec<Vec<Slot>>,
}

/// The newest version of the standard operator set that the executor knows.
const OPSET_MAX: i64 = 28;

impl<O: TensorOps> Executor<O> {
    /// Loads a graph.
    ///
    /// # Errors
    /// When an operator, an operator set or an element type is not supported, an attribute or weight is invalid, or a
    /// value is not defined.
    pub fn load(graph: &Graph, ops: O) -> Result<Self, ExecError> {
        if graph.opset > OPSET_MAX {
            return Err(ExecError::OperatorSet { version: graph.opset, newest: OPSET_MAX });
        }
        let graph = &decomposed(graph)?;
        check_types(graph, &ops)?;
        let mut plan = ExecutionPlan::new(graph)?;
        if ops.supports_fusion() {
            plan.fuse();
        }
        let mut executor = Executor {
            inputs: graph.inputs.clone(),
            outputs: graph.outputs.clone(),
            input_slots: plan.inputs.clone(),
            output_slots: plan.outputs.clone(),
            constants: load_constants(&mut plan, &ops)?,
            steps: Vec::new(),
            freed_after: Vec::new(),
            ops,
        };
        for step in plan.steps {
            executor.add_or_fold_step(step)?;
        }
        executor.plan_lifetimes();
        Ok(executor)
    }

    /// Returns the graph's inputs, in order.
    pub fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    /// Returns the graph's outputs, in order.
    pub fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    /// Returns the tensor library.
    pub fn ops(&self) -> &O {
        &self.ops
    }

    /// Runs the graph on tensors of the library, in the order of [`Executor::inputs`].
    ///
    /// # Errors
    /// When an input does not match the graph's declaration or an operator fails. The error names the input or the
    /// node.
    pub fn run(&self, inputs: Vec<O::Tensor>) -> Result<Vec<O::Tensor>, ExecError> {
        self.run_observed(inputs, &mut |_| ())
    }

    /// Runs the graph on host tensors and downloads the outputs, in the types that the graph declares.
    ///
    /// # Errors
    /// As [`Executor::run`].
    pub fn run_host(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, ExecError> {
        let name = |i: usize| self.inputs.get(i).map_or("?", |input| input.name.as_str());
        let uploaded = inputs
            .iter()
            .enumerate()
            .map(|(i, input)| self.ops.upload(input).map_err(|reason| transfer_error("input", name(i), reason)))
            .collect::<Result<_, _>>()?;
        self.run(uploaded)?.iter().zip(0..).map(|(output, i)| self.download(i, output)).collect()
    }

    /// Copies output `i` of a run to the host, in the type that the graph declares.
    ///
    /// # Errors
    /// When the tensor library fails to copy it.
    pub fn download(&self, i: usize, output: &O::Tensor) -> Result<Tensor, ExecError> {
        let declared = &self.outputs[i];
        self.ops
            .download(output, declared.spec.dtype)
            .map_err(|reason| transfer_error("output", &declared.name, reason))
    }

    /// Runs the graph. After each step, `observe` is called with the number of live values.
    pub(super) fn run_observed(
        &self,
        inputs: Vec<O::Tensor>,
        observe: &mut dyn FnMut(usize),
    ) -> Result<Vec<O::Tensor>, ExecError> {
        self.check_inputs(&inputs)?;
        let mut values: Vec<Option<Value<O::Tensor>>> = vec![None; self.constants.len()];
        for (slot, input) in self.input_slots.iter().zip(inputs) {
            values[*slot] = Some(Value::Library(input));
        }
        for (step, freed_after) in self.steps.iter().zip(&self.freed_after) {
            let outputs = self.run_step(step, &values)?;
            for (slot, value) in step.outputs.iter().zip(outputs) {
                values[*slot] = Some(value);
            }
            for slot in freed_after {
                values[*slot] = None;
            }
            observe(values.iter().flatten().count());
        }
        self.output_slots
            .iter()
            .zip(&self.outputs)
            .map(|(slot, info)| {
                let operands = Operands { ops: &self.ops, values: vec![self.value(*slot, &values)] };
                let output = operands.tensor(0).and_then(|output| self.of_declared_type(output, info.spec.dtype));
                output.map_err(|reason| transfer_error("output", &info.name, reason))
            })
            .collect()
    }

    /// Returns an output, unless it was computed in another type than the graph declares.
    fn of_declared_type(&self, output: O::Tensor, declared: DType) -> Result<O::Tensor, OpError> {
        match (declared, self.ops.dtype(&output)) {
            (DType::Bool, DType::U8) => Ok(output),
            (declared, computed) if declared == computed => Ok(output),
            (declared, computed) => {
                Err(OpError::invalid_operands(format!("it is declared as `{declared}`, but computed as `{computed}`")))
            }
        }
    }

    fn value(&self, slot: Slot, values: &[Option<Value<O::Tensor>>]) -> Option<Value<O::Tensor>> {
        values[slot].as_ref().or(self.constants[slot].as_ref()).cloned()
    }

    /// Runs one step: on the host if all its inputs are there, else in the tensor library.
    fn run_step(&self, step: &Step, values: &[Option<Value<O::Tensor>>]) -> Result<Vec<Value<O::Tensor>>, ExecError> {
        let read = |slot: &Option<Slot>| slot.and_then(|slot| self.value(slot, values));
        let operands = Operands { ops: &self.ops, values: step.inputs.iter().map(read).collect() };
        let outputs = if let Op::Shape { start, end } = step.op {
            operands.shape(0).map(|shape| vec![Value::Host(shape_of(&shape, start, end))])
        } else if let Op::Size = step.op {
            operands.shape(0).map(|shape| vec![Value::Host(element_count(&shape))])
        } else if let Some(host) = host_operands(&operands.values) {
            let operands = Operands { ops: &ReferenceOps, values: host };
            evaluate(&step.op, &operands).map(|outputs| outputs.into_iter().map(Value::Host).collect())
        } else {
            evaluate(&step.op, &operands).map(|outputs| outputs.into_iter().map(Value::Library).collect())
        };
        outputs.map_err(|reason| node_error(&step.name, &step.op_name, reason))
    }

    /// Adds a step, or only its result if that depends on constants alone.
    fn add_or_fold_step(&mut self, step: Step) -> Result<(), ExecError> {
        if let Op::Dropout { .. } = step.op {
            let read = |slot: &Option<Slot>| slot.and_then(|slot| self.constants[slot].clone());
            let operands = Operands { ops: &self.ops, values: step.inputs.iter().map(read).collect() };
            check_dropout(&operands).map_err(|reason| node_error(&step.name, &step.op_name, reason))?;
        }
        let constant = |slot: &Slot| self.constants[*slot].is_some();
        if !step.inputs.iter().flatten().all(constant) {
            self.steps.push(step);
            return Ok(());
        }
        let nothing = vec![None; self.constants.len()];
        for (slot, value) in step.outputs.iter().zip(self.run_step(&step, &nothing)?) {
            self.constants[*slot] = Some(value);
        }
        Ok(())
    }

    /// Frees the constants that no step reads, and records after which step each value can be freed.
    fn plan_lifetimes(&mut self) {
        let mut last: HashMap<Slot, usize> = HashMap::new();
        for (i, step) in self.steps.iter().enumerate() {
            last.extend(step.inputs.iter().flatten().chain(&step.outputs).map(|slot| (*slot, i)));
        }
        for (slot, constant) in self.constants.iter_mut().enumerate() {
            if !last.contains_key(&slot) && !self.output_slots.contains(&slot) {
                *constant = None;
            }
        }
        self.freed_after = vec![Vec::new(); self.steps.len()];
        for (slot, step) in last {
            if !self.output_slots.contains(&slot) {
                self.freed_after[step].push(slot);
            }
        }
    }

    fn check_inputs(&self, inputs: &[O::Tensor]) -> Result<(), ExecError> {
        if inputs.len() != self.inputs.len() {
            let expected = self.inputs.iter().map(|input| input.name.clone()).collect();
            return Err(ExecError::InputCount { expected, actual: inputs.len() });
        }
        let mut bound = NamedSizes::default();
        for (input, tensor) in self.inputs.iter().zip(inputs) {
            let (shape, mut dtype) = (self.ops.shape(tensor), self.ops.dtype(tensor));
            if (input.spec.dtype, dtype) == (DType::Bool, DType::U8) {
                dtype = DType::Bool;
            }
            if !input.spec.admits(&shape, dtype) {
                let actual = TensorSpec::new(shape, dtype);
                return Err(ExecError::InputMismatch {
                    name: input.name.clone(),
                    expected: input.spec.clone(),
                    actual,
                });
            }
            bound.bind(&input.spec, &shape).map_err(|conflict| ExecError::InconsistentDimension {
                name: input.name.clone(),
                dim: conflict.name.to_owned(),
                bound: conflict.bound,
                actual: conflict.actual,
            })?;
        }
        Ok(())
    }
}

/// Returns the graph with the operators for which the executor has no implementation decomposed, as far as they can be.
fn decomposed(graph: &Graph) -> Result<Cow<'_, Graph>, ExecError> {
    let lacks = |node: &&Node| {
        let is_composite = find_operator(&node.op).is_some_and(Operator::is_composite);
        node.domain.is_empty() && is_composite && !has_kernel(&node.op)
    };
    let lacking: Vec<&str> = graph.nodes.iter().filter(lacks).map(|node| node.op.as_str()).collect();
    let is_old = graph.opset < flagperf_onnx::MODERN_OPSET;
    let modern = if is_old { Cow::Owned(upgrade(graph)?) } else { Cow::Borrowed(graph) };
    if lacking.is_empty() { Ok(modern) } else { Ok(Cow::Owned(lower(&modern, OPSET_MAX, &lacking)?)) }
}

fn check_types<O: TensorOps>(graph: &Graph, ops: &O) -> Result<(), ExecError> {
    let inputs = graph.inputs.iter().map(|input| (&input.name, &input.spec));
    let weights = graph.weights.iter().map(|(name, weight)| (name, &weight.spec));
    for (value, spec) in inputs.chain(weights).chain(&graph.values) {
        if !ops.dtypes().contains(&spec.dtype) {
            return Err(ExecError::UnsupportedDType { ops: ops.name(), value: value.clone(), dtype: spec.dtype });
        }
    }
    Ok(())
}

fn transfer_error(kind: &'static str, name: &str, reason: OpError) -> ExecError {
    ExecError::Transfer { kind, name: name.to_owned(), reason }
}

/// Loads the constants that are read, by slot. Their host tensors are dropped one by one.
fn load_constants<O: TensorOps>(plan: &mut ExecutionPlan, ops: &O) -> Result<Vec<Option<Value<O::Tensor>>>, ExecError> {
    let uses = plan.use_counts();
    let load = |slot: Slot| {
        let Some(tensor) = plan.constants.remove(&slot).filter(|_| uses[slot] > 0) else { return Ok(None) };
        if stays_on_host(&tensor) {
            return Ok(Some(Value::Host(Array::from_tensor(&tensor))));
        }
        let failed = |reason| match plan.weights.get(&slot) {
            Some(name) => transfer_error("weight", name, reason),
            None => ExecError::UploadWeight(reason),
        };
        ops.upload(&tensor).map(Value::Library).map(Some).map_err(failed)
    };
    (0..plan.specs.len()).map(load).collect()
}

/// Returns the values as operands of the reference library, if all of them are on the host.
fn host_operands<T>(values: &[Option<Value<T>>]) -> Option<Vec<Option<Value<Array>>>> {
    let host = |value: &Option<Value<T>>| match value {
        None => Some(None),
        Some(Value::Host(array)) => Some(Some(Value::Library(array.clone()))),
        Some(Value::Library(_)) => None,
    };
    values.iter().map(host).collect()
}
