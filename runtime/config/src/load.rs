//! Loads the whole configuration from the files, the environment and the command line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flagperf_core::process_group::ProcessGroup;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::case::{CaseConfig, CaseContext};
use super::choice::choose_cases;
use super::env::{self, Environment};
use super::file::{ConfigFile, display_name};
use super::key::{ConfigKey, defaults, read_keys};
use super::yaml;
use super::{
    CaseKey, Finding, Findings, LauncherChoice, Origin, SITE, Site, Sourced, Values, Vendor, VisibleDevices,
    merge_layers,
};

/// The values from the command line and the environment, which override those of host.yaml and of the cases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrides {
    /// `--config DIR`: the folder of the site's host.yaml, or the file itself.
    pub config: Option<PathBuf>,
    /// `--vendor V`.
    pub vendor: Option<String>,
    /// `--case NAME[:FRAMEWORK]`, in order; empty selects every case of host.yaml.
    pub cases: Vec<String>,
    /// `--data DIR`, relative to the current directory.
    pub data: Option<PathBuf>,
    /// `--set KEY=VALUE`, in order.
    pub set: Vec<String>,
    /// The environment variables, which another process has of its own.
    #[serde(skip)]
    pub environment: Environment,
    /// Whether the files are copies of those of a checkout, so that `FLAGPERF_PATH` of host.yaml leads to another place.
    #[serde(skip)]
    pub is_copy: bool,
    /// The host and device for which an agent runs a case; `None` in the process that the user started.
    pub replica: Option<Replica>,
    /// The group of which the replica is a process; `None` unless several devices train together.
    #[serde(default)]
    pub process_group: Option<ProcessGroup>,
    /// Name of host.yaml in messages and records, if this process reads a copy of a file of another machine.
    #[serde(default)]
    pub host_file_name: Option<String>,
}

impl Overrides {
    /// Returns the same values for another process, which may have another current directory: with absolute paths.
    pub fn absolute(&self) -> Self {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        Overrides { config: self.config.as_ref().map(absolute), data: self.data.as_ref().map(absolute), ..self.clone() }
    }

    /// Returns the values of the command line as arguments for another process.
    pub fn arguments(&self) -> Vec<String> {
        let own = self.absolute();
        let pair = |name: &str, value: String| [name.to_owned(), value];
        let path = |name: &str, path: Option<PathBuf>| path.map(|path| pair(name, path.display().to_string()));
        let config = path("--config", own.config).into_iter().flatten();
        let vendor = own.vendor.into_iter().flat_map(|vendor| pair("--vendor", vendor));
        let cases = own.cases.into_iter().flat_map(|case| pair("--case", case));
        let data = path("--data", own.data).into_iter().flatten();
        let set = own.set.into_iter().flat_map(|set| pair("--set", set));
        let name = own.host_file_name.into_iter().flat_map(|name| pair("--host-file-name", name));
        config.chain(vendor).chain(cases).chain(data).chain(set).chain(name).collect()
    }
}

/// A case on one device of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Replica {
    /// Name of the host in `HOSTS`.
    pub host: String,
    /// Index of the host among those of the case, from 0.
    pub node_rank: u32,
    /// Index of the device among those that are visible on the host, from 0; `None` when the case runs on one device of
    /// each host.
    pub device: Option<u32>,
}

impl Replica {
    /// Returns the name of the replica's folder in that of the case: `localhost_noderank0`, `node3_noderank1_device7`.
    pub fn folder(&self) -> String {
        let device = self.device.map(|device| format!("_device{device}")).unwrap_or_default();
        format!("{}_noderank{}{device}", self.host, self.node_rank)
    }
}

/// The host.yaml from which a configuration was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// Name in messages and records: the path on the machine on which the run was started, relative to the checkout if the
    /// file lies in it.
    pub name: Arc<str>,
    /// Path of the file, or of its copy on this machine.
    pub path: PathBuf,
}

/// The whole configuration, each value with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The host.yaml that was read.
    pub host_file: HostFile,
    /// The values of host.yaml after environment and command line.
    pub site: Site,
    /// The same values by key.
    pub site_values: Values,
    /// The vendor; `None` when its vendor.yaml could not be read.
    pub vendor: Option<Vendor>,
    /// The variable that selects the devices visible to a process, when the site or the vendor names one.
    pub visible: Option<VisibleDevices>,
    /// The host and device for which an agent runs the cases.
    pub replica: Option<Replica>,
    /// The group of which that replica is a process.
    pub process_group: Option<ProcessGroup>,
    /// Whether the hosts are known: `HOSTS` has not been refused, so that its default took its place.
    pub knows_hosts: bool,
    /// Whether Slurm names the hosts, those of the job in which this process runs or which is to be submitted.
    pub in_job: bool,
    /// The cases to run, without those whose files have errors; none when the vendor could not be read.
    pub cases: Vec<CaseConfig>,
    /// Errors, warnings and notes. `plan` adds its own findings before it fails on errors.
    pub findings: Vec<Finding>,
}

impl Config {
    /// Returns the configuration of one of the cases alone, with the findings that concern it; of none of the cases, with
    /// the findings about the site and the vendor, for `None`.
    pub fn only(&self, case: Option<&CaseKey>) -> Config {
        let concerns = |finding: &&Finding| case.map_or(finding.cases.is_empty(), |case| finding.concerns(case));
        Config {
            cases: self.cases.iter().filter(|own| Some(&own.key.value) == case).cloned().collect(),
            findings: self.findings.iter().filter(concerns).cloned().collect(),
            ..self.clone()
        }
    }
}

/// Returns the checkout that contains `start`: the nearest folder with `configs/` and `scripts/`.
pub fn find_root(start: &Path) -> Option<PathBuf> {
    start.ancestors().find(|folder| is_checkout(folder)).map(Path::to_owned)
}

fn is_checkout(folder: &Path) -> bool {
    folder.join("configs").is_dir() && folder.join("scripts").is_dir()
}

/// Hint for a missing host.yaml.
const NO_HOST_FILE: &str = "run inside a checkout, or give the folder of host.yaml with --config or FLAGPERF_CONFIG";

/// Reads host.yaml, the vendor's file and the files of the chosen cases.
///
/// # Errors
/// Fails when host.yaml cannot be read or FLAGPERF_PATH is not a checkout. All other mistakes are in
/// [`Config::findings`].
pub fn load(root: &Path, overrides: &Overrides) -> Result<Config, Findings> {
    load_with(root, overrides, read_vendor)
}

/// Reads host.yaml and the files of the chosen cases for the vendor that [`Vendor::stand_in`] creates: the cases have
/// their standard values.
///
/// # Errors
/// The same as for [`load`].
pub fn load_without_vendor(root: &Path, overrides: &Overrides) -> Result<Config, Findings> {
    let overrides = Overrides { vendor: Some(Vendor::STAND_IN.to_owned()), ..overrides.clone() };
    load_with(root, &overrides, |_, _| Some(Vendor::stand_in()))
}

fn load_with(
    root: &Path,
    overrides: &Overrides,
    read_vendor: impl Fn(&Site, &mut Vec<Finding>) -> Option<Vendor>,
) -> Result<Config, Findings> {
    let mut findings = Vec::new();
    let host_file = host_file(root, overrides);
    let host = ConfigFile::read_as(&host_file.path, host_file.name.clone()).map_err(|finding| {
        let hint = if host_file.path.exists() { finding.hint.clone() } else { NO_HOST_FILE.to_owned() };
        Findings(vec![finding.with_hint(hint)])
    })?;
    let site_values = site_values(&host, root, overrides, &mut findings);
    let site: Site =
        serde_json::from_value(site_values.iter().map(|(key, v)| (key.clone(), v.value.clone())).collect())
            .expect("every key of host.yaml has a default and was read by its type");
    if !is_checkout(&site.flagperf_path) {
        let path = site.flagperf_path.display();
        let message = format!("`{path}` is not a flagperf checkout: configs/ or scripts/ is missing");
        findings.push(Finding::error(site_values["FLAGPERF_PATH"].origin.clone(), message));
        return Err(Findings(findings));
    }
    let vendor = read_vendor(&site, &mut findings);
    let chosen = choose_cases(&host, &site.flagperf_path, vendor.as_ref(), overrides, &mut findings);
    let context = CaseContext {
        root: &site.flagperf_path,
        vendor_name: &site.vendor,
        vendor: vendor.as_ref(),
        set: &overrides.set,
        cases: host.entries.get("CASES").map_or_else(|| host.top(), |cases| host.origin(cases)),
    };
    // Without the vendor, the keys of its engines would count as unknown.
    let chosen = chosen.into_iter().filter(|_| vendor.is_some());
    let cases = chosen.filter_map(|(key, data)| CaseConfig::read(key, data, &context, &mut findings)).collect();
    let device = overrides.replica.as_ref().and_then(|replica| replica.device);
    let in_job = site.launcher == LauncherChoice::Slurm
        || site.launcher == LauncherChoice::Auto && overrides.environment.slurm_nodes.is_some();
    let knows_hosts = site_values["HOSTS"].origin != Origin::Default || !host.entries.contains_key("HOSTS");
    let visible = VisibleDevices::resolve(&site, &site_values, vendor.as_ref(), device);
    let (replica, process_group) = (overrides.replica.clone(), overrides.process_group.clone());
    Ok(Config {
        host_file,
        site,
        site_values,
        vendor,
        visible,
        replica,
        process_group,
        knows_hosts,
        in_job,
        cases,
        findings,
    })
}

/// Returns the site's host.yaml: from `--config`, or else `FLAGPERF_CONFIG`, or else the checkout's.
fn host_file(root: &Path, overrides: &Overrides) -> HostFile {
    let folder = overrides.config.as_ref().or(overrides.environment.config.as_ref());
    let path = folder.map_or_else(|| root.join("configs"), Clone::clone);
    let path = if path.is_file() { path } else { path.join("host.yaml") };
    let name = overrides.host_file_name.as_deref().map_or_else(|| display_name(&path, root), Arc::from);
    HostFile { name, path }
}

fn site_values(host: &ConfigFile, root: &Path, overrides: &Overrides, findings: &mut Vec<Finding>) -> Values {
    let file = read_keys(SITE, host, findings);
    let mut values =
        merge_layers([defaults(SITE), file, environment_values(overrides, findings), command_line_values(overrides)]);
    let path = &mut values["FLAGPERF_PATH"].value;
    let given = path.as_str().filter(|_| !overrides.is_copy);
    let checkout = given.map_or_else(|| root.to_owned(), |given| root.join(given));
    *path = Value::from(checkout.to_string_lossy());
    let Sourced { value: log, origin } = &mut values["FLAGPERF_LOG_PATH"];
    let results = checkout.join(log.as_str().unwrap_or_default());
    if log.as_str() == Some("") || results.exists() && !results.is_dir() {
        let path = log.as_str().unwrap_or_default();
        let message = format!("`FLAGPERF_LOG_PATH` must be the folder for results, not `{path}`");
        findings.push(Finding::error(origin.clone(), message));
    }
    *log = Value::from(results.to_string_lossy());
    values
}

fn environment_values(overrides: &Overrides, findings: &mut Vec<Finding>) -> Values {
    let Environment { log_level, log_call_information, .. } = &overrides.environment;
    let mut values = Values::new();
    for (name, text) in [(env::LOG_LEVEL, log_level), (env::LOG_CALLS, log_call_information)] {
        let Some(text) = text else { continue };
        match parse_variable(name, text) {
            Ok(value) => drop(values.insert(name.to_owned(), Sourced::new(value, Origin::Environment(name)))),
            Err(refused) => findings.push(refused.at(Origin::Environment(name))),
        }
    }
    values
}

fn parse_variable(name: &str, text: &str) -> Result<Value, Finding> {
    let key: &ConfigKey =
        SITE.iter().find(|key| key.name == name).expect("the variable has the name of a key of host.yaml");
    let node = yaml::parse(text).map_err(|cause| Finding::unplaced(cause.reason))?;
    key.read(&node)
}

fn command_line_values(overrides: &Overrides) -> Values {
    let vendor = overrides.vendor.iter().map(|vendor| {
        ("VENDOR".to_owned(), Sourced::new(Value::from(vendor.as_str()), Origin::CommandLine("--vendor".to_owned())))
    });
    vendor.collect()
}

/// Reads the vendor's file. A vendor without a folder is reported by `plan`, which knows the names of all vendors.
fn read_vendor(site: &Site, findings: &mut Vec<Finding>) -> Option<Vendor> {
    if !super::case_key::is_name(&site.vendor) || !site.flagperf_path.join("vendors").join(&site.vendor).is_dir() {
        return None;
    }
    Vendor::read(&site.flagperf_path, &site.vendor).map_err(|finding| findings.push(finding)).ok()
}
