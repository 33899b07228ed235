//! OpenVINO beyond the conformance suite: devices, properties, compiled models, and what it must refuse.
//!
//! All tests but the first need OpenVINO's library (`flagperf backend install openvino`) and are left out without it.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use flagperf_core::tensor::{DType, Tensor};
use flagperf_engine::{Artifact, EngineError, LoadOptions, Session, Value, find};
use flagperf_onnx::layers;
use flagperf_onnx::{Graph, GraphBuilder, WriteOptions, write_onnx, write_onnx_with};
use serde_json::json;

use crate::support::{self, graphs};

/// The model `y = x + x` in OpenVINO's own format.
const SUM_XML: &str = r#"<net name="m" version="11"><layers>
<layer id="0" name="x" type="Parameter" version="opset1"><data shape="?,3" element_type="f32"/>
<output><port id="0" precision="FP32" names="x"><dim>-1</dim><dim>3</dim></port></output></layer>
<layer id="1" name="y" type="Add" version="opset1"><data auto_broadcast="numpy"/>
<input><port id="0" precision="FP32"><dim>-1</dim><dim>3</dim></port>
<port id="1" precision="FP32"><dim>-1</dim><dim>3</dim></port></input>
<output><port id="2" precision="FP32" names="y"><dim>-1</dim><dim>3</dim></port></output></layer>
<layer id="2" name="y/result" type="Result" version="opset1">
<input><port id="0" precision="FP32"><dim>-1</dim><dim>3</dim></port></input></layer></layers>
<edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/>
<edge from-layer="0" from-port="0" to-layer="1" to-port="1"/>
<edge from-layer="1" from-port="2" to-layer="2" to-port="0"/></edges></net>"#;

fn linear() -> Graph {
    graphs::linear(400)
}

fn options(extra: serde_json::Value) -> LoadOptions {
    LoadOptions { threads: 1, extra: serde_json::from_value(extra).expect("a map"), ..LoadOptions::default() }
}

fn load(artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
    find("openvino").expect("a row of the table").load(artifact, options)
}

fn refusal(graph: &Graph, options: &LoadOptions) -> EngineError {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    write_onnx(graph, &path).expect("a file");
    load(Artifact::Onnx(&path), options).err().expect("it is refused")
}

/// Runs three rows of numbers and returns the first output.
fn run(session: &mut dyn Session) -> Vec<f64> {
    let x = Tensor::from_vec([3, 3], (0..9).map(|x| x as f32).collect()).expect("nine numbers");
    let outputs = session.submit(&[Value::Host(x)]).unwrap_or_else(|error| panic!("{error}"));
    outputs[0].to_host().expect("in host memory").to_f64()
}

/// Compiles a library that reports version 2024.1 of OpenVINO and has no other functions.
fn old_library(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("old.c"), folder.join("libopenvino_c.so.2410"));
    let text = "struct version { const char *build, *description; };\n\
        int ov_get_openvino_version(struct version *v) { v->build = \"2024.1.0-1-abc\"; return 0; }\n\
        void ov_version_free(struct version *v) { v->build = 0; }\n";
    fs::write(&source, text).expect("a file");
    Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).assert().success();
    library
}

#[test]
fn a_library_that_is_too_old_is_named_with_its_version() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = old_library(folder.path());
    let error = refusal(&linear(), &options(json!({"library_path": library})));
    assert!(error.to_string().contains("is OpenVINO 2024.1.0-1-abc, which is too old"), "{error}");
    assert!(error.hint().starts_with("`library_path` must name OpenVINO's C library"), "{}", error.hint());
}

#[test]
fn an_unknown_device_lists_the_available_ones() {
    if support::has_engine("openvino") {
        for device in ["TPU", "cpu"] {
            let error = refusal(&linear(), &options(json!({"device": device}))).to_string();
            assert!(error.starts_with(&format!("engine `openvino`: option `device`: `{device}` cannot be used: ")));
            assert!(error.contains("(available: CPU"), "{error}");
        }
    }
}

#[test]
fn an_unknown_property_or_value_is_named() {
    if support::has_engine("openvino") {
        for properties in [json!({"WOBBLE": 1}), json!({"ENABLE_CPU_PINNING": "perhaps"})] {
            let key = properties.as_object().expect("a map").keys().next().expect("a key").clone();
            let error = refusal(&linear(), &options(json!({"properties": properties}))).to_string();
            assert!(error.starts_with(&format!("engine `openvino`: option `properties`: `{key}`: ")), "{error}");
        }
    }
}

/// Builds `(a + b) · identity - a` in fp16, where 2048 + 1 rounds to 2048. Without the product, a processor with fp16 computes
/// sum and difference in one loop, in which nothing is rounded.
fn rounding_graph() -> Graph {
    let mut builder = GraphBuilder::new("rounding");
    let [a, b] = ["a", "b"].map(|name| builder.input(name, "N,4,f16".parse().expect("a shape")).expect("an input"));
    let sum = layers::add(&mut builder, "sum", &a, &b).expect("a layer");
    let diagonal = (0..16).map(|i| f32::from(u8::from(i % 5 == 0))).collect();
    let identity = Tensor::from_vec([4, 4], diagonal).expect("a matrix").cast(DType::F16);
    let identity = builder.constant("identity", identity).expect("a constant");
    let product = layers::matmul(&mut builder, "product", &sum, &identity).expect("a layer");
    let difference = layers::sub(&mut builder, "difference", &product, &a).expect("a layer");
    builder.output("y", &difference).expect("an output");
    builder.finish().expect("a graph")
}

#[test]
fn fp16_is_computed_in_fp16_or_refused() {
    if support::has_engine("openvino") {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("half.onnx");
        write_onnx(&rounding_graph(), &path).expect("a file");
        match load(Artifact::Onnx(&path), &LoadOptions { precision: DType::F16, ..options(json!({})) }) {
            Ok(mut session) => {
                let number =
                    |x: f32| Value::Host(Tensor::from_vec([1, 4], vec![x; 4]).expect("a row").cast(DType::F16));
                let outputs = session.submit(&[number(2048.0), number(1.0)]).expect("it computes");
                assert_eq!(outputs[0].to_host().expect("in host memory").to_f64(), [0.0; 4], "computed in f32");
            }
            Err(error) => {
                assert!(matches!(error, EngineError::Precision { requested: DType::F16, .. }), "{error}");
                assert!(error.to_string().contains("on `CPU`: "), "{error}");
            }
        }
    }
}

#[test]
fn a_compiled_model_is_loaded_again_and_gives_the_same_outputs() {
    if support::has_engine("openvino") {
        let folder = tempfile::tempdir().expect("a folder");
        let (onnx, blob) = (folder.path().join("model.onnx"), folder.path().join("model.blob"));
        write_onnx(&linear(), &onnx).expect("a file");
        let own = json!({"export_folder": folder.path()});
        let mut first = load(Artifact::Onnx(&onnx), &options(own)).unwrap_or_else(|error| panic!("{error}"));
        let expected = run(first.as_mut());
        fs::remove_file(&onnx).expect("the file existed");
        let loaded = load(Artifact::Compiled(&blob), &options(json!({})));
        let mut again = loaded.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(run(again.as_mut()), expected);
        assert_eq!(again.inputs()[0].spec.to_string(), "?,3,f32");
        assert!(again.facts().device.starts_with("cpu "), "{}", again.facts().device);
    }
}

#[test]
fn a_truncated_or_incompatible_compiled_model_is_named() {
    if support::has_engine("openvino") {
        let folder = tempfile::tempdir().expect("a folder");
        let (onnx, blob) = (folder.path().join("model.onnx"), folder.path().join("model.blob"));
        write_onnx(&linear(), &onnx).expect("a file");
        load(Artifact::Onnx(&onnx), &options(json!({"export_folder": folder.path()})))
            .unwrap_or_else(|error| panic!("{error}"));
        let whole = fs::read(&blob).expect("it was written");
        let has_version = String::from_utf8_lossy(&whole[..80]).contains("ov=2");
        assert!(has_version, "OpenVINO writes its version at the beginning");
        let at = whole.windows(4).position(|part| part == b"ov=2").expect("its version");
        let mut older = whole.clone();
        older[at + 3..at + 7].copy_from_slice(b"2019");
        for (name, bytes) in [("cut", &whole[..whole.len() / 2]), ("older", &older[..]), ("text", b"no model at all")] {
            let path = folder.path().join(format!("{name}.blob"));
            fs::write(&path, bytes).expect("a file");
            let error = load(Artifact::Compiled(&path), &options(json!({}))).err();
            let error = error.unwrap_or_else(|| panic!("{name} was loaded")).to_string();
            assert!(error.contains(&format!("{name}.blob")), "{error}");
        }
    }
}

#[test]
fn an_export_folder_that_cannot_be_written_is_named() {
    if support::has_engine("openvino") {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let folder = file.path().join("compiled");
        let error = refusal(&linear(), &options(json!({"export_folder": folder}))).to_string();
        let expected = format!("option `export_folder`: `{}` exists and is not a folder", file.path().display());
        assert!(error.ends_with(&expected), "{error}");
    }
}

#[test]
fn a_model_in_openvinos_own_format_is_loaded() {
    if support::has_engine("openvino") {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sum.xml");
        fs::write(&path, SUM_XML).expect("a file");
        let loaded = load(Artifact::Compiled(&path), &options(json!({})));
        let twice = run(loaded.unwrap_or_else(|error| panic!("{error}")).as_mut());
        assert_eq!(twice, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0]);
    }
}

#[test]
fn a_missing_weights_file_is_named() {
    if support::has_engine("openvino") {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.onnx");
        let external = WriteOptions { external_above: 0 };
        let written = write_onnx_with(&linear(), &path, external).expect("files");
        let data = written.iter().find(|file| **file != path).expect("a separate weights file");
        assert!(load(Artifact::Onnx(&path), &options(json!({}))).is_ok());
        fs::remove_file(data).expect("the file existed");
        let error = load(Artifact::Onnx(&path), &options(json!({}))).err().expect("it is refused").to_string();
        assert!(error.contains(data.file_name().and_then(|name| name.to_str()).expect("a name")), "{error}");
    }
}

#[test]
fn hints_and_streams_do_not_change_results() {
    if support::has_engine("openvino") {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.onnx");
        write_onnx(&linear(), &path).expect("a file");
        let output = |own| {
            let loaded = load(Artifact::Onnx(&path), &LoadOptions { threads: 2, ..options(own) });
            run(loaded.unwrap_or_else(|error| panic!("{error}")).as_mut())
        };
        let expected = output(json!({}));
        for own in [json!({"hint": "throughput"}), json!({"num_streams": 2}), json!({"device": "AUTO"})] {
            assert_eq!(output(own.clone()), expected, "{own}");
        }
    }
}

#[test]
fn concurrent_batches_keep_their_outputs_separate() {
    if support::has_engine("openvino") {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.onnx");
        write_onnx(&linear(), &path).expect("a file");
        let batch = |at: usize| Value::Host(Tensor::from_vec([1, 3], vec![at as f32; 3]).expect("three numbers"));
        let loaded = load(Artifact::Onnx(&path), &options(json!({})));
        let mut alone = loaded.unwrap_or_else(|error| panic!("{error}"));
        let loaded = load(Artifact::Onnx(&path), &LoadOptions { threads: 2, ..options(json!({"num_streams": 2})) });
        let mut session = loaded.unwrap_or_else(|error| panic!("{error}"));
        for _ in 0..5 {
            let begun: Vec<Vec<Value>> = (0..6).map(|at| session.submit(&[batch(at)]).expect("it begins")).collect();
            session.sync().expect("it computes");
            for (at, outputs) in begun.iter().enumerate() {
                let expected = alone.submit(&[batch(at)]).expect("it computes")[0].to_host().expect("in host memory");
                assert_eq!(outputs[0].to_host().expect("in host memory").bytes(), expected.bytes());
                assert_eq!(outputs[0].spec().to_string(), "1,400,f32");
            }
        }
    }
}
