//! The training step with errors of the size of rounding in every result on which the loss and its gradients depend. What these
//! errors change shows how far the step spreads those of an engine.
//!
//! A result is multiplied by factors that are 1 or slightly less, pseudorandom along each of its dimensions. Errors in the parameters
//! alone would not do: in a mean of few elements, a difference of nearly equal numbers or a probability of nearly 1, the rounding of the
//! step's own results is what spreads. The update of the states is exact: errors in a parameter itself say nothing about its change.

use std::collections::{HashMap, HashSet};

use crate::lower::{NodeList, Rewriting};
use crate::{DType, Graph, Node, Tensor, TensorSpec, Weight, WeightRole};

/// Standard deviation of the relative errors in f32: sixteen times its rounding error, as much as that of long sums.
const ERROR: f32 = 1.0 / (1 << 20) as f32;
/// The same for products in half precision.
const HALF_ERROR: f32 = 1.0 / (1 << 16) as f32;
/// Most elements of the factors along dimensions that are multiplied at once.
const FACTORS_MAX: usize = 1 << 14;
/// Operators that do not round: their results are elements of their inputs, or 0, or 1.
const EXACT: [&str; 30] = [
    "Abs",
    "Cast",
    "Clip",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Max",
    "MaxPool",
    "Min",
    "Neg",
    "OneHot",
    "Pad",
    "Relu",
    "Reshape",
    "ScatterElements",
    "ScatterND",
    "Sign",
    "Slice",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
    "Where",
];

/// The graph of a loss and its gradients, with errors.
pub(super) struct Perturbed {
    pub graph: Graph,
    /// The names of the values with errors by those without.
    names: HashMap<String, String>,
}

impl Perturbed {
    /// Adds errors to the values on which `results` depend.
    pub fn new<'g>(graph: &'g Graph, results: impl Iterator<Item = &'g str>, is_half: bool) -> Self {
        let needed = ancestors(graph, results);
        let mut perturbing = Perturbing {
            rewriting: Rewriting::without_nodes(graph),
            specs: graph.specs(),
            error: if is_half { HALF_ERROR } else { ERROR },
            names: HashMap::new(),
        };
        let is_parameter = |weight: &Weight| weight.role == WeightRole::Parameter;
        let parameters = graph.weights.iter().filter(|(_, weight)| is_parameter(weight)).map(|(name, _)| name.as_str());
        let parameters: Vec<&str> = parameters.filter(|name| needed.contains(name)).collect();
        parameters.iter().for_each(|name| perturbing.add(name));
        // What only constants determine is the same on every engine, and some operators need it when they are loaded.
        let mut computed: HashSet<&str> =
            graph.inputs.iter().map(|input| input.name.as_str()).chain(parameters).collect();
        for node in &graph.nodes {
            let is_needed = node.outputs.iter().any(|output| needed.contains(output.as_str()));
            perturbing.keep(node, is_needed);
            if node.inputs.iter().any(|input| computed.contains(input.as_str())) {
                computed.extend(node.outputs.iter().map(String::as_str));
                if is_needed && !(node.domain.is_empty() && EXACT.contains(&&*node.op)) {
                    node.outputs.iter().for_each(|output| perturbing.add(output));
                }
            }
        }
        Perturbed { graph: perturbing.rewriting.finish(), names: perturbing.names }
    }

    /// Returns the name of a value with errors.
    pub fn name(&self, value: &str) -> String {
        self.names.get(value).map_or(value, String::as_str).to_owned()
    }
}

/// A graph to which errors are added.
struct Perturbing {
    rewriting: Rewriting,
    specs: HashMap<String, TensorSpec>,
    error: f32,
    names: HashMap<String, String>,
}

impl Perturbing {
    /// Adds errors to a value that was computed, if it is f32 and its size is known.
    fn add(&mut self, value: &str) {
        let spec = self.specs.get(value).filter(|spec| spec.dtype == DType::F32);
        let Some(shape) = spec.and_then(TensorSpec::fixed_shape) else { return };
        let (error, seed) = (self.error, self.names.len() as u64);
        let perturbed =
            self.rewriting.extend(&format!("perturbed.{value}"), |n| multiply(n, value, &shape, error, seed));
        self.names.insert(value.to_owned(), perturbed);
    }

    /// Adds a node of the graph. One that is needed reads values with errors.
    fn keep(&mut self, node: &Node, is_needed: bool) {
        let mut node = node.clone();
        for input in node.inputs.iter_mut().filter(|_| is_needed) {
            if let Some(name) = self.names.get(input) {
                input.clone_from(name);
            }
        }
        self.rewriting.keep(node);
    }
}

/// Returns the names of the values on which results depend, with these themselves.
fn ancestors<'g>(graph: &'g Graph, results: impl Iterator<Item = &'g str>) -> HashSet<&'g str> {
    let mut needed: HashSet<&str> = results.collect();
    for node in graph.nodes.iter().rev() {
        if node.outputs.iter().any(|output| needed.contains(output.as_str())) {
            needed.extend(node.inputs.iter().map(String::as_str));
        }
    }
    needed
}

/// Adds the product of a value with its factors.
fn multiply(n: &mut NodeList<'_>, value: &str, shape: &[usize], error: f32, seed: u64) -> String {
    let mut product = value.to_owned();
    for (number, sizes) in factor_shapes(shape).into_iter().enumerate() {
        let elements = sizes.iter().product();
        // Factors of 1 and of twice the error less have this standard deviation, and no factor lets a number overflow.
        let factors = bits(seed << 3 | number as u64).map(|bit| if bit { 1.0 } else { 1.0 - 2.0 * error });
        let factors = Tensor::from_vec(sizes, factors.take(elements).collect()).expect("an element for each place");
        let factors = n.constant(factors);
        product = n.add("Mul", &[&product, &factors]);
    }
    product
}

/// Returns the shapes of factors for a value: successive dimensions as far as they have few elements, and 1 elsewhere, so that the
/// factors are broadcast.
fn factor_shapes(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut shapes = vec![vec![1; shape.len()]];
    for (axis, size) in shape.iter().enumerate() {
        let elements: usize = shapes[shapes.len() - 1].iter().product();
        if elements > 1 && elements.saturating_mul(*size) > FACTORS_MAX {
            shapes.push(vec![1; shape.len()]);
        }
        let last = shapes.len() - 1;
        shapes[last][axis] = *size;
    }
    shapes
}

/// Returns pseudorandom bits: the highest of a linear congruential generator (Knuth's MMIX).
fn bits(seed: u64) -> impl Iterator<Item = bool> {
    let next =
        |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    // The first numbers of neighbouring seeds are similar.
    std::iter::successors(Some(seed), next).skip(16).map(|state| state >> 63 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dimension_has_factors_and_no_factor_has_many_elements() {
        assert_eq!(factor_shapes(&[]), [[0; 0]]);
        assert_eq!(factor_shapes(&[8]), [[8]]);
        assert_eq!(factor_shapes(&[256, 64, 112, 112]), [[256, 64, 1, 1], [1, 1, 112, 112]]);
        assert_eq!(factor_shapes(&[24, 16, 512, 512]), [[24, 16, 1, 1], [1, 1, 512, 1], [1, 1, 1, 512]]);
        assert_eq!(factor_shapes(&[1 << 20, 3]), [[1 << 20, 1], [1, 3]]);
        let ones = (0..64).map(|seed| bits(seed).take(64).filter(|bit| *bit).count());
        assert!(ones.clone().all(|ones| (12..52).contains(&ones)), "{:?}", ones.collect::<Vec<_>>());
    }
}
