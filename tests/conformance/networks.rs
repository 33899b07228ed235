//! Small networks with the architectures that cases use.

use flagperf_core::tensor::DType;
use flagperf_onnx::layers::{
    BatchNorm, Conv2d, Linear, Padding, Pool2d, add, batch_norm, conv2d, flatten, global_avg_pool, linear, max_pool2d,
    mul, relu, relu6, sigmoid, silu,
};
use flagperf_onnx::{BuildError, Graph, GraphBuilder, Var};

use crate::graphs::unary;

/// Builds a residual network: stem, a plain block, a downsampling block, a classifier.
pub fn residual(dtype: DType) -> Graph {
    unary(&format!("N,3,17,19,{dtype}"), |g, x| {
        let stem = Conv2d { stride: [2; 2], padding: Padding::Symmetric([3; 2]), bias: false, ..Conv2d::new(3, 8, 7) };
        let x = conv_and_norm(g, "conv1", x, stem)?;
        let x = relu(g, "relu", &x)?;
        let pool = Pool2d { stride: [2; 2], padding: [1; 2], ..Pool2d::new(3) };
        let x = max_pool2d(g, "maxpool", &x, pool)?;
        let x = block(g, "layer1", &x, 8, 8, 1)?;
        let x = block(g, "layer2", &x, 8, 16, 2)?;
        let x = global_avg_pool(g, "avgpool", &x)?;
        let x = flatten(g, "flatten", &x, 1)?;
        linear(g, "fc", &x, Linear::new(16, 10))
    })
}

fn block(g: &mut GraphBuilder, name: &str, x: &Var, from: usize, to: usize, stride: usize) -> Result<Var, BuildError> {
    let three = |from| Conv2d { padding: Padding::Symmetric([1; 2]), bias: false, ..Conv2d::new(from, to, 3) };
    let y = conv_and_norm(g, &format!("{name}.conv1"), x, Conv2d { stride: [stride; 2], ..three(from) })?;
    let y = relu(g, &format!("{name}.relu1"), &y)?;
    let y = conv_and_norm(g, &format!("{name}.conv2"), &y, three(to))?;
    let shortcut = if from == to {
        x.clone()
    } else {
        let one = Conv2d { stride: [stride; 2], bias: false, ..Conv2d::new(from, to, 1) };
        conv_and_norm(g, &format!("{name}.downsample"), x, one)?
    };
    let y = add(g, &format!("{name}.add"), &y, &shortcut)?;
    relu(g, &format!("{name}.relu2"), &y)
}

/// Builds a network like MobileNet and EfficientNet: depthwise convolutions, squeeze and excitation, a linear
/// bottleneck.
pub fn depthwise(dtype: DType) -> Graph {
    unary(&format!("N,3,16,16,{dtype}"), |g, x| {
        let stem = Conv2d { stride: [2; 2], padding: Padding::Same, bias: false, ..Conv2d::new(3, 8, 3) };
        let x = conv_and_norm(g, "stem", x, stem)?;
        let x = silu(g, "stem.silu", &x)?;
        let expanded = conv_and_norm(g, "expand", &x, Conv2d { bias: false, ..Conv2d::new(8, 24, 1) })?;
        let expanded = relu6(g, "expand.relu6", &expanded)?;
        let per_channel =
            Conv2d { padding: Padding::Symmetric([2; 2]), groups: 24, bias: false, ..Conv2d::new(24, 24, 5) };
        let y = conv_and_norm(g, "depthwise", &expanded, per_channel)?;
        let y = silu(g, "depthwise.silu", &y)?;
        let y = squeeze_excite(g, "se", &y, 24, 6)?;
        let y = conv_and_norm(g, "project", &y, Conv2d { bias: false, ..Conv2d::new(24, 8, 1) })?;
        let x = add(g, "residual", &x, &y)?;
        let x = global_avg_pool(g, "pool", &x)?;
        let x = flatten(g, "flatten", &x, 1)?;
        linear(g, "fc", &x, Linear::new(8, 10))
    })
}

fn squeeze_excite(
    g: &mut GraphBuilder,
    name: &str,
    x: &Var,
    channels: usize,
    squeezed: usize,
) -> Result<Var, BuildError> {
    let s = global_avg_pool(g, &format!("{name}.pool"), x)?;
    let s = conv2d(g, &format!("{name}.reduce"), &s, Conv2d::new(channels, squeezed, 1))?;
    let s = silu(g, &format!("{name}.silu"), &s)?;
    let s = conv2d(g, &format!("{name}.expand"), &s, Conv2d::new(squeezed, channels, 1))?;
    let s = sigmoid(g, &format!("{name}.sigmoid"), &s)?;
    mul(g, &format!("{name}.scale"), x, &s)
}

fn conv_and_norm(g: &mut GraphBuilder, name: &str, x: &Var, conv: Conv2d) -> Result<Var, BuildError> {
    let x = conv2d(g, name, x, conv)?;
    batch_norm(g, &format!("{name}.bn"), &x, BatchNorm::default())
}
