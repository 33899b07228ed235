//! What a comparison of two graphs executes, and what it accepts.

use flagperf_onnx::rewrite::{Pattern, Replacement, extract, rename, replace};
use flagperf_onnx::{Graph, Tensor, TensorSpec, ValueInfo};

use super::{Sketch, int_list, noise};
use crate::{Compared, ProofError, ProofLimits, compare, prove_regions};

const EXACT: ProofLimits = ProofLimits { approximation: None };

fn same(before: &Graph, after: &Graph) -> Compared {
    compare(before, after, 0, EXACT).unwrap()
}

fn output(name: &str, spec: &str) -> ValueInfo {
    ValueInfo { name: name.into(), spec: spec.parse().unwrap() }
}

/// A graph of which `y` reads the output of a node that no library can execute.
fn with_unknown_node(op: &str, operands: [&str; 2]) -> Graph {
    let sketch =
        Sketch::new().input("x", "N,4,f32").weight("two", Tensor::scalar(2f32)).weight("w", noise("4,4,f32", 1));
    let mut sketch = sketch.node(op, &operands, &["doubled"]).node("Mystery", &["doubled"], &["m"]);
    sketch.0.nodes[1].domain = "elsewhere".to_owned();
    let sketch = sketch.value("doubled", "N,4,f32").value("m", "N,4,f32").value("y", "N,4,f32");
    let mut graph = sketch.node("MatMul", &["m", "w"], &["y"]).output("y", "N,4,f32");
    graph.outputs.push(output("doubled", "N,4,f32"));
    graph
}

#[test]
fn what_the_same_nodes_compute_from_the_same_values_is_not_executed() {
    let before = with_unknown_node("Mul", ["x", "two"]);
    let part = extract(&before, &["x".to_owned()], &["y".to_owned()]).unwrap();
    let compared = same(&before, &part);
    assert_eq!((compared.elements, compared.same_outputs, compared.error), (0, 1, 0.0));
    let mut other = before.clone();
    other.weights.insert("two".to_owned(), flagperf_onnx::Weight::constant(Tensor::scalar(3f32)));
    let error = compare(&before, &other, 0, EXACT).unwrap_err().to_string();
    assert!(error.contains("Mystery"), "a weight with other elements is another one: {error}");
}

#[test]
fn nodes_behind_a_change_that_keeps_its_value_are_not_executed() {
    let compared = same(&with_unknown_node("Mul", ["x", "two"]), &with_unknown_node("Add", ["x", "x"]));
    assert_eq!(
        (compared.elements, compared.same_outputs),
        (2 * 2 * 4, 1),
        "`doubled` is compared, `y` is not computed"
    );
}

#[test]
fn constants_of_other_names_and_places_are_the_same() {
    let before = with_unknown_node("Mul", ["x", "two"]);
    let mut after = before.clone();
    let weight = after.weights.shift_remove("two").unwrap();
    after.weights.insert("zwei".to_owned(), weight);
    after.nodes[0].inputs = vec!["zwei".to_owned(), "x".to_owned()];
    assert_eq!(same(&before, &after).same_outputs, 2);
    // A computed constant that becomes a weight.
    let sizes = |sketch: Sketch| sketch.node("Reshape", &["x", "sizes"], &["y"]).output("y", "8,N,f32");
    let sketch = || Sketch::new().input("x", "N,8,f32");
    let computed = sizes(sketch().weight("negative", int_list(&[-8, 1])).node("Neg", &["negative"], &["sizes"]));
    let compared = same(&computed, &sizes(sketch().weight("sizes", int_list(&[8, -1]))));
    assert_eq!((compared.elements, compared.same_outputs), (4, 1));
    assert!(compare(&computed, &sizes(sketch().weight("sizes", int_list(&[-1, 8]))), 0, EXACT).is_err());
}

#[test]
fn a_value_between_may_be_another_one_of_the_same_name() {
    let chain = |names: [&str; 2]| {
        let sketch = Sketch::new().input("x", "N,4,f32").node("Exp", &["x"], &[names[0]]);
        sketch.node("Neg", &[names[0]], &[names[1]]).node("Tanh", &[names[1]], &["y"]).output("y", "N,4,f32")
    };
    assert_eq!(same(&chain(["a", "b"]), &chain(["b", "a"])).same_outputs, 1);
    // As far as `b` of one graph is compared with `b` of the other one, it differs; the outputs decide.
    let doubled = |name: &str, other: &str| {
        let sketch = Sketch::new().input("x", "N,4,f32").weight("two", Tensor::scalar(2f32));
        sketch.node("Add", &["x", "x"], &[name]).node("Mul", &[name, "two"], &[other]).node("Tanh", &[other], &["y"])
    };
    let mut after = doubled("b", "a");
    after.0.nodes[0].op = "Mul".to_owned();
    after.0.nodes[0].inputs[1] = "two".to_owned();
    let compared = same(&doubled("a", "b").output("y", "N,4,f32"), &after.output("y", "N,4,f32"));
    assert!(compared.elements > 0 && compared.error < 1e-9, "{compared:?}");
    let mut renamed = chain(["a", "b"]);
    rename(&mut renamed, "b", "c").unwrap();
    assert_eq!(same(&chain(["a", "b"]), &renamed).elements, 0);
}

/// Gelu with erf, and a product behind it.
fn gelu() -> Graph {
    let sketch = Sketch::new().input("x", "N,64,f32").weight("w", noise("64,8,f32", 1));
    sketch.node("Gelu", &["x"], &["g"]).node("MatMul", &["g", "w"], &["y"]).output("y", "N,8,f32")
}

#[test]
fn an_approximation_is_accepted_within_the_limit_of_the_case_and_named() {
    let pattern = Pattern::parse("y = Gelu(x)").unwrap();
    let text = "y = Gelu<approximate=\"tanh\">(x)";
    let rewrite = replace(&gelu(), &pattern, &mut |_| Ok(Replacement::parse(text).unwrap())).unwrap();
    let limits = |approximation| ProofLimits { approximation };
    let (places, whole) =
        (|limits| prove_regions(&rewrite.replaced, 0, limits), |limits| compare(&gelu(), &rewrite.graph, 0, limits));
    assert!(matches!(places(EXACT).differs, Some((_, ProofError::Differs { .. }))));
    let error = whole(EXACT).unwrap_err();
    assert!(error.to_string().contains("the first node that differs is `g (Gelu)`"), "{error}");
    let proof = places(limits(Some(1e-3)));
    let error = proof.approximation.unwrap();
    assert!(proof.differs.is_none() && (1e-5..1e-3).contains(&error), "{proof:?}");
    let compared = whole(limits(Some(1e-3))).unwrap();
    assert!(compared.approximation.is_some_and(|error| (1e-5..1e-3).contains(&error)), "{compared:?}");
    assert!(matches!(places(limits(Some(1e-6))).differs, Some((_, ProofError::TooCoarse { .. }))));
    let error = whole(limits(Some(1e-6))).unwrap_err().to_string();
    assert!(error.contains("(the case accepts 1e-6)") && error.contains("`g (Gelu)`"), "{error}");
}

#[test]
fn a_limit_of_approximations_changes_nothing_for_an_exact_rewrite() {
    let wide = ProofLimits { approximation: Some(0.5) };
    let compared = compare(&gelu(), &gelu(), 0, wide).unwrap();
    assert_eq!((compared.approximation, compared.error), (None, 0.0));
    let sketch = || Sketch::new().input("x", "N,4,f32");
    let largest = |op: &str| {
        let spec: TensorSpec = "N,1,i64".parse().unwrap();
        let graph = sketch().node(op, &["x"], &["y"]).output("y", "N,1,i64");
        let axis = [("axis".to_owned(), flagperf_onnx::Attribute::Int(1))].into_iter().collect();
        let mut graph = Graph { outputs: vec![ValueInfo { name: "y".into(), spec }], ..graph };
        graph.nodes[0].attributes = axis;
        graph
    };
    let error = compare(&largest("ArgMax"), &largest("ArgMin"), 0, wide).unwrap_err();
    assert!(matches!(error, ProofError::Differs { .. }), "whole numbers have no approximation: {error}");
}

/// `y`, computed by one node from an input `x` and a weight `w`.
fn one_node(op: &str, x: &str, w: Tensor, y: &str) -> Graph {
    Sketch::new().input("x", x).weight("w", w).node(op, &["x", "w"], &["y"]).output("y", y)
}

fn integers(elements: &[i64]) -> Tensor {
    Tensor::from_vec([elements.len()], elements.to_vec()).unwrap()
}

#[test]
fn a_changed_weight_counts_by_what_is_computed_from_it() {
    let div = |elements: [f32; 4]| {
        one_node("Div", "N,3,4,f32", Tensor::from_vec([4], elements.to_vec()).unwrap(), "N,3,4,f32")
    };
    let gather = |rows: [i64; 2]| one_node("Gather", "200001,f32", integers(&rows), "2,f32");
    for (before, after) in [
        (div([1e6, 1e-3, 1e-3, 1e-3]), div([1e6, 5.0, -5.0, 5.0])),
        (div([0.0; 4]), div([-0.0; 4])),
        (gather([200_000, 0]), gather([200_000, 1])),
    ] {
        let error = compare(&before, &after, 0, EXACT).unwrap_err();
        assert!(matches!(error, ProofError::Differs { .. }), "{error}");
    }
    let rounded = same(&div([3.0, 1e-3, 2.0, 1.0]), &div([3.000_000_2, 1e-3, 2.0, 1.0]));
    assert!(rounded.error < 1e-6 && rounded.elements > 0, "{rounded:?}");
}

#[test]
fn integers_are_drawn_beyond_0_and_1_where_the_graph_accepts_them() {
    let of = |op: &str, inputs: &[&str], dtype: &str| {
        let spec = format!("N,6,{dtype}");
        Sketch::new().input("x", &spec).node(op, inputs, &["y"]).output("y", &spec)
    };
    for dtype in ["i64", "i32", "u8", "i8"] {
        let error = compare(&of("Identity", &["x"], dtype), &of("Mul", &["x", "x"], dtype), 0, EXACT).unwrap_err();
        assert!(matches!(error, ProofError::Differs { .. }), "{dtype}: {error}");
    }
    let table = |clips: bool| {
        let sketch = Sketch::new().input("i", "N,6,i64").weight("table", noise("1000,4,f32", 1));
        let sketch = sketch.weight("one", Tensor::scalar(1i64));
        let op = if clips { "Min" } else { "Max" };
        let rows = if clips { [op, "i", "one"] } else { ["Identity", "i", ""] };
        let inputs: Vec<&str> = rows[1..].iter().copied().filter(|name| !name.is_empty()).collect();
        let sketch = sketch.node(rows[0], &inputs, &["rows"]).value("rows", "N,6,i64");
        sketch.node("Gather", &["table", "rows"], &["y"]).output("y", "N,6,4,f32")
    };
    let error = compare(&table(false), &table(true), 0, EXACT).unwrap_err();
    assert!(matches!(error, ProofError::Differs { .. }), "{error}");
    // As a size, any integer might need any amount of memory.
    let sized = |node: &str| {
        let sketch = Sketch::new().input("x", "1,f32").input("size", "1,i64").node("Expand", &["x", "size"], &["e"]);
        sketch.value("e", "M,f32").node(node, &["e"], &["y"]).output("y", "M,f32")
    };
    let compared = compare(&sized("Relu"), &sized("Abs"), 0, EXACT);
    assert!(!matches!(compared, Ok(Compared { error: 0.0, .. })), "{compared:?}");
}

#[test]
fn numbers_of_16_bits_excuse_only_what_the_graph_before_computes_from_them() {
    let scaled = |factor: f32| {
        let sketch = Sketch::new().input("x", "N,4,f32").weight("f", Tensor::scalar(factor));
        let sketch = sketch.node("Mul", &["x", "f"], &["y"]).value("z", "N,4,f16");
        let mut graph = sketch
            .node_with("Cast", &["x"], &["z"], [("to", flagperf_onnx::Attribute::Int(10))])
            .output("y", "N,4,f32");
        graph.outputs.push(output("z", "N,4,f16"));
        graph
    };
    let error = compare(&scaled(1000.0), &scaled(1003.0), 0, EXACT).unwrap_err();
    assert!(matches!(error, ProofError::Differs { limit: 1e-5, .. }), "{error}");
    let sigmoid = |rounds: bool| {
        let to = |number| [("to", flagperf_onnx::Attribute::Int(number))];
        let sketch = Sketch::new().input("x", "N,4,f32").weight("f", Tensor::scalar(1.0009f32));
        let sketch = sketch.node("Sigmoid", &["x"], &[if rounds { "s" } else { "y" }]).value("s", "N,4,f32");
        if !rounds {
            return sketch.output("y", "N,4,f32");
        }
        let sketch = sketch.node_with("Cast", &["s"], &["h"], to(10)).value("h", "N,4,f16");
        let sketch = sketch.node_with("Cast", &["h"], &["w"], to(1)).value("w", "N,4,f32");
        sketch.node("Mul", &["w", "f"], &["y"]).output("y", "N,4,f32")
    };
    let error = compare(&sigmoid(false), &sigmoid(true), 0, EXACT).unwrap_err();
    assert!(matches!(error, ProofError::Differs { limit: 1e-5, .. }), "{error}");
}

#[test]
fn two_nodes_that_draw_numbers_are_not_the_same() {
    let graph = |second: &str| {
        let sketch = Sketch::new().input("x", "N,4,f32").node("RandomNormalLike", &["x"], &["r"]);
        let sketch = sketch.node("RandomNormalLike", &["x"], &["s"]).value("r", "N,4,f32").value("s", "N,4,f32");
        sketch.node("Sub", &[second, "r"], &["y"]).output("y", "N,4,f32")
    };
    assert!(compare(&graph("s"), &graph("r"), 0, EXACT).is_err());
    assert_eq!(same(&graph("s"), &graph("s")).same_outputs, 1);
}

#[test]
fn another_shape_is_a_difference() {
    let sliced = |end: i64| {
        let sketch =
            Sketch::new().input("x", "2,3,4,f32").weight("start", integers(&[0])).weight("end", integers(&[end]));
        let sketch = sketch.weight("axis", integers(&[1]));
        sketch.node("Slice", &["x", "start", "end", "axis"], &["y"]).output("y", &format!("2,{end},4,f32"))
    };
    let error = compare(&sliced(3), &sliced(2), 0, EXACT).unwrap_err();
    assert_eq!(error.to_string(), "output `y`: its shape is [2, 2, 4] instead of [2, 3, 4]");
}
