//! Imports a whole tree: every case, every overlay, every vendor, and host.yaml.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::case::convert_case;
use super::file::{FileContent, NewFile, Replacement, TEXT_BYTES_MAX, WriteMode};
use super::host::convert_host;
use super::overlay::{OVERLAY_END, OVERLAYS, convert_overlay};
use super::report::{CaseReport, FileOutcome, FileReport, ImportReport, KeyChange, KeyReport, ProblemReport, SCHEMA};
use super::source::{CONFIGS, Entry, ImportError, SourceTree};
use super::training::convert_training;
use super::vendor::{ENGINES, IMAGES, add_program, convert_vendor};
use flagperf_config::{ConfigFile, Finding, KEYS_FOLDER, Node, Origin};
use flagperf_core::regular_file::read_regular_text;
use flagperf_plan::Catalogue;
use flagperf_scaffold::{check_case_name, check_name};

/// The comment at the beginning of every YAML file that an import writes.
pub(super) const IMPORTED: &str = "# Imported by `flagperf import flagperf`.\n";

/// Returns the first line of a YAML file, whose folder is `depth` folders below the checkout.
pub(super) fn schema_line(depth: usize, schema: &str) -> String {
    format!("# yaml-language-server: $schema={}docs/schemas/{schema}.json\n", "../".repeat(depth))
}

/// What is imported, and into which checkout.
pub struct Import<'i> {
    /// FlagPerf's tree.
    pub source: &'i SourceTree,
    /// The folder of the checkout.
    pub checkout: &'i Path,
    /// The vendors and cases of the checkout.
    pub catalogue: &'i Catalogue,
    /// Whether files with another content are replaced.
    pub replaces: bool,
    /// Whether nothing is written.
    pub is_dry_run: bool,
}

/// What has been converted so far.
pub(super) struct Conversion<'i> {
    pub(super) import: &'i Import<'i>,
    pub(super) files: Vec<NewFile>,
    pub(super) keys: Vec<KeyReport>,
    pub(super) cases: Vec<CaseReport>,
    pub(super) problems: Vec<Finding>,
}

impl Conversion<'_> {
    /// Reports a key of a file.
    pub(super) fn add_key(&mut self, (file, node): (&ConfigFile, &Node), key: &str, change: KeyChange, reason: &str) {
        self.keys.push(key_report((file, node), key, change, None, reason));
    }

    /// Reports a key that has another name here.
    pub(super) fn rename_key(&mut self, (file, node): (&ConfigFile, &Node), key: &str, to: &str, reason: &str) {
        self.keys.push(key_report((file, node), key, KeyChange::Renamed, Some(to), reason));
    }

    /// Reports a name in the source that nothing here takes the place of.
    pub(super) fn add_name(&mut self, below: &Path, name: &str, reason: &str) {
        self.add_report(below, name, KeyChange::NoEquivalent, reason);
    }

    /// Reports a name in the source whose counterpart in the checkout stays as it is.
    pub(super) fn keep_name(&mut self, below: &Path, name: &str, reason: &str) {
        self.add_report(below, name, KeyChange::Kept, reason);
    }

    fn add_report(&mut self, below: &Path, name: &str, change: KeyChange, reason: &str) {
        let (file, key, reason) = (self.import.source.name(below), name.to_owned(), reason.to_owned());
        self.keys.push(KeyReport { file, line: None, key, change, to: None, reason });
    }

    /// Adds a file with a text.
    pub(super) fn add_text(&mut self, path: PathBuf, from: String, text: String, replacement: Replacement) {
        self.files.push(NewFile { path, from, content: FileContent::Text(text), replacement });
    }

    /// Adds an unchanged copy of a file of the source. One that is no short text is reported.
    pub(super) fn copy(&mut self, from: &Path, to: &Path, replacement: Replacement) {
        let source = self.import.source;
        match read_regular_text(&source.root.join(from), TEXT_BYTES_MAX) {
            Ok(text) => self.add_text(to.to_owned(), source.name(from), text, replacement),
            Err(error) => {
                let name = from.file_name().unwrap_or_default().to_string_lossy();
                self.add_name(from, &name, &format!("it {error}: copy it to {}", to.display()));
            }
        }
    }

    /// Keeps the entries whose names are allowed here; any other becomes a problem.
    fn named(&mut self, folder: &Path, entries: Vec<Entry>, check: impl Fn(&str) -> Result<(), String>) -> Vec<String> {
        let mut names = Vec::new();
        for Entry { name, .. } in entries.into_iter().filter(|entry| entry.is_folder) {
            match check(&name) {
                Ok(()) => names.push(name),
                Err(reason) => {
                    let finding = self.import.source.finding(&folder.join(name), 0, &reason, "rename it in the source");
                    self.problems.push(finding);
                }
            }
        }
        names
    }
}

fn key_report(
    (file, node): (&ConfigFile, &Node),
    key: &str,
    change: KeyChange,
    to: Option<&str>,
    reason: &str,
) -> KeyReport {
    let (file, line) = (file.name.to_string(), Some(node.place.line));
    KeyReport { file, line, key: key.to_owned(), change, to: to.map(str::to_owned), reason: reason.to_owned() }
}

/// Imports a tree. What cannot be converted is a problem of the report, and everything else is converted.
///
/// # Errors
/// When the source is the checkout.
pub fn import(import: &Import<'_>) -> Result<ImportReport, ImportError> {
    let real = |folder: &Path| folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    if real(&import.source.root) == real(import.checkout) {
        return Err(ImportError::OwnCheckout(import.source.root.clone()));
    }
    let (files, keys, cases, problems) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut conversion = Conversion { import, files, keys, cases, problems };
    if import.source.has_inference {
        convert_inference(&mut conversion);
    }
    let with_program = convert_training(&mut conversion);
    with_program.iter().for_each(|vendor| add_program(vendor, &mut conversion));
    Ok(write_all(conversion))
}

/// Converts the inference.
fn convert_inference(conversion: &mut Conversion<'_>) {
    let import = conversion.import;
    let (cases, mut vendors) = convert_cases(conversion);
    convert_host(conversion, &cases);
    for folder in [ENGINES, IMAGES].map(Path::new) {
        let entries = import.source.entries(folder, &mut conversion.problems);
        vendors.extend(conversion.named(folder, entries, check_vendor));
    }
    vendors.iter().for_each(|vendor| convert_vendor(vendor, conversion));
}

pub(super) fn check_vendor(name: &str) -> Result<(), String> {
    check_name("a vendor", name).map_err(|error| error.to_string())
}

pub(super) fn check_case(name: &str) -> Result<(), String> {
    match name {
        KEYS_FOLDER => {
            Err(format!("`{name}` cannot be the name of a case: configs/{KEYS_FOLDER} contains public keys"))
        }
        _ => check_case_name(name).map_err(|error| error.to_string()),
    }
}

/// Converts the cases with their overlays, and returns the names of the cases and of the vendors.
fn convert_cases(conversion: &mut Conversion<'_>) -> (BTreeSet<String>, BTreeSet<String>) {
    let source = conversion.import.source;
    let configs = Path::new(CONFIGS);
    let entries = source.entries(configs, &mut conversion.problems);
    let cases = conversion.named(configs, entries, check_case);
    let mut all_vendors = BTreeSet::new();
    for case in &cases {
        let vendors = overlay_vendors(case, conversion);
        let files = convert_case(case, vendors.clone(), conversion);
        vendors.iter().for_each(|vendor| convert_overlay(case, vendor, &files, conversion));
        all_vendors.extend(vendors);
    }
    (cases.into_iter().collect(), all_vendors)
}

/// Returns the vendors with an overlay for a case.
fn overlay_vendors(case: &str, conversion: &mut Conversion<'_>) -> Vec<String> {
    let source = conversion.import.source;
    let folder = Path::new(CONFIGS).join(case).join(OVERLAYS);
    let mut vendors = Vec::new();
    for Entry { name, .. } in source.entries(&folder, &mut conversion.problems) {
        let vendor = name.strip_suffix(OVERLAY_END);
        let unread = || format!("FlagPerf does not read this file: an overlay is called <vendor>{OVERLAY_END}");
        match vendor.ok_or_else(unread).and_then(|vendor| check_vendor(vendor).map(|()| vendor)) {
            Ok(vendor) => vendors.push(vendor.to_owned()),
            Err(reason) => {
                let finding = source.finding(&folder.join(&name), 0, &reason, "rename it in the source");
                conversion.problems.push(finding);
            }
        }
    }
    vendors
}

/// Writes the converted files.
fn write_all(conversion: Conversion<'_>) -> ImportReport {
    let Conversion { import, files: new, keys, cases, mut problems } = conversion;
    let mode = WriteMode { replaces: import.replaces, is_dry_run: import.is_dry_run };
    let mut files = Vec::new();
    let mut has_unwritten_files = false;
    for file in new {
        let (outcome, differences) = match file.write(import.checkout, mode) {
            Ok(written) => (written.outcome, written.differences),
            Err(error) => {
                let origin = Origin::File { file: file.path.display().to_string().into(), line: 0, column: 0 };
                problems.push(Finding::error(origin, format!("cannot be written: {error}")));
                has_unwritten_files = true;
                (FileOutcome::Unwritten, Vec::new())
            }
        };
        files.push(FileReport { path: file.path, from: file.from, outcome, differences });
    }
    ImportReport {
        schema: SCHEMA,
        source: import.source.root.clone(),
        checkout: import.checkout.to_owned(),
        is_dry_run: import.is_dry_run,
        files,
        keys,
        cases,
        problems: problems.iter().map(ProblemReport::from).collect(),
        has_unwritten_files,
    }
}
