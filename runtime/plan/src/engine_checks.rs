//! Checks an engine by its description before anything runs: the role, the files, the precision, the version, the
//! options.
//!
//! An engine that a selected case uses and that does not work on this machine is an error of the plan, even if a vendor
//! brings it: otherwise the run would fail only after minutes of validation.

use flagperf_onnx::OPSET;

use super::{CaseSettings, EngineChoice, Manifest, RefusedOption};
use flagperf_config::{CaseConfig, CaseKey, Finding, Origin, Scale, list_names};
use flagperf_core::description::{EngineDescription, PROGRAM_ENGINE};
use flagperf_core::precision::Precision;
use flagperf_core::process_group::PROCESS_GROUP_OPTION;
use flagperf_core::step::{EngineRole, Phase};

/// What to do about an engine of another version than the one in its name.
pub const VERSION_HINT: &str = "in `CASES`, name the found version or none, or install the required version";

/// What a case requires of the engine of one phase. Errors are at the line that has to change.
pub(super) struct EngineCheck<'c> {
    pub(super) role: EngineRole,
    pub(super) phase: Phase,
    pub(super) name: &'c str,
    /// Where the case names the engine.
    pub(super) named_at: &'c Origin,
    pub(super) case: &'c CaseConfig,
    pub(super) settings: &'c CaseSettings,
}

impl EngineCheck<'_> {
    /// Checks that an engine supports the role with the settings of the case.
    pub(super) fn accepts_case(&self, engine: &EngineDescription) -> Result<(), Finding> {
        if !engine.roles.includes(self.role) {
            let message = format!("engine `{}` cannot be a {}", engine.name, self.role.name());
            return Err(Finding::error(self.named_at.clone(), message));
        }
        self.check_artifact(engine)?;
        self.trains_together(engine)?;
        let requested = self.settings.precision_of(self.phase);
        if engine.supports(requested) { Ok(()) } else { Err(self.unsupported_precision(engine, requested)) }
    }

    /// Checks that an engine can train on as many devices as the key of the case states.
    fn trains_together(&self, engine: &EngineDescription) -> Result<(), Finding> {
        let key = &self.case.key;
        let Some(training) = key.value.training.as_ref().filter(|_| key.value.scale != Scale::ONE) else {
            return Ok(());
        };
        // A program learns of the others by its variables.
        let is_program = engine.name == PROGRAM_ENGINE;
        if is_program || engine.options.is_none() || engine.option(PROCESS_GROUP_OPTION).is_some() {
            return Ok(());
        }
        let CaseKey { case, framework, scale, .. } = &key.value;
        let message = format!(
            "{} `{}` cannot train on several devices, but case `{}` needs {scale}",
            self.role.name(),
            self.name,
            key.value
        );
        let hint = format!(
            "`{case}:{framework}:{}:1:1:N` trains on one device; engines that train on several have the option `{PROCESS_GROUP_OPTION}`",
            training.hardware
        );
        Err(Finding::error(key.origin.clone(), message).with_hint(hint))
    }

    fn unsupported_precision(&self, engine: &EngineDescription, requested: Precision) -> Finding {
        let (role, name, case, named_at) = (self.role.name(), self.name, &self.case.key.value.case, self.named_at);
        let supported = list_names(engine.supported_precisions().map(Precision::name));
        let message = format!(
            "{role} `{name}` does not compute in `{requested}` (supported: {supported}); case `{case}` names it in {named_at}"
        );
        let origin = self.case.settings["precision"].origin.clone();
        let hint = match (&origin, requested) {
            (Origin::CommandLine(argument), _) => format!("delete `{argument}`, or request a supported precision"),
            (_, Precision::Fp16) => "set `fp16: false` in the overlay of the vendor to compute in fp32".to_owned(),
            _ => "set `precision` in the overlay of the vendor".to_owned(),
        };
        Finding::error(origin, message).with_hint(hint)
    }

    /// Checks that a vendor's engine knows the operators of which the case's script builds the model. A file that exists
    /// already may be older.
    pub(super) fn knows_operators(&self, engine: &EngineDescription) -> Result<(), Finding> {
        let CaseSettings { exist_onnx_path, exist_compiler_path, .. } = self.settings;
        let is_built = match self.role {
            EngineRole::Framework => true,
            EngineRole::Compiler => exist_onnx_path.is_none() && exist_compiler_path.is_none(),
        };
        if !is_built || engine.opset_max >= OPSET {
            return Ok(());
        }
        let (role, name, newest) = (self.role.name(), self.name, engine.opset_max);
        let message = format!(
            "{role} `{name}` supports operator set {newest} at most, but models are built of operator set {OPSET}"
        );
        Err(Finding::error(self.named_at.clone(), message))
    }

    /// Checks that a compiler accepts the kind of file that the settings give it.
    fn check_artifact(&self, engine: &EngineDescription) -> Result<(), Finding> {
        if self.role == EngineRole::Framework {
            return Ok(());
        }
        let (role, name, own) = (self.role.name(), self.name, engine.name);
        let finding = match &self.settings.exist_compiler_path {
            None if !engine.compiles => Finding::unplaced(format!(
                "{role} `{name}` accepts only compiled files, not an ONNX file (engine `{own}`)"
            ))
            .with_hint("set `exist_compiler_path` to a file that it wrote"),
            Some(_) if !engine.loads_compiled => {
                Finding::unplaced(format!("{role} `{name}` cannot load a compiled file (engine `{own}`)")).with_hint(
                    "it compiles in every run: set `exist_compiler_path: null`, or use an engine that loads this file",
                )
            }
            // A manifest names the files.
            Some(path) if !Manifest::has_manifest_name(path) && !engine.accepts_compiled_name(path) => {
                let (path, extensions) = (path.display(), list_extensions(engine));
                Finding::unplaced(format!("{role} `{name}` cannot load `{path}`: its compiled files are {extensions}"))
                    .with_hint("an ONNX file is given with `exist_onnx_path`; null compiles it in every run")
            }
            _ => return Ok(()),
        };
        // If nobody has set the path of the compiled file, what names the compiler has to change.
        let set_at = &self.case.settings["exist_compiler_path"].origin;
        Err(finding.at(if *set_at == Origin::Default { self.named_at.clone() } else { set_at.clone() }))
    }
}

/// Checks the version that the engine has on this machine against the one in its name.
pub(super) fn check_found_version(
    role: EngineRole,
    choice: &EngineChoice,
    found: Option<String>,
) -> Result<(), Finding> {
    let mismatch = found.and_then(|found| Some((choice.version_mismatch(&found)?.to_owned(), found)));
    let Some((required, found)) = mismatch else { return Ok(()) };
    let message = format!("{} `{}` requires version `{required}` (found: `{found}`)", role.name(), choice.name);
    Err(Finding::unplaced(message).with_hint(VERSION_HINT).on_machine())
}

fn list_extensions(engine: &EngineDescription) -> String {
    engine.compiled_extensions.iter().map(|extension| format!(".{extension}")).collect::<Vec<_>>().join(", ")
}

/// Checks the options of a choice by the description that a vendor's engine gives of itself.
pub(super) fn check_described_options(
    description: &EngineDescription,
    choice: &EngineChoice,
) -> Result<(), RefusedOption> {
    choice.options.iter().try_for_each(|(option, value)| {
        description.check_option(option, value).map_err(|reason| RefusedOption {
            option: option.clone(),
            message: format!("engine `{}`: option `{option}`: {reason}", description.name),
        })
    })
}
