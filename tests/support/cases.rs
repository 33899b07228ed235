//! The models that the scripts of the cases build.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::sync::Arc;

use flagperf::measure::MonotonicClock;
use flagperf::plan::Limits;
use flagperf::script::{CaseScripts, HostServices, ScriptChoice};
use flagperf_onnx::{Graph, Model};
use indexmap::IndexMap;
use serde_json::json;

use crate::support;

/// The cases whose model is one graph.
pub const CASES: [&str; 2] = ["resnet50", "efficientnet_lite0"];

/// Returns the graph that a case's `create_model` builds, without values for its weights.
pub fn case_graph(case: &str) -> Graph {
    let host = HostServices { log: Arc::new(|_, _, _| ()), clock: Arc::new(MonotonicClock::start()) };
    let scripts = support::root().join("scripts").join(case);
    let config = json!({ "image_size": 224, "classes": 1000, "weights": null, "seed": 0 });
    let config: IndexMap<_, _> = serde_json::from_value(config).expect("a map");
    let scripts = CaseScripts::load(&scripts, &classification(), &Limits::default(), host).expect("scripts");
    let mut model = scripts.create_model(&config, support::root()).expect("a model");
    model.graphs.swap_remove(Model::SINGLE).expect("one graph")
}

/// Returns the choice of scripts of the cases that classify images.
pub fn classification() -> ScriptChoice {
    let shared = || Some("lib/classification".to_owned());
    ScriptChoice { forward: shared(), evaluator: shared(), ..ScriptChoice::default() }
}
