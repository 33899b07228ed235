//! The configuration of one case: its files, the vendor's overlay, `--set`.

use std::path::{Path, PathBuf};

use super::file::File;
use super::key::{defaults, read_keys};
use super::overlay::Layers;
use super::parameters::read_parameters;
use super::{CaseKey, ConfigProblem, Finding, Origin, SETTINGS, Sourced, Values, Vendor, effective, nearest};

/// One case, configured.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseConfig {
    /// Which case with which framework.
    pub key: Sourced<CaseKey>,
    /// Where its datasets and weights lie.
    pub data_dir: Sourced<PathBuf>,
    /// The keys of configurations.yaml, all of them.
    pub settings: Values,
    /// The keys of parameters.yaml.
    pub parameters: Values,
    /// The vendor's own keys.
    pub own: Values,
    /// Keys that `--set` changed: departures from the standard configuration.
    pub departures: Vec<String>,
}

/// What all cases of a run have in common.
pub(super) struct Surroundings<'c> {
    pub root: &'c Path,
    pub vendor_name: &'c str,
    pub vendor: Option<&'c Vendor>,
    pub set: &'c [String],
}

impl CaseConfig {
    /// Reads the files of a case; `None` when a finding leaves it incomplete.
    pub(super) fn read(
        key: Sourced<CaseKey>,
        data_dir: Sourced<PathBuf>,
        around: &Surroundings<'_>,
        findings: &mut Vec<Finding>,
    ) -> Option<CaseConfig> {
        let folder = around.root.join("configs").join(&key.value.case);
        let read = |name: &Path| File::read(&folder.join(name), around.root);
        let mut layers = Layers::default();
        match read(Path::new("configurations.yaml")) {
            Ok(file) => layers.settings = effective([defaults(SETTINGS), read_keys(SETTINGS, &file, findings)]),
            Err(finding) => findings.push(finding),
        }
        match read(Path::new("parameters.yaml")) {
            Ok(file) => layers.parameters = read_parameters(&file, findings),
            Err(finding) => findings.push(finding),
        }
        let overlay = Path::new("vendor_config").join(format!("{}_configurations.yaml", around.vendor_name));
        // A link that leads nowhere is an overlay that cannot be read, not none.
        if folder.join(&overlay).symlink_metadata().is_ok() {
            match read(&overlay) {
                Ok(file) => layers.overlay(&file, around.vendor_name, around.vendor, findings),
                Err(finding) => findings.push(finding),
            }
        }
        findings.extend(unread_overlays(&folder, around.root));
        for argument in around.set {
            layers.set(argument, &key.value.case, around.vendor, findings);
        }
        let Layers { mut settings, parameters, own, departures } = layers;
        settings.sort_by_cached_key(|name, _| SETTINGS.iter().position(|setting| setting.name == name));
        let complete = SETTINGS.iter().all(|setting| settings.contains_key(setting.name));
        complete.then_some(CaseConfig { key, data_dir, settings, parameters, own, departures })
    }

    /// Every value with its key, in the order settings, parameters, the vendor's own.
    pub fn values(&self) -> impl Iterator<Item = (&String, &Sourced<serde_json::Value>)> {
        self.settings.iter().chain(&self.parameters).chain(&self.own)
    }
}

/// The files beside the overlays that are nobody's: of no vendor, or under another spelling.
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
