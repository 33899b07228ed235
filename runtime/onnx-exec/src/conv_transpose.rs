//! ONNX's operator `ConvTranspose`, as a convolution of the input with zeros between its elements.

use super::OpError;
use super::evaluate::{as_planes, drop_axes};
use super::operands::Operands;
use super::ops::{Conv, PadMode, TensorOps};
use super::result_size::check_result_size;
use super::window::{Padding, Window, dilated_size, value_for_axis};

/// The attributes of a ConvTranspose.
#[derive(Clone, Debug)]
pub(super) struct TransposedConv {
    pub window: Window,
    pub groups: usize,
    /// `output_padding`, empty for none.
    pub output_padding: Vec<usize>,
    /// `output_shape`, from which the padding follows.
    pub output_shape: Option<Vec<usize>>,
}

/// The geometry along one spatial dimension.
struct AxisGeometry {
    stride: usize,
    dilation: usize,
    /// Zeros before and after the stretched input. A negative number removes elements.
    pads: [i64; 2],
    output: usize,
}

impl TransposedConv {
    fn axis(&self, axis: usize, input: usize, kernel: usize) -> Result<AxisGeometry, OpError> {
        let overflow = || OpError::invalid_operands("the output has too many elements");
        let stride = value_for_axis(&self.window.strides, axis, 1);
        let dilation = value_for_axis(&self.window.dilations, axis, 1);
        let reach = dilated_size(kernel, dilation);
        let bare = input.saturating_sub(1).checked_mul(stride).and_then(|size| size.checked_add(reach));
        let bare = bare.ok_or_else(overflow)?;
        let wanted = self.output_shape.as_ref().map(|sizes| value_for_axis(sizes, axis, 1));
        // A requested output may be larger than what the input reaches.
        let extra =
            value_for_axis(&self.output_padding, axis, 0).max(wanted.map_or(0, |wanted| wanted.saturating_sub(bare)));
        let full = bare.checked_add(extra).ok_or_else(overflow)?;
        let [before, after] = match (&self.window.padding, wanted) {
            (Padding::Same { lower }, wanted) => {
                self.split_padding(full.saturating_sub(wanted.unwrap_or(input * stride)), !*lower)
            }
            (Padding::Explicit(_), Some(wanted)) => self.split_padding(full.saturating_sub(wanted), false),
            (Padding::Explicit(_), None) => {
                let (before, after) = self.window.padding(axis, reach, input);
                [before, after]
            }
        };
        let output = full.checked_sub(before + after).filter(|size| *size > 0 && input > 0);
        let output = output.ok_or_else(|| OpError::invalid_operands("the padding removes the whole output"))?;
        let pad = |removed: usize, added: usize| (reach - 1 + added) as i64 - removed as i64;
        Ok(AxisGeometry { stride, dilation, pads: [pad(before, 0), pad(after, extra)], output })
    }

    /// Splits the padding between the beginning and the end, which gets the odd entry if `end_is_larger`.
    fn split_padding(&self, total: usize, end_is_larger: bool) -> [usize; 2] {
        let half = total / 2;
        if end_is_larger { [half, total - half] } else { [total - half, half] }
    }
}

/// Computes the transposed convolution of inputs 0 and 1, and adds input 2.
pub(super) fn conv_transpose<O: TensorOps>(
    operands: &Operands<O>,
    conv: &TransposedConv,
) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let is_linear = ops.shape(&x).len() == 3;
    let (x, weight) = (as_planes(ops, x)?, as_planes(ops, operands.tensor(1)?)?);
    let ([batch, channels, height, width], [inputs, per_group, kernel_height, kernel_width]) =
        (planes(ops, &x)?, planes(ops, &weight)?);
    if channels != inputs || conv.groups == 0 || channels % conv.groups != 0 {
        return Err(OpError::invalid_operands(format!(
            "{channels} channels do not match a weight for {inputs} (groups: {})",
            conv.groups
        )));
    }
    let axes = [conv.axis(0, height, kernel_height)?, conv.axis(1, width, kernel_width)?];
    let filters = per_group * conv.groups;
    check_result_size(&[batch, filters, axes[0].output, axes[1].output], ops.dtype(&x))?;
    let mut x = stretch(ops, &x, [axes[0].stride, axes[1].stride])?;
    for (axis, geometry) in axes.iter().enumerate() {
        x = crop(ops, x, axis + 2, geometry.pads)?;
    }
    let positive = |at: usize| [0, 1].map(|axis| usize::try_from(axes[axis].pads[at]).unwrap_or(0));
    let dilations = [axes[0].dilation, axes[1].dilation];
    let plain = Conv { strides: [1, 1], before: positive(0), after: positive(1), dilations, groups: conv.groups };
    let weight = mirrored_weight(ops, &weight, conv.groups)?;
    let y = ops.conv(&x, &weight, operands.optional_tensor(2)?.as_ref(), &plain)?;
    if is_linear { drop_axes(ops, &y, &[2]) } else { Ok(y) }
}

fn planes<O: TensorOps>(ops: &O, x: &O::Tensor) -> Result<[usize; 4], OpError> {
    let shape = ops.shape(x);
    shape[..].try_into().map_err(|_| OpError::invalid_operands(format!("{shape:?} must have 4 dimensions")))
}

/// Inserts zeros between the elements, so that their distance is the stride.
fn stretch<O: TensorOps>(ops: &O, x: &O::Tensor, strides: [usize; 2]) -> Result<O::Tensor, OpError> {
    if strides == [1, 1] {
        return Ok(x.clone());
    }
    let [batch, channels, height, width] = planes(ops, x)?;
    let [vertical, horizontal] = strides;
    check_result_size(&[batch, channels, height, vertical, width, horizontal], ops.dtype(x))?;
    let spread = ops.reshape(x, &[batch, channels, height, 1, width, 1])?;
    let pads = [(0, 0), (0, 0), (0, 0), (0, vertical - 1), (0, 0), (0, horizontal - 1)];
    let spread = ops.pad(&spread, &pads, PadMode::Constant(0.0))?;
    let spread = ops.reshape(&spread, &[batch, channels, height * vertical, width * horizontal])?;
    let rows = ops.slice(&spread, 2, 0, (height - 1) * vertical + 1, 1)?;
    ops.slice(&rows, 3, 0, (width - 1) * horizontal + 1, 1)
}

/// Removes as many elements at both ends of an axis as negative pads say.
fn crop<O: TensorOps>(ops: &O, x: O::Tensor, axis: usize, pads: [i64; 2]) -> Result<O::Tensor, OpError> {
    let [before, after] = pads.map(|pad| usize::try_from(-pad).unwrap_or(0));
    if [before, after] == [0, 0] {
        return Ok(x);
    }
    let size = ops.shape(&x)[axis];
    match size.checked_sub(before + after) {
        Some(count) if count > 0 => ops.slice(&x, axis, before, count, 1),
        _ => Err(OpError::unsupported("padding that removes the whole input")),
    }
}

/// Returns the weight of the convolution: `inputs,outputs/groups,height,width` becomes `outputs,inputs/groups,…`, with the
/// taps in reverse order.
fn mirrored_weight<O: TensorOps>(ops: &O, weight: &O::Tensor, groups: usize) -> Result<O::Tensor, OpError> {
    let [inputs, outputs, height, width] = planes(ops, weight)?;
    let grouped = ops.reshape(weight, &[groups, inputs / groups, outputs, height, width])?;
    let swapped = ops.permute(&grouped, &[0, 2, 1, 3, 4])?;
    let swapped = ops.reshape(&swapped, &[groups * outputs, inputs / groups, height, width])?;
    if height == 0 || width == 0 {
        return Err(OpError::invalid_operands("the weight has no kernel"));
    }
    let flipped = ops.slice(&swapped, 2, height - 1, height, -1)?;
    ops.slice(&flipped, 3, width - 1, width, -1)
}
