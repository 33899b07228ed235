//! Counts a model's parameters and multiply-adds from its shapes alone.
//!
//! Does not read the bytes of weights.

use std::collections::HashMap;

use crate::check;
use crate::shape_inference::Attributes;
use crate::{Attribute, Dim, Graph, NamedSizes, Node, TensorSpec, WeightRole, find_operator};

/// The parameters, buffers and multiply-adds of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Learned numbers.
    pub parameters: u64,
    /// Numbers that layers keep in addition to their parameters (running statistics).
    pub buffers: u64,
    /// Multiply-adds of convolutions and matrix products for one sample. A multiply-add is two floating-point
    /// operations. `None` when a shape that the number depends on is unknown.
    pub multiply_adds_per_sample: Option<u64>,
}

/// Counts a graph. A sample is one row of the first dimension of the first input. A named dimension counts as 1 row;
/// with a fixed one, the total is divided by its size.
pub fn count(graph: &Graph) -> Counts {
    let elements = |role: WeightRole| {
        let weights = graph.weights.values().filter(|weight| weight.role == role);
        weights.filter_map(|weight| element_count(&weight.spec.dims)).sum()
    };
    Counts {
        parameters: elements(WeightRole::Parameter),
        buffers: elements(WeightRole::Buffer),
        multiply_adds_per_sample: multiply_adds_per_sample(graph),
    }
}

/// Returns the multiply-adds of one run of a graph on inputs with these sizes. `None` when a shape that the number
/// depends on is unknown.
pub fn multiply_adds(graph: &Graph, sizes: &NamedSizes<'_>) -> Option<u64> {
    multiply_adds_with(graph, |dim| sizes.size(dim))
}

fn multiply_adds_per_sample(graph: &Graph) -> Option<u64> {
    let batch = graph.inputs.first().and_then(|input| input.spec.dims.first());
    let rows = batch.and_then(Dim::fixed).unwrap_or(1) as u64;
    // With 1 in place of the batch dimension's name, every size computed from it becomes a number.
    let total = multiply_adds_with(graph, |dim| if batch == Some(dim) { Some(1) } else { None })?;
    total.checked_div(rows)
}

/// Returns the multiply-adds of a graph after `size` has replaced dimensions of its inputs that are not fixed.
fn multiply_adds_with(graph: &Graph, size: impl Fn(&Dim) -> Option<usize>) -> Option<u64> {
    let mut inference = check::start_inference(graph);
    let mut inputs: Vec<(&str, TensorSpec)> = Vec::new();
    for input in &graph.inputs {
        let mut spec = input.spec.clone();
        for dim in spec.dims.iter_mut().filter(|dim| dim.fixed().is_none()) {
            *dim = size(dim).map_or_else(|| dim.clone(), Dim::Fixed);
        }
        inference.declare(&input.name, &spec);
        inputs.push((&input.name, spec));
    }
    let (values, _) = check::infer_nodes(graph, inference);
    let mut shapes: Shapes<'_> = HashMap::new();
    shapes.extend(graph.weights.iter().map(|(name, weight)| (name.as_str(), weight.spec.dims.as_slice())));
    shapes.extend(inputs.iter().map(|(name, spec)| (*name, spec.dims.as_slice())));
    shapes.extend(values.iter().map(|(name, spec)| (name.as_str(), spec.dims.as_slice())));
    graph.nodes.iter().try_fold(0u64, |total, node| total.checked_add(node_multiply_adds(node, &shapes)?))
}

/// The shapes of a graph's values by name.
type Shapes<'g> = HashMap<&'g str, &'g [Dim]>;

/// Returns the multiply-adds of one node. Those of an operator outside the standard, or with a subgraph, are unknown.
fn node_multiply_adds(node: &Node, shapes: &Shapes<'_>) -> Option<u64> {
    if !matches!(node.domain.as_str(), "" | "ai.onnx") {
        return None;
    }
    let has_subgraph = node.attributes.values().any(|value| matches!(value, Attribute::Encoded(_)));
    if has_subgraph { None } else { (find_operator(&node.op)?.multiply_adds)(&CountedNode { node, shapes }) }
}

/// Returns the multiply-adds of one node, or `None` if a shape is unknown: the output's elements times the products
/// summed for each.
pub(crate) type MultiplyAdds = fn(&CountedNode<'_>) -> Option<u64>;

/// A node, and the shapes of its graph.
pub(crate) struct CountedNode<'a> {
    node: &'a Node,
    shapes: &'a Shapes<'a>,
}

impl<'a> CountedNode<'a> {
    fn shape(&self, name: Option<&String>) -> Option<&'a [Dim]> {
        self.shapes.get(name?.as_str()).copied()
    }

    fn input(&self, index: usize) -> Option<&'a [Dim]> {
        self.shape(self.node.inputs.get(index).filter(|name| !name.is_empty()))
    }

    /// Returns the elements of the first output.
    fn output(&self) -> Option<u64> {
        element_count(self.shape(self.node.outputs.first())?)
    }

    /// Returns the number of channels of a group times the window of the weight at `index`.
    fn window(&self, index: usize) -> Option<u64> {
        element_count(self.input(index)?.get(1..)?)
    }
}

/// The operator computes products that are not counted. The total is then unknown rather than too small.
pub(crate) fn unknown(_: &CountedNode<'_>) -> Option<u64> {
    None
}

pub(crate) fn convolution(node: &CountedNode<'_>) -> Option<u64> {
    node.output()?.checked_mul(node.window(1)?)
}

pub(crate) fn quantized_convolution(node: &CountedNode<'_>) -> Option<u64> {
    node.output()?.checked_mul(node.window(3)?)
}

/// Each input element contributes to the channels of a group and the window.
pub(crate) fn transposed_convolution(node: &CountedNode<'_>) -> Option<u64> {
    element_count(node.input(0)?)?.checked_mul(node.window(1)?)
}

pub(crate) fn gemm(node: &CountedNode<'_>) -> Option<u64> {
    let transposed = Attributes(&node.node.attributes).flag("transA").ok()?;
    node.output()?.checked_mul(node.input(0)?.get(usize::from(!transposed))?.fixed()? as u64)
}

pub(crate) fn matmul(node: &CountedNode<'_>) -> Option<u64> {
    node.output()?.checked_mul(node.input(0)?.last()?.fixed()? as u64)
}

/// Each step of each row multiplies by all weights of the inputs and of the hidden state.
pub(crate) fn recurrent(node: &CountedNode<'_>) -> Option<u64> {
    let steps = element_count(node.input(0)?.get(..2)?)?;
    steps.checked_mul(element_count(node.input(1)?)?.checked_add(element_count(node.input(2)?)?)?)
}

/// Returns the multiply-adds of an equation of two inputs without an ellipsis: the product of the sizes of all labels. One
/// input has none; those of more inputs depend on the order in which they are multiplied.
pub(crate) fn einsum(node: &CountedNode<'_>) -> Option<u64> {
    let Some(Attribute::String(equation)) = node.node.attributes.get("equation") else { return None };
    let operands = equation.split_once("->").map_or(equation.as_str(), |(operands, _)| operands);
    let terms: Vec<&str> = operands.split(',').map(str::trim).collect();
    match terms.len() {
        1 => return Some(0),
        2 if !operands.contains('.') => {}
        _ => return None,
    }
    let mut sizes: HashMap<char, u64> = HashMap::new();
    for (index, term) in terms.into_iter().enumerate().take(node.node.inputs.len()) {
        for (label, dim) in term.chars().zip(node.input(index)?) {
            let size = sizes.entry(label).or_insert(1);
            *size = (*size).max(dim.fixed()? as u64);
        }
    }
    sizes.into_values().try_fold(1, u64::checked_mul)
}

/// Returns the multiply-adds of an attention: each query is multiplied by every key, and each weight by a value.
pub(crate) fn attention(node: &CountedNode<'_>) -> Option<u64> {
    // The length is the dimension before the last, with the heads as a dimension of their own or not.
    let length = |input: usize| node.input(input)?.iter().nth_back(1)?.fixed();
    let has_past = node.node.inputs.get(4).is_some_and(|name| !name.is_empty());
    let past = if has_past { length(4)? } else { 0 };
    let keys = length(1)?.checked_add(past)? as u64;
    element_count(node.input(0)?)?.checked_add(node.output()?)?.checked_mul(keys)
}

/// Returns the number of elements; `None` when a size is unknown.
fn element_count(dims: &[Dim]) -> Option<u64> {
    dims.iter().try_fold(1u64, |all, dim| all.checked_mul(dim.fixed()? as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GraphBuilder, Var, layers};

    fn graph(build: impl FnOnce(&mut GraphBuilder) -> Var) -> Graph {
        let mut builder = GraphBuilder::new("counted");
        let y = build(&mut builder);
        builder.output("y", &y).unwrap();
        builder.finish().unwrap()
    }

    fn input(builder: &mut GraphBuilder, name: &str, spec: &str) -> Var {
        builder.input(name, spec.parse().unwrap()).unwrap()
    }

    /// Returns the multiply-adds of a run on inputs of these shapes.
    fn counted(graph: &Graph, shapes: &[&[usize]]) -> Option<u64> {
        let mut sizes = NamedSizes::default();
        for (input, shape) in graph.inputs.iter().zip(shapes) {
            sizes.bind(&input.spec, shape).unwrap();
        }
        multiply_adds(graph, &sizes)
    }

    #[test]
    fn a_run_is_counted_with_the_sizes_of_its_inputs() {
        let graph = graph(|builder| {
            let a = input(builder, "a", "N,L,8,f32");
            let b = input(builder, "b", "8,M,f32");
            layers::matmul(builder, "product", &a, &b).unwrap()
        });
        assert_eq!(counted(&graph, &[&[2, 3, 8], &[8, 5]]), Some(2 * 3 * 8 * 5));
        assert_eq!(counted(&graph, &[&[1, 0, 8], &[8, 5]]), Some(0));
        assert_eq!(count(&graph).multiply_adds_per_sample, None, "L and M are unknown");
    }

    #[test]
    fn an_equation_of_two_inputs_counts_as_much_as_its_product() {
        let product = |equation: &str| {
            let graph = graph(|builder| {
                let a = input(builder, "a", "N,L,8,f32");
                let b = input(builder, "b", "8,M,f32");
                let attributes =
                    indexmap::IndexMap::from([("equation".to_owned(), Attribute::String(equation.to_owned()))]);
                builder.node("product", "Einsum", &[Some(&a), Some(&b)], attributes, 1).unwrap().swap_remove(0)
            });
            counted(&graph, &[&[2, 3, 8], &[8, 5]])
        };
        assert_eq!(product("nlc,cm->nlm"), Some(2 * 3 * 8 * 5));
        assert_eq!(product(" nlc , cm -> n"), Some(2 * 3 * 8 * 5));
        assert_eq!(product("...c,cm->...m"), None, "an ellipsis is not counted");
    }

    #[test]
    fn a_total_beyond_64_bits_is_unknown() {
        let graph = |products: usize| {
            graph(|builder| {
                let a = input(builder, "a", "L,K,f32");
                let b = input(builder, "b", "K,M,f32");
                let product = |number: usize| {
                    let equation = Attribute::String("lk,km->lm".to_owned());
                    let attributes = indexmap::IndexMap::from([("equation".to_owned(), equation)]);
                    let name = format!("product{number}");
                    builder.node(&name, "Einsum", &[Some(&a), Some(&b)], attributes, 1).unwrap().swap_remove(0)
                };
                (0..products).map(product).last().unwrap()
            })
        };
        let sizes = [1 << 21, 1 << 21];
        assert_eq!(counted(&graph(1), &[&sizes, &sizes]), Some(1 << 63));
        assert_eq!(counted(&graph(2), &[&sizes, &sizes]), None);
    }

    #[test]
    fn an_attention_counts_as_much_as_its_two_products() {
        let specs = ["N,6,S,16,f32", "N,2,S,16,f32", "N,2,S,16,f32", "N,2,P,16,f32", "N,2,P,16,f32"];
        let whole = graph(|builder| {
            let vars: Vec<Var> =
                specs.iter().enumerate().map(|(i, spec)| input(builder, &i.to_string(), spec)).collect();
            let inputs = [Some(&vars[0]), Some(&vars[1]), Some(&vars[2]), None, Some(&vars[3]), Some(&vars[4])];
            builder.node("attention", "Attention", &inputs, indexmap::IndexMap::new(), 3).unwrap().swap_remove(0)
        });
        let composed = graph(|builder| {
            let vars: Vec<Var> =
                specs.iter().enumerate().map(|(i, spec)| input(builder, &i.to_string(), spec)).collect();
            let past = Some([&vars[3], &vars[4]]);
            let (mask, heads, scale, causal) = (None, None, None, false);
            let operands =
                layers::Attention { q: &vars[0], k: &vars[1], v: &vars[2], mask, past, heads, scale, causal };
            let [y, ..] = layers::attention(builder, "attention", operands).unwrap();
            y
        });
        let (q, kv, past): (&[usize], &[usize], &[usize]) = (&[3, 6, 4, 16], &[3, 2, 4, 16], &[3, 2, 7, 16]);
        let shapes = [q, kv, kv, past, past];
        assert_eq!(counted(&composed, &shapes), Some(2 * 3 * 6 * 4 * 11 * 16));
        assert_eq!(counted(&whole, &shapes), Some(2 * 3 * 6 * 4 * 11 * 16));
    }

    #[test]
    fn a_recurrent_layer_counts_all_gates_of_every_step() {
        let mut graph = graph(|builder| {
            input(builder, "w", "1,80,10,f32");
            input(builder, "r", "1,80,20,f32");
            input(builder, "x", "T,N,10,f32")
        });
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (op, inputs, outputs) = ("LSTM".to_owned(), names(&["x", "w", "r"]), names(&["hidden"]));
        graph.nodes.push(Node { name: "lstm".to_owned(), op, inputs, outputs, ..Node::default() });
        assert_eq!(counted(&graph, &[&[1, 80, 10], &[1, 80, 20], &[7, 3, 10]]), Some(7 * 3 * 80 * 30));
    }
}
