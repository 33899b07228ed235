//! Compares the reference library with results that were calculated by hand or are given in the ONNX specification.

use super::{Sketch, int_list, ints};
use crate::{Executor, ReferenceOps};
use flagperf_onnx::{Attribute, Tensor};

fn floats<const N: usize>(shape: &[usize], values: [f32; N]) -> Tensor {
    Tensor::from_vec(shape, values.to_vec()).unwrap()
}

#[track_caller]
fn check<const N: usize>(
    op: &str,
    inputs: &[Tensor],
    attributes: [(&str, Attribute); N],
    shape: &[usize],
    expected: &[f64],
) {
    let names: Vec<String> = (0..inputs.len()).map(|i| format!("x{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let sketch = names
        .iter()
        .zip(inputs)
        .fold(Sketch::new(), |sketch, (name, input)| sketch.input(name, &input.spec().to_string()));
    let dtype = if matches!(op, "ArgMax") { "i64" } else { "f32" };
    let graph = sketch.node_with(op, &names, &["y"], attributes).output("y", dtype);
    let output = &Executor::load(&graph, ReferenceOps).unwrap().run_host(inputs).unwrap()[0];
    assert_eq!(output.shape(), shape, "{op}");
    for (actual, expected) in output.to_f64().iter().zip(expected) {
        assert!((actual - expected).abs() < 1e-6, "{op}: {:?}, expected {expected:?}", output.to_f64());
    }
    assert_eq!(output.len(), expected.len());
}

#[test]
fn convolution_is_the_sum_over_its_window() {
    let x = floats(&[1, 1, 3, 3], [1., 2., 3., 4., 5., 6., 7., 8., 9.]);
    let w = floats(&[1, 1, 2, 2], [1., 0., 0., -1.]);
    check("Conv", &[x.clone(), w.clone()], [], &[1, 1, 2, 2], &[-4.; 4]);
    let pads = ("pads", ints(&[1, 0, 0, 1]));
    check("Conv", &[x.clone(), w.clone()], [pads], &[1, 1, 3, 3], &[-2., -3., 0., -4., -4., 3., -4., -4., 6.]);
    let wide = [("strides", ints(&[2, 2])), ("dilations", ints(&[2, 2]))];
    check("Conv", &[x, w, floats(&[1], [10.])], wide, &[1, 1, 1, 1], &[2.]);
}

#[test]
fn groups_of_a_convolution_are_separate() {
    let x = floats(&[1, 2, 1, 2], [1., 2., 3., 4.]);
    let w = floats(&[2, 1, 1, 1], [10., 100.]);
    check("Conv", &[x, w], [("group", Attribute::Int(2))], &[1, 2, 1, 2], &[10., 20., 300., 400.]);
}

#[test]
fn a_mean_includes_padding_only_if_requested() {
    let x = floats(&[1, 1, 2, 2], [1., 2., 3., 4.]);
    let window = || [("kernel_shape", ints(&[2, 2])), ("pads", ints(&[1, 1, 0, 0])), ("strides", ints(&[2, 2]))];
    check("AveragePool", std::slice::from_ref(&x), window(), &[1, 1, 1, 1], &[1.]);
    let [kernel, pads, strides] = window();
    let counted = [kernel, pads, strides, ("count_include_pad", Attribute::Int(1))];
    check("AveragePool", std::slice::from_ref(&x), counted, &[1, 1, 1, 1], &[0.25]);
    check("MaxPool", std::slice::from_ref(&x), [("kernel_shape", ints(&[2, 2]))], &[1, 1, 1, 1], &[4.]);
    check("GlobalAveragePool", &[x], [], &[1, 1, 1, 1], &[2.5]);
}

#[test]
fn normalizations_and_softmax_have_their_textbook_values() {
    let x = floats(&[1, 2, 1, 1], [3., 5.]);
    let (scale, bias) = (floats(&[2], [2., 1.]), floats(&[2], [1., 0.]));
    let (mean, variance) = (floats(&[2], [1., 5.]), floats(&[2], [4., 1.]));
    let exact = [("epsilon", Attribute::Float(0.0))];
    check("BatchNormalization", &[x, scale, bias, mean, variance], exact.clone(), &[1, 2, 1, 1], &[3., 0.]);
    let row = floats(&[1, 2], [1., 3.]);
    let one = floats(&[2], [1., 1.]);
    check("LayerNormalization", &[row.clone(), one.clone(), one], exact, &[1, 2], &[0., 2.]);
    check("Softmax", &[floats(&[1, 2], [0., 3f32.ln()])], [], &[1, 2], &[0.25, 0.75]);
    check("LogSoftmax", &[floats(&[1, 2], [0., 3f32.ln()])], [], &[1, 2], &[0.25f64.ln(), 0.75f64.ln()]);
}

#[test]
fn activations_have_their_textbook_values() {
    let x = floats(&[3], [-4., 1., 4.]);
    check("HardSwish", std::slice::from_ref(&x), [], &[3], &[0., 4. / 6., 4.]);
    check("HardSigmoid", std::slice::from_ref(&x), [], &[3], &[0., 0.7, 1.]);
    check("Relu", &[x], [], &[3], &[0., 1., 4.]);
    let one = floats(&[1], [1.]);
    check("Erf", std::slice::from_ref(&one), [], &[1], &[0.842_700_792_9]);
    check("Gelu", std::slice::from_ref(&one), [], &[1], &[0.841_344_746]);
    check(
        "Gelu",
        std::slice::from_ref(&one),
        [("approximate", Attribute::String("tanh".into()))],
        &[1],
        &[0.841_191_991],
    );
    check("Sigmoid", &[one], [], &[1], &[0.731_058_578_6]);
}

#[test]
fn matrices_multiply_in_batches_and_transposed() {
    let a = floats(&[2, 1, 2], [1., 2., 3., 4.]);
    let b = floats(&[2, 1], [10., 100.]);
    check("MatMul", &[a, b], [], &[2, 1, 1], &[210., 430.]);
    let (a, b, c) = (floats(&[2, 1], [1., 2.]), floats(&[1, 2], [3., 4.]), floats(&[1], [1.]));
    let both = [("transA", Attribute::Int(1)), ("transB", Attribute::Int(1)), ("beta", Attribute::Float(2.0))];
    check("Gemm", &[a, b, c], both, &[1, 1], &[13.]);
}

#[test]
fn elements_move_as_the_specification_defines() {
    let x = floats(&[2, 3], [1., 2., 3., 4., 5., 6.]);
    check("Transpose", std::slice::from_ref(&x), [], &[3, 2], &[1., 4., 2., 5., 3., 6.]);
    let slice = [x.clone(), int_list(&[-1]), int_list(&[i64::MIN]), int_list(&[1]), int_list(&[-2])];
    check("Slice", &slice, [], &[2, 2], &[3., 1., 6., 4.]);
    let gather = [x.clone(), Tensor::from_vec([1, 2], vec![-1i64, 0]).unwrap()];
    check("Gather", &gather, [("axis", Attribute::Int(1))], &[2, 1, 2], &[3., 1., 6., 4.]);
    let reflect = ("mode", Attribute::String("reflect".into()));
    let pads = int_list(&[0, 2, 0, 1]);
    check("Pad", &[x.clone(), pads], [reflect], &[2, 6], &[3., 2., 1., 2., 3., 2., 6., 5., 4., 5., 6., 5.]);
    check("ArgMax", &[floats(&[1, 3], [7., 7., 1.])], [("axis", Attribute::Int(1))], &[1, 1], &[0.]);
    let last = [("axis", Attribute::Int(1)), ("select_last_index", Attribute::Int(1))];
    check("ArgMax", &[floats(&[1, 3], [7., 7., 1.])], last, &[1, 1], &[1.]);
}
