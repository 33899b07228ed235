//! Two-dimensional convolution.

use super::{add_node, argument_error, attributes, ints};
use crate::{Attribute, BuildError, Dim, GraphBuilder, Init, TensorSpec, Var, WeightRole};

/// How a convolution pads its input with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Rows on top and bottom, columns left and right.
    Symmetric([usize; 2]),
    /// Top, left, bottom, right.
    Explicit([usize; 4]),
    /// Padding with which the output size is `ceil(input / stride)`; an odd row or column goes to the end (TensorFlow's
    /// `SAME`).
    Same,
}

/// A convolution over `N,C,H,W`; the fields are those of `torch.nn.Conv2d`.
#[derive(Clone, Copy, Debug)]
pub struct Conv2d {
    /// Channels of the input.
    pub in_channels: usize,
    /// Channels of the output.
    pub out_channels: usize,
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// Step of the window, vertical and horizontal.
    pub stride: [usize; 2],
    /// Zeros around the input.
    pub padding: Padding,
    /// Distance between the window's elements.
    pub dilation: [usize; 2],
    /// Number of channel groups that are convolved separately; `in_channels` groups make the convolution depthwise.
    pub groups: usize,
    /// Whether a bias is added.
    pub bias: bool,
}

impl Conv2d {
    /// Returns a convolution with a square window and PyTorch's defaults: stride 1, no padding, one group, a bias.
    pub fn new(in_channels: usize, out_channels: usize, kernel: usize) -> Self {
        Conv2d {
            in_channels,
            out_channels,
            kernel: [kernel; 2],
            stride: [1; 2],
            padding: Padding::Symmetric([0; 2]),
            dilation: [1; 2],
            groups: 1,
            bias: true,
        }
    }
}

/// Convolution with the weights `<name>.weight` (`O,I/groups,kh,kw`) and `<name>.bias` (`O`).
///
/// # Errors
/// When the channels cannot be split into the groups, or do not match the input.
pub fn conv2d(builder: &mut GraphBuilder, name: &str, x: &Var, conv: Conv2d) -> Result<Var, BuildError> {
    let Conv2d { in_channels, out_channels, groups, .. } = conv;
    if groups == 0 || in_channels % groups != 0 || out_channels % groups != 0 {
        let reason =
            format!("{in_channels} input and {out_channels} output channels cannot be split into {groups} groups");
        return Err(argument_error(name, reason));
    }
    if conv.stride.contains(&0) || conv.kernel.contains(&0) || conv.dilation.contains(&0) {
        return Err(argument_error(name, "kernel, stride and dilation must be at least 1"));
    }
    let per_group = in_channels / groups;
    let fan_in = per_group as f32 * conv.kernel[0] as f32 * conv.kernel[1] as f32;
    let dtype = x.spec().dtype;
    let pads = pads(name, x, conv)?;
    let shape = [out_channels, per_group, conv.kernel[0], conv.kernel[1]];
    // He initialisation keeps the mean square of activations through convolution and rectifier.
    let he = Init::Uniform { bound: (6.0 / fan_in).sqrt() };
    let weight = builder.weight(&format!("{name}.weight"), TensorSpec::new(shape, dtype), WeightRole::Parameter, he)?;
    let bias = if conv.bias {
        let init = Init::Uniform { bound: fan_in.sqrt().recip() };
        let spec = TensorSpec::new([out_channels], dtype);
        Some(builder.weight(&format!("{name}.bias"), spec, WeightRole::Parameter, init)?)
    } else {
        None
    };
    let attributes = attributes([
        ("kernel_shape", ints(conv.kernel)),
        ("strides", ints(conv.stride)),
        ("pads", ints(pads)),
        ("dilations", ints(conv.dilation)),
        ("group", Attribute::Int(groups as i64)),
    ]);
    let inputs = [Some(x), Some(&weight), bias.as_ref()];
    add_node(builder, name, "Conv", &inputs[..if conv.bias { 3 } else { 2 }], attributes)
}

/// Returns the padding in the order top, left, bottom, right.
fn pads(name: &str, x: &Var, conv: Conv2d) -> Result<[usize; 4], BuildError> {
    match conv.padding {
        Padding::Symmetric([rows, columns]) => Ok([rows, columns, rows, columns]),
        Padding::Explicit(pads) => Ok(pads),
        Padding::Same => {
            let [top, bottom] = same_padding(name, x, conv, 0)?;
            let [left, right] = same_padding(name, x, conv, 1)?;
            Ok([top, left, bottom, right])
        }
    }
}

/// Returns the zeros before and after one spatial dimension with which its output size is `ceil(input / stride)`.
fn same_padding(name: &str, x: &Var, conv: Conv2d, axis: usize) -> Result<[usize; 2], BuildError> {
    let reach = conv.dilation[axis].saturating_mul(conv.kernel[axis] - 1).saturating_add(1);
    let stride = conv.stride[axis];
    let total = match x.spec().dims.get(2 + axis) {
        _ if stride == 1 => reach - 1,
        Some(Dim::Fixed(size)) => {
            (size.div_ceil(stride).saturating_sub(1) * stride).saturating_add(reach).saturating_sub(*size)
        }
        _ => {
            let reason =
                format!("`same` padding with a stride needs a fixed height and width, the input is `{}`", x.spec());
            return Err(argument_error(name, reason));
        }
    };
    Ok([total / 2, total - total / 2])
}
