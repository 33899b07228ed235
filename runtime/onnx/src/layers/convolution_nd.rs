//! Convolutions over any number of spatial dimensions, and transposed convolutions.

use super::{add_node, argument_error, attributes, fixed_size, ints};
use crate::{Attribute, BuildError, GraphBuilder, Init, TensorSpec, Var, WeightRole};

/// A convolution over `N,C` and as many spatial dimensions as `kernel` has; the fields are those of `torch.nn.Conv1d`,
/// `Conv3d` and `ConvTranspose2d`.
#[derive(Clone, Debug)]
pub struct ConvNd {
    /// Channels of the output.
    pub out_channels: usize,
    /// Size of the window in every spatial dimension.
    pub kernel: Vec<usize>,
    /// Step of the window.
    pub stride: Vec<usize>,
    /// Zeros on both sides of every spatial dimension.
    pub padding: Vec<usize>,
    /// Distance between the window's elements.
    pub dilation: Vec<usize>,
    /// Number of channel groups that are convolved separately.
    pub groups: usize,
    /// Whether a bias is added.
    pub bias: bool,
}

impl ConvNd {
    /// Returns a convolution with PyTorch's defaults: stride 1, no padding, one group, a bias.
    pub fn new(out_channels: usize, kernel: &[usize]) -> Self {
        let all = |size| vec![size; kernel.len()];
        ConvNd {
            out_channels,
            kernel: kernel.to_vec(),
            stride: all(1),
            padding: all(0),
            dilation: all(1),
            groups: 1,
            bias: true,
        }
    }

    /// Returns the number of input channels after checking that the channels, the groups and the window fit the input.
    fn in_channels(&self, name: &str, x: &Var) -> Result<usize, BuildError> {
        let rank = x.spec().dims.len();
        let dimensions = self.kernel.len();
        if rank != dimensions + 2 {
            let reason = format!("`{}` does not have {dimensions} dimensions after batch and channels", x.spec());
            return Err(argument_error(name, reason));
        }
        if [&self.stride, &self.padding, &self.dilation].iter().any(|list| list.len() != dimensions) {
            return Err(argument_error(
                name,
                format!("stride, padding and dilation must have {dimensions} sizes each"),
            ));
        }
        if [&self.kernel, &self.stride, &self.dilation].iter().any(|list| list.contains(&0)) {
            return Err(argument_error(name, "kernel, stride and dilation must be at least 1"));
        }
        let (channels, out) = (fixed_size(name, x, 1, "the number of channels")?, self.out_channels);
        let is_divisible = |count: usize| count.checked_rem(self.groups) == Some(0);
        if is_divisible(channels) && is_divisible(out) {
            return Ok(channels);
        }
        let groups = self.groups;
        let reason = format!("{channels} input and {out} output channels cannot be split into {groups} groups");
        Err(argument_error(name, reason))
    }

    /// Adds the weights `<name>.weight` and `<name>.bias` and the node. The weight's first two dimensions are
    /// `channels`.
    fn add(
        &self,
        builder: &mut GraphBuilder,
        (name, op): (&str, &str),
        x: &Var,
        channels: [usize; 2],
        output_padding: Option<&[usize]>,
    ) -> Result<Var, BuildError> {
        let dtype = x.spec().dtype;
        let fan_in = self.kernel.iter().map(|size| *size as f32).product::<f32>() * channels[1] as f32;
        let shape = channels.into_iter().chain(self.kernel.iter().copied());
        let he = Init::Uniform { bound: (6.0 / fan_in).sqrt() };
        let weight =
            builder.weight(&format!("{name}.weight"), TensorSpec::new(shape, dtype), WeightRole::Parameter, he)?;
        let mut inputs = vec![Some(x), Some(&weight)];
        let bias;
        if self.bias {
            let init = Init::Uniform { bound: fan_in.sqrt().recip() };
            let spec = TensorSpec::new([self.out_channels], dtype);
            bias = builder.weight(&format!("{name}.bias"), spec, WeightRole::Parameter, init)?;
            inputs.push(Some(&bias));
        }
        let pads = self.padding.iter().chain(&self.padding).copied();
        let mut attributes = attributes([
            ("kernel_shape", ints(self.kernel.iter().copied())),
            ("strides", ints(self.stride.iter().copied())),
            ("pads", ints(pads)),
            ("dilations", ints(self.dilation.iter().copied())),
            ("group", Attribute::Int(self.groups as i64)),
        ]);
        if let Some(more) = output_padding {
            attributes.insert("output_padding".to_owned(), ints(more.iter().copied()));
        }
        add_node(builder, name, op, &inputs, attributes)
    }
}

/// Convolution with the weights `<name>.weight` (`O,I/groups,k..`) and `<name>.bias` (`O`).
///
/// # Errors
/// When the window or the channels do not fit the input.
pub fn conv_nd(builder: &mut GraphBuilder, name: &str, x: &Var, conv: &ConvNd) -> Result<Var, BuildError> {
    let per_group = conv.in_channels(name, x)? / conv.groups;
    conv.add(builder, (name, "Conv"), x, [conv.out_channels, per_group], None)
}

/// Transposed convolution with the weights `<name>.weight` (`I,O/groups,k..`) and `<name>.bias` (`O`).
/// `output_padding` elements are added at the end of every spatial dimension of the output.
///
/// # Errors
/// When the window or the channels do not fit the input.
pub fn conv_transpose(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    conv: &ConvNd,
    output_padding: &[usize],
) -> Result<Var, BuildError> {
    let channels = conv.in_channels(name, x)?;
    if output_padding.len() != conv.kernel.len() {
        let reason = format!("output_padding must have {} sizes", conv.kernel.len());
        return Err(argument_error(name, reason));
    }
    let more = output_padding.iter().any(|size| *size > 0).then_some(output_padding);
    conv.add(builder, (name, "ConvTranspose"), x, [channels, conv.out_channels / conv.groups], more)
}
