//! The problems and notes that planning can produce.

use std::path::PathBuf;

use flagperf_onnx::OPSET;

use flagperf_config::THREADS_MAX;
use flagperf_core::precision::Precision;

/// The kind of a missing file of a sidecar, in messages.
pub(super) const SIDECAR: &str = "sidecar";
/// The kind of a missing plug-in, in messages.
pub(super) const PLUGIN: &str = "plug-in";

/// The kinds of missing files of containers, in messages.
pub(super) const MOUNT_SOURCE: &str = "mounted path";
pub(super) const DEVICE_FILE: &str = "device file";

/// A problem or note of planning.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanProblem {
    /// An unknown vendor: it has no folder.
    #[error("unknown vendor `{vendor}` (known: {known})")]
    UnknownVendor {
        /// The vendor.
        vendor: String,
        /// The known vendors.
        known: String,
        /// The known vendor that was probably meant.
        nearest: Option<String>,
    },
    /// A monitor that is not in this build.
    #[error("unknown monitor `{monitor}` of vendor `{vendor}` (known: {known})")]
    UnknownMonitor {
        /// The vendor.
        vendor: String,
        /// The monitor.
        monitor: String,
        /// The monitors of this build.
        known: String,
        /// The known monitor that was probably meant.
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
        /// The vendor's frameworks or compilers.
        known: String,
        /// The known name that was probably meant.
        nearest: Option<String>,
    },
    /// An engine that is not in this build.
    #[error("{role} `{name}` needs engine `{engine}`, which this build does not contain (known: {known})")]
    EngineNotInBuild {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The engine.
        engine: String,
        /// The engines of this build.
        known: String,
        /// The engine of this build that was probably meant.
        nearest: Option<String>,
    },
    /// An engine in a role that it does not support.
    #[error("engine `{engine}` cannot be a {role}")]
    UnsupportedRole {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The engine.
        engine: String,
    },
    /// An engine that does not support the requested precision.
    #[error("{role} `{name}` does not compute in `{requested}` (supported: {supported}){chosen}")]
    Precision {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The requested precision.
        requested: Precision,
        /// The supported precisions.
        supported: String,
        /// Which case chose it and where, as the end of a sentence; empty when the place of the error says it.
        chosen: String,
    },
    /// The option `tf32` of an engine is set directly.
    #[error("`tf32` cannot be set directly; it follows `precision`")]
    Tf32Option,
    /// TF32 without a compiler.
    #[error("`precision: tf32` needs a compiler, but `compiler` is null; validation always runs in fp32")]
    Tf32WithoutCompiler,
    /// Two cases with the same result folder.
    #[error("cases `{first}` and `{key}` have the same result folder `{folder}`")]
    SameFolder {
        /// The later case.
        key: String,
        /// The earlier case.
        first: String,
        /// The folder in a run.
        folder: String,
    },
    /// A key that applies only to something that a run does not use.
    #[error("`{key}` has no effect: it applies to {what}, and {instead}")]
    NoEffect {
        /// The key.
        key: &'static str,
        /// What the key applies to.
        what: &'static str,
        /// What a run uses instead.
        instead: &'static str,
    },
    /// An option that its engine rejects.
    #[error("{message}")]
    EngineOption {
        /// The engine's error message.
        message: String,
    },
    /// An engine that this machine does not have, or that does not work on it.
    #[error("{role} `{name}` cannot be used on this machine: {reason}")]
    EngineUnavailable {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name in the vendor.yaml.
        name: String,
        /// What is missing or failed.
        reason: String,
        /// How to get it.
        remedy: String,
    },
    /// An engine whose version is not the one in its name.
    #[error("{role} `{name}` requires version `{required}` (found: `{found}`)")]
    EngineVersion {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name in the configuration.
        name: String,
        /// The version in the name.
        required: String,
        /// The version of the engine.
        found: String,
    },
    /// A vendor's engine that knows only operators that are older than those of exported models.
    #[error("{role} `{name}` supports operator set {opset_max} at most, but models are built of operator set {OPSET}")]
    OldOperatorSet {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name in the configuration.
        name: String,
        /// The newest version that the engine supports.
        opset_max: i64,
    },
    /// An invalid number of threads.
    #[error("`threads` must be a whole number from 0 to {THREADS_MAX}, not `{value}`")]
    Threads {
        /// The value.
        value: String,
    },
    /// A plug-in without a library.
    #[error("{role} `{name}` has no `library`, but engine `{engine}` needs one")]
    NoLibrary {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The engine.
        engine: String,
    },
    /// A backend that `flagperf backend install` does not know.
    #[error("{role} `{name}` needs the unknown backend `{backend}` (known: {known})")]
    UnknownBackend {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The backend.
        backend: String,
        /// The known backends.
        known: String,
    },
    /// A backend that is not installed.
    #[error("{role} `{name}` needs backend `{backend}`, which is not installed")]
    NotInstalled {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The backend.
        backend: String,
    },
    /// A library for an engine that is not a plug-in.
    #[error("{role} `{name}` has a `library`, but engine `{engine}` does not accept one")]
    LibraryNotAccepted {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The engine.
        engine: String,
    },
    /// `exist_compiler_path` for an engine that cannot load compiled files.
    #[error("{role} `{name}` cannot load a compiled file (engine `{engine}`)")]
    CompiledFileNotLoaded {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The engine.
        engine: String,
    },
    /// `exist_compiler_path` names a file that is not a compiled file of the engine.
    #[error("{role} `{name}` cannot load `{path}`: its compiled files are {extensions}")]
    CompiledFileOfAnotherKind {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The file.
        path: PathBuf,
        /// The extensions of the engine's compiled files.
        extensions: String,
    },
    /// An engine that does not compile, without a compiled file.
    #[error("{role} `{name}` accepts only compiled files, not an ONNX file (engine `{engine}`)")]
    OnlyCompiledFiles {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The engine.
        engine: String,
    },
    /// A sidecar without a command.
    #[error("{role} `{name}` has no `command`, but engine `{engine}` needs one")]
    NoCommand {
        /// `framework` or `compiler`.
        role: &'static str,
        /// The name.
        name: String,
        /// The engine.
        engine: String,
    },
    /// A command for an engine that is not a sidecar.
    #[error("{role} `{name}` has a `command`, but engine `{engine}` does not accept one")]
    CommandNotAccepted {
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
    /// There is no model to compile.
    #[error("`no_validation: true` needs `exist_onnx_path`")]
    NoModel,
    /// A path that has no meaning without a compiler.
    #[error("`{key}` is ignored: `compiler` is null")]
    Ignored {
        /// The key.
        key: &'static str,
    },
    /// An option that no engine of the case accepts.
    #[error("option `{option}` has no effect: no engine of this case accepts it ({engines})")]
    UnusedOption {
        /// The option.
        option: String,
        /// The engines of the case.
        engines: String,
    },
    /// A missing file or folder.
    #[error("{what} `{path}` does not exist")]
    Missing {
        /// The kind of file or folder.
        what: &'static str,
        /// Its path.
        path: PathBuf,
    },
    /// A model that exists but cannot be used.
    #[error("{reason}")]
    UnusableModel {
        /// The file and the reason.
        reason: String,
    },
    /// A case that lacks a required script.
    #[error("case `{case}` has no scripts/{case}/{script}")]
    NoScript {
        /// The case.
        case: String,
        /// The file.
        script: &'static str,
    },
    /// A case that has neither a script of its own for a stage nor names a shared one.
    #[error("case `{case}` has neither scripts/{case}/{script} nor `{key}: lib/NAME` in its parameters.yaml")]
    NoScriptNorShared {
        /// The case.
        case: String,
        /// The key of parameters.yaml.
        key: &'static str,
        /// The file.
        script: &'static str,
    },
    /// A case that has a script of its own for a stage and names a shared one, too.
    #[error("`{key}` names a shared script, but case `{case}` has scripts/{case}/{script}, too")]
    TwoScripts {
        /// The case.
        case: String,
        /// The key of parameters.yaml.
        key: &'static str,
        /// The file.
        script: &'static str,
    },
    /// A shared script that does not exist.
    #[error("unknown shared script `{name}` (known: {known})")]
    UnknownSharedScript {
        /// The script.
        name: String,
        /// The known ones.
        known: String,
        /// The known one that was probably meant.
        nearest: Option<String>,
    },
    /// A framework without a container recipe.
    #[error("no container recipe docker_images/{vendor}/{framework}/Dockerfile (known: {known})")]
    NoRecipe {
        /// The vendor.
        vendor: String,
        /// The framework.
        framework: String,
        /// The vendor's recipes.
        known: String,
    },
    /// Options of a container that cannot be used.
    #[error("{message}")]
    ContainerOption {
        /// What is wrong.
        message: String,
        /// The known option that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A profile of system calls that cannot be used.
    #[error("the seccomp profile `{path}` {reason}")]
    SeccompProfile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A mount with which no container starts.
    #[error("the container options mount `{source_path}` at `{target}`, but {reason}")]
    ContainerMount {
        /// The path on the machine.
        source_path: String,
        /// The path in the container.
        target: String,
        /// Why this is impossible.
        reason: String,
    },
    /// Two sizes of shared memory.
    #[error(
        "`SHM_SIZE` has no effect: `--shm-size` of the container options ({origin}) sets the size of shared memory"
    )]
    TwoShmSizes {
        /// The place of the container options.
        origin: String,
    },
    /// A run in containers without an engine for them.
    #[error("`CONTAINER: docker` cannot be used on this machine: {reason}")]
    NoContainerEngine {
        /// What is missing or failed.
        reason: String,
        /// How to get it.
        remedy: String,
    },
    /// A host whose name ssh or a folder cannot have.
    #[error("`{host}` is not a host name (letters, digits, `.`, `-`, `_`, and `@` after a user's name)")]
    HostName {
        /// The host.
        host: String,
    },
    /// A host that is listed twice.
    #[error("host `{host}` is listed twice")]
    RepeatedHost {
        /// The host.
        host: String,
    },
    /// A case that needs more hosts than there are.
    #[error("case `{key}` needs {needed} hosts, but `HOSTS` lists {listed}")]
    TooFewHosts {
        /// The case.
        key: String,
        /// The hosts that it needs.
        needed: u32,
        /// The hosts that there are.
        listed: usize,
    },
    /// A case that needs several hosts, although everything is started on this machine.
    #[error("`LAUNCHER: local` starts everything on this machine, but case `{key}` needs {needed} hosts")]
    LocalHosts {
        /// The case.
        key: String,
        /// The hosts that it needs.
        needed: u32,
    },
    /// A case that needs several devices of a host, which no variable selects.
    #[error("case `{key}` needs {devices} devices of each host, but no variable selects the device of a worker")]
    NoDeviceVariable {
        /// The case.
        key: String,
        /// The devices that it needs.
        devices: u32,
    },
    /// A case that needs several devices of a host, for a vendor without a monitor that identifies devices.
    #[error(
        "case `{key}` runs {devices} workers on each host, and nothing will show whether each uses a device of its own: vendor \
         `{vendor}` has no monitor that identifies devices"
    )]
    UnidentifiedDevices {
        /// The case.
        key: String,
        /// The devices of each host.
        devices: u32,
        /// The vendor.
        vendor: String,
    },
}
