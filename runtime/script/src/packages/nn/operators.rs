//! Any standard operator by its name, sequences of integers, and graphs from ONNX files.

use flagperf_onnx::layers;
use flagperf_onnx::{Attribute, GraphBuilder, Tensor as HostTensor, Var};
use indexmap::IndexMap;
use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, Map, NativeCallContext};

use super::graph::{Graph, Node, build_error};
use super::weights::resolve_file;
use crate::names::script_type;
use crate::packages::options::size;
use crate::packages::tensor::Tensor;
use crate::sandbox::{Fallible, catch_panic, lock, script_state};

/// The most outputs of a node.
const OUTPUTS_MAX: usize = 1000;

/// Converts the attributes of an operator.
pub(in crate::packages) fn attributes(
    context: &NativeCallContext<'_>,
    attributes: &Map,
) -> Fallible<IndexMap<String, Attribute>> {
    attributes.iter().map(|(name, value)| Ok((name.to_string(), attribute(context, name, value)?))).collect()
}

/// Converts an attribute of an operator.
fn attribute(context: &NativeCallContext<'_>, name: &str, value: &Dynamic) -> Fallible<Attribute> {
    if let Ok(int) = value.as_int() {
        return Ok(Attribute::Int(int));
    }
    if let Ok(float) = value.as_float() {
        return Ok(Attribute::Float(float as f32));
    }
    if let Ok(flag) = value.as_bool() {
        return Ok(Attribute::Int(i64::from(flag)));
    }
    if let Some(text) = value.read_lock::<ImmutableString>() {
        return Ok(Attribute::String(text.to_string()));
    }
    if let Some(tensor) = value.read_lock::<Tensor>() {
        return Ok(Attribute::Tensor(tensor.to_host(&script_state(context)?.budget)?));
    }
    let list = value.read_lock::<Array>().and_then(|list| attribute_list(&list));
    list.ok_or_else(|| {
        format!("attribute `{name}` must be a number, text, a tensor or a list of one of these, not `{value}`").into()
    })
}

fn attribute_list(list: &Array) -> Option<Attribute> {
    if let Some(ints) = list.iter().map(|value| value.as_int().ok()).collect() {
        return Some(Attribute::Ints(ints));
    }
    if let Some(floats) = list.iter().map(|value| value.as_float().ok().map(|float| float as f32)).collect() {
        return Some(Attribute::Floats(floats));
    }
    let text = |value: &Dynamic| value.read_lock::<ImmutableString>().map(|text| text.to_string());
    list.iter().map(text).collect::<Option<_>>().map(Attribute::Strings)
}

/// Returns an integer of a sequence: a number as a constant, or a scalar that the graph computes.
fn bound(builder: &mut GraphBuilder, name: &str, value: &Dynamic) -> Result<Option<Var>, flagperf_onnx::BuildError> {
    if let Some(node) = value.read_lock::<Node>() {
        return Ok(Some(node.var.clone()));
    }
    let Ok(int) = value.as_int() else { return Ok(None) };
    builder.constant(name, HostTensor::scalar(int)).map(Some)
}

#[export_module]
pub(super) mod functions {
    /// Adds a node of any standard ONNX operator and returns its output. An input is a value of the graph, or `()` for
    /// an omitted one; an attribute is a number, a flag, text, a tensor or a list. `Attention` and other operators of
    /// newer operator sets raise that of the graph.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let x = graph.input("x", "N,3,f32");
    /// let y = graph.node("Elu", [x], #{alpha: 0.5});
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn node(context: NativeCallContext, graph: Graph, op: &str, inputs: Array, attributes: Map) -> Fallible<Node> {
        let outputs = node_with_outputs(context, graph, op, inputs, attributes, 1)?;
        let output = outputs.into_iter().next().and_then(|output| output.try_cast::<Node>());
        output.ok_or_else(|| "the node has no output".into())
    }

    /// Adds a node of any standard ONNX operator with several outputs and returns them as an array.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let x = graph.input("x", "N,4,f32");
    /// let k = graph.constant("k", tensor::from([2], "1,i64"));
    /// let largest = graph.node("TopK", [x, k], #{axis: 1}, 2)[0];
    /// ```
    #[rhai_fn(name = "node", global, return_raw)]
    pub fn node_with_outputs(
        context: NativeCallContext,
        graph: Graph,
        op: &str,
        inputs: Array,
        attributes: Map,
        outputs: i64,
    ) -> Fallible<Array> {
        let count = size("the number of outputs", outputs)?;
        if count == 0 || count > OUTPUTS_MAX || inputs.len() > OUTPUTS_MAX {
            return Err(format!("a node has at most {OUTPUTS_MAX} inputs, and 1 to {OUTPUTS_MAX} outputs").into());
        }
        let input = |input: &Dynamic| match input.read_lock::<Node>() {
            Some(node) => Ok(Some(node.var.clone())),
            None if input.is_unit() => Ok(None),
            None => Err(format!("an input must be a value of the graph or (), not {}", script_type(input))),
        };
        let inputs: Vec<Option<Var>> = inputs.iter().map(input).collect::<Result<_, _>>()?;
        let attributes = super::attributes(&context, &attributes)?;
        let vars = graph.build(|builder| {
            let name = builder.unused_name(&op.to_lowercase());
            builder.node(&name, op, &inputs.iter().map(Option::as_ref).collect::<Vec<_>>(), attributes, count)
        })?;
        Ok(vars.into_iter().map(|var| Dynamic::from(graph.node(var))).collect())
    }

    /// Returns the integers (`i64`) from `start` below `end` in steps of `step`: each a whole number, or a scalar that
    /// the graph computes.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let x = graph.input("x", "N,L,64,f32");
    /// let positions = graph.arange(0, x.shape_of().select(0, 1), 1);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn arange(graph: Graph, start: Dynamic, end: Dynamic, step: Dynamic) -> Fallible<Node> {
        let var = graph.build(|builder| {
            let name = builder.unused_name("arange");
            let mut value = |part: &str, value: &Dynamic| bound(builder, &format!("{name}.{part}"), value);
            let bounds = (value("start", &start)?, value("end", &end)?, value("step", &step)?);
            let (Some(start), Some(end), Some(step)) = bounds else { return Ok(None) };
            layers::range(builder, &name, [&start, &end, &step]).map(Some)
        })?;
        var.map(|var| graph.node(var)).ok_or_else(|| "`arange` needs whole numbers or values of the graph".into())
    }

    /// Reads an ONNX file inside the data directory as a graph to which layers may be added. Its values are available
    /// by name. Unless an output is declared, those of the file remain. `weights` completes it; without a file of
    /// weights, those of the ONNX file remain.
    ///
    /// ```rhai
    /// fn extended(file) {
    ///     let graph = nn::import_onnx(file);
    ///     graph.output("probabilities", graph.value("logits").softmax(-1));
    ///     graph.weights((), 0);
    ///     graph
    /// }
    /// ```
    #[rhai_fn(return_raw)]
    pub fn import_onnx(context: NativeCallContext, file: &str) -> Fallible<Graph> {
        let script = script_state(&context)?;
        let path = resolve_file("ONNX file", &lock(&script.data_dir), file)?;
        let read = || flagperf_onnx::read_onnx(&path).map_err(|error| error.to_string());
        let graph = script.budget.paused(|| catch_panic(read))??;
        let name = graph.name.as_str().into();
        let builder = catch_panic(|| GraphBuilder::from_graph(graph))?.map_err(build_error)?;
        Ok(Graph::under_construction(name, builder))
    }

    /// Returns a value of the graph by its name: an input, a weight or the output of a node.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.input("x", "N,3,f32");
    /// let y = graph.value("x").relu();
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn value(graph: Graph, name: &str) -> Fallible<Node> {
        let var = graph.build(|builder| builder.value(name))?;
        Ok(graph.node(var))
    }
}
