//! Counts a model's parameters and multiply-adds from its shapes alone.
//!
//! Does not read the bytes of weights.

use std::collections::HashMap;

use crate::check;
use crate::shape_inference::Attributes;
use crate::{Attribute, Dim, Graph, NamedSizes, Node, TensorSpec, WeightRole};

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

/// Returns the multiply-adds of one node: the output's elements times the products summed for each. Operators other
/// than those listed here have none.
fn node_multiply_adds(node: &Node, shapes: &Shapes<'_>) -> Option<u64> {
    let shape = |name: Option<&String>| shapes.get(name?.as_str()).copied();
    let input = |index: usize| shape(node.inputs.get(index));
    let output = || element_count(shape(node.outputs.first())?);
    // The number of channels of a group times the window.
    let window = |index: usize| element_count(input(index)?.get(1..)?);
    if !matches!(node.domain.as_str(), "" | "ai.onnx") {
        return None;
    }
    match node.op.as_str() {
        "Conv" | "ConvInteger" => output()?.checked_mul(window(1)?),
        "QLinearConv" => output()?.checked_mul(window(3)?),
        // Each input element contributes to the channels of a group and the window.
        "ConvTranspose" => element_count(input(0)?)?.checked_mul(window(1)?),
        "Gemm" => {
            let transposed = Attributes(&node.attributes).flag("transA").ok()?;
            output()?.checked_mul(input(0)?.get(usize::from(!transposed))?.fixed()? as u64)
        }
        "MatMul" | "MatMulInteger" | "QLinearMatMul" => output()?.checked_mul(input(0)?.last()?.fixed()? as u64),
        "Attention" => attention_multiply_adds(node, shapes),
        // Each step of each row multiplies by all weights of the inputs and of the hidden state.
        "GRU" | "LSTM" | "RNN" => {
            let steps = element_count(input(0)?.get(..2)?)?;
            steps.checked_mul(element_count(input(1)?)?.checked_add(element_count(input(2)?)?)?)
        }
        "Einsum" => einsum_multiply_adds(node, shapes),
        op if is_uncounted(op) => None,
        _ if node.attributes.values().any(|value| matches!(value, Attribute::Encoded(_))) => None,
        _ => Some(0),
    }
}

/// Returns whether an operator computes products that are not counted. The total is then unknown rather than too small.
fn is_uncounted(op: &str) -> bool {
    matches!(op, "DeformConv") || op.starts_with("QLinear") || op.ends_with("Integer")
}

/// Returns the multiply-adds of an equation of two inputs without an ellipsis: the product of the sizes of all labels. One
/// input has none; those of more inputs depend on the order in which they are multiplied.
fn einsum_multiply_adds(node: &Node, shapes: &Shapes<'_>) -> Option<u64> {
    let Some(Attribute::String(equation)) = node.attributes.get("equation") else { return None };
    let operands = equation.split_once("->").map_or(equation.as_str(), |(operands, _)| operands);
    let terms: Vec<&str> = operands.split(',').map(str::trim).collect();
    match terms.len() {
        1 => return Some(0),
        2 if !operands.contains('.') => {}
        _ => return None,
    }
    let mut sizes: HashMap<char, u64> = HashMap::new();
    for (term, input) in terms.into_iter().zip(&node.inputs) {
        for (label, dim) in term.chars().zip(*shapes.get(input.as_str())?) {
            let size = sizes.entry(label).or_insert(1);
            *size = (*size).max(dim.fixed()? as u64);
        }
    }
    sizes.into_values().try_fold(1, u64::checked_mul)
}

/// Returns the multiply-adds of an attention: each query is multiplied by every key, and each weight by a value.
fn attention_multiply_adds(node: &Node, shapes: &Shapes<'_>) -> Option<u64> {
    let shape = |name: Option<&String>| shapes.get(name.filter(|name| !name.is_empty())?.as_str()).copied();
    // The length is the dimension before the last, with the heads as a dimension of their own or not.
    let length = |name: Option<&String>| shape(name)?.iter().nth_back(1)?.fixed();
    let past = match node.inputs.get(4).filter(|name| !name.is_empty()) {
        Some(name) => length(Some(name))?,
        None => 0,
    };
    let keys = length(node.inputs.get(1))?.checked_add(past)? as u64;
    let elements = |name: Option<&String>| element_count(shape(name)?);
    elements(node.inputs.first())?.checked_add(elements(node.outputs.first())?)?.checked_mul(keys)
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
