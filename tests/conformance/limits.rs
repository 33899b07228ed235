//! Graphs at a limit, which are computed, and graphs beyond it, which are refused by name without ending the process.

use flagperf_core::tensor::{DType, Tensor};
use flagperf_engine::Value;
use flagperf_onnx::layers;
use flagperf_onnx::{Attribute, Graph, Var};

use crate::Check;
use crate::graphs::{binary, build, spec, unary};
use crate::harness::Harness;

pub const CHECKS: &[(&str, Check)] = &[
    ("a_long_path", a_long_path),
    ("many_inputs", many_inputs),
    ("a_step_of_zero", a_step_of_zero),
    ("a_step_of_zero_at_run_time", a_step_of_zero_at_run_time),
    ("a_value_too_large_for_any_memory", a_value_too_large_for_any_memory),
    ("names_with_control_characters", names_with_control_characters),
];

/// The limits of `flagperf_onnx::check_paths` and `flagperf_onnx::check_limits`.
const NODES_IN_A_ROW_MAX: usize = 10_000;
const VALUES_MAX: usize = 4_096;

fn refusal(harness: &Harness, graph: &Graph) -> String {
    harness.try_load(graph, &harness.options(DType::F32)).err().expect("it is refused").to_string()
}

/// Builds a path of `nodes` negations of `x`.
fn path(nodes: usize) -> Graph {
    unary("N,3,f32", |g, x| {
        let mut y = x.clone();
        for index in 0..nodes {
            y = g.node(&format!("n{index}"), "Neg", &[Some(&y)], Default::default(), 1)?.remove(0);
        }
        Ok(y)
    })
}

fn a_long_path(harness: &Harness) {
    let x = Tensor::from_vec([2, 3], vec![-1.0f32, 0.5, 2.0, 3.0, -4.0, 5.0]).unwrap();
    let y = harness.load(&path(NODES_IN_A_ROW_MAX)).run(std::slice::from_ref(&x)).remove(0);
    assert_eq!(y.to_f64(), x.to_f64());
    let error = refusal(harness, &path(NODES_IN_A_ROW_MAX + 1));
    let expected = "the model `unary`: the path to node `n10000` has 10001 nodes (at most 10000 are supported)";
    assert_eq!(error, expected);
}

fn joined(parts: usize) -> Graph {
    unary("N,3,f32", |g, x| {
        let inputs: Vec<Option<&Var>> = vec![Some(x); parts];
        let attributes = [("axis".to_owned(), Attribute::Int(1))].into_iter().collect();
        Ok(g.node("join", "Concat", &inputs, attributes, 1)?.remove(0))
    })
}

fn many_inputs(harness: &Harness) {
    let x = Tensor::from_vec([1, 3], vec![1.0f32, 2.0, 3.0]).unwrap();
    let y = harness.load(&joined(VALUES_MAX)).run(&[x]).remove(0);
    assert_eq!((y.shape(), y.to_f64()[3 * VALUES_MAX - 1]), (&[1, 3 * VALUES_MAX][..], 3.0));
    let error = refusal(harness, &joined(VALUES_MAX + 1));
    let expected = "the model `unary`: node `join` (Concat) has 4097 inputs (at most 4096 are supported)";
    assert_eq!(error, expected);
}

fn a_step_of_zero(harness: &Harness) {
    let mut graph = unary("N,3,f32", |g, x| {
        let list = |value: i64| Tensor::from_vec([1], vec![value]).unwrap();
        let inputs = [("starts", 0), ("ends", 2), ("axes", 1), ("steps", 1)];
        let inputs = inputs.map(|(name, value)| g.constant(name, list(value)).unwrap());
        let inputs: Vec<Option<&Var>> = std::iter::once(x).chain(&inputs).map(Some).collect();
        Ok(g.node("cut", "Slice", &inputs, Default::default(), 1)?.remove(0))
    });
    let zero = Tensor::from_vec([1], vec![0i64]).unwrap();
    graph.weights.get_mut("steps").unwrap().source = flagperf_onnx::WeightSource::Value(zero);
    assert_eq!(refusal(harness, &graph), "the model `unary`: node `cut` (Slice): a slice step is 0");
}

/// Checks a zero step that is an input: an engine either refuses the model when it loads or fails when it runs.
fn a_step_of_zero_at_run_time(harness: &Harness) {
    let graph = build("steps", |g| {
        let x = g.input("x", spec("N,3,f32"))?;
        let steps = g.input("steps", spec("1,i64"))?;
        let list = |value: i64| Tensor::from_vec([1], vec![value]).unwrap();
        let inputs =
            [("starts", 0), ("ends", 3), ("axes", 1)].map(|(name, value)| g.constant(name, list(value)).unwrap());
        let inputs: Vec<Option<&Var>> = std::iter::once(&x).chain(&inputs).chain([&steps]).map(Some).collect();
        let y = g.node("cut", "Slice", &inputs, Default::default(), 1)?.remove(0);
        g.output("y", &y)
    });
    let Ok(mut loaded) = harness.try_load(&graph, &harness.options(DType::F32)) else { return };
    let inputs = [Tensor::from_vec([1, 3], vec![1.0f32; 3]).unwrap(), Tensor::from_vec([1], vec![0i64]).unwrap()];
    let values: Vec<Value> = inputs.into_iter().map(Value::Host).collect();
    let computed = loaded.session.submit(&values).and_then(|outputs| outputs[0].to_host());
    assert!(computed.is_err(), "{computed:?}");
}

/// Checks an intermediate value of 10^12 elements.
fn a_value_too_large_for_any_memory(harness: &Harness) {
    let graph = binary(["1000000,1,f32", "1,1000000,f32"], |g, a, b| {
        let product = layers::mul(g, "outer", a, b)?;
        Ok(g.node("largest", "ReduceMax", &[Some(&product)], Default::default(), 1)?.remove(0))
    });
    let error = refusal(harness, &graph);
    let expected = "the model `binary`: the value `outer` of `1000000,1000000,f32` needs 3726 GiB (at most \
                    1024 GiB are supported)";
    assert_eq!(error, expected);
}

fn names_with_control_characters(harness: &Harness) {
    let name = "x\u{1b}[31m\nred";
    let graph = build("unary", |g| {
        let x = g.input(name, spec("N,3,f32"))?;
        let y = layers::add(g, "sum\u{7}", &x, &x)?;
        g.output("y\r", &y)
    });
    let mut loaded = harness.load(&graph);
    let x = Tensor::from_vec([1, 3], vec![1.0f32, 2.0, 3.0]).unwrap();
    assert_eq!(loaded.run(&[x])[0].to_f64(), [2.0, 4.0, 6.0]);
}
