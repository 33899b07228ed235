//! Tests of the shapes that the builder infers and of its errors.

use flagperf_onnx::layers::{
    Conv2d, Linear, Padding, Pool2d, add, avg_pool2d, concat, conv2d, embedding, flatten, gelu, layer_norm, linear,
    matmul, max_pool2d, mean, relu, reshape, softmax, transpose,
};
use flagperf_onnx::{BuildError, DType, GraphBuilder, Init, Tensor, TensorSpec, Var, WeightRole};

fn builder(spec: &str) -> (GraphBuilder, Var) {
    let mut b = GraphBuilder::new("g");
    let x = b.input("x", spec.parse().unwrap()).unwrap();
    (b, x)
}

#[track_caller]
fn assert_refused<T>(result: Result<T, BuildError>, text: &str) {
    match result {
        Ok(_) => panic!("accepted, expected: {text}"),
        Err(error) => assert_eq!(error.to_string(), text),
    }
}

#[test]
fn errors_name_the_layer_and_show_the_specifications() {
    let (mut b, x) = builder("N,3,224,224,f32");
    let wrong = Conv2d::new(4, 8, 3);
    assert_refused(
        conv2d(&mut b, "layer1.conv", &x, wrong),
        "layer `layer1.conv` (Conv of `N,3,224,224,f32`, `8,4,3,3,f32`, `8,f32`): \
         the input has 3 channels, the weight expects 4 (4 per group, groups: 1)",
    );
    assert_refused(
        conv2d(&mut b, "huge", &x, Conv2d::new(3, 8, 225)),
        "layer `huge` (Conv of `N,3,224,224,f32`, `8,3,225,225,f32`, `8,f32`): the window is larger than the padded input",
    );
    assert_refused(
        conv2d(&mut b, "split", &x, Conv2d { groups: 2, ..Conv2d::new(3, 8, 3) }),
        "layer `split`: 3 input and 8 output channels cannot be split into 2 groups",
    );
    assert_refused(
        linear(&mut b, "fc", &x, Linear::new(3, 2)),
        "layer `fc`: the last dimension must be 3, the input is `N,3,224,224,f32`",
    );
    let half = b.constant("half", Tensor::scalar(1f32).cast(DType::F16)).unwrap();
    assert_refused(
        add(&mut b, "sum", &x, &half),
        "layer `sum` (Add of `N,3,224,224,f32`, `f16`): `Add` requires inputs of the same element type, not `f32` and `f16`",
    );
    let other = b.input("other", "N,3,7,7,f32".parse().unwrap()).unwrap();
    assert_refused(
        add(&mut b, "residual", &x, &other),
        "layer `residual` (Add of `N,3,224,224,f32`, `N,3,7,7,f32`): the shapes of the inputs are incompatible",
    );
    let fixed = b.input("fixed", "2,3,4,f32".parse().unwrap()).unwrap();
    assert_refused(
        reshape(&mut b, "view", &fixed, &[5, -1]),
        "layer `view` (Reshape of `2,3,4,f32`, `2,i64`): 24 elements cannot be reshaped to [5, -1]",
    );
}

#[test]
fn a_duplicate_name_and_a_value_of_another_graph_are_refused() {
    let (mut b, x) = builder("N,4,f32");
    relu(&mut b, "relu", &x).unwrap();
    assert_refused(
        relu(&mut b, "relu", &x),
        "the name `relu` is already used in this graph (every layer, input and output needs its own name)",
    );
    assert_eq!(b.unused_name("relu"), "relu_1");
    let (mut other, _) = builder("N,4,f32");
    assert_refused(relu(&mut other, "act", &x), "layer `act`: the value `x` belongs to another graph");
    assert_refused(other.finish(), "graph `g` has no output");
    let open: TensorSpec = "N,2,f32".parse().unwrap();
    assert_refused(
        b.weight("w", open, WeightRole::Parameter, Init::Constant(0.0)),
        "weight `w` of `N,2,f32` has a dimension without a fixed size",
    );
    assert_refused(
        b.node("z", "Nonsense", &[Some(&x)], Default::default(), 1),
        "layer `z` (Nonsense of `N,4,f32`): unknown operator `Nonsense`",
    );
}

#[test]
fn inferred_shapes_match_those_of_pytorch() {
    let (mut b, x) = builder("N,8,15,20,f32");
    let same = Conv2d { stride: [2; 2], padding: Padding::Same, ..Conv2d::new(8, 16, 3) };
    let y = conv2d(&mut b, "same", &x, same).unwrap();
    assert_eq!(y.spec().to_string(), "N,16,8,10,f32");
    let dilated = Conv2d { dilation: [2; 2], groups: 8, ..Conv2d::new(8, 8, 3) };
    assert_eq!(conv2d(&mut b, "dilated", &x, dilated).unwrap().spec().to_string(), "N,8,11,16,f32");
    let pool = Pool2d { padding: [1; 2], stride: [2; 2], ..Pool2d::new(3) };
    assert_eq!(max_pool2d(&mut b, "max", &x, pool).unwrap().spec().to_string(), "N,8,8,10,f32");
    let ceil = Pool2d { ceil_mode: true, ..Pool2d::new(2) };
    assert_eq!(avg_pool2d(&mut b, "avg", &x, ceil).unwrap().spec().to_string(), "N,8,8,10,f32");
    assert_eq!(mean(&mut b, "mean", &x, &[2, 3], false).unwrap().spec().to_string(), "N,8,f32");
    assert_eq!(concat(&mut b, "cat", &[&x, &x], 1).unwrap().spec().to_string(), "N,16,15,20,f32");
    assert_eq!(transpose(&mut b, "perm", &x, &[0, 2, 3, 1]).unwrap().spec().to_string(), "N,15,20,8,f32");
    assert_eq!(flatten(&mut b, "flat", &x, 1).unwrap().spec().to_string(), "N,2400,f32");
    assert_eq!(reshape(&mut b, "view", &x, &[0, 8, -1]).unwrap().spec().to_string(), "N,8,300,f32");
}

#[test]
fn attention_can_be_composed_of_layers() {
    let (mut b, tokens) = builder("N,T,i64");
    let x = embedding(&mut b, "embed", &tokens, [100, 32], DType::F32).unwrap();
    let y = layer_norm(&mut b, "norm", &x, 1, 1e-5).unwrap();
    let heads = |b: &mut GraphBuilder, name: &str, order: [usize; 4]| {
        let projected = linear(b, name, &y, Linear::new(32, 32)).unwrap();
        let split = reshape(b, &format!("{name}.split"), &projected, &[0, 0, 4, 8]).unwrap();
        transpose(b, &format!("{name}.heads"), &split, &order).unwrap()
    };
    let (q, k, v) =
        (heads(&mut b, "q", [0, 2, 1, 3]), heads(&mut b, "k", [0, 2, 3, 1]), heads(&mut b, "v", [0, 2, 1, 3]));
    let scores = matmul(&mut b, "scores", &q, &k).unwrap();
    assert_eq!(scores.spec().to_string(), "N,4,T,T,f32");
    let scores = softmax(&mut b, "softmax", &scores, -1).unwrap();
    let mixed = matmul(&mut b, "mixed", &scores, &v).unwrap();
    let mixed = transpose(&mut b, "merge", &mixed, &[0, 2, 1, 3]).unwrap();
    let mixed = reshape(&mut b, "merged", &mixed, &[0, 0, 32]).unwrap();
    let sum = add(&mut b, "sum", &x, &mixed).unwrap();
    let out = gelu(&mut b, "gelu", &sum).unwrap();
    assert_eq!(out.spec().to_string(), "N,T,32,f32");
    b.output("out", &out).unwrap();
    flagperf_onnx::check(&b.finish().unwrap()).unwrap();
}

#[test]
fn an_input_or_a_repeated_value_becomes_an_output_through_an_identity() {
    let (mut b, x) = builder("N,4,f32");
    let y = relu(&mut b, "relu", &x).unwrap();
    b.output("a", &y).unwrap();
    b.output("b", &y).unwrap();
    b.output("c", &x).unwrap();
    assert_refused(
        b.output("a", &x),
        "the name `a` is already used in this graph (every layer, input and output needs its own name)",
    );
    let graph = b.finish().unwrap();
    let names: Vec<&str> = graph.outputs.iter().map(|output| output.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    flagperf_onnx::check(&graph).unwrap();
}

#[test]
fn tensors_of_more_than_2_to_the_32_elements_can_be_reshaped() {
    let (mut b, x) = builder("65536,65536,f16");
    assert_eq!(reshape(&mut b, "view", &x, &[32768, 131072]).unwrap().spec().to_string(), "32768,131072,f16");
    assert_eq!(reshape(&mut b, "open", &x, &[-1, 4]).unwrap().spec().to_string(), "?,4,f16");
}

#[test]
fn a_weight_or_a_graph_beyond_the_limits_is_refused() {
    let (mut b, x) = builder("N,4,f32");
    let weight = |b: &mut GraphBuilder, spec: &str| {
        let text = format!("weight `w` of `{spec}` has too many elements (at most 2147483648)");
        assert_refused(b.weight("w", spec.parse().unwrap(), WeightRole::Parameter, Init::Constant(0.0)), &text);
    };
    weight(&mut b, "1000000,1000000,f32");
    weight(&mut b, "4294967296,4294967296,f32");
    let mut y = x;
    for number in 0..flagperf_onnx::NODES_MAX {
        y = relu(&mut b, &number.to_string(), &y).unwrap();
    }
    assert_refused(relu(&mut b, "more", &y), "graph `g` has too many nodes (at most 100000)");
}

#[test]
fn sizes_whose_product_overflows_are_refused_with_the_layer() {
    let (mut b, x) = builder("N,3,8,8,f32");
    let huge = 1usize << 62;
    for padding in [Padding::Symmetric([0; 2]), Padding::Same] {
        let conv = Conv2d { padding, ..Conv2d::new(3, 8, huge) };
        let text =
            format!("weight `conv.weight` of `8,3,{huge},{huge},f32` has too many elements (at most 2147483648)");
        assert_refused(conv2d(&mut b, "conv", &x, conv), &text);
    }
    let text = format!("layer `view`: the shape [{huge}, {huge}] has more than 2^63 - 1 elements");
    assert_refused(reshape(&mut b, "view", &x, &[huge as i64, huge as i64]), &text);
}
