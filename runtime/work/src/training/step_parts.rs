//! The parts of a training step in the engine that computes it again.

use flagperf_core::event::Failure;
use flagperf_core::tensor::Tensor;
use flagperf_engine::Value;
use flagperf_onnx::StepScalars;
use flagperf_script::Sessions;

use super::super::phase::failure;
use super::drawn_steps::DrawnStep;

/// The parts of a training step in an engine.
pub struct StepParts {
    /// Loss and gradients of a batch.
    pub gradients: Sessions,
    /// The same with errors.
    pub perturbed: Sessions,
    pub update: Sessions,
    /// Whether the first two compute what several processes do together. Otherwise they compute the part of one.
    pub joins_processes: bool,
}

impl StepParts {
    /// Returns the loss of the batch of a step, and its gradients and next statistics, by one of the first two parts; the means if several
    /// processes train together.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn compute_batch(&self, sessions: &Sessions, drawn: &DrawnStep) -> Result<(f64, Vec<Tensor>), Failure> {
        let (own, states) = drawn.inputs.split_at(drawn.inputs.len() - drawn.states.len());
        let mut outputs = if self.joins_processes {
            compute(sessions, own.iter().chain(drawn.others.iter().flatten()).chain(states).cloned().collect())?
        } else {
            compute_means(sessions, own, &drawn.others, states)?
        };
        let loss = outputs.remove(0).to_f64()[0];
        Ok((loss, outputs))
    }

    /// Computes the update of a step from gradients and next statistics.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn update(&self, results: Vec<Tensor>, drawn: &DrawnStep) -> Result<Updated, Failure> {
        let numbers = StepScalars::NAMES.len() + drawn.states.len();
        let own = drawn.inputs[drawn.inputs.len() - numbers..].iter().cloned();
        let mut outputs = compute(&self.update, results.into_iter().chain(own).collect())?;
        let states = outputs.split_off(1);
        Ok(Updated { norm: outputs[0].to_f64()[0], states })
    }
}

/// What an update computes.
pub struct Updated {
    pub norm: f64,
    pub states: Vec<Tensor>,
}

/// Factor by which a change may exceed the largest that was computed, which rounding could have made larger.
const CHANGE_TOLERANCE: f64 = 1.1;

/// A state before a step and after updates from different gradients.
pub struct Updates<'a> {
    pub before: &'a Tensor,
    /// From the gradients.
    pub again: &'a Tensor,
    /// From gradients with errors.
    pub changed: &'a Tensor,
    /// From gradients that are closer to 0.
    pub closer: &'a Tensor,
}

/// The distances of states after a step, in the elements that are compared by them.
#[derive(Default)]
pub struct Distances {
    /// Between what an engine found and the update; also what the other elements exceed their largest possible difference by.
    pub difference: f64,
    /// Between the updates with and without errors.
    pub sensitivity: f64,
    /// Between the updates from the gradients and from those that are closer to 0.
    pub shift: f64,
    /// Between the states before and after the update.
    pub update: f64,
}

impl Updates<'_> {
    /// Compares what an engine found with the updates. If they are those of an optimizer that divides by the size of a gradient, elements
    /// whose sign is not certain are left out.
    pub fn distances(&self, found: &Tensor, is_divided: bool) -> Distances {
        if found.shape() != self.again.shape() {
            return Distances { difference: f64::NAN, ..Distances::default() };
        }
        let [found, before, again, changed, closer] =
            [found, self.before, self.again, self.changed, self.closer].map(Tensor::to_f64);
        let mut sums = [0.0; 4];
        for index in 0..found.len() {
            let (after, start) = (again[index], before[index]);
            let [difference, error, shift] = [found[index], changed[index], closer[index]].map(|x| (x - after).abs());
            let update = (after - start).abs();
            // Errors of its gradient change more than half of the update.
            if is_divided && shift > update / 2.0 {
                let largest =
                    [after, changed[index], closer[index]].map(|x| (x - start).abs()).into_iter().fold(0.0, f64::max);
                let excess = difference - CHANGE_TOLERANCE * 2.0 * largest;
                sums[0] += if excess > 0.0 || excess.is_nan() { excess * excess } else { 0.0 };
            } else {
                [difference, error, shift, update].into_iter().zip(&mut sums).for_each(|(x, sum)| *sum += x * x);
            }
        }
        let [difference, sensitivity, shift, update] = sums.map(f64::sqrt);
        Distances { difference, sensitivity, shift, update }
    }
}

/// Returns the means of what each process computes of its own inputs and the states.
fn compute_means(
    sessions: &Sessions,
    own: &[Tensor],
    others: &[Vec<Tensor>],
    states: &[Tensor],
) -> Result<Vec<Tensor>, Failure> {
    let compute = |inputs: &[Tensor]| compute(sessions, inputs.iter().chain(states).cloned().collect());
    let mut outputs = compute(own)?;
    if others.is_empty() {
        return Ok(outputs);
    }
    let mut sums: Vec<Vec<f64>> = outputs.iter().map(Tensor::to_f64).collect();
    for other in others {
        let added = sums.iter_mut().flatten().zip(compute(other)?.into_iter().flat_map(|output| output.to_f64()));
        added.for_each(|(sum, value)| *sum += value);
    }
    let processes = (1 + others.len()) as f64;
    for (output, sums) in outputs.iter_mut().zip(sums) {
        let means: Vec<f64> = sums.into_iter().map(|sum| sum / processes).collect();
        let dtype = output.dtype();
        *output = Tensor::from_vec(output.shape().to_vec(), means).expect("as many elements as before").cast(dtype);
    }
    Ok(outputs)
}

/// Computes a part of a step.
///
/// # Errors
/// When the engine fails.
pub fn compute(sessions: &Sessions, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, Failure> {
    let inputs: Vec<Value> = inputs.into_iter().map(Value::Host).collect();
    let session = sessions.values().next().expect("a part of a training step is one graph");
    let mut session = session.lock().map_err(|_| failure(&"the engine panicked earlier", ""))?;
    let outputs = session.submit(&inputs).map_err(|e| failure(&e, ""))?;
    session.sync().map_err(|e| failure(&e, ""))?;
    outputs.iter().map(Value::to_host).collect::<Result<_, _>>().map_err(|e| failure(&e, ""))
}

/// Returns gradients that are closer to 0, or beyond it, by `factor` times what errors changed those of the same row, such as an output
/// channel or an embedding, in the root mean square.
pub fn closer_to_zero(gradient: &Tensor, changed: &Tensor, factor: f64) -> Tensor {
    let (Ok(values), Ok(changed)) = (gradient.as_slice::<f32>(), changed.as_slice::<f32>()) else {
        return gradient.clone();
    };
    let row = match gradient.shape() {
        [_, others @ ..] if !others.is_empty() => others.iter().product(),
        _ => values.len(),
    };
    let closer_row = |(values, changed): (&[f32], &[f32])| {
        let count = values.iter().filter(|value| **value != 0.0).count().max(1);
        let sum = l2(values.iter().zip(changed).map(|(value, changed)| f64::from(value - changed)));
        let most = factor * sum / (count as f64).sqrt();
        // The gradients with errors may overflow. What is exactly 0, such as the gradient of an embedding that no sample has, does not
        // depend on rounding.
        let most = if most.is_finite() { most as f32 } else { 0.0 };
        let closer = |value: &f32| if *value == 0.0 { 0.0 } else { value - most.copysign(*value) };
        values.iter().map(closer).collect::<Vec<f32>>()
    };
    let rows = values.chunks(row.max(1)).zip(changed.chunks(row.max(1)));
    let closer: Vec<f32> = rows.flat_map(closer_row).collect();
    Tensor::from_vec(gradient.shape(), closer).expect("as many elements as before")
}

fn l2(differences: impl Iterator<Item = f64>) -> f64 {
    differences.map(|difference| difference * difference).sum::<f64>().sqrt()
}

pub fn norm(tensor: &Tensor) -> f64 {
    l2(tensor.to_f64().into_iter())
}
