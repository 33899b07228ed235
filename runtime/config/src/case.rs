//! The configuration of one case, from its files, the vendor's overlay and `--set`.

use std::path::{Path, PathBuf};

use super::file::ConfigFile;
use super::key::{defaults, read_keys};
use super::overlay::Layers;
use super::parameters::read_parameters;
use super::precision::reconcile_precision;
use flagperf_core::event::Level;

use super::finding::nearest_note;
use super::{CaseKey, Finding, Origin, SETTINGS, Sourced, Values, Vendor, merge_layers, nearest};

const CONFIGURATIONS: &str = "configurations.yaml";
const PARAMETERS_FILE: &str = "parameters.yaml";

/// The configuration of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseConfig {
    /// The case and its framework.
    pub key: Sourced<CaseKey>,
    /// Folder with the case's datasets and weights.
    pub data_dir: Sourced<PathBuf>,
    /// The values of all keys of configurations.yaml.
    pub settings: Values,
    /// The values of the keys of parameters.yaml.
    pub parameters: Values,
    /// The values of the vendor's own keys.
    pub vendor_values: Values,
    /// Keys that `--set` changed: departures from the standard configuration.
    pub departures: Vec<String>,
}

/// The part of the configuration that all cases of a run share.
pub(super) struct CaseContext<'c> {
    pub root: &'c Path,
    pub vendor_name: &'c str,
    pub vendor: Option<&'c Vendor>,
    pub set: &'c [String],
    /// The place of `CASES` in host.yaml.
    pub cases: Origin,
}

impl CaseConfig {
    /// Reads the files of a case; returns `None` when an error leaves the configuration incomplete.
    pub(super) fn read(
        key: Sourced<CaseKey>,
        data_dir: Option<Sourced<PathBuf>>,
        context: &CaseContext<'_>,
        findings: &mut Vec<Finding>,
    ) -> Option<CaseConfig> {
        let mut own = Vec::new();
        let case = CaseConfig::read_files(key.clone(), data_dir, context, &mut own);
        Finding::assign(&mut own, &key.value);
        findings.extend(own);
        case
    }

    fn read_files(
        key: Sourced<CaseKey>,
        data_dir: Option<Sourced<PathBuf>>,
        context: &CaseContext<'_>,
        findings: &mut Vec<Finding>,
    ) -> Option<CaseConfig> {
        let folder = context.root.join("configs").join(&key.value.case);
        let files = CaseFiles::read(&folder, context, findings);
        findings.extend(unread_overlays(&folder, context.root));
        // Without one of the files nothing is known about the keys that the others and `--set` change.
        let CaseFiles { configurations, parameters, overlay } = files?;
        let mut layers = Layers {
            settings: merge_layers([defaults(SETTINGS), read_keys(SETTINGS, &configurations, findings)]),
            ..Layers::default()
        };
        agree(&mut layers, |origin| configurations.contains(origin), findings)?;
        layers.parameters = read_parameters(&parameters, findings);
        if overlay.is_none() {
            findings.push(no_overlay(&key.value.case, context.vendor_name).at(configurations.whole()));
        }
        if let Some(file) = overlay {
            layers.apply_overlay(&file, context.vendor_name, context.vendor, findings);
            agree(&mut layers, |origin| file.contains(origin), findings)?;
        }
        apply_arguments(&mut layers, context, &key.value.case, findings);
        agree(&mut layers, |origin| matches!(origin, Origin::CommandLine(_)), findings)?;
        let Layers { mut settings, parameters, vendor_values, departures, .. } = layers;
        settings.sort_by_cached_key(|name, _| SETTINGS.iter().position(|setting| setting.name == name));
        let data_dir = data_dir
            .or_else(|| default_folder(&parameters, context.root))
            .unwrap_or_else(|| Sourced::new(default_data_folder(context.root, &key.value.case), context.cases.clone()));
        let complete = SETTINGS.iter().all(|setting| settings.contains_key(setting.name));
        complete.then_some(CaseConfig { key, data_dir, settings, parameters, vendor_values, departures })
    }

    /// Returns the case's configurations.yaml as an origin, for a finding about the case that concerns none of its lines.
    pub fn configurations(&self) -> Origin {
        self.whole_file(CONFIGURATIONS)
    }

    /// Returns the case's parameters.yaml as an origin.
    pub fn parameters_file(&self) -> Origin {
        self.whole_file(PARAMETERS_FILE)
    }

    fn whole_file(&self, name: &str) -> Origin {
        Origin::File { file: format!("configs/{}/{name}", self.key.value.case).into(), line: 0, column: 0 }
    }

    /// Iterates over all values with their keys: settings, then parameters, then the vendor's own.
    pub fn values(&self) -> impl Iterator<Item = (&String, &Sourced<serde_json::Value>)> {
        self.settings.iter().chain(&self.parameters).chain(&self.vendor_values)
    }
}

/// Returns the data directory of a case for which none is given. A case that reads no file needs none, so a missing one is
/// found only by the check of its scripts; the place of the error is `CASES`, where the entry is missing.
pub fn default_data_folder(root: &Path, case: &str) -> PathBuf {
    root.join("datasets").join(case)
}

/// Returns the data directory that a case names for runs without one.
fn default_folder(parameters: &Values, root: &Path) -> Option<Sourced<PathBuf>> {
    let folder = parameters.get("default_data")?;
    Some(Sourced::new(root.join(folder.value.as_str()?), folder.origin.clone()))
}

/// Returns the note that a case has no overlay of the vendor.
fn no_overlay(case: &str, vendor: &str) -> Finding {
    let message = format!("vendor `{vendor}` has no overlay for case `{case}`, so the standard settings apply");
    let hint = format!("configs/{case}/vendor_config/{vendor}_configurations.yaml may change them, such as `compiler`");
    Finding::info(Origin::Default, message).with_hint(hint)
}

/// Makes `fp16` and `precision` agree after a layer has been merged. If the layer contradicts itself, this is the only
/// finding about the two keys, and the configuration is incomplete.
fn agree(layers: &mut Layers, is_of_layer: impl Fn(&Origin) -> bool, findings: &mut Vec<Finding>) -> Option<()> {
    let Err(refused) = reconcile_precision(&mut layers.settings, is_of_layer) else { return Some(()) };
    let (conflict, origins) = *refused;
    findings.retain(|finding| !origins.contains(&finding.origin));
    findings.push(conflict);
    None
}

/// Applies every `--set`. Of several for one key, the last one wins, so what the others change is not reported.
fn apply_arguments(layers: &mut Layers, context: &CaseContext<'_>, case: &str, findings: &mut Vec<Finding>) {
    let key = |argument: &str| argument.split_once('=').map(|(key, _)| key.to_owned());
    for (index, argument) in context.set.iter().enumerate() {
        let mut own = Vec::new();
        layers.apply_set(argument, case, context.vendor, &mut own);
        let is_replaced =
            context.set[index + 1..].iter().any(|later| key(later).is_some() && key(later) == key(argument));
        own.retain(|finding| !is_replaced || finding.level == Level::Error);
        findings.extend(own);
    }
}

/// The files of a case.
struct CaseFiles {
    configurations: ConfigFile,
    parameters: ConfigFile,
    /// The vendor's overlay, if there is one.
    overlay: Option<ConfigFile>,
}

impl CaseFiles {
    /// Reads the files in the folder of a case; returns `None` after an error for each that cannot be read.
    fn read(folder: &Path, context: &CaseContext<'_>, findings: &mut Vec<Finding>) -> Option<CaseFiles> {
        let mut read = |name: &Path| {
            let file = ConfigFile::read(&folder.join(name), context.root);
            file.map_err(|finding| findings.push(with_remedy(finding, &folder.join(name)))).ok()
        };
        let configurations = read(Path::new(CONFIGURATIONS));
        let parameters = read(Path::new(PARAMETERS_FILE));
        let overlay = Path::new("vendor_config").join(format!("{}_configurations.yaml", context.vendor_name));
        // A broken link is an overlay that cannot be read, not a missing overlay.
        let overlay = match folder.join(&overlay).symlink_metadata().is_ok() {
            true => Some(read(&overlay)?),
            false => None,
        };
        Some(CaseFiles { configurations: configurations?, parameters: parameters?, overlay })
    }
}

/// Adds to the error about a missing file that every case has it.
fn with_remedy(finding: Finding, path: &Path) -> Finding {
    if path.symlink_metadata().is_ok() {
        return finding;
    }
    let hint =
        format!("each case has {CONFIGURATIONS} and {PARAMETERS_FILE} in its folder; only the second may be empty");
    finding.with_hint(hint)
}

/// Returns a warning for each file in the folder of overlays whose name belongs to no vendor.
fn unread_overlays(folder: &Path, root: &Path) -> Vec<Finding> {
    let names = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    let overlays: Vec<String> =
        names(root.join("vendors")).map(|vendor| format!("{vendor}_configurations.yaml")).collect();
    let folder = folder.join("vendor_config");
    let mut unread: Vec<String> = names(folder.clone()).filter(|name| !overlays.contains(name)).collect();
    unread.sort_unstable();
    let place = |name: &String| {
        let path = folder.join(name);
        let file = path.strip_prefix(root).unwrap_or(&path).display().to_string().into();
        Origin::File { file, line: 1, column: 1 }
    };
    let message = |name: &String| {
        let note = nearest_note(nearest(name, overlays.iter().map(String::as_str)));
        format!("this file is not read: its name matches no folder in vendors/{note}")
    };
    unread.iter().map(|name| Finding::warning(place(name), message(name))).collect()
}
