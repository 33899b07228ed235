//! What an adaptation costs: keys, functions and lines that differ from the standard case, and nodes of the model that do
//! not run on the device.

use std::collections::BTreeSet;

use super::findings::AdaptationCost;
use super::graph::{FORWARD_FUNCTIONS, ScriptTree};
use super::policy::Policy;
use super::role::Role;
use super::submission::NewRecord;
use super::tree::{Change, Snapshot};
use flagperf_config::{Content, SettingsFile, parse_yaml};
use flagperf_script::FunctionOutline;

/// The provider of ONNX Runtime that computes on the processor.
const PROCESSOR: &str = "CPUExecutionProvider";

/// Returns the costs of every adaptation that the changes touch.
pub(super) fn costs(
    policy: &Policy,
    changes: &[Change],
    records: &[NewRecord],
    (after, scripts): (&dyn Snapshot, &ScriptTree<'_>),
) -> Vec<AdaptationCost> {
    let paths = changes.iter().filter_map(|change| change.after()).map(|side| side.path.text());
    let bindings = paths.map(|path| policy.judge_path(path, &Role::Maintainer).bindings);
    let touched: BTreeSet<(String, String)> = bindings.filter_map(|names| Some((names.case?, names.vendor?))).collect();
    touched.into_iter().map(|(case, vendor)| cost(case, vendor, records, (after, scripts))).collect()
}

fn cost(
    case: String,
    vendor: String,
    records: &[NewRecord],
    (after, scripts): (&dyn Snapshot, &ScriptTree<'_>),
) -> AdaptationCost {
    let overlays = SettingsFile::ALL.map(|file| after.text(&file.overlay_path(&case, &vendor)).unwrap_or_default());
    let keys = overlays.iter().flat_map(|overlay| match parse_yaml(overlay).map(|root| root.content) {
        Ok(Content::Map(entries)) => entries.into_keys().collect(),
        _ => Vec::new(),
    });
    let keys = keys.collect();
    let folder = format!("scripts/{case}/{vendor}");
    let files = after.list(&folder).into_iter().filter(|name| !name.is_folder && name.text.ends_with(".rhai"));
    let (mut functions, mut script_lines) = (Vec::new(), 0);
    for name in files {
        let text = after.text(&format!("{folder}/{}", name.text)).unwrap_or_default();
        script_lines += text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count();
        functions.extend(different_functions(&case, &folder, &name.text, (after, scripts)));
    }
    let requirements = format!("{vendor}_requirements.txt");
    let has_requirements = after.list(&format!("scripts/{case}")).iter().any(|name| name.text == requirements);
    let record = records.iter().find(|record| record.case == case);
    let (nodes, nodes_off_device) = record.and_then(placement).unzip();
    AdaptationCost {
        requirements: has_requirements.then(|| format!("scripts/{case}/{requirements}")).into_iter().collect(),
        record: record.map(|record| record.path.clone()),
        case,
        vendor,
        keys,
        functions,
        script_lines,
        nodes_off_device,
        nodes,
    }
}

/// Returns the functions of a vendor's script that the standard case lacks or has otherwise.
fn different_functions(
    case: &str,
    folder: &str,
    file: &str,
    (after, scripts): (&dyn Snapshot, &ScriptTree<'_>),
) -> Vec<String> {
    let Ok(own) = scripts.outline(&format!("{folder}/{file}")) else { return Vec::new() };
    let standard = scripts.outline(&standard_script(case, file, after));
    let is_same = |function: &FunctionOutline| {
        // Without `engine_forward`, the host calls `model_forward` with the engine.
        let names = if FORWARD_FUNCTIONS.contains(&function.name.as_str()) { &FORWARD_FUNCTIONS[..] } else { &[] };
        let is_named = |other: &FunctionOutline| other.name == function.name || names.contains(&other.name.as_str());
        let found = standard.as_ref().ok().map(|standard| standard.functions.iter().filter(|other| is_named(other)));
        found.is_some_and(|mut found| found.any(|other| other.has_same_tree(function)))
    };
    own.functions
        .iter()
        .filter(|function| !is_same(function))
        .map(|function| format!("{file}: {}", function.name))
        .collect()
}

/// Returns the script of the standard case that a vendor's script replaces: its own, or the shared one that serves the
/// stage.
fn standard_script(case: &str, file: &str, after: &dyn Snapshot) -> String {
    let own = format!("scripts/{case}/{file}");
    let parameters = after.text(&format!("configs/{case}/parameters.yaml")).unwrap_or_default();
    let shared = match parse_yaml(&parameters).map(|root| root.content) {
        Ok(Content::Map(entries)) => {
            entries.get(file.trim_end_matches(".rhai")).and_then(|node| node.value().as_str().map(str::to_owned))
        }
        _ => None,
    };
    let has_own = after.list(&format!("scripts/{case}")).iter().any(|name| name.text == file);
    shared.filter(|_| !has_own).map_or(own, |shared| format!("scripts/{shared}.rhai"))
}

/// Returns how many nodes of the model the record places, and how many of them on the processor although others are on a
/// device.
fn placement(record: &NewRecord) -> Option<(u64, u64)> {
    let phases = record.value["phases"].as_array()?;
    let phase = phases.iter().rev().find(|phase| phase["engine"]["nodes_by_provider"].is_object())?;
    let providers = phase["engine"]["nodes_by_provider"].as_object()?;
    let number = |name: &str| providers.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let all = providers.keys().map(|name| number(name)).fold(0, u64::saturating_add);
    let is_device = providers.keys().any(|name| name != PROCESSOR);
    (all > 0).then(|| (all, if is_device { number(PROCESSOR) } else { 0 }))
}
