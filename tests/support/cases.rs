//! The models that the scripts of the cases build.

use std::path::Path;
use std::sync::Arc;

use flagperf_core::limits::Limits;
use flagperf_core::measure::MonotonicClock;
use flagperf_onnx::{Graph, Model};
use flagperf_script::{CaseScripts, HostServices, ScriptChoice, ScriptError};
use indexmap::IndexMap;
use serde_json::json;

use crate::support;

/// The cases whose model is one graph.
pub const CASES: [&str; 2] = ["resnet50", "efficientnet_lite0"];

/// Returns the graph that a case's `create_model` builds, without values for its weights.
pub fn case_graph(case: &str) -> Graph {
    let mut model = case_model(case, &json!({ "image_size": 224, "classes": 1000, "size": "full" }), &classification());
    model.graphs.swap_remove(Model::SINGLE).expect("one graph")
}

/// Returns the model that a case's `create_model` builds from the given settings, without values for its weights.
pub fn case_model(case: &str, settings: &serde_json::Value, choice: &ScriptChoice) -> Model {
    case_model_in(support::root(), case, settings, choice).expect("a model")
}

/// Returns the model that a case's `create_model` builds from the given settings and the files of a data directory.
pub fn case_model_in(
    data_dir: &Path,
    case: &str,
    settings: &serde_json::Value,
    choice: &ScriptChoice,
) -> Result<Model, ScriptError> {
    model_of_scripts(&support::root().join("scripts").join(case), settings, choice, data_dir)
}

/// Returns the model that the scripts of a folder build from the given settings and the files of a data directory, or the error.
pub fn model_of_scripts(
    scripts: &Path,
    settings: &serde_json::Value,
    choice: &ScriptChoice,
    data_dir: &Path,
) -> Result<Model, ScriptError> {
    let host = HostServices { log: Arc::new(|_, _, _| ()), clock: Arc::new(MonotonicClock::start()) };
    let mut config: IndexMap<String, serde_json::Value> =
        IndexMap::from([("weights".to_owned(), json!(null)), ("seed".to_owned(), json!(0))]);
    config.extend(settings.as_object().expect("a map").clone());
    let scripts = CaseScripts::load(scripts, choice, &Limits::default(), host).expect("scripts");
    scripts.create_model(&config, data_dir)
}

/// Returns the choice of scripts of the cases that classify images.
pub fn classification() -> ScriptChoice {
    let shared = || Some("lib/classification".to_owned());
    ScriptChoice { forward: shared(), evaluator: shared(), ..ScriptChoice::default() }
}
