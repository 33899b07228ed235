//! Tests of the executor itself: names in errors, shapes on the host, freed memory, checked inputs.

use super::{Sketch, int_list, ints, noise};
use crate::{ExecError, Executor, ReferenceOps};
use flagperf_onnx::{Attribute, DType, Graph, Tensor};

fn load(graph: &Graph) -> Result<Executor<ReferenceOps>, ExecError> {
    Executor::load(graph, ReferenceOps)
}

#[track_caller]
fn error<T>(result: Result<T, ExecError>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn an_unsupported_operator_is_named_with_its_node() {
    let graph = Sketch::new().input("x", "3,f32").node("Loop", &["x"], &["y"]).output("y", "3,f32");
    assert_eq!(error(load(&graph)), "node `y`: the executor does not support the operator `Loop`");
    let mut foreign = graph;
    foreign.nodes[0].domain = "com.microsoft".into();
    assert_eq!(error(load(&foreign)), "node `y`: the executor does not support the operator `com.microsoft.Loop`");
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
    let sketch = Sketch::new().input("x", "3,f32").node("Dropout", &["x"], &["y", "mask"]);
    let graph = sketch.output("mask", "3,bool");
    assert_eq!(error(load(&graph)), "`mask` reads the value `mask`, which no earlier node defines");
}

#[cfg(feature = "cpu")]
#[test]
fn every_element_type_keeps_its_own_type_and_is_rounded_once() {
    for dtype in flagperf_onnx::DType::ALL.into_iter().filter(|dtype| *dtype != flagperf_onnx::DType::Bool) {
        let spec = format!("3,{dtype}");
        let graph = Sketch::new().input("x", &spec).node("Relu", &["x"], &["r"]).node("Mul", &["r", "x"], &["y"]);
        let x = Tensor::from_vec([3], vec![1.0, 0.0, 3.0]).unwrap().cast(dtype);
        if dtype == flagperf_onnx::DType::U8 {
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
    model.run_observed(vec![input], &mut |count| alive.push(count)).unwrap();
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
    model.run_observed(vec![input], &mut |_| steps += 1).unwrap();
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
