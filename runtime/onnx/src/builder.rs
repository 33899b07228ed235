//! Builds a graph node by node. Shapes and element types are inferred and checked as each node is added.
//!
//! Knows nothing about layers: those are in [`layers`](crate::layers).

mod error;
mod import;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexMap;

pub use error::BuildError;

use crate::operator_set::set_version;
use crate::operators::needed_version;
use crate::shape_inference::{InferError, ShapeInference};
use crate::{Attribute, Dim, Graph, Init, Node, Tensor, TensorSpec, ValueInfo, Weight, WeightRole, WeightSource};

/// Version of the standard operator set that built graphs use, unless they contain a newer operator. Every engine
/// supports this version.
pub const OPSET: i64 = 17;

/// The most elements a weight may have. Engines and shape inference count elements in 32 bits.
pub const WEIGHT_ELEMENTS_MAX: usize = 1 << 31;

/// The most nodes a graph may have.
pub const NODES_MAX: usize = 100_000;

/// A value of a graph under construction: an input, a weight or a node's output. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Var(Arc<ValueInfo>);

impl Var {
    /// Returns the value's name in the graph.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the value's shape and element type.
    pub fn spec(&self) -> &TensorSpec {
        &self.0.spec
    }
}

/// Builds one [`Graph`].
pub struct GraphBuilder {
    graph: Graph,
    values: HashMap<String, Var>,
    inference: ShapeInference,
    /// The names of the graph's outputs, by the names under which their values were created.
    final_names: HashMap<String, String>,
    /// For each kind of layer, the number with which the search for an unused name begins.
    next_numbers: HashMap<String, usize>,
    /// The names in a graph from a file, among them those of nodes and of values of unknown shape.
    reserved: HashSet<String>,
    /// Whether the first declared output replaces those that a graph from a file has.
    replaces_outputs: bool,
}

impl GraphBuilder {
    /// Returns a builder of an empty graph.
    pub fn new(name: &str) -> Self {
        GraphBuilder {
            graph: Graph { name: name.to_owned(), opset: OPSET, ..Graph::default() },
            values: HashMap::new(),
            inference: ShapeInference::default(),
            final_names: HashMap::new(),
            next_numbers: HashMap::new(),
            reserved: HashSet::new(),
            replaces_outputs: false,
        }
    }

    /// Returns the nodes so far.
    pub fn nodes(&self) -> &[Node] {
        &self.graph.nodes
    }

    /// Returns the version of the standard operator set whose operators the graph uses.
    pub fn opset(&self) -> i64 {
        self.graph.opset
    }

    /// Declares an input of the graph.
    ///
    /// # Errors
    /// When the name is already used.
    pub fn input(&mut self, name: &str, spec: TensorSpec) -> Result<Var, BuildError> {
        self.check_name(name)?;
        self.inference.declare(name, &spec);
        let var = self.add_value(name, spec);
        self.graph.inputs.push((*var.0).clone());
        Ok(var)
    }

    /// Declares a weight. Until a weights file is loaded, its values are random, drawn as `init` specifies.
    ///
    /// # Errors
    /// When the name is already used, a dimension is not fixed, or there are more than [`WEIGHT_ELEMENTS_MAX`]
    /// elements.
    pub fn weight(&mut self, name: &str, spec: TensorSpec, role: WeightRole, init: Init) -> Result<Var, BuildError> {
        self.check_name(name)?;
        let Some(shape) = spec.fixed_shape() else {
            return Err(BuildError::WeightNotFixed { name: name.to_owned(), spec });
        };
        let elements = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size));
        if elements.is_none_or(|elements| elements > WEIGHT_ELEMENTS_MAX) {
            return Err(BuildError::WeightTooLarge { name: name.to_owned(), spec });
        }
        self.inference.declare(name, &spec);
        let source = WeightSource::Seed { seed: 0, init };
        self.graph.weights.insert(name.to_owned(), Weight { spec: spec.clone(), role, source });
        Ok(self.add_value(name, spec))
    }

    /// Declares a tensor that is part of the graph itself: a shape, an axis or a bound.
    ///
    /// # Errors
    /// When the name is already used.
    pub fn constant(&mut self, name: &str, tensor: Tensor) -> Result<Var, BuildError> {
        self.check_name(name)?;
        self.inference.constant(name, &tensor);
        let spec = tensor.spec();
        self.graph.weights.insert(name.to_owned(), Weight::constant(tensor));
        Ok(self.add_value(name, spec))
    }

    /// Adds a node that applies an operator, and returns its outputs. The first output has the layer's name, the others
    /// are named `layer:1`, `layer:2` and so on.
    ///
    /// # Errors
    /// When the name is already used, an input belongs to another graph, the operator does not accept the shapes or
    /// types of its inputs, or the graph already has [`NODES_MAX`] nodes.
    pub fn node(
        &mut self,
        layer: &str,
        op: &str,
        inputs: &[Option<&Var>],
        attributes: IndexMap<String, Attribute>,
        outputs: usize,
    ) -> Result<Vec<Var>, BuildError> {
        let names: Vec<String> =
            (0..outputs).map(|i| if i == 0 { layer.to_owned() } else { format!("{layer}:{i}") }).collect();
        names.iter().try_for_each(|name| self.check_name(name))?;
        if self.graph.nodes.len() >= NODES_MAX {
            return Err(BuildError::TooManyNodes(self.graph.name.clone()));
        }
        inputs.iter().flatten().try_for_each(|var| self.check_owner(layer, var))?;
        let input_name = |var: &Option<&Var>| var.map(|var| var.name().to_owned()).unwrap_or_default();
        let node = Node {
            name: layer.to_owned(),
            op: op.to_owned(),
            inputs: inputs.iter().map(input_name).collect(),
            outputs: names,
            attributes,
            ..Node::default()
        };
        let layer_error = |reason| BuildError::Layer {
            layer: layer.to_owned(),
            op: op.to_owned(),
            inputs: format_specs(inputs),
            reason,
        };
        let inferred = self.inference.node(&node).map_err(layer_error)?;
        let specs: Option<Vec<TensorSpec>> = inferred.into_iter().collect();
        let specs = specs
            .ok_or_else(|| layer_error(InferError::Mismatch("the output's shape cannot be inferred".to_owned())))?;
        let vars = node.outputs.iter().zip(specs).map(|(name, spec)| self.add_node_output(name, spec)).collect();
        self.graph.opset = self.graph.opset.max(needed_version(&node.op));
        self.graph.nodes.push(node);
        Ok(vars)
    }

    /// Returns the size of a named dimension while the graph runs: one integer, `1,i64`.
    ///
    /// # Errors
    /// When no input of the graph has a dimension of this name.
    pub fn dimension(&mut self, name: &str) -> Result<Var, BuildError> {
        let value = format!("size:{name}");
        if let Some(known) = self.values.get(&value) {
            return Ok(known.clone());
        }
        let named = |dim: &Dim| matches!(dim, Dim::Named(own) if own == name);
        let place = |input: &ValueInfo| Some((input.name.clone(), input.spec.dims.iter().position(named)?));
        let unknown = || BuildError::UnknownDimension { name: name.to_owned(), graph: self.graph.name.clone() };
        let (input, axis) = self.graph.inputs.iter().find_map(place).ok_or_else(unknown)?;
        let bounds = [("start", axis), ("end", axis + 1)];
        let attributes = bounds.map(|(name, axis)| (name.to_owned(), Attribute::Int(axis as i64)));
        let input = self.values[&input].clone();
        let mut outputs = self.node(&value, "Shape", &[Some(&input)], IndexMap::from(attributes), 1)?;
        Ok(outputs.swap_remove(0))
    }

    /// Returns the shape and element type of a value.
    pub fn spec<'a>(&self, var: &'a Var) -> &'a TensorSpec {
        var.spec()
    }

    /// Returns `name` itself if it is unused, else the first unused one of `name_1`, `name_2`, …
    pub fn unused_name(&mut self, name: &str) -> String {
        if self.check_name(name).is_ok() {
            return name.to_owned();
        }
        let first = self.next_numbers.get(name).copied().unwrap_or(1);
        let unused = (first..).find(|number| self.check_name(&format!("{name}_{number}")).is_ok());
        let number = unused.expect("a finite graph cannot use every name of an endless list");
        self.next_numbers.insert(name.to_owned(), number);
        format!("{name}_{number}")
    }

    /// Declares a value as an output of the graph, under a name.
    ///
    /// # Errors
    /// When the name is already used or the value belongs to another graph.
    pub fn output(&mut self, name: &str, var: &Var) -> Result<(), BuildError> {
        self.check_owner(name, var)?;
        if std::mem::take(&mut self.replaces_outputs) {
            self.graph.outputs.clear();
        }
        let is_unnamed_node_output =
            self.graph.values.contains_key(var.name()) && !self.final_names.contains_key(var.name());
        if name != var.name() {
            self.check_name(name)?;
        }
        if self.graph.outputs.iter().any(|output| output.name == name) {
            return Err(BuildError::NameTaken(name.to_owned()));
        }
        if is_unnamed_node_output {
            self.final_names.insert(var.name().to_owned(), name.to_owned());
            if name != var.name() {
                self.add_value(name, var.spec().clone());
            }
        } else {
            self.node(name, "Identity", &[Some(var)], IndexMap::new(), 1)?;
        }
        self.graph.outputs.push(ValueInfo { name: name.to_owned(), spec: var.spec().clone() });
        Ok(())
    }

    /// Returns the finished graph.
    ///
    /// # Errors
    /// When the graph has no output.
    pub fn finish(mut self) -> Result<Graph, BuildError> {
        if self.graph.outputs.is_empty() {
            return Err(BuildError::NoOutput(self.graph.name));
        }
        for node in &mut self.graph.nodes {
            for name in node.inputs.iter_mut().chain(&mut node.outputs) {
                if let Some(new) = self.final_names.get(name) {
                    name.clone_from(new);
                }
            }
        }
        if self.graph.opset > OPSET {
            let version = self.graph.opset;
            set_version(&mut self.graph, version);
        }
        let values = std::mem::take(&mut self.graph.values);
        let renamed = |name: String| self.final_names.get(&name).cloned().unwrap_or(name);
        self.graph.values = values.into_iter().map(|(name, spec)| (renamed(name), spec)).collect();
        Ok(self.graph)
    }

    fn check_name(&self, name: &str) -> Result<(), BuildError> {
        match name {
            "" => Err(BuildError::EmptyName),
            _ if self.values.contains_key(name) || self.reserved.contains(name) => {
                Err(BuildError::NameTaken(name.to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn check_owner(&self, layer: &str, var: &Var) -> Result<(), BuildError> {
        match self.values.get(var.name()) {
            Some(own) if Arc::ptr_eq(&own.0, &var.0) => Ok(()),
            _ => Err(BuildError::ForeignValue { layer: layer.to_owned(), value: var.name().to_owned() }),
        }
    }

    fn add_value(&mut self, name: &str, spec: TensorSpec) -> Var {
        let var = Var(Arc::new(ValueInfo { name: name.to_owned(), spec }));
        self.values.insert(name.to_owned(), var.clone());
        var
    }

    fn add_node_output(&mut self, name: &str, spec: TensorSpec) -> Var {
        self.graph.values.insert(name.to_owned(), spec.clone());
        self.add_value(name, spec)
    }
}

fn format_specs(inputs: &[Option<&Var>]) -> String {
    let text = |var: &Option<&Var>| var.map_or_else(|| "none".to_owned(), |var| format!("`{}`", var.spec()));
    inputs.iter().map(text).collect::<Vec<_>>().join(", ")
}
