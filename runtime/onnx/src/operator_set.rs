//! Converts a graph to another version of the standard operator set.
//!
//! What changed of an operator is in its row of the table of operators.

pub(crate) mod conversions;

use crate::lower::rewrite;
use crate::{Attribute, Graph, LowerError, Node, Tensor, Weight, check, find_operator};

/// The first version in which axes, bounds and sizes are inputs, as decompositions and layers write them.
pub const MODERN_OPSET: i64 = 13;

/// The version in which `Split` got the attribute `num_outputs`.
const SPLIT_OUTPUTS: i64 = 18;

/// Sets the version of a graph and converts the nodes whose form differs between the old version and the new one.
pub(crate) fn set_version(graph: &mut Graph, version: i64) {
    graph.opset = version;
    let mut nodes = std::mem::take(&mut graph.nodes);
    for node in nodes.iter_mut().filter(|node| node.domain.is_empty()) {
        if let Some(since) = find_operator(&node.op).and_then(|operator| operator.axes_input_since) {
            if version < since { axes_to_attribute(graph, node) } else { axes_to_input(graph, node) }
        } else if node.op == "Split" {
            convert_split(node, version);
        }
    }
    graph.nodes = nodes;
}

/// Returns whether [`set_version`] converts a node of an operator between two versions.
pub(crate) fn changes_form(op: &str, old: i64, new: i64) -> bool {
    let since = find_operator(op).and_then(|operator| operator.axes_input_since);
    let since = since.or((op == "Split").then_some(SPLIT_OUTPUTS));
    since.is_some_and(|since| old < since && since <= new)
}

/// Returns a graph of an older version as one of version [`MODERN_OPSET`]: the same operators in the form that they have
/// there. A newer graph is returned unchanged.
///
/// # Errors
/// When a node is used in a way that its newer form cannot express.
pub fn upgrade(graph: &Graph) -> Result<Graph, LowerError> {
    if graph.opset >= MODERN_OPSET {
        return Ok(graph.clone());
    }
    let conversion = |node: &Node| {
        let conversion = find_operator(&node.op).filter(|_| node.domain.is_empty())?.conversion;
        conversion.filter(|(before, _)| graph.opset < *before).map(|(_, convert)| convert)
    };
    let failed = |node: &Node, reason| LowerError::Version { node: node.name.clone(), op: node.op.clone(), reason };
    let mut upgraded = rewrite(graph, conversion, failed)?;
    set_version(&mut upgraded, MODERN_OPSET);
    check::infer_shapes(&mut upgraded);
    Ok(upgraded)
}

fn axes_to_input(graph: &mut Graph, node: &mut Node) {
    let Some(Attribute::Ints(axes)) = node.attributes.shift_remove("axes") else { return };
    let tensor = Tensor::from_vec([axes.len()], axes).expect("the shape is the length of the list");
    let name = unused_name(graph, &format!("{}.axes", node.name));
    graph.weights.insert(name.clone(), Weight::constant(tensor));
    node.inputs.truncate(1);
    node.inputs.push(name);
}

/// Moves constant axes to the attribute; axes that are computed stay.
fn axes_to_attribute(graph: &Graph, node: &mut Node) {
    let weight = node.inputs.get(1).and_then(|name| graph.weights.get(name));
    let Some(axes) = weight.and_then(Weight::tensor) else { return };
    let axes = axes.to_f64().into_iter().map(|axis| axis as i64).collect();
    node.attributes.insert("axes".to_owned(), Attribute::Ints(axes));
    node.inputs.truncate(1);
}

fn convert_split(node: &mut Node, version: i64) {
    if version < SPLIT_OUTPUTS {
        node.attributes.shift_remove("num_outputs");
    } else if node.inputs.len() < 2 {
        node.attributes.insert("num_outputs".to_owned(), Attribute::Int(node.outputs.len() as i64));
    }
}

/// Returns `name` itself, or with a number, so that no value of the graph has it.
pub(crate) fn unused_name(graph: &Graph, name: &str) -> String {
    let is_used = |name: &str| {
        graph.weights.contains_key(name)
            || graph.values.contains_key(name)
            || graph.inputs.iter().chain(&graph.outputs).any(|value| value.name == name)
    };
    let numbered = (1..).map(|number| format!("{name}_{number}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .find(|name| !is_used(name))
        .expect("a finite graph cannot use every name of an endless list")
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;
    use crate::WeightRole;
    use crate::{DType, GraphBuilder, Init, OPSET, TensorSpec, ValueInfo, lower};

    fn graph() -> Graph {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", TensorSpec::new([2usize, 4], DType::F32)).unwrap();
        let axes = [("axes".to_owned(), Attribute::Ints(vec![1]))].into_iter().collect();
        let mean = g.node("mean", "ReduceMean", &[Some(&x)], axes, 1).unwrap().remove(0);
        let centred = g.node("sub", "Sub", &[Some(&x), Some(&mean)], IndexMap::new(), 1).unwrap().remove(0);
        let scale = TensorSpec::new([4usize], DType::F32);
        let scale = g.weight("scale", scale, WeightRole::Parameter, Init::Constant(1.0)).unwrap();
        let inputs = [Some(&centred), Some(&scale)];
        let y = g.node("norm", "RMSNormalization", &inputs, IndexMap::new(), 1).unwrap().remove(0);
        g.output("y", &y).unwrap();
        g.finish().unwrap()
    }

    #[test]
    fn a_newer_operator_raises_the_version_and_converts_the_other_nodes() {
        let graph = graph();
        assert_eq!(graph.opset, 23);
        assert_eq!(
            (&graph.nodes[0].inputs[..], graph.nodes[0].attributes.len()),
            (&["x".into(), "mean.axes".into()][..], 0)
        );
        crate::check(&graph).unwrap();
    }

    #[test]
    fn a_lowered_graph_returns_to_the_older_version() {
        let graph = graph();
        let lowered = lower(&graph, 17, &[]).unwrap();
        assert_eq!((lowered.opset, &lowered.outputs), (17, &graph.outputs));
        assert!(lowered.nodes.iter().all(|node| node.op != "RMSNormalization"));
        assert_eq!(lowered.nodes[0].attributes["axes"], Attribute::Ints(vec![1]));
        assert!(lowered.weights.contains_key("scale"));
        crate::check(&lowered).unwrap();
        assert_eq!(lower(&graph, 23, &[]).unwrap().nodes, graph.nodes);
    }

    #[test]
    fn a_lowered_graph_has_the_version_that_the_forms_of_its_nodes_need() {
        // Swish needs version 24.
        let lowered = |mut graph: Graph| {
            let (inputs, outputs) = (vec!["x0".to_owned()], vec!["z".to_owned()]);
            graph.nodes.push(Node { name: "z".to_owned(), op: "Swish".to_owned(), inputs, outputs, ..Node::default() });
            lower(&graph, 23, &[]).unwrap().opset
        };
        let mut padded = old(24, "Pad", &["1,3,8,8,f32", "4,i64", "1,f32", "2,i64"], &[]);
        assert_eq!(lowered(padded.clone()), 18);
        padded.nodes[0].inputs.truncate(2);
        assert_eq!(lowered(padded), OPSET);
        let dilations = [("dilations", Attribute::Ints(vec![2, 2])), ("kernel_shape", Attribute::Ints(vec![2, 2]))];
        assert_eq!(lowered(old(24, "AveragePool", &["1,3,8,8,f32"], &dilations)), 19);
    }

    fn old(opset: i64, op: &str, specs: &[&str], attributes: &[(&str, Attribute)]) -> Graph {
        let names: Vec<String> = (0..specs.len()).map(|i| format!("x{i}")).collect();
        let inputs =
            names.iter().zip(specs).map(|(name, spec)| ValueInfo { name: name.clone(), spec: spec.parse().unwrap() });
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let node = Node {
            name: "y".to_owned(),
            op: op.to_owned(),
            inputs: names.clone(),
            outputs: vec!["y".to_owned()],
            attributes,
            ..Node::default()
        };
        Graph { opset, inputs: inputs.collect(), nodes: vec![node], ..Graph::default() }
    }

    fn values(graph: &Graph, name: &str) -> Vec<f64> {
        graph.tensor(name).unwrap().to_f64()
    }

    #[test]
    fn attributes_of_old_versions_become_inputs() {
        let bounds = [("min", Attribute::Float(-1.0)), ("max", Attribute::Float(2.0))];
        let clip = upgrade(&old(6, "Clip", &["4,f16"], &bounds)).unwrap();
        let node = &clip.nodes[0];
        assert_eq!((clip.opset, node.attributes.len(), node.inputs.len()), (13, 0, 3));
        assert_eq!(
            (values(&clip, &node.inputs[1]), clip.weights[&node.inputs[2]].spec.to_string()),
            (vec![-1.0], "f16".into())
        );
        let only_max = upgrade(&old(6, "Clip", &["4,f32"], &bounds[1..])).unwrap();
        assert_eq!((only_max.nodes[0].inputs[1].as_str(), only_max.nodes[0].inputs.len()), ("", 3));
        let squeeze = upgrade(&old(11, "Squeeze", &["1,4,f32"], &[("axes", Attribute::Ints(vec![0]))])).unwrap();
        assert_eq!(values(&squeeze, &squeeze.nodes[0].inputs[1]), [0.0]);
        assert_eq!(squeeze.values["y"].to_string(), "4,f32");
        let cut = [("starts", Attribute::Ints(vec![1])), ("ends", Attribute::Ints(vec![3]))];
        let slice = upgrade(&old(9, "Slice", &["4,f32"], &cut)).unwrap();
        assert_eq!((slice.nodes[0].inputs.len(), slice.values["y"].to_string()), (4, "2,f32".into()));
        let cast = upgrade(&old(1, "Cast", &["4,f32"], &[("to", Attribute::String("INT64".into()))])).unwrap();
        assert_eq!(cast.values["y"].to_string(), "4,i64");
    }

    #[test]
    fn a_softmax_of_an_old_version_covers_all_dimensions_from_its_axis_on() {
        let softmax = |axis| upgrade(&old(11, "Softmax", &["2,3,4,f32"], &[("axis", Attribute::Int(axis))])).unwrap();
        let ops = |graph: &Graph| graph.nodes.iter().map(|node| node.op.clone()).collect::<Vec<_>>();
        assert_eq!(ops(&softmax(1)), ["Flatten", "Softmax", "Shape", "Reshape"]);
        assert_eq!((ops(&softmax(2)), ops(&softmax(-1))), (vec!["Softmax".to_owned()], vec!["Softmax".to_owned()]));
        crate::check(&softmax(1)).unwrap();
    }

    #[test]
    fn an_operand_is_broadcast_from_the_axis_that_version_6_names() {
        let attributes = [("broadcast", Attribute::Int(1)), ("axis", Attribute::Int(1))];
        let sum = upgrade(&old(6, "Add", &["2,3,4,f32", "3,f32"], &attributes)).unwrap();
        assert_eq!(sum.nodes.iter().map(|node| node.op.as_str()).collect::<Vec<_>>(), ["Unsqueeze", "Add"]);
        assert_eq!(sum.values["y"].to_string(), "2,3,4,f32");
        assert_eq!(sum.values[&sum.nodes[1].inputs[1]].to_string(), "3,1,f32");
    }

    #[test]
    fn what_has_no_newer_form_is_named() {
        let error = |graph: &Graph| upgrade(graph).unwrap_err().to_string();
        let prefix = "node `y` (BatchNormalization) cannot be converted to a newer operator set:";
        let statistics = ["1,3,f32", "3,f32", "3,f32", "3,f32", "3,f32"];
        let spatial = old(7, "BatchNormalization", &statistics, &[("spatial", Attribute::Int(0))]);
        assert_eq!(error(&spatial), format!("{prefix} `spatial` is 0"));
        let training = old(6, "BatchNormalization", &statistics, &[]);
        assert_eq!(error(&training), format!("{prefix} it trains (`is_test` is 0)"));
        assert_eq!(upgrade(&graph()).unwrap().nodes, graph().nodes, "a newer graph is not changed");
    }
}
