//! OpenVINO: a compiler in a C library that is found at run time, for processors and its other devices by name.
//!
//! Knows no vendor, and never takes another device or precision than the one asked for: both are read back.

mod api;
mod library;
mod options;
mod pool;
mod request;
mod session;
mod tensor;

use flagperf_onnx::Graph;

use super::model;
use super::{Artifact, Engine, EngineError, Facts, Options, Roles, Session, Unavailable};
use crate::tensor::DType;

use options::Settings;
use session::{OpenVinoSession, Source};

/// The compiler OpenVINO.
#[derive(Debug)]
pub struct OpenVino;

impl Engine for OpenVino {
    fn facts(&self) -> Facts {
        Facts {
            roles: Roles { framework: false, compiler: true },
            precisions: &[DType::F32, DType::F16],
            opset_max: 23,
            ..Facts::widest("openvino", "OpenVINO by its C library: processors, and its other devices by name")
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        library::open(None).map(|library| library.version)
    }

    fn check_options(&self, options: &Options) -> Result<(), EngineError> {
        Settings::read(self, options).map(drop)
    }

    fn load(&self, artifact: Artifact<'_>, options: &Options) -> Result<Box<dyn Session>, EngineError> {
        let settings = Settings::read(self, options)?;
        let kind = |path: &std::path::Path| path.extension().and_then(|kind| kind.to_str()).map(str::to_owned);
        let session = match artifact {
            Artifact::Onnx(path) => {
                let graph = model::read(path)?;
                model::check(self, &graph, options.precision)?;
                let loaded = OpenVinoSession::load(Source::Model { path, graph: Some(&graph) }, &settings);
                loaded.map_err(|error| with_node(error, &graph))?
            }
            Artifact::Compiled(path) => match kind(path).as_deref() {
                Some("xml") => OpenVinoSession::load(Source::Model { path, graph: None }, &settings)?,
                Some("blob") => OpenVinoSession::load(Source::Exported(path), &settings)?,
                _ => return Err(settings.refuse_artifact(artifact)),
            },
            Artifact::Graph(_) => return Err(settings.refuse_artifact(artifact)),
        };
        Ok(Box::new(session))
    }
}

/// What OpenVINO says, as an error of ours: operators that it lacks.
fn understood(said: &str) -> EngineError {
    const LACKS: &str = "No conversion rule found for operations: ";
    if let Some((_, lacking)) = said.split_once(LACKS) {
        let first = lacking.split([',', '\n']).next().unwrap_or(lacking).trim();
        let op = first.rsplit_once('-').map_or(first, |(op, _)| op);
        return EngineError::Operator { engine: "openvino", op: op.to_owned(), node: String::new() };
    }
    EngineError::Failed(format!("OpenVINO: {}", plain(said)))
}

/// The text without the places in OpenVINO's sources.
fn plain(said: &str) -> String {
    let place = |line: &str| line.starts_with("Exception from ") || line.contains("failed at src/");
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let told: Vec<&str> = lines.clone().filter(|line| !place(line)).collect();
    if told.is_empty() { lines.collect::<Vec<_>>().join(" ") } else { told.join(" ") }
}

/// OpenVINO names the operator that it lacks, and no node.
fn with_node(error: EngineError, graph: &Graph) -> EngineError {
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
        let options = Options { extra: serde_json::from_value(extra).unwrap(), ..Options::default() };
        OpenVino.load(Artifact::Compiled(Path::new("no/such.blob")), &options).err().unwrap()
    }

    #[test]
    fn an_unknown_option_names_the_nearest() {
        let error = refusal(json!({"devise": "CPU"})).to_string();
        assert!(error.starts_with("engine `openvino`: option `devise`: unknown (known: device, "), "{error}");
        assert!(error.ends_with("; nearest: device)"), "{error}");
    }

    #[test]
    fn an_unknown_hint_names_the_known_ones() {
        let error = refusal(json!({"hint": "speed"})).to_string();
        assert_eq!(error, "engine `openvino`: option `hint`: unknown hint `speed` (known: latency, throughput)");
    }

    #[test]
    fn a_property_that_has_an_option_or_is_the_case_s_is_refused() {
        let error = refusal(json!({"properties": {"INFERENCE_PRECISION_HINT": "bf16"}})).to_string();
        assert!(error.ends_with("`INFERENCE_PRECISION_HINT` is set by `fp16` of the case"), "{error}");
        let error = refusal(json!({"properties": {"NUM_STREAMS": 2}})).to_string();
        assert!(error.ends_with("`NUM_STREAMS` is set by the option `num_streams`"), "{error}");
        let error = refusal(json!({"properties": {"A": [1]}})).to_string();
        assert!(error.ends_with("option `properties`: `A`: `[1]` is not text, a number, true or false"), "{error}");
    }

    #[test]
    fn streams_are_a_whole_number() {
        for wrong in [json!("many"), json!(0), json!(1.5)] {
            let error = refusal(json!({"num_streams": wrong})).to_string();
            assert!(error.ends_with(&format!("`{wrong}` is not a whole number of at least 1")), "{error}");
        }
    }

    #[test]
    fn a_library_that_is_not_there_or_not_openvino_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("libopenvino_c.so");
        std::fs::write(&text, b"no library").unwrap();
        for path in [Path::new("/no/such/libopenvino_c.so"), &text, Path::new("libc.so.6")] {
            let error = refusal(json!({"library_path": path}));
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            assert!(error.hint().contains("flagperf backend install openvino"), "{}", error.hint());
        }
    }

    #[test]
    fn what_openvino_says_of_operators_is_understood_and_places_in_its_sources_are_left_out() {
        let said = "Exception from src/inference/src/cpp/core.cpp:84:\nCheck 'false' failed at src/frontends/a.cpp:151:\n\
            FrontEnd API failed with OpConversionFailure:\nModel wasn't fully converted.\nSummary:\n\
            -- No conversion rule found for operations: Wobble-17, Gobble-17\n";
        let expected =
            |node: &str| EngineError::Operator { engine: "openvino", op: "Wobble".to_owned(), node: node.to_owned() };
        assert_eq!(understood(said), expected(""));
        let said = "Exception from src/inference/src/cpp/core.cpp:117:\nCannot load library \"x\"\n\n";
        assert_eq!(understood(said), EngineError::Failed("OpenVINO: Cannot load library \"x\"".to_owned()));
        assert_eq!(understood("std::bad_alloc"), EngineError::Failed("OpenVINO: std::bad_alloc".to_owned()));
    }
}
