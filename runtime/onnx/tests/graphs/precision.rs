//! Tests of half precision and counting on whole networks.

use crate::networks;

use flagperf_onnx::layers::{add, mul, relu, softmax};
use flagperf_onnx::{
    Counts, DType, GraphBuilder, HalfPrecision, HalfPrecisionError, Init, Tensor, WeightRole, check, count,
    infer_shapes, to_f16, to_half_precision,
};

#[test]
fn counts_of_resnet50_match_torchvision() {
    let graph = networks::resnet50().unwrap();
    let Counts { parameters, buffers, multiply_adds_per_sample } = count(&graph);
    assert_eq!(parameters, 25_557_032);
    assert_eq!(buffers, 2 * 26_560);
    // The convolutions and the classifier: torchvision states 4.09e9.
    assert_eq!(multiply_adds_per_sample, Some(4_089_184_256));
    assert_eq!(count(&to_f16(&graph, &[]).unwrap()), count(&graph));
}

#[test]
fn a_fixed_batch_counts_like_a_named_one() {
    let mut graph = networks::squeeze_excite().unwrap();
    let named = count(&graph);
    graph.inputs[0].spec = "8,3,33,33,f32".parse().unwrap();
    infer_shapes(&mut graph);
    assert_eq!(count(&graph), named);
    assert!(named.multiply_adds_per_sample.is_some_and(|number| number > 0));
}

#[test]
fn half_precision_converts_every_float_value_and_leaves_the_original_unchanged() {
    let graph = networks::squeeze_excite().unwrap();
    let half = to_f16(&graph, &[]).unwrap();
    check(&half).unwrap();
    assert_eq!(half.nodes.len(), graph.nodes.len());
    let of_half = |spec: &flagperf_onnx::TensorSpec| spec.dtype == DType::F16;
    assert!(half.values.values().all(of_half) && half.weights.values().all(|weight| of_half(&weight.spec)));
    assert!(half.inputs.iter().chain(&half.outputs).all(|info| of_half(&info.spec)));
    assert!(graph.weights.values().all(|weight| weight.spec.dtype == DType::F32));
    let (wide, narrow) = (graph.tensor("fc.weight").unwrap(), half.tensor("fc.weight").unwrap());
    assert_eq!(wide.cast(DType::F16), narrow);
}

#[test]
fn layers_that_stay_f32_are_surrounded_by_casts() {
    let mut b = GraphBuilder::new("g");
    let x = b.input("x", "N,4,f32".parse().unwrap()).unwrap();
    let a = relu(&mut b, "first", &x).unwrap();
    let s = softmax(&mut b, "head.softmax", &a, -1).unwrap();
    let twice = add(&mut b, "head.twice", &s, &s).unwrap();
    let last = mul(&mut b, "last", &twice, &a).unwrap();
    b.output("middle", &twice).unwrap();
    b.output("y", &last).unwrap();
    let graph = b.finish().unwrap();

    let half = to_f16(&graph, &["head".to_owned()]).unwrap();
    check(&half).unwrap();
    let ops: Vec<&str> = half.nodes.iter().map(|node| node.op.as_str()).collect();
    assert_eq!(ops, ["Relu", "Cast", "Softmax", "Add", "Cast", "Mul"]);
    assert_eq!(half.values["head.softmax"].to_string(), "N,4,f32");
    assert_eq!(half.outputs[0].spec.to_string(), "N,4,f16");
    assert_eq!(half.outputs[1].spec.to_string(), "N,4,f16");

    let error = to_f16(&graph, &["hea".to_owned()]).unwrap_err();
    assert_eq!(error, HalfPrecisionError::NoLayer { name: "hea".to_owned(), graph: "g".to_owned() });
}

#[test]
fn values_beyond_the_range_of_f16_become_its_largest_value() {
    let mut b = GraphBuilder::new("g");
    let x = b.input("x", "3,f32".parse().unwrap()).unwrap();
    let masked = Tensor::from_vec([3], vec![-3.4e38f32, 1e6, 0.5]).unwrap();
    let mask = b.constant("mask", masked).unwrap();
    let huge = b.weight("huge", "3,f32".parse().unwrap(), WeightRole::Parameter, Init::Constant(1e9)).unwrap();
    let y = add(&mut b, "add", &x, &mask).unwrap();
    let y = add(&mut b, "again", &y, &huge).unwrap();
    b.output("y", &y).unwrap();
    let half = to_f16(&b.finish().unwrap(), &[]).unwrap();
    assert_eq!(half.tensor("mask").unwrap().to_f64(), [-65504.0, 65504.0, 0.5]);
    assert_eq!(half.tensor("huge").unwrap().to_f64(), [65504.0; 3]);
}

#[test]
fn a_graph_in_bf16_has_its_types_and_saturates() {
    let mut b = GraphBuilder::new("g");
    let x = b.input("x", "3,f32".parse().unwrap()).unwrap();
    let masked = Tensor::from_vec([3], vec![f32::MIN, 1e6, 0.5]).unwrap();
    let mask = b.constant("mask", masked).unwrap();
    let y = add(&mut b, "add", &x, &mask).unwrap();
    let y = add(&mut b, "kept", &y, &mask).unwrap();
    b.output("y", &y).unwrap();
    let graph = b.finish().unwrap();
    let half = to_half_precision(&graph, HalfPrecision::BF16, &["kept".to_owned()]).unwrap();
    check(&half).unwrap();
    assert_eq!(half.inputs[0].spec.dtype, DType::BF16);
    assert_eq!(half.outputs[0].spec.dtype, DType::BF16);
    let mask = half.tensor("mask").unwrap();
    assert_eq!(mask.dtype(), DType::BF16);
    // The nearest value to f32::MIN would be infinite.
    assert_eq!(mask.to_f64(), [f64::from(half::bf16::MIN), 999_424.0, 0.5]);
    let casts = half.nodes.iter().filter(|node| node.op == "Cast").count();
    assert!(casts >= 2, "the kept layer is surrounded by casts");
}
