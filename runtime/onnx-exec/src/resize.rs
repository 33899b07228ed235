//! ONNX's operator `Resize`: interpolation along one axis after the other. Each axis is a table of source places and
//! weights, so that the elements are only gathered, scaled and added.

mod sampling;

pub(super) use sampling::{Coordinates, Interpolation, NearestRounding, Sampling};

use sampling::{AxisTable, Scaling};

use super::OpError;
use super::indexing::upload_indices;
use super::normalize::widen;
use super::operands::Operands;
use super::ops::{Binary, TensorOps};
use super::result_size::check_result_size;
use super::shape_arithmetic::resolve_axis;
use flagperf_onnx::Tensor;

/// The most taps that are gathered one by one; more are one matrix product.
const GATHERED_TAPS_MAX: usize = 8;

/// How `sizes` is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AspectRatio {
    Stretch,
    NotLarger,
    NotSmaller,
}

/// The attributes of a Resize.
#[derive(Clone, Debug)]
pub(super) struct Resize {
    pub sampling: Sampling,
    pub axes: Option<Vec<i64>>,
    pub aspect_ratio: AspectRatio,
}

/// Resizes input 0.
pub(super) fn resize<O: TensorOps>(operands: &Operands<O>, resize: &Resize) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let shape = ops.shape(&x);
    let scalings = scalings(operands, resize, &shape)?;
    let result: Vec<usize> = scalings.iter().map(|scaling| scaling.output).collect();
    check_result_size(&result, ops.dtype(&x))?;
    if result.contains(&0) || shape.contains(&0) {
        return if result == shape { Ok(x) } else { ops.reshape(&x, &result) };
    }
    let is_nearest = matches!(resize.sampling.interpolation, Interpolation::Nearest(_));
    if !is_nearest && !ops.dtype(&x).is_float() {
        return Err(OpError::unsupported(format!("interpolation in `{}`", ops.dtype(&x))));
    }
    let mut y = if is_nearest { x.clone() } else { widen(ops, &x)? };
    for (axis, scaling) in scalings.iter().enumerate().filter(|(_, scaling)| !scaling.is_identity()) {
        y = resize_axis(ops, y, axis, &resize.sampling.table(scaling)?, resize.sampling.extrapolation_value)?;
    }
    ops.cast(&y, ops.dtype(&x))
}

fn resize_axis<O: TensorOps>(
    ops: &O,
    x: O::Tensor,
    axis: usize,
    table: &AxisTable,
    outside: f64,
) -> Result<O::Tensor, OpError> {
    let mut along = vec![1; ops.shape(&x).len()];
    along[axis] = table.output;
    let vector = |values: Vec<f64>| {
        let host = Tensor::from_vec(&along[..], values).map_err(OpError::library)?;
        ops.upload(&host.cast(ops.dtype(&x)))
    };
    let gather = |places: &[usize]| ops.gather(&x, &upload_indices(ops, &[places.len()], places)?, axis);
    let mut y = match &table.taps[..] {
        [(places, None)] => gather(places)?,
        taps if taps.len() > GATHERED_TAPS_MAX => resize_by_product(ops, &x, axis, table)?,
        taps => {
            let mut sum: Option<O::Tensor> = None;
            for (places, weights) in taps {
                let weights = weights.clone().unwrap_or_else(|| vec![1.0; table.output]);
                let term = ops.binary(Binary::Mul, &gather(places)?, &vector(weights)?)?;
                sum = Some(sum.map_or(Ok(term.clone()), |sum| ops.binary(Binary::Add, &sum, &term))?);
            }
            sum.ok_or_else(|| OpError::invalid_operands("there are no taps"))?
        }
    };
    if table.outside.contains(&true) {
        let mask = ops.upload(&Tensor::from_bools(&along[..], &table.outside).map_err(OpError::library)?)?;
        y = ops.select(&mask, &super::evaluate::scalar(ops, outside, &y)?, &y)?;
    }
    Ok(y)
}

/// Multiplies the axis by the matrix of the weights.
fn resize_by_product<O: TensorOps>(
    ops: &O,
    x: &O::Tensor,
    axis: usize,
    table: &AxisTable,
) -> Result<O::Tensor, OpError> {
    let shape = ops.shape(x);
    let matrix = Tensor::from_vec([shape[axis], table.output], table.matrix(shape[axis])?).map_err(OpError::library)?;
    let mut order: Vec<usize> = (0..shape.len()).collect();
    order.swap(axis, shape.len() - 1);
    let lines = ops.permute(x, &order)?;
    let sizes = ops.shape(&lines);
    let rows = ops.reshape(&lines, &[sizes[..sizes.len() - 1].iter().product(), shape[axis]])?;
    let product = ops.matmul(&rows, &ops.upload(&matrix.cast(ops.dtype(x)))?)?;
    let product = ops.reshape(&product, &[&sizes[..sizes.len() - 1], &[table.output]].concat())?;
    ops.permute(&product, &order)
}

/// Returns the scaling of each axis.
fn scalings<O: TensorOps>(operands: &Operands<O>, resize: &Resize, shape: &[usize]) -> Result<Vec<Scaling>, OpError> {
    let rank = shape.len();
    let axes = match &resize.axes {
        Some(axes) => axes.iter().map(|axis| resolve_axis(*axis, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    let present = |list: Option<Vec<f64>>| list.filter(|list| !list.is_empty());
    let (scales, sizes) = (present(operands.float_list(2)?), present(operands.float_list(3)?));
    let values = scales.as_ref().or(sizes.as_ref()).filter(|values| values.len() == axes.len());
    let values =
        values.ok_or_else(|| OpError::invalid_operands("neither `scales` nor `sizes` has a value for each axis"))?;
    let mut regions = vec![[0.0, 1.0]; rank];
    if resize.sampling.coordinates == Coordinates::TfCropAndResize {
        let roi = operands.float_list(1)?.filter(|roi| roi.len() == 2 * axes.len());
        let roi = roi.ok_or_else(|| OpError::invalid_operands("`roi` does not have two values for each axis"))?;
        axes.iter().enumerate().for_each(|(i, axis)| regions[*axis] = [roi[i], roi[axes.len() + i]]);
    }
    let kept = |axis: usize| Scaling { input: shape[axis], output: shape[axis], scale: 1.0, region: regions[axis] };
    let mut scalings: Vec<Scaling> = (0..rank).map(kept).collect();
    let ratios = axes.iter().zip(values).map(|(axis, size)| size / shape[*axis] as f64);
    let common = match resize.aspect_ratio {
        AspectRatio::Stretch => None,
        AspectRatio::NotLarger => Some(ratios.fold(f64::INFINITY, f64::min)),
        AspectRatio::NotSmaller => Some(ratios.fold(0.0, f64::max)),
    };
    for (axis, value) in axes.iter().zip(values) {
        if !(value.is_finite() && *value >= 0.0) {
            return Err(OpError::invalid_operands(format!("a scale or size is {value}")));
        }
        let input = shape[*axis] as f64;
        let (output, scale) = match (&scales, common) {
            // Both factors are f32 numbers in ONNX Runtime, and so is their product.
            (Some(_), _) => {
                let (exact, output) = (input * value, f64::from(input as f32 * *value as f32).floor());
                if resize.sampling.coordinates == Coordinates::AlignCorners && (exact - output).abs() > 1e-4 {
                    return Err(OpError::unsupported(format!(
                        "`align_corners` with the scale {value} of size {input}, for which the standard's text and its \
                         tests differ (give `sizes`)"
                    )));
                }
                (output, *value)
            }
            (None, Some(common)) => ((input * common + 0.5).floor(), common),
            (None, None) => (*value, value / input),
        };
        scalings[*axis] = Scaling { output: output as usize, scale, ..scalings[*axis] };
    }
    Ok(scalings)
}
