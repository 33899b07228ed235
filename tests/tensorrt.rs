//! TensorRT-RTX as far as it goes without a GPU: its real parser and builder take what is exported here, engines are kept
//! and checked, and what it must refuse is named.
//!
//! Needs the plug-in (`flagperf backend install tensorrt_rtx`), and is left out without it. Nothing here is run on a GPU.

#[path = "support/cases.rs"]
mod cases;
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use flagperf::engine::{Artifact, EngineError, Options, Session, Value, open_plugin};
use flagperf::tensor::{DType, Tensor};
use flagperf_onnx::layers::{self, Linear};
use flagperf_onnx::{Graph, GraphBuilder, WriteOptions, to_f16, write_onnx, write_onnx_with};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// The plug-in, and a folder as that of a case's logs.
struct Bench {
    library: PathBuf,
    folder: TempDir,
}

impl Bench {
    fn new() -> Option<Self> {
        let library = support::tensorrt_rtx()?;
        Some(Bench { library, folder: tempfile::tempdir().expect("a folder") })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Options for batches of 8 that build and keep an engine, for a GPU that is elsewhere.
    fn options(&self, precision: DType, extra: &Json) -> Options {
        let mut all = json!({"device": "none", "trt_tmp_path": "nvidia_tmp/model.trt"});
        all.as_object_mut().expect("a map").extend(extra.as_object().expect("a map").clone());
        let extra = serde_json::from_value(all).expect("a map");
        let config = [("log_dir".to_owned(), self.folder.path().to_str().expect("text").into())].into_iter().collect();
        Options { batch_size: 8, precision, extra, config, ..Options::default() }
    }

    fn load(&self, artifact: Artifact<'_>, options: &Options) -> Result<Box<dyn Session>, EngineError> {
        open_plugin(&self.library).expect("a plug-in").load(artifact, options)
    }

    /// Builds an engine of a graph as it is exported.
    fn build(&self, graph: &Graph, extra: &Json) -> Result<Box<dyn Session>, EngineError> {
        let path = self.path("model.onnx");
        write_onnx(graph, &path).expect("a file");
        let precision = graph.inputs[0].spec.dtype;
        self.load(Artifact::Onnx(&path), &self.options(precision, extra))
    }

    fn refusal(&self, graph: &Graph, extra: &Json) -> String {
        let error = self.build(graph, extra).err().expect("it is refused");
        format!("{error}; {}", error.hint())
    }
}

fn linear() -> Graph {
    let mut builder = GraphBuilder::new("linear");
    let x = builder.input("x", "N,3,f32".parse().expect("a shape")).expect("an input");
    let y = layers::linear(&mut builder, "fc", &x, Linear::new(3, 4)).expect("a layer");
    builder.output("y", &y).expect("an output");
    let mut graph = builder.finish().expect("a graph");
    graph.seed_weights(7);
    graph
}

fn specs(session: &dyn Session) -> [String; 2] {
    [session.inputs(), session.outputs()].map(|values| values[0].spec.to_string())
}

/// Exports a case in both types, and has engines built of fixed and of open shapes.
fn a_case_is_built(case: &str) {
    let Some(bench) = Bench::new() else { return };
    let graph = cases::case_graph(case);
    let input = &graph.inputs[0].name;
    let open = json!({
        "has_dynamic_axis": true, "minShapes": format!("{input}:1x3x224x224"),
        "optShapes": format!("{input}:8x3x224x224"), "maxShapes": format!("{input}:16x3x224x224"),
    });
    let half = to_f16(&graph, &[]).expect("in half precision");
    for (graph, dtype) in [(&graph, "f32"), (&half, "f16")] {
        for (extra, rows) in [(json!({}), "8"), (open.clone(), "?")] {
            let session = bench.build(graph, &extra).unwrap_or_else(|error| panic!("{case} {dtype} {rows}: {error}"));
            let expected = [format!("{rows},3,224,224,{dtype}"), format!("{rows},1000,{dtype}")];
            assert_eq!(specs(session.as_ref()), expected);
            let kept = fs::metadata(bench.path("nvidia_tmp/model.trt")).expect("the engine is kept").len();
            // Half of the weights' bytes at least: the engine holds them.
            assert!(kept > flagperf_onnx::count(graph).parameters, "{case} {dtype} {rows}: {kept} bytes");
        }
    }
}

#[test]
fn resnet50_is_parsed_and_built_in_both_types_with_fixed_and_open_shapes() {
    a_case_is_built("resnet50");
}

#[test]
fn efficientnet_lite0_is_parsed_and_built_in_both_types_with_fixed_and_open_shapes() {
    a_case_is_built("efficientnet_lite0");
}

#[test]
fn weights_beside_the_file_are_found() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.path("model.onnx");
    let written = write_onnx_with(&linear(), &path, WriteOptions { external_above: 0 }).expect("files");
    assert_eq!(written.len(), 2);
    bench.load(Artifact::Onnx(&path), &bench.options(DType::F32, &json!({}))).expect("it is built");
}

#[test]
fn an_operator_that_it_lacks_is_named_with_its_node() {
    let Some(bench) = Bench::new() else { return };
    let mut graph = linear();
    graph.nodes[0].op = "Wobble".to_owned();
    let node = graph.nodes[0].name.clone();
    let error = bench.build(&graph, &json!({})).err().expect("it is refused");
    let named = matches!(&error, EngineError::Operator { op, node: n, .. } if op == "Wobble" && *n == node);
    assert!(named, "{error}");
}

#[test]
fn what_was_built_answers_questions_and_computes_nothing() {
    let Some(bench) = Bench::new() else { return };
    let shapes = json!({"has_dynamic_axis": true, "minShapes": "x:1x3", "optShapes": "x:2x3", "maxShapes": "x:4x3"});
    let mut session = bench.build(&linear(), &shapes).unwrap_or_else(|error| panic!("{error}"));
    let mut ask = |question: &str| session.ask(question, &Json::Null).unwrap_or_else(|error| panic!("{error}"));
    let profile = json!({"min": {"x": [1, 3]}, "opt": {"x": [2, 3]}, "max": {"x": [4, 3]}});
    assert_eq!(ask("profiles"), json!({"profile": null, "profiles": [profile]}));
    assert_eq!(ask("shapes"), json!({"x": [-1, 3]}));
    let built_for = ask("built_for");
    assert_eq!((&built_for["library"], &built_for["gpu"]), (&json!("TensorRT-RTX"), &Json::Null));
    assert_eq!((&built_for["model"], &built_for["precision"]), (&json!("model.onnx"), &json!("f32")));
    let error = session.ask("colour", &Json::Null).expect_err("it is unknown").to_string();
    let known = "unknown (known: layers, profiles, shapes, built_for)";
    assert_eq!(error, format!("engine `tensorrt_rtx`: question `colour`: {known}"));
    let error = session.ask("shapes", &json!(1)).expect_err("it takes no argument").to_string();
    assert_eq!(error, "engine `tensorrt_rtx`: question `shapes`: takes no argument, `1` was given");
    let nothing = "plug-in `tensorrt_rtx`: the engine was built for no device (`device: none`), it cannot be run here";
    let x = Value::Host(Tensor::from_vec([2, 3], vec![0.0f32; 6]).expect("a tensor"));
    assert_eq!(session.submit(&[x]).expect_err("there is no GPU").to_string(), nothing);
    assert_eq!(session.tune("profile", &json!(0)).expect_err("there is no GPU").to_string(), nothing);
    assert_eq!((session.device().as_str(), session.device_memory()), ("none", None));
}

#[test]
fn shapes_that_do_not_fit_the_model_are_named() {
    let Some(bench) = Bench::new() else { return };
    let shapes =
        |text: &str| json!({"has_dynamic_axis": true, "minShapes": text, "optShapes": text, "maxShapes": text});
    let said = bench.refusal(&linear(), &shapes("x:2x5"));
    assert!(said.contains("option `minShapes`: `x:2x5` does not fit the model, which takes `?x3`"), "{said}");
    let said = bench.refusal(&linear(), &shapes("z:2x3"));
    assert!(said.contains("option `minShapes`: the model has no input `z` (known: x)"), "{said}");
    let mut builder = GraphBuilder::new("open");
    let x = builder.input("x", "N,M,f32".parse().expect("a shape")).expect("an input");
    let y = layers::relu(&mut builder, "relu", &x).expect("a layer");
    builder.output("y", &y).expect("an output");
    let said = bench.refusal(&builder.finish().expect("a graph"), &json!({}));
    assert!(said.contains("option `has_dynamic_axis`: input `x` is `8x?`: more than the batch is open"), "{said}");
    let said = bench.refusal(&linear(), &json!({"trt_tmp_path": null}));
    assert!(said.contains("option `device`: `none` has nothing to do without `trt_tmp_path`"), "{said}");
}

#[test]
fn an_engine_of_another_version_or_library_is_refused_with_what_differs() {
    let Some(bench) = Bench::new() else { return };
    bench.build(&linear(), &json!({})).unwrap_or_else(|error| panic!("{error}"));
    let (engine, beside) = (bench.path("nvidia_tmp/model.trt"), bench.path("nvidia_tmp/model.trt.json"));
    let text = fs::read_to_string(&beside).expect("the description is kept");
    let refusal = |key: &str, value: &str| {
        let mut description: Json = serde_json::from_str(&text).expect("JSON");
        description[key] = value.into();
        fs::write(&beside, description.to_string()).expect("a file");
        let options = bench.options(DType::F32, &json!({"device": "cuda:0", "trt_tmp_path": null}));
        let error = bench.load(Artifact::Compiled(&engine), &options).err().expect("it is refused");
        format!("{error}; {}", error.hint())
    };
    let said = refusal("version", "1.3.0");
    assert!(
        said.contains("was built for version `1.3.0`, here it is `1.7.") && said.contains("exist_compiler_path"),
        "{said}"
    );
    let said = refusal("library", "TensorRT");
    assert!(said.contains("was built for library `TensorRT`, here it is `TensorRT-RTX`"), "{said}");
}

/// The GPU is asked for before minutes are spent on an engine; what of it is missing depends on the machine.
#[test]
fn without_a_gpu_it_is_said_before_an_engine_is_built() {
    let Some(bench) = Bench::new() else { return };
    let loaded = bench.build(&linear(), &json!({"device": "cuda:0"}));
    if Path::new("/dev/nvidiactl").exists() {
        return;
    }
    let error = loaded.err().expect("there is no GPU");
    assert!(error.to_string().contains("CUDA's driver cannot be used: "), "{error}");
    assert!(error.hint().contains("`device: none` builds an engine without"), "{}", error.hint());
    assert!(!bench.path("nvidia_tmp/model.trt").exists());
}

/// A library with operators registers them with what it finds in the process.
#[test]
fn a_library_with_operators_finds_the_registry() {
    let Some(bench) = Bench::new() else { return };
    let (source, library) = (bench.path("operators.c"), bench.path("operators.so"));
    let text = "extern void *getPluginRegistry(void);\n\
        __attribute__((constructor)) static void begin(void) { if (!getPluginRegistry()) __builtin_trap(); }\n";
    fs::write(&source, text).expect("a file");
    let compiled = assert_cmd::Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).ok();
    if compiled.is_err() {
        return support::leave_out("libraries with operators: no C compiler `cc`");
    }
    bench.build(&linear(), &json!({"plugins": [library]})).unwrap_or_else(|error| panic!("{error}"));
    let said = bench.refusal(&linear(), &json!({"plugins": [bench.path("none.so")]}));
    assert!(said.contains("option `plugins`: `") && said.contains("none.so`: No such file"), "{said}");
}
