//! `If`, `Loop` and `Scan`: operators that run subgraphs.

use super::evaluate::drop_axes;
use super::operands::{Operands, Value};
use super::ops::TensorOps;
use super::program::{Program, SlotValue};
use super::reference::Array;
use super::shape_arithmetic::resolve_axis;
use super::{ExecError, OpError};
use flagperf_onnx::Tensor;

/// An operator that runs subgraphs. The values that these read from outside are the last operands.
#[derive(Clone, Debug)]
pub(super) enum Control {
    /// The first subgraph runs if the condition holds, else the second.
    If,
    Loop,
    Scan(Scan),
}

/// The attributes of a Scan.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    /// The number of scanned inputs.
    pub inputs: usize,
    /// Per scanned input, the axis and whether it is read backwards.
    pub input_axes: Vec<i64>,
    pub input_reversed: Vec<bool>,
    /// Per collected output, the axis and whether it is written backwards.
    pub output_axes: Vec<i64>,
    pub output_reversed: Vec<bool>,
}

/// Converts an error of an operand to that of the node.
type Failed<'a> = &'a dyn Fn(OpError) -> ExecError;

impl Control {
    /// Returns the names of the attributes that contain the subgraphs.
    pub fn bodies(&self) -> &'static [&'static str] {
        match self {
            Control::If => &["then_branch", "else_branch"],
            Control::Loop | Control::Scan(_) => &["body"],
        }
    }

    /// Runs the operator.
    pub fn run<O: TensorOps>(
        &self,
        bodies: &[Program<O>],
        operands: &Operands<O>,
        failed: Failed<'_>,
    ) -> Result<Vec<Value<O::Tensor>>, ExecError> {
        // The operands of the node come first, then the values that the subgraphs capture.
        let captured = operands.values.len() - bodies.first().map_or(0, Program::captured);
        let (own, captured) = operands.values.split_at(captured);
        let frame = Frame { ops: operands.ops, captured, failed };
        match self {
            Control::If => {
                let condition = operands.number(0).map_err(failed)?.is_some_and(|number| number != 0.0);
                frame.run(&bodies[usize::from(!condition)], Vec::new())
            }
            Control::Loop => {
                let most = operands.number(0).map_err(failed)?.map(|most| most as i64);
                let runs = operands.number(1).map_err(failed)?.is_none_or(|number| number != 0.0);
                frame.repeat(&bodies[0], most, runs, own.get(2..).unwrap_or_default())
            }
            Control::Scan(scan) => frame.scan(&bodies[0], scan, own),
        }
    }
}

/// What all runs of a subgraph share.
struct Frame<'a, O: TensorOps> {
    ops: &'a O,
    captured: &'a [SlotValue<O>],
    failed: Failed<'a>,
}

impl<O: TensorOps> Frame<'_, O> {
    /// Runs a subgraph once.
    fn run(&self, body: &Program<O>, inputs: Vec<SlotValue<O>>) -> Result<Vec<Value<O::Tensor>>, ExecError> {
        let inputs = inputs.into_iter().chain(self.captured.iter().cloned()).collect();
        let outputs = body.run(self.ops, inputs, &mut |_| ())?;
        let missing = || (self.failed)(OpError::invalid_operands("an output of the subgraph has no value"));
        outputs.into_iter().map(|output| output.ok_or_else(missing)).collect()
    }

    fn tensor(&self, value: &SlotValue<O>) -> Result<O::Tensor, ExecError> {
        Operands { ops: self.ops, values: vec![value.clone()] }.tensor(0).map_err(self.failed)
    }

    fn repeat(
        &self,
        body: &Program<O>,
        most: Option<i64>,
        mut runs: bool,
        initial: &[SlotValue<O>],
    ) -> Result<Vec<Value<O::Tensor>>, ExecError> {
        let mut state = initial.to_vec();
        let mut collected: Vec<Vec<O::Tensor>> = Vec::new();
        let mut iteration = 0i64;
        while runs && most.is_none_or(|most| iteration < most) {
            if iteration == self.ops.iterations_max() {
                return Err((self.failed)(OpError::unsupported(format!("more than {iteration} iterations"))));
            }
            let number = |number: Tensor| Some(Value::Host(Array::from_tensor(&number)));
            let condition = Tensor::from_bools([], &[true]).map_err(|error| (self.failed)(error.into()))?;
            let mut inputs = vec![number(Tensor::scalar(iteration)), number(condition)];
            inputs.extend(state.iter().cloned());
            let mut outputs = self.run(body, inputs)?.into_iter().map(Some);
            let next = outputs.next().unwrap_or_default();
            let next = Operands { ops: self.ops, values: vec![next] };
            runs = next.number(0).map_err(self.failed)?.is_some_and(|number| number != 0.0);
            state = outputs.by_ref().take(initial.len()).collect();
            self.collect(&mut collected, outputs)?;
            iteration += 1;
        }
        let count = body.output_count().saturating_sub(1 + initial.len());
        let axes = vec![0; count];
        self.results(state, collected, &axes, &vec![false; count])
    }

    fn scan(&self, body: &Program<O>, scan: &Scan, own: &[SlotValue<O>]) -> Result<Vec<Value<O::Tensor>>, ExecError> {
        let (initial, scanned) = own.split_at(own.len().saturating_sub(scan.inputs));
        let scanned = scanned.iter().map(|value| self.tensor(value)).collect::<Result<Vec<_>, _>>()?;
        let axis = |i: usize, axes: &[i64], rank: usize| {
            resolve_axis(axes.get(i).copied().unwrap_or(0), rank).map_err(self.failed)
        };
        let shapes: Vec<Vec<usize>> = scanned.iter().map(|x| self.ops.shape(x)).collect();
        let axes =
            (0..scanned.len()).map(|i| axis(i, &scan.input_axes, shapes[i].len())).collect::<Result<Vec<_>, _>>()?;
        let steps = shapes.first().map_or(0, |shape| shape[axes[0]]);
        if (0..scanned.len()).any(|i| shapes[i][axes[i]] != steps) {
            return Err((self.failed)(OpError::invalid_operands("the scanned inputs differ in length")));
        }
        let mut state = initial.to_vec();
        let mut collected: Vec<Vec<O::Tensor>> = Vec::new();
        for step in 0..steps {
            let mut inputs = state.clone();
            for (i, x) in scanned.iter().enumerate() {
                let is_reversed = scan.input_reversed.get(i).copied().unwrap_or(false);
                let place = if is_reversed { steps - 1 - step } else { step };
                let entry = self.ops.slice(x, axes[i], place, 1, 1).and_then(|x| drop_axes(self.ops, &x, &[axes[i]]));
                inputs.push(Some(Value::Library(entry.map_err(self.failed)?)));
            }
            let mut outputs = self.run(body, inputs)?.into_iter().map(Some);
            state = outputs.by_ref().take(initial.len()).collect();
            self.collect(&mut collected, outputs)?;
        }
        let count = body.output_count().saturating_sub(initial.len());
        let of = |i: usize| scan.output_reversed.get(i).copied().unwrap_or(false);
        let output_axes: Vec<i64> = (0..count).map(|i| scan.output_axes.get(i).copied().unwrap_or(0)).collect();
        self.results(state, collected, &output_axes, &(0..count).map(of).collect::<Vec<_>>())
    }

    /// Adds the outputs of one run to those of the runs before.
    fn collect(
        &self,
        collected: &mut Vec<Vec<O::Tensor>>,
        outputs: impl Iterator<Item = SlotValue<O>>,
    ) -> Result<(), ExecError> {
        for (i, output) in outputs.enumerate() {
            if collected.len() <= i {
                collected.push(Vec::new());
            }
            collected[i].push(self.tensor(&output)?);
        }
        Ok(())
    }

    /// Returns the last state and the collected outputs, each stacked along a new axis.
    fn results(
        &self,
        state: Vec<SlotValue<O>>,
        collected: Vec<Vec<O::Tensor>>,
        axes: &[i64],
        reversed: &[bool],
    ) -> Result<Vec<Value<O::Tensor>>, ExecError> {
        if collected.len() < axes.len() {
            return Err((self.failed)(OpError::unsupported("collected outputs of a subgraph that never runs")));
        }
        let missing = || (self.failed)(OpError::invalid_operands("a state of the subgraph has no value"));
        let mut results =
            state.into_iter().map(|value| value.ok_or_else(missing)).collect::<Result<Vec<_>, ExecError>>()?;
        for (i, mut parts) in collected.into_iter().enumerate() {
            if reversed[i] {
                parts.reverse();
            }
            results.push(Value::Library(self.stack(&parts, axes[i]).map_err(self.failed)?));
        }
        Ok(results)
    }

    fn stack(&self, parts: &[O::Tensor], axis: i64) -> Result<O::Tensor, OpError> {
        let widen = |part: &O::Tensor| {
            let mut shape = self.ops.shape(part);
            shape.insert(resolve_axis(axis, shape.len() + 1)?, 1);
            self.ops.reshape(part, &shape)
        };
        let parts = parts.iter().map(widen).collect::<Result<Vec<_>, OpError>>()?;
        let rank = parts.first().map_or(1, |part| self.ops.shape(part).len());
        self.ops.concat(&parts, resolve_axis(axis, rank)?)
    }
}
