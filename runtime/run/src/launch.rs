//! How the workers of a case are started: directly on the machine, or in a container of the case's image.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use tracing::{info, warn};

use super::case::RunContext;
use super::environment::EnvironmentBuilder;
use super::job_paths::{check_paths, named_paths};
use super::{Interrupt, Notice, RunOptions};
use flagperf_config::{backends_folder, cache_folder, env};
use flagperf_container::{
    ContainerEngine, ContainerError, ContainerSpec, ContainerWorker, Image, ImageBuilder, ImageFiles, Leftover, Recipe,
    Requirements, container_labels, remove_leftovers, stored_program, wide_rights, worker_arguments,
};
use flagperf_core::event::Failure;
use flagperf_core::hash::hash_reader;
use flagperf_core::run_files::WORKER_LOG;
use flagperf_data::drawn;
use flagperf_host::{Process, Program, Worker};
use flagperf_plan::{CaseContainer, CasePlan, Job, Plan};
use flagperf_result::{BaseImageRecord, ImageRecord, LibraryHashes, LibraryRecord, Record, Status};

/// Longest wait before a case for an engine that does not answer, for example because it restarts.
const ENGINE_WAIT: Duration = Duration::from_secs(60);
/// Longest wait at the end of a run for an engine that still has to remove containers.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// The container engine of a run, and the program for containers.
pub(super) struct Containers {
    engine: Arc<ContainerEngine>,
    /// The copy of this program that containers start.
    program: PathBuf,
    /// Warnings for each record.
    warnings: Vec<String>,
}

impl Containers {
    /// Connects to the engine and removes the containers that an ended conductor has left behind; `show_progress` shows each.
    /// `program` is the SHA-256 of this program, if it is known.
    pub(super) fn connect(program: Option<&str>, show_progress: &mut dyn FnMut(&str)) -> Result<Self, ContainerError> {
        let engine = ContainerEngine::connect()?;
        let mut warnings = Vec::new();
        for Leftover { description, is_removed } in remove_leftovers(&engine)? {
            if is_removed {
                info!("{description}");
                show_progress(&description);
            } else {
                warn!("{description}");
                show_progress(&format!("warning: {description}"));
                warnings.push(description);
            }
        }
        Ok(Containers { engine: Arc::new(engine), program: stored_program(program)?, warnings })
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        if self.engine.has_unremoved() {
            // If this fails, the next run removes the containers.
            let _ = self.engine.wait_until_reachable(LAST_WAIT, &|| true, &mut |_| ());
        }
    }
}

/// How the workers of a case are started.
pub(super) enum WorkerLauncher {
    /// Directly on the machine, with these environment variables and no others.
    Direct(IndexMap<String, String>),
    /// In a container.
    Container(Box<ContainerLauncher>),
}

/// Starts workers in containers of one image.
pub(super) struct ContainerLauncher {
    engine: Arc<ContainerEngine>,
    image: Image,
    spec: ContainerSpec,
}

impl WorkerLauncher {
    /// Starts a worker with a job, which is one line of JSON.
    pub(super) fn start(
        &self,
        job: &Job,
        input: &str,
        stderr: &Path,
        options: &RunOptions,
        interrupt: &Interrupt,
    ) -> Result<Box<dyn Worker>, Failure> {
        let failure = |reason: String, hint: String| Failure { step: None, reason, hint };
        match self {
            WorkerLauncher::Direct(variables) => {
                let program = Program {
                    argv: options.worker.clone(),
                    input: input.to_owned(),
                    stderr: stderr.to_owned(),
                    inherits: false,
                    environment: variables.clone().into_iter().chain(job.environment.clone()).collect(),
                };
                let process = Process::start(&program, options.clock.clone());
                process.map(|process| Box::new(process) as _).map_err(|error| failure(error.to_string(), String::new()))
            }
            WorkerLauncher::Container(launcher) => {
                let spec = launcher.spec_of(job);
                let keep_going = || !interrupt.is_set();
                let clock = options.clock.clone();
                let worker = ContainerWorker::start(&launcher.engine, &spec, input, stderr, clock, &keep_going);
                worker.map(|worker| Box::new(worker) as _).map_err(|error| failure(error.to_string(), error.hint()))
            }
        }
    }
}

impl WorkerLauncher {
    /// Returns the variables with which a worker executes code that the record does not describe, as `NAME=VALUE`.
    pub(super) fn code_variables(&self, job: &Job) -> Vec<String> {
        let own = match self {
            WorkerLauncher::Direct(variables) => variables,
            WorkerLauncher::Container(launcher) => &launcher.spec.environment,
        };
        env::code_variables(|name| job.environment.get(name).or_else(|| own.get(name)))
    }

    /// Returns the image for the record; `None` without a container.
    pub(super) fn image_record(&self) -> Option<ImageRecord> {
        if let WorkerLauncher::Container(launcher) = self { Some(launcher.image_record()) } else { None }
    }
}

/// Hashes the files from which a worker executed code.
pub(super) type LibraryHasher = Box<dyn FnOnce(&mut LibraryHashes, BTreeSet<PathBuf>) -> Vec<LibraryRecord> + Send>;

impl WorkerLauncher {
    /// Returns the function that hashes the files of a worker: those that are mounted into a container are the machine's, all
    /// others the image's.
    pub(super) fn library_hasher(&self, job: &Job) -> LibraryHasher {
        let WorkerLauncher::Container(launcher) = self else { return Box::new(|hashes, files| hashes.hash(files)) };
        let (engine, spec) = (Arc::clone(&launcher.engine), launcher.spec_of(job));
        Box::new(move |hashes, files| {
            let is_mounted = |path: &PathBuf| spec.mounts.iter().any(|mount| path.starts_with(&mount.path));
            let (of_machine, of_image): (Vec<_>, Vec<_>) = files.into_iter().partition(is_mounted);
            let image = std::cell::OnceCell::new();
            let read = |path: &Path| {
                let opened = image.get_or_init(|| ImageFiles::open(&engine, &spec.image, &spec.labels));
                let files = opened.as_ref().map_err(|error| io::Error::other(error.to_string()))?;
                files.read(path, |content, size| Ok((size, hash_reader(content)?)))
            };
            let mut records = hashes.hash(of_machine);
            records.extend(hashes.hash_in_image(&spec.image, of_image, read));
            records
        })
    }
}

/// Prepares the workers of a case: sets variables and installs packages, or builds an image. Returns `None` if this failed
/// or was interrupted; the case then ends.
pub(super) fn prepare_launcher(
    run: &RunContext<'_>,
    case: &CasePlan,
    folder: &Path,
    record: &mut Record,
    notify: &mut dyn FnMut(&Notice<'_>),
) -> Option<WorkerLauncher> {
    let mut show_progress = |line: &str| notify(&Notice::Preparation { line });
    let prepared = match (run.containers, &case.container) {
        (Some(Ok(containers)), Some(container)) => {
            record.warnings.extend(containers.warnings.iter().cloned());
            prepare_container(run, case, containers, container, &mut show_progress)
        }
        (Some(Err(error)), Some(_)) => Err((error.to_string(), error.hint())),
        _ => {
            let log = &folder.join(WORKER_LOG);
            let (site, options, interrupt, show_progress) =
                (&run.plan.site, run.options, run.interrupt, &mut show_progress);
            record.warnings.extend(refused_variables());
            let variables = EnvironmentBuilder { site, options, interrupt, log, show_progress }.variables(case);
            variables.map(WorkerLauncher::Direct).map_err(|error| (error.to_string(), error.hint().to_owned()))
        }
    };
    match prepared {
        Ok(launcher) => {
            record.provenance.image = launcher.image_record();
            return Some(launcher);
        }
        Err(_) if run.interrupt.is_set() => record.status = Status::Interrupted,
        Err((reason, hint)) => record.fail(reason, &hint),
    }
    None
}

/// Returns the warning that workers do not inherit variables with which they would execute other code.
fn refused_variables() -> Option<String> {
    let names = env::refused_variables();
    (!names.is_empty()).then(|| {
        format!(
            "workers do not inherit {} (what a case or a vendor needs is in its environment_variables.sh)",
            names.join(", ")
        )
    })
}

/// Generates the data of a case, because a container cannot write there, checks what its containers may see, and finds or builds
/// the image of the case.
fn prepare_container(
    run: &RunContext<'_>,
    case: &CasePlan,
    containers: &Containers,
    container: &CaseContainer,
    show_progress: &mut dyn FnMut(&str),
) -> Result<WorkerLauncher, (String, String)> {
    if let Some(job) = case.jobs.first() {
        let data = job.data_dir.clone();
        let drawn = run.run_bounded(job, move || drawn::ensure(&data));
        drawn.unwrap_or(Ok(())).map_err(|error| (error.to_string(), error.hint().to_owned()))?;
        let (jobs, socket) = (case.jobs_in(run.folder), containers.engine.facts().socket.clone());
        let checked = run.run_bounded(job, move || jobs.iter().try_for_each(|job| check_paths(job, &socket)));
        let checked = checked.unwrap_or(Err(ContainerError::Interrupted));
        checked.map_err(|error| (error.to_string(), error.hint()))?;
    }
    let keep_going = || !run.interrupt.is_set();
    let answered = containers.engine.wait_until_reachable(ENGINE_WAIT, &keep_going, show_progress);
    answered.map_err(|error| (error.to_string(), error.hint()))?;
    let run_name = run.folder.file_name().unwrap_or_default().to_string_lossy();
    ContainerLauncher::prepare(containers, run.plan, case, container, &run_name, &keep_going, show_progress)
        .map(|launcher| WorkerLauncher::Container(Box::new(launcher)))
        .map_err(|error| (error.to_string(), error.hint()))
}

impl ContainerLauncher {
    /// Finds or builds the image of a case. `show_progress` shows each step.
    pub(super) fn prepare(
        containers: &Containers,
        plan: &Plan,
        case: &CasePlan,
        container: &CaseContainer,
        run: &str,
        keep_going: &dyn Fn() -> bool,
        show_progress: &mut dyn FnMut(&str),
    ) -> Result<Self, ContainerError> {
        let mut progress = |line: &str| {
            info!("{line}");
            show_progress(line);
        };
        let mut builder = ImageBuilder::new(&containers.engine, &mut progress, keep_going);
        let mut image = builder.image_of(&Recipe::read(&container.recipe)?)?;
        if let Some(file) = &case.preparation.requirements {
            let index = plan.site.pip_source.as_deref();
            let requirements = Requirements::read(file, &case.preparation.variables, index)
                .map_err(|source| ContainerError::Requirements { source })?;
            image = builder.with_requirements(image, &requirements)?;
        }
        let mut spec = ContainerSpec {
            image: image.id.clone(),
            name: format!("{run}-{}", case.key.folder()),
            labels: container_labels(run, &case.key.to_string()),
            argv: worker_arguments(&containers.program),
            variable_files: case.preparation.variables.clone(),
            folder: plan.site.flagperf_path.clone(),
            memory: plan.site.worker_memory.map(|bytes| bytes.0),
            shared_memory: plan.site.shm_size.map(|bytes| bytes.0),
            options: container.options.clone(),
            ..ContainerSpec::default()
        };
        spec.mount(&plan.site.flagperf_path, false);
        spec.mount(&containers.program, false);
        if let Some(cache) = cache_folder() {
            spec.environment.insert(env::OWN_CACHE.to_owned(), cache.to_string_lossy().into_owned());
        }
        // The rest of the cache has the sockets and the results of other sessions.
        if let Some(backends) = backends_folder().filter(|backends| backends.is_dir()) {
            spec.mount(&backends, false);
        }
        // The home folder of an image is read-only or belongs to another user.
        spec.environment.insert(env::HOME.to_owned(), "/tmp".to_owned());
        Ok(ContainerLauncher { engine: Arc::clone(&containers.engine), image, spec })
    }

    /// Returns the container of one job.
    fn spec_of(&self, job: &Job) -> ContainerSpec {
        let mut spec = self.spec.clone();
        spec.name = format!("flagperf-{}-{}-{}", spec.name, job.phase().name(), std::process::id());
        spec.environment.extend(job.environment.clone());
        spec.has_network = job.parameters.needs_network;
        let named = named_paths(job).into_iter().map(|named| named.path);
        for path in [job.data_dir.clone()].into_iter().chain(named).filter(|path| path.exists()) {
            spec.mount(&path, false);
        }
        spec.mount(&job.log_dir, true);
        spec
    }

    fn image_record(&self) -> ImageRecord {
        let Image { name, id, recipe_sha256, base } = self.image.clone();
        let facts = self.engine.facts();
        ImageRecord {
            name,
            id,
            recipe_sha256,
            base: base
                .into_iter()
                .map(|base| BaseImageRecord { name: base.name, id: base.id, digests: base.digests })
                .collect(),
            engine: format!("{} {}", facts.name, facts.version),
            privileged: self.spec.options.privileged,
            rights: wide_rights(&self.spec.options, &facts.socket, &self.spec.folder),
        }
    }
}
