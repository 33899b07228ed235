//! Between host tensors, candle's tensors and plain slices.

use candle_core::{CpuStorage, DType as CandleDType, Device, Storage, Tensor as Candle};

use super::OpError;
use crate::{DType, Tensor, TensorError};

pub(super) fn upload(tensor: &Tensor) -> Result<Candle, OpError> {
    let (shape, device) = (tensor.shape(), &Device::Cpu);
    Ok(match tensor.dtype() {
        DType::F32 => Candle::from_slice(tensor.as_slice::<f32>()?, shape, device)?,
        DType::I64 => Candle::from_slice(tensor.as_slice::<i64>()?, shape, device)?,
        DType::I32 => Candle::from_slice(tensor.as_slice::<i32>()?, shape, device)?,
        DType::U8 | DType::Bool => Candle::from_slice(tensor.bytes(), shape, device)?,
        other => return Err(OpError::lacks(format!("tensors of `{other}`"))),
    })
}

pub(crate) fn download(tensor: &Candle) -> Result<Tensor, OpError> {
    let (flat, shape) = (tensor.flatten_all()?, tensor.dims());
    Ok(match tensor.dtype() {
        CandleDType::F32 => Tensor::from_vec(shape, flat.to_vec1::<f32>()?)?,
        CandleDType::I64 => Tensor::from_vec(shape, flat.to_vec1::<i64>()?)?,
        CandleDType::I32 => Tensor::from_vec(shape, flat.to_vec1::<i32>()?)?,
        CandleDType::U8 => Tensor::from_vec(shape, flat.to_vec1::<u8>()?)?,
        CandleDType::F64 => Tensor::from_vec(shape, flat.to_vec1::<f64>()?)?,
        CandleDType::F16 => Tensor::from_vec(shape, flat.to_vec1::<half::f16>()?)?,
        CandleDType::BF16 => Tensor::from_vec(shape, flat.to_vec1::<half::bf16>()?)?,
        other => return Err(OpError::lacks(format!("tensors of `{}`", other.as_str()))),
    })
}

/// What candle says, without where in its code that was: with `RUST_BACKTRACE` set its errors carry a backtrace.
pub(crate) fn words(error: candle_core::Error) -> String {
    use candle_core::Error;
    match error {
        Error::WithBacktrace { inner, .. } => words(*inner),
        Error::WithPath { inner, path } => format!("path: {path:?} {}", words(*inner)),
        Error::Context { inner, context } => format!("{context}\n{}", words(*inner)),
        other => other.to_string(),
    }
}

impl From<TensorError> for OpError {
    fn from(error: TensorError) -> Self {
        OpError::library(error)
    }
}

/// The element type of a candle tensor; what is none of ours stands as f64, which is not among the types declared.
pub(crate) fn dtype(dtype: CandleDType) -> DType {
    match dtype {
        CandleDType::F32 => DType::F32,
        CandleDType::I64 => DType::I64,
        CandleDType::I32 => DType::I32,
        CandleDType::U8 => DType::U8,
        CandleDType::F16 => DType::F16,
        CandleDType::BF16 => DType::BF16,
        _ => DType::F64,
    }
}

pub(super) fn candle_dtype(dtype: DType) -> Result<CandleDType, OpError> {
    Ok(match dtype {
        DType::F32 => CandleDType::F32,
        DType::I64 => CandleDType::I64,
        DType::I32 => CandleDType::I32,
        DType::U8 | DType::Bool => CandleDType::U8,
        other => return Err(OpError::lacks(format!("tensors of `{other}`"))),
    })
}

/// Lends the elements of an f32 tensor, row-major.
pub(super) fn with_floats<R>(x: &Candle, f: impl FnOnce(&[f32]) -> R) -> Result<R, OpError> {
    let x = x.contiguous()?;
    let (storage, layout) = x.storage_and_layout();
    match &*storage {
        Storage::Cpu(CpuStorage::F32(elements)) => {
            let start = layout.start_offset();
            Ok(f(&elements[start..start + layout.shape().elem_count()]))
        }
        _ => Err(OpError::lacks(format!("this operator in `{}`", x.dtype().as_str()))),
    }
}

/// An f32 tensor over elements in row-major order.
pub(super) fn floats(elements: Vec<f32>, shape: &[usize]) -> Result<Candle, OpError> {
    Ok(Candle::from_vec(elements, shape, &Device::Cpu)?)
}
