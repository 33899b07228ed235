//! Builds a graph node by node; shapes and element types are inferred and checked at once.
//!
//! Knows no layer: those are in [`layers`](crate::layers).

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::inference::{InferError, Inference};
use crate::{Attribute, Graph, Init, Node, Role, Source, Tensor, TensorSpec, ValueInfo, Weight};

/// Version of the standard operator set that built graphs use: the one that every engine reads.
pub const OPSET: i64 = 17;

/// Elements of a weight at most: more cannot be counted in 32 bits, which engines and shape inference do.
pub const WEIGHT_ELEMENTS_MAX: usize = 1 << 31;

/// Nodes of a graph at most.
pub const NODES_MAX: usize = 100_000;

/// A value of a graph under construction: an input, a weight, or what a node makes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Var(Arc<ValueInfo>);

impl Var {
    /// The value's name in the graph.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The value's shape and element type.
    pub fn spec(&self) -> &TensorSpec {
        &self.0.spec
    }
}

/// Builds one [`Graph`].
pub struct GraphBuilder {
    graph: Graph,
    values: HashMap<String, Var>,
    inference: Inference,
    /// Names that outputs shall have, by the names their values were made with.
    renamed: HashMap<String, String>,
}

impl GraphBuilder {
    /// A graph without nodes.
    pub fn new(name: &str) -> Self {
        GraphBuilder {
            graph: Graph { name: name.to_owned(), opset: OPSET, ..Graph::default() },
            values: HashMap::new(),
            inference: Inference::default(),
            renamed: HashMap::new(),
        }
    }

    /// Declares what a caller feeds.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn input(&mut self, name: &str, spec: TensorSpec) -> Result<Var, BuildError> {
        self.free(name)?;
        self.inference.declare(name, &spec);
        let var = self.value(name, spec);
        self.graph.inputs.push((*var.0).clone());
        Ok(var)
    }

    /// Declares a weight; until a file is loaded its values are random, spread as `init` says.
    ///
    /// # Errors
    /// When the name is taken, a dimension is not fixed, or there are more than [`WEIGHT_ELEMENTS_MAX`] elements.
    pub fn weight(&mut self, name: &str, spec: TensorSpec, role: Role, init: Init) -> Result<Var, BuildError> {
        self.free(name)?;
        let Some(shape) = spec.fixed_shape() else {
            return Err(BuildError::OpenWeight { name: name.to_owned(), spec });
        };
        let elements = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size));
        if elements.is_none_or(|elements| elements > WEIGHT_ELEMENTS_MAX) {
            return Err(BuildError::LargeWeight { name: name.to_owned(), spec });
        }
        self.inference.declare(name, &spec);
        let source = Source::Seed { seed: 0, init };
        self.graph.weights.insert(name.to_owned(), Weight { spec: spec.clone(), role, source });
        Ok(self.value(name, spec))
    }

    /// Declares a tensor that is part of the graph itself: a shape, an axis, a limit.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn constant(&mut self, name: &str, tensor: Tensor) -> Result<Var, BuildError> {
        self.free(name)?;
        self.inference.constant(name, &tensor);
        let spec = tensor.spec();
        let weight = Weight { spec: spec.clone(), role: Role::Constant, source: Source::Value(tensor) };
        self.graph.weights.insert(name.to_owned(), weight);
        Ok(self.value(name, spec))
    }

    /// Applies an operator. The first output is named like the layer, the others `layer:1`, `layer:2`.
    ///
    /// # Errors
    /// When the name is taken, an input is of another graph, shapes and types do not fit the operator, or the graph has
    /// [`NODES_MAX`] nodes.
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
        names.iter().try_for_each(|name| self.free(name))?;
        if self.graph.nodes.len() >= NODES_MAX {
            return Err(BuildError::ManyNodes(self.graph.name.clone()));
        }
        inputs.iter().flatten().try_for_each(|var| self.owned(layer, var))?;
        let input_name = |var: &Option<&Var>| var.map(|var| var.name().to_owned()).unwrap_or_default();
        let node = Node {
            name: layer.to_owned(),
            op: op.to_owned(),
            inputs: inputs.iter().map(input_name).collect(),
            outputs: names,
            attributes,
            ..Node::default()
        };
        let refused = |reason| BuildError::Layer {
            layer: layer.to_owned(),
            op: op.to_owned(),
            inputs: specs_text(inputs),
            reason,
        };
        let inferred = self.inference.node(&node).map_err(refused)?;
        let specs: Option<Vec<TensorSpec>> = inferred.into_iter().collect();
        let specs =
            specs.ok_or_else(|| refused(InferError::Mismatch("the output's shape cannot be inferred".to_owned())))?;
        let vars = node.outputs.iter().zip(specs).map(|(name, spec)| self.made(name, spec)).collect();
        self.graph.nodes.push(node);
        Ok(vars)
    }

    /// The shape and type of a value.
    pub fn spec<'a>(&self, var: &'a Var) -> &'a TensorSpec {
        var.spec()
    }

    /// The name itself when it is free, else the first free one of `name_1`, `name_2`, …
    pub fn fresh(&self, name: &str) -> String {
        let numbered = (1..).map(|number| format!("{name}_{number}"));
        std::iter::once(name.to_owned())
            .chain(numbered)
            .find(|name| self.free(name).is_ok())
            .expect("an endless list has a name that a finite graph does not use")
    }

    /// Gives a value to the caller under a name.
    ///
    /// # Errors
    /// When the name is taken or the value is of another graph.
    pub fn output(&mut self, name: &str, var: &Var) -> Result<(), BuildError> {
        self.owned(name, var)?;
        let made = self.graph.values.contains_key(var.name()) && !self.renamed.contains_key(var.name());
        if name != var.name() {
            self.free(name)?;
        }
        if self.graph.outputs.iter().any(|output| output.name == name) {
            return Err(BuildError::NameTaken(name.to_owned()));
        }
        if made {
            self.renamed.insert(var.name().to_owned(), name.to_owned());
            if name != var.name() {
                self.value(name, var.spec().clone());
            }
        } else {
            self.node(name, "Identity", &[Some(var)], IndexMap::new(), 1)?;
        }
        self.graph.outputs.push(ValueInfo { name: name.to_owned(), spec: var.spec().clone() });
        Ok(())
    }

    /// The finished graph.
    ///
    /// # Errors
    /// When there is no output.
    pub fn finish(mut self) -> Result<Graph, BuildError> {
        if self.graph.outputs.is_empty() {
            return Err(BuildError::NoOutput(self.graph.name));
        }
        for node in &mut self.graph.nodes {
            for name in node.inputs.iter_mut().chain(&mut node.outputs) {
                if let Some(new) = self.renamed.get(name) {
                    name.clone_from(new);
                }
            }
        }
        let values = std::mem::take(&mut self.graph.values);
        let renamed = |name: String| self.renamed.get(&name).cloned().unwrap_or(name);
        self.graph.values = values.into_iter().map(|(name, spec)| (renamed(name), spec)).collect();
        Ok(self.graph)
    }

    fn free(&self, name: &str) -> Result<(), BuildError> {
        match name {
            "" => Err(BuildError::NoName),
            _ if self.values.contains_key(name) => Err(BuildError::NameTaken(name.to_owned())),
            _ => Ok(()),
        }
    }

    fn owned(&self, layer: &str, var: &Var) -> Result<(), BuildError> {
        match self.values.get(var.name()) {
            Some(own) if Arc::ptr_eq(&own.0, &var.0) => Ok(()),
            _ => Err(BuildError::Foreign { layer: layer.to_owned(), value: var.name().to_owned() }),
        }
    }

    fn value(&mut self, name: &str, spec: TensorSpec) -> Var {
        let var = Var(Arc::new(ValueInfo { name: name.to_owned(), spec }));
        self.values.insert(name.to_owned(), var.clone());
        var
    }

    fn made(&mut self, name: &str, spec: TensorSpec) -> Var {
        self.graph.values.insert(name.to_owned(), spec.clone());
        self.value(name, spec)
    }
}

fn specs_text(inputs: &[Option<&Var>]) -> String {
    let text = |var: &Option<&Var>| var.map_or_else(|| "nothing".to_owned(), |var| format!("`{}`", var.spec()));
    inputs.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// A graph that cannot be built as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// Shapes or types do not fit an operator.
    #[error("layer `{layer}` ({op} of {inputs}): {reason}")]
    Layer {
        /// The layer.
        layer: String,
        /// The operator.
        op: String,
        /// The specifications of its inputs.
        inputs: String,
        /// What does not fit.
        reason: InferError,
    },
    /// A layer's arguments contradict each other or what it is applied to.
    #[error("layer `{layer}`: {reason}")]
    Argument {
        /// The layer.
        layer: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Two values cannot have one name.
    #[error("the name `{0}` is taken in this graph (each layer, input and output needs its own)")]
    NameTaken(String),
    /// A value without a name.
    #[error("a layer, an input or an output needs a name")]
    NoName,
    /// A value of one graph is used in another.
    #[error("layer `{layer}`: the value `{value}` is not of this graph")]
    Foreign {
        /// The layer.
        layer: String,
        /// The value.
        value: String,
    },
    /// A weight's shape is not fixed.
    #[error("weight `{name}`: every dimension must be a size, it is `{spec}`")]
    OpenWeight {
        /// The weight.
        name: String,
        /// Its specification.
        spec: TensorSpec,
    },
    /// A weight has too many elements.
    #[error("weight `{name}` of `{spec}` has too many elements (at most {most})", most = WEIGHT_ELEMENTS_MAX)]
    LargeWeight {
        /// The weight.
        name: String,
        /// Its specification.
        spec: TensorSpec,
    },
    /// The graph has too many nodes.
    #[error("graph `{0}` has too many nodes (at most {most})", most = NODES_MAX)]
    ManyNodes(String),
    /// The graph gives nothing.
    #[error("graph `{0}` has no output")]
    NoOutput(String),
}
