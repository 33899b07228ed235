//! Output shapes of convolutions and pools, whose windows slide over the dimensions after batch and channels.
//!
//! Knows nothing about element types.

use rten_shape_inference::ops::{Conv, ConvTranspose, Padding, Pool};
use rten_shape_inference::{InferShapes, SymExpr, SymTensor, SymbolGen};

use super::shapes::{Inputs, apply_rule};
use super::{Attributes, InferError};

/// The strides, dilations and padding of a window in every spatial dimension.
pub(super) struct Window {
    strides: Vec<usize>,
    dilations: Vec<usize>,
    /// Padding at all beginnings, then at all ends. `None` pads so that only the stride reduces the size.
    pads: Option<Vec<usize>>,
}

impl Window {
    fn read(attributes: Attributes<'_>, spatial: usize) -> Result<Self, InferError> {
        let ones = || vec![1; spatial];
        let window = Window {
            strides: attributes.sizes("strides")?.unwrap_or_else(ones),
            dilations: attributes.sizes("dilations")?.unwrap_or_else(ones),
            pads: match attributes.string("auto_pad")? {
                Some("SAME_UPPER" | "SAME_LOWER") => None,
                _ => Some(attributes.sizes("pads")?.unwrap_or_else(|| vec![0; 2 * spatial])),
            },
        };
        let fits = window.strides.len() == spatial
            && window.dilations.len() == spatial
            && window.pads.as_ref().is_none_or(|pads| pads.len() == 2 * spatial)
            && !window.strides.contains(&0);
        fits.then_some(window).ok_or(InferError::Value)
    }

    fn padding(&self, spatial: usize, axis: usize) -> Option<[usize; 2]> {
        self.pads.as_ref().map(|pads| [pads[axis], pads[spatial + axis]])
    }
}

/// The kinds of operators with a sliding window.
pub(super) enum WindowKind {
    Conv,
    ConvTranspose,
    Pool,
}

/// Returns the output shape of an operator with a sliding window. Each spatial dimension is inferred separately, so any
/// number of them is supported.
pub(super) fn window_shape(
    kind: &WindowKind,
    attributes: Attributes<'_>,
    inputs: Inputs<'_>,
    symbols: &mut SymbolGen,
) -> Result<SymTensor, InferError> {
    let data = inputs.first().and_then(Option::as_ref).ok_or(InferError::InputCount)?;
    let Some(sizes) = data.shape().map(Iterator::collect::<Vec<_>>) else {
        return Ok(SymTensor::unknown("unknown input shape"));
    };
    let spatial = sizes.len().checked_sub(2).filter(|n| *n > 0).ok_or(InferError::Rank)?;
    let window = Window::read(attributes, spatial)?;
    let kernel = kernel_sizes(kind, attributes, inputs, spatial)?;
    let Some(kernel) = kernel else { return Ok(SymTensor::unknown("unknown weight shape")) };

    let mut out = vec![sizes[0].clone(), sizes[1].clone()];
    for axis in 0..spatial {
        let line = SymTensor::from_shape(vec![sizes[0].clone(), sizes[1].clone(), sizes[2 + axis].clone()]);
        let shape = window_axis_shape(kind, attributes, &window, (line, &kernel, axis), symbols)?;
        out[1] = shape.size(1).ok_or(InferError::Rank)?;
        out.push(shape.size(2).ok_or(InferError::Rank)?);
    }
    if let (WindowKind::ConvTranspose, Some(sizes)) = (kind, attributes.sizes("output_shape")?) {
        let first = sizes.len().checked_sub(spatial).ok_or(InferError::Value)?;
        out.truncate(2);
        out.extend(sizes[first..].iter().map(|size| SymExpr::Value(*size as i32)));
    }
    Ok(SymTensor::from_shape(out))
}

/// Returns the shape of the weight, `[a, b, k1, k2, ...]`. For a pool, the two channel sizes are placeholders.
fn kernel_sizes(
    kind: &WindowKind,
    attributes: Attributes<'_>,
    inputs: Inputs<'_>,
    spatial: usize,
) -> Result<Option<Vec<SymExpr>>, InferError> {
    let sizes: Vec<SymExpr> = match kind {
        WindowKind::Pool => {
            let kernel = attributes.sizes("kernel_shape")?.ok_or(InferError::MissingAttribute("kernel_shape"))?;
            [0, 0].into_iter().chain(kernel).map(|size| SymExpr::Value(size as i32)).collect()
        }
        WindowKind::Conv | WindowKind::ConvTranspose => {
            let weight = inputs.get(1).and_then(Option::as_ref).ok_or(InferError::InputCount)?;
            let Some(sizes) = weight.shape() else { return Ok(None) };
            sizes.collect()
        }
    };
    if sizes.len() == spatial + 2 { Ok(Some(sizes)) } else { Err(InferError::Rank) }
}

fn window_axis_shape(
    kind: &WindowKind,
    attributes: Attributes<'_>,
    window: &Window,
    (line, kernel, axis): (SymTensor, &[SymExpr], usize),
    symbols: &mut SymbolGen,
) -> Result<SymTensor, InferError> {
    let spatial = kernel.len() - 2;
    let pads = window.padding(spatial, axis);
    let padding = pads.as_ref().map_or(Padding::Same, |pads| Padding::Fixed(pads));
    let (strides, dilations) = (&window.strides[axis..=axis], &window.dilations[axis..=axis]);
    let weight = SymTensor::from_shape(vec![kernel[0].clone(), kernel[1].clone(), kernel[2 + axis].clone()]);
    let output_padding = attributes.sizes("output_padding")?;
    let kernel_size = match kernel[2 + axis] {
        SymExpr::Value(size) => size as usize,
        _ => 0,
    };
    let operator: &dyn InferShapes = match kind {
        WindowKind::Conv => &Conv { dilations, padding, strides },
        WindowKind::ConvTranspose => &ConvTranspose {
            groups: attributes.groups()?,
            padding,
            strides,
            dilations,
            output_padding: output_padding.as_ref().and_then(|sizes| sizes.get(axis..=axis)),
        },
        WindowKind::Pool => {
            &Pool { dilations, kernel_size: &[kernel_size], padding, strides, ceil_mode: attributes.flag("ceil_mode")? }
        }
    };
    let shapes = apply_rule(operator, &[Some(line), Some(weight)], symbols)?;
    let shape = shapes.into_iter().next().map(SymTensor::simplify).ok_or(InferError::InputCount)?;
    match shape.size(2) {
        Some(SymExpr::Value(..=0)) => {
            Err(InferError::Mismatch("the window is larger than the padded input".to_owned()))
        }
        _ => Ok(shape),
    }
}
