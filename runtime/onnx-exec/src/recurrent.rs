//! The recurrent operators `RNN`, `GRU` and `LSTM`, step by step, by means of matrix products. Equations and the order of
//! gates are those of the ONNX standard; 16-bit floats are computed in f32.

mod cell;

pub(super) use cell::{Cell, Direction, Recurrent};

use super::OpError;
use super::evaluate::{drop_axes, scalar};
use super::normalize::widen;
use super::operands::Operands;
use super::ops::{Binary, TensorOps, Unary};
use flagperf_onnx::Tensor;

/// The weights of one direction, and the operations on them.
struct Layer<'a, O: TensorOps> {
    ops: &'a O,
    recurrent: &'a Recurrent,
    direction: &'a Direction,
    /// The products of all inputs and their weights, with the bias: `steps,batch,gates*hidden`.
    inputs: O::Tensor,
    /// The recurrent weights: `hidden,gates*hidden`.
    weights: O::Tensor,
    /// The bias of the recurrent product, if a gate is applied to it.
    late_bias: Option<O::Tensor>,
    /// The weights from the cell to the gates, `3*hidden`.
    peepholes: Option<O::Tensor>,
    hidden: usize,
}

/// The state between two steps: `batch,hidden` each.
#[derive(Clone)]
struct State<T> {
    hidden: T,
    cell: T,
}

/// Returns the outputs of all steps, and the last state of each direction.
pub(super) fn recurrent<O: TensorOps>(
    operands: &Operands<O>,
    recurrent: &Recurrent,
) -> Result<Vec<O::Tensor>, OpError> {
    let (ops, dtype) = (operands.ops, operands.dtype(0)?);
    let x = widen(ops, &operands.tensor(0)?)?;
    let x = if recurrent.batch_first { ops.permute(&x, &[1, 0, 2])? } else { x };
    let [steps, batch, _] = ops.shape(&x)[..] else {
        return Err(OpError::invalid_operands("the input must have 3 dimensions"));
    };
    let mask = masks(operands, steps, batch)?;
    let (mut all, mut hidden, mut cell) = (Vec::new(), Vec::new(), Vec::new());
    for (d, direction) in recurrent.directions.iter().enumerate() {
        let layer = Layer::new(operands, recurrent, direction, d, &x)?;
        let mut state = layer.first_state(operands, d, batch)?;
        let outputs = layer.run(&mut state, steps, &mask)?;
        all.push(outputs);
        hidden.push(state.hidden);
        cell.push(state.cell);
    }
    let joined = |parts: &[O::Tensor], axis: usize| ops.concat(parts, axis);
    let stacked = |states: Vec<O::Tensor>| {
        let parts = states.iter().map(|state| reshape_with(ops, state, 0)).collect::<Result<Vec<_>, _>>()?;
        let states = joined(&parts, 0)?;
        let states = if recurrent.batch_first { ops.permute(&states, &[1, 0, 2])? } else { states };
        ops.cast(&states, dtype)
    };
    let y = joined(&all, 1)?;
    let y = if recurrent.batch_first { ops.permute(&y, &[2, 0, 1, 3])? } else { y };
    let mut outputs = vec![ops.cast(&y, dtype)?, stacked(hidden)?];
    if recurrent.cell == Cell::Lstm {
        outputs.push(stacked(cell)?);
    }
    Ok(outputs)
}

/// Returns the entry of one direction.
fn of_direction<O: TensorOps>(ops: &O, x: &O::Tensor, axis: usize, d: usize) -> Result<O::Tensor, OpError> {
    let shape = ops.shape(x);
    if shape.get(axis).is_none_or(|size| d >= *size) {
        return Err(OpError::invalid_operands(format!("{shape:?} has no direction {d}")));
    }
    drop_axes(ops, &ops.slice(x, axis, d, 1, 1)?, &[axis])
}

/// Adds a dimension of size 1.
fn reshape_with<O: TensorOps>(ops: &O, x: &O::Tensor, axis: usize) -> Result<O::Tensor, OpError> {
    let mut shape = ops.shape(x);
    shape.insert(axis, 1);
    ops.reshape(x, &shape)
}

/// Returns for each step which rows of the batch still have an element, `batch,1`; nothing if all have.
fn masks<O: TensorOps>(operands: &Operands<O>, steps: usize, batch: usize) -> Result<Vec<Option<O::Tensor>>, OpError> {
    let Some(lengths) = operands.ints(4)? else { return Ok(vec![None; steps]) };
    if lengths.len() != batch {
        return Err(OpError::invalid_operands(format!("{} lengths for a batch of {batch}", lengths.len())));
    }
    let mask = |step: usize| {
        let flags: Vec<bool> = lengths.iter().map(|length| (step as i64) < *length).collect();
        if flags.iter().all(|flag| *flag) {
            return Ok(None);
        }
        operands.ops.upload(&Tensor::from_bools([batch, 1], &flags)?).map(Some)
    };
    (0..steps).map(mask).collect()
}

impl<'a, O: TensorOps> Layer<'a, O> {
    fn new(
        operands: &Operands<'a, O>,
        recurrent: &'a Recurrent,
        direction: &'a Direction,
        d: usize,
        x: &O::Tensor,
    ) -> Result<Self, OpError> {
        let ops = operands.ops;
        let part =
            |i: usize| operands.optional_tensor(i)?.map(|x| of_direction(ops, &widen(ops, &x)?, 0, d)).transpose();
        let missing = || OpError::invalid_operands("the weights are missing");
        let [w, r] = [part(1)?.ok_or_else(missing)?, part(2)?.ok_or_else(missing)?];
        let shape = ops.shape(&r);
        let hidden = *shape.last().ok_or_else(missing)?;
        let width = recurrent.cell.gates() * hidden;
        if shape != [width, hidden] {
            return Err(OpError::invalid_operands(format!("the recurrent weights have the shape {shape:?}")));
        }
        let biases = operands.shape(3).ok().and_then(|shape| shape.last().copied());
        if biases.is_some_and(|biases| biases != 2 * width) {
            return Err(OpError::invalid_operands(format!("the biases are not {} numbers", 2 * width)));
        }
        let [steps, batch, size] = ops.shape(x)[..] else { return Err(missing()) };
        let rows = ops.reshape(x, &[steps * batch, size])?;
        let mut inputs = ops.matmul(&rows, &ops.permute(&w, &[1, 0])?)?;
        let mut late_bias = None;
        if let Some(bias) = part(3)? {
            inputs = ops.binary(Binary::Add, &inputs, &ops.slice(&bias, 0, 0, width, 1)?)?;
            let second = ops.slice(&bias, 0, width, width, 1)?;
            match recurrent.cell {
                Cell::Gru { linear_before_reset: true } => late_bias = Some(second),
                _ => inputs = ops.binary(Binary::Add, &inputs, &second)?,
            }
        }
        let inputs = ops.reshape(&inputs, &[steps, batch, width])?;
        let peepholes = if recurrent.cell == Cell::Lstm { part(7)? } else { None };
        if peepholes.as_ref().is_some_and(|weights| ops.shape(weights) != [3 * hidden]) {
            return Err(OpError::invalid_operands(format!("the peepholes are not {} numbers", 3 * hidden)));
        }
        let weights = ops.permute(&r, &[1, 0])?;
        Ok(Layer { ops, recurrent, direction, inputs, weights, late_bias, peepholes, hidden })
    }

    fn first_state(&self, operands: &Operands<O>, d: usize, batch: usize) -> Result<State<O::Tensor>, OpError> {
        let ops = self.ops;
        let first = |i: usize| match operands.optional_tensor(i)? {
            Some(state) => of_direction(ops, &widen(ops, &state)?, usize::from(self.recurrent.batch_first), d),
            None => {
                let zeros = Tensor::from_vec([batch, self.hidden], vec![0.0; batch * self.hidden])?;
                ops.upload(&zeros.cast(ops.dtype(&self.inputs)))
            }
        };
        let hidden = first(5)?;
        let cell = if self.recurrent.cell == Cell::Lstm { first(6)? } else { hidden.clone() };
        Ok(State { hidden, cell })
    }

    /// Runs all steps and returns their outputs, `steps,1,batch,hidden`.
    fn run(
        &self,
        state: &mut State<O::Tensor>,
        steps: usize,
        masks: &[Option<O::Tensor>],
    ) -> Result<O::Tensor, OpError> {
        let ops = self.ops;
        let mut outputs = Vec::with_capacity(steps);
        for step in 0..steps {
            let step = if self.direction.is_reverse { steps - 1 - step } else { step };
            let x = drop_axes(ops, &ops.slice(&self.inputs, 0, step, 1, 1)?, &[0])?;
            let next = self.step(&x, state)?;
            let output = match &masks[step] {
                None => {
                    *state = next;
                    state.hidden.clone()
                }
                Some(mask) => {
                    let zero = scalar(ops, 0.0, &next.hidden)?;
                    let output = ops.select(mask, &next.hidden, &zero)?;
                    let hidden = ops.select(mask, &next.hidden, &state.hidden)?;
                    *state = State { hidden, cell: ops.select(mask, &next.cell, &state.cell)? };
                    output
                }
            };
            outputs.push(reshape_with(ops, &reshape_with(ops, &output, 0)?, 0)?);
        }
        if self.direction.is_reverse {
            outputs.reverse();
        }
        if outputs.is_empty() {
            return Err(OpError::unsupported("a sequence without steps"));
        }
        ops.concat(&outputs, 0)
    }

    fn step(&self, x: &O::Tensor, state: &State<O::Tensor>) -> Result<State<O::Tensor>, OpError> {
        match self.recurrent.cell {
            Cell::Rnn => {
                let sum = self.add(x, &self.ops.matmul(&state.hidden, &self.weights)?)?;
                let hidden = self.activate(0, &sum)?;
                Ok(State { cell: hidden.clone(), hidden })
            }
            Cell::Gru { linear_before_reset } => self.gru(x, &state.hidden, linear_before_reset),
            Cell::Lstm => self.lstm(x, state),
        }
    }

    /// The gates are update, reset and hidden.
    fn gru(&self, x: &O::Tensor, state: &O::Tensor, late: bool) -> Result<State<O::Tensor>, OpError> {
        let mut product = self.ops.matmul(state, &self.weights)?;
        if let Some(bias) = &self.late_bias {
            product = self.add(&product, bias)?;
        }
        let gate = |i: usize| self.activate(0, &self.add(&self.part(x, i)?, &self.part(&product, i)?)?);
        let (update, reset) = (gate(0)?, gate(1)?);
        let recurrent = if late {
            self.mul(&reset, &self.part(&product, 2)?)?
        } else {
            let weights = self.ops.slice(&self.weights, 1, 2 * self.hidden, self.hidden, 1)?;
            self.ops.matmul(&self.mul(&reset, state)?, &weights)?
        };
        let candidate = self.activate(1, &self.add(&self.part(x, 2)?, &recurrent)?)?;
        let one = scalar(self.ops, 1.0, &update)?;
        let rest = self.ops.binary(Binary::Sub, &one, &update)?;
        let hidden = self.add(&self.mul(&rest, &candidate)?, &self.mul(&update, state)?)?;
        Ok(State { cell: hidden.clone(), hidden })
    }

    /// The gates are input, output, forget and cell; the peepholes are those of the first three.
    fn lstm(&self, x: &O::Tensor, state: &State<O::Tensor>) -> Result<State<O::Tensor>, OpError> {
        let sums = self.add(x, &self.ops.matmul(&state.hidden, &self.weights)?)?;
        let gate = |i: usize, cell: &O::Tensor| {
            let sum = self.part(&sums, i)?;
            let sum = match &self.peepholes {
                Some(weights) => {
                    let weight = self.ops.slice(weights, 0, i * self.hidden, self.hidden, 1)?;
                    self.add(&sum, &self.mul(&weight, cell)?)?
                }
                None => sum,
            };
            self.activate(0, &sum)
        };
        let (input, forget) = (gate(0, &state.cell)?, gate(2, &state.cell)?);
        let candidate = self.activate(1, &self.part(&sums, 3)?)?;
        let cell = self.add(&self.mul(&forget, &state.cell)?, &self.mul(&input, &candidate)?)?;
        let output = gate(1, &cell)?;
        let hidden = self.mul(&output, &self.ops.unary(self.direction.activations[2], &cell)?)?;
        Ok(State { hidden, cell })
    }

    fn part(&self, gates: &O::Tensor, i: usize) -> Result<O::Tensor, OpError> {
        self.ops.slice(gates, 1, i * self.hidden, self.hidden, 1)
    }

    fn add(&self, a: &O::Tensor, b: &O::Tensor) -> Result<O::Tensor, OpError> {
        self.ops.binary(Binary::Add, a, b)
    }

    fn mul(&self, a: &O::Tensor, b: &O::Tensor) -> Result<O::Tensor, OpError> {
        self.ops.binary(Binary::Mul, a, b)
    }

    fn activate(&self, i: usize, x: &O::Tensor) -> Result<O::Tensor, OpError> {
        let bounded = match self.recurrent.clip {
            Some(bound) => self.ops.unary(Unary::Clip { min: -bound, max: bound }, x)?,
            None => x.clone(),
        };
        self.ops.unary(self.direction.activations[i], &bounded)
    }
}
