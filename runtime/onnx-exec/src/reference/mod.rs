//! The reference library: every operation in f64, written to be obviously correct rather than fast. Tests compare other
//! libraries with it, and the executor uses it for arithmetic on shapes.
//!
//! Does not round: an `f32` or `f16` tensor is stored in f64, and only integers and bools have the precision of their
//! type.

mod array;
pub(super) mod elementwise;
mod windows;

pub use array::Array;

use ndarray::{ArrayD, Axis, IxDyn, concatenate};

use super::OpError;
use super::ops::{Binary, Conv, PadMode, Pool, Reduce, TensorOps, Unary};
use super::result_size::check_result_size;
use super::shape_arithmetic::{MatmulDims, broadcast_shape, matmul_dims};
use flagperf_onnx::{DType, Tensor};

/// How often a loop runs at most: seconds of a small body.
const ITERATIONS_MAX: i64 = 100_000;

/// The tensor operations of the reference library.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceOps;

impl TensorOps for ReferenceOps {
    type Tensor = Array;

    fn name(&self) -> &'static str {
        "reference"
    }

    fn iterations_max(&self) -> i64 {
        ITERATIONS_MAX
    }

    fn dtypes(&self) -> &'static [DType] {
        &DType::ALL
    }

    /// The reference library runs the graph node by node, as it is written.
    fn supports_fusion(&self) -> bool {
        false
    }

    fn upload(&self, tensor: &Tensor) -> Result<Array, OpError> {
        Ok(Array::from_tensor(tensor))
    }

    fn download(&self, tensor: &Array, dtype: DType) -> Result<Tensor, OpError> {
        Ok(tensor.to_tensor(dtype))
    }

    fn shape(&self, tensor: &Array) -> Vec<usize> {
        tensor.shape().to_vec()
    }

    fn dtype(&self, tensor: &Array) -> DType {
        tensor.dtype()
    }

    fn unary(&self, kind: Unary, x: &Array) -> Result<Array, OpError> {
        Ok(elementwise::unary(kind, x))
    }

    fn binary(&self, kind: Binary, a: &Array, b: &Array) -> Result<Array, OpError> {
        check_result_size(&broadcast_shape(a.shape(), b.shape())?, DType::F64)?;
        elementwise::binary(kind, a, b)
    }

    fn select(&self, condition: &Array, a: &Array, b: &Array) -> Result<Array, OpError> {
        let shape = broadcast_shape(condition.shape(), &broadcast_shape(a.shape(), b.shape())?)?;
        check_result_size(&shape, DType::F64)?;
        elementwise::select(condition, a, b)
    }

    fn matmul(&self, a: &Array, b: &Array) -> Result<Array, OpError> {
        let MatmulDims { batch, m, n, .. } = matmul_dims(a.shape(), b.shape())?;
        check_result_size(&[&batch[..], &[m, n]].concat(), DType::F64)?;
        windows::matmul(a, b)
    }

    fn conv(&self, x: &Array, weight: &Array, bias: Option<&Array>, conv: &Conv) -> Result<Array, OpError> {
        windows::conv(x, weight, bias, conv)
    }

    fn max_pool(&self, x: &Array, pool: &Pool) -> Result<Array, OpError> {
        let largest = |taps: &[f64]| taps.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        windows::pool(x, pool, |taps, _| largest(taps))
    }

    fn average_pool(&self, x: &Array, pool: &Pool) -> Result<Array, OpError> {
        windows::pool(x, pool, |taps, padded| {
            taps.iter().sum::<f64>() / if pool.include_pad { padded } else { taps.len() } as f64
        })
    }

    fn reduce(&self, kind: Reduce, x: &Array, axes: &[usize]) -> Result<Array, OpError> {
        let count: usize = axes.iter().map(|axis| x.shape()[*axis]).product();
        let mut values = x.values().to_owned();
        for axis in axes.iter().map(|axis| Axis(*axis)) {
            let reduced = match kind {
                Reduce::Sum | Reduce::Mean => values.sum_axis(axis),
                Reduce::Max => values.fold_axis(axis, f64::NEG_INFINITY, |a, b| a.max(*b)),
                Reduce::Min => values.fold_axis(axis, f64::INFINITY, |a, b| a.min(*b)),
                Reduce::Product => values.product_axis(axis),
            };
            values = reduced.insert_axis(axis);
        }
        if kind == Reduce::Mean {
            values /= count as f64;
        }
        Ok(Array::new(values, x.dtype()))
    }

    fn arg_max(&self, x: &Array, axis: usize, last: bool) -> Result<Array, OpError> {
        let indices = x.values().map_axis(Axis(axis), |lane| {
            let mut best = 0;
            for (i, value) in lane.iter().enumerate() {
                if *value > lane[best] || (last && *value == lane[best]) {
                    best = i;
                }
            }
            best as f64
        });
        Ok(Array::new(indices.insert_axis(Axis(axis)), DType::I64))
    }

    fn softmax(&self, x: &Array, axis: usize, log: bool) -> Result<Array, OpError> {
        let largest = self.reduce(Reduce::Max, x, &[axis])?;
        let shifted = elementwise::binary(Binary::Sub, x, &largest)?;
        let sum = self.reduce(Reduce::Sum, &elementwise::unary(Unary::Exp, &shifted), &[axis])?;
        let logarithm = elementwise::binary(Binary::Sub, &shifted, &elementwise::unary(Unary::Log, &sum))?;
        Ok(if log { logarithm } else { elementwise::unary(Unary::Exp, &logarithm) })
    }

    fn layer_norm(
        &self,
        x: &Array,
        scale: &Array,
        bias: Option<&Array>,
        axis: usize,
        epsilon: f64,
    ) -> Result<Array, OpError> {
        let axes: Vec<usize> = (axis..x.shape().len()).collect();
        let centred = elementwise::binary(Binary::Sub, x, &self.reduce(Reduce::Mean, x, &axes)?)?;
        let square = elementwise::binary(Binary::Mul, &centred, &centred)?;
        let deviation = self.reduce(Reduce::Mean, &square, &axes)?.map(|variance| (variance + epsilon).sqrt());
        let normal = elementwise::binary(Binary::Div, &centred, &deviation)?;
        let scaled = elementwise::binary(Binary::Mul, &normal, scale)?;
        bias.map_or(Ok(scaled.clone()), |bias| elementwise::binary(Binary::Add, &scaled, bias))
    }

    fn reshape(&self, x: &Array, shape: &[usize]) -> Result<Array, OpError> {
        x.reshape(shape)
    }

    fn permute(&self, x: &Array, order: &[usize]) -> Result<Array, OpError> {
        Ok(Array::new(x.values().permuted_axes(IxDyn(order)).to_owned(), x.dtype()))
    }

    fn concat(&self, parts: &[Array], axis: usize) -> Result<Array, OpError> {
        let views: Vec<_> = parts.iter().map(Array::values).collect();
        let joined = concatenate(Axis(axis), &views).map_err(|error| OpError::invalid_operands(error.to_string()))?;
        Ok(Array::new(joined, parts[0].dtype()))
    }

    fn slice(&self, x: &Array, axis: usize, start: usize, count: usize, step: i64) -> Result<Array, OpError> {
        let indices: Vec<usize> = (0..count as i64).map(|i| (start as i64 + i * step) as usize).collect();
        Ok(Array::new(x.values().select(Axis(axis), &indices), x.dtype()))
    }

    fn gather(&self, x: &Array, indices: &Array, axis: usize) -> Result<Array, OpError> {
        let size = x.shape()[axis] as i64;
        let wanted: Vec<usize> = indices
            .to_ints()
            .into_iter()
            .map(|i| match i {
                i if (0..size).contains(&i) => Ok(i as usize),
                i if (-size..0).contains(&i) => Ok((i + size) as usize),
                i => Err(OpError::invalid_operands(format!("index {i} is out of range for size {size}"))),
            })
            .collect::<Result<_, _>>()?;
        let mut shape = x.shape().to_vec();
        shape.splice(axis..=axis, indices.shape().iter().copied());
        check_result_size(&shape, DType::F64)?;
        Array::new(x.values().select(Axis(axis), &wanted), x.dtype()).reshape(&shape)
    }

    fn expand(&self, x: &Array, shape: &[usize]) -> Result<Array, OpError> {
        check_result_size(shape, DType::F64)?;
        Ok(Array::new(x.broadcast(shape)?.to_owned(), x.dtype()))
    }

    fn pad(&self, x: &Array, pads: &[(usize, usize)], mode: PadMode) -> Result<Array, OpError> {
        let size =
            |(size, (before, after)): (&usize, &(usize, usize))| size.saturating_add(*before).saturating_add(*after);
        check_result_size(&x.shape().iter().zip(pads).map(size).collect::<Vec<_>>(), DType::F64)?;
        let mut padded = x.values().to_owned();
        for (axis, (before, after)) in pads.iter().enumerate() {
            padded = pad_axis(&padded, Axis(axis), (*before, *after), mode)?;
        }
        Ok(Array::new(padded, x.dtype()))
    }

    fn cast(&self, x: &Array, dtype: DType) -> Result<Array, OpError> {
        Ok(match dtype {
            DType::Bool => x.map(|value| f64::from(value != 0.0)).with_dtype(dtype),
            float if float.is_float() => x.clone().with_dtype(dtype),
            integer => x.map(f64::trunc).with_dtype(integer),
        })
    }
}

fn pad_axis(
    x: &ArrayD<f64>,
    axis: Axis,
    (before, after): (usize, usize),
    mode: PadMode,
) -> Result<ArrayD<f64>, OpError> {
    let size = x.len_of(axis) as i64;
    let last = size - 1;
    let places = -(before as i64)..size + after as i64;
    let inside = |place: i64| match mode {
        PadMode::Reflect => last - (last - place.abs()).abs(),
        PadMode::Edge | PadMode::Constant(_) => place.clamp(0, last),
    };
    let sources: Vec<usize> = places.clone().map(|place| inside(place) as usize).collect();
    if sources.iter().any(|source| *source as i64 > last) {
        return Err(OpError::invalid_operands(format!("padding of {before} and {after} is too large for size {size}")));
    }
    let mut padded = x.select(axis, &sources);
    if let PadMode::Constant(value) = mode {
        for (mut entry, place) in padded.axis_iter_mut(axis).zip(places) {
            if !(0..size).contains(&place) {
                entry.fill(value);
            }
        }
    }
    Ok(padded)
}
