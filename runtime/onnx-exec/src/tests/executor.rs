//! Tests of the executor itself: names in errors, shapes on the host, freed memory, checked inputs.

use super::{Sketch, int_list, ints, noise};
use crate::{ExecError, Executor, NodeEvent, ReferenceOps};
use flagperf_onnx::{Attribute, DType, Graph, Tensor};

fn load(graph: &Graph) -> Result<Executor<ReferenceOps>, ExecError> {
    Executor::load(graph, ReferenceOps)
}

#[track_caller]
fn error<T>(result: Result<T, ExecError>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn a_constant_without_dimensions_is_one_number() {
    let value = [("value", Attribute::Tensor(Tensor::from_vec([1], vec![3f32]).unwrap()))];
    let sketch = Sketch::new().input("x", "2,f32").node("Shape", &["x"], &["s"]).weight("none", int_list(&[]));
    let sketch = sketch.node_with("ConstantOfShape", &["none"], &["three"], value);
    let graph = sketch.node("Mul", &["x", "three"], &["y"]).output("y", "2,f32");
    let x = Tensor::from_vec([2], vec![1f32, 2.0]).unwrap();
    let y = Executor::load(&graph, ReferenceOps).unwrap().run_host(&[x]).unwrap().remove(0);
    assert_eq!(y.to_f64(), [3.0, 6.0]);
}

#[test]
fn an_unsupported_operator_is_named_with_its_node() {
    let graph = Sketch::new().input("x", "3,f32").node("ImageDecoder", &["x"], &["y"]).output("y", "3,f32");
    assert_eq!(error(load(&graph)), "node `y`: the executor does not support the operator `ImageDecoder`");
    let mut foreign = graph;
    foreign.nodes[0].domain = "com.microsoft".into();
    assert_eq!(
        error(load(&foreign)),
        "node `y`: the executor does not support the operator `com.microsoft.ImageDecoder`"
    );
}

#[test]
fn an_invalid_attribute_is_named_with_its_node() {
    let with = |name, value| {
        let sketch = Sketch::new().input("x", "1,1,4,4,f32");
        sketch.node_with("MaxPool", &["x"], &["pool1"], [(name, value)]).output("pool1", "1,1,2,2,f32")
    };
    let error_of = |name, value| error(load(&with(name, value)));
    let text = "node `pool1` (MaxPool): attribute `strides` is not a list of integers";
    assert_eq!(error_of("strides", Attribute::Float(2.0)), text);
    let text = "node `pool1` (MaxPool): not supported: attribute `strides` is [0, 1] (each value must be at least 1)";
    assert_eq!(error_of("strides", ints(&[0, 1])), text);
}

#[test]
fn an_input_that_contradicts_its_declaration_is_named() {
    let sketch = Sketch::new().input("images", "N,3,8,8,f32").input("labels", "N,i64");
    let graph = sketch.node("Relu", &["images"], &["y"]).output("y", "N,3,8,8,f32");
    let model = load(&graph).unwrap();
    let labels = noise("2,i64", 1);
    let run = |images: &str| model.run_host(&[noise(images, 1), labels.clone()]);
    assert!(run("2,3,8,8,f32").is_ok());
    assert_eq!(error(run("2,3,9,8,f32")), "input `images` must be `N,3,8,8,f32`, not `2,3,9,8,f32`");
    assert_eq!(error(run("2,3,8,8,i32")), "input `images` must be `N,3,8,8,f32`, not `2,3,8,8,i32`");
    assert_eq!(error(run("1,3,8,8,f32")), "input `labels`: dimension `N` is 2, but 1 in an earlier input");
    assert_eq!(error(model.run_host(&[labels])), "wrong number of inputs: 1 (the graph has 2: `images`, `labels`)");
}

#[test]
fn an_undefined_value_is_named() {
    let graph = Sketch::new().input("x", "3,f32").node("Add", &["x", "z"], &["y"]).output("y", "3,f32");
    assert_eq!(error(load(&graph)), "`y` reads the value `z`, which no earlier node defines");
}

#[test]
fn an_output_that_is_not_supported_is_named_if_it_is_read() {
    let statistics = ["x", "s", "s", "s", "s"];
    let sketch = || {
        let sketch = Sketch::new().input("x", "1,2,f32").weight("s", noise("2,f32", 1));
        sketch.node("BatchNormalization", &statistics, &["y", "mean"])
    };
    assert!(load(&sketch().output("y", "1,2,f32")).is_ok());
    let expected = "node `y` (BatchNormalization): not supported: output 1 (`mean`)";
    assert_eq!(error(load(&sketch().output("mean", "2,f32"))), expected);
}

#[test]
fn the_mask_of_a_dropout_keeps_every_element_and_training_is_refused() {
    let sketch = |training: bool, ratio: f32| {
        let sketch = Sketch::new().input("x", "2,f32").weight("ratio", Tensor::scalar(ratio));
        let sketch = sketch.weight("training", Tensor::from_bools([], &[training]).unwrap());
        sketch.node("Dropout", &["x", "ratio", "training"], &["y", "mask"]).output("mask", "2,bool")
    };
    let expected = "node `y` (Dropout): not supported: `training_mode` (the executor only runs inference)";
    assert_eq!(error(load(&sketch(true, 0.5))), expected);
    for graph in [sketch(false, 0.5), sketch(true, 0.0)] {
        let mask = &load(&graph).unwrap().run_host(&[noise("2,f32", 1)]).unwrap()[0];
        assert_eq!((mask.dtype(), mask.to_f64()), (DType::Bool, vec![1.0, 1.0]));
    }
}

#[test]
fn an_attribute_that_the_executor_does_not_know_is_named() {
    let with = |op| {
        let sketch = Sketch::new().input("x", "1,f32").node_with(op, &["x"], &["y"], [("other", Attribute::Int(1))]);
        sketch.output("y", "1,f32")
    };
    for op in ["Relu", "Softmax", "Transpose", "Acos"] {
        assert_eq!(error(load(&with(op))), format!("node `y` ({op}): not supported: attribute `other`"));
    }
}

#[cfg(feature = "cpu")]
#[test]
fn an_integer_that_an_f64_cannot_represent_stays_exact() {
    let odd = (1i64 << 60) + 1;
    let sketch = Sketch::new().input("x", "1,i64").weight("c", Tensor::scalar(odd)).node("Add", &["x", "c"], &["y"]);
    let model = Executor::load(&sketch.output("y", "1,i64"), crate::CpuOps).unwrap();
    assert_eq!(model.run_host(&[int_list(&[2])]).unwrap()[0].as_slice::<i64>().unwrap(), [odd + 2]);
}

#[test]
fn inputs_of_different_types_are_named_at_load() {
    let half = noise("2,f16", 1);
    let graph = Sketch::new().input("x", "2,f32").weight("w", half).node("Mul", &["x", "w"], &["y"]);
    let expected = "node `y` (Mul): `Mul` requires inputs of the same element type, not `f32` and `f16` (`x` is `f32`, \
                    weight `w` is `f16`)";
    assert_eq!(error(load(&graph.output("y", "2,f32"))), expected);
}

#[test]
fn an_operator_set_newer_than_the_executor_is_refused() {
    let graph =
        |opset| Graph { opset, ..Sketch::new().input("x", "1,f32").node("Relu", &["x"], &["y"]).output("y", "1,f32") };
    assert!(load(&graph(28)).is_ok());
    let expected = "the graph needs version 29 of the operator set `ai.onnx`, but the executor knows versions up to 28";
    assert_eq!(error(load(&graph(29))), expected);
}

#[test]
fn an_output_in_another_type_than_declared_is_refused() {
    let graph = Sketch::new().input("x", "1,f32").node("Relu", &["x"], &["y"]).output("y", "1,i64");
    let failed = error(load(&graph).unwrap().run_host(&[noise("1,f32", 1)]));
    assert_eq!(failed, "output `y`: it is declared as `i64`, but computed as `f32`");
}

#[cfg(feature = "cpu")]
#[test]
fn every_element_type_keeps_its_own_type_and_is_rounded_once() {
    for dtype in flagperf_onnx::DType::ALL.into_iter().filter(|dtype| *dtype != flagperf_onnx::DType::Bool) {
        let spec = format!("3,{dtype}");
        let graph = Sketch::new().input("x", &spec).node("Relu", &["x"], &["r"]).node("Mul", &["r", "x"], &["y"]);
        let x = Tensor::from_vec([3], vec![1.0, 0.0, 3.0]).unwrap().cast(dtype);
        // Relu has no unsigned numbers.
        if dtype.name().starts_with('u') {
            continue;
        }
        let y = &Executor::load(&graph.output("y", &spec), crate::CpuOps).unwrap().run_host(&[x]).unwrap()[0];
        assert_eq!((y.dtype(), y.to_f64()), (dtype, vec![1.0, 0.0, 9.0]));
    }
}

#[test]
fn a_failing_step_is_named() {
    let graph = Sketch::new().input("a", "N,f32").input("b", "M,f32").node("Add", &["a", "b"], &["sum"]);
    let model = load(&graph.output("sum", "?,f32")).unwrap();
    let failed = error(model.run_host(&[noise("2,f32", 1), noise("3,f32", 2)]));
    assert_eq!(failed, "node `sum` (Add): [2] and [3] cannot be broadcast together");
}

#[test]
fn intermediates_are_freed_after_their_last_use() {
    let mut sketch = Sketch::new().input("v0", "3,f32");
    for i in 0..20 {
        sketch = sketch.node("Relu", &[&format!("v{i}")], &[&format!("v{}", i + 1)]);
    }
    let model = load(&sketch.node("Add", &["v20", "v20"], &["y"]).output("y", "3,f32")).unwrap();
    let mut alive = Vec::new();
    let input = crate::Array::from_tensor(&noise("3,f32", 1));
    model
        .run_observed(vec![input], &mut |event| {
            if let NodeEvent::Ended(_, count) = event {
                alive.push(count())
            }
        })
        .unwrap();
    assert_eq!(alive, vec![1; 21]);
}

#[test]
fn arithmetic_on_shapes_runs_on_the_host_for_every_batch_size() {
    // Reshape(x, Concat(Shape(x)[0] * 2 % 1000, -1)), as exporters write it.
    let graph = Sketch::new()
        .input("x", "N,4,f32")
        .weight("zero", Tensor::scalar(0i64))
        .weight("two", Tensor::scalar(2i64))
        .weight("many", Tensor::scalar(1000i64))
        .weight("rest", int_list(&[-1]))
        .weight("first", int_list(&[0]))
        .node("Shape", &["x"], &["shape"])
        .node("Gather", &["shape", "zero"], &["rows"])
        .node("Mul", &["rows", "two"], &["twice"])
        .node("Mod", &["twice", "many"], &["bounded"])
        .node("Unsqueeze", &["bounded", "first"], &["listed"])
        .node_with("Concat", &["listed", "rest"], &["wanted"], [("axis", Attribute::Int(0))])
        .node("Reshape", &["x", "wanted"], &["y"])
        .output("y", "?,?,f32");
    let model = load(&graph).unwrap();
    for rows in [1, 3] {
        let input = noise(&format!("{rows},4,f32"), 1);
        assert_eq!(model.run_host(&[input]).unwrap()[0].shape(), [rows * 2, 2]);
    }
}

#[test]
fn constants_are_computed_once_at_load() {
    let graph = Sketch::new()
        .input("x", "2,f32")
        .weight("w", noise("3,2,f32", 1))
        .node("Transpose", &["w"], &["wt"])
        .node_with("Constant", &[], &["c"], [("value_float", Attribute::Float(0.5))])
        .node("Mul", &["wt", "c"], &["scaled"])
        .node("MatMul", &["x", "scaled"], &["y"])
        .output("y", "3,f32");
    let model = load(&graph).unwrap();
    let mut steps = 0;
    let input = crate::Array::from_tensor(&noise("2,f32", 2));
    model.run_observed(vec![input], &mut |event| steps += usize::from(matches!(event, NodeEvent::Ended(..)))).unwrap();
    assert_eq!(steps, 1);
}

#[test]
fn several_inputs_and_outputs_keep_their_order() {
    let sketch = Sketch::new().input("a", "2,f32").input("b", "2,i64").node("Neg", &["a"], &["minus"]);
    let sketch = Sketch(sketch.output("b", "2,i64"));
    let model = load(&sketch.output("minus", "2,f32")).unwrap();
    let fed = [noise("2,f32", 1), int_list(&[5, 6])];
    let outputs = model.run_host(&fed).unwrap();
    assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[5, 6]);
    assert_eq!(outputs[1].dtype(), DType::F32);
    assert_eq!(outputs[1].to_f64()[0], -fed[0].to_f64()[0]);
}
