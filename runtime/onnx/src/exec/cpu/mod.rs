//! The operations on the processor, in f32 and the integer types that indices and masks need.
//!
//! Matrix products are those of the crate `gemm`; everything else is a loop over the elements of an array of `ndarray`.

mod activation;
mod conv;
mod depthwise;
mod elementwise;
mod gemm;
mod im2col;
mod movement;
mod pool;
mod reduce;
mod rows;
mod storage;

use storage::{Dense, DenseElement};

use super::OpError;
use super::ops::{Binary, Conv, ConvEpilogue, PadMode, Pool, Reduce, TensorOps, Unary};
use crate::{DType, Tensor};

/// The tensor operations on the processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOps;

impl TensorOps for CpuOps {
    type Tensor = Dense;

    fn name(&self) -> &'static str {
        "the interpreter"
    }

    /// Half precision is not included: the convolutions are written for f32.
    fn dtypes(&self) -> &'static [DType] {
        &[DType::F32, DType::I64, DType::I32, DType::U8, DType::Bool]
    }

    fn upload(&self, tensor: &Tensor) -> Result<Dense, OpError> {
        storage::upload(tensor)
    }

    fn download(&self, tensor: &Dense, dtype: DType) -> Result<Tensor, OpError> {
        storage::download(tensor).map(|host| host.cast(dtype))
    }

    fn shape(&self, tensor: &Dense) -> Vec<usize> {
        tensor.shape().to_vec()
    }

    fn dtype(&self, tensor: &Dense) -> DType {
        tensor.dtype()
    }

    fn unary(&self, kind: Unary, x: &Dense) -> Result<Dense, OpError> {
        elementwise::unary(kind, x)
    }

    fn binary(&self, kind: Binary, a: &Dense, b: &Dense) -> Result<Dense, OpError> {
        elementwise::binary(kind, a, b)
    }

    fn select(&self, condition: &Dense, a: &Dense, b: &Dense) -> Result<Dense, OpError> {
        elementwise::select(condition, a, b)
    }

    fn matmul(&self, a: &Dense, b: &Dense) -> Result<Dense, OpError> {
        gemm::matmul(f32::elements(a)?, f32::elements(b)?)
    }

    fn conv(&self, x: &Dense, weight: &Dense, bias: Option<&Dense>, conv: &Conv) -> Result<Dense, OpError> {
        self.conv_fused(x, weight, bias, conv, ConvEpilogue { residual: None, activation: None })
    }

    fn conv_fused(
        &self,
        x: &Dense,
        weight: &Dense,
        bias: Option<&Dense>,
        conv: &Conv,
        epilogue: ConvEpilogue<'_, Dense>,
    ) -> Result<Dense, OpError> {
        conv::conv(x, weight, bias, conv, epilogue)
    }

    fn max_pool(&self, x: &Dense, pool: &Pool) -> Result<Dense, OpError> {
        pool::pool(x, pool, pool::PoolKind::Max)
    }

    fn average_pool(&self, x: &Dense, pool: &Pool) -> Result<Dense, OpError> {
        pool::pool(x, pool, pool::PoolKind::Mean)
    }

    fn reduce(&self, kind: Reduce, x: &Dense, axes: &[usize]) -> Result<Dense, OpError> {
        reduce::reduce(kind, x, axes)
    }

    fn arg_max(&self, x: &Dense, axis: usize, last: bool) -> Result<Dense, OpError> {
        reduce::arg_max(x, axis, last)
    }

    fn softmax(&self, x: &Dense, axis: usize, log: bool) -> Result<Dense, OpError> {
        let rank = x.shape().len();
        if axis + 1 == rank {
            return rows::softmax(x, log);
        }
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(axis, rank - 1);
        Ok(movement::permute(&rows::softmax(&movement::permute(x, &order), log)?, &order))
    }

    fn layer_norm(
        &self,
        x: &Dense,
        scale: &Dense,
        bias: Option<&Dense>,
        axis: usize,
        epsilon: f64,
    ) -> Result<Dense, OpError> {
        rows::layer_norm(x, scale, bias, axis, epsilon)
    }

    fn reshape(&self, x: &Dense, shape: &[usize]) -> Result<Dense, OpError> {
        movement::reshape(x, shape)
    }

    fn permute(&self, x: &Dense, order: &[usize]) -> Result<Dense, OpError> {
        Ok(movement::permute(x, order))
    }

    fn concat(&self, parts: &[Dense], axis: usize) -> Result<Dense, OpError> {
        movement::concat(parts, axis)
    }

    fn slice(&self, x: &Dense, axis: usize, start: usize, count: usize, step: i64) -> Result<Dense, OpError> {
        Ok(movement::slice(x, axis, start, count, step))
    }

    fn gather(&self, x: &Dense, indices: &Dense, axis: usize) -> Result<Dense, OpError> {
        movement::gather(x, indices, axis)
    }

    fn expand(&self, x: &Dense, shape: &[usize]) -> Result<Dense, OpError> {
        movement::expand(x, shape)
    }

    fn pad(&self, x: &Dense, pads: &[(usize, usize)], mode: PadMode) -> Result<Dense, OpError> {
        movement::pad(x, pads, mode)
    }

    fn cast(&self, x: &Dense, dtype: DType) -> Result<Dense, OpError> {
        elementwise::cast(x, dtype)
    }
}
