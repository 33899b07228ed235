//! Convolutions of other kinds than `conv2d`, and resizing: methods of a graph's values.

use flagperf_onnx::layers::{self, ConvNd, Interpolation, ResizeTo};
use rhai::plugin::*;
use rhai::{Array, Dynamic, Map};

use super::graph::Node;
use crate::packages::options::{FunctionOptions, number};
use crate::sandbox::Fallible;

/// Reads a size for each of `dimensions`, or one for all.
fn sizes(options: &mut FunctionOptions, key: &'static str, dimensions: usize) -> Fallible<Option<Vec<usize>>> {
    match options.list(key)? {
        Some(list) if list.len() == 1 => Ok(Some(vec![list[0]; dimensions])),
        Some(list) if list.len() != dimensions => {
            Err(format!("`{key}` must be one whole number or {dimensions}, not {}", list.len()).into())
        }
        list => Ok(list),
    }
}

/// Reads the options that all convolutions have.
fn convolution(options: &mut FunctionOptions, dimensions: usize) -> Fallible<ConvNd> {
    let out_channels = options.required_size("out")?;
    let kernel = sizes(options, "kernel", dimensions)?.ok_or("a convolution requires the option `kernel`")?;
    let mut conv = ConvNd::new(out_channels, &kernel);
    conv.stride = sizes(options, "stride", dimensions)?.unwrap_or(conv.stride);
    conv.padding = sizes(options, "padding", dimensions)?.unwrap_or(conv.padding);
    conv.dilation = sizes(options, "dilation", dimensions)?.unwrap_or(conv.dilation);
    conv.groups = options.size("groups")?.unwrap_or(1);
    conv.bias = options.flag("bias", true)?;
    Ok(conv)
}

fn convolve(x: &Node, name: &str, mut options: FunctionOptions, dimensions: usize) -> Fallible<Node> {
    let conv = convolution(&mut options, dimensions)?;
    options.finish()?;
    x.add_layer(|builder, x| layers::conv_nd(builder, name, x, &conv))
}

/// Reads the size of a resized image: height and width in pixels as whole numbers, or one or two factors as fractions.
fn target_size(size: Option<Dynamic>, scale: Option<Dynamic>) -> Fallible<ResizeTo> {
    let pair = |value: &Dynamic| match value.read_lock::<Array>() {
        Some(list) if list.len() == 2 => Some([number(&list[0])?, number(&list[1])?]),
        Some(_) => None,
        None => number(value).map(|both| [both; 2]),
    };
    match (size.as_ref().map(pair), scale.as_ref().map(pair)) {
        (Some(Some(size)), None) if size.iter().all(|size| *size >= 1.0 && size.fract() == 0.0) => {
            Ok(ResizeTo::Pixels(size.map(|size| size as usize)))
        }
        (None, Some(Some(scale))) if scale.iter().all(|scale| *scale > 0.0) => {
            Ok(ResizeTo::Scale(scale.map(|scale| scale as f32)))
        }
        _ => {
            Err("`interpolate` requires either `size` (pixels) or `scale` (factors): one number, or down and right"
                .into())
        }
    }
}

#[export_module]
pub(super) mod functions {
    /// One-dimensional convolution of `N,C,L` with the weights `<name>.weight` and `<name>.bias` and the options of
    /// `conv2d`, except padding with "same".
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,100,f32").conv1d("conv", #{out: 8, kernel: 3, padding: 1});
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn conv1d(x: Node, name: &str, options: Map) -> Fallible<Node> {
        convolve(&x, name, FunctionOptions::new("conv1d", options), 1)
    }

    /// Three-dimensional convolution of `N,C,D,H,W` with the weights `<name>.weight` and `<name>.bias` and the options
    /// of `conv1d`, each one number or three.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,8,32,32,f32").conv3d("conv", #{out: 8, kernel: [1, 3, 3]});
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn conv3d(x: Node, name: &str, options: Map) -> Fallible<Node> {
        convolve(&x, name, FunctionOptions::new("conv3d", options), 3)
    }

    /// Transposed convolution of `N,C,H,W` with the weights `<name>.weight` (`in,out/groups,h,w`) and `<name>.bias`,
    /// the options of `conv1d`, each one number or two, and `output_padding` (0).
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,8,8,f32").conv_transpose2d("up", #{out: 8, kernel: 2, stride: 2});
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn conv_transpose2d(x: Node, name: &str, options: Map) -> Fallible<Node> {
        let mut options = FunctionOptions::new("conv_transpose2d", options);
        let conv = convolution(&mut options, 2)?;
        let more = sizes(&mut options, "output_padding", 2)?.unwrap_or_else(|| vec![0; 2]);
        options.finish()?;
        x.add_layer(|builder, x| layers::conv_transpose(builder, name, x, &conv, &more))
    }

    /// Resizes `N,C,H,W` as PyTorch does without antialiasing. Options: `size` (height and width in pixels) or `scale`
    /// (factors), `mode` ("nearest", "bilinear" or "bicubic", whose coefficient is -0.75; default "nearest"),
    /// `align_corners` (false). The engine `rten` has no bicubic.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,8,8,f32").interpolate(#{scale: 2, mode: "bilinear"});
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn interpolate(x: Node, options: Map) -> Fallible<Node> {
        let mut options = FunctionOptions::new("interpolate", options);
        let to = target_size(options.value("size"), options.value("scale"))?;
        let mode = options.text("mode")?;
        let mode = match mode.as_deref().map_or("nearest", |mode| mode) {
            "nearest" => Interpolation::Nearest,
            "bilinear" => Interpolation::Bilinear,
            "bicubic" => Interpolation::Bicubic,
            other => return Err(format!("unknown mode `{other}` (known: nearest, bilinear, bicubic)").into()),
        };
        let corners = options.flag("align_corners", false)?;
        options.finish()?;
        x.numbered_layer("interpolate", |builder, name, x| layers::interpolate(builder, name, x, to, (mode, corners)))
    }
}
