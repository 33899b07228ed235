//! Everything that files, environment and command line say, brought together.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::case::{CaseConfig, Surroundings};
use super::choice::choose;
use super::env::{self, Environment};
use super::file::File;
use super::key::{Key, defaults, read_keys};
use super::yaml;
use super::{ConfigProblem, Finding, Findings, Origin, SITE, Site, Sourced, Values, Vendor, VisibleDevices, effective};

/// What the command line and the environment say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--config DIR`: the folder (or file) of the site's host.yaml.
    pub config: Option<PathBuf>,
    /// `--vendor V`.
    pub vendor: Option<String>,
    /// `--case NAME[:FRAMEWORK]`.
    pub case: Option<String>,
    /// `--data DIR`, counted from the current directory.
    pub data: Option<PathBuf>,
    /// `--set KEY=VALUE`, in order.
    pub set: Vec<String>,
    /// The environment's variables.
    pub environment: Environment,
}

/// Everything that is configured, each value with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// host.yaml after environment and command line.
    pub site: Site,
    /// The same, key by key.
    pub site_values: Values,
    /// The vendor, when its vendor.yaml could be read.
    pub vendor: Option<Vendor>,
    /// The variable that says which devices a process sees, when site or vendor name one.
    pub visible: Option<VisibleDevices>,
    /// The cases to run; those with errors in their files are left out.
    pub cases: Vec<CaseConfig>,
    /// Errors, warnings and notes; `plan` adds its own and then decides.
    pub findings: Vec<Finding>,
}

/// The checkout around `start`: the nearest folder with `configs/` and `scripts/`.
pub fn find_root(start: &Path) -> Option<PathBuf> {
    start.ancestors().find(|folder| is_checkout(folder)).map(Path::to_owned)
}

fn is_checkout(folder: &Path) -> bool {
    folder.join("configs").is_dir() && folder.join("scripts").is_dir()
}

/// What to do when there is no host.yaml.
const NO_HOST_FILE: &str = "run inside a checkout, or give the folder of host.yaml with --config or FLAGPERF_CONFIG";

/// Reads host.yaml, the vendor and the files of the chosen cases.
///
/// # Errors
/// host.yaml cannot be read, or FLAGPERF_PATH is no checkout. Everything else is in [`Config::findings`].
pub fn load(root: &Path, overrides: &Overrides) -> Result<Config, Findings> {
    let mut findings = Vec::new();
    let path = host_file(root, overrides);
    let host = File::read(&path, root).map_err(|finding| {
        let hint = if path.exists() { finding.hint.clone() } else { NO_HOST_FILE.to_owned() };
        Findings(vec![Finding { hint, ..finding }])
    })?;
    let site_values = site_values(&host, root, overrides, &mut findings);
    let site: Site =
        serde_json::from_value(site_values.iter().map(|(key, v)| (key.clone(), v.value.clone())).collect())
            .expect("every key of host.yaml has a default and was read by its type");
    if !is_checkout(&site.flagperf_path) {
        let path = site.flagperf_path.display().to_string();
        findings.push(Finding::error(site_values["FLAGPERF_PATH"].origin.clone(), ConfigProblem::NoCheckout { path }));
        return Err(Findings(findings));
    }
    let vendor = vendor(&site, &mut findings);
    let chosen = choose(&host, &site.flagperf_path, vendor.as_ref(), overrides, &mut findings);
    let around = Surroundings {
        root: &site.flagperf_path,
        vendor_name: &site.vendor,
        vendor: vendor.as_ref(),
        set: &overrides.set,
    };
    let cases =
        chosen.into_iter().filter_map(|(key, data)| CaseConfig::read(key, data, &around, &mut findings)).collect();
    let visible = VisibleDevices::of(&site, &site_values, vendor.as_ref());
    Ok(Config { site, site_values, vendor, visible, cases, findings })
}

/// The site's host.yaml: `--config`, else `FLAGPERF_CONFIG`, else the checkout's.
fn host_file(root: &Path, overrides: &Overrides) -> PathBuf {
    let folder = overrides.config.as_ref().or(overrides.environment.config.as_ref());
    let path = folder.map_or_else(|| root.join("configs"), Clone::clone);
    if path.is_file() { path } else { path.join("host.yaml") }
}

fn site_values(host: &File, root: &Path, overrides: &Overrides, findings: &mut Vec<Finding>) -> Values {
    let file = read_keys(SITE, host, findings);
    let mut values = effective([defaults(SITE), file, environment(overrides, findings), flags(overrides)]);
    let path = &mut values["FLAGPERF_PATH"].value;
    let checkout = path.as_str().map_or_else(|| root.to_owned(), |given| root.join(given));
    *path = Value::from(checkout.to_string_lossy());
    let log = &mut values["FLAGPERF_LOG_PATH"].value;
    *log = Value::from(checkout.join(log.as_str().unwrap_or_default()).to_string_lossy());
    values
}

fn environment(overrides: &Overrides, findings: &mut Vec<Finding>) -> Values {
    let Environment { log_level, log_call_information, .. } = &overrides.environment;
    let mut values = Values::new();
    for (name, text) in [(env::LOG_LEVEL, log_level), (env::LOG_CALLS, log_call_information)] {
        let Some(text) = text else { continue };
        match typed(name, text) {
            Ok(value) => drop(values.insert(name.to_owned(), Sourced::new(value, Origin::Environment(name)))),
            Err(problem) => findings.push(Finding::error(Origin::Environment(name), problem)),
        }
    }
    values
}

fn typed(name: &str, text: &str) -> Result<Value, ConfigProblem> {
    let key: &Key = SITE.iter().find(|key| key.name == name).expect("the variable is named after a key of host.yaml");
    let node = yaml::parse(text).map_err(|cause| ConfigProblem::Yaml { reason: cause.reason })?;
    key.read(&node)
}

fn flags(overrides: &Overrides) -> Values {
    let vendor = overrides.vendor.iter().map(|vendor| {
        ("VENDOR".to_owned(), Sourced::new(Value::from(vendor.as_str()), Origin::CommandLine("--vendor".to_owned())))
    });
    vendor.collect()
}

/// The vendor's file; a vendor without a folder is found by `plan`, which knows all names.
fn vendor(site: &Site, findings: &mut Vec<Finding>) -> Option<Vendor> {
    if !super::case_key::is_name(&site.vendor) || !site.flagperf_path.join("vendors").join(&site.vendor).is_dir() {
        return None;
    }
    Vendor::read(&site.flagperf_path, &site.vendor).map_err(|finding| findings.push(finding)).ok()
}
