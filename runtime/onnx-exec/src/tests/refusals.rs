//! Uses of operators that are refused: indices out of range, shapes that do not fit, results larger than any memory.

use super::{Sketch, int_list, ints, noise};
#[cfg(feature = "cpu")]
use crate::CpuOps;
use crate::{Executor, ReferenceOps};
use flagperf_onnx::{Attribute, Graph, Tensor};

const HUGE: i64 = 1 << 50;

/// Returns the graph of one node and its inputs. Lists of integers are constants.
fn graph(op: &str, inputs: &[Tensor], attributes: &[(&str, Attribute)]) -> (Graph, Vec<Tensor>) {
    let names: Vec<String> = (0..inputs.len()).map(|i| format!("x{i}")).collect();
    let (mut sketch, mut fed) = (Sketch::new(), Vec::new());
    for (name, input) in names.iter().zip(inputs) {
        if input.dtype().is_float() {
            sketch = sketch.input(name, &input.spec().to_string());
            fed.push(input.clone());
        } else {
            sketch = sketch.weight(name, input.clone());
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    sketch = sketch.node(op, &names, &["y"]);
    sketch.0.nodes[0].attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    (sketch.output("y", "?,f32"), fed)
}

/// Returns the error of one use, which must be the same for both libraries.
#[track_caller]
fn refusal(op: &str, inputs: &[Tensor], attributes: &[(&str, Attribute)]) -> String {
    let (graph, fed) = graph(op, inputs, attributes);
    let reference = Executor::load(&graph, ReferenceOps).and_then(|model| model.run_host(&fed));
    let reference = reference.expect_err(op).to_string();
    #[cfg(feature = "cpu")]
    {
        let interpreter = Executor::load(&graph, CpuOps).and_then(|model| model.run_host(&fed));
        assert_eq!(
            interpreter.expect_err(op).to_string().split("the result").next(),
            reference.split("the result").next()
        );
    }
    reference.trim_start_matches(&format!("node `y` ({op}): ")).to_owned()
}

#[test]
fn results_larger_than_any_memory_are_refused_before_they_are_allocated() {
    let x = || noise("2,3,f32", 1);
    let image = || noise("1,1,2,2,f32", 1);
    let empty = Tensor::from_vec([0], Vec::<f32>::new()).unwrap();
    let column = Tensor::from_vec([1 << 21, 1], vec![0f32; 1 << 21]).unwrap();
    let row = column.reshape([1, 1 << 21]).unwrap();
    let number = |value: i64| Tensor::scalar(value);
    let sizes = int_list(&[1, 1, HUGE, HUGE]);
    for error in [
        refusal("Tile", &[x(), int_list(&[HUGE, 1])], &[]),
        refusal("Tile", &[x(), int_list(&[i64::MAX, i64::MAX])], &[]),
        refusal("Expand", &[x(), int_list(&[HUGE, 2, 3])], &[]),
        refusal("Pad", &[x(), int_list(&[0, 0, HUGE, 0])], &[]),
        refusal("CenterCropPad", &[x(), int_list(&[HUGE, 3])], &[]),
        refusal("HannWindow", &[Tensor::scalar(HUGE)], &[]),
        refusal("RoiAlign", &[image(), noise("1,4,f32", 1), int_list(&[0])], &[("output_width", Attribute::Int(HUGE))]),
        refusal("Range", &[number(0), number(HUGE), number(1)], &[]),
        refusal("OneHot", &[x(), number(HUGE), noise("2,f32", 1)], &[]),
        refusal("Resize", &[image(), empty.clone(), empty, sizes], &[]),
        refusal("MatMul", &[column.clone(), row.clone()], &[]),
        refusal("Add", &[column.clone(), row.clone()], &[]),
        refusal("Einsum", &[column, row], &[("equation", Attribute::String("ia,bj->ijab".into()))]),
        refusal("ConvTranspose", &[image(), noise("1,1,2,2,f32", 2)], &[("strides", ints(&[HUGE, 1]))]),
    ] {
        let is_named =
            ["is too large", "cannot be repeated", "too many elements"].iter().any(|part| error.contains(part));
        assert!(is_named, "{error}");
    }
}

#[test]
fn indices_and_axes_out_of_range_are_named() {
    let x = || noise("2,3,f32", 1);
    let pair = |a: i64, b: i64| Tensor::from_vec([1, 2], vec![a, b]).unwrap();
    let out_of_range = |index: i64, size: usize| format!("index {index} is out of range for size {size}");
    assert_eq!(refusal("GatherElements", &[x(), pair(0, 2)], &[]), out_of_range(2, 2));
    assert_eq!(refusal("GatherND", &[x(), pair(0, -4)], &[]), out_of_range(-4, 3));
    let update = noise("1,f32", 2);
    assert_eq!(refusal("ScatterND", &[x(), pair(5, 0), update], &[]), out_of_range(5, 2));
    assert_eq!(
        refusal("ScatterElements", &[x(), pair(0, i64::MIN), noise("1,2,f32", 2)], &[]),
        out_of_range(i64::MIN, 2)
    );
    assert_eq!(refusal("TopK", &[x(), int_list(&[4])], &[]), "`k` is 4 (0 to 3 are possible)");
    assert_eq!(refusal("CumSum", &[x(), Tensor::scalar(2i64)], &[]), "axis 2 is out of range for rank 2");
    let axis = [("axis", Attribute::Int(-3))];
    assert_eq!(refusal("ArgMin", &[x()], &axis), "axis -3 is out of range for rank 2");
    assert_eq!(refusal("RMSNormalization", &[x(), noise("3,f32", 1)], &axis), "axis -3 is out of range for rank 2");
}

#[test]
fn operands_that_do_not_fit_are_named() {
    let x = || noise("2,3,f32", 1);
    let image = || noise("1,6,2,2,f32", 1);
    let int = |name, value| [(name, Attribute::Int(value))];
    let equation = |text: &str| [("equation", Attribute::String(text.into()))];
    assert_eq!(
        refusal("Einsum", &[x(), x()], &equation("ij,jk->ik")),
        "attribute `equation`: a label has the sizes 3 and 2"
    );
    assert_eq!(refusal("Einsum", &[x()], &equation("ij,jk->ik")), "attribute `equation`: 2 terms for 1 inputs");
    assert_eq!(refusal("Einsum", &[x()], &equation("i1")), "attribute `equation`: `1` is not a letter");
    assert_eq!(
        refusal("Einsum", &[x()], &equation("ij->k")),
        "attribute `equation`: the result has unknown or repeated labels"
    );
    assert_eq!(
        refusal("DepthToSpace", &[image()], &int("blocksize", 2)),
        "[1, 6, 2, 2] has no channels for blocks of 2 x 2"
    );
    assert_eq!(
        refusal("SpaceToDepth", &[image()], &int("blocksize", 3)),
        "[1, 6, 2, 2] cannot be cut into blocks of 3 x 3"
    );
    let factor = || noise("6,f32", 1);
    let groups = refusal("GroupNormalization", &[image(), factor(), factor()], &int("num_groups", 4));
    assert_eq!(groups, "6 channels cannot be split into 4 groups");
    let weight = noise("4,1,2,2,f32", 1);
    assert_eq!(refusal("ConvTranspose", &[image(), weight], &[]), "6 channels do not match a weight for 4 (groups: 1)");
    assert_eq!(refusal("Trilu", &[noise("3,f32", 1)], &[]), "the input has fewer than two dimensions");
    let numbers = [0i64, 5, 0].map(Tensor::scalar);
    assert_eq!(refusal("Range", &numbers, &[]), "the range from 0 to 5 in steps of 0 is infinite");
    let table = || noise("1,2,1,f32", 1);
    let odd = refusal("RotaryEmbedding", &[noise("1,1,2,3,f32", 1), table(), table()], &[]);
    assert_eq!(odd, "3 of 3 elements cannot be rotated in pairs");
    let weights = [noise("2,1,3,f32", 1), noise("1,8,3,f32", 2), noise("1,8,2,f32", 3)];
    let both = [("direction", Attribute::String("bidirectional".into()))];
    assert_eq!(refusal("LSTM", &weights, &both), "[1, 8, 3] has no direction 1");
    assert_eq!(refusal("Compress", &[x(), noise("7,bool", 1)], &[]), "the condition is longer than dimension 0");
    assert_eq!(refusal("Det", &[x()], &[]), "2 x 3 is not square");
    assert_eq!(refusal("Tile", &[x(), int_list(&[1])], &[]), "[2, 3] cannot be repeated [1] times");
    assert_eq!(refusal("Mod", &[int_list(&[1]), int_list(&[0])], &[]), "integer division by zero");
}
