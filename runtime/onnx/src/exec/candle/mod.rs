//! The operations on candle-core's CPU tensors, in f32 with the integers that indices and masks need.
//!
//! What candle does well is candle's; convolution, pooling, normalization and elementwise functions are loops over its
//! storage, because its own are several times slower (depthwise convolution most of all) or have no such padding.

mod activation;
mod columns;
mod conv;
mod depthwise;
mod elementwise;
mod gemm;
mod pool;
mod rows;
pub(crate) mod storage;

use candle_core::{D, Device, Tensor as Candle};

use super::OpError;
use super::ops::{After, Binary, Conv, PadMode, Pool, Reduce, TensorOps, Unary};
use crate::{DType, Tensor};

/// candle-core on the CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct CandleOps;

impl From<candle_core::Error> for OpError {
    fn from(error: candle_core::Error) -> Self {
        OpError::library(storage::words(error))
    }
}

impl TensorOps for CandleOps {
    type Tensor = Candle;

    fn name(&self) -> &'static str {
        "candle"
    }

    /// Half precision is left out: candle's CPU convolutions take no padding of two sides in it, and bf16 is widened.
    fn dtypes(&self) -> &'static [DType] {
        &[DType::F32, DType::I64, DType::I32, DType::U8, DType::Bool]
    }

    fn upload(&self, tensor: &Tensor) -> Result<Candle, OpError> {
        storage::upload(tensor)
    }

    fn download(&self, tensor: &Candle, dtype: DType) -> Result<Tensor, OpError> {
        storage::download(tensor).map(|host| host.cast(dtype))
    }

    fn shape(&self, tensor: &Candle) -> Vec<usize> {
        tensor.dims().to_vec()
    }

    fn dtype(&self, tensor: &Candle) -> DType {
        storage::dtype(tensor.dtype())
    }

    fn unary(&self, kind: Unary, x: &Candle) -> Result<Candle, OpError> {
        elementwise::unary(kind, x)
    }

    fn binary(&self, kind: Binary, a: &Candle, b: &Candle) -> Result<Candle, OpError> {
        elementwise::binary(kind, a, b)
    }

    fn select(&self, condition: &Candle, a: &Candle, b: &Candle) -> Result<Candle, OpError> {
        let shape = condition.shape().broadcast_shape_binary_op(a.shape(), "where")?;
        let shape = shape.broadcast_shape_binary_op(b.shape(), "where")?;
        let (a, b) = (a.broadcast_as(&shape)?, b.broadcast_as(&shape)?);
        Ok(condition.broadcast_as(&shape)?.where_cond(&a, &b)?)
    }

    fn matmul(&self, a: &Candle, b: &Candle) -> Result<Candle, OpError> {
        let mut shape = a.dims().to_vec();
        match (shape.pop(), b.dims()) {
            // One matrix for the whole batch: the rows of all batches are the rows of one product.
            (Some(k), [_, n]) if !shape.is_empty() => {
                let product = a.reshape(((), k))?.matmul(b)?;
                shape.push(*n);
                Ok(product.reshape(shape)?)
            }
            _ => Ok(a.contiguous()?.broadcast_matmul(&b.contiguous()?)?),
        }
    }

    fn conv(&self, x: &Candle, weight: &Candle, bias: Option<&Candle>, conv: &Conv) -> Result<Candle, OpError> {
        self.conv_fused(x, weight, bias, conv, After { residual: None, activation: None })
    }

    fn conv_fused(
        &self,
        x: &Candle,
        weight: &Candle,
        bias: Option<&Candle>,
        conv: &Conv,
        after: After<'_, Candle>,
    ) -> Result<Candle, OpError> {
        conv::conv(x, weight, bias, conv, after)
    }

    fn max_pool(&self, x: &Candle, pool: &Pool) -> Result<Candle, OpError> {
        pool::pool(x, pool, pool::Kind::Max)
    }

    fn average_pool(&self, x: &Candle, pool: &Pool) -> Result<Candle, OpError> {
        pool::pool(x, pool, pool::Kind::Mean)
    }

    fn reduce(&self, kind: Reduce, x: &Candle, axes: &[usize]) -> Result<Candle, OpError> {
        Ok(match kind {
            Reduce::Sum => x.sum_keepdim(axes)?,
            Reduce::Mean => x.mean_keepdim(axes)?,
            Reduce::Max => axes.iter().try_fold(x.clone(), |x, axis| x.max_keepdim(*axis))?,
            Reduce::Min => axes.iter().try_fold(x.clone(), |x, axis| x.min_keepdim(*axis))?,
        })
    }

    fn arg_max(&self, x: &Candle, axis: usize, last: bool) -> Result<Candle, OpError> {
        if last {
            return Err(OpError::lacks("`select_last_index`"));
        }
        Ok(x.argmax_keepdim(axis)?.to_dtype(candle_core::DType::I64)?)
    }

    fn softmax(&self, x: &Candle, axis: usize, log: bool) -> Result<Candle, OpError> {
        if axis + 1 == x.rank() {
            return rows::softmax(x, log);
        }
        Ok(rows::softmax(&x.transpose(axis, D::Minus1)?, log)?.transpose(axis, D::Minus1)?)
    }

    fn layer_norm(
        &self,
        x: &Candle,
        scale: &Candle,
        bias: Option<&Candle>,
        axis: usize,
        epsilon: f64,
    ) -> Result<Candle, OpError> {
        rows::layer_norm(x, scale, bias, axis, epsilon)
    }

    fn reshape(&self, x: &Candle, shape: &[usize]) -> Result<Candle, OpError> {
        Ok(x.reshape(shape)?)
    }

    fn permute(&self, x: &Candle, order: &[usize]) -> Result<Candle, OpError> {
        Ok(x.permute(order)?)
    }

    fn concat(&self, parts: &[Candle], axis: usize) -> Result<Candle, OpError> {
        let parts = parts.iter().map(Candle::contiguous).collect::<Result<Vec<_>, _>>()?;
        Ok(Candle::cat(&parts, axis)?)
    }

    fn slice(&self, x: &Candle, axis: usize, start: usize, count: usize, step: i64) -> Result<Candle, OpError> {
        if step == 1 {
            return Ok(x.narrow(axis, start, count)?);
        }
        let places = (0..count as i64).map(|i| start as i64 + i * step);
        Ok(x.contiguous()?.index_select(&Candle::from_iter(places, &Device::Cpu)?, axis)?)
    }

    fn gather(&self, x: &Candle, indices: &Candle, axis: usize) -> Result<Candle, OpError> {
        let mut shape = x.dims().to_vec();
        let size = shape[axis] as i64;
        let wanted = indices.flatten_all()?.to_dtype(candle_core::DType::I64)?.to_vec1::<i64>()?;
        let from_front = wanted.into_iter().map(|i| if i < 0 { i + size } else { i }).collect::<Vec<_>>();
        if let Some(i) = from_front.iter().find(|i| !(0..size).contains(i)) {
            return Err(OpError::operands(format!("index {i} is out of range for {size} entries")));
        }
        let count = from_front.len();
        let selected = x.contiguous()?.index_select(&Candle::from_vec(from_front, count, &Device::Cpu)?, axis)?;
        shape.splice(axis..=axis, indices.dims().iter().copied());
        Ok(selected.reshape(shape)?)
    }

    fn expand(&self, x: &Candle, shape: &[usize]) -> Result<Candle, OpError> {
        Ok(x.broadcast_as(shape)?)
    }

    fn pad(&self, x: &Candle, pads: &[(usize, usize)], mode: PadMode) -> Result<Candle, OpError> {
        pool::pad(x, pads, mode)
    }

    fn cast(&self, x: &Candle, dtype: DType) -> Result<Candle, OpError> {
        if dtype == DType::Bool { elementwise::truth(x) } else { Ok(x.to_dtype(storage::candle_dtype(dtype)?)?) }
    }
}
