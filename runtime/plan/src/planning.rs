//! Turns a configuration and a catalogue into a plan, or reports all mistakes at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::catalogue::{folder_for_batches, missing_file};
use super::checks::{check_result_folders, check_site, note_unused_keys};
use super::class_keys::unset_class_keys;
use super::container::{CaseContainer, Preparation, container_options, find_recipe};
use super::decoder::choose_decoder;
use super::engines::{choose_engine, warn_of_unused_options};
use super::route::{Export, InferenceSource, route};
use super::training::fixed_settings;
use super::{AuditScope, CaseSettings, Catalogue, EngineChoice, FoundModel, Job, Manifest, ModelInput, Task};
use flagperf_config::env;
use flagperf_config::{
    CaseConfig, CaseKey, Config, Container, EngineEntry, Finding, Findings, HostFile, Origin, Parameters, Replica,
    Site, Sourced, Vendor, VisibleDevices, default_data_folder, did_you_mean, list_names, nearest, parse_flops,
};
use flagperf_core::description::Delivery;
use flagperf_core::hash::Seed;
use flagperf_core::limits::Limits;
use flagperf_core::precision::Precision;
use flagperf_core::step::Phase;

/// The variables by which Gloo and NCCL learn the network card to use.
pub const INTERFACE_VARIABLES: [&str; 2] = ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"];

/// All findings, at least one of them an error.
pub type PlanErrors = Findings;

/// The plan of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The host.yaml of the site.
    pub host_file: HostFile,
    /// The site settings.
    pub site: Site,
    /// The vendor whose device is measured.
    pub vendor: Vendor,
    /// The cases, in order.
    pub cases: Vec<CasePlan>,
    /// Warnings and notes.
    pub findings: Vec<Finding>,
}

/// The plan of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct CasePlan {
    /// The case and its framework.
    pub key: CaseKey,
    /// The machine that runs it.
    pub host: String,
    /// Index of the device on its host when the case runs on several devices of each host and this is one part of it.
    pub device: Option<u32>,
    /// The case's folder in a run: `resnet50_interpreter/localhost_noderank0`.
    pub folder: PathBuf,
    /// The case's settings.
    pub settings: CaseSettings,
    /// The container of its workers; `None` for workers that run directly on the machine.
    pub container: Option<CaseContainer>,
    /// Files that prepare its workers.
    pub preparation: Preparation,
    /// Keys that `--set` changed, with their values: departures from the standard configuration.
    pub departures: Vec<(String, Value)>,
    /// One job per phase, in order. Paths in the run's folder are relative: see [`CasePlan::jobs_in`].
    pub jobs: Vec<Job>,
}

impl CasePlan {
    /// Returns the jobs for a run in the folder `run`, an absolute path.
    pub fn jobs_in(&self, run: &Path) -> Vec<Job> {
        let placed = |job: &Job| Job {
            log_dir: run.join(&job.log_dir),
            outputs: job.outputs.as_ref().map(|path| run.join(path)),
            task: job.task.clone().in_run_folder(run),
            ..job.clone()
        };
        self.jobs.iter().map(placed).collect()
    }
}

/// Plans the cases of a configuration.
///
/// # Errors
/// Fails with every mistake in the configuration and every conflict with the catalogue, all at once.
pub fn plan(config: &Config, catalogue: &Catalogue) -> Result<Plan, PlanErrors> {
    let mut findings = config.findings.clone();
    check_site(config, catalogue, &mut findings);
    let mut cases = Vec::new();
    for case in &config.cases {
        let mut own = Vec::new();
        cases.extend(Planner { config, catalogue, case, findings: &mut own }.plan_case());
        Finding::assign(&mut own, &case.key.value);
        findings.extend(own);
    }
    check_result_folders(config, &cases, &mut findings);
    note_unused_keys(config, &mut findings);
    let findings = Findings(Finding::merge(findings));
    match &config.vendor {
        Some(vendor) if !findings.has_errors() => {
            let (host_file, site, vendor) = (config.host_file.clone(), config.site.clone(), vendor.clone());
            Ok(Plan { host_file, site, vendor, cases, findings: findings.0 })
        }
        _ => Err(findings),
    }
}

/// Plans one case.
pub(super) struct Planner<'p> {
    pub(super) config: &'p Config,
    pub(super) catalogue: &'p Catalogue,
    pub(super) case: &'p CaseConfig,
    pub(super) findings: &'p mut Vec<Finding>,
}

impl Planner<'_> {
    /// Plans the case; mistakes are added to the findings.
    fn plan_case(&mut self) -> Option<CasePlan> {
        let settings = self.settings();
        let data_dir = &self.case.data_dir;
        // A case that reads no file needs no folder of its own; the check of its scripts knows.
        if data_dir.value != default_data_folder(self.root(), &self.case.key.value.case) {
            self.check_data_directory(data_dir);
        }
        let (jobs, all_engines_chosen) = match &self.case.key.value.training {
            Some(training) => self.plan_training(training, &settings),
            None => self.plan_inference(&settings)?,
        };
        // Without all engines it is unknown which options are used.
        if let Some(vendor) = self.config.vendor.as_ref().filter(|_| all_engines_chosen) {
            self.findings.extend(warn_of_unused_options(vendor, self.case, &jobs, self.catalogue));
        }
        Some(CasePlan {
            key: self.case.key.value.clone(),
            host: self.replica().host,
            device: self.replica().device,
            folder: self.folder(),
            departures: self.departures(),
            container: self.container(),
            preparation: self.preparation(),
            settings,
            jobs,
        })
    }

    /// Plans validation and inference; returns the jobs, and whether none lacks its engine.
    fn plan_inference(&mut self, settings: &CaseSettings) -> Option<(Vec<Job>, bool)> {
        let route = match route(&self.routing_settings(settings)) {
            Ok(route) => route,
            Err(finding) => {
                self.add_error("no_validation", finding);
                return None;
            }
        };
        for key in route.ignored {
            let message = format!("`{key}` is ignored: `compiler` is null");
            self.findings.push(Finding::warning(self.origin(key), message));
        }
        self.check_scenario(settings, route.infer.is_some());
        self.check_scripts(&["dataloader.rhai", "model.rhai"][..1 + usize::from(route.validate.is_some())]);
        self.check_shared_scripts();
        if settings.precision == Precision::Tf32 && settings.compiler.is_none() {
            let message = "`precision: tf32` needs a compiler, but `compiler` is null; validation always runs in fp32";
            let hint = "set `precision: fp32`, or name a compiler";
            self.add_error("precision", Finding::unplaced(message).with_hint(hint));
        }
        let onnx = self.onnx_path(settings);
        let has_both_phases = route.validate.is_some() && route.infer.is_some();
        let mut jobs = Vec::new();
        if let Some(export) = route.validate {
            let task = Task::Validate { export: (export == Export::Written).then(|| onnx.clone()) };
            jobs.extend(self.plan_job(Phase::Validate, task, settings, has_both_phases));
        }
        if let Some(source) = route.infer.clone() {
            let task = Task::Infer { model: self.model_input(source, &onnx) };
            jobs.extend(self.plan_job(Phase::Infer, task, settings, has_both_phases));
        }
        let planned = usize::from(route.validate.is_some()) + usize::from(route.infer.is_some());
        let all_engines_chosen = jobs.len() == planned;
        Some((jobs, all_engines_chosen))
    }

    fn preparation(&self) -> Preparation {
        Preparation::of(&self.config.site, &self.case.key.value, self.catalogue)
    }

    /// Returns the container of the case; a missing recipe is added to the findings.
    fn container(&mut self) -> Option<CaseContainer> {
        let site = &self.config.site;
        if site.container != Container::Docker {
            return None;
        }
        let recipe = find_recipe(&site.vendor, &self.case.key.value.framework, self.catalogue);
        let recipe = recipe.map_err(|missing| self.findings.push(missing.at(self.case.key.origin.clone())));
        // Invalid options have been reported.
        let options = container_options(self.config, self.catalogue).unwrap_or_default();
        Some(CaseContainer { recipe: self.root().join("docker_images").join(recipe.ok()?), options })
    }

    fn departures(&self) -> Vec<(String, Value)> {
        let set = self.case.values().filter(|(key, _)| self.case.departures.contains(key));
        set.map(|(key, value)| (key.clone(), value.value.clone())).collect()
    }

    /// Returns the values of the keys of the case's file of settings.
    pub(super) fn setting_values(&self) -> serde_json::Map<String, Value> {
        self.case.settings.iter().map(|(key, value)| (key.clone(), value.value.clone())).collect()
    }

    fn settings(&self) -> CaseSettings {
        let mut values = self.setting_values();
        values.extend(self.case.key.value.training.iter().flat_map(fixed_settings));
        for key in ["exist_onnx_path", "exist_compiler_path"] {
            let path = values[key].as_str().map(|path| self.root().join(path).to_string_lossy().into_owned());
            values.insert(key.to_owned(), path.into());
        }
        // A training may declare no operations.
        let expression = values["flops"].as_str().unwrap_or_default().to_owned();
        let product = match expression.as_str() {
            "" => 0.0,
            expression => parse_flops(expression).expect("the expression was checked when the file was read"),
        };
        values.insert("flops".to_owned(), expression.into());
        values.insert("flops_per_sample".to_owned(), product.into());
        serde_json::from_value(values.into()).expect("every key of the file was read by its type")
    }

    /// Returns the settings that determine the route. A sidecar that opens no ONNX file gets the exported graph as a
    /// module. So unless validation is off, a placeholder path must not suppress the export.
    fn routing_settings(&self, settings: &CaseSettings) -> CaseSettings {
        let entry = self.compiler_entry();
        let is_sidecar = entry
            .and_then(|entry| self.catalogue.engine(&entry.engine))
            .is_some_and(|engine| engine.delivery == Delivery::Command);
        let is_placeholder = is_sidecar && !self.opens_onnx() && settings.exist_compiler_path.is_none();
        let exist_onnx_path = settings.exist_onnx_path.clone().filter(|_| settings.no_validation || !is_placeholder);
        CaseSettings { exist_onnx_path, ..settings.clone() }
    }

    pub(super) fn plan_job(
        &mut self,
        phase: Phase,
        task: Task,
        settings: &CaseSettings,
        has_both_phases: bool,
    ) -> Option<Job> {
        let vendor = self.config.vendor.as_ref()?;
        let chosen = choose_engine(phase, vendor, self.case, settings, self.catalogue, &self.preparation());
        let (role, engine, config_reads) = chosen.map_err(|finding| self.findings.push(finding)).ok()?;
        let task = task.with_role(role);
        let decoder = choose_decoder(vendor, settings, &engine, self.catalogue);
        let decoder = decoder.map_err(|finding| self.add_error("decoder", finding)).ok()?;
        let job = Job { decoder, ..self.make_job(task, engine, settings, has_both_phases) };
        self.findings.extend(unset_class_keys(&job, &config_reads));
        Some(job)
    }

    fn model_input(&mut self, source: InferenceSource, exported: &Path) -> ModelInput {
        match source {
            InferenceSource::Exported => ModelInput::Exported(Manifest::path_beside(exported)),
            InferenceSource::Existing(ModelInput::Onnx(path)) if !self.opens_onnx() => ModelInput::Placeholder(path),
            InferenceSource::Existing(ModelInput::Onnx(path)) => {
                ModelInput::Onnx(self.find_existing_model("ONNX file", path, "exist_onnx_path"))
            }
            InferenceSource::Existing(ModelInput::Compiled(path)) => {
                ModelInput::Compiled(self.find_existing_model("compiled model", path, "exist_compiler_path"))
            }
            InferenceSource::Existing(model) => model,
        }
    }

    /// Returns the file or manifest to which the setting `key` refers; what is wrong with it is added to the findings.
    fn find_existing_model(&mut self, what: &'static str, path: PathBuf, key: &str) -> PathBuf {
        match (self.catalogue.find_model)(&path) {
            FoundModel::At(found) => return found,
            FoundModel::Missing => {
                let hint =
                    "for a model of several graphs, name its manifest `<name>.graphs.json` (see configs/README.md)";
                self.add_error(key, missing_file(what, &path).with_hint(hint));
            }
            FoundModel::Unusable(reason) => self.add_error(key, Finding::unplaced(reason).on_machine()),
        }
        path
    }

    /// Returns the compiler's entry in vendor.yaml.
    pub(super) fn compiler_entry(&self) -> Option<&EngineEntry> {
        let name = self.case.settings["compiler"].value.as_str()?;
        self.config.vendor.as_ref()?.compilers.get(name)
    }

    fn opens_onnx(&self) -> bool {
        self.compiler_entry().is_none_or(|entry| entry.opens_onnx)
    }

    fn make_job(&self, task: Task, engine: EngineChoice, settings: &CaseSettings, has_both_phases: bool) -> Job {
        let key = &self.case.key.value;
        let site = &self.config.site;
        let mut config: indexmap::IndexMap<String, Value> =
            self.case.values().map(|(key, value)| (key.clone(), value.value.clone())).collect();
        for (name, value) in [("vendor", &site.vendor), ("case", &key.case), ("framework", &key.framework)] {
            config.insert(name.to_owned(), Value::from(value.as_str()));
        }
        let mut parameters = Parameters::from_values(&self.case.parameters);
        // Where nothing is drawn, a script has a number.
        config.insert("seed".to_owned(), parameters.seed.unwrap_or_default().into());
        if let Task::Train { training, .. } = &task {
            // The metrics of a training are judged by its own target.
            parameters.target_accuracy.clone_from(&training.target);
        }
        Job {
            case: key.case.clone(),
            vendor: site.vendor.clone(),
            monitor: self.config.vendor.as_ref().and_then(|vendor| vendor.monitor.clone()),
            task,
            scripts: self.root().join("scripts").join(&key.case),
            data_dir: folder_for_batches(&self.case.data_dir.value, settings.batch_size),
            log_dir: self.folder(),
            settings: settings.clone(),
            config,
            parameters,
            engine,
            decoder: None,
            outputs: has_both_phases.then(|| self.folder().join("outputs.safetensors")),
            outputs_sha256: None,
            run_seed: Seed::default(),
            process_group: self.config.process_group.clone(),
            checkpoints: indexmap::IndexMap::new(),
            audit: AuditScope::default(),
            waits: false,
            has_live_display: false,
            environment: self.worker_environment(),
            limits: Limits {
                worker_memory_bytes: site.worker_memory.unwrap_or_default(),
                protected: site.worker_protection,
                phase_time_s: site.phase_timeout,
                ..Limits::default()
            },
        }
    }

    /// Returns the variables that a worker has beside those that it inherits.
    fn worker_environment(&self) -> indexmap::IndexMap<String, String> {
        let visible = self.config.visible.iter().filter_map(VisibleDevices::worker_variable);
        let level = self.config.site.flagperf_log_level.clone();
        let interface = self.config.process_group.as_ref().and_then(|group| group.interface.clone());
        let cards =
            interface.into_iter().flat_map(|card| INTERFACE_VARIABLES.map(|name| (name.to_owned(), card.clone())));
        visible.chain([(env::LOG_LEVEL.to_owned(), level)]).chain(cards).collect()
    }

    /// Returns the names of the scripts of the case.
    fn scripts(&self) -> BTreeSet<String> {
        let folder = self.catalogue.cases.get(&self.case.key.value.case);
        folder.map(|folder| folder.scripts.clone()).unwrap_or_default()
    }

    /// Checks that the case has these scripts.
    pub(super) fn check_scripts(&mut self, needed: &[&str]) {
        let (case, scripts) = (self.case.key.value.case.clone(), self.scripts());
        for script in needed.iter().filter(|script| !scripts.contains(**script)) {
            let message = format!("case `{case}` has no scripts/{case}/{script}");
            self.findings.push(Finding::error(self.case.settings_file(), message));
        }
    }

    /// Checks the scripts that a case may share.
    pub(super) fn check_shared_scripts(&mut self) {
        let scripts = self.scripts();
        // Without any script, the folder is not that of a case.
        let served = [("forward", "forward.rhai"), ("evaluator", "evaluator.rhai")];
        for (key, script) in served.into_iter().filter(|_| !scripts.is_empty()) {
            self.findings.extend(self.check_shared_script(key, script, scripts.contains(script)).err());
        }
    }

    /// Checks that exactly one script serves a stage: the case's own, or the shared one that the parameter `key` names.
    fn check_shared_script(&self, key: &str, script: &str, has_own: bool) -> Result<(), Finding> {
        // A value that is no name has been reported.
        let Some(Sourced { value, origin }) = self.case.parameters.get(key) else { return Ok(()) };
        let case = &self.case.key.value.case;
        match value.as_str() {
            Some(_) if has_own => {
                let message =
                    format!("`{key}` names a shared script, but case `{case}` has scripts/{case}/{script}, too");
                Err(Finding::error(origin.clone(), message).with_hint(format!("delete the line or {script}")))
            }
            Some(name) if self.catalogue.shared_scripts.contains(name) => Ok(()),
            Some(name) => {
                let known = || self.catalogue.shared_scripts.iter().map(String::as_str);
                let message = format!("unknown shared script `{name}` (known: {})", list_names(known()));
                let hint = did_you_mean(nearest(name, known()), "a shared script is a file in scripts/lib/");
                Err(Finding::error(origin.clone(), message).with_hint(hint))
            }
            None if has_own => Ok(()),
            None => {
                let message = format!(
                    "case `{case}` has neither scripts/{case}/{script} nor `{key}: lib/NAME` in its parameters.yaml"
                );
                let hint = format!("write {script}, or name the shared script in scripts/lib that serves the case");
                Err(Finding::error(self.case.parameters_file(), message).with_hint(hint))
            }
        }
    }

    fn check_data_directory(&mut self, folder: &Sourced<PathBuf>) {
        if !(self.catalogue.exists)(&folder.value) {
            let missing = missing_file("data directory", &folder.value).at(folder.origin.clone());
            self.findings.push(missing.with_hint("give --data an existing folder, or change `CASES`"));
        }
    }

    /// Returns the path of the exported file, with FlagPerf's file name if FlagPerf has the precision, in the case's folder of the run.
    fn onnx_path(&self, settings: &CaseSettings) -> PathBuf {
        let CaseKey { case, framework, .. } = &self.case.key.value;
        let precision = match settings.precision {
            Precision::Fp16 => "fp16True",
            Precision::Fp32 | Precision::Tf32 => "fp16False",
            Precision::Bf16 => "bf16",
        };
        self.folder().join(format!("{case}_bs{}_{framework}_{precision}.onnx", settings.batch_size))
    }

    fn folder(&self) -> PathBuf {
        Path::new(&self.case.key.value.folder()).join(self.replica().folder())
    }

    /// Returns the part of the case that is planned: an agent's own, or else one device of the first host.
    fn replica(&self) -> Replica {
        let first = || Replica { host: self.config.site.hosts[0].clone(), ..Replica::default() };
        self.config.replica.clone().unwrap_or_else(first)
    }

    fn root(&self) -> &Path {
        &self.config.site.flagperf_path
    }

    pub(super) fn origin(&self, key: &str) -> Origin {
        self.case.settings.get(key).map_or(Origin::Default, |value: &Sourced<Value>| value.origin.clone())
    }

    pub(super) fn add_error(&mut self, key: &str, finding: Finding) {
        self.findings.push(finding.at(self.origin(key)));
    }
}
