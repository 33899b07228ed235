//! The operations on the processor, in every element type.
//!
//! Matrix products are those of the crate `gemm`; everything else is a loop over the elements of an array of `ndarray`.
//! f16 and bf16 are computed in f32 and rounded once per operation; convolutions and normalizations in f64 are those of
//! the reference library.

mod activation;
mod conv;
mod depthwise;
mod elementwise;
mod few_rows;
mod gemm;
mod im2col;
mod movement;
mod number;
mod pairs;
mod pool;
mod precision;
mod reduce;
mod rows;
mod scatter;
mod storage;
mod top;

use std::cmp::Ordering;

use precision::{in_compute_type, in_float};
use storage::Dense;
pub(super) use storage::into_host;

use super::OpError;
use super::ops::{Binary, Conv, ConvEpilogue, PadMode, Pool, Reduce, TensorOps, Unary};
use super::reference::ReferenceOps;
use flagperf_onnx::{DType, Tensor};

/// The tensor operations on the processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOps;

impl TensorOps for CpuOps {
    type Tensor = Dense;

    fn name(&self) -> &'static str {
        "the interpreter"
    }

    fn dtypes(&self) -> &'static [DType] {
        &DType::ALL
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
        in_compute_type([a, b], |[a, b]| match (a, b) {
            (Dense::F32(a), Dense::F32(b)) => gemm::matmul(a, b, gemm::multiply),
            (Dense::F64(a), Dense::F64(b)) => gemm::matmul(a, b, gemm::multiply),
            (Dense::I64(a), Dense::I64(b)) => gemm::matmul(a, b, gemm::multiply_integers),
            (Dense::I32(a), Dense::I32(b)) => gemm::matmul(a, b, gemm::multiply_integers),
            (a, _) => Err(OpError::unsupported(format!("matrix products in `{}`", a.dtype()))),
        })
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
        in_float(
            [Some(x), Some(weight), bias, epilogue.residual],
            |[x, weight, bias, residual]| {
                conv::conv(some(x)?, some(weight)?, bias, conv, ConvEpilogue { residual, ..epilogue })
            },
            |[x, weight, bias, residual]| {
                let activation = epilogue.activation;
                ReferenceOps.conv_fused(some(x)?, some(weight)?, bias, conv, ConvEpilogue { residual, activation })
            },
        )
    }

    fn max_pool(&self, x: &Dense, pool: &Pool) -> Result<Dense, OpError> {
        in_float(
            [Some(x)],
            |[x]| pool::pool(some(x)?, pool, pool::PoolKind::Max),
            |[x]| ReferenceOps.max_pool(some(x)?, pool),
        )
    }

    fn average_pool(&self, x: &Dense, pool: &Pool) -> Result<Dense, OpError> {
        in_float(
            [Some(x)],
            |[x]| pool::pool(some(x)?, pool, pool::PoolKind::Mean),
            |[x]| ReferenceOps.average_pool(some(x)?, pool),
        )
    }

    fn reduce(&self, kind: Reduce, x: &Dense, axes: &[usize]) -> Result<Dense, OpError> {
        reduce::reduce(kind, x, axes)
    }

    fn arg_max(&self, x: &Dense, axis: usize, last: bool) -> Result<Dense, OpError> {
        reduce::arg_extreme(x, axis, last, Ordering::Greater)
    }

    fn arg_min(&self, x: &Dense, axis: usize, last: bool) -> Result<Dense, OpError> {
        reduce::arg_extreme(x, axis, last, Ordering::Less)
    }

    fn top_indices(&self, x: &Dense, axis: usize, count: usize, largest: bool) -> Result<Dense, OpError> {
        self.top(x, axis, count, largest).map(|[_, indices]| indices)
    }

    fn top(&self, x: &Dense, axis: usize, count: usize, largest: bool) -> Result<[Dense; 2], OpError> {
        top::top(x, axis, count, largest)
    }

    fn cumulative_sum(&self, x: &Dense, axis: usize) -> Result<Dense, OpError> {
        reduce::cumulative_sum(x, axis)
    }

    fn scatter_rows(
        &self,
        x: &Dense,
        rows: &[usize],
        updates: &Dense,
        combination: Option<Binary>,
    ) -> Result<Dense, OpError> {
        scatter::scatter_rows(x, rows, updates, combination)
    }

    fn softmax(&self, x: &Dense, axis: usize, log: bool) -> Result<Dense, OpError> {
        in_float([Some(x)], |[x]| rows::softmax(some(x)?, axis, log), |[x]| ReferenceOps.softmax(some(x)?, axis, log))
    }

    fn layer_norm(
        &self,
        x: &Dense,
        scale: &Dense,
        bias: Option<&Dense>,
        axis: usize,
        epsilon: f64,
    ) -> Result<Dense, OpError> {
        in_float(
            [Some(x), Some(scale), bias],
            |[x, scale, bias]| rows::layer_norm(some(x)?, some(scale)?, bias, axis, epsilon),
            |[x, scale, bias]| ReferenceOps.layer_norm(some(x)?, some(scale)?, bias, axis, epsilon),
        )
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
        Ok(precision::cast(x, dtype))
    }
}

/// Returns an operand that is always passed.
fn some<T>(operand: Option<&T>) -> Result<&T, OpError> {
    operand.ok_or_else(|| OpError::invalid_operands("an operand is missing"))
}
