//! A plan loaded into a tensor library, and its runs: the steps of a graph or of a subgraph.

use std::collections::HashMap;

use super::ExecError;
use super::control::Control;
use super::evaluate::{dropped_share, element_count, evaluate, shape_of};
use super::execution_plan::{ExecutionPlan, Slot, Step, node_error, stays_on_host};
use super::executor::transfer_error;
use super::op::Op;
use super::operands::{Operands, Value};
use super::ops::TensorOps;
use super::reference::{Array, ReferenceOps};
use flagperf_onnx::DType;

/// The value of a slot, if it has one.
pub(super) type SlotValue<O> = Option<Value<<O as TensorOps>::Tensor>>;

/// A loaded plan. Operators are resolved, weights converted and constants computed once, on load.
pub(super) struct Program<O: TensorOps> {
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    overwritten: Vec<usize>,
    captured: usize,
    constants: Vec<SlotValue<O>>,
    steps: Vec<LoadedStep<O>>,
    /// For each step, the slots that are not read after it.
    freed_after: Vec<Vec<Slot>>,
}

/// A node that a run has executed, or several that the library computes in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutedNode<'a> {
    /// The node's name.
    pub name: &'a str,
    /// The operator's name: `Conv`.
    pub op: &'a str,
}

/// What happens to a node during a run.
#[derive(Clone, Copy)]
pub enum NodeEvent<'a> {
    /// The node is executed next.
    Begins(ExecutedNode<'a>),
    /// The node was executed; the function counts the values that are kept.
    Ended(ExecutedNode<'a>, &'a dyn Fn() -> usize),
}

/// A step, and the subgraphs that it runs.
struct LoadedStep<O: TensorOps> {
    step: Step,
    bodies: Vec<Program<O>>,
}

impl<O: TensorOps> Program<O> {
    /// Loads a plan.
    ///
    /// # Errors
    /// When a constant cannot be uploaded or computed.
    pub fn load(mut plan: ExecutionPlan, ops: &O) -> Result<Self, ExecError> {
        if ops.supports_fusion() {
            plan.fuse();
            if ops.merges_products() {
                plan.merge_products();
            }
            plan.fuse_elementwise(&|operation| ops.compiles(operation));
        }
        Program::of_plan(plan, ops)
    }

    /// Loads a plan in which nothing more is fused.
    pub fn of_plan(mut plan: ExecutionPlan, ops: &O) -> Result<Self, ExecError> {
        let constants = load_constants(&mut plan, ops)?;
        let ExecutionPlan { inputs, outputs, overwritten, captured, .. } = plan;
        let (steps, freed_after) = (Vec::new(), Vec::new());
        let mut program = Program { inputs, outputs, overwritten, captured, constants, steps, freed_after };
        for mut step in plan.steps {
            if let Op::Custom(operator) = &step.op
                && !ops.has_custom(operator)
            {
                return Err(ExecError::UnknownOperator { node: step.name, op: operator.full_name() });
            }
            let bodies = std::mem::take(&mut step.bodies);
            let bodies = bodies.into_iter().map(|body| Program::load(body, ops)).collect::<Result<_, _>>()?;
            program.add_or_fold_step(LoadedStep { step, bodies }, ops)?;
        }
        program.plan_lifetimes();
        Ok(program)
    }

    /// Runs all steps on the values of the inputs. `observe` is called before and after each step.
    pub fn run(
        &self,
        ops: &O,
        inputs: Vec<SlotValue<O>>,
        observe: &mut dyn FnMut(NodeEvent<'_>),
    ) -> Result<Vec<SlotValue<O>>, ExecError> {
        let mut values: Vec<SlotValue<O>> = vec![None; self.constants.len()];
        for (slot, input) in self.inputs.iter().zip(inputs) {
            values[*slot] = input;
        }
        for (step, freed_after) in self.steps.iter().zip(&self.freed_after) {
            let node = ExecutedNode { name: &step.step.name, op: &step.step.op_name };
            observe(NodeEvent::Begins(node));
            let outputs = self.run_step(ops, step, &values)?;
            for (slot, value) in step.step.outputs.iter().zip(outputs) {
                values[*slot] = Some(value);
            }
            for slot in freed_after {
                values[*slot] = None;
            }
            observe(NodeEvent::Ended(node, &|| values.iter().flatten().count()));
        }
        Ok(self.outputs.iter().map(|slot| self.value(*slot, &values)).collect())
    }

    /// Returns how many of the last inputs are values of the graph around the subgraph.
    pub fn captured(&self) -> usize {
        self.captured
    }

    /// Returns the indices of the inputs that steps may overwrite.
    pub fn overwritten(&self) -> &[usize] {
        &self.overwritten
    }

    pub fn output_count(&self) -> usize {
        self.outputs.len()
    }

    fn value(&self, slot: Slot, values: &[SlotValue<O>]) -> SlotValue<O> {
        values[slot].as_ref().or(self.constants[slot].as_ref()).cloned()
    }

    /// Runs one step: on the host if all its inputs are there, else in the tensor library.
    fn run_step(
        &self,
        ops: &O,
        loaded: &LoadedStep<O>,
        values: &[SlotValue<O>],
    ) -> Result<Vec<Value<O::Tensor>>, ExecError> {
        let step = &loaded.step;
        let read = |slot: &Option<Slot>| slot.and_then(|slot| self.value(slot, values));
        let operands = Operands { ops, values: step.inputs.iter().map(read).collect() };
        if let Op::Control(control) = &step.op {
            return control.run(&loaded.bodies, &operands, &|reason| node_error(&step.name, &step.op_name, reason));
        }
        let outputs = if let Op::Shape { start, end } = step.op {
            operands.shape(0).map(|shape| vec![Value::Host(shape_of(&shape, start, end))])
        } else if let Op::Size = step.op {
            operands.shape(0).map(|shape| vec![Value::Host(element_count(&shape))])
        } else if let Some(host) = host_operands(&operands.values).filter(|_| !matches!(step.op, Op::Custom(_))) {
            let operands = Operands { ops: &ReferenceOps, values: host };
            evaluate(&step.op, &operands).map(|outputs| outputs.into_iter().map(Value::Host).collect())
        } else {
            evaluate(&step.op, &operands).map(|outputs| outputs.into_iter().map(Value::Library).collect())
        };
        outputs.map_err(|reason| node_error(&step.name, &step.op_name, reason))
    }

    /// Adds a step, or only its result if that depends on constants alone.
    fn add_or_fold_step(&mut self, loaded: LoadedStep<O>, ops: &O) -> Result<(), ExecError> {
        let step = &loaded.step;
        if let Op::Dropout { mask, is_seeded } = step.op {
            let read = |slot: &Option<Slot>| slot.and_then(|slot| self.constants[slot].clone());
            let operands = Operands { ops, values: step.inputs.iter().map(read).collect() };
            dropped_share(&operands, mask || is_seeded)
                .map_err(|reason| node_error(&step.name, &step.op_name, reason))?;
        }
        let constant = |slot: &Slot| self.constants[*slot].is_some();
        // How long a loop runs is not known: loading does not wait for it.
        let may_be_long = matches!(step.op, Op::Control(Control::Loop | Control::Scan(_)));
        // Weights in int8 stay so in memory: the numbers of a layer exist while it runs.
        let is_int8 = |slot: &Slot| match &self.constants[*slot] {
            Some(Value::Library(tensor)) => ops.dtype(tensor) == DType::I8,
            _ => false,
        };
        let widens = matches!(step.op, Op::Cast { .. }) && step.inputs.iter().flatten().any(is_int8);
        // All processes exchange in the same order, so that none does it before the others.
        let exchanges = matches!(step.op, Op::MeanOverProcesses { .. } | Op::Broadcast { .. });
        if may_be_long || widens || exchanges || !step.inputs.iter().flatten().all(constant) {
            self.steps.push(loaded);
            return Ok(());
        }
        let nothing = vec![None; self.constants.len()];
        let outputs = self.run_step(ops, &loaded, &nothing)?;
        for (slot, value) in step.outputs.iter().zip(outputs) {
            self.constants[*slot] = Some(value);
        }
        Ok(())
    }

    /// Frees the constants that no step reads, and records after which step each value can be freed.
    fn plan_lifetimes(&mut self) {
        let mut last: HashMap<Slot, usize> = HashMap::new();
        for (i, LoadedStep { step, .. }) in self.steps.iter().enumerate() {
            last.extend(step.inputs.iter().flatten().chain(&step.outputs).map(|slot| (*slot, i)));
        }
        for (slot, constant) in self.constants.iter_mut().enumerate() {
            if !last.contains_key(&slot) && !self.outputs.contains(&slot) {
                *constant = None;
            }
        }
        self.freed_after = vec![Vec::new(); self.steps.len()];
        for (slot, step) in last {
            if !self.outputs.contains(&slot) {
                self.freed_after[step].push(slot);
            }
        }
    }
}

/// Loads the constants that are read, by slot. Their host tensors are dropped one by one.
fn load_constants<O: TensorOps>(plan: &mut ExecutionPlan, ops: &O) -> Result<Vec<SlotValue<O>>, ExecError> {
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
