//! Resizing of images.

use super::{add_node, argument_error, attributes};
use crate::{Attribute, BuildError, GraphBuilder, Tensor, Var};

/// How the values between two pixels are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest pixel, rounded down.
    Nearest,
    /// Linear between the two nearest pixels in each direction.
    Bilinear,
    /// Cubic between the four nearest pixels in each direction, with the coefficient -0.75 as in PyTorch.
    Bicubic,
}

/// The size of a resized image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ResizeTo {
    /// Height and width in pixels.
    Pixels([usize; 2]),
    /// Factors of height and width.
    Scale([f32; 2]),
}

/// Resizes `N,C,H,W` as `torch.nn.functional.interpolate` does without antialiasing. If `align_corners` is true, the
/// centres of the corner pixels keep their places.
///
/// # Errors
/// When the input does not have four dimensions, or `align_corners` is set for the nearest pixel.
pub fn interpolate(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    to: ResizeTo,
    (interpolation, align_corners): (Interpolation, bool),
) -> Result<Var, BuildError> {
    if x.spec().dims.len() != 4 {
        return Err(argument_error(name, format!("`{}` is not `N,C,H,W`", x.spec())));
    }
    let (mode, places) = match interpolation {
        Interpolation::Nearest if align_corners => {
            return Err(argument_error(name, "align_corners needs the mode `bilinear` or `bicubic`"));
        }
        Interpolation::Nearest => ("nearest", "asymmetric"),
        Interpolation::Bilinear => ("linear", "half_pixel"),
        Interpolation::Bicubic => ("cubic", "half_pixel"),
    };
    let places = if align_corners { "align_corners" } else { places };
    let text = |text: &str| Attribute::String(text.to_owned());
    let attributes = attributes([
        ("mode", text(mode)),
        ("coordinate_transformation_mode", text(places)),
        ("nearest_mode", text("floor")),
        ("cubic_coeff_a", Attribute::Float(-0.75)),
    ]);
    match to {
        ResizeTo::Scale([down, right]) => {
            let scales = Tensor::from_vec([4], vec![1.0, 1.0, down, right]).expect("four numbers");
            let scales = builder.constant(&format!("{name}.scales"), scales)?;
            add_node(builder, name, "Resize", &[Some(x), None, Some(&scales)], attributes)
        }
        ResizeTo::Pixels([height, width]) => {
            let shape = super::shape::shape_of(builder, &format!("{name}.shape"), x)?;
            let slice = super::Slice { axis: 0, start: 0, end: 2, step: 1 };
            let kept = super::slice(builder, &format!("{name}.kept"), &shape, &[slice])?;
            let pixels = super::node::integers(builder, &format!("{name}.pixels"), &[height as i64, width as i64])?;
            let sizes = super::concat(builder, &format!("{name}.sizes"), &[&kept, &pixels], 0)?;
            add_node(builder, name, "Resize", &[Some(x), None, None, Some(&sizes)], attributes)
        }
    }
}
