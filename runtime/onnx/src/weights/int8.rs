//! Weights of fully connected layers in int8: the rewriting of a graph, and the rounding of the values.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use super::WeightError;
use super::load::matches_name;
use crate::operator_set::unused_name;
use crate::{Attribute, DType, Dim, Graph, Node, Tensor, TensorSpec, Weight, WeightRole, WeightSource};

/// The largest integer. The range is symmetric, so -128 is not used.
const LARGEST: f32 = 127.0;

/// What a weight in int8 consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Int8Part {
    /// The rounded quotients of values and scales, `out,in,i8`.
    Integers,
    /// The largest absolute value of each row, divided by 127: `out,f32`.
    Scales,
}

impl Graph {
    /// Stores the weights of fully connected layers that match a name as int8 with one scale for each output channel, and
    /// adds a DequantizeLinear before each of these layers. A final `*` in a name stands for any text. Weights that
    /// another operator reads, too, stay as they are. The values are rounded when a weight is read.
    ///
    /// # Errors
    /// When a name matches no weight of a fully connected layer. The graph then stays unchanged.
    pub fn store_as_int8(&mut self, names: &[String]) -> Result<(), WeightError> {
        let mut chosen = self.linear_weights();
        if let Some(name) = names.iter().find(|name| !chosen.iter().any(|weight| matches_name(name, weight))) {
            return Err(WeightError::NoLinearWeight { graph: self.name.clone(), name: name.clone() });
        }
        chosen.retain(|weight| names.iter().any(|name| matches_name(name, weight)));
        let mut nodes = Vec::with_capacity(self.nodes.len() + chosen.len());
        let mut dequantized: HashMap<String, String> = HashMap::new();
        for mut node in std::mem::take(&mut self.nodes) {
            if let Some(input) = weight_input(&node).filter(|input| chosen.contains(&node.inputs[*input])) {
                let weight = node.inputs[input].clone();
                let value = dequantized.entry(weight).or_insert_with_key(|weight| {
                    let node = self.replace_by_int8(weight);
                    let value = node.outputs[0].clone();
                    nodes.push(node);
                    value
                });
                node.inputs[input].clone_from(value);
            }
            nodes.push(node);
        }
        self.nodes = nodes;
        Ok(())
    }

    /// Returns the parameters that only fully connected layers read.
    fn linear_weights(&self) -> HashSet<String> {
        let is_matrix = |weight: &Weight| {
            weight.role == WeightRole::Parameter && weight.spec.dtype == DType::F32 && weight.spec.dims.len() == 2
        };
        let read_by_others: HashSet<&str> = self
            .nodes
            .iter()
            .flat_map(|node| {
                let own = weight_input(node);
                node.inputs
                    .iter()
                    .enumerate()
                    .filter(move |(index, _)| Some(*index) != own)
                    .map(|(_, name)| name.as_str())
            })
            .chain(self.outputs.iter().map(|output| output.name.as_str()))
            .collect();
        let weights = self.nodes.iter().filter_map(|node| Some(&node.inputs[weight_input(node)?]));
        weights
            .filter(|name| self.weights.get(*name).is_some_and(is_matrix) && !read_by_others.contains(name.as_str()))
            .cloned()
            .collect()
    }

    /// Replaces a weight by its integers, adds its scales, and returns the node that computes its values.
    fn replace_by_int8(&mut self, name: &str) -> Node {
        let [scales, value] = ["scale", "dequantized"].map(|part| unused_name(self, &format!("{name}.{part}")));
        let original = self.weights[name].clone();
        let part = |part, dims: Vec<Dim>, dtype, role| Weight {
            spec: TensorSpec { dims, dtype },
            role,
            source: WeightSource::Int8 { name: name.to_owned(), of: Box::new(original.clone()), part },
        };
        let dims = original.spec.dims.clone();
        let scale = part(Int8Part::Scales, vec![dims[0].clone()], DType::F32, WeightRole::Buffer);
        self.weights[name] = part(Int8Part::Integers, dims, DType::I8, WeightRole::Parameter);
        self.weights.insert(scales.clone(), scale);
        self.values.insert(value.clone(), original.spec.clone());
        Node {
            name: value.clone(),
            op: "DequantizeLinear".to_owned(),
            inputs: vec![name.to_owned(), scales],
            outputs: vec![value],
            attributes: IndexMap::from([("axis".to_owned(), Attribute::Int(0))]),
            ..Node::default()
        }
    }
}

/// Returns which input of a node is the weight `out,in` of a fully connected layer, if the node is part of one.
fn weight_input(node: &Node) -> Option<usize> {
    let is = |name: &str, value: Attribute| node.attributes.get(name) == Some(&value);
    match node.op.as_str() {
        "Transpose" if is("perm", Attribute::Ints(vec![1, 0])) => Some(0),
        "Gemm" if is("transB", Attribute::Int(1)) => Some(1),
        _ => None,
    }
}

/// Returns the integers or the scales of the values `out,in,f32`. The scale of a row with a number that is not finite is not
/// finite either.
pub(super) fn round(values: &Tensor, part: Int8Part) -> Tensor {
    let shape = values.shape();
    let elements = values.as_slice::<f32>().unwrap_or_default();
    let rows = || elements.chunks_exact(shape[1].max(1));
    let rounded = match part {
        Int8Part::Scales => Tensor::from_vec(&shape[..1], rows().map(scale).collect()),
        Int8Part::Integers => {
            let integers = rows().flat_map(|row| {
                let scale = scale(row);
                row.iter().map(move |value| (value / scale).round_ties_even() as i8)
            });
            Tensor::from_vec(shape, integers.collect::<Vec<i8>>())
        }
    };
    rounded.expect("a scale for each row, an integer for each value")
}

fn scale(row: &[f32]) -> f32 {
    let larger = |most: f32, value: &f32| if value.abs() > most || value.is_nan() { value.abs() } else { most };
    match row.iter().fold(0.0, larger) {
        0.0 => 1.0,
        most => most / LARGEST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GraphBuilder, layers};

    /// A graph of two layers, one of them between dimensions of a sequence, and an embedding.
    fn graph() -> Graph {
        let mut b = GraphBuilder::new("g");
        let x = b.input("x", "N,5,i64".parse().unwrap()).unwrap();
        let x = layers::embedding(&mut b, "words", &x, [9, 4], DType::F32).unwrap();
        let x = layers::linear(&mut b, "layers.0", &x, layers::Linear { bias: false, ..layers::Linear::new(4, 3) })
            .unwrap();
        let y = layers::linear(&mut b, "head", &x, layers::Linear::new(3, 2)).unwrap();
        b.output("y", &y).unwrap();
        b.finish().unwrap()
    }

    #[test]
    fn a_weight_has_the_integers_nearest_to_its_values_and_a_scale_for_each_row() {
        let original = graph();
        let mut graph = original.clone();
        graph.store_as_int8(&["layers.*".to_owned()]).unwrap();
        let weights: Vec<String> =
            graph.weights.iter().map(|(name, weight)| format!("{name} {}", weight.spec)).collect();
        let expected = ["words.weight 9,4,f32", "layers.0.weight 3,4,i8", "head.weight 2,3,f32", "head.bias 2,f32"];
        assert!(expected.iter().all(|weight| weights.iter().any(|found| found == weight)), "{weights:?}");
        let ops: Vec<&str> = graph.nodes.iter().map(|node| node.op.as_str()).collect();
        assert_eq!(ops, ["Gather", "DequantizeLinear", "Transpose", "MatMul", "Transpose", "MatMul", "Add"]);
        crate::check(&graph).unwrap();
        assert!(graph.weights_are_random());

        let [values, integers, scales] = [
            original.tensor("layers.0.weight").unwrap(),
            graph.tensor("layers.0.weight").unwrap(),
            graph.tensor("layers.0.weight.scale").unwrap(),
        ]
        .map(|tensor| tensor.to_f64());
        for (at, value) in values.iter().enumerate() {
            let scale = scales[at / 4];
            assert!((value - integers[at] * scale).abs() <= 0.5001 * scale, "{value} {} {scale}", integers[at]);
        }
        let largest: Vec<f64> =
            integers.chunks(4).map(|row| row.iter().fold(0.0, |a: f64, b| a.max(b.abs()))).collect();
        assert_eq!(largest, [127.0; 3]);
    }

    #[test]
    fn a_name_without_a_layer_is_refused() {
        let mut graph = graph();
        let error = graph.store_as_int8(&["words*".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "graph `g` has no weight `words*` of a fully connected layer");
        assert_eq!(graph.nodes.len(), 6);
    }

    #[test]
    fn rows_of_zeros_stay_zeros_and_numbers_that_are_not_finite_stay_visible() {
        let values = Tensor::from_vec([3, 2], vec![0.0f32, 0.0, f32::NAN, 1.0, 2.54, -2.54]).unwrap();
        assert_eq!(round(&values, Int8Part::Integers).as_slice::<i8>().unwrap(), [0, 0, 0, 0, 127, -127]);
        let scales = round(&values, Int8Part::Scales);
        let scales = scales.as_slice::<f32>().unwrap();
        assert!(scales[0] == 1.0 && scales[1].is_nan() && (scales[2] - 0.02).abs() < 1e-6, "{scales:?}");
    }
}
