//! Imports FlagPerf's training: which cases and vendors it has, and what becomes of each.
//!
//! A case that exists here gets overlays with a section for each size; any other one becomes a case whose `command` starts
//! FlagPerf's program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::python::{Assignment, PythonFile};
use super::report::{CaseReport, KeyChange, KeyReport};
use super::source::{BENCHMARKS, Entry, SourceTree};
use super::training_own::convert_own_case;
use super::training_program::{convert_program_case, starter};
use super::training_site::{SiteFiles, convert_site};
use super::tree::{Conversion, check_case, check_vendor};
use flagperf_config::{CaseKey, SettingsFile};

/// The framework of which a case with several is the same as the case here that has only the model's name.
const MAIN_FRAMEWORK: &str = "pytorch";
/// The program of a case, which FlagPerf's starters start.
pub(super) const PROGRAM: &str = "run_pretraining.py";
/// How the name of a configuration for one size begins and ends.
const CONFIG_BEGIN: &str = "config_";
const CONFIG_END: &str = ".py";

/// A case of FlagPerf's training, with one framework.
pub(super) struct Benchmark {
    pub(super) model: String,
    pub(super) framework: String,
    /// The name of the case here.
    pub(super) case: String,
    /// Whether the case here has scripts and settings of its own.
    pub(super) is_own: bool,
    /// The values of `_base.py`.
    pub(super) base: PythonFile,
    /// The names that a vendor may change; `None` if FlagPerf has no list.
    pub(super) mutable: Option<Vec<String>>,
    pub(super) vendors: Vec<VendorConfigs>,
}

impl Benchmark {
    /// Returns the folder with the files of a vendor, such as `chip/resnet50-pytorch/config`.
    pub(super) fn vendor_folder(&self, vendor: &str) -> PathBuf {
        Path::new(vendor).join(format!("{}-{}", self.model, self.framework)).join("config")
    }
}

/// The configurations of a vendor for a case.
pub(super) struct VendorConfigs {
    pub(super) vendor: String,
    /// Sorted by the number of hosts and devices.
    pub(super) sizes: Vec<SizeConfig>,
}

/// The configuration for one size: `config_A100x1x8.py`.
pub(super) struct SizeConfig {
    /// `A100x1x8`.
    pub(super) name: String,
    pub(super) hosts: u32,
    /// The devices of each host.
    pub(super) devices: u32,
    pub(super) file: PythonFile,
}

impl SizeConfig {
    /// Returns the number of devices of all hosts.
    pub(super) fn all_devices(&self) -> u64 {
        u64::from(self.hosts) * u64::from(self.devices)
    }
}

impl Conversion<'_> {
    /// Reports a name of a Python file. What several configurations import is reported once.
    pub(super) fn add_assignment(&mut self, name: &str, assignment: &Assignment, change: KeyChange, reason: &str) {
        self.add_line((&assignment.file, assignment.line), name, change, reason);
    }

    pub(super) fn add_line(&mut self, (file, line): (&str, usize), name: &str, change: KeyChange, reason: &str) {
        let (file, line, key) = (file.to_owned(), Some(line).filter(|line| *line > 0), name.to_owned());
        let report = KeyReport { file, line, key, change, to: None, reason: reason.to_owned() };
        if !self.keys.contains(&report) {
            self.keys.push(report);
        }
    }
}

/// Converts the training, and returns the vendors that need the framework for training programs, or have no folder yet.
pub(super) fn convert_training(conversion: &mut Conversion<'_>) -> BTreeSet<String> {
    let Some(source) = conversion.import.source.training() else { return BTreeSet::new() };
    let mut benchmarks = read_benchmarks(source, conversion);
    for Entry { name, .. } in source.entries(Path::new(""), &mut conversion.problems) {
        if is_vendor(source, &name, &benchmarks) {
            read_vendor(source, &name, &mut benchmarks, conversion);
        }
    }
    let site = SiteFiles::read(source, conversion);
    let mut with_program = BTreeSet::new();
    for benchmark in &benchmarks {
        match benchmark.is_own {
            true => convert_own_case(benchmark, conversion),
            false => convert_program_case(benchmark, source, site.vendor(), conversion),
        }
        let vendors = benchmark.vendors.iter().map(|configs| configs.vendor.clone());
        let is_new = |vendor: &String| !conversion.import.checkout.join("vendors").join(vendor).exists();
        with_program.extend(vendors.filter(|vendor| !benchmark.is_own || is_new(vendor)));
        add_case(benchmark, conversion);
    }
    convert_site(&site, source, &benchmarks, conversion);
    with_program
}

/// Reports a case, whose overlays are those of the inference, too, if it has one.
fn add_case(benchmark: &Benchmark, conversion: &mut Conversion<'_>) {
    let vendors: Vec<String> = benchmark.vendors.iter().map(|configs| configs.vendor.clone()).collect();
    match conversion.cases.iter_mut().find(|report| report.case == benchmark.case) {
        Some(report) => {
            report.vendors.extend(vendors);
            report.vendors.sort();
            report.vendors.dedup();
        }
        None => conversion.cases.push(CaseReport { case: benchmark.case.clone(), needs_scripts: false, vendors }),
    }
}

/// Reads the standard cases: each folder of a model with a folder of a framework in it.
fn read_benchmarks(source: &SourceTree, conversion: &mut Conversion<'_>) -> Vec<Benchmark> {
    let mut benchmarks = Vec::new();
    let folders = |below: &Path, conversion: &mut Conversion<'_>| {
        let entries = source.entries(below, &mut conversion.problems);
        entries.into_iter().filter(|entry| entry.is_folder).map(|entry| entry.name).collect::<Vec<_>>()
    };
    for model in folders(Path::new(BENCHMARKS), conversion) {
        let folder = Path::new(BENCHMARKS).join(&model);
        let is_framework = |name: &String| {
            let below = folder.join(name);
            starter(name).is_some() || source.has(&below.join("config")) || source.has(&below.join(PROGRAM))
        };
        let frameworks: Vec<String> = folders(&folder, conversion).into_iter().filter(is_framework).collect();
        let main = frameworks.iter().find(|name| *name == MAIN_FRAMEWORK).or(frameworks.first()).cloned();
        for framework in frameworks {
            let is_main = main.as_ref() == Some(&framework);
            benchmarks.extend(read_benchmark(source, (model.as_str(), framework), is_main, conversion));
        }
    }
    benchmarks
}

fn read_benchmark(
    source: &SourceTree,
    (model, framework): (&str, String),
    is_main: bool,
    conversion: &mut Conversion<'_>,
) -> Option<Benchmark> {
    let folder = Path::new(BENCHMARKS).join(model).join(&framework);
    let own = conversion.import.checkout.join(SettingsFile::TRAINING.path(model));
    let is_own = is_main && own.symlink_metadata().is_ok();
    let unstarted = match (starter(&framework), source.has(&folder.join(PROGRAM))) {
        (None, _) => Some(format!("FlagPerf starts `{framework}` in a way of its own, which no `command` can repeat")),
        (_, false) => Some(format!("it has no {PROGRAM}")),
        _ => None,
    };
    if let (false, Some(reason)) = (is_own, unstarted) {
        conversion.add_line((&source.name(&folder), 0), model, KeyChange::NoEquivalent, &reason);
        return None;
    }
    let case = if is_own { model.to_owned() } else { format!("{model}_{framework}").replace('.', "_") };
    if let Err(reason) = check_case(&case) {
        conversion.problems.push(source.finding(&folder, 0, &reason, "rename it in the source"));
        return None;
    }
    let mut read = |name: &str| match source.has(&folder.join("config").join(name)) {
        true => PythonFile::read(source, &folder.join("config").join(name), &mut conversion.problems),
        false => None,
    };
    let base = read("_base.py").unwrap_or_default();
    let mutable = read("mutable_params.py").and_then(|file| file.texts("mutable_params"));
    Some(Benchmark { model: model.to_owned(), framework, case, is_own, base, mutable, vendors: Vec::new() })
}

/// Returns whether a folder of the training is that of a vendor.
fn is_vendor(source: &SourceTree, name: &str, benchmarks: &[Benchmark]) -> bool {
    let folder = Path::new(name);
    let has_case = |benchmark: &Benchmark| source.has(&benchmark.vendor_folder(name));
    name != BENCHMARKS && (source.has(&folder.join("docker_image")) || benchmarks.iter().any(has_case))
}

/// Reads the configurations of a vendor.
fn read_vendor(source: &SourceTree, vendor: &str, benchmarks: &mut [Benchmark], conversion: &mut Conversion<'_>) {
    if let Err(reason) = check_vendor(vendor) {
        let finding = source.finding(Path::new(vendor), 0, &reason, "rename it in the source");
        return conversion.problems.push(finding);
    }
    for entry in source.entries(Path::new(vendor), &mut conversion.problems) {
        let folder = Path::new(vendor).join(&entry.name);
        let config = folder.join("config");
        let is_of = |benchmark: &&mut Benchmark| benchmark.vendor_folder(vendor) == config;
        match benchmarks.iter_mut().find(is_of) {
            Some(benchmark) => {
                let sizes = read_sizes(source, &config, conversion);
                if !sizes.is_empty() {
                    benchmark.vendors.push(VendorConfigs { vendor: vendor.to_owned(), sizes });
                }
            }
            None => {
                let reason = match (entry.name.as_str(), source.has(&config)) {
                    ("docker_image", _) => {
                        "the images of trainings are not imported: copy a recipe to the folder of the vendor in docker_images"
                    }
                    (_, true) => "FlagPerf has no case of this name that can be imported",
                    _ => continue,
                };
                conversion.add_line((&source.name(&folder), 0), &entry.name, KeyChange::NoEquivalent, reason);
            }
        }
    }
}

/// Reads the configurations in a folder, and reports the files that are no configuration.
fn read_sizes(source: &SourceTree, folder: &Path, conversion: &mut Conversion<'_>) -> Vec<SizeConfig> {
    let mut sizes = Vec::new();
    for Entry { name, is_folder } in source.entries(folder, &mut conversion.problems) {
        let path = folder.join(&name);
        let size = name.strip_prefix(CONFIG_BEGIN).and_then(|rest| rest.strip_suffix(CONFIG_END));
        let key = size.and_then(parse_size).filter(|_| !is_folder);
        let reason = match (&key, size, name.as_str()) {
            (Some((size, hosts, devices)), ..) => {
                if let Some(file) = PythonFile::read(source, &path, &mut conversion.problems) {
                    sizes.push(SizeConfig { name: size.clone(), hosts: *hosts, devices: *devices, file });
                }
                continue;
            }
            // Another configuration may import it.
            (None, Some(_), _) if name.ends_with("common.py") => continue,
            (_, _, "requirements.txt") => "install the packages in the image or the environment in which the case runs",
            (_, _, "environment_variables.sh") => {
                "a case has no variables for each vendor: those for every case belong to the folder of the vendor in vendors"
            }
            _ if name.starts_with(CONFIG_BEGIN) => "FlagPerf does not read this file: its name is that of no size",
            _ => "FlagPerf's program reads this file itself",
        };
        conversion.add_line((&source.name(&path), 0), &name, KeyChange::NoEquivalent, reason);
    }
    sizes.sort_by(|one, other| (one.hosts, one.devices, &one.name).cmp(&(other.hosts, other.devices, &other.name)));
    sizes
}

/// Reads a size such as `A100x1x8`: its name here, the hosts, and the devices of each.
fn parse_size(size: &str) -> Option<(String, u32, u32)> {
    let (rest, devices) = size.rsplit_once('x')?;
    let (hardware, hosts) = rest.rsplit_once('x')?;
    let key: CaseKey = format!("a:b:{hardware}:{hosts}:{devices}:1").parse().ok()?;
    Some((format!("{hardware}x{}", key.scale), key.scale.hosts, key.scale.devices))
}
