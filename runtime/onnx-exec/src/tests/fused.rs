//! Compares fused steps with the reference library, which runs node by node.

use super::{Sketch, assert_close, ints, noise};
use crate::execution_plan::{ExecutionPlan, Step};
use crate::op::Op;
use crate::operands::Value;
use crate::program::Program;
use crate::{CpuOps, Elementwise, Executor, NodeEvent, ReferenceOps, TensorOps, Unary};
use flagperf_onnx::{Attribute, Graph, Tensor};

fn steps(graph: &Graph, input: &Tensor) -> (usize, Tensor) {
    let model = Executor::load(graph, CpuOps).unwrap();
    let (mut steps, input) = (0, model.ops().upload(input).unwrap());
    let outputs = model
        .run_observed(vec![input], &mut |event| steps += usize::from(matches!(event, NodeEvent::Ended(..))))
        .unwrap();
    (steps, model.download(0, &outputs[0]).unwrap())
}

#[track_caller]
fn check(graph: &Graph, expected_steps: usize) {
    let input = noise("2,4,7,5,f32", 9);
    let expected = &Executor::load(graph, ReferenceOps).unwrap().run_host(std::slice::from_ref(&input)).unwrap()[0];
    let (steps, actual) = steps(graph, &input);
    assert_close("fused", &actual, expected, 2e-5);
    assert_eq!(steps, expected_steps);
}

/// Adds a convolution of 4 channels that reads `from`, and a batch normalization whose output is `name`.
fn normalized(sketch: Sketch, name: &str, from: &str) -> Sketch {
    let named = |part: &str| format!("{name}.{part}");
    let positive: Vec<f32> = noise("4,f32", 5).to_f64().iter().map(|x| x.abs() as f32 + 0.1).collect();
    let sketch = sketch
        .weight(&named("weight"), noise("4,4,3,3,f32", 1))
        .weight(&named("scale"), noise("4,f32", 2))
        .weight(&named("shift"), noise("4,f32", 3))
        .weight(&named("mean"), noise("4,f32", 4))
        .weight(&named("variance"), Tensor::from_vec([4], positive).unwrap());
    let pads = [("pads", ints(&[1, 1, 1, 1]))];
    let statistics = ["scale", "shift", "mean", "variance"].map(named);
    let [scale, shift, mean, variance] = statistics.each_ref().map(String::as_str);
    sketch
        .node_with("Conv", &[from, &named("weight")], &[&named("conv")], pads)
        .node("BatchNormalization", &[&named("conv"), scale, shift, mean, variance], &[name])
        .value(name, "N,4,7,5,f32")
}

fn input() -> Sketch {
    Sketch::new().input("x", "N,4,7,5,f32")
}

#[test]
fn a_residual_block_is_fused_into_two_steps() {
    let sketch = normalized(input(), "a", "x").node("Relu", &["a"], &["r"]);
    let sketch = normalized(sketch, "b", "r").node("Add", &["b", "x"], &["sum"]).node("Relu", &["sum"], &["y"]);
    check(&sketch.output("y", "N,4,7,5,f32"), 2);
}

#[test]
fn a_sum_of_two_convolutions_is_fused_into_the_later_one() {
    let sketch = normalized(normalized(input(), "a", "x"), "b", "x").node("Add", &["a", "b"], &["y"]);
    check(&sketch.output("y", "N,4,7,5,f32"), 2);
}

#[test]
fn a_value_that_is_read_twice_is_kept() {
    let sketch = normalized(input(), "a", "x").node("Relu", &["a"], &["r"]).node("Add", &["a", "r"], &["y"]);
    check(&sketch.output("y", "N,4,7,5,f32"), 3);
}

#[test]
fn an_output_of_the_graph_is_kept() {
    let sketch = Sketch(normalized(input(), "a", "x").node("Relu", &["a"], &["y"]).output("y", "N,4,7,5,f32"));
    check(&sketch.output("a", "N,4,7,5,f32"), 2);
}

#[test]
fn a_sum_that_broadcasts_is_not_fused() {
    let sketch = normalized(input(), "a", "x").weight("w", noise("5,f32", 8)).node("Add", &["a", "w"], &["y"]);
    check(&sketch.output("y", "N,4,7,5,f32"), 2);
}

#[test]
fn a_bias_is_fused_into_the_product_of_a_matrix() {
    let product = || {
        let sketch = input().weight("w", noise("5,6,f32", 1)).weight("b", noise("6,f32", 2));
        sketch.node("MatMul", &["x", "w"], &["p"]).value("p", "N,4,7,6,f32")
    };
    for inputs in [["p", "b"], ["b", "p"]] {
        check(&product().node("Add", &inputs, &["y"]).output("y", "N,4,7,6,f32"), 1);
    }
    let matrix = product().weight("m", noise("7,6,f32", 3)).node("Add", &["p", "m"], &["y"]);
    check(&matrix.output("y", "N,4,7,6,f32"), 2);
}

#[test]
fn a_relu_is_fused_into_the_product_and_the_sum_before_it() {
    let sketch = input().weight("w", noise("5,6,f32", 1)).weight("b", noise("6,f32", 2));
    let sketch = sketch.node("MatMul", &["x", "w"], &["p"]).value("p", "N,4,7,6,f32").node("Add", &["p", "b"], &["s"]);
    check(&sketch.node("Relu", &["s"], &["y"]).output("y", "N,4,7,6,f32"), 1);
}

#[test]
fn a_gated_activation_is_fused_into_one_function() {
    let alpha = [("alpha", Attribute::Float(1.0 / 6.0))];
    let sketch = || normalized(input(), "a", "x");
    for sketch in [sketch().node("Sigmoid", &["a"], &["g"]), sketch().node_with("HardSigmoid", &["a"], &["g"], alpha)] {
        check(&sketch.node("Mul", &["g", "a"], &["y"]).output("y", "N,4,7,5,f32"), 1);
    }
}

#[test]
fn a_product_of_matrices_of_i8_is_fused_with_their_conversion() {
    let to_i32 = || [("to", Attribute::Int(6))];
    let sketch = Sketch::new().input("x", "3,5,i8").node("Transpose", &["x"], &["t"]).value("t", "5,3,i8");
    let sketch = sketch.node_with("Cast", &["x"], &["a"], to_i32()).value("a", "3,5,i32");
    let sketch = sketch.node_with("Cast", &["t"], &["b"], to_i32()).value("b", "5,3,i32");
    let graph = sketch.node("MatMul", &["a", "b"], &["y"]).output("y", "3,3,i32");
    let input = Tensor::from_vec([3, 5], (-128..-113i8).collect::<Vec<_>>()).unwrap();
    let expected = &Executor::load(&graph, ReferenceOps).unwrap().run_host(std::slice::from_ref(&input)).unwrap()[0];
    let (steps, actual) = steps(&graph, &input);
    assert_eq!((steps, actual.to_f64()), (2, expected.to_f64()));
}

/// Loads a graph with elementwise steps fused, compares its output with the reference, and returns the number of steps of each function
/// and how many steps run.
#[track_caller]
fn elementwise(graph: &Graph) -> (Vec<usize>, usize) {
    let mut plan = ExecutionPlan::of_graph(graph).unwrap();
    plan.fuse();
    plan.fuse_elementwise(&|operation| operation != Elementwise::Unary(Unary::Floor));
    let length = |step: &Step| match &step.op {
        Op::Fused(function) => Some(function.steps.len()),
        _ => None,
    };
    let lengths = plan.steps.iter().filter_map(length).collect();
    let program = Program::of_plan(plan, &CpuOps).unwrap();
    let inputs: Vec<Tensor> =
        graph.inputs.iter().zip(1..).map(|(input, seed)| noise(&input.spec.to_string(), seed)).collect();
    let expected = &Executor::load(graph, ReferenceOps).unwrap().run_host(&inputs).unwrap()[0];
    let uploaded = inputs.iter().map(|input| Some(Value::Library(CpuOps.upload(input).unwrap()))).collect();
    let mut steps = 0;
    let outputs =
        program.run(&CpuOps, uploaded, &mut |event| steps += usize::from(matches!(event, NodeEvent::Ended(..))));
    let Some(Value::Library(actual)) = &outputs.unwrap()[0] else { panic!("the output is not in the library") };
    let actual = CpuOps.download(actual, expected.dtype()).unwrap();
    assert_close("fused", &actual, expected, 1e-6);
    (lengths, steps)
}

fn two_inputs() -> Sketch {
    Sketch::new()
        .input("x", "3,4,f32")
        .input("y", "3,4,f32")
        .weight("half", Tensor::from_vec([1], vec![0.5f32]).unwrap())
}

#[test]
fn elementwise_steps_with_one_reader_are_one_function() {
    let sketch = two_inputs().node("Sigmoid", &["x"], &["a"]).node("Mul", &["a", "y"], &["b"]);
    let sketch =
        sketch.node("Sub", &["half", "b"], &["c"]).node("Exp", &["c"], &["d"]).node("Mul", &["d", "d"], &["e"]);
    let sketch = sketch.node("Neg", &["y"], &["f"]).node("Add", &["e", "f"], &["g"]).node("Relu", &["g"], &["z"]);
    // The products are fused into the sum and the difference that follow them.
    assert_eq!(elementwise(&sketch.output("z", "3,4,f32")), (vec![6], 1));
}

#[test]
fn values_that_others_read_and_outputs_stay() {
    let sketch = two_inputs().node("Exp", &["x"], &["a"]).node("MatMul", &["a", "w"], &["b"]);
    let sketch = sketch.weight("w", noise("4,4,f32", 3)).node("Add", &["a", "b"], &["z"]);
    assert_eq!(elementwise(&sketch.output("z", "3,4,f32")), (vec![], 3));
    let sketch = two_inputs().node("Exp", &["x"], &["a"]).node("Neg", &["a"], &["b"]);
    let sketch = Sketch(sketch.output("b", "3,4,f32"));
    assert_eq!(elementwise(&sketch.output("a", "3,4,f32")), (vec![], 2));
}

#[test]
fn what_would_be_computed_more_often_is_not_fused() {
    let row = two_inputs().input("row", "4,f32").node("Exp", &["row"], &["a"]).node("Add", &["a", "x"], &["b"]);
    assert_eq!(elementwise(&row.node("Abs", &["b"], &["z"]).output("z", "3,4,f32")), (vec![2], 2));
    let constant = two_inputs().weight("w", noise("3,4,f32", 3)).node("Exp", &["w"], &["a"]);
    assert_eq!(elementwise(&constant.node("Add", &["a", "x"], &["z"]).output("z", "3,4,f32")), (vec![], 1));
}

#[test]
fn only_operations_and_types_that_the_library_compiles_are_fused() {
    let sketch = two_inputs().node("Exp", &["x"], &["a"]).node("Floor", &["a"], &["b"]);
    assert_eq!(elementwise(&sketch.node("Abs", &["b"], &["z"]).output("z", "3,4,f32")), (vec![], 3));
    let sketch = Sketch::new().input("x", "3,4,i32").node("Abs", &["x"], &["a"]).node("Neg", &["a"], &["z"]);
    assert_eq!(elementwise(&sketch.output("z", "3,4,i32")), (vec![], 2));
    let infinite = Tensor::from_vec([1], vec![f32::INFINITY]).unwrap();
    let sketch = two_inputs().weight("most", infinite).node("Min", &["x", "most"], &["a"]);
    assert_eq!(elementwise(&sketch.node("Abs", &["a"], &["z"]).output("z", "3,4,f32")), (vec![], 2));
}

#[test]
fn a_function_reads_at_most_eight_tensors() {
    let names: Vec<String> = (0..12).map(|i| format!("x{i}")).collect();
    let mut sketch = Sketch::new();
    for name in &names {
        sketch = sketch.input(name, "3,4,f32");
    }
    for (i, name) in names.iter().enumerate().skip(1) {
        let before = if i == 1 { "x0".to_owned() } else { format!("sum{}", i - 1) };
        sketch = sketch.node("Add", &[&before, name], &[&format!("sum{i}")]);
    }
    assert_eq!(elementwise(&sketch.output("sum11", "3,4,f32")), (vec![7, 4], 2));
}
