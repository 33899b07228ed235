//! The operators that cases use, each in its own graph.

use flagperf_core::tensor::{DType, Tensor};
use flagperf_onnx::layers::{self, Attention, Conv2d, Linear, Padding, Pool2d, RotaryAngles};
use flagperf_onnx::{Attribute, BuildError, Graph, GraphBuilder, Var};

use crate::graphs::{binary, build, spec, unary};

type Make = fn() -> Graph;

const IMAGE: &str = "N,6,9,11,f32";
const TOKENS: &str = "N,5,8,f32";

pub const OPERATORS: &[(&str, Make)] = &[
    ("Conv", || conv(Conv2d::new(6, 4, 3))),
    ("Conv, 1x1", || conv(Conv2d { bias: false, ..Conv2d::new(6, 12, 1) })),
    ("Conv, strided and padded", || {
        conv(Conv2d { stride: [2, 3], padding: Padding::Symmetric([1, 2]), ..Conv2d::new(6, 4, 3) })
    }),
    ("Conv, padded on one side", || conv(Conv2d { padding: Padding::Explicit([0, 1, 2, 0]), ..Conv2d::new(6, 4, 3) })),
    ("Conv, dilated", || conv(Conv2d { dilation: [2, 3], ..Conv2d::new(6, 4, 3) })),
    ("Conv, grouped", || conv(Conv2d { groups: 3, ..Conv2d::new(6, 9, 3) })),
    ("Conv, depthwise", || conv(Conv2d { groups: 6, padding: Padding::Same, stride: [2; 2], ..Conv2d::new(6, 6, 5) })),
    ("Conv, depthwise to more channels", || conv(Conv2d { groups: 6, ..Conv2d::new(6, 12, 3) })),
    ("BatchNormalization", || unary(IMAGE, |g, x| layers::batch_norm(g, "bn", x, Default::default()))),
    ("LayerNormalization", || unary(TOKENS, |g, x| layers::layer_norm(g, "norm", x, 1, 1e-5))),
    ("MaxPool", || pool(layers::max_pool2d, Pool2d::new(2))),
    ("MaxPool, padded", || pool(layers::max_pool2d, Pool2d { stride: [2; 2], padding: [1; 2], ..Pool2d::new(3) })),
    ("MaxPool, past the edge", || pool(layers::max_pool2d, Pool2d { ceil_mode: true, ..Pool2d::new(2) })),
    ("AveragePool", || pool(layers::avg_pool2d, Pool2d::new(2))),
    ("AveragePool, padded", || pool(layers::avg_pool2d, Pool2d { stride: [1; 2], padding: [1; 2], ..Pool2d::new(3) })),
    ("GlobalAveragePool", || unary(IMAGE, |g, x| layers::global_avg_pool(g, "pool", x))),
    ("Gemm", || unary("N,8,f32", |g, x| layers::linear(g, "fc", x, Linear::new(8, 5)))),
    ("Gemm, without bias", || {
        unary("N,8,f32", |g, x| layers::linear(g, "fc", x, Linear { bias: false, ..Linear::new(8, 5) }))
    }),
    ("MatMul and Add", || unary(TOKENS, |g, x| layers::linear(g, "fc", x, Linear::new(8, 3)))),
    ("MatMul, batched", || binary(["N,2,5,8,f32", "N,2,8,3,f32"], |g, a, b| layers::matmul(g, "matmul", a, b))),
    ("Attention", || attention(None)),
    ("Attention, masked by sample", || attention(Some("N,1,1,5,f32"))),
    ("Attention, masked by head", || attention(Some("2,4,5,f32"))),
    ("Attention as one operator", || whole_attention(None, false)),
    ("Attention as one operator, masked", || whole_attention(Some("N,1,4,9,f32"), false)),
    ("Attention as one operator, causal", || whole_attention(None, true)),
    ("Attention as one operator, heads side by side", || {
        unary("N,5,24,f32", |g, x| {
            let operands = Attention { heads: Some([3, 3]), ..attention_of(x, x, x) };
            Ok(layers::attention(g, "attention", operands)?[0].clone())
        })
    }),
    ("RMSNormalization", || unary(TOKENS, |g, x| layers::rms_norm(g, "norm", x, 1e-5))),
    ("RotaryEmbedding", || {
        binary(["N,2,5,8,f32", "N,5,i64"], |g, x, positions| {
            let angles = RotaryAngles { positions: 16, width: 8, theta: 100.0, interleaved: false, scaling: None };
            let rotary = layers::rotary(g, "rotary", positions, angles)?;
            layers::rotate(g, "rotated", x, &rotary)
        })
    }),
    ("Attention, one head, scaled inputs", || {
        binary([TOKENS, TOKENS], |g, q, kv| {
            let q = layers::scale(g, "scaled_q", q, 0.6)?;
            let k = layers::transpose(g, "transposed", kv, &[0, 2, 1])?;
            let k = layers::scale(g, "scaled_k", &k, 0.6)?;
            let scores = layers::matmul(g, "scores", &q, &k)?;
            let weights = layers::softmax(g, "weights", &scores, -1)?;
            layers::matmul(g, "attention", &weights, kv)
        })
    }),
    ("Relu", || unary(IMAGE, |g, x| layers::relu(g, "relu", x))),
    ("Clip", || {
        unary(IMAGE, |g, x| {
            let x = layers::scale(g, "scale", x, 5.0)?;
            layers::relu6(g, "relu6", &x)
        })
    }),
    ("LeakyRelu", || unary(IMAGE, |g, x| layers::leaky_relu(g, "leaky", x, 0.2))),
    ("Sigmoid", || unary(IMAGE, |g, x| layers::sigmoid(g, "sigmoid", x))),
    ("Sigmoid and Mul", || unary(IMAGE, |g, x| layers::silu(g, "silu", x))),
    ("HardSigmoid", || unary(IMAGE, |g, x| layers::hard_sigmoid(g, "hard", x))),
    ("HardSwish", || unary(IMAGE, |g, x| layers::hard_swish(g, "hard", x))),
    ("Tanh", || unary(IMAGE, |g, x| layers::tanh(g, "tanh", x))),
    ("Erf", || unary(TOKENS, |g, x| layers::gelu(g, "gelu", x))),
    ("Softmax", || unary(TOKENS, |g, x| layers::softmax(g, "softmax", x, -1))),
    ("Softmax, middle axis", || unary(TOKENS, |g, x| layers::softmax(g, "softmax", x, 1))),
    ("LogSoftmax", || unary(TOKENS, |g, x| layers::log_softmax(g, "softmax", x, -1))),
    ("Add, broadcast", || binary([IMAGE, "N,6,1,1,f32"], |g, a, b| layers::add(g, "add", a, b))),
    ("Sub", || binary([TOKENS, "8,f32"], |g, a, b| layers::sub(g, "sub", a, b))),
    ("Mul, broadcast", || binary([IMAGE, "N,6,1,1,f32"], |g, a, b| layers::mul(g, "mul", a, b))),
    ("Div", || {
        unary(TOKENS, |g, x| {
            let below = layers::sigmoid(g, "below", x)?;
            layers::div(g, "div", x, &below)
        })
    }),
    ("Concat", || binary([IMAGE, "N,2,9,11,f32"], |g, a, b| layers::concat(g, "concat", &[a, b], 1))),
    ("ReduceMean", || unary(IMAGE, |g, x| layers::mean(g, "mean", x, &[2, 3], false))),
    ("ReduceMean, dimensions kept", || unary(TOKENS, |g, x| layers::mean(g, "mean", x, &[-1], true))),
    ("Flatten", || unary(IMAGE, |g, x| layers::flatten(g, "flatten", x, 1))),
    ("Reshape", || unary(TOKENS, |g, x| layers::reshape(g, "reshape", x, &[0, -1, 2, 4]))),
    ("Transpose", || unary(IMAGE, |g, x| layers::transpose(g, "transpose", x, &[0, 2, 3, 1]))),
    ("Dropout", || {
        unary(TOKENS, |g, x| {
            let x = layers::relu(g, "relu", x)?;
            layers::dropout(g, "dropout", &x, 0.3)
        })
    }),
    ("Gather", || unary("N,5,i64", |g, x| layers::embedding(g, "table", x, [7, 4], DType::F32))),
    ("ArgMax", || unary(TOKENS, |g, x| single_output_node(g, "ArgMax", &[x], &[("axis", 2), ("keepdims", 0)]))),
    ("Greater", || binary([TOKENS, TOKENS], |g, a, b| single_output_node(g, "Greater", &[a, b], &[]))),
    ("Where", || {
        build("where", |g| {
            let condition = g.input("condition", spec("N,5,8,bool"))?;
            let [a, b] = ["a", "b"].map(|name| g.input(name, spec(TOKENS)).unwrap());
            let y = single_output_node(g, "Where", &[&condition, &a, &b], &[])?;
            g.output("y", &y)
        })
    }),
    ("Slice", || {
        unary(TOKENS, |g, x| {
            let [from, to, axis] =
                [("from", 1), ("to", 4), ("axis", 1)].map(|(name, value)| integer_list(g, name, value));
            single_output_node(g, "Slice", &[x, &from, &to, &axis], &[])
        })
    }),
    ("Pad", || {
        unary(IMAGE, |g, x| {
            let pads = Tensor::from_vec([8], vec![0i64, 0, 1, 2, 0, 0, 0, 1]).unwrap();
            let pads = g.constant("pads", pads)?;
            single_output_node(g, "Pad", &[x, &pads], &[])
        })
    }),
    ("Split", || {
        build("split", |g| {
            let x = g.input("x", spec(IMAGE))?;
            let attributes = [("axis".to_owned(), Attribute::Int(1))].into_iter().collect();
            let sizes = g.constant("sizes", Tensor::from_vec([2], vec![2i64, 4]).unwrap())?;
            let parts = g.node("split", "Split", &[Some(&x), Some(&sizes)], attributes, 2)?;
            g.output("first", &parts[0])?;
            g.output("second", &parts[1])
        })
    }),
    ("Cast", || unary("N,5,i64", |g, x| single_output_node(g, "Cast", &[x], &[("to", 1)]))),
    ("Unsqueeze", || {
        unary(TOKENS, |g, x| {
            let axis = integer_list(g, "axis", 1);
            single_output_node(g, "Unsqueeze", &[x, &axis], &[])
        })
    }),
    ("Shape, Gather and Reshape", || {
        unary(TOKENS, |g, x| {
            let shape = single_output_node(g, "Shape", &[x], &[])?;
            let batch = integer_list(g, "first", 0);
            let rows = single_output_node(g, "Gather", &[&shape, &batch], &[("axis", 0)])?;
            let rest = integer_list(g, "rest", 40);
            let target = layers::concat(g, "target", &[&rows, &rest], 0)?;
            single_output_node(g, "Reshape", &[x, &target], &[])
        })
    }),
];

fn conv(conv: Conv2d) -> Graph {
    unary(IMAGE, |g, x| layers::conv2d(g, "conv", x, conv))
}

type Pooling = fn(&mut GraphBuilder, &str, &Var, Pool2d) -> Result<Var, BuildError>;

fn pool(layer: Pooling, pool: Pool2d) -> Graph {
    unary(IMAGE, |g, x| layer(g, "pool", x, pool))
}

/// Builds an attention of two heads as exporters write it: k and v are `N,S,H,E`; the scores are scaled and then
/// masked.
fn attention(mask: Option<&str>) -> Graph {
    build("attention", |g| {
        let [q, k, v] = [("q", "N,2,4,8,f32"), ("k", "N,5,2,8,f32"), ("v", "N,5,2,3,f32")]
            .map(|(name, sizes)| g.input(name, spec(sizes)).unwrap());
        let k = layers::transpose(g, "transposed_k", &k, &[0, 2, 3, 1])?;
        let v = layers::transpose(g, "transposed_v", &v, &[0, 2, 1, 3])?;
        let scores = layers::matmul(g, "scores", &q, &k)?;
        let mut scores = layers::scale(g, "scaled", &scores, 0.35)?;
        if let Some(mask) = mask {
            let mask = g.input("mask", spec(mask))?;
            scores = layers::add(g, "masked", &scores, &mask)?;
        }
        let weights = layers::softmax(g, "weights", &scores, -1)?;
        let y = layers::matmul(g, "attention", &weights, &v)?;
        g.output("y", &y)
    })
}

fn attention_of<'a>(q: &'a Var, k: &'a Var, v: &'a Var) -> Attention<'a> {
    Attention { q, k, v, mask: None, past: None, heads: None, scale: None, causal: false }
}

/// An attention with shared heads and the keys of earlier positions, which are outputs, too.
fn whole_attention(mask: Option<&str>, causal: bool) -> Graph {
    build("attention", |g| {
        let [q, k, v] = [("q", "N,4,4,8,f32"), ("k", "N,2,4,8,f32"), ("v", "N,2,4,8,f32")]
            .map(|(name, sizes)| g.input(name, spec(sizes)).unwrap());
        let past = ["past_k", "past_v"].map(|name| g.input(name, spec("N,2,5,8,f32")).unwrap());
        let mask = mask.map(|mask| g.input("mask", spec(mask))).transpose()?;
        let past = Some([&past[0], &past[1]]);
        let operands = Attention { mask: mask.as_ref(), past, causal, ..attention_of(&q, &k, &v) };
        for (name, value) in ["y", "present_k", "present_v"].iter().zip(layers::attention(g, "attention", operands)?) {
            g.output(name, &value)?;
        }
        Ok(())
    })
}

/// Adds a node with integer attributes and one output, named after its operator.
fn single_output_node(
    g: &mut GraphBuilder,
    op: &str,
    inputs: &[&Var],
    attributes: &[(&str, i64)],
) -> Result<Var, BuildError> {
    let inputs: Vec<Option<&Var>> = inputs.iter().copied().map(Some).collect();
    let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), Attribute::Int(*value))).collect();
    Ok(g.node(&op.to_lowercase(), op, &inputs, attributes, 1)?.remove(0))
}

/// Adds a constant list of one integer.
fn integer_list(g: &mut GraphBuilder, name: &str, value: i64) -> Var {
    g.constant(name, Tensor::from_vec([1], vec![value]).unwrap()).unwrap()
}
