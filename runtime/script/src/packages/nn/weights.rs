//! The weights of a graph: from a file, or random.

use std::path::{Path, PathBuf};

use flagperf_onnx::{ConfigurationValue, WeightOptions};
use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, Map, NativeCallContext};

use super::graph::{Graph, GraphState, build_error};
use crate::names::script_type;
use crate::packages::data::relative_path;
use crate::packages::options::FunctionOptions;
use crate::sandbox::{Fallible, ScriptState, catch_panic, lock, script_state};

impl Graph {
    /// Completes the graph and sets the source of every weight: `file`, or random values with `seed`. Those that match a
    /// name in `int8` are stored as int8.
    fn finish(
        &self,
        script: &ScriptState,
        file: Option<&Path>,
        (options, int8): &(WeightOptions, Vec<String>),
        seed: u64,
    ) -> Fallible<()> {
        let mut state = lock(&self.state);
        let GraphState::Building(builder) = std::mem::replace(&mut *state, GraphState::Taken) else {
            return Err(format!("graph `{}` already has its weights", self.name).into());
        };
        let mut graph = catch_panic(|| builder.finish())?.map_err(build_error)?;
        match file {
            Some(file) => {
                let read = script
                    .budget
                    .paused(|| catch_panic(|| graph.load_weights_with(file, options)))?
                    .map_err(|error| error.to_string())?;
                let data_dir = lock(&script.data_dir);
                read.iter()
                    .try_for_each(|file| check_inside("weights", &data_dir, file, &file.display().to_string()))?;
                // An index, and files of which the graph needs nothing: no weight names them.
                let has_weights =
                    |file: &PathBuf| graph.weights.values().any(|w| w.source.path() == Some(file.as_path()));
                lock(&script.model_files).extend(read.into_iter().filter(|file| !has_weights(file)));
            }
            None => graph.seed_weights(seed),
        }
        graph.store_as_int8(int8).map_err(|error| error.to_string())?;
        *state = GraphState::Complete(Box::new(graph));
        Ok(())
    }
}

/// Returns the path of a file after checking that it stays inside the data directory with all links resolved; `what`
/// describes it in the error.
pub(super) fn resolve_file(what: &str, data_dir: &Path, relative: &str) -> Fallible<PathBuf> {
    let file = data_dir.join(relative_path(relative)?);
    check_inside(what, data_dir, &file, relative)?;
    Ok(file)
}

/// Checks that a file lies inside the data directory with all links resolved; `name` is its path in the error.
fn check_inside(what: &str, data_dir: &Path, file: &Path, name: &str) -> Fallible<()> {
    let unreadable = |path: &Path, error: std::io::Error| format!("{what} `{}`: {error}", path.display());
    let root = data_dir.canonicalize().map_err(|error| unreadable(data_dir, error))?;
    let real = file.canonicalize().map_err(|error| unreadable(file, error))?;
    if !real.starts_with(&root) {
        return Err(format!("path `{name}` leaves the data directory through a link to `{}`", real.display()).into());
    }
    Ok(())
}

/// Reads the names of weights in an option, of which each may end with `*`.
fn weight_names(option: &str, names: Option<Dynamic>) -> Fallible<Vec<String>> {
    let names = names.and_then(|names| names.try_cast::<Array>()).unwrap_or_default().into_iter();
    let names: Vec<String> = names
        .map(|name| name.into_immutable_string().map(|name| name.to_string()))
        .collect::<Result<_, _>>()
        .map_err(|actual| format!("`weights`: `{option}` must be a list of names, not of {actual}"))?;
    match names.iter().find(|name| name.strip_suffix('*').unwrap_or(name).contains('*')) {
        Some(name) => {
            Err(format!("`weights`: `{option}` contains `{name}`: `*` may only be the last character").into())
        }
        None => Ok(names),
    }
}

/// Reads what a configuration must have: numbers, texts and maps of them; `()` for keys that it must not have.
fn configuration(values: Map) -> Fallible<Vec<ConfigurationValue>> {
    let expected = |(key, value): (rhai::Identifier, Dynamic)| match rhai::serde::from_dynamic(&value) {
        Ok(value) => Ok((key.to_string(), value)),
        Err(_) => {
            let actual = script_type(&value);
            Err(format!("`weights`: `configuration.{key}` must be a number, a text or a map, not {actual}").into())
        }
    };
    values.into_iter().map(expected).collect()
}

/// Reads the tensors that must equal others.
fn equal_names(names: Map) -> Fallible<Vec<(String, String)>> {
    let pair = |(copy, original): (rhai::Identifier, Dynamic)| {
        let actual = script_type(&original);
        match original.into_immutable_string() {
            Ok(original) => Ok((copy.to_string(), original.to_string())),
            Err(_) => Err(format!("`weights`: `equal` must name a tensor for `{copy}`, not {actual}").into()),
        }
    };
    names.into_iter().map(pair).collect()
}

/// Reads the options of `weights`, and the names of the weights that become int8.
fn weight_options(options: Map) -> Fallible<(WeightOptions, Vec<String>)> {
    let mut options = FunctionOptions::new("weights", options);
    let read = WeightOptions {
        prefix: options.text("prefix")?.unwrap_or_default().to_string(),
        state_dict: options.text("state_dict")?.map(|key| key.to_string()),
        ignore: weight_names("ignore", options.value("ignore"))?,
        configuration: configuration(options.map("configuration")?)?,
        equal: equal_names(options.map("equal")?)?,
    };
    let int8 = weight_names("int8", options.value("int8"))?;
    options.finish()?;
    Ok((read, int8))
}

#[export_module]
pub(super) mod functions {
    /// Returns the graph of an ONNX file inside the data directory. Its weights stay in the file, and in the data files beside it,
    /// until an engine needs them.
    ///
    /// ```rhai
    /// try { nn::onnx("model.onnx") } catch (error) { log::info(`${error}`) }
    /// ```
    #[rhai_fn(return_raw)]
    pub fn onnx(context: NativeCallContext, file: &str) -> Fallible<Graph> {
        let script = script_state(&context)?;
        let path = resolve_file("the model", &lock(&script.data_dir), file)?;
        let read = || {
            let mut graph = flagperf_onnx::read_onnx(&path).map_err(|error| error.to_string())?;
            flagperf_onnx::infer_shapes(&mut graph);
            flagperf_onnx::check_limits(&graph).map_err(|error| format!("`{}`: {error}", path.display()))?;
            Ok::<_, String>(graph)
        };
        let graph = script.budget.paused(|| catch_panic(read))??;
        lock(&script.model_files).push(path);
        Ok(Graph::from_complete(graph))
    }

    /// Completes the graph and sets its weights. `file` is a file inside the data directory that contains every weight
    /// under its state_dict name and with its shape: safetensors, the index of several of them
    /// (`model.safetensors.index.json`), a folder with either (`model.safetensors`), a state_dict that PyTorch saved
    /// (`.pth`), or GGUF. Quantised tensors of GGUF become f32 (supported: Q8_0, Q4_0, Q4_1, Q4_K, Q6_K); those of the
    /// architecture `llama` have the names of transformers, and the rows of queries and keys their order there.
    /// PyTorch's counters `num_batches_tracked` are ignored. With `()`, the weights are random values from `seed`. A
    /// graph without weights needs no call.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,3,f32").linear("fc", 10));
    /// graph.weights((), 42);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn weights(context: NativeCallContext, graph: Graph, file: Dynamic, seed: i64) -> Fallible<()> {
        weights_with(context, graph, file, seed, Map::new())
    }

    /// Completes the graph and sets its weights, with options: `prefix`, the text with which the names of the weights
    /// begin in the file, but not in the graph; `state_dict`, the key under which the file of PyTorch has the
    /// state_dict, or the path of keys to it (`model.state`), needed if the file has several; `ignore`, names in the file
    /// that the graph does not need, written as in the file: with the `prefix`, if they have it. A name that ends with
    /// `*` stands for all names that begin so; a `*` elsewhere is an error. A weight of the graph is loaded even if
    /// `ignore` contains its name. Several graphs share a file if each ignores the names of the others. `configuration`: numbers,
    /// texts and maps of them that the `config.json` beside the weights must have under these keys of transformers, if it has
    /// them, and `()` for keys that must be null: what the shapes of weights do not show, such as the number of heads. The metadata
    /// of a GGUF file of the architecture `llama` is compared, too. `equal`: names of tensors in the file that the graph does not
    /// need because they equal others, each with the name of the other, as in `ignore`; a file in which the two differ is an error.
    /// `int8`: names of weights of `linear`, written as in the graph and with `*` as in `ignore`, that are stored as int8 with
    /// one symmetric scale for each output; the graph computes their numbers before each layer (ONNX's DequantizeLinear).
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// graph.output("y", graph.input("x", "N,3,f32").linear("fc", 10));
    /// graph.weights((), 42, #{prefix: "module.", state_dict: "model", ignore: ["module.head.*"]});
    /// ```
    #[rhai_fn(name = "weights", global, return_raw)]
    pub fn weights_with(
        context: NativeCallContext,
        graph: Graph,
        file: Dynamic,
        seed: i64,
        options: Map,
    ) -> Fallible<()> {
        let script = script_state(&context)?;
        let options = weight_options(options)?;
        if file.is_unit() {
            return graph.finish(&script, None, &options, seed as u64);
        }
        let file: ImmutableString =
            file.into_immutable_string().map_err(|actual| format!("the weights must be a path or (), not {actual}"))?;
        let path = resolve_file("weights", &lock(&script.data_dir), &file)?;
        graph.finish(&script, Some(&path), &options, seed as u64)
    }
}
