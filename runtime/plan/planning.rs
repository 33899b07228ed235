//! Config and catalogue made into a plan, with everything that is wrong found at once.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::checks::{check_folders, check_site, note_unused, without_repetition};
use super::engines::{Role, choose_engine, unused_options};
use super::route::{Export, Source, route};
use super::{Catalogue, EngineChoice, FoundModel, Job, Limits, Manifest, ModelInput, PlanProblem, Settings};
use crate::config::{
    CaseConfig, CaseKey, Config, EngineEntry, Finding, Findings, Origin, Parameters, Site, Sourced, Vendor, flops,
};
use crate::step::Phase;

/// Everything found, at least one of it an error.
pub type PlanErrors = Findings;

/// What will be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Where and how the site runs.
    pub site: Site,
    /// Whose device is measured.
    pub vendor: Vendor,
    /// The cases, in order.
    pub cases: Vec<CasePlan>,
    /// Warnings and notes.
    pub findings: Vec<Finding>,
}

/// What will be done for one case.
#[derive(Clone, Debug, PartialEq)]
pub struct CasePlan {
    /// Which case with which framework.
    pub key: CaseKey,
    /// The machine that runs it.
    pub host: String,
    /// Its folder in a run: `resnet50_candle/localhost_noderank0`.
    pub folder: PathBuf,
    /// Its settings.
    pub settings: Settings,
    /// Keys that `--set` changed, with their values: departures from the standard configuration.
    pub departures: Vec<(String, Value)>,
    /// One job a phase, in order. Paths inside the run's folder are relative: see [`CasePlan::jobs_in`].
    pub jobs: Vec<Job>,
}

impl CasePlan {
    /// The jobs of a run whose folder is `run` (absolute).
    pub fn jobs_in(&self, run: &Path) -> Vec<Job> {
        let placed = |job: &Job| Job {
            log_dir: run.join(&job.log_dir),
            outputs: job.outputs.as_ref().map(|path| run.join(path)),
            export: job.export.as_ref().map(|path| run.join(path)),
            model: job.model.clone().map(|model| model.placed(run)),
            ..job.clone()
        };
        self.jobs.iter().map(placed).collect()
    }
}

/// Makes jobs of a configuration.
///
/// # Errors
/// Every mistake in the configuration, and every mistake that shows in the catalogue, at once.
pub fn plan(config: &Config, catalogue: &Catalogue) -> Result<Plan, PlanErrors> {
    let mut findings = config.findings.clone();
    check_site(config, catalogue, &mut findings);
    let mut cases = Vec::new();
    for case in &config.cases {
        let mut planner = Planner { config, catalogue, case, findings: &mut findings };
        cases.extend(planner.case());
    }
    check_folders(config, &cases, &mut findings);
    note_unused(config, &mut findings);
    let findings = Findings(without_repetition(findings));
    match &config.vendor {
        Some(vendor) if !findings.has_errors() => {
            Ok(Plan { site: config.site.clone(), vendor: vendor.clone(), cases, findings: findings.0 })
        }
        _ => Err(findings),
    }
}

/// Plans one case.
struct Planner<'p> {
    config: &'p Config,
    catalogue: &'p Catalogue,
    case: &'p CaseConfig,
    findings: &'p mut Vec<Finding>,
}

impl Planner<'_> {
    /// The plan of the case; what is wrong with it is left in the findings.
    fn case(&mut self) -> Option<CasePlan> {
        let settings = self.settings();
        let data_dir = self.case.data_dir.clone();
        self.must_exist("data directory", &data_dir.value, data_dir.origin);
        let route = match route(&self.steered(&settings)) {
            Ok(route) => route,
            Err(problem) => {
                self.error("no_validation", problem);
                return None;
            }
        };
        for key in route.ignored {
            self.findings.push(Finding::warning(self.origin(key), PlanProblem::Ignored { key }));
        }
        self.check_scripts(route.validate.is_some());
        let onnx = self.onnx_path(&settings);
        let both = route.validate.is_some() && route.infer.is_some();
        let mut jobs = Vec::new();
        if let Some(export) = route.validate {
            let engine = self.engine(Role::Framework, &settings);
            let export = (export == Export::Written).then(|| onnx.clone());
            jobs.extend(engine.map(|engine| Job { export, ..self.job(Phase::Validate, engine, &settings, both) }));
        }
        if let Some(source) = route.infer.clone() {
            let engine = self.engine(Role::Compiler, &settings);
            let model = Some(self.model(source, &onnx));
            jobs.extend(engine.map(|engine| Job { model, ..self.job(Phase::Infer, engine, &settings, both) }));
        }
        // With an engine that cannot be chosen, it is not known what is used.
        let chosen = jobs.len() == usize::from(route.validate.is_some()) + usize::from(route.infer.is_some());
        if let Some(vendor) = self.config.vendor.as_ref().filter(|_| chosen) {
            self.findings.extend(unused_options(vendor, self.case, &jobs));
        }
        Some(CasePlan {
            key: self.case.key.value.clone(),
            host: self.config.site.hosts[0].clone(),
            folder: self.folder(),
            departures: self.departures(),
            settings,
            jobs,
        })
    }

    fn departures(&self) -> Vec<(String, Value)> {
        let set = self.case.values().filter(|(key, _)| self.case.departures.contains(key));
        set.map(|(key, value)| (key.clone(), value.value.clone())).collect()
    }

    fn settings(&self) -> Settings {
        let mut values: serde_json::Map<String, Value> =
            self.case.settings.iter().map(|(key, value)| (key.clone(), value.value.clone())).collect();
        for key in ["exist_onnx_path", "exist_compiler_path"] {
            let path = values[key].as_str().map(|path| self.root().join(path).to_string_lossy().into_owned());
            values.insert(key.to_owned(), path.into());
        }
        let expression = values["flops"].as_str().unwrap_or_default();
        let product = flops(expression).expect("the expression was checked when the file was read");
        values.insert("flops_per_sample".to_owned(), product.into());
        serde_json::from_value(values.into()).expect("every key of configurations.yaml was read by its type")
    }

    /// The settings that steer the route. A sidecar that opens no ONNX file computes with the module of the exported graph,
    /// so with validation a placeholder does not leave the export out.
    fn steered(&self, settings: &Settings) -> Settings {
        let entry = self.compiler();
        let is_sidecar =
            entry.and_then(|entry| self.catalogue.engine(&entry.engine)).is_some_and(|engine| engine.takes_command);
        let is_placeholder = is_sidecar && !self.opens_onnx() && settings.exist_compiler_path.is_none();
        let exist_onnx_path = settings.exist_onnx_path.clone().filter(|_| settings.no_validation || !is_placeholder);
        Settings { exist_onnx_path, ..settings.clone() }
    }

    fn engine(&mut self, role: Role, settings: &Settings) -> Option<EngineChoice> {
        let vendor = self.config.vendor.as_ref()?;
        choose_engine(role, vendor, self.case, settings, self.catalogue)
            .map_err(|finding| self.findings.push(finding))
            .ok()
    }

    fn model(&mut self, source: Source, exported: &Path) -> ModelInput {
        match source {
            Source::Exported => ModelInput::Exported(Manifest::beside(exported)),
            Source::Existing(ModelInput::Onnx(path)) if !self.opens_onnx() => ModelInput::Placeholder(path),
            Source::Existing(ModelInput::Onnx(path)) => {
                ModelInput::Onnx(self.existing("ONNX file", path, "exist_onnx_path"))
            }
            Source::Existing(ModelInput::Compiled(path)) => {
                ModelInput::Compiled(self.existing("compiled model", path, "exist_compiler_path"))
            }
            Source::Existing(model) => model,
        }
    }

    /// The file or manifest that the setting `key` names; what is wrong with it is left in the findings.
    fn existing(&mut self, what: &'static str, path: PathBuf, key: &str) -> PathBuf {
        match (self.catalogue.find_model)(&path) {
            FoundModel::At(found) => return found,
            FoundModel::Missing => self.error(key, PlanProblem::Missing { what, path: path.clone() }),
            FoundModel::Unusable(reason) => self.error(key, PlanProblem::UnusableModel { reason }),
        }
        path
    }

    /// The compiler's entry in vendor.yaml.
    fn compiler(&self) -> Option<&EngineEntry> {
        let name = self.case.settings["compiler"].value.as_str()?;
        self.config.vendor.as_ref()?.compilers.get(name)
    }

    fn opens_onnx(&self) -> bool {
        self.compiler().is_none_or(|entry| entry.opens_onnx)
    }

    fn job(&self, phase: Phase, engine: EngineChoice, settings: &Settings, both: bool) -> Job {
        let key = &self.case.key.value;
        let site = &self.config.site;
        let mut config: indexmap::IndexMap<String, Value> =
            self.case.values().map(|(key, value)| (key.clone(), value.value.clone())).collect();
        for (name, value) in [("vendor", &site.vendor), ("case", &key.case), ("framework", &key.framework)] {
            config.insert(name.to_owned(), Value::from(value.as_str()));
        }
        Job {
            case: key.case.clone(),
            vendor: site.vendor.clone(),
            monitor: self.config.vendor.as_ref().and_then(|vendor| vendor.monitor.clone()),
            phase,
            scripts: self.root().join("scripts").join(&key.case),
            data_dir: self.case.data_dir.value.clone(),
            log_dir: self.folder(),
            settings: settings.clone(),
            config,
            parameters: Parameters::of(&self.case.parameters),
            engine,
            model: None,
            export: None,
            outputs: both.then(|| self.folder().join("outputs.safetensors")),
            watched: false,
            environment: self.config.visible.iter().filter_map(|visible| visible.for_worker()).collect(),
            limits: Limits {
                worker_memory_bytes: site.worker_memory.unwrap_or_default(),
                phase_time_s: site.phase_timeout,
                ..Limits::default()
            },
        }
    }

    fn check_scripts(&mut self, model: bool) {
        let case = &self.case.key.value.case;
        let folder = self.catalogue.cases.get(case);
        let needed = ["dataloader.rhai"].into_iter().chain(model.then_some("model.rhai"));
        for script in needed.filter(|script| !folder.is_some_and(|folder| folder.scripts.contains(*script))) {
            let problem = PlanProblem::NoScript { case: case.clone(), script };
            self.findings.push(Finding::error(self.case.key.origin.clone(), problem));
        }
    }

    fn must_exist(&mut self, what: &'static str, path: &Path, origin: Origin) {
        if !(self.catalogue.exists)(path) {
            self.findings.push(Finding::error(origin, PlanProblem::Missing { what, path: path.to_owned() }));
        }
    }

    /// The exported file, by FlagPerf's name, in the case's folder of the run.
    fn onnx_path(&self, settings: &Settings) -> PathBuf {
        let CaseKey { case, framework } = &self.case.key.value;
        let fp16 = if settings.fp16 { "True" } else { "False" };
        self.folder().join(format!("{case}_bs{}_{framework}_fp16{fp16}.onnx", settings.batch_size))
    }

    fn folder(&self) -> PathBuf {
        Path::new(&self.case.key.value.folder()).join(format!("{}_noderank0", self.config.site.hosts[0]))
    }

    fn root(&self) -> &Path {
        &self.config.site.flagperf_path
    }

    fn origin(&self, key: &str) -> Origin {
        self.case.settings.get(key).map_or(Origin::Default, |value: &Sourced<Value>| value.origin.clone())
    }

    fn error(&mut self, key: &str, problem: PlanProblem) {
        self.findings.push(Finding::error(self.origin(key), problem));
    }
}
