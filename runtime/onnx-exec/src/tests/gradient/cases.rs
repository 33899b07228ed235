//! The uses of operators whose gradients are tested. Inputs keep away from places without a derivative.

use flagperf_onnx::{DType, Tensor};

use super::{Case, case};

fn bools(values: &[u8]) -> Tensor {
    Tensor::from_vec([values.len()], values.to_vec()).unwrap().cast(DType::Bool)
}

fn indices(shape: &[usize], values: &[i64]) -> Tensor {
    Tensor::from_vec(shape, values.to_vec()).unwrap()
}

/// Every case.
pub(super) fn all() -> Vec<Case> {
    let groups = [
        elementwise(),
        binary(),
        matrices(),
        shapes(),
        selections(),
        reductions(),
        windows(),
        composites(),
        sampled(),
        recurrent(),
    ];
    groups.into_iter().flatten().collect()
}

fn elementwise() -> Vec<Case> {
    let plain = [
        "Abs",
        "Cos",
        "Elu",
        "Erf",
        "Exp",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "LeakyRelu",
        "Mish",
        "Neg",
        "Relu",
        "Sigmoid",
        "Sin",
        "Softplus",
        "Tanh",
        "Gelu",
        "Softsign",
    ];
    let flat = ["Ceil", "Floor", "Round", "Sign"];
    let positive = ["Log", "Reciprocal", "Sqrt"];
    let plain = plain.map(|op| case(op).x(&[2, 7]));
    let flat = flat.map(|op| case(op).within(&[5], 0.1, 0.4));
    let positive = positive.map(|op| case(op).within(&[2, 3], 0.5, 3.0));
    let others = vec![
        case("Gelu").x(&[6]).text("approximate", "tanh"),
        case("Swish").x(&[6]),
        case("Celu").x(&[6]),
        case("HardSwish").within(&[9], -5.0, 5.0),
        case("Clip").x(&[7]).number(-1.0).number(0.5),
        case("Cast").x(&[3]).int("to", 11),
        case("Dropout").x(&[3]),
        case("CumSum").x(&[2, 4]).constant(Tensor::scalar(1i64)),
        case("CumSum").x(&[2, 4]).constant(Tensor::scalar(0i64)).int("exclusive", 1).int("reverse", 1),
        case("Softmax").x(&[2, 4]),
        case("Softmax").x(&[2, 4, 3]).int("axis", 1),
        case("LogSoftmax").x(&[2, 4]),
        case("PRelu").x(&[2, 3, 2]).x(&[3, 1]),
    ];
    plain.into_iter().chain(flat).chain(positive).chain(others).collect()
}

fn binary() -> Vec<Case> {
    vec![
        case("Add").x(&[2, 3]).x(&[3]),
        case("Sub").x(&[2, 1, 3]).x(&[4, 1]),
        case("Mul").x(&[2, 3]).x(&[2, 1]),
        case("Div").x(&[2, 3]).within(&[3], 0.5, 2.0),
        case("Pow").within(&[2, 3], 0.5, 2.0).x(&[3]),
        case("Pow").x(&[4]).number(3.0),
        case("Max").x(&[2, 3]).x(&[3]).x(&[1]),
        case("Min").x(&[2, 3]).x(&[2, 1]),
        case("Mean").x(&[2, 3]).x(&[3]),
        case("Sum").x(&[2, 3]).x(&[2, 1]).x(&[1]),
        case("Where").constant(bools(&[1, 0, 1])).x(&[2, 3]).x(&[3]),
    ]
}

fn matrices() -> Vec<Case> {
    vec![
        case("MatMul").x(&[2, 3]).x(&[3, 4]),
        case("MatMul").x(&[2, 2, 3]).x(&[3, 4]),
        case("MatMul").x(&[2, 1, 2, 3]).x(&[3, 3, 2]),
        case("Gemm").x(&[2, 3]).x(&[3, 4]).x(&[4]),
        case("Gemm")
            .x(&[3, 2])
            .x(&[4, 3])
            .x(&[2, 1])
            .int("transA", 1)
            .int("transB", 1)
            .with("alpha", flagperf_onnx::Attribute::Float(0.5)),
        case("Gemm").x(&[2, 3]).x(&[4, 3]).x(&[4]).int("transB", 1).with("beta", flagperf_onnx::Attribute::Float(2.0)),
        case("Gemm").x(&[3, 2]).x(&[3, 4]).int("transA", 1),
        case("Einsum").x(&[2, 3, 4]).x(&[2, 5, 4]).text("equation", "bik,bjk->bij"),
        case("Einsum").x(&[2, 3]).x(&[3]).x(&[2]).text("equation", "ij, j, i -> i"),
    ]
}

fn shapes() -> Vec<Case> {
    vec![
        case("Reshape").x(&[2, 6]).list(&[3, -1]),
        case("Flatten").x(&[2, 3, 2]),
        case("Squeeze").x(&[2, 1, 3]).list(&[1]),
        case("Unsqueeze").x(&[2, 3]).list(&[0]),
        case("Transpose").x(&[2, 3, 4]).ints("perm", &[2, 0, 1]),
        case("Transpose").x(&[2, 3]),
        case("Expand").x(&[3, 1]).list(&[2, 3, 4]),
        case("Tile").x(&[2, 3]).list(&[2, 3]),
        case("Concat").x(&[2, 3]).x(&[2, 1]).int("axis", -1),
        case("Split").x(&[2, 6]).list(&[1, 2, 3]).int("axis", 1).outputs(3, 1),
        case("Slice").x(&[5, 4]).list(&[1]).list(&[4]).list(&[0]),
        case("Slice").x(&[5, 4]).list(&[0, -1]).list(&[5, -9]).list(&[0, 1]).list(&[2, -1]),
        case("Pad").x(&[2, 3]).list(&[1, 0, 0, 2]),
        case("Trilu").x(&[3, 4]).int("upper", 0),
        case("DepthToSpace").x(&[1, 8, 2, 3]).int("blocksize", 2),
        case("DepthToSpace").x(&[1, 8, 2, 3]).int("blocksize", 2).text("mode", "CRD"),
        case("SpaceToDepth").x(&[1, 2, 4, 6]).int("blocksize", 2),
    ]
}

fn selections() -> Vec<Case> {
    vec![
        case("Gather").x(&[4, 3]).constant(indices(&[2, 2], &[0, 2, 2, -1])),
        case("Gather").x(&[2, 4, 3]).constant(indices(&[3], &[1, 1, 3])).int("axis", 1),
        case("GatherElements").x(&[3, 3]).constant(indices(&[2, 3], &[0, 1, 2, 0, 0, 1])),
        case("GatherND").x(&[3, 3]).constant(indices(&[2, 2], &[0, 1, 2, 2])),
        case("TopK").x(&[2, 5]).list(&[2]).outputs(2, 0),
        case("TopK").x(&[5, 2]).list(&[3]).int("axis", 0).int("largest", 0).outputs(2, 0),
        case("ScatterElements").x(&[3, 3]).constant(indices(&[2, 3], &[0, 1, 2, 2, 0, 1])).x(&[2, 3]),
        case("ScatterElements")
            .x(&[3, 3])
            .constant(indices(&[2, 3], &[0, 0, 0, 0, 1, 1]))
            .x(&[2, 3])
            .text("reduction", "add"),
        case("ScatterND").x(&[4, 2]).constant(indices(&[2, 1], &[3, 1])).x(&[2, 2]),
    ]
}

fn reductions() -> Vec<Case> {
    let kinds = [
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceSum",
        "ReduceSumSquare",
    ];
    let all = kinds.iter().map(|op| case(op).x(&[2, 3, 4]));
    let some = kinds.iter().map(|op| case(op).x(&[2, 3, 4]).list(&[-1, 0]).int("keepdims", 0));
    let others = [case("ReduceLogSum").within(&[2, 3], 0.5, 2.0).list(&[1])];
    all.chain(some).chain(others).collect()
}

fn windows() -> Vec<Case> {
    vec![
        case("Conv").x(&[2, 3, 5, 6]).x(&[4, 3, 3, 2]).x(&[4]),
        case("Conv").x(&[2, 2, 7, 6]).x(&[3, 2, 3, 3]).ints("strides", &[2, 2]).ints("pads", &[1, 0, 1, 1]),
        case("Conv")
            .x(&[2, 4, 6, 6])
            .x(&[6, 2, 2, 2])
            .int("group", 2)
            .ints("dilations", &[2, 1])
            .ints("strides", &[1, 2]),
        case("Conv").x(&[2, 2, 4, 6]).x(&[3, 2, 2, 3]).ints("strides", &[2, 3]),
        case("Conv").x(&[2, 4, 3, 3]).x(&[2, 2, 1, 1]).int("group", 2),
        case("Conv").x(&[1, 2, 12, 10]).x(&[2, 2, 9, 8]).ints("pads", &[1, 2, 0, 1]),
        case("Conv").x(&[1, 3, 5]).x(&[3, 1, 3]).int("group", 3).text("auto_pad", "SAME_UPPER").ints("strides", &[2]),
        case("ConvTranspose").x(&[2, 3, 3, 3]).x(&[3, 2, 3, 2]).x(&[2]),
        case("ConvTranspose")
            .x(&[2, 4, 3, 3])
            .x(&[4, 2, 3, 3])
            .int("group", 2)
            .ints("strides", &[2, 2])
            .ints("pads", &[1, 1, 1, 1])
            .ints("output_padding", &[1, 0]),
        case("MaxPool").x(&[2, 2, 5, 4]).ints("kernel_shape", &[2, 2]).ints("strides", &[2, 1]),
        case("MaxPool")
            .x(&[1, 2, 5, 5])
            .ints("kernel_shape", &[3, 3])
            .ints("strides", &[2, 2])
            .ints("pads", &[1, 1, 1, 1]),
        case("AveragePool")
            .x(&[1, 2, 5, 5])
            .ints("kernel_shape", &[3, 2])
            .ints("strides", &[2, 2])
            .ints("pads", &[1, 0, 1, 1]),
        case("AveragePool")
            .x(&[1, 2, 5])
            .ints("kernel_shape", &[2])
            .ints("strides", &[2])
            .ints("pads", &[1, 1])
            .int("count_include_pad", 1),
        case("AveragePool").x(&[1, 1, 6]).ints("kernel_shape", &[3]).ints("strides", &[2]).int("ceil_mode", 1),
        case("GlobalAveragePool").x(&[2, 3, 2, 3]),
        case("GlobalMaxPool").x(&[2, 3, 2, 3]),
    ]
}

/// Normalizations, and composite operators: the latter are decomposed, and their decompositions differentiated.
fn composites() -> Vec<Case> {
    vec![
        case("BatchNormalization")
            .x(&[2, 3, 4])
            .x(&[3])
            .x(&[3])
            .constant(list(&[0.1, -0.3, 0.5]))
            .constant(list(&[0.5, 1.0, 2.0])),
        case("LayerNormalization").x(&[2, 5]).x(&[5]).x(&[5]),
        case("LayerNormalization").x(&[2, 3, 4]).x(&[3, 4]).int("axis", 1),
        case("GroupNormalization").x(&[2, 4, 3]).x(&[2]).x(&[2]).int("num_groups", 2),
        case("InstanceNormalization").x(&[2, 3, 4]).x(&[3]).x(&[3]),
        case("RMSNormalization").x(&[2, 5]).x(&[5]),
        case("LpNormalization").x(&[2, 5]),
        case("LRN").x(&[1, 4, 3]).int("size", 3),
        case("MeanVarianceNormalization").x(&[2, 3, 2, 2]),
        case("SwiGLU").x(&[2, 6]).x(&[2, 6]),
        case("SoftmaxCrossEntropyLoss").x(&[4, 3]).constant(indices(&[4], &[0, 2, 1, 2])),
        case("SoftmaxCrossEntropyLoss")
            .x(&[3, 4, 2])
            .constant(indices(&[3, 2], &[0, 3, 1, 2, 2, 1]))
            .int("ignore_index", 2),
        case("SoftmaxCrossEntropyLoss").x(&[2, 3]).constant(indices(&[2], &[0, 2])).text("reduction", "sum"),
        case("NegativeLogLikelihoodLoss").x(&[4, 3]).constant(indices(&[4], &[0, 2, 1, 2])),
        case("Attention").x(&[1, 2, 3, 4]).x(&[1, 2, 5, 4]).x(&[1, 2, 5, 2]),
        case("Attention")
            .x(&[1, 3, 8])
            .x(&[1, 3, 4])
            .x(&[1, 3, 4])
            .int("q_num_heads", 4)
            .int("kv_num_heads", 2)
            .int("is_causal", 1),
        case("Attention").x(&[1, 2, 3, 4]).x(&[1, 2, 5, 4]).x(&[1, 2, 5, 2]).x(&[3, 5]),
        case("RotaryEmbedding").x(&[1, 2, 3, 4]).within(&[1, 3, 2], 0.1, 1.0).within(&[1, 3, 2], 0.1, 1.0).omitted(),
    ]
}

fn sampled() -> Vec<Case> {
    let scales = |scales: &[f64]| Tensor::from_vec([scales.len()], scales.to_vec()).unwrap().cast(DType::F32);
    let resize = |shape: &[usize], given: &[f64], mode: &str| {
        case("Resize").x(shape).omitted().constant(scales(given)).text("mode", mode)
    };
    let sized = |shape: &[usize], sizes: &[i64], mode: &str| {
        case("Resize").x(shape).omitted().omitted().list(sizes).text("mode", mode)
    };
    let asymmetric =
        |case: Case| case.text("coordinate_transformation_mode", "asymmetric").text("nearest_mode", "floor");
    let grid = |mode: &str, padding: &str, corners: i64| {
        let points = case("GridSample").x(&[2, 3, 4, 5]).within(&[2, 3, 2, 2], -1.7, 1.6);
        points.text("mode", mode).text("padding_mode", padding).int("align_corners", corners)
    };
    vec![
        asymmetric(resize(&[1, 2, 3, 2], &[1.0, 1.0, 2.0, 3.0], "nearest")),
        asymmetric(sized(&[1, 2, 5, 4], &[1, 2, 3, 4], "nearest")),
        resize(&[1, 2, 3, 4], &[1.0, 1.0, 2.0, 1.5], "linear"),
        sized(&[1, 1, 4, 5], &[1, 1, 7, 3], "linear").text("coordinate_transformation_mode", "align_corners"),
        sized(&[1, 1, 6, 5], &[1, 1, 3, 2], "linear").int("antialias", 1).int("exclude_outside", 1),
        sized(&[1, 1, 4, 4], &[1, 1, 6, 7], "cubic"),
        grid("linear", "zeros", 0),
        grid("linear", "border", 1),
        grid("linear", "reflection", 0),
        grid("linear", "reflection", 1),
        grid("nearest", "zeros", 0),
        grid("nearest", "border", 1),
    ]
}

fn recurrent() -> Vec<Case> {
    let layer = |op: &'static str, gates: usize, directions: usize| {
        let weights = case(op).x(&[3, 2, 4]).x(&[directions, gates * 3, 4]).x(&[directions, gates * 3, 3]);
        weights.x(&[directions, 2 * gates * 3]).omitted().int("hidden_size", 3)
    };
    vec![
        layer("LSTM", 4, 1).outputs(3, 0),
        layer("LSTM", 4, 2).x(&[2, 2, 3]).x(&[2, 2, 3]).text("direction", "bidirectional").outputs(3, 0),
        layer("LSTM", 4, 1).outputs(3, 2),
        layer("GRU", 3, 1).int("linear_before_reset", 1).outputs(2, 0),
        layer("GRU", 3, 2).x(&[2, 2, 3]).int("linear_before_reset", 1).text("direction", "bidirectional").outputs(2, 1),
        layer("RNN", 1, 1).outputs(2, 0),
    ]
}

fn list(values: &[f64]) -> Tensor {
    Tensor::from_vec([values.len()], values.to_vec()).unwrap()
}
