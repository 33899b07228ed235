//! Graphs and their values: inputs, outputs, weights.

#![expect(clippy::unwrap_used, reason = "the code that rhai's macro makes")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use flagperf_onnx::{BuildError, GraphBuilder, Init, Role, Var};
use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, NativeCallContext};

use crate::script::packages::data::inside;
use crate::script::packages::tensor::Tensor;
use crate::script::sandbox::{Fallible, Host, caught, host_of, lock};
use crate::tensor::{Dim, TensorSpec};

/// A graph of a script's: under construction until its weights are named.
#[derive(Clone)]
pub(crate) struct Graph {
    name: ImmutableString,
    state: Arc<Mutex<State>>,
}

#[expect(clippy::large_enum_variant, reason = "one a graph, not moved about")]
enum State {
    Building(GraphBuilder),
    Complete(Box<flagperf_onnx::Graph>),
    /// Completing it failed, or the host has taken it.
    Gone,
}

/// A value of a graph: an input, or what a layer makes.
#[derive(Clone)]
pub(crate) struct Node {
    pub(super) graph: Graph,
    pub(super) var: Var,
}

pub(super) fn failed(error: BuildError) -> Box<EvalAltResult> {
    error.to_string().into()
}

impl Graph {
    /// A complete graph, for an export script.
    pub(crate) fn complete(graph: flagperf_onnx::Graph) -> Self {
        let name = graph.name.as_str().into();
        Graph { name, state: Arc::new(Mutex::new(State::Complete(Box::new(graph)))) }
    }

    /// The graph, for the host.
    pub(crate) fn take(&self) -> Result<flagperf_onnx::Graph, String> {
        match std::mem::replace(&mut *lock(&self.state), State::Gone) {
            State::Complete(graph) => Ok(*graph),
            State::Building(_) => {
                Err(format!("graph `{}` has no weights: end it with `graph.weights(file, seed)`", self.name))
            }
            State::Gone => Err(format!("graph `{}` is returned twice", self.name)),
        }
    }

    /// Works on the graph while it is under construction.
    pub(super) fn build<T>(&self, work: impl FnOnce(&mut GraphBuilder) -> Result<T, BuildError>) -> Fallible<T> {
        match &mut *lock(&self.state) {
            State::Building(builder) => caught(|| work(builder))?.map_err(failed),
            _ => Err(format!("graph `{}` is complete: layers come before `weights`", self.name).into()),
        }
    }

    pub(super) fn node(&self, var: Var) -> Node {
        Node { graph: self.clone(), var }
    }

    /// Ends construction and gives every weight its source.
    fn finish(&self, host: &Host, file: Option<&Path>, seed: u64) -> Fallible<()> {
        let mut state = lock(&self.state);
        let State::Building(builder) = std::mem::replace(&mut *state, State::Gone) else {
            return Err(format!("graph `{}` has its weights already", self.name).into());
        };
        let mut graph = caught(|| builder.finish())?.map_err(failed)?;
        match file {
            Some(file) => {
                host.budget.aside(|| caught(|| graph.load_weights(file)))?.map_err(|error| error.to_string())?;
            }
            None => graph.seed_weights(seed),
        }
        *state = State::Complete(Box::new(graph));
        Ok(())
    }
}

/// The file that `relative` names, if it lies in the data directory with every link followed.
fn weights_file(data_dir: &Path, relative: &str) -> Fallible<PathBuf> {
    let file = data_dir.join(inside(relative)?);
    let unreadable = |path: &Path, error: std::io::Error| format!("weights `{}`: {error}", path.display());
    let root = data_dir.canonicalize().map_err(|error| unreadable(data_dir, error))?;
    let real = file.canonicalize().map_err(|error| unreadable(&file, error))?;
    if !real.starts_with(&root) {
        return Err(
            format!("path `{relative}` leaves the data directory through a link to `{}`", real.display()).into()
        );
    }
    Ok(file)
}

fn spec_of(text: &str) -> Fallible<TensorSpec> {
    text.parse().map_err(|error| format!("`{text}`: {error}").into())
}

#[export_module]
pub(super) mod functions {
    /// A graph without layers.
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
        Graph { name, state: Arc::new(Mutex::new(State::Building(builder))) }
    }

    /// Declares what a caller feeds, with its shape and type: a size, a name such as `N` that stands for one size
    /// everywhere, or `?` for each dimension.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("tokens", "N,512,i64");
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn input(graph: Graph, name: &str, spec: &str) -> Fallible<Node> {
        let spec = spec_of(spec)?;
        let var = graph.build(|builder| builder.input(name, spec))?;
        Ok(graph.node(var))
    }

    /// Gives a value to the caller under a name.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,3,f32").relu());
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn output(graph: Graph, name: &str, value: Node) -> Fallible<()> {
        graph.build(|builder| builder.output(name, &value.var))
    }

    /// Ends the graph: its weights come from a safetensors file below the data directory, by their state_dict names,
    /// each of them present and of its shape; or, where `file` is `()`, they are random with this seed.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,3,f32").linear("fc", 10));
    /// graph.weights((), 42);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn weights(context: NativeCallContext, graph: Graph, file: Dynamic, seed: i64) -> Fallible<()> {
        let host = host_of(&context)?;
        if file.is_unit() {
            return graph.finish(&host, None, seed as u64);
        }
        let file = file.into_immutable_string().map_err(|is| format!("weights are a path or (), not {is}"))?;
        let path = weights_file(&lock(&host.data_dir), &file)?;
        graph.finish(&host, Some(&path), seed as u64)
    }

    /// A weight of your own, learned, `normal` around zero with a standard deviation when random.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let x = graph.input("x", "N,10,f32") + graph.parameter("position", "10,f32", 0.02);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn parameter(graph: Graph, name: &str, spec: &str, std: f64) -> Fallible<Node> {
        let (spec, init) = (spec_of(spec)?, Init::Normal { std: std as f32 });
        let var = graph.build(|builder| builder.weight(name, spec, Role::Parameter, init))?;
        Ok(graph.node(var))
    }

    /// A tensor that is part of the graph itself.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let x = graph.input("x", "N,2,f32") * graph.constant("scale", tensor::from([1, 2], "2,f32"));
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn constant(context: NativeCallContext, graph: Graph, name: &str, values: Tensor) -> Fallible<Node> {
        let values = values.to_host(&host_of(&context)?.budget)?;
        let var = graph.build(|builder| builder.constant(name, values))?;
        Ok(graph.node(var))
    }

    /// The sizes, outermost first: whole numbers, names as text, and `()` for one that is unknown.
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

    /// The size of dimension 1: the channels of `N,C,H,W`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,32,32,f32").channels
    /// ```
    #[rhai_fn(get = "channels", pure, return_raw)]
    pub fn channels(value: &mut Node) -> Fallible<i64> {
        let spec = value.var.spec();
        let size = spec.dims.get(1).and_then(Dim::fixed);
        size.map(|size| size as i64).ok_or_else(|| format!("`{spec}` has no known channels").into())
    }

    /// Shape and type as text: `N,3,32,32,f32`.
    ///
    /// ```rhai
    /// nn::graph("small").input("x", "N,3,f32").spec
    /// ```
    #[rhai_fn(get = "spec", pure)]
    pub fn spec_text(value: &mut Node) -> ImmutableString {
        value.var.spec().to_string().into()
    }
}
