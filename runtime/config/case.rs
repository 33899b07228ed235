//! The configuration of one case, from its files, the vendor's overlay and `--set`.

use std::path::{Path, PathBuf};

use super::file::ConfigFile;
use super::key::{defaults, read_keys};
use super::overlay::Layers;
use super::parameters::read_parameters;
use super::precision::reconcile_precision;
use super::{CaseKey, ConfigProblem, Finding, Origin, SETTINGS, Sourced, Values, Vendor, merge_layers, nearest};

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
}

impl CaseConfig {
    /// Reads the files of a case; returns `None` when an error leaves the configuration incomplete.
    pub(super) fn read(
        key: Sourced<CaseKey>,
        data_dir: Sourced<PathBuf>,
        context: &CaseContext<'_>,
        findings: &mut Vec<Finding>,
    ) -> Option<CaseConfig> {
        let folder = context.root.join("configs").join(&key.value.case);
        let read = |name: &Path| ConfigFile::read(&folder.join(name), context.root);
        let mut layers = Layers::default();
        match read(Path::new("configurations.yaml")) {
            Ok(file) => {
                layers.settings = merge_layers([defaults(SETTINGS), read_keys(SETTINGS, &file, findings)]);
                findings.extend(reconcile_precision(&mut layers.settings, |origin| file.contains(origin)).err());
            }
            Err(finding) => findings.push(finding),
        }
        match read(Path::new("parameters.yaml")) {
            Ok(file) => layers.parameters = read_parameters(&file, findings),
            Err(finding) => findings.push(finding),
        }
        let overlay = Path::new("vendor_config").join(format!("{}_configurations.yaml", context.vendor_name));
        // A broken link is an overlay that cannot be read, not a missing overlay.
        if folder.join(&overlay).symlink_metadata().is_ok() {
            match read(&overlay) {
                Ok(file) => {
                    layers.apply_overlay(&file, context.vendor_name, context.vendor, findings);
                    findings.extend(reconcile_precision(&mut layers.settings, |origin| file.contains(origin)).err());
                }
                Err(finding) => findings.push(finding),
            }
        }
        findings.extend(unread_overlays(&folder, context.root));
        for argument in context.set {
            layers.apply_set(argument, &key.value.case, context.vendor, findings);
        }
        let is_argument = |origin: &Origin| matches!(origin, Origin::CommandLine(_));
        findings.extend(reconcile_precision(&mut layers.settings, is_argument).err());
        let Layers { mut settings, parameters, vendor_values, departures, .. } = layers;
        settings.sort_by_cached_key(|name, _| SETTINGS.iter().position(|setting| setting.name == name));
        let complete = SETTINGS.iter().all(|setting| settings.contains_key(setting.name));
        complete.then_some(CaseConfig { key, data_dir, settings, parameters, vendor_values, departures })
    }

    /// Iterates over all values with their keys: settings, then parameters, then the vendor's own.
    pub fn values(&self) -> impl Iterator<Item = (&String, &Sourced<serde_json::Value>)> {
        self.settings.iter().chain(&self.parameters).chain(&self.vendor_values)
    }
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
    let problem = |name: &String| ConfigProblem::UnreadOverlay {
        nearest: nearest(name, overlays.iter().map(String::as_str)).map(str::to_owned),
    };
    unread.iter().map(|name| Finding::warning(place(name), problem(name))).collect()
}
