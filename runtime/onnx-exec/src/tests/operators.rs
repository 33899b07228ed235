//! Compares every operator on the interpreter with the reference library, on shapes of mostly odd and unequal sizes.

use super::{Sketch, assert_close, int_list, ints, noise};
use crate::{CpuOps, Executor, ReferenceOps};
use flagperf_onnx::{Attribute, Graph, Tensor};

/// One use of an operator. Its inputs are specifications (filled with noise) or values.
struct Case {
    op: &'static str,
    inputs: Vec<CaseInput>,
    attributes: Vec<(&'static str, Attribute)>,
    outputs: Vec<&'static str>,
}

enum CaseInput {
    Noise(&'static str),
    /// Noise made positive, for roots, logarithms and variances.
    Positive(&'static str),
    Value(Tensor),
    Omitted,
}
use CaseInput::{Noise, Omitted, Positive, Value};

/// `case("Conv", [inputs], "output spec", [attributes])`.
fn case<const I: usize, const A: usize>(
    op: &'static str,
    inputs: [CaseInput; I],
    output: &'static str,
    attributes: [(&'static str, Attribute); A],
) -> Case {
    Case { op, inputs: inputs.into(), attributes: attributes.into(), outputs: vec![output] }
}

fn int(value: i64) -> Attribute {
    Attribute::Int(value)
}

fn text(value: &str) -> Attribute {
    Attribute::String(value.into())
}

fn list(values: &[i64]) -> CaseInput {
    Value(int_list(values))
}

fn number(value: f32) -> CaseInput {
    Value(Tensor::scalar(value))
}

impl Case {
    fn graph(&self) -> (Graph, Vec<Tensor>) {
        let (mut sketch, mut names, mut fed) = (Sketch::new(), Vec::new(), Vec::new());
        for (i, input) in self.inputs.iter().enumerate() {
            let name = if matches!(input, Omitted) { String::new() } else { format!("x{i}") };
            match input {
                Noise(spec) | Positive(spec) => {
                    let mut tensor = noise(spec, i as u64 + 1);
                    if matches!(input, Positive(_)) {
                        let positive: Vec<f64> = tensor.to_f64().iter().map(|x| x.abs() + 0.1).collect();
                        tensor = Tensor::from_vec(tensor.shape(), positive).unwrap().cast(tensor.dtype());
                    }
                    sketch = sketch.input(&name, spec);
                    fed.push(tensor);
                }
                Value(tensor) => sketch = sketch.weight(&name, tensor.clone()),
                Omitted => {}
            }
            names.push(name);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let made: Vec<String> = (0..self.outputs.len()).map(|i| format!("y{i}")).collect();
        let made: Vec<&str> = made.iter().map(String::as_str).collect();
        let mut sketch = sketch.node(self.op, &names, &made);
        sketch.0.nodes[0].attributes = self.attributes.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        let (last, others) = self.outputs.split_last().unwrap();
        for (name, spec) in made.iter().zip(others) {
            sketch = Sketch(sketch.output(name, spec));
        }
        (sketch.output(made[made.len() - 1], last), fed)
    }

    fn check(&self) {
        let (graph, fed) = self.graph();
        let label = format!("{} {:?} {:?}", self.op, fed, self.attributes);
        let expected = Executor::load(&graph, ReferenceOps).and_then(|model| model.run_host(&fed));
        let actual = Executor::load(&graph, CpuOps).and_then(|model| model.run_host(&fed));
        let (expected, actual) = (expected.expect(&label), actual.expect(&label));
        for ((actual, expected), spec) in actual.iter().zip(&expected).zip(&self.outputs) {
            assert_eq!(expected.spec().to_string(), *spec, "{label}: the reference's own output");
            assert_close(&label, actual, expected, 2e-5);
        }
    }
}

#[test]
fn elementwise_operators_match_the_reference() {
    let plain = [
        "Relu",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Tanh",
        "Erf",
        "Gelu",
        "LeakyRelu",
        "Exp",
        "Neg",
        "Abs",
        "Floor",
        "Ceil",
        "Sin",
        "Cos",
        "Identity",
        "Dropout",
    ];
    for op in plain {
        case(op, [Noise("3,1,5,7,f32")], "3,1,5,7,f32", []).check();
    }
    for op in ["Sqrt", "Log", "Reciprocal"] {
        case(op, [Positive("3,5,f32")], "3,5,f32", []).check();
    }
    case("Gelu", [Noise("11,f32")], "11,f32", [("approximate", text("tanh"))]).check();
    case("HardSigmoid", [Noise("11,f32")], "11,f32", [("alpha", Attribute::Float(0.4))]).check();
    case("Clip", [Noise("11,f32"), number(-0.5), number(1.0)], "11,f32", []).check();
    case("Clip", [Noise("11,f32"), Omitted, number(1.0)], "11,f32", []).check();
    case("Not", [Noise("3,5,bool")], "3,5,bool", []).check();
}

#[test]
fn operators_of_two_tensors_match_the_reference_and_broadcast() {
    for op in ["Add", "Sub", "Mul", "Div", "Min", "Max"] {
        case(op, [Noise("2,3,5,7,f32"), Noise("3,1,1,f32")], "2,3,5,7,f32", []).check();
        case(op, [Noise("5,1,f32"), Noise("1,7,f32")], "5,7,f32", []).check();
        case(op, [Noise("5,7,f32"), number(0.3)], "5,7,f32", []).check();
    }
    case("Add", [Noise("5,7,i64"), Noise("7,i64")], "5,7,i64", []).check();
    case("Div", [Noise("5,7,i64"), list(&[1, 2, -3, 4, 5, -6, 7])], "5,7,i64", []).check();
    case("Max", [Noise("5,f32"), Noise("1,f32"), Noise("2,5,f32")], "2,5,f32", []).check();
    case("Pow", [Noise("5,7,f32"), number(2.0)], "5,7,f32", []).check();
    case("Pow", [Noise("5,7,f32"), number(3.0)], "5,7,f32", []).check();
    case("Pow", [Positive("5,7,f32"), Noise("7,f32")], "5,7,f32", []).check();
    for op in ["Equal", "Less", "Greater"] {
        case(op, [Noise("5,7,f32"), Noise("7,f32")], "5,7,bool", []).check();
        case(op, [Noise("5,7,i64"), Noise("7,i64")], "5,7,bool", []).check();
    }
    for op in ["And", "Or"] {
        case(op, [Noise("5,7,bool"), Noise("7,bool")], "5,7,bool", []).check();
    }
    case("Where", [Noise("5,7,bool"), Noise("7,f32"), Noise("2,5,1,f32")], "2,5,7,f32", []).check();
}

#[test]
fn convolutions_match_the_reference() {
    let x = || Noise("2,6,11,9,f32");
    let same = || ("pads", ints(&[1, 1, 1, 1]));
    case("Conv", [x(), Noise("5,6,3,3,f32")], "2,5,9,7,f32", []).check();
    case("Conv", [x(), Noise("5,6,3,3,f32"), Noise("5,f32")], "2,5,11,9,f32", [same()]).check();
    case("Conv", [x(), Noise("5,6,1,1,f32"), Noise("5,f32")], "2,5,11,9,f32", []).check();
    case("Conv", [x(), Noise("5,6,1,1,f32")], "2,5,6,5,f32", [("strides", ints(&[2, 2]))]).check();
    let uneven = [("strides", ints(&[2, 3])), ("pads", ints(&[0, 2, 3, 1]))];
    case("Conv", [x(), Noise("5,6,3,5,f32")], "2,5,6,3,f32", uneven.clone()).check();
    case("Conv", [x(), Noise("5,6,3,3,f32")], "2,5,5,5,f32", [("dilations", ints(&[3, 2]))]).check();
    let upper = [("auto_pad", text("SAME_UPPER")), ("strides", ints(&[2, 2]))];
    case("Conv", [x(), Noise("5,6,3,2,f32")], "2,5,6,5,f32", upper).check();
    case("Conv", [x(), Noise("4,3,3,3,f32"), Noise("4,f32")], "2,4,11,9,f32", [same(), ("group", int(2))]).check();
    let depthwise = ("group", int(6));
    case("Conv", [x(), Noise("6,1,3,3,f32"), Noise("6,f32")], "2,6,11,9,f32", [same(), depthwise.clone()]).check();
    case("Conv", [x(), Noise("12,1,3,3,f32")], "2,12,9,7,f32", [depthwise.clone()]).check();
    let [strides, pads] = uneven;
    case("Conv", [x(), Noise("6,1,3,5,f32")], "2,6,6,3,f32", [strides, pads, depthwise.clone()]).check();
    case("Conv", [x(), Noise("6,1,2,3,f32")], "2,6,8,5,f32", [("dilations", ints(&[3, 2])), depthwise]).check();
    case("Conv", [Noise("2,3,9,f32"), Noise("4,3,3,f32")], "2,4,9,f32", [("pads", ints(&[1, 1]))]).check();
}

#[test]
fn convolutions_of_several_tiles_match_the_reference() {
    let pads = || ("pads", ints(&[1, 1, 1, 1]));
    case("Conv", [Noise("3,7,29,31,f32"), Noise("5,7,3,3,f32")], "3,5,29,31,f32", [pads()]).check();
    case("Conv", [Noise("3,7,29,31,f32"), Noise("5,7,1,1,f32")], "3,5,29,31,f32", []).check();
    let halved = [pads(), ("strides", ints(&[2, 2])), ("group", int(7))];
    case("Conv", [Noise("2,7,37,41,f32"), Noise("7,1,3,3,f32")], "2,7,19,21,f32", halved).check();
}

#[test]
fn pools_match_the_reference() {
    let x = || Noise("2,3,11,9,f32");
    let window = || [("kernel_shape", ints(&[3, 2])), ("strides", ints(&[2, 2]))];
    for op in ["MaxPool", "AveragePool"] {
        let [kernel, strides] = window();
        case(op, [x()], "2,3,5,4,f32", window()).check();
        let padded = ("pads", ints(&[1, 0, 1, 1]));
        case(op, [x()], "2,3,6,5,f32", [kernel.clone(), strides.clone(), padded]).check();
        case(op, [x()], "2,3,5,5,f32", [kernel.clone(), strides.clone(), ("ceil_mode", int(1))]).check();
        case(op, [x()], "2,3,7,7,f32", [kernel, ("dilations", ints(&[2, 2]))]).check();
        case(op, [x()], "2,3,6,5,f32", [("kernel_shape", ints(&[3, 3])), strides, ("auto_pad", text("SAME_UPPER"))])
            .check();
        case(op, [Noise("2,3,9,f32")], "2,3,7,f32", [("kernel_shape", ints(&[3]))]).check();
    }
    let counted = [("kernel_shape", ints(&[3, 3])), ("pads", ints(&[1, 1, 1, 1])), ("count_include_pad", int(1))];
    case("AveragePool", [x()], "2,3,11,9,f32", counted).check();
    case("GlobalAveragePool", [x()], "2,3,1,1,f32", []).check();
    case("GlobalMaxPool", [x()], "2,3,1,1,f32", []).check();
}

#[test]
fn matrix_products_match_the_reference() {
    case("MatMul", [Noise("5,7,f32"), Noise("7,3,f32")], "5,3,f32", []).check();
    case("MatMul", [Noise("2,3,5,7,f32"), Noise("7,3,f32")], "2,3,5,3,f32", []).check();
    case("MatMul", [Noise("2,1,5,7,f32"), Noise("3,7,2,f32")], "2,3,5,2,f32", []).check();
    case("MatMul", [Noise("7,f32"), Noise("7,3,f32")], "3,f32", []).check();
    case("MatMul", [Noise("2,5,7,f32"), Noise("7,f32")], "2,5,f32", []).check();
    case("Gemm", [Noise("5,7,f32"), Noise("3,7,f32"), Noise("3,f32")], "5,3,f32", [("transB", int(1))]).check();
    let scaled = [("transA", int(1)), ("alpha", Attribute::Float(0.5)), ("beta", Attribute::Float(2.0))];
    case("Gemm", [Noise("7,5,f32"), Noise("7,3,f32"), Noise("5,1,f32")], "5,3,f32", scaled).check();
}

#[test]
fn reductions_match_the_reference() {
    let x = || Noise("3,5,7,f32");
    for op in ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"] {
        case(op, [x(), list(&[-1])], "3,5,1,f32", []).check();
        case(op, [x(), list(&[0, 2])], "5,f32", [("keepdims", int(0))]).check();
        case(op, [x()], "1,1,1,f32", []).check();
        case(op, [x()], "3,5,7,f32", [("noop_with_empty_axes", int(1))]).check();
    }
    case("ReduceMean", [x()], "3,1,7,f32", [("axes", ints(&[1]))]).check();
    case("ArgMax", [x()], "3,5,1,i64", [("axis", int(-1))]).check();
    case("ArgMax", [x()], "3,7,i64", [("axis", int(1)), ("keepdims", int(0))]).check();
    for op in ["Softmax", "LogSoftmax"] {
        case(op, [x()], "3,5,7,f32", []).check();
        case(op, [x()], "3,5,7,f32", [("axis", int(1))]).check();
    }
    case("LayerNormalization", [x(), Noise("7,f32"), Noise("7,f32")], "3,5,7,f32", []).check();
    case("LayerNormalization", [x(), Noise("5,7,f32")], "3,5,7,f32", [("axis", int(1))]).check();
    let channels = [x(), Noise("5,f32"), Noise("5,f32"), Noise("5,f32"), Positive("5,f32")];
    case("BatchNormalization", channels, "3,5,7,f32", []).check();
}

#[test]
fn movements_of_elements_match_the_reference() {
    let x = || Noise("3,5,7,f32");
    case("Flatten", [x()], "3,35,f32", []).check();
    case("Flatten", [x()], "105,1,f32", [("axis", int(3))]).check();
    case("Reshape", [x(), list(&[0, -1])], "3,35,f32", []).check();
    case("Squeeze", [Noise("3,1,7,1,f32"), list(&[1])], "3,7,1,f32", []).check();
    case("Squeeze", [Noise("3,1,7,1,f32")], "3,7,f32", []).check();
    case("Unsqueeze", [x(), list(&[0, -1])], "1,3,5,7,1,f32", []).check();
    case("Transpose", [x()], "7,5,3,f32", []).check();
    case("Transpose", [x()], "5,3,7,f32", [("perm", ints(&[1, 0, 2]))]).check();
    case("Concat", [x(), Noise("3,2,7,f32")], "3,7,7,f32", [("axis", int(-2))]).check();
    case("Slice", [x(), list(&[1]), list(&[-1]), list(&[1])], "3,3,7,f32", []).check();
    case("Slice", [x(), list(&[-1, 0]), list(&[i64::MIN, 7]), list(&[1, 2]), list(&[-2, 3])], "3,3,3,f32", []).check();
    case("Gather", [x(), list(&[4, -5, 0])], "3,3,7,f32", [("axis", int(1))]).check();
    case("Gather", [x(), Value(Tensor::scalar(-1i64))], "3,5,f32", [("axis", int(2))]).check();
    case("Expand", [Noise("3,1,7,f32"), list(&[2, 1, 5, 1])], "2,3,5,7,f32", []).check();
    let pads = || list(&[0, 2, 1, 1, 0, 2]);
    case("Pad", [x(), pads()], "4,7,10,f32", []).check();
    case("Pad", [x(), pads(), number(1.5)], "4,7,10,f32", []).check();
    case("Pad", [x(), pads()], "4,7,10,f32", [("mode", text("reflect"))]).check();
    case("Pad", [x(), pads()], "4,7,10,f32", [("mode", text("edge"))]).check();
    case("Pad", [x(), list(&[1, 2]), Omitted, list(&[-1])], "3,5,10,f32", []).check();
}

#[test]
fn splits_and_casts_match_the_reference() {
    let x = || vec![Noise("3,7,f32")];
    let thirds = vec!["3,3,f32", "3,3,f32", "3,1,f32"];
    Case { op: "Split", inputs: x(), attributes: vec![("axis", int(1)), ("num_outputs", int(3))], outputs: thirds }
        .check();
    let inputs = vec![Noise("3,7,f32"), list(&[2, 5])];
    Case { op: "Split", inputs, attributes: vec![("axis", int(-1))], outputs: vec!["3,2,f32", "3,5,f32"] }.check();
    case("Cast", [Noise("3,7,f32")], "3,7,i64", [("to", int(7))]).check();
    case("Cast", [Noise("3,7,i64")], "3,7,f32", [("to", int(1))]).check();
    case("Cast", [Noise("3,7,f32")], "3,7,bool", [("to", int(9))]).check();
    case("Cast", [Noise("3,7,bool")], "3,7,f32", [("to", int(1))]).check();
    case("Shape", [Noise("3,7,f32")], "2,i64", []).check();
    case("Shape", [Noise("3,7,f32")], "1,i64", [("start", int(-1))]).check();
}
