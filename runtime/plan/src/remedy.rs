//! The hint for each problem of planning, and whether the configuration or the machine has to change.

use super::PlanProblem;
use super::problem::{DEVICE_FILE, MOUNT_SOURCE, PLUGIN, SIDECAR};
use flagperf_config::{Cause, MessageAndHint};
use flagperf_core::precision::Precision;

/// What to do about an engine of another version than the one in its name.
pub const VERSION_HINT: &str = "in `CASES`, name the found version or none, or install the required version";

/// Engines that have another name than in older versions, each with its name now: a vendor.yaml may be older.
const FORMER_ENGINES: [(&str, &str); 1] = [("candle", "interpreter")];

/// Engines that only some builds contain. Any other engine that a build lacks is a mistake in vendor.yaml.
const OPTIONAL_ENGINES: [&str; 1] = ["tract"];

impl PlanProblem {
    /// Returns what to do about the problem; empty when the message suffices.
    pub fn hint(&self) -> String {
        let meant = |nearest: &Option<String>, otherwise: &str| {
            nearest.as_ref().map_or_else(|| otherwise.to_owned(), |name| format!("did you mean `{name}`?"))
        };
        match self {
            Self::UnknownVendor { nearest, .. } => meant(nearest, "a vendor is a folder in vendors/"),
            Self::UnknownEngineName { nearest, vendor, role, .. } => {
                meant(nearest, &format!("{role}s are listed in vendors/{vendor}/vendor.yaml"))
            }
            Self::UnknownMonitor { nearest, .. } => meant(nearest, "`flagperf doctor` lists the monitors"),
            Self::EngineNotInBuild { engine, nearest, .. } => {
                match FORMER_ENGINES.iter().find(|(former, _)| former == engine) {
                    Some((_, now)) => {
                        format!("engine `{engine}` is now called `{now}`: change `engine` in vendor.yaml")
                    }
                    None => meant(nearest, "`flagperf doctor` shows how to get it"),
                }
            }
            Self::Precision { requested: Precision::Fp16, .. } => {
                "set `fp16: false` in the overlay of the vendor to compute in fp32".to_owned()
            }
            Self::Tf32Option => "delete the option, and set `precision: tf32`".to_owned(),
            Self::Tf32WithoutCompiler => "set `precision: fp32`, or name a compiler".to_owned(),
            Self::Precision { .. } => "set `precision` in the overlay of the vendor".to_owned(),
            Self::SameFolder { .. } => "run one of them at a time with --case, or rename a case".to_owned(),
            Self::NoScriptNorShared { script, .. } => {
                format!("write {script}, or name the shared script in scripts/lib that serves the case")
            }
            Self::TwoScripts { script, .. } => format!("delete the line or {script}"),
            Self::UnknownSharedScript { nearest, .. } => meant(nearest, "a shared script is a file in scripts/lib/"),
            Self::NothingToDo => "change one of the two settings".to_owned(),
            Self::NoModel => "name an ONNX file, or any text if the compiler does not open ONNX files".to_owned(),
            Self::Missing { what: "data directory", .. } => {
                "give --data an existing folder, or change `CASES`".to_owned()
            }
            Self::Missing { what: "ONNX file" | "compiled model", .. } => {
                "for a model of several graphs, name its manifest `<name>.graphs.json` (see configs/README.md)"
                    .to_owned()
            }
            Self::Missing { what: SIDECAR, .. } => "paths in `command` are relative to the vendor's folder".to_owned(),
            Self::NoCommand { .. } => {
                "add one, for example `command: [python3, -m, flagperf_sidecar, engines/mine.py]`".to_owned()
            }
            Self::CommandNotAccepted { .. } => "only `engine: sidecar` starts a command".to_owned(),
            Self::Missing { what: PLUGIN, .. } => {
                "build it first: the README in the vendor's folder or the beginning of its source describes how"
                    .to_owned()
            }
            Self::NoLibrary { .. } => {
                "add, for example, `library: engines/libmychip.so` (relative to the vendor's folder)".to_owned()
            }
            Self::UnknownBackend { .. } => "`flagperf backend list` lists the backends".to_owned(),
            Self::NotInstalled { backend, .. } => format!("run `flagperf backend install {backend}`"),
            Self::LibraryNotAccepted { .. } => "only `engine: plugin` loads a library".to_owned(),
            Self::CompiledFileNotLoaded { .. } => {
                "it compiles in every run: set `exist_compiler_path: null`, or use an engine that loads this file"
                    .to_owned()
            }
            Self::CompiledFileOfAnotherKind { .. } => {
                "an ONNX file is given with `exist_onnx_path`; null compiles it in every run".to_owned()
            }
            Self::OnlyCompiledFiles { .. } => "set `exist_compiler_path` to a file that it wrote".to_owned(),
            Self::EngineUnavailable { remedy, .. } => remedy.clone(),
            Self::EngineVersion { .. } => VERSION_HINT.to_owned(),
            Self::LocalHosts { .. } => "remove `LAUNCHER`, or measure several devices with `:1xN`".to_owned(),
            Self::TooFewHosts { .. } => "add hosts, or change the entry of `CASES`".to_owned(),
            Self::NoDeviceVariable { .. } => {
                "name the environment variable by which the driver selects devices, for example \
                 `ACCE_VISIBLE_DEVICE_ENV_NAME: CUDA_VISIBLE_DEVICES` in host.yaml, or `visible_devices` in vendor.yaml"
                    .to_owned()
            }
            Self::UnidentifiedDevices { .. } => {
                "workers on the processor share it, and the sum of their figures is not a sum over devices; for other devices, check \
                 that the engine follows `ACCE_VISIBLE_DEVICE_ENV_NAME` of host.yaml, such as \
                 `ACCE_VISIBLE_DEVICE_ENV_NAME: CUDA_VISIBLE_DEVICES`, or `visible_devices` of vendor.yaml"
                    .to_owned()
            }
            Self::NoRecipe { .. } => {
                "docker_images/README.md describes recipes; without containers, set `CONTAINER: none`".to_owned()
            }
            Self::ContainerMount { .. } => "name another path in the container, or remove the mount".to_owned(),
            Self::Missing { what: MOUNT_SOURCE | DEVICE_FILE, .. } => {
                "`ACCE_CONTAINER_OPT` in host.yaml replaces the container options of the vendor".to_owned()
            }
            Self::ContainerOption { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            Self::NoContainerEngine { remedy, .. } => remedy.clone(),
            _ => String::new(),
        }
    }

    /// Returns whether the configuration has to change or the machine.
    pub fn cause(&self) -> Cause {
        match self {
            Self::EngineNotInBuild { engine, .. } if OPTIONAL_ENGINES.contains(&engine.as_str()) => Cause::Machine,
            Self::EngineUnavailable { .. }
            | Self::EngineVersion { .. }
            | Self::NotInstalled { .. }
            | Self::NoContainerEngine { .. }
            | Self::Missing { .. }
            | Self::SeccompProfile { .. }
            | Self::UnusableModel { .. } => Cause::Machine,
            _ => Cause::Configuration,
        }
    }
}

impl From<PlanProblem> for MessageAndHint {
    fn from(problem: PlanProblem) -> Self {
        MessageAndHint { message: problem.to_string(), hint: problem.hint(), cause: problem.cause() }
    }
}
