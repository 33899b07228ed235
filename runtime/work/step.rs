//! One step: a batch through the forward function, its outputs to the host, padding cut, evaluated.

use half::{bf16, f16};

use crate::data::Batch;
use crate::engine::{EngineError, Value};
use crate::script::Output;
use crate::tensor::{DType, Tensor, TensorError};

/// Copies every output to the host.
///
/// # Errors
/// When computing or copying failed.
pub fn to_host(output: Output<Value>) -> Result<Output<Tensor>, EngineError> {
    output.try_map(|value| value.to_host())
}

/// The rows of a batch that count: neither padding nor failed. `None` when all do.
pub fn counting_rows(batch: &Batch) -> Option<Vec<usize>> {
    if batch.failed.is_empty() && batch.tickets.len() == batch.rows {
        return None;
    }
    let failed = |row: &usize| batch.failed.iter().any(|(at, _)| at == row);
    Some((0..batch.tickets.len()).filter(|row| !failed(row)).collect())
}

/// Cuts a tensor that has one row a sample down to `rows`; one of another outermost size is left whole.
///
/// # Errors
/// Never for rows within the batch.
pub fn cut(tensor: &Tensor, rows: Option<&[usize]>, batch_rows: usize) -> Result<Tensor, TensorError> {
    match rows {
        Some(rows) if tensor.shape().first() == Some(&batch_rows) => tensor.take_rows(rows),
        _ => Ok(tensor.clone()),
    }
}

/// How many elements are NaN or infinite: those of floats whose exponent has all bits set.
pub fn non_finite(tensor: &Tensor) -> u64 {
    match tensor.dtype() {
        DType::F64 => tensor.as_slice::<f64>().map_or(0, |x| count(x, |x| !x.is_finite())),
        DType::F32 => tensor.as_slice::<f32>().map_or(0, |x| count(x, |x| !x.is_finite())),
        DType::F16 => tensor.as_slice::<f16>().map_or(0, |x| count(x, |x| x.to_bits() & 0x7c00 == 0x7c00)),
        DType::BF16 => tensor.as_slice::<bf16>().map_or(0, |x| count(x, |x| x.to_bits() & 0x7f80 == 0x7f80)),
        _ => 0,
    }
}

/// How many are so; in 32 bits for a part at a time, so that the compiler looks at several at once.
fn count<T: Copy>(elements: &[T], is: impl Fn(T) -> bool) -> u64 {
    elements.chunks(1 << 16).map(|part| u64::from(part.iter().map(|x| u32::from(is(*x))).sum::<u32>())).sum()
}

/// The outputs by name: `output` for one, `output0`, `output1`, ... for several, else the script's own names.
pub fn named(output: &Output<Tensor>) -> Vec<(String, Tensor)> {
    match output {
        Output::One(tensor) => vec![("output".to_owned(), tensor.clone())],
        Output::Many(tensors) => {
            tensors.iter().enumerate().map(|(index, tensor)| (format!("output{index}"), tensor.clone())).collect()
        }
        Output::Named(tensors) => tensors.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;
    use crate::data::SampleError;

    fn batch(samples: u64, rows: usize, failed: &[usize]) -> Batch {
        let error = SampleError { sample: "a.jpeg".into(), reason: "truncated".into() };
        Batch {
            index: 0,
            inputs: IndexMap::new(),
            truth: IndexMap::new(),
            tickets: (0..samples).collect(),
            failed: failed.iter().map(|row| (*row, error.clone())).collect(),
            rows,
        }
    }

    #[test]
    fn padding_and_failed_rows_do_not_count() {
        assert_eq!(counting_rows(&batch(4, 4, &[])), None);
        assert_eq!(counting_rows(&batch(3, 4, &[])), Some(vec![0, 1, 2]));
        assert_eq!(counting_rows(&batch(3, 4, &[1])), Some(vec![0, 2]));
    }

    #[test]
    fn only_tensors_with_a_row_a_sample_are_cut() {
        let rows = Tensor::from_vec([3, 2], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert_eq!(cut(&rows, Some(&[0, 2]), 3).unwrap().as_slice::<f32>().unwrap(), &[1.0, 2.0, 5.0, 6.0]);
        assert_eq!(cut(&rows, Some(&[0]), 4).unwrap().shape(), &[3, 2]);
        assert_eq!(cut(&rows, None, 3).unwrap().shape(), &[3, 2]);
    }

    #[test]
    fn nan_and_infinity_are_counted() {
        let tensor = Tensor::from_vec([3], vec![1.0f32, f32::NAN, f32::INFINITY]).unwrap();
        assert_eq!(non_finite(&tensor), 2);
        for dtype in [DType::F64, DType::F16, DType::BF16] {
            assert_eq!(non_finite(&tensor.cast(dtype)), 2, "{dtype}");
        }
        assert_eq!(non_finite(&tensor.cast(DType::I32)), 0);
    }
}
