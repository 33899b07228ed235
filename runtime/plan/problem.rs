//! What planning can find wrong.

use std::path::PathBuf;

use crate::config::{Explained, THREADS_MAX};
use crate::tensor::DType;

/// What a missing file of a sidecar is called.
pub(super) const SIDECAR: &str = "sidecar";
/// What a missing plug-in is called.
pub(super) const PLUGIN: &str = "plug-in";

/// What planning can find wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanProblem {
    /// A vendor without a folder.
    #[error("unknown vendor `{vendor}` (known: {known})")]
    UnknownVendor {
        /// The vendor.
        vendor: String,
        /// The vendors that there are.
        known: String,
        /// The known one that was probably meant.
        nearest: Option<String>,
    },
    /// A monitor that this build lacks.
    #[error("vendor `{vendor}` names monitor `{monitor}`, which there is not (known: {known})")]
    UnknownMonitor {
        /// The vendor.
        vendor: String,
        /// The monitor.
        monitor: String,
        /// The monitors of this build.
        known: String,
        /// The known one that was probably meant.
        nearest: Option<String>,
    },
    /// A framework or compiler that vendor.yaml does not list.
    #[error("vendor `{vendor}` has no {role} `{name}` (known: {known})")]
    UnknownEngineName {
        /// The vendor.
        vendor: String,
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The names that the vendor has.
        known: String,
        /// The known one that was probably meant.
        nearest: Option<String>,
    },
    /// An engine that this build lacks.
    #[error("{role} `{name}` needs engine `{engine}`, which this build lacks (it has: {known})")]
    EngineLacking {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The engine.
        engine: String,
        /// The engines of this build.
        known: String,
    },
    /// An engine on the side of a case that it cannot take.
    #[error("engine `{engine}` cannot be a {role}")]
    EngineRole {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The engine.
        engine: String,
    },
    /// An engine that does not compute in the type asked for.
    #[error("{role} `{name}` does not compute in `{asked}` (it has: {has})")]
    Precision {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The type asked for.
        asked: DType,
        /// The types that it has.
        has: String,
    },
    /// Two cases whose results lie in one folder.
    #[error("cases `{first}` and `{key}` both have the folder `{folder}` of results")]
    SameFolder {
        /// The later case.
        key: String,
        /// The case before it.
        first: String,
        /// The folder in a run.
        folder: String,
    },
    /// A key that is for something that a run does not use.
    #[error("`{key}` has no effect: it is for {what}, and a run uses this machine alone")]
    NoEffect {
        /// The key.
        key: &'static str,
        /// What it is for.
        what: &'static str,
    },
    /// An option that its engine does not take.
    #[error("{message}")]
    EngineOption {
        /// What the engine says.
        message: String,
    },
    /// A number of threads that is none.
    #[error("`threads` must be a whole number from 0 to {THREADS_MAX}, not `{value}`")]
    Threads {
        /// The value.
        value: String,
    },
    /// An engine that is in a library, without one.
    #[error("{role} `{name}` names no `library`, which engine `{engine}` needs")]
    NoLibrary {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The engine.
        engine: String,
    },
    /// A library that `flagperf backend install` does not know.
    #[error("{role} `{name}` is in backend `{backend}`, which there is not (known: {known})")]
    UnknownBackend {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The backend.
        backend: String,
        /// Those that there are.
        known: String,
    },
    /// A library that `flagperf backend install` gets, not installed.
    #[error("{role} `{name}` is in backend `{backend}`, which is not installed")]
    NotInstalled {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The backend.
        backend: String,
    },
    /// A library for an engine that is in none.
    #[error("{role} `{name}` names a `library`, which engine `{engine}` does not take")]
    LibraryUnused {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The engine.
        engine: String,
    },
    /// `exist_compiler_path` for an engine that loads no such file.
    #[error("{role} `{name}` loads no file that it made earlier (engine `{engine}`)")]
    CompiledUnused {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The engine.
        engine: String,
    },
    /// An engine that is a process, without a command.
    #[error("{role} `{name}` has no `command`, which engine `{engine}` needs")]
    NoCommand {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The engine.
        engine: String,
    },
    /// A command for an engine that is no process.
    #[error("{role} `{name}` has a `command`, which engine `{engine}` does not take")]
    CommandUnused {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The engine.
        engine: String,
    },
    /// Neither validation nor inference.
    #[error("`compiler: null` together with `no_validation: true` leaves nothing to do")]
    NothingToDo,
    /// No model to compile.
    #[error("`no_validation: true` needs `exist_onnx_path`")]
    NoModel,
    /// A path that means nothing without a compiler.
    #[error("`{key}` is ignored: `compiler` is null")]
    Ignored {
        /// The key.
        key: &'static str,
    },
    /// An option of another engine of the vendor's.
    #[error("option `{option}` has no effect: the engines of this run do not take it ({engines})")]
    UnusedOption {
        /// The option.
        option: String,
        /// The engines chosen.
        engines: String,
    },
    /// A file or folder that is not there.
    #[error("{what} `{path}` does not exist")]
    Missing {
        /// What it is.
        what: &'static str,
        /// Where it should be.
        path: PathBuf,
    },
    /// A model that is there and cannot be used.
    #[error("{reason}")]
    UnusableModel {
        /// Which file, and why.
        reason: String,
    },
    /// A case without scripts.
    #[error("case `{case}` has no scripts/{case}/{script}")]
    NoScript {
        /// The case.
        case: String,
        /// The file.
        script: &'static str,
    },
    /// A framework without a container recipe.
    #[error("no container recipe docker_images/{vendor}/{framework}/Dockerfile")]
    NoRecipe {
        /// The vendor.
        vendor: String,
        /// The framework.
        framework: String,
    },
    /// Containers.
    #[error("`CONTAINER: docker` is not supported yet")]
    Docker,
    /// A machine that is not this one.
    #[error("host `{host}` is not this machine, and other machines are not supported yet")]
    Remote {
        /// The host.
        host: String,
    },
}

impl PlanProblem {
    /// What to do about it; empty when the message says it.
    pub fn hint(&self) -> String {
        let meant = |nearest: &Option<String>, otherwise: &str| {
            nearest.as_ref().map_or_else(|| otherwise.to_owned(), |name| format!("did you mean `{name}`?"))
        };
        match self {
            Self::UnknownVendor { nearest, .. } => meant(nearest, "a vendor is a folder in vendors/"),
            Self::UnknownEngineName { nearest, vendor, role, .. } => {
                meant(nearest, &format!("{role}s are listed in vendors/{vendor}/vendor.yaml"))
            }
            Self::UnknownMonitor { nearest, .. } => meant(nearest, "`flagperf doctor` lists them"),
            Self::EngineLacking { .. } => "`flagperf doctor` says how to get it".to_owned(),
            Self::Precision { asked: DType::F16, .. } => {
                "`fp16: false` computes in f32; a vendor sets it in its overlay".to_owned()
            }
            Self::SameFolder { .. } => "run one of them at a time with --case, or rename a case".to_owned(),
            Self::NothingToDo => "set one of them otherwise".to_owned(),
            Self::NoModel => "name an ONNX file, or anything when the compiler opens none".to_owned(),
            Self::Missing { what: "data directory", .. } => "give --data DIR, or change `CASES`".to_owned(),
            Self::Missing { what: "ONNX file" | "compiled model", .. } => {
                "several graphs are named by their manifest, `<name>.graphs.json` (configs/README.md)".to_owned()
            }
            Self::Missing { what: SIDECAR, .. } => "`command` counts from the vendor's folder".to_owned(),
            Self::NoCommand { .. } => "`command: [python3, -m, flagperf_sidecar, engines/mine.py]`".to_owned(),
            Self::CommandUnused { .. } => "`engine: sidecar` starts a command".to_owned(),
            Self::Missing { what: PLUGIN, .. } => {
                "build it first: the README of the vendor's folder says how".to_owned()
            }
            Self::NoLibrary { .. } => "`library: engines/libmychip.so` counts from the vendor's folder".to_owned(),
            Self::UnknownBackend { .. } => "`flagperf backend list` lists them".to_owned(),
            Self::NotInstalled { backend, .. } => format!("`flagperf backend install {backend}` gets it"),
            Self::LibraryUnused { .. } => "`engine: plugin` loads a library".to_owned(),
            Self::CompiledUnused { .. } => "leave `exist_compiler_path: null`: it compiles every time".to_owned(),
            Self::Docker => "set `CONTAINER: none`".to_owned(),
            Self::Remote { .. } => "set `HOSTS: [localhost]`".to_owned(),
            _ => String::new(),
        }
    }
}

impl From<PlanProblem> for Explained {
    fn from(problem: PlanProblem) -> Self {
        Explained { message: problem.to_string(), hint: problem.hint() }
    }
}
