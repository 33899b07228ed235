//! The functions of the package.

use flagperf_core::event::GraphChange;
use flagperf_onnx::Attribute;
use flagperf_onnx::rewrite::{self, FUSIONS, Fusion, Match, Pattern, Replacement};
use flagperf_onnx_exec::{FOLDED_BYTES_MAX, fold_constants as fold};
use indexmap::IndexMap;
use rhai::plugin::*;
use rhai::{Array, Dynamic, FnPtr, ImmutableString, Map, NativeCallContext};

use super::changes::Call;
use crate::names::script_type;
use crate::packages::nn::{Graph, attributes};
use crate::packages::options::FunctionOptions;
use crate::sandbox::Fallible;
use flagperf_config::list_known;

/// Returns a match in the words of scripts.
fn to_map(found: &Match<'_, '_>) -> Map {
    let mut map = Map::new();
    map.insert("node".into(), found.node().name.as_str().into());
    let (mut specs, mut numbers) = (Map::new(), Map::new());
    for (name, value) in found.values() {
        map.insert(name.into(), value.into());
        if let Some(spec) = found.spec(name) {
            specs.insert(name.into(), spec.to_string().into());
        }
        if let Some(number) = found.number(name) {
            numbers.insert(name.into(), number.into());
        }
    }
    let attributes = found.attributes().map(|(name, value)| (name.into(), to_dynamic(value)));
    map.insert("attributes".into(), attributes.collect::<Map>().into());
    map.insert("specs".into(), specs.into());
    map.insert("numbers".into(), numbers.into());
    map
}

fn to_dynamic(attribute: &Attribute) -> Dynamic {
    match attribute {
        Attribute::Int(value) => (*value).into(),
        Attribute::Float(value) => f64::from(*value).into(),
        Attribute::String(value) => value.as_str().into(),
        Attribute::Ints(values) => values.iter().map(|value| Dynamic::from(*value)).collect::<Array>().into(),
        Attribute::Floats(values) => {
            values.iter().map(|value| Dynamic::from(f64::from(*value))).collect::<Array>().into()
        }
        Attribute::Strings(values) => values.iter().map(|value| Dynamic::from(value.clone())).collect::<Array>().into(),
        Attribute::Tensor(_) | Attribute::Encoded(_) => Dynamic::UNIT,
    }
}

fn parse(pattern: &str) -> Fallible<Pattern> {
    Pattern::parse(pattern).map_err(|error| error.to_string().into())
}

fn names(what: &str, list: &Array) -> Fallible<Vec<String>> {
    let name = |value: &Dynamic| {
        let text = value.read_lock::<ImmutableString>().map(|text| text.to_string());
        text.ok_or_else(|| format!("{what} must be a list of names, not of {}", script_type(value)).into())
    };
    list.iter().map(name).collect()
}

fn edit(what: String) -> GraphChange {
    GraphChange { what, places: 1, ..GraphChange::default() }
}

#[export_module]
pub(super) mod functions {
    /// Replaces every place where exporters write a composite operator as several nodes by that operator, and returns how
    /// many there were: `LayerNormalization`, `RMSNormalization`, `Gelu`, `Swish`, `Attention`, `RotaryEmbedding`, or `Conv`
    /// (padding before a convolution, and a bias after it). Constants are folded first. What resembles the operator and is not replaced is
    /// listed in the log and the record, with the reason.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,4,f32").silu());
    /// graph.fuse("Swish");
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn fuse(context: NativeCallContext, graph: Graph, operator: &str) -> Fallible<i64> {
        let Some(fusion) = Fusion::find(operator) else {
            let known = list_known(operator, FUSIONS.iter().map(|fusion| fusion.name));
            return Err(format!("no operator `{operator}` is fused (known: {known})").into());
        };
        let call = Call::new(&context)?;
        let rewrite = call.read(&graph, |graph| {
            let (folded, _) = fold(graph, FOLDED_BYTES_MAX).map_err(|error| error.to_string())?;
            fusion.apply(&folded).map_err(|error| error.to_string())
        })?;
        call.replace(&graph, format!("fuse {operator}"), rewrite)
    }

    /// Replaces every place that an operator of the vendor computes by a node of that operator, and returns how many there
    /// were. Only a script of a vendor can use it: the operator is in `vendors/VENDOR/operators/NAME`, and operator.yaml
    /// there says what it computes. Constants are folded first. docs/write-an-operator.md describes operators.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,4,f32").silu());
    /// try { graph.use_operator("silu"); } catch (error) { log::info(`without a vendor: ${error}`); }
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn use_operator(context: NativeCallContext, graph: Graph, name: &str) -> Fallible<i64> {
        let call = Call::new(&context)?;
        let operator = call.vendor_operator(name)?;
        let rewrite = call.read(&graph, |graph| {
            let (folded, _) = fold(graph, FOLDED_BYTES_MAX).map_err(|error| error.to_string())?;
            operator.insert(&folded).map_err(|error| error.to_string())
        })?;
        call.replace(&graph, format!("use operator {}", operator.full_name()), rewrite)
    }

    /// Returns the places that a pattern describes, as an array of maps: `node` is the last node; each name of the pattern
    /// is the name of its value; `specs` has the shapes and types, `numbers` the constants, and `attributes` the unknown
    /// attributes. docs/change-a-graph.md describes patterns.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,4,f32").silu());
    /// for place in graph.find("y = Mul(x, Sigmoid(x))") { log::info(place.specs.x); }
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn find(context: NativeCallContext, graph: Graph, pattern: &str) -> Fallible<Array> {
        let pattern = parse(pattern)?;
        Call::new(&context)?.read(&graph, |graph| {
            let mut places = Array::new();
            rewrite::find(graph, &pattern, &mut |found| places.push(to_map(found).into()))?;
            Ok::<_, flagperf_onnx::LowerError>(places)
        })
    }

    /// Replaces the places that a pattern describes, and returns how many there were. The replacement is text like the
    /// pattern, or a function that receives the map of a place (see `find`) and returns the text, or () to leave the
    /// place as it is. The output of the last line stays. Other nodes may not read what is inside of a place.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,4,f32").silu());
    /// graph.replace("y = Mul(x, Sigmoid(x))", "y = Div(x, Add(1, Exp(Neg(x))))");
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn replace(context: NativeCallContext, graph: Graph, pattern: &str, replacement: Dynamic) -> Fallible<i64> {
        let parsed = parse(pattern)?;
        let call = Call::new(&context)?;
        let function = replacement.clone().try_cast::<FnPtr>();
        let text = replacement.read_lock::<ImmutableString>().map(|text| text.clone());
        if function.is_none() && text.is_none() {
            return Err(format!("the replacement must be text or a function, not {}", script_type(&replacement)).into());
        }
        let mut failed = None;
        let mut build = |found: &Match<'_, '_>| -> Result<Replacement, String> {
            let text = match &function {
                Some(function) => match function.call_within_context::<Dynamic>(&context, (to_map(found),)) {
                    Ok(value) if value.is_unit() => return Err("the script leaves it as it is".to_owned()),
                    Ok(value) if value.is_string() => value.into_immutable_string().unwrap_or_default(),
                    Ok(value) => {
                        let reason = format!("the function must return text or (), not {}", script_type(&value));
                        failed.get_or_insert_with(|| reason.clone().into());
                        return Err(reason);
                    }
                    Err(error) => {
                        failed.get_or_insert(error);
                        return Err("the script failed".to_owned());
                    }
                },
                None => text.clone().unwrap_or_default(),
            };
            Replacement::parse(&text).map_err(|error| {
                let reason = error.to_string().replace("of the pattern", "of the replacement");
                failed.get_or_insert_with(|| reason.clone().into());
                reason
            })
        };
        let rewritten = graph.with_complete(|graph| {
            rewrite::replace(graph, &parsed, &mut build).map_err(|error| error.to_string().into())
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let last = pattern.lines().map(str::trim).rfind(|line| line.contains('=')).unwrap_or_default().to_owned();
        call.replace(&graph, format!("replace {last}"), rewritten?)
    }

    /// Computes nodes whose inputs are the same in every run, sizes first, and simplifies the graph. Returns how many nodes
    /// were removed.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,4,f32") + graph.constant("a", tensor::from([2], "1,f32")).exp());
    /// graph.fold_constants();
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn fold_constants(context: NativeCallContext, graph: Graph) -> Fallible<i64> {
        fold_constants_with(context, graph, Map::new())
    }

    /// Computes nodes whose inputs are the same in every run. Option: `bytes`, the most bytes of a computed constant
    /// (default 16 MiB).
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,4,f32") + graph.constant("a", tensor::from([2], "1,f32")).exp());
    /// graph.fold_constants(#{bytes: 1024});
    /// ```
    #[rhai_fn(name = "fold_constants", global, return_raw)]
    pub fn fold_constants_with(context: NativeCallContext, graph: Graph, options: Map) -> Fallible<i64> {
        let mut options = FunctionOptions::new("fold_constants", options);
        let bytes = options.size("bytes")?.unwrap_or(FOLDED_BYTES_MAX);
        options.finish()?;
        Call::new(&context)?.change(&graph, |graph| {
            let (folded, facts) = fold(graph, bytes)?;
            let removed = facts.nodes[0].saturating_sub(facts.nodes[1]) as i64;
            let unproved = facts.left.into_iter().map(|(node, reason)| format!("node `{node}`: {reason}")).collect();
            let what = format!("fold constants ({} nodes computed, {removed} removed)", facts.folded);
            let change = GraphChange { what, places: facts.folded as u64, unproved, ..GraphChange::default() };
            Ok::<_, flagperf_onnx::LowerError>((folded, change, removed))
        })
    }

    /// Removes nodes that return their input, repeat another node or are read by nobody, and gives sizes that are known
    /// from shapes as constants. Returns how many nodes were removed.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,4,f32").cast("f32").relu());
    /// graph.simplify();
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn simplify(context: NativeCallContext, graph: Graph) -> Fallible<i64> {
        Call::new(&context)?.change(&graph, |graph| {
            let (simple, facts) = rewrite::simplify(graph)?;
            let removed = facts.nodes[0].saturating_sub(facts.nodes[1]) as i64;
            let places = (facts.shapes + facts.identities + facts.duplicates) as u64;
            let change =
                GraphChange { what: format!("simplify ({removed} nodes removed)"), places, ..GraphChange::default() };
            Ok::<_, flagperf_onnx::LowerError>((simple, change, removed))
        })
    }

    /// Removes nodes and weights that no output depends on, and returns the number of these nodes.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let x = graph.input("x", "N,4,f32");
    /// let unused = x.relu();
    /// graph.output("y", x.exp());
    /// graph.remove_unused();
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn remove_unused(context: NativeCallContext, graph: Graph) -> Fallible<i64> {
        Call::new(&context)?.change(&graph, |graph| {
            let mut changed = graph.clone();
            let removed = rewrite::remove_unused(&mut changed);
            let what = "remove unused nodes".to_owned();
            let change = GraphChange { what, places: removed as u64, ..GraphChange::default() };
            Ok::<_, String>((changed, change, removed as i64))
        })
    }

    /// Inserts a node of one input behind a value: whatever read the value reads the node's output, except outputs of the
    /// graph. Returns the name of the output.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let y = graph.input("x", "N,4,f32").relu().exp();
    /// graph.output("y", y);
    /// graph.insert("relu", "Identity", [], #{});
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn insert(
        context: NativeCallContext,
        graph: Graph,
        value: &str,
        op: &str,
        others: Array,
        options: Map,
    ) -> Fallible<ImmutableString> {
        let others = names("the other inputs", &others)?;
        let attributes: IndexMap<String, Attribute> = attributes(&context, &options)?;
        Call::new(&context)?.change(&graph, |graph| {
            let mut changed = graph.clone();
            let output =
                rewrite::insert(&mut changed, value, op, &others, attributes).map_err(|error| error.to_string())?;
            flagperf_onnx::check(&changed).map_err(|error| error.to_string())?;
            Ok::<_, String>((changed, edit(format!("insert {op} behind {value}")), output.into()))
        })
    }

    /// Gives a value another name.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,4,f32").relu());
    /// graph.rename("y", "scores");
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn rename(context: NativeCallContext, graph: Graph, name: &str, new_name: &str) -> Fallible<()> {
        Call::new(&context)?.change(&graph, |graph| {
            let mut changed = graph.clone();
            rewrite::rename(&mut changed, name, new_name).map_err(|error| error.to_string())?;
            Ok::<_, String>((changed, edit(format!("rename {name} to {new_name}")), ()))
        })
    }

    /// Returns the part of a graph between named values as a graph of its own.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,4,f32").relu().exp());
    /// let part = graph.extract(["relu"], ["y"]);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn extract(context: NativeCallContext, graph: Graph, inputs: Array, outputs: Array) -> Fallible<Graph> {
        let [inputs, outputs] = [names("the inputs", &inputs)?, names("the outputs", &outputs)?];
        let part = Call::new(&context)?.read(&graph, |graph| rewrite::extract(graph, &inputs, &outputs))?;
        Ok(Graph::from_complete(part))
    }

    /// Infers the shape and type of every value again, and returns the names of the nodes for which that is not possible.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,4,f32").relu());
    /// let unknown = graph.infer_shapes();
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn infer_shapes(context: NativeCallContext, graph: Graph) -> Fallible<Array> {
        Call::new(&context)?.read(&graph, |graph| {
            let (_, uninferred) = flagperf_onnx::infer_values(graph);
            Ok::<_, String>(uninferred.into_iter().map(|node| node.node.into()).collect::<Array>())
        })
    }

    /// Returns how many nodes of an operator the graph has.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,4,f32").relu());
    /// graph.operator_count("Relu")
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn operator_count(context: NativeCallContext, graph: Graph, operator: &str) -> Fallible<i64> {
        Call::new(&context)?
            .read(&graph, |graph| Ok::<_, String>(graph.nodes.iter().filter(|node| node.op == operator).count() as i64))
    }
}
