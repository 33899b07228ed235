//! Networks that the tests and the example build, with the layers and names of torchvision's networks.

use flagperf_onnx::layers::{
    BatchNorm, Conv2d, Linear, Padding, Pool2d, add, batch_norm, conv2d, dropout, flatten, global_avg_pool, linear,
    max_pool2d, mul, relu, relu6, sigmoid, silu,
};
use flagperf_onnx::{BuildError, Graph, GraphBuilder, Var};

/// Builds torchvision's `resnet50`, with 25,557,032 parameters.
pub fn resnet50() -> Result<Graph, BuildError> {
    let mut b = GraphBuilder::new("resnet50");
    let images = b.input("images", "N,3,224,224,f32".parse().expect("a specification"))?;
    let x = conv_bn(&mut b, ["conv1", "bn1"], &images, conv(3, 64, 7, 2))?;
    let x = relu(&mut b, "relu", &x)?;
    let pool = Pool2d { stride: [2; 2], padding: [1; 2], ..Pool2d::new(3) };
    let mut x = max_pool2d(&mut b, "maxpool", &x, pool)?;
    for (stage, (blocks, width, stride)) in [(3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)].into_iter().enumerate()
    {
        for block in 0..blocks {
            let stride = if block == 0 { stride } else { 1 };
            x = bottleneck(&mut b, &format!("layer{}.{block}", stage + 1), &x, width, stride)?;
        }
    }
    let x = global_avg_pool(&mut b, "avgpool", &x)?;
    let x = flatten(&mut b, "flatten", &x, 1)?;
    let logits = linear(&mut b, "fc", &x, Linear::new(2048, 1000))?;
    b.output("logits", &logits)?;
    b.finish()
}

/// Builds a small network with the additional layers of depthwise and squeeze-excite networks.
pub fn squeeze_excite() -> Result<Graph, BuildError> {
    let mut b = GraphBuilder::new("squeeze_excite");
    let images = b.input("images", "N,3,33,33,f32".parse().expect("a specification"))?;
    let stem = Conv2d { stride: [2; 2], padding: Padding::Same, bias: false, ..Conv2d::new(3, 16, 3) };
    let x = conv_bn(&mut b, ["stem.conv", "stem.bn"], &images, stem)?;
    let x = relu6(&mut b, "stem.act", &x)?;
    let depthwise = Conv2d { groups: 16, padding: Padding::Same, bias: false, ..Conv2d::new(16, 16, 5) };
    let y = conv_bn(&mut b, ["block.depthwise", "block.bn"], &x, depthwise)?;
    let y = silu(&mut b, "block.act", &y)?;
    let squeezed = global_avg_pool(&mut b, "block.se.pool", &y)?;
    let squeezed = conv2d(&mut b, "block.se.reduce", &squeezed, Conv2d::new(16, 4, 1))?;
    let squeezed = relu(&mut b, "block.se.relu", &squeezed)?;
    let squeezed = conv2d(&mut b, "block.se.expand", &squeezed, Conv2d::new(4, 16, 1))?;
    let gate = sigmoid(&mut b, "block.se.gate", &squeezed)?;
    let y = mul(&mut b, "block.se.scale", &y, &gate)?;
    let y = add(&mut b, "block.add", &x, &y)?;
    let y = global_avg_pool(&mut b, "pool", &y)?;
    let y = flatten(&mut b, "flatten", &y, 1)?;
    let y = dropout(&mut b, "dropout", &y, 0.2)?;
    let logits = linear(&mut b, "fc", &y, Linear::new(16, 10))?;
    b.output("features", &x)?;
    b.output("logits", &logits)?;
    b.finish()
}

fn bottleneck(b: &mut GraphBuilder, name: &str, x: &Var, width: usize, stride: usize) -> Result<Var, BuildError> {
    let channels = b.spec(x).dims[1].fixed().expect("the channels of a built value are known");
    let part = |part: &str| format!("{name}.{part}");
    let y = conv_bn(b, [&part("conv1"), &part("bn1")], x, conv(channels, width, 1, 1))?;
    let y = relu(b, &part("relu1"), &y)?;
    let y = conv_bn(b, [&part("conv2"), &part("bn2")], &y, conv(width, width, 3, stride))?;
    let y = relu(b, &part("relu2"), &y)?;
    let y = conv_bn(b, [&part("conv3"), &part("bn3")], &y, conv(width, 4 * width, 1, 1))?;
    let skip = if stride != 1 || channels != 4 * width {
        conv_bn(b, [&part("downsample.0"), &part("downsample.1")], x, conv(channels, 4 * width, 1, stride))?
    } else {
        x.clone()
    };
    let y = add(b, &part("add"), &y, &skip)?;
    relu(b, &part("relu3"), &y)
}

fn conv(channels: usize, out: usize, kernel: usize, stride: usize) -> Conv2d {
    let padding = Padding::Symmetric([kernel / 2; 2]);
    Conv2d { stride: [stride; 2], padding, bias: false, ..Conv2d::new(channels, out, kernel) }
}

fn conv_bn(b: &mut GraphBuilder, [conv_name, norm_name]: [&str; 2], x: &Var, conv: Conv2d) -> Result<Var, BuildError> {
    let y = conv2d(b, conv_name, x, conv)?;
    batch_norm(b, norm_name, &y, BatchNorm::default())
}
