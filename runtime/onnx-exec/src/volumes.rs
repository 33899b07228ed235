//! Convolutions and pools of three spatial dimensions, by means of those of two.

use super::OpError;
use super::operands::Operands;
use super::ops::{Binary, PadMode, TensorOps, Unary};
use super::window::{Padding, Window};

/// Returns the sizes of images with a depth.
fn sizes<O: TensorOps>(ops: &O, x: &O::Tensor) -> Result<[usize; 5], OpError> {
    let shape = ops.shape(x);
    shape[..]
        .try_into()
        .map_err(|_| OpError::unsupported(format!("{} spatial dimensions", shape.len().saturating_sub(2))))
}

/// Returns the part of a window that belongs to the depth, as a window of one dimension.
fn depth_window(window: &Window) -> Window {
    let of_depth = |values: &[usize]| {
        let first = values.len().checked_sub(3).and_then(|first| values.get(first));
        first.copied().into_iter().collect::<Vec<_>>()
    };
    let padding = match &window.padding {
        Padding::Explicit(pads) => {
            let (before, after) = pads.split_at(pads.len() / 2);
            Padding::Explicit([of_depth(before), of_depth(after)].concat())
        }
        same @ Padding::Same { .. } => same.clone(),
    };
    Window {
        kernel: window.kernel.as_deref().map(of_depth),
        strides: of_depth(&window.strides),
        dilations: of_depth(&window.dilations),
        padding,
        ceil: window.ceil,
    }
}

/// Computes a convolution as a sum over the depth of the kernel, then adds input 3, if `residual`, and applies the
/// activation.
pub(super) fn conv<O: TensorOps>(
    operands: &Operands<O>,
    window: &Window,
    groups: usize,
    residual: bool,
    activation: Option<Unary>,
) -> Result<O::Tensor, OpError> {
    let (ops, x, weight) = (operands.ops, operands.tensor(0)?, operands.tensor(1)?);
    let [batch, channels, depth, height, width] = sizes(ops, &x)?;
    let [filters, per_group, kernel_depth, kernel_height, kernel_width] = sizes(ops, &weight)?;
    let along = depth_window(window).conv([1, depth], [1, kernel_depth], 1);
    let layers = along.output([1, depth], [1, kernel_depth])?[1];
    let mut pads = vec![(0, 0); 5];
    pads[2] = (along.before[1], along.after[1]);
    let padded = ops.pad(&x, &pads, PadMode::Constant(0.0))?;
    let planar = window.conv([height, width], [kernel_height, kernel_width], groups);
    let bias = operands.optional_tensor(2)?;
    let mut sum: Option<O::Tensor> = None;
    for tap in 0..kernel_depth {
        let taken = ops.slice(&padded, 2, tap * along.dilations[1], layers, along.strides[1] as i64)?;
        let planes = ops.permute(&taken, &[0, 2, 1, 3, 4])?;
        let planes = ops.reshape(&planes, &[batch * layers, channels, height, width])?;
        let kernel = ops.slice(&weight, 2, tap, 1, 1)?;
        let kernel = ops.reshape(&kernel, &[filters, per_group, kernel_height, kernel_width])?;
        let bias = bias.as_ref().filter(|_| tap == 0);
        let product = ops.conv(&planes, &kernel, bias, &planar)?;
        sum = Some(sum.map_or(Ok(product.clone()), |sum| ops.binary(Binary::Add, &sum, &product))?);
    }
    let sum = sum.ok_or_else(|| OpError::invalid_operands("the weight has no kernel"))?;
    let [_, _, out_height, out_width] = ops.shape(&sum)[..] else { return Ok(sum) };
    let split = ops.reshape(&sum, &[batch, layers, filters, out_height, out_width])?;
    let mut y = ops.permute(&split, &[0, 2, 1, 3, 4])?;
    if residual {
        y = ops.binary(Binary::Add, &y, &operands.tensor(3)?)?;
    }
    activation.map_or(Ok(y.clone()), |activation| ops.unary(activation, &y))
}

/// Pools each plane, then the depth: both the largest element and the mean of a box follow from those of its planes.
pub(super) fn pool<O: TensorOps>(
    ops: &O,
    x: &O::Tensor,
    window: &Window,
    pool: impl Fn(&O::Tensor, &Window, [usize; 2]) -> Result<O::Tensor, OpError>,
) -> Result<O::Tensor, OpError> {
    let [batch, channels, depth, height, width] = sizes(ops, x)?;
    let planes = ops.reshape(x, &[batch * channels, depth, height, width])?;
    let pooled = pool(&planes, window, [height, width])?;
    let [.., out_height, out_width] = ops.shape(&pooled)[..] else { return Ok(pooled) };
    let lines = ops.permute(&pooled, &[0, 2, 3, 1])?;
    let lines = ops.reshape(&lines, &[batch * channels, out_height * out_width, 1, depth])?;
    let lines = pool(&lines, &depth_window(window), [1, depth])?;
    let layers = ops.shape(&lines).last().copied().unwrap_or(0);
    let split = ops.reshape(&lines, &[batch * channels, out_height, out_width, layers])?;
    let moved = ops.permute(&split, &[0, 3, 1, 2])?;
    ops.reshape(&moved, &[batch, channels, layers, out_height, out_width])
}
