//! TensorRT-RTX without a GPU: its real parser and builder accept the exported models, engine files are written and
//! checked, and errors name what was refused.
//!
//! These tests need the plug-in (`flagperf backend install tensorrt_rtx`) and are left out without it. None runs on a
//! GPU.

use std::fs;
use std::path::{Path, PathBuf};

use flagperf_core::tensor::{DType, Tensor};
use flagperf_engine::{Artifact, EngineError, LoadOptions, Session, Value, open_plugin};
use flagperf_onnx::layers;
use flagperf_onnx::{Graph, GraphBuilder, WriteOptions, to_f16, write_onnx, write_onnx_with};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::support::{self, cases, graphs};

/// The plug-in, and a folder that stands for a case's log folder.
struct TensorRt {
    library: PathBuf,
    folder: TempDir,
}

impl TensorRt {
    fn new() -> Option<Self> {
        let library = support::tensorrt_rtx()?;
        Some(TensorRt { library, folder: tempfile::tempdir().expect("a folder") })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns options that build and keep an engine for batches of 8 without a GPU on this machine.
    fn options(&self, precision: DType, extra: &Json) -> LoadOptions {
        let mut all = json!({"device": "none", "trt_tmp_path": "nvidia_tmp/model.trt"});
        all.as_object_mut().expect("a map").extend(extra.as_object().expect("a map").clone());
        let extra = serde_json::from_value(all).expect("a map");
        let config = [("log_dir".to_owned(), self.folder.path().to_str().expect("text").into())].into_iter().collect();
        LoadOptions { batch_size: 8, precision, extra, config, ..LoadOptions::default() }
    }

    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        open_plugin(&self.library).expect("a plug-in").load(artifact, options)
    }

    /// Exports a graph and builds an engine from the file.
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
    graphs::linear(4)
}

fn specs(session: &dyn Session) -> [String; 2] {
    [session.inputs(), session.outputs()].map(|values| values[0].spec.to_string())
}

/// Exports a case in fp32 and fp16 and builds engines with fixed and with open shapes.
fn check_build(case: &str) {
    let Some(tensorrt) = TensorRt::new() else { return };
    let graph = cases::case_graph(case);
    let input = &graph.inputs[0].name;
    let open = json!({
        "has_dynamic_axis": true, "minShapes": format!("{input}:1x3x224x224"),
        "optShapes": format!("{input}:8x3x224x224"), "maxShapes": format!("{input}:16x3x224x224"),
    });
    let half = to_f16(&graph, &[]).expect("in half precision");
    for (graph, dtype) in [(&graph, "f32"), (&half, "f16")] {
        for (extra, rows) in [(json!({}), "8"), (open.clone(), "?")] {
            let session =
                tensorrt.build(graph, &extra).unwrap_or_else(|error| panic!("{case} {dtype} {rows}: {error}"));
            let expected = [format!("{rows},3,224,224,{dtype}"), format!("{rows},1000,{dtype}")];
            assert_eq!(specs(session.as_ref()), expected);
            let kept = fs::metadata(tensorrt.path("nvidia_tmp/model.trt")).expect("the engine file is written").len();
            // The engine contains the weights: at least one byte per parameter, half of their size in fp16.
            assert!(kept > flagperf_onnx::count(graph).parameters, "{case} {dtype} {rows}: {kept} bytes");
        }
    }
}

#[test]
fn resnet50_is_built_in_fp32_and_fp16_with_fixed_and_open_shapes() {
    check_build("resnet50");
}

#[test]
fn efficientnet_lite0_is_built_in_fp32_and_fp16_with_fixed_and_open_shapes() {
    check_build("efficientnet_lite0");
}

#[test]
fn weights_in_a_separate_file_are_found() {
    let Some(tensorrt) = TensorRt::new() else { return };
    let path = tensorrt.path("model.onnx");
    let written = write_onnx_with(&linear(), &path, WriteOptions { external_above: 0 }).expect("files");
    assert_eq!(written.len(), 2);
    tensorrt.load(Artifact::Onnx(&path), &tensorrt.options(DType::F32, &json!({}))).expect("it is built");
}

#[test]
fn an_unsupported_operator_is_named_with_its_node() {
    let Some(tensorrt) = TensorRt::new() else { return };
    let mut graph = linear();
    graph.nodes[0].op = "Wobble".to_owned();
    let node = graph.nodes[0].name.clone();
    let error = tensorrt.build(&graph, &json!({})).err().expect("it is refused");
    let named = matches!(&error, EngineError::Operator { op, node: n, .. } if op == "Wobble" && *n == node);
    assert!(named, "{error}");
}

#[test]
fn an_engine_built_for_no_device_answers_queries_and_does_not_run() {
    let Some(tensorrt) = TensorRt::new() else { return };
    let shapes = json!({"has_dynamic_axis": true, "minShapes": "x:1x3", "optShapes": "x:2x3", "maxShapes": "x:4x3"});
    let mut session = tensorrt.build(&linear(), &shapes).unwrap_or_else(|error| panic!("{error}"));
    let mut query = |question: &str| session.ask(question, &Json::Null).unwrap_or_else(|error| panic!("{error}"));
    let profile = json!({"min": {"x": [1, 3]}, "opt": {"x": [2, 3]}, "max": {"x": [4, 3]}});
    assert_eq!(query("profiles"), json!({"profile": null, "profiles": [profile]}));
    assert_eq!(query("shapes"), json!({"x": [-1, 3]}));
    let built_for = query("built_for");
    assert_eq!((&built_for["library"], &built_for["gpu"]), (&json!("TensorRT-RTX"), &Json::Null));
    assert_eq!((&built_for["model"], &built_for["precision"]), (&json!("model.onnx"), &json!("f32")));
    let error = session.ask("colour", &Json::Null).expect_err("it is unknown").to_string();
    let known = "unknown (known: layers, profiles, shapes, built_for)";
    assert_eq!(error, format!("engine `tensorrt_rtx`: question `colour`: {known}"));
    let error = session.ask("shapes", &json!(1)).expect_err("it takes no argument").to_string();
    assert_eq!(error, "engine `tensorrt_rtx`: question `shapes`: accepts no argument, but `1` was given");
    let nothing = "plug-in `tensorrt_rtx`: the engine was only built, because of `device: none`, and cannot be run";
    let x = Value::Host(Tensor::from_vec([2, 3], vec![0.0f32; 6]).expect("a tensor"));
    assert_eq!(session.submit(&[x]).expect_err("there is no GPU").to_string(), nothing);
    assert_eq!(session.tune("profile", &json!(0)).expect_err("there is no GPU").to_string(), nothing);
    assert_eq!((session.facts().device.as_str(), session.device_memory()), ("none", None));
}

#[test]
fn shapes_that_do_not_fit_the_model_are_named() {
    let Some(tensorrt) = TensorRt::new() else { return };
    let shapes =
        |text: &str| json!({"has_dynamic_axis": true, "minShapes": text, "optShapes": text, "maxShapes": text});
    let message = tensorrt.refusal(&linear(), &shapes("x:2x5"));
    assert!(message.contains("option `minShapes`: `x:2x5` does not match the model, which expects `?x3`"), "{message}");
    let message = tensorrt.refusal(&linear(), &shapes("z:2x3"));
    assert!(message.contains("option `minShapes`: the model has no input `z` (known: x)"), "{message}");
    let mut builder = GraphBuilder::new("open");
    let x = builder.input("x", "N,M,f32".parse().expect("a shape")).expect("an input");
    let y = layers::relu(&mut builder, "relu", &x).expect("a layer");
    builder.output("y", &y).expect("an output");
    let message = tensorrt.refusal(&builder.finish().expect("a graph"), &json!({}));
    assert!(
        message.contains("option `has_dynamic_axis`: input `x` is `8x?`: a dimension other than the batch is open"),
        "{message}"
    );
    let message = tensorrt.refusal(&linear(), &json!({"trt_tmp_path": null}));
    assert!(message.contains("option `device`: `none` requires `trt_tmp_path`"), "{message}");
}

#[test]
fn an_engine_of_another_version_or_library_is_refused_with_what_differs() {
    let Some(tensorrt) = TensorRt::new() else { return };
    tensorrt.build(&linear(), &json!({})).unwrap_or_else(|error| panic!("{error}"));
    let (engine, description_path) =
        (tensorrt.path("nvidia_tmp/model.trt"), tensorrt.path("nvidia_tmp/model.trt.json"));
    let text = fs::read_to_string(&description_path).expect("the description is written");
    let refusal = |key: &str, value: &str| {
        let mut description: Json = serde_json::from_str(&text).expect("JSON");
        description[key] = value.into();
        fs::write(&description_path, description.to_string()).expect("a file");
        let options = tensorrt.options(DType::F32, &json!({"device": "cuda:0", "trt_tmp_path": null}));
        let error = tensorrt.load(Artifact::Compiled(&engine), &options).err().expect("it is refused");
        format!("{error}; {}", error.hint())
    };
    let message = refusal("version", "1.3.0");
    assert!(
        message.contains("was built for version `1.3.0`, but this machine has `1.7.")
            && message.contains("exist_compiler_path"),
        "{message}"
    );
    let message = refusal("library", "TensorRT");
    assert!(message.contains("was built for library `TensorRT`, but this machine has `TensorRT-RTX`"), "{message}");
}

/// The GPU is checked before minutes are spent on an engine; which part is missing depends on the machine.
#[test]
fn a_missing_gpu_is_reported_before_an_engine_is_built() {
    let Some(tensorrt) = TensorRt::new() else { return };
    let loaded = tensorrt.build(&linear(), &json!({"device": "cuda:0"}));
    if Path::new("/dev/nvidiactl").exists() {
        return;
    }
    let error = loaded.err().expect("there is no GPU");
    assert!(error.to_string().contains("the CUDA driver cannot be used: "), "{error}");
    assert!(error.hint().contains("`device: none` builds an engine without"), "{}", error.hint());
    assert!(!tensorrt.path("nvidia_tmp/model.trt").exists());
}

/// A library with operators registers them in the registry that it finds in the process.
#[test]
fn a_library_with_operators_finds_the_registry() {
    let Some(tensorrt) = TensorRt::new() else { return };
    let (source, library) = (tensorrt.path("operators.c"), tensorrt.path("operators.so"));
    let text = "extern void *getPluginRegistry(void);\n\
        __attribute__((constructor)) static void begin(void) { if (!getPluginRegistry()) __builtin_trap(); }\n";
    fs::write(&source, text).expect("a file");
    if !support::has_compiler("cc") {
        return;
    }
    assert_cmd::Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).assert().success();
    // Without a link, the parser would not find TensorRT-RTX (docs/write-an-operator.md); the library has found it before that.
    if let Err(error) = tensorrt.build(&linear(), &json!({"plugins": [library]})) {
        assert!(error.to_string().contains("the parser does not find TensorRT-RTX: "), "{error}");
    }
    let message = tensorrt.refusal(&linear(), &json!({"plugins": [tensorrt.path("none.so")]}));
    assert!(message.contains("option `plugins`: `") && message.contains("none.so`: No such file"), "{message}");
}
