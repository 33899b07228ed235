//! OpenVINO: a compiler in a C library that is opened at run time, for CPUs and its other devices by name.
//!
//! Knows no vendor, and never falls back to another device or precision than the requested one: both are read back from
//! the compiled model.
//!
//! OpenVINO belongs to one vendor and should therefore be a plug-in of that vendor. It stays in the host until plug-ins
//! can be fetched ready-built: today, `flagperf backend install openvino` would have to build one with cargo, where pip
//! suffices now. The interface of plug-ins also lacks:
//!
//! - the model's declared inputs and outputs at load, because OpenVINO renames values and drops the names of
//!   dimensions;
//! - a check of options that the list of options cannot express;
//! - a version that is known only at run time;
//! - the root of the checkout.

mod api;
mod library;
mod options;
mod pool;
mod request;
mod session;
mod tensor;

use flagperf_onnx::Graph;

use super::model;
use super::{Artifact, Engine, EngineError, LoadOptions, Session, Unavailable};
use flagperf_core::description::{Delivery, EngineDescription, Roles};
use flagperf_core::tensor::DType;

use options::OpenVinoOptions;
use session::{ModelSource, OpenVinoSession};

/// The compiler OpenVINO.
#[derive(Debug)]
pub struct OpenVino;

impl Engine for OpenVino {
    fn description(&self) -> EngineDescription {
        EngineDescription {
            roles: Roles { framework: false, compiler: true },
            precisions: &[DType::F32, DType::F16],
            opset_max: 23,
            compiled_extensions: &["xml", "blob"],
            delivery: Delivery::Installed,
            options: Some(options::OPTIONS),
            ..EngineDescription::unrestricted(
                "openvino",
                "OpenVINO through its C library: CPUs, and its other devices by name",
            )
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        library::open(None).map(|library| library.version)
    }

    fn check_with(&self, options: &LoadOptions) -> Result<String, EngineError> {
        let library = OpenVinoOptions::read_library(self, options)?;
        Ok(library::open(library.as_deref())?.version)
    }

    fn check_option_combinations(&self, options: &LoadOptions) -> Result<(), EngineError> {
        OpenVinoOptions::read(self, options).map(drop)
    }

    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        let settings = OpenVinoOptions::read(self, options)?;
        let extension = |path: &std::path::Path| path.extension().and_then(|kind| kind.to_str()).map(str::to_owned);
        let session = match artifact {
            Artifact::Onnx(path) => {
                let source = model::read_lowered(&self.description(), path, &options.scratch)?;
                model::check(self, &source.graph, options.precision)?;
                let file = ModelSource::File { path: &source.path, graph: Some(&source.graph) };
                let session = OpenVinoSession::load(file, &settings);
                let session = session.map_err(|error| add_node_name(error, &source.graph))?;
                session.with_warnings(source.warnings)
            }
            Artifact::Compiled(path) => match extension(path).as_deref() {
                Some("xml") => OpenVinoSession::load(ModelSource::File { path, graph: None }, &settings)?,
                Some("blob") => OpenVinoSession::load(ModelSource::Exported(path), &settings)?,
                _ => return Err(settings.artifact_error(artifact)),
            },
            Artifact::Graph(_) => return Err(settings.artifact_error(artifact)),
        };
        Ok(Box::new(session))
    }
}

/// Recognizes unsupported operators in an error message of OpenVINO.
fn classify_error(message: &str) -> EngineError {
    const UNSUPPORTED: &str = "No conversion rule found for operations: ";
    if let Some((_, operators)) = message.split_once(UNSUPPORTED) {
        let first = operators.split([',', '\n']).next().unwrap_or(operators).trim();
        let op = first.rsplit_once('-').map_or(first, |(op, _)| op);
        return EngineError::Operator { engine: "openvino", op: op.to_owned(), node: String::new() };
    }
    EngineError::Failed(format!("OpenVINO: {}", strip_source_locations(message)))
}

/// Removes the lines that only name a location in OpenVINO's sources, and joins the others.
fn strip_source_locations(message: &str) -> String {
    let is_location = |line: &str| line.starts_with("Exception from ") || line.contains("failed at src/");
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let kept: Vec<&str> = lines.clone().filter(|line| !is_location(line)).collect();
    if kept.is_empty() { lines.collect::<Vec<_>>().join(" ") } else { kept.join(" ") }
}

/// Adds the node of an unsupported operator, because OpenVINO's messages contain the operator only.
fn add_node_name(error: EngineError, graph: &Graph) -> EngineError {
    let EngineError::Operator { engine, op, .. } = error else { return error };
    let node = graph.nodes.iter().find(|node| node.op == op).map_or_else(String::new, |node| node.name.clone());
    EngineError::Operator { engine, op, node }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn refusal(extra: serde_json::Value) -> EngineError {
        let options = LoadOptions { extra: serde_json::from_value(extra).unwrap(), ..LoadOptions::default() };
        OpenVino.load(Artifact::Compiled(Path::new("no/such.blob")), &options).err().unwrap()
    }

    #[test]
    fn an_unknown_option_lists_the_nearest_known_one() {
        let error = refusal(json!({"devise": "CPU"})).to_string();
        assert!(error.starts_with("engine `openvino`: option `devise`: unknown (known: device, "), "{error}");
        assert!(error.ends_with("; nearest: device)"), "{error}");
    }

    #[test]
    fn an_unknown_hint_lists_the_known_ones() {
        let error = refusal(json!({"hint": "speed"})).to_string();
        assert_eq!(error, "engine `openvino`: option `hint`: unknown value `speed` (known: latency, throughput)");
    }

    #[test]
    fn a_property_that_an_option_or_the_case_sets_is_rejected() {
        let error = refusal(json!({"properties": {"INFERENCE_PRECISION_HINT": "bf16"}})).to_string();
        assert!(error.ends_with("`INFERENCE_PRECISION_HINT` is set by the case's `fp16`"), "{error}");
        let error = refusal(json!({"properties": {"NUM_STREAMS": 2}})).to_string();
        assert!(error.ends_with("`NUM_STREAMS` is set by the option `num_streams`"), "{error}");
        let error = refusal(json!({"properties": {"A": [1]}})).to_string();
        assert!(error.ends_with("option `properties`: `A`: `[1]` is not a string, a number, true or false"), "{error}");
    }

    #[test]
    fn num_streams_must_be_a_positive_integer() {
        for wrong in [json!("many"), json!(0), json!(1.5)] {
            let error = refusal(json!({"num_streams": wrong})).to_string();
            assert!(error.ends_with(&format!("`{wrong}` is not a whole number of at least 1")), "{error}");
        }
    }

    #[test]
    fn a_chosen_library_that_is_missing_or_not_openvino_is_reported_with_its_option() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("libopenvino_c.so");
        std::fs::write(&text, b"no library").unwrap();
        for path in [Path::new("/no/such/libopenvino_c.so"), &text] {
            let error = refusal(json!({"library_path": path})).to_string();
            assert!(error.contains(path.to_str().unwrap()) && error.contains("option `library_path`"), "{error}");
        }
        let extra = serde_json::from_value(json!({"library_path": "libc.so.6"})).unwrap();
        let error = OpenVino.check_with(&LoadOptions { extra, ..LoadOptions::default() }).err().unwrap();
        assert_eq!(error.to_string(), "`libc.so.6` is not OpenVINO's C library");
        assert_eq!(error.hint(), "`library_path` must name OpenVINO's C library; null is the installed one");
    }

    #[test]
    fn an_export_folder_that_is_not_a_folder_is_refused() {
        for path in ["/dev/zero", "/dev/null/exports"] {
            let error = refusal(json!({"export_folder": path})).to_string();
            let device = path.strip_suffix("/exports").unwrap_or(path);
            assert!(
                error.ends_with(&format!("option `export_folder`: `{device}` exists and is not a folder")),
                "{error}"
            );
        }
    }

    #[test]
    fn unsupported_operators_are_recognized_and_source_locations_are_removed() {
        let message = "Exception from src/inference/src/cpp/core.cpp:84:\nCheck 'false' failed at src/frontends/a.cpp:151:\n\
            FrontEnd API failed with OpConversionFailure:\nModel wasn't fully converted.\nSummary:\n\
            -- No conversion rule found for operations: Wobble-17, Gobble-17\n";
        let expected =
            |node: &str| EngineError::Operator { engine: "openvino", op: "Wobble".to_owned(), node: node.to_owned() };
        assert_eq!(classify_error(message), expected(""));
        let message = "Exception from src/inference/src/cpp/core.cpp:117:\nCannot load library \"x\"\n\n";
        assert_eq!(classify_error(message), EngineError::Failed("OpenVINO: Cannot load library \"x\"".to_owned()));
        assert_eq!(classify_error("std::bad_alloc"), EngineError::Failed("OpenVINO: std::bad_alloc".to_owned()));
    }
}
