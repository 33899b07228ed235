//! The configuration of one case, from its files, the vendor's overlay and `--set`.

use std::path::{Path, PathBuf};

use super::file::ConfigFile;
use super::key::{defaults, read_keys};
use super::overlay::Layers;
use super::parameters::{misspelled_metrics, read_parameters};
use super::precision::reconcile_precision;
use super::size_section::OverlayPart;
use flagperf_core::event::Level;

use super::finding::nearest_note;
use super::{CaseKey, Finding, Origin, SettingsFile, Sourced, Values, Vendor, merge_layers, nearest};

/// The file with the parameters of a case, in its folder.
pub const PARAMETERS_FILE: &str = "parameters.yaml";

/// The configuration of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseConfig {
    /// The case and its framework.
    pub key: Sourced<CaseKey>,
    /// Folder with the case's datasets and weights.
    pub data_dir: Sourced<PathBuf>,
    /// The values of all keys of configurations.yaml; for a training, of training.yaml.
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
        let files = CaseFiles::read(&folder, &key.value, context, findings);
        findings.extend(unread_overlays(&folder, context.root));
        // Without one of the files nothing is known about the keys that the others and `--set` change.
        let CaseFiles { settings, parameters, overlay } = files?;
        let mut layers = base_layers(key.value.settings_file(), &settings, &parameters, findings)?;
        match overlay {
            Some(file) => apply_overlay(&mut layers, &file, &key.value, context, findings)?,
            None => findings.push(no_overlay(&key.value, context.vendor_name).at(settings.whole())),
        }
        apply_arguments(&mut layers, context, &key.value.case, findings);
        agree(&mut layers, |origin| matches!(origin, Origin::CommandLine(_)), findings)?;
        let Layers { file, mut settings, parameters, vendor_values, departures, .. } = layers;
        settings.sort_by_cached_key(|name, _| file.keys.iter().position(|setting| setting.name == name));
        let data_dir = data_dir
            .or_else(|| default_folder(&parameters, context.root))
            .unwrap_or_else(|| Sourced::new(default_data_folder(context.root, &key.value.case), context.cases.clone()));
        let complete = file.keys.iter().all(|setting| settings.contains_key(setting.name));
        complete.then_some(CaseConfig { key, data_dir, settings, parameters, vendor_values, departures })
    }

    /// Returns the case's file of settings as an origin, for a finding about the case that concerns none of its lines.
    pub fn settings_file(&self) -> Origin {
        self.whole_file(self.key.value.settings_file().name)
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

/// Returns the layers below the overlay: the files of the standard case.
fn base_layers(
    file: &'static SettingsFile,
    settings: &ConfigFile,
    parameters: &ConfigFile,
    findings: &mut Vec<Finding>,
) -> Option<Layers> {
    let own = read_keys(file.keys, settings, findings);
    let metrics = file.keys.iter().filter_map(|key| Some(misspelled_metrics(key, own.get(key.name)?)));
    findings.extend(metrics.flatten());
    let mut layers = Layers::new(file, merge_layers([defaults(file.keys), own]), Values::new());
    agree(&mut layers, |origin| settings.contains(origin), findings)?;
    layers.parameters = read_parameters(parameters, findings);
    Some(layers)
}

/// Applies the overlay of the vendor: the keys for every size, then the section for the size of the case. Of the sections for
/// other sizes, only errors and warnings, such as about a misspelled key, are reported.
fn apply_overlay(
    layers: &mut Layers,
    file: &ConfigFile,
    key: &CaseKey,
    context: &CaseContext<'_>,
    findings: &mut Vec<Finding>,
) -> Option<()> {
    let apply = |layers: &mut Layers, part: &OverlayPart<'_>, findings: &mut Vec<Finding>| {
        layers.apply_overlay(part, context.vendor_name, context.vendor, findings);
        agree(layers, |origin| part.contains(origin), findings)
    };
    let parts = OverlayPart::of(file, key, findings);
    let (for_every_size, sections) = parts.split_first()?;
    apply(layers, for_every_size, findings)?;
    let common = layers.clone();
    for section in sections {
        if section.applies_to(key) {
            apply(layers, section, findings)?;
        } else {
            let mut own = Vec::new();
            let _ = apply(&mut common.clone(), section, &mut own);
            findings.extend(own.into_iter().filter(|finding| finding.level >= Level::Warning));
        }
    }
    Some(())
}

/// Returns the note that a case has no overlay of the vendor.
fn no_overlay(key: &CaseKey, vendor: &str) -> Finding {
    let case = &key.case;
    let message = format!("vendor `{vendor}` has no overlay for case `{case}`, so the standard settings apply");
    let example = if key.training.is_some() { "batch_size" } else { "compiler" };
    let overlay = key.settings_file().overlay_path(case, vendor);
    let hint = format!("{overlay} may change them, such as `{example}`");
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
    settings: ConfigFile,
    parameters: ConfigFile,
    /// The vendor's overlay, if there is one.
    overlay: Option<ConfigFile>,
}

impl CaseFiles {
    /// Reads the files in the folder of a case; returns `None` after an error for each that cannot be read.
    fn read(folder: &Path, key: &CaseKey, context: &CaseContext<'_>, findings: &mut Vec<Finding>) -> Option<CaseFiles> {
        let mut read = |name: &Path| {
            let file = ConfigFile::read(&folder.join(name), context.root);
            file.map_err(|finding| findings.push(with_remedy(finding, folder, name, key))).ok()
        };
        let file = key.settings_file();
        let settings = read(Path::new(file.name));
        let parameters = read(Path::new(PARAMETERS_FILE));
        let overlay = Path::new("vendor_config").join(file.overlay_name(context.vendor_name));
        // A broken link is an overlay that cannot be read, not a missing overlay.
        let overlay = match folder.join(&overlay).symlink_metadata().is_ok() {
            true => Some(read(&overlay)?),
            false => None,
        };
        Some(CaseFiles { settings: settings?, parameters: parameters?, overlay })
    }
}

/// Adds to the error about a missing file that every case has it, or for what the case can be run instead.
fn with_remedy(finding: Finding, folder: &Path, name: &Path, key: &CaseKey) -> Finding {
    let exists = |name: &Path| folder.join(name).symlink_metadata().is_ok();
    if exists(name) {
        return finding;
    }
    let CaseKey { case, framework, .. } = key;
    let file = key.settings_file();
    let other = SettingsFile::ALL.into_iter().find(|other| other.name != file.name && exists(Path::new(other.name)));
    let hint = match other.filter(|_| name == Path::new(file.name)) {
        Some(other) if other.name == SettingsFile::TRAINING.name => {
            format!("case `{case}` is only for training: `{case}:{framework}:HARDWARE:1:1:1`")
        }
        Some(other) => format!("case `{case}` is only for {}: `{case}:{framework}`", other.purpose),
        None => {
            format!("each case has {} and {PARAMETERS_FILE} in its folder; only the second may be empty", file.name)
        }
    };
    finding.with_hint(hint)
}

/// Returns a warning for each file in the folder of overlays whose name belongs to no vendor.
fn unread_overlays(folder: &Path, root: &Path) -> Vec<Finding> {
    let names = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    let overlays: Vec<String> = names(root.join("vendors"))
        .flat_map(|vendor| SettingsFile::ALL.map(|file| file.overlay_name(&vendor)))
        .collect();
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
        format!("this file is not read: its name is not that of an overlay of a folder in vendors/{note}")
    };
    unread.iter().map(|name| Finding::warning(place(name), message(name))).collect()
}
