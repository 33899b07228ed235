//! Single operators applied to host tensors.

use indexmap::IndexMap;

use crate::{OpError, Operation, apply};
use flagperf_onnx::{Attribute, DType, Tensor};

fn floats(shape: &[usize], elements: &[f32]) -> Tensor {
    Tensor::from_vec(shape, elements.to_vec()).unwrap()
}

fn ints(elements: &[i64]) -> Tensor {
    Tensor::from_vec([elements.len()], elements.to_vec()).unwrap()
}

fn apply_one(op: &str, inputs: &[&Tensor]) -> Result<Tensor, OpError> {
    let inputs: Vec<Option<&Tensor>> = inputs.iter().map(|input| Some(*input)).collect();
    apply(op, IndexMap::new(), &inputs, 1).map(|mut outputs| outputs.remove(0))
}

fn bytes_max(op: &str, attributes: &[(&str, i64)], inputs: &[&Tensor]) -> Result<u64, OpError> {
    let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), Attribute::Int(*value))).collect();
    let inputs: Vec<Option<&Tensor>> = inputs.iter().map(|input| Some(*input)).collect();
    Operation::new(op, attributes, &vec![true; inputs.len()], 1)?.bytes_max(&inputs)
}

#[test]
fn an_operator_is_applied_with_the_meaning_that_it_has_in_a_graph() {
    let sum = apply_one("Add", &[&floats(&[2, 1], &[1.0, 2.0]), &floats(&[3], &[10.0, 20.0, 30.0])]).unwrap();
    assert_eq!(sum, floats(&[2, 3], &[11.0, 21.0, 31.0, 12.0, 22.0, 32.0]));
    let less = apply_one("Less", &[&ints(&[1, 5]), &ints(&[3, 3])]).unwrap();
    assert_eq!(less, Tensor::from_bools([2], &[true, false]).unwrap());
    let halves = apply("Split", IndexMap::new(), &[Some(&ints(&[1, 2, 3])), Some(&ints(&[1, 2]))], 2).unwrap();
    assert_eq!(halves, [ints(&[1]), ints(&[2, 3])]);
    let bounded =
        apply("Clip", IndexMap::new(), &[Some(&floats(&[2], &[-1.0, 9.0])), None, Some(&Tensor::scalar(5f32))], 1);
    assert_eq!(bounded.unwrap(), [floats(&[2], &[-1.0, 5.0])]);
}

#[test]
fn bytes_and_booleans_keep_their_types() {
    let bools = Tensor::from_bools([2], &[true, false]).unwrap();
    assert_eq!(apply_one("Not", &[&bools]).unwrap(), Tensor::from_bools([2], &[false, true]).unwrap());
    assert_eq!(apply_one("Reshape", &[&bools, &ints(&[2, 1])]).unwrap().dtype(), DType::Bool);
    let bytes = Tensor::from_vec([2], vec![3u8, 4]).unwrap();
    assert_eq!(apply_one("Add", &[&bytes, &bytes]).unwrap(), Tensor::from_vec([2], vec![6u8, 8]).unwrap());
    assert_eq!(apply_one("Equal", &[&bytes, &bytes]).unwrap().dtype(), DType::Bool);
}

#[test]
fn a_reshape_shares_the_memory_of_its_input() {
    let x = floats(&[2, 3], &[0.0; 6]);
    let y = apply_one("Reshape", &[&x, &ints(&[3, 2])]).unwrap();
    assert_eq!((y.shape(), y.bytes().as_ptr()), ([3, 2].as_slice(), x.bytes().as_ptr()));
}

#[test]
fn inputs_of_different_element_types_and_unknown_operators_are_refused() {
    let error = apply_one("Add", &[&ints(&[1]), &floats(&[1], &[1.0])]).unwrap_err();
    assert_eq!(error.to_string(), "`Add` requires inputs of the same element type, not `i64` and `f32`");
    let error = apply_one("Frobnicate", &[&ints(&[1])]).unwrap_err();
    assert_eq!(error.to_string(), "not supported: the operator `Frobnicate`");
}

#[test]
fn the_size_of_a_result_is_known_before_it_exists() {
    let x = floats(&[2, 3], &[0.0; 6]);
    let (column, row) = (floats(&[1000, 1], &[0.0; 1000]), floats(&[1, 1000], &[0.0; 1000]));
    for (op, inputs, expected) in [
        ("Add", vec![&column, &row], 4_000_000),
        ("MatMul", vec![&column, &row], 4_000_000),
        ("Exp", vec![&x], 24),
        ("Expand", vec![&x, &ints(&[4, 1, 1])], 96),
        ("Tile", vec![&x, &ints(&[2, 5])], 240),
        ("Pad", vec![&x, &ints(&[1, 0, 2, 4])], 140),
        ("Gather", vec![&x, &ints(&[0, 0, 1, 1])], 48),
        ("Concat", vec![&x, &x, &x], 72),
        ("Range", vec![&Tensor::scalar(0f32), &Tensor::scalar(1f32), &Tensor::scalar(0.25f32)], 16),
        ("OneHot", vec![&ints(&[1, 2]), &Tensor::scalar(10i64), &ints(&[0, 1])], 160),
        ("ConstantOfShape", vec![&ints(&[7, 3])], 84),
        ("Tile", vec![&x, &ints(&[i64::MAX, i64::MAX])], u64::MAX),
        ("Expand", vec![&x, &ints(&[1 << 40, 1 << 40, 1, 1])], u64::MAX),
    ] {
        let attributes: &[(&str, i64)] = if op == "Concat" { &[("axis", 0)] } else { &[] };
        match bytes_max(op, attributes, &inputs) {
            Ok(count) => assert_eq!(count, expected, "{op}"),
            // Operators that the executor lacks have no result.
            Err(error) => assert!(error.to_string().starts_with("not supported: the operator"), "{op}: {error}"),
        }
    }
    assert!(bytes_max("Expand", &[], &[&x, &ints(&[5])]).is_err());
    assert!(bytes_max("Conv", &[], &[&x, &x]).is_err());
}
