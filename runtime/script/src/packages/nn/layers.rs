//! Layers with weights, and pooling: methods of a graph's values.

use flagperf_onnx::layers::{self, BatchNorm, Conv2d, Linear, Padding, Pool2d};
use rhai::Map;
use rhai::plugin::*;

use super::graph::Node;
use crate::packages::options::{FunctionOptions, size};
use crate::sandbox::Fallible;

/// Reads the option `padding` of a convolution: "same", one number, two, or four (top, left, bottom, right).
fn padding(options: &mut FunctionOptions) -> Fallible<Padding> {
    if options.take_if_text("padding", "same") {
        return Ok(Padding::Same);
    }
    match options.list("padding")? {
        None => Ok(Padding::Symmetric([0; 2])),
        Some(pads) => match pads[..] {
            [all] => Ok(Padding::Symmetric([all; 2])),
            [rows, columns] => Ok(Padding::Symmetric([rows, columns])),
            [top, left, bottom, right] => Ok(Padding::Explicit([top, left, bottom, right])),
            _ => Err("`padding` must be \"same\", one whole number, two, or four (top, left, bottom, right)".into()),
        },
    }
}

/// Reads the options of a pooling layer.
fn pool(function: &'static str, options: Map) -> Fallible<Pool2d> {
    let mut options = FunctionOptions::new(function, options);
    let kernel = options.required_sizes("kernel")?;
    let pool = Pool2d {
        kernel,
        stride: options.sizes("stride")?.unwrap_or(kernel),
        padding: options.sizes("padding")?.unwrap_or([0; 2]),
        ceil_mode: options.flag("ceil_mode", false)?,
    };
    options.finish()?;
    Ok(pool)
}

#[export_module]
pub(super) mod functions {
    /// Two-dimensional convolution of `N,C,H,W` with the weights `<name>.weight` and `<name>.bias`. Options: `out`
    /// (output channels), `kernel`, and as in PyTorch, with their defaults, `stride` (1), `padding` (0; or "same" for
    /// TensorFlow's padding; or top, left, bottom, right), `dilation` (1), `groups` (1; the number of channels makes
    /// the convolution depthwise), `bias` (true).
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,32,32,f32");
    /// x = x.conv2d("expand", #{out: 64, kernel: 1, bias: false});
    /// x = x.conv2d("depthwise", #{out: 64, kernel: 3, stride: 2, padding: "same", groups: 64});
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn conv2d(x: Node, name: &str, options: Map) -> Fallible<Node> {
        let mut options = FunctionOptions::for_layer("conv2d", name, options);
        let conv = Conv2d {
            in_channels: x.dimension(name, 1, "the number of channels")?,
            out_channels: options.required_size("out")?,
            kernel: options.required_sizes("kernel")?,
            stride: options.sizes("stride")?.unwrap_or([1; 2]),
            padding: padding(&mut options)?,
            dilation: options.sizes("dilation")?.unwrap_or([1; 2]),
            groups: options.size("groups")?.unwrap_or(1),
            bias: options.flag("bias", true)?,
        };
        options.finish()?;
        x.add_layer(|builder, x| layers::conv2d(builder, name, x, conv))
    }

    /// Batch normalisation over dimension 1 with the weights `<name>.weight`, `.bias`, `.running_mean` and
    /// `.running_var`.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,32,32,f32").batch_norm("bn1");
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn batch_norm(x: Node, name: &str) -> Fallible<Node> {
        batch_norm_with(x, name, Map::new())
    }

    /// Batch normalisation with options, with their defaults: `eps` (1e-5), `momentum` (0.1, as PyTorch defines it).
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,32,32,f32").batch_norm("bn1", #{eps: 1e-3});
    /// ```
    #[rhai_fn(name = "batch_norm", global, return_raw)]
    pub fn batch_norm_with(x: Node, name: &str, options: Map) -> Fallible<Node> {
        let mut options = FunctionOptions::for_layer("batch_norm", name, options);
        let default = BatchNorm::default();
        let norm = BatchNorm {
            eps: options.number("eps")?.map_or(default.eps, |eps| eps as f32),
            momentum: options.number("momentum")?.map_or(default.momentum, |momentum| momentum as f32),
        };
        options.finish()?;
        x.add_layer(|builder, x| layers::batch_norm(builder, name, x, norm))
    }

    /// Layer normalisation over the last dimension with the weights `<name>.weight` and `<name>.bias`.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").layer_norm("norm");
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn layer_norm(x: Node, name: &str) -> Fallible<Node> {
        layer_norm_with(x, name, Map::new())
    }

    /// Layer normalisation with options, with their defaults: `dims` (1: the number of trailing dimensions), `eps`
    /// (1e-5).
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").layer_norm("norm", #{dims: 2, eps: 1e-6});
    /// ```
    #[rhai_fn(name = "layer_norm", global, return_raw)]
    pub fn layer_norm_with(x: Node, name: &str, options: Map) -> Fallible<Node> {
        let mut options = FunctionOptions::for_layer("layer_norm", name, options);
        let dims = options.size("dims")?.unwrap_or(1);
        let eps = options.number("eps")?.unwrap_or(1e-5) as f32;
        options.finish()?;
        x.add_layer(|builder, x| layers::layer_norm(builder, name, x, dims, eps))
    }

    /// Fully connected layer over the last dimension with the weights `<name>.weight` (`out,in`) and `<name>.bias`.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,64,f32").linear("fc", 10);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn linear(x: Node, name: &str, out: i64) -> Fallible<Node> {
        linear_with(x, name, out, Map::new())
    }

    /// Fully connected layer with the option `bias` (default true).
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,64,f32").linear("fc", 10, #{bias: false});
    /// ```
    #[rhai_fn(name = "linear", global, return_raw)]
    pub fn linear_with(x: Node, name: &str, out: i64, options: Map) -> Fallible<Node> {
        let mut options = FunctionOptions::for_layer("linear", name, options);
        let linear = Linear {
            in_features: x.dimension(name, x.var.spec().dims.len().saturating_sub(1), "the number of features")?,
            out_features: size("`out`", out)?,
            bias: options.flag("bias", true)?,
        };
        options.finish()?;
        x.add_layer(|builder, x| layers::linear(builder, name, x, linear))
    }

    /// Looks up rows of the table `<name>.weight` (`count,width`, f32) by index.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("tokens", "N,512,i64").embedding("word", 1000, 64);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn embedding(x: Node, name: &str, count: i64, width: i64) -> Fallible<Node> {
        let table = [size("`count`", count)?, size("`width`", width)?];
        x.add_layer(|builder, x| layers::embedding(builder, name, x, table, flagperf_onnx::DType::F32))
    }

    /// Takes the maximum of each window of `N,C,H,W`. Options: `kernel`, and as in PyTorch, with their defaults,
    /// `stride` (the kernel), `padding` (0), `ceil_mode` (false).
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,32,32,f32").max_pool2d(#{kernel: 3, stride: 2, padding: 1});
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn max_pool2d(x: Node, options: Map) -> Fallible<Node> {
        let pool = pool("max_pool2d", options)?;
        x.numbered_layer("max_pool", |builder, name, x| layers::max_pool2d(builder, name, x, pool))
    }

    /// Takes the mean of each window of `N,C,H,W`, with the options of `max_pool2d`. Padding counts as zeros.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,3,32,32,f32").avg_pool2d(#{kernel: 2});
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn avg_pool2d(x: Node, options: Map) -> Fallible<Node> {
        let pool = pool("avg_pool2d", options)?;
        x.numbered_layer("avg_pool", |builder, name, x| layers::avg_pool2d(builder, name, x, pool))
    }

    /// Takes the mean of each channel: `N,C,H,W` becomes `N,C,1,1`.
    ///
    /// ```rhai
    /// // Squeeze and excitation: each channel is scaled by a factor computed from the whole image.
    /// let x = nn::graph("small").input("x", "N,16,32,32,f32");
    /// let s = x.global_avg_pool().conv2d("fc1", #{out: 4, kernel: 1}).relu().conv2d("fc2", #{out: 16, kernel: 1});
    /// x = x * s.sigmoid();
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn global_avg_pool(x: Node) -> Fallible<Node> {
        x.numbered_layer("global_pool", layers::global_avg_pool)
    }
}
