//! ONNX Runtime's own profile of a session, read from the file that it writes when it ends the profile.

use std::path::Path;

use serde::Deserialize;

use crate::{EngineError, OperatorTime, RunProfile};
use flagperf_core::units::Seconds;

/// The event of a run of the session.
const RUN: &str = "model_run";
/// What ONNX Runtime appends to the name of a node for its computation.
const KERNEL: &str = "_kernel_time";

/// An event of the profile, with times in microseconds.
#[derive(Deserialize)]
struct ProfileEvent {
    #[serde(default)]
    name: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Arguments,
}

#[derive(Default, Deserialize)]
struct Arguments {
    #[serde(default)]
    op_name: String,
}

/// Reads the file of a profile, and removes it.
///
/// # Errors
/// When the file is missing, or not what ONNX Runtime writes.
pub(super) fn read(path: &Path) -> Result<Vec<RunProfile>, EngineError> {
    let failed =
        |reason: &dyn std::fmt::Display| EngineError::Failed(format!("profile `{}`: {reason}", path.display()));
    let text = std::fs::read(path).map_err(|error| failed(&error))?;
    // The times are in the events of the trace, so that a file that stays is a nuisance and no failure.
    _ = std::fs::remove_file(path);
    parse(&text).map_err(|error| failed(&error))
}

fn parse(text: &[u8]) -> serde_json::Result<Vec<RunProfile>> {
    let events: Vec<ProfileEvent> = serde_json::from_slice(text)?;
    let (runs, mut others): (Vec<_>, Vec<_>) = events.into_iter().partition(|event| event.name == RUN);
    others.retain(|event| event.name.ends_with(KERNEL));
    others.sort_by(|one, other| one.ts.total_cmp(&other.ts));
    let profile = |run: &ProfileEvent| {
        let nodes = others.iter().filter(|node| (run.ts..=run.ts + run.dur).contains(&node.ts));
        let time = |node: &ProfileEvent| OperatorTime {
            name: node.name.trim_end_matches(KERNEL).to_owned(),
            operator: node.args.op_name.clone(),
            begin_s: Seconds((node.ts - run.ts) / 1e6),
            time_s: Seconds(node.dur / 1e6),
        };
        nodes.map(time).collect()
    };
    Ok(runs.iter().map(profile).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_of_each_run_begin_after_its_beginning() {
        let text = br#"[
            {"cat": "Session", "name": "model_loading_uri", "ts": 3, "dur": 90, "args": {}},
            {"cat": "Node", "name": "second_kernel_time", "ts": 160, "dur": 20, "args": {"op_name": "Relu"}},
            {"cat": "Node", "name": "first_kernel_time", "ts": 110, "dur": 50, "args": {"op_name": "Conv"}},
            {"cat": "Node", "name": "first_fence_after", "ts": 160, "dur": 0, "args": {"op_name": "Conv"}},
            {"cat": "Session", "name": "model_run", "ts": 100, "dur": 100, "args": {}},
            {"cat": "Session", "name": "model_run", "ts": 300, "dur": 100, "args": {}}
        ]"#;
        let [first, second] = &parse(text).unwrap()[..] else { panic!("two runs") };
        let times: Vec<_> =
            first.iter().map(|node| (&*node.name, &*node.operator, node.begin_s.0, node.time_s.0)).collect();
        assert_eq!(times, [("first", "Conv", 10.0e-6, 50.0e-6), ("second", "Relu", 60.0e-6, 20.0e-6)]);
        assert!(second.is_empty());
        assert!(parse(b"[{]").is_err());
    }
}
