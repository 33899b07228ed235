//! The executor: a loaded graph and its runs.

use std::collections::HashSet;

use super::execution_plan::ExecutionPlan;
use super::operands::{Operands, Value};
use super::ops::TensorOps;
use super::program::{NodeEvent, Program};
use super::{ExecError, OpError};
use flagperf_onnx::{DType, Graph, NamedSizes, OPSET_NEWEST, Tensor, TensorSpec, UpdateRule, ValueInfo};

/// A graph loaded into a tensor library. Operators are resolved, weights converted and constants computed once, on
/// load.
pub struct Executor<O: TensorOps> {
    ops: O,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    /// The indices of the inputs that a run changes.
    changed: Vec<usize>,
    program: Program<O>,
}

impl<O: TensorOps> Executor<O> {
    /// Loads a graph.
    ///
    /// # Errors
    /// When an operator, an operator set or an element type is not supported, an attribute or weight is invalid, or a
    /// value is not defined.
    pub fn load(graph: &Graph, ops: O) -> Result<Self, ExecError> {
        if graph.opset > OPSET_NEWEST {
            return Err(ExecError::OperatorSet { version: graph.opset, newest: OPSET_NEWEST });
        }
        check_types(graph, &ops)?;
        let program = Program::load(ExecutionPlan::of_graph(graph)?, &ops)?;
        let (inputs, outputs) = (graph.inputs.clone(), graph.outputs.clone());
        Ok(Executor { inputs, outputs, changed: changed_inputs(graph), program, ops })
    }

    /// Returns the graph's inputs, in order.
    pub fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    /// Returns the graph's outputs, in order.
    pub fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    /// Returns the indices of the inputs that a run changes: states that the operator `Update` updates in place.
    pub fn changed_inputs(&self) -> &[usize] {
        &self.changed
    }

    /// Returns the indices of the inputs that a run may overwrite: caches of which nothing but the node that updates them is an
    /// operand.
    pub fn overwritten_inputs(&self) -> &[usize] {
        self.program.overwritten()
    }

    /// Returns the tensor library.
    pub fn ops(&self) -> &O {
        &self.ops
    }

    /// Runs the graph on tensors of the library, in the order of [`Executor::inputs`], and changes those of
    /// [`Executor::changed_inputs`] and [`Executor::overwritten_inputs`].
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

    /// Runs the graph as [`Executor::run`] does. `observe` is called before and after each node.
    ///
    /// # Errors
    /// As [`Executor::run`].
    pub fn run_observed(
        &self,
        inputs: Vec<O::Tensor>,
        observe: &mut dyn FnMut(NodeEvent<'_>),
    ) -> Result<Vec<O::Tensor>, ExecError> {
        self.check_inputs(&inputs)?;
        let values = inputs.into_iter().map(|input| Some(Value::Library(input))).collect();
        let outputs = self.program.run(&self.ops, values, observe)?;
        outputs
            .into_iter()
            .zip(&self.outputs)
            .map(|(value, info)| {
                let operands = Operands { ops: &self.ops, values: vec![value] };
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

fn changed_inputs(graph: &Graph) -> Vec<usize> {
    let updates = graph.nodes.iter().filter_map(|node| Some((UpdateRule::of_node(node)?, node)));
    let states: HashSet<&String> = updates.flat_map(|(rule, node)| rule.states(node)).collect();
    (0..graph.inputs.len()).filter(|i| states.contains(&graph.inputs[*i].name)).collect()
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

pub(super) fn transfer_error(kind: &'static str, name: &str, reason: OpError) -> ExecError {
    ExecError::Transfer { kind, name: name.to_owned(), reason }
}
