//! Differences of graphs: what counts as the same.

use flagperf_onnx::rewrite::{GraphDiff, diff};
use flagperf_onnx::{Attribute, Graph, Node, Tensor, ValueInfo, Weight};

fn node<const N: usize>(op: &str, inputs: &[&str], output: &str, attributes: [(&str, Attribute); N]) -> Node {
    Node {
        name: output.to_owned(),
        op: op.to_owned(),
        inputs: inputs.iter().map(|name| (*name).to_owned()).collect(),
        outputs: vec![output.to_owned()],
        attributes: attributes.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
        ..Node::default()
    }
}

/// A graph of `x` with constants of one number.
fn graph(nodes: Vec<Node>, constants: &[(&str, f32)]) -> Graph {
    let info = |name: &str| ValueInfo { name: name.to_owned(), spec: "N,4,8,8,f32".parse().unwrap() };
    let outputs = vec![info(&nodes.last().unwrap().outputs[0])];
    let constant = |(name, value): &(&str, f32)| ((*name).to_owned(), Weight::constant(Tensor::scalar(*value)));
    let weights = constants.iter().map(constant).collect();
    Graph { opset: 17, inputs: vec![info("x")], outputs, nodes, weights, ..Graph::default() }
}

fn compared(before: &Graph, after: &Graph) -> GraphDiff {
    diff(before, after).unwrap()
}

#[test]
fn the_order_of_commutative_operands_and_stated_defaults_are_no_difference() {
    let before = graph(vec![node("Add", &["x", "c"], "a", []), node("MaxPool", &["a"], "y", [])], &[("c", 2.0)]);
    let pads = [("pads", Attribute::Ints(vec![0; 4])), ("ceil_mode", Attribute::Int(0))];
    let after = graph(vec![node("Add", &["c", "x"], "a", []), node("MaxPool", &["a"], "y", pads)], &[("c", 2.0)]);
    let same = compared(&before, &after);
    assert_eq!((same.unchanged, same.respelled, same.regions.len()), (2, 2, 0));
    let padded = [("pads", Attribute::Ints(vec![1; 4]))];
    let other = graph(vec![node("Add", &["x", "c"], "a", []), node("MaxPool", &["a"], "y", padded)], &[("c", 2.0)]);
    assert_eq!(compared(&before, &other).regions.len(), 1);
    let [forwards, backwards] =
        [["x", "c"], ["c", "x"]].map(|inputs| graph(vec![node("Sub", &inputs, "y", [])], &[("c", 2.0)]));
    assert_eq!(compared(&forwards, &backwards).regions.len(), 1, "the operands of a subtraction have an order");
}

#[test]
fn constants_count_by_their_elements_whatever_their_names_and_places() {
    let before = graph(vec![node("Mul", &["x", "c"], "y", [])], &[("c", 2.0)]);
    let renamed = graph(vec![node("Mul", &["x", "onnx::Mul_7"], "y", [])], &[("onnx::Mul_7", 2.0)]);
    let value = [("value", Attribute::Tensor(Tensor::scalar(2f32)))];
    let as_node = graph(vec![node("Constant", &[], "c7", value), node("Mul", &["x", "c7"], "y", [])], &[]);
    for (before, after) in [(&before, &renamed), (&before, &as_node), (&as_node, &renamed)] {
        let same = compared(before, after);
        assert_eq!((same.regions, same.weights, same.changed_weights), (vec![], [1, 1], vec![]));
    }
    // Exporters number their constants: the names change places.
    let swapped = |names: [&str; 2]| {
        let nodes = vec![node("Mul", &["x", names[0]], "a", []), node("Div", &["a", names[1]], "y", [])];
        graph(nodes, &[(names[0], 2.0), (names[1], 3.0)])
    };
    let same = compared(&swapped(["c1", "c2"]), &swapped(["c2", "c1"]));
    assert_eq!((same.regions, same.changed_weights), (vec![], vec![]));
    let trained = compared(&before, &graph(vec![node("Mul", &["x", "c"], "y", [])], &[("c", 2.5)]));
    assert_eq!((trained.regions, trained.changed_weights), (vec![], vec!["c".to_owned()]));
    let other = compared(&before, &graph(vec![node("Mul", &["x", "d"], "y", [])], &[("d", 2.5)]));
    assert_eq!(other.regions.len(), 1);
}

#[test]
fn a_tensor_in_an_attribute_counts_with_its_elements() {
    let filled = |number: f32| {
        let value = [("value", Attribute::Tensor(Tensor::from_vec([1], vec![number]).unwrap()))];
        let nodes = vec![node("Shape", &["x"], "shape", []), node("ConstantOfShape", &["shape"], "filled", value)];
        graph([nodes, vec![node("Mul", &["x", "filled"], "y", [])]].concat(), &[])
    };
    assert_eq!(compared(&filled(1.0), &filled(1.0)).regions, []);
    let difference = compared(&filled(1.0), &filled(2.0));
    assert_eq!((difference.unchanged, difference.regions.len()), (2, 1));
}
