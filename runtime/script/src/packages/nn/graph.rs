//! Graphs and their values: inputs, outputs, weights.

#![expect(clippy::unwrap_used, reason = "in the code that rhai's macro generates")]

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use flagperf_onnx::{BuildError, GraphBuilder, Init, Var, WeightRole};
use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, NativeCallContext};

use crate::packages::options::{Number, finite_number};
use crate::packages::tensor::Tensor;
use crate::sandbox::{Fallible, catch_panic, lock, script_state};
use flagperf_core::tensor::{Dim, TensorSpec};

/// A graph of a script. It is under construction until the script calls `weights`.
#[derive(Clone)]
pub(crate) struct Graph {
    pub(in crate::packages) name: ImmutableString,
    pub(super) state: Arc<Mutex<GraphState>>,
}

#[expect(clippy::large_enum_variant, reason = "there is one per graph, and it is not moved")]
pub(super) enum GraphState {
    Building(GraphBuilder),
    Complete(Box<flagperf_onnx::Graph>),
    /// The graph could not be completed, or the host has taken it.
    Taken,
}

/// A value of a graph: an input, a weight, a constant, or the output of a layer.
#[derive(Clone)]
pub(crate) struct Node {
    pub(super) graph: Graph,
    pub(super) var: Var,
}

impl Node {
    /// Adds a layer; `work` receives the builder and this value.
    pub(super) fn add_layer(
        &self,
        work: impl FnOnce(&mut GraphBuilder, &Var) -> Result<Var, BuildError>,
    ) -> Fallible<Node> {
        let var = self.graph.build(|builder| work(builder, &self.var))?;
        Ok(self.graph.node(var))
    }

    /// Adds a layer without weights under the name of its kind and a number.
    pub(super) fn numbered_layer(
        &self,
        name: &str,
        work: impl FnOnce(&mut GraphBuilder, &str, &Var) -> Result<Var, BuildError>,
    ) -> Fallible<Node> {
        self.add_layer(|builder, x| {
            let name = builder.unused_name(name);
            work(builder, &name, x)
        })
    }

    /// Returns the size of the dimension `axis`; `what` describes it in the error.
    pub(super) fn dimension(&self, layer: &str, axis: usize, what: &str) -> Fallible<usize> {
        let spec = self.var.spec();
        let size = spec.dims.get(axis).and_then(Dim::fixed);
        size.ok_or_else(|| format!("layer `{layer}`: {what} of `{spec}` is unknown").into())
    }
}

pub(super) fn build_error(error: BuildError) -> Box<EvalAltResult> {
    error.to_string().into()
}

impl Graph {
    /// Returns a graph under construction.
    pub(super) fn under_construction(name: ImmutableString, builder: GraphBuilder) -> Self {
        Graph { name, state: Arc::new(Mutex::new(GraphState::Building(builder))) }
    }

    /// Wraps a complete graph for an export script.
    pub(crate) fn from_complete(graph: flagperf_onnx::Graph) -> Self {
        let name = graph.name.as_str().into();
        Graph { name, state: Arc::new(Mutex::new(GraphState::Complete(Box::new(graph)))) }
    }

    /// Returns a graph that continues a complete one.
    pub(crate) fn continued(graph: flagperf_onnx::Graph) -> Result<Self, BuildError> {
        let name = graph.name.as_str().into();
        Ok(Graph::under_construction(name, GraphBuilder::from_graph(graph)?))
    }

    /// Takes out a continued graph, for the host, with `value` as its only output `name`.
    pub(crate) fn take_with_output(&self, name: &str, value: &Node) -> Result<flagperf_onnx::Graph, String> {
        self.build(|builder| builder.output(name, &value.var)).map_err(|error| error.to_string())?;
        match std::mem::replace(&mut *lock(&self.state), GraphState::Taken) {
            GraphState::Building(builder) => builder.finish().map_err(|error| error.to_string()),
            _ => Err(format!("graph `{}` is complete: a training script only adds layers", self.name)),
        }
    }

    /// Takes the graph out, for the host. A graph without learned weights is complete without a call of `weights`.
    pub(crate) fn take(&self) -> Result<flagperf_onnx::Graph, String> {
        match std::mem::replace(&mut *lock(&self.state), GraphState::Taken) {
            GraphState::Complete(graph) => Ok(*graph),
            GraphState::Building(builder) => {
                let graph = catch_panic(|| builder.finish()).map_err(|e| e.to_string())?;
                let graph = graph.map_err(|e| e.to_string())?;
                // A graph that only computes, such as the choice of the next token, has nothing to complete.
                match graph.weights.values().all(|weight| weight.role == WeightRole::Constant) {
                    true => Ok(graph),
                    false => Err(format!(
                        "graph `{}` has no weights: complete it with `graph.weights(file, seed)`",
                        self.name
                    )),
                }
            }
            GraphState::Taken => Err(format!(
                "graph `{}` is returned twice, or used by a function that is called to change it",
                self.name
            )),
        }
    }

    /// Calls `work` with the graph, which must be complete. A graph without learned weights is completed.
    pub(in crate::packages) fn with_complete<T>(
        &self,
        work: impl FnOnce(&flagperf_onnx::Graph) -> Fallible<T>,
    ) -> Fallible<T> {
        let graph = self.take()?;
        let result = work(&graph);
        self.set_complete(graph);
        result
    }

    /// Replaces a complete graph.
    pub(in crate::packages) fn set_complete(&self, graph: flagperf_onnx::Graph) {
        *lock(&self.state) = GraphState::Complete(Box::new(graph));
    }

    /// Calls `work` with the builder of the graph, which must be under construction.
    pub(super) fn build<T>(&self, work: impl FnOnce(&mut GraphBuilder) -> Result<T, BuildError>) -> Fallible<T> {
        match &mut *lock(&self.state) {
            GraphState::Building(builder) => {
                let count = builder.nodes().len();
                let built = catch_panic(|| work(builder))?.map_err(build_error)?;
                check_refused(&builder.nodes()[count..]).map(|()| built)
            }
            _ => Err(format!("graph `{}` is complete: add layers before calling `weights`", self.name).into()),
        }
    }

    pub(super) fn node(&self, var: Var) -> Node {
        Node { graph: self.clone(), var }
    }
}

thread_local! {
    /// The name of a node that scripts may not add, and the reason.
    static REFUSED: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Calls `build`, in which a script that adds the node of this name fails with this reason: the error then states the script's line.
pub(crate) fn refuse_node<T>(name: &str, reason: &str, build: impl FnOnce() -> T) -> T {
    REFUSED.set(Some((name.to_owned(), reason.to_owned())));
    let built = build();
    REFUSED.set(None);
    built
}

fn check_refused(added: &[flagperf_onnx::Node]) -> Fallible<()> {
    REFUSED.with_borrow(|refused| match refused {
        Some((name, reason)) if added.iter().any(|node| node.name == *name) => Err(reason.as_str().into()),
        _ => Ok(()),
    })
}

fn parse_spec(text: &str) -> Fallible<TensorSpec> {
    text.parse().map_err(|error| format!("`{text}`: {error}").into())
}

#[export_module]
pub(super) mod functions {
    /// Creates a graph without layers.
    ///
    /// ```rhai
    /// let graph = nn::graph("resnet50");
    /// let x = graph.input("input", "N,3,32,32,f32");
    /// x = x.conv2d("conv1", #{out: 8, kernel: 3, padding: 1}).batch_norm("bn1").relu();
    /// graph.output("output", x);
    /// graph.weights((), 0);
    /// graph
    /// ```
    pub fn graph(name: ImmutableString) -> Graph {
        let builder = GraphBuilder::new(&name);
        Graph::under_construction(name, builder)
    }

    /// Declares an input with its shape and type. Each dimension is a number, a name such as `N` that stands for the
    /// same size everywhere in the graph, or `?`.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("tokens", "N,512,i64");
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn input(graph: Graph, name: &str, spec: &str) -> Fallible<Node> {
        let spec = parse_spec(spec)?;
        let var = graph.build(|builder| builder.input(name, spec))?;
        Ok(graph.node(var))
    }

    /// Declares `value` as the output `name`.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,3,f32").relu());
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn output(graph: Graph, name: &str, value: Node) -> Fallible<()> {
        graph.build(|builder| builder.output(name, &value.var))
    }

    /// Adds a custom learned weight. Random values are normally distributed around zero with the standard deviation
    /// `std`.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let x = graph.input("x", "N,10,f32") + graph.parameter("position", "10,f32", 0.02);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn parameter(graph: Graph, name: &str, spec: &str, std: Number) -> Fallible<Node> {
        let std = finite_number("the standard deviation", &std)? as f32;
        let (spec, init) = (parse_spec(spec)?, Init::Normal { std });
        let var = graph.build(|builder| builder.weight(name, spec, WeightRole::Parameter, init))?;
        Ok(graph.node(var))
    }

    /// Adds a constant tensor that is stored in the graph itself.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let x = graph.input("x", "N,2,f32") * graph.constant("scale", tensor::from([1, 2], "2,f32"));
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn constant(context: NativeCallContext, graph: Graph, name: &str, values: Tensor) -> Fallible<Node> {
        let values = values.to_host(&script_state(&context)?.budget)?;
        let var = graph.build(|builder| builder.constant(name, values))?;
        Ok(graph.node(var))
    }

    /// The sizes of the dimensions, outermost first: integers, names as strings, and `()` for an unknown size.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").shape
    /// ```
    #[rhai_fn(get = "shape", pure)]
    pub fn shape_of(value: &mut Node) -> Array {
        let dim = |dim: &Dim| match dim {
            Dim::Fixed(size) => Dynamic::from(*size as i64),
            Dim::Named(name) => name.as_str().into(),
            Dim::Unknown => Dynamic::UNIT,
        };
        value.var.spec().dims.iter().map(dim).collect()
    }

    /// The size of dimension 1: the number of channels of `N,C,H,W`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,32,32,f32").channels
    /// ```
    #[rhai_fn(get = "channels", pure, return_raw)]
    pub fn channels(value: &mut Node) -> Fallible<i64> {
        let spec = value.var.spec();
        let size = spec.dims.get(1).and_then(Dim::fixed);
        size.map(|size| size as i64).ok_or_else(|| format!("the number of channels of `{spec}` is unknown").into())
    }

    /// Shape and type as a string: `N,3,32,32,f32`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").spec
    /// ```
    #[rhai_fn(get = "spec", pure)]
    pub fn spec_text(value: &mut Node) -> ImmutableString {
        value.var.spec().to_string().into()
    }
}
