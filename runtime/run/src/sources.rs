//! Copies of the scripts and of the configuration that a case read, in `sources/` of its folder, so that a result can be
//! reviewed without the checkout that produced it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use flagperf_core::regular_file::read_regular;
use indexmap::IndexMap;

use super::case::config_json;
use flagperf_config::Origin;
use flagperf_core::file::is_inside;
use flagperf_core::hash::{hash_bytes, hash_file};
use flagperf_core::run_files::{CONFIG_FILE, SOURCES_FOLDER};
use flagperf_plan::{CasePlan, EffectiveValue, Plan};
use flagperf_result::{FoundFile, Provenance, ScriptHashes, hash_scripts, list_files};

/// Largest configuration file that is copied. A larger one is refused before a run.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a case reads before its phases begin.
pub(super) struct CaseSources {
    scripts: PathBuf,
    /// The configuration files by their names in `sources/`.
    files: IndexMap<String, PathBuf>,
    /// The merged configuration as JSON.
    config: String,
}

/// The hashes of a case's sources.
#[derive(Debug, Default)]
pub(super) struct SourceHashes {
    /// SHA-256 of the scripts by path relative to the scripts folder.
    pub(super) scripts: IndexMap<String, String>,
    /// SHA-256 of the configuration files by path relative to the checkout.
    pub(super) config_files: IndexMap<String, String>,
    /// The files that could not be read or copied, with the reasons.
    pub(super) problems: Vec<String>,
}

impl CaseSources {
    /// Returns the sources of a case: its scripts, host.yaml, its files in configs/, its vendor's file, and the files that
    /// prepare its workers.
    pub(super) fn of(plan: &Plan, rows: &[EffectiveValue], case: &CasePlan, config: String) -> Option<Self> {
        let root = &plan.site.flagperf_path;
        let (name, vendor) = (&case.key.case, &plan.site.vendor);
        let mut names: BTreeSet<String> = [
            case.key.settings_file().path(name),
            format!("configs/{name}/parameters.yaml"),
            case.key.settings_file().overlay_path(name, vendor),
            format!("vendors/{vendor}/vendor.yaml"),
        ]
        .into();
        // host.yaml may lie elsewhere, and on another machine.
        names.insert(plan.host_file.name.to_string());
        let section = case.key.to_string();
        let own = rows.iter().filter(|row| row.section == section || row.section == "site");
        names.extend(own.filter_map(|row| yaml_file(&row.origin)));
        let prepared = case.preparation.variables.iter().chain(&case.preparation.requirements);
        names.extend(prepared.filter_map(|path| Some(path.strip_prefix(root).ok()?.to_str()?.to_owned())));
        let path = |name: &str| match name == &*plan.host_file.name {
            true => plan.host_file.path.clone(),
            false => root.join(name),
        };
        let present = names.into_iter().map(|name| (copy_name(&name), path(&name)));
        let files = present.filter(|(_, path)| path.is_file()).collect();
        Some(CaseSources { scripts: case.jobs.last()?.scripts.clone(), files, config })
    }

    /// Returns the hashes of the sources that can be read.
    pub(super) fn hash(&self) -> SourceHashes {
        let hash = |(name, path): (&String, &PathBuf)| {
            Some((name.clone(), hash_bytes(&read_regular(path, FILE_BYTES_MAX).ok()?)))
        };
        let config_files = self.files.iter().filter_map(hash).collect();
        SourceHashes { scripts: hash_scripts(&self.scripts).sha256, config_files, problems: Vec::new() }
    }

    /// Hashes the sources and copies them into the folder of the case.
    pub(super) fn hash_and_copy(&self, folder: &Path) -> SourceHashes {
        let folder = folder.join(SOURCES_FOLDER);
        let ScriptHashes { sha256, texts, mut problems } = hash_scripts(&self.scripts);
        let not_copied = |name: &str, error: io::Error| format!("`{name}` is not in {SOURCES_FOLDER}: {error}");
        let copy =
            |name: &str, text: &[u8]| write_copy(&folder, name, text).map_err(|error| not_copied(name, error)).err();
        problems.extend(copy(CONFIG_FILE, self.config.as_bytes()));
        problems.extend(texts.iter().filter_map(|(name, text)| copy(&format!("scripts/{name}"), text)));
        let mut config_files = IndexMap::new();
        for (name, path) in &self.files {
            match read_regular(path, FILE_BYTES_MAX) {
                Ok(text) => {
                    problems.extend(copy(name, &text));
                    config_files.insert(name.clone(), hash_bytes(&text));
                }
                Err(error) => problems.push(not_copied(name, error)),
            }
        }
        SourceHashes { scripts: sha256, config_files, problems }
    }
}

/// Adds the hashes of the copies in the folder of a case to its provenance: those that were made before the case was lost.
pub(super) fn hash_copies(folder: &Path, provenance: &mut Provenance) {
    let folder = folder.join(SOURCES_FOLDER);
    for FoundFile { path, .. } in list_files(&folder).unwrap_or_default() {
        let Ok(hash) = hash_file(&folder.join(&path)) else { continue };
        match path.strip_prefix("scripts/") {
            Some(script) => drop(provenance.scripts_sha256.insert(script.to_owned(), hash)),
            None if path == CONFIG_FILE => provenance.config_sha256 = hash,
            None => drop(provenance.config_files_sha256.insert(path, hash)),
        }
    }
}

/// What a case measures, by name: each setting as JSON, and the SHA-256 of each script, each file of its configuration and each
/// file of its vendor.
pub type CaseParts = BTreeMap<String, String>;

/// Returns what each case measures, by the case: its settings, its vendor, its scripts and its files, but not host.yaml, which
/// states where and how a site runs. A resumed run needs the same.
pub fn case_parts(plan: &Plan, rows: &[EffectiveValue]) -> BTreeMap<String, CaseParts> {
    let vendor = vendor_files(&plan.vendor.folder);
    let parts = |case: &CasePlan| {
        let config = case.jobs.last().map(|job| job.config.clone()).unwrap_or_default();
        let sources = CaseSources::of(plan, rows, case, config_json(&config));
        let SourceHashes { scripts, mut config_files, .. } = sources.map(|sources| sources.hash()).unwrap_or_default();
        config_files.shift_remove(&copy_name(&plan.host_file.name));
        let scripts = scripts.into_iter().map(|(name, hash)| (format!("scripts/{name}"), hash));
        let settings = config.into_iter().map(|(key, value)| (key, value.to_string()));
        (case.key.to_string(), settings.chain(scripts).chain(config_files).chain(vendor.clone()).collect())
    };
    plan.cases.iter().map(parts).collect()
}

/// Returns the SHA-256 of each file in a vendor's folder, except of what building or running its engines writes.
fn vendor_files(folder: &Path) -> Vec<(String, String)> {
    let is_written = |path: &str| path.split('/').any(|part| ["__pycache__", "target"].contains(&part));
    let files = list_files(folder).unwrap_or_default().into_iter().filter(|file| !is_written(&file.path));
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    files
        .filter_map(|file| Some((format!("vendors/{name}/{}", file.path), hash_file(&folder.join(&file.path)).ok()?)))
        .collect()
}

/// Returns the YAML file of which the origin is a line.
fn yaml_file(origin: &Origin) -> Option<String> {
    match origin {
        Origin::File { file, line: 1.., .. } if file.ends_with(".yaml") => Some(file.to_string()),
        _ => None,
    }
}

/// Returns the name of a copy: that of the file in the checkout, or `site/NAME` for a file that lies elsewhere.
fn copy_name(name: &str) -> String {
    let path = Path::new(name);
    if is_inside(path) {
        return name.to_owned();
    }
    format!("site/{}", path.file_name().unwrap_or_default().to_string_lossy())
}

fn write_copy(folder: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap_or(folder))?;
    let mut file = fs::File::create_new(&path)?;
    io::Write::write_all(&mut file, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_vendor_counts_but_not_what_python_or_cargo_write() {
        let folder = tempfile::tempdir().unwrap();
        let vendor = folder.path().join("chip");
        for (file, text) in [("engines/own.py", "1"), ("engines/__pycache__/own.pyc", "2"), ("own/target/x", "3")] {
            write_copy(&vendor, file, text.as_bytes()).unwrap();
        }
        assert_eq!(vendor_files(&vendor), [("vendors/chip/engines/own.py".to_owned(), hash_bytes(b"1"))]);
    }

    #[test]
    fn a_copy_never_lies_outside_its_folder() {
        assert_eq!(copy_name("configs/tiny/parameters.yaml"), "configs/tiny/parameters.yaml");
        assert_eq!(copy_name("/etc/lab/host.yaml"), "site/host.yaml");
        assert_eq!(copy_name("../lab/host.yaml"), "site/host.yaml");
    }

    #[test]
    fn scripts_and_configuration_are_copied_and_hashed() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        write("scripts/tiny/model.rhai", "model");
        write("scripts/lib/norm.rhai", "norm");
        let host = write("configs/host.yaml", "VENDOR: mock");
        let sources = CaseSources {
            scripts: root.path().join("scripts/tiny"),
            files: [("configs/host.yaml".to_owned(), host), ("gone.yaml".to_owned(), root.path().join("gone"))].into(),
            config: "{}".into(),
        };
        let folder = root.path().join("result");
        let hashes = sources.hash_and_copy(&folder);
        assert_eq!(hashes.config_files["configs/host.yaml"], hash_bytes(b"VENDOR: mock"));
        assert_eq!(hashes.scripts.keys().collect::<Vec<_>>(), ["lib/norm.rhai", "tiny/model.rhai"]);
        assert_eq!(fs::read_to_string(folder.join("sources/scripts/tiny/model.rhai")).unwrap(), "model");
        assert_eq!(fs::read_to_string(folder.join("sources/config.json")).unwrap(), "{}");
        assert_eq!(hashes.problems, ["`gone.yaml` is not in sources: No such file or directory (os error 2)"]);
    }
}
