//! Graphs that are as large as they may be, and larger: computed, or refused by name, and never the end of the process.

use flagperf::engine::Value;
use flagperf::tensor::{DType, Tensor};
use flagperf_onnx::layers;
use flagperf_onnx::{Attribute, Graph, Var};

use crate::Check;
use crate::bench::Bench;
use crate::graphs::{binary, build, spec, unary};

pub const CHECKS: &[(&str, Check)] = &[
    ("a_long_path", a_long_path),
    ("many_inputs", many_inputs),
    ("a_step_of_zero", a_step_of_zero),
    ("a_step_of_zero_at_run_time", a_step_of_zero_at_run_time),
    ("a_value_that_no_memory_has", a_value_that_no_memory_has),
    ("names_with_control_characters", names_with_control_characters),
];

/// The limits of `flagperf_onnx::check_limits`.
const NODES_IN_A_ROW_MAX: usize = 10_000;
const VALUES_MAX: usize = 4_096;

fn refusal(bench: &Bench, graph: &Graph) -> String {
    bench.try_load(graph, &bench.options(DType::F32)).err().expect("it is refused").to_string()
}

/// x, and `-x` as often as it takes for `nodes` in a row.
fn path(nodes: usize) -> Graph {
    unary("N,3,f32", |g, x| {
        let mut y = x.clone();
        for index in 0..nodes {
            y = g.node(&format!("n{index}"), "Neg", &[Some(&y)], Default::default(), 1)?.remove(0);
        }
        Ok(y)
    })
}

fn a_long_path(bench: &Bench) {
    let x = Tensor::from_vec([2, 3], vec![-1.0f32, 0.5, 2.0, 3.0, -4.0, 5.0]).unwrap();
    let y = bench.load(&path(NODES_IN_A_ROW_MAX)).run(std::slice::from_ref(&x)).remove(0);
    assert_eq!(y.to_f64(), x.to_f64());
    let error = refusal(bench, &path(NODES_IN_A_ROW_MAX + 1));
    let expected = "the model `unary`: 10001 nodes in a row lead to node `n10000`, at most 10000 are supported";
    assert_eq!(error, expected);
}

fn joined(parts: usize) -> Graph {
    unary("N,3,f32", |g, x| {
        let inputs: Vec<Option<&Var>> = vec![Some(x); parts];
        let attributes = [("axis".to_owned(), Attribute::Int(1))].into_iter().collect();
        Ok(g.node("join", "Concat", &inputs, attributes, 1)?.remove(0))
    })
}

fn many_inputs(bench: &Bench) {
    let x = Tensor::from_vec([1, 3], vec![1.0f32, 2.0, 3.0]).unwrap();
    let y = bench.load(&joined(VALUES_MAX)).run(&[x]).remove(0);
    assert_eq!((y.shape(), y.to_f64()[3 * VALUES_MAX - 1]), (&[1, 3 * VALUES_MAX][..], 3.0));
    let error = refusal(bench, &joined(VALUES_MAX + 1));
    let expected = "the model `unary`: node `join` (Concat) has 4097 inputs, at most 4096 are supported";
    assert_eq!(error, expected);
}

fn a_step_of_zero(bench: &Bench) {
    let mut graph = unary("N,3,f32", |g, x| {
        let list = |value: i64| Tensor::from_vec([1], vec![value]).unwrap();
        let inputs = [("starts", 0), ("ends", 2), ("axes", 1), ("steps", 1)];
        let inputs = inputs.map(|(name, value)| g.constant(name, list(value)).unwrap());
        let inputs: Vec<Option<&Var>> = std::iter::once(x).chain(&inputs).map(Some).collect();
        Ok(g.node("cut", "Slice", &inputs, Default::default(), 1)?.remove(0))
    });
    let zero = Tensor::from_vec([1], vec![0i64]).unwrap();
    graph.weights.get_mut("steps").unwrap().source = flagperf_onnx::Source::Value(zero);
    assert_eq!(refusal(bench, &graph), "the model `unary`: node `cut` (Slice): a step is 0");
}

/// A step that is an input: some engines do not take such a model, and none computes it.
fn a_step_of_zero_at_run_time(bench: &Bench) {
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
    let Ok(mut loaded) = bench.try_load(&graph, &bench.options(DType::F32)) else { return };
    let inputs = [Tensor::from_vec([1, 3], vec![1.0f32; 3]).unwrap(), Tensor::from_vec([1], vec![0i64]).unwrap()];
    let values: Vec<Value> = inputs.into_iter().map(Value::Host).collect();
    let computed = loaded.session.submit(&values).and_then(|outputs| outputs[0].to_host());
    assert!(computed.is_err(), "{computed:?}");
}

/// 10^12 elements between input and output.
fn a_value_that_no_memory_has(bench: &Bench) {
    let graph = binary(["1000000,1,f32", "1,1000000,f32"], |g, a, b| {
        let product = layers::mul(g, "outer", a, b)?;
        Ok(g.node("largest", "ReduceMax", &[Some(&product)], Default::default(), 1)?.remove(0))
    });
    let error = refusal(bench, &graph);
    let expected = "the model `binary`: the value `outer` (`1000000,1000000,f32`) needs 3726 GiB, at most \
                    1024 GiB are supported";
    assert_eq!(error, expected);
}

fn names_with_control_characters(bench: &Bench) {
    let name = "x\u{1b}[31m\nred";
    let graph = build("unary", |g| {
        let x = g.input(name, spec("N,3,f32"))?;
        let y = layers::add(g, "sum\u{7}", &x, &x)?;
        g.output("y\r", &y)
    });
    let mut loaded = bench.load(&graph);
    let x = Tensor::from_vec([1, 3], vec![1.0f32, 2.0, 3.0]).unwrap();
    assert_eq!(loaded.run(&[x])[0].to_f64(), [2.0, 4.0, 6.0]);
}
