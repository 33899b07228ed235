//! Parts of one step: outputs are copied to the host, padding and failed samples are removed, the rest is evaluated, and
//! non-finite values are counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use half::{bf16, f16};
use indexmap::IndexMap;

use super::phase::failure;
use flagperf_core::event::Failure;
use flagperf_core::metric::Accumulator;
use flagperf_core::tensor::{DType, Tensor, TensorError};
use flagperf_data::Batch;
use flagperf_engine::{EngineError, Value};
use flagperf_evaluation::StoredStep;
use flagperf_script::{EvaluatorFn, StepOutput};

/// A step after its evaluation.
pub struct EvaluatedStep {
    /// Number of samples, without padding and failed samples.
    pub samples: u32,
    /// What the evaluator received.
    pub stored: StoredStep,
    /// The metrics that it returned.
    pub observed: Accumulator,
}

/// Removes padding and failed samples and evaluates the rest.
///
/// # Errors
/// When an output has no row per row of the batch although rows must be removed, or the evaluator fails.
pub fn evaluate(
    batch: &Batch,
    output: StepOutput<Tensor>,
    evaluator: &mut EvaluatorFn,
) -> Result<EvaluatedStep, Failure> {
    let rows = sample_rows(batch);
    let (samples, output) = select_samples(batch, rows.as_deref(), output)?;
    let mut truth = IndexMap::with_capacity(batch.truth.len());
    for (name, tensor) in &batch.truth {
        let selected = select_rows(tensor, rows.as_deref(), batch.rows).map_err(|e| failure(&e, ""))?;
        truth.insert(name.clone(), selected);
    }
    let observed = evaluator.call(&output, &truth).map_err(|e| failure(&e, ""))?;
    let stored = StoredStep { samples: batch.sample_indices.clone(), output, truth };
    Ok(EvaluatedStep { samples, stored, observed })
}

/// Removes padding and failed samples from the outputs of a batch; `rows` are those of the samples, if not all are. Returns
/// the number of samples and their outputs.
///
/// # Errors
/// When an output has no row per row of the batch although rows must be removed.
pub fn select_samples(
    batch: &Batch,
    rows: Option<&[usize]>,
    output: StepOutput<Tensor>,
) -> Result<(u32, StepOutput<Tensor>), Failure> {
    if rows.is_some() {
        check_output_rows(&output, batch.rows)?;
    }
    let select = |tensor: &Tensor| select_rows(tensor, rows, batch.rows);
    let output = output.try_map(|tensor| select(&tensor)).map_err(|e| failure(&e, ""))?;
    let samples = rows.map_or(batch.rows, <[usize]>::len);
    Ok((u32::try_from(samples).unwrap_or(u32::MAX), output))
}

/// Checks that every output has one row per row of the batch, so that padding and failed samples can be removed.
fn check_output_rows(output: &StepOutput<Tensor>, rows: usize) -> Result<(), Failure> {
    let Some((name, tensor)) = output.iter().find(|(_, tensor)| tensor.shape().first() != Some(&rows)) else {
        return Ok(());
    };
    let (spec, hint) = (tensor.spec(), "the first dimension of every output must be the batch");
    let reason = format!("output `{name}` is `{spec}` for a batch of {rows}: padding rows cannot be removed from it");
    Err(failure(&reason, hint))
}

/// Copies every output to the host.
///
/// # Errors
/// When computation or the copy failed.
pub fn copy_to_host(output: StepOutput<Value>) -> Result<StepOutput<Tensor>, EngineError> {
    output.try_map(|value| value.to_host())
}

/// Copies a value to memory of the host's own: an engine in another process can write to the memory of its outputs.
///
/// # Errors
/// When the computation or the copy failed.
pub fn read_value(value: &Value) -> Result<Tensor, Failure> {
    own_copy(&value.to_host().map_err(|e| failure(&e, ""))?)
}

/// Reads tensors as [`read_value`], by several threads: most of the time is spent on pages of new memory.
///
/// # Errors
/// As [`read_value`].
pub fn read_values(values: &[&Value]) -> Result<Vec<Tensor>, Failure> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(READING_THREADS_MAX);
    let next = AtomicUsize::new(0);
    let read_some = || {
        let indices = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < values.len()));
        indices.map(|index| Ok((index, read_value(values[index])?))).collect::<Result<Vec<_>, Failure>>()
    };
    let mut read = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(read_some)).collect();
        let mut read = read_some();
        for other in others {
            let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            read = read.and_then(|mut read| {
                read.extend(other?);
                Ok(read)
            });
        }
        read
    })?;
    read.sort_unstable_by_key(|(index, _)| *index);
    Ok(read.into_iter().map(|(_, tensor)| tensor).collect())
}

/// Most threads that read tensors.
const READING_THREADS_MAX: usize = 8;

/// Copies a tensor to memory of the host's own.
///
/// # Errors
/// When there is no memory for it.
pub fn own_copy(tensor: &Tensor) -> Result<Tensor, Failure> {
    Tensor::from_bytes(tensor.shape(), tensor.dtype(), tensor.bytes()).map_err(|e: TensorError| failure(&e, ""))
}

/// Returns the number of outputs of a step.
pub fn output_count(output: &StepOutput<Tensor>) -> u32 {
    u32::try_from(output.iter().count()).unwrap_or(u32::MAX)
}

/// Returns the number of bytes of all outputs of a step.
pub fn output_bytes(output: &StepOutput<Tensor>) -> u64 {
    output.iter().map(|(_, tensor)| tensor.bytes().len() as u64).sum()
}

/// Returns the rows of a batch that are neither padding nor failed samples. `None` when all are samples.
pub fn sample_rows(batch: &Batch) -> Option<Vec<usize>> {
    if batch.failed.is_empty() && batch.sample_indices.len() == batch.rows {
        return None;
    }
    let failed = |row: &usize| batch.failed.iter().any(|(index, _)| index == row);
    Some((0..batch.sample_indices.len()).filter(|row| !failed(row)).collect())
}

/// Selects `rows` of a tensor with one row per row of the batch; returns any other tensor unchanged.
fn select_rows(tensor: &Tensor, rows: Option<&[usize]>, batch_rows: usize) -> Result<Tensor, TensorError> {
    match rows {
        Some(rows) if tensor.shape().first() == Some(&batch_rows) => tensor.take_rows(rows),
        _ => Ok(tensor.clone()),
    }
}

/// Counts the elements that are NaN or infinite. These are the floats whose exponent bits are all set.
pub fn count_non_finite(tensor: &Tensor) -> u64 {
    match tensor.dtype() {
        DType::F64 => tensor.as_slice::<f64>().map_or(0, |x| count_matching(x, |x| !x.is_finite())),
        DType::F32 => tensor.as_slice::<f32>().map_or(0, |x| count_matching(x, |x| !x.is_finite())),
        DType::F16 => tensor.as_slice::<f16>().map_or(0, |x| count_matching(x, |x| x.to_bits() & 0x7c00 == 0x7c00)),
        DType::BF16 => tensor.as_slice::<bf16>().map_or(0, |x| count_matching(x, |x| x.to_bits() & 0x7f80 == 0x7f80)),
        _ => 0,
    }
}

/// Counts the elements that match. Partial sums of 32 bits let the compiler vectorize the loop.
fn count_matching<T: Copy>(elements: &[T], matches: impl Fn(T) -> bool) -> u64 {
    elements.chunks(1 << 16).map(|part| u64::from(part.iter().map(|x| u32::from(matches(*x))).sum::<u32>())).sum()
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;
    use flagperf_data::SampleError;

    fn batch(samples: u64, rows: usize, failed: &[usize]) -> Batch {
        let error = SampleError { sample: "a.jpeg".into(), reason: "truncated".into() };
        Batch {
            index: 0,
            inputs: IndexMap::new(),
            truth: IndexMap::new(),
            sample_indices: (0..samples).collect(),
            failed: failed.iter().map(|row| (*row, error.clone())).collect(),
            rows,
        }
    }

    #[test]
    fn padding_and_failed_samples_are_not_sample_rows() {
        assert_eq!(sample_rows(&batch(4, 4, &[])), None);
        assert_eq!(sample_rows(&batch(3, 4, &[])), Some(vec![0, 1, 2]));
        assert_eq!(sample_rows(&batch(3, 4, &[1])), Some(vec![0, 2]));
    }

    #[test]
    fn rows_are_selected_only_from_tensors_with_one_row_per_sample() {
        let rows = Tensor::from_vec([3, 2], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert_eq!(select_rows(&rows, Some(&[0, 2]), 3).unwrap().as_slice::<f32>().unwrap(), &[1.0, 2.0, 5.0, 6.0]);
        assert_eq!(select_rows(&rows, Some(&[0]), 4).unwrap().shape(), &[3, 2]);
        assert_eq!(select_rows(&rows, None, 3).unwrap().shape(), &[3, 2]);
    }

    #[test]
    fn nan_and_infinity_are_counted() {
        let tensor = Tensor::from_vec([3], vec![1.0f32, f32::NAN, f32::INFINITY]).unwrap();
        assert_eq!(count_non_finite(&tensor), 2);
        for dtype in [DType::F64, DType::F16, DType::BF16] {
            assert_eq!(count_non_finite(&tensor.cast(dtype)), 2, "{dtype}");
        }
        assert_eq!(count_non_finite(&tensor.cast(DType::I32)), 0);
    }
}
