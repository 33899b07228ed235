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
