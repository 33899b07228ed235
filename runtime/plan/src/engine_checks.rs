//! Checks an engine by its description before anything runs: the role, the files, the precision, the version, the
//! options.
//!
//! An engine that a selected case uses and that does not work on this machine is an error of the plan, even if a vendor
//! brings it: otherwise the run would fail only after minutes of validation.

use flagperf_onnx::OPSET;

use super::{CaseSettings, EngineChoice, Manifest, PlanProblem, RefusedOption};
use flagperf_config::{CaseConfig, Finding, Origin, list_names};
use flagperf_core::description::EngineDescription;
use flagperf_core::precision::Precision;
use flagperf_core::step::{EngineRole, Phase};

/// Checks that an engine can run a phase with the settings of a case.
pub(super) fn check_engine(
    phase: Phase,
    name: &str,
    engine: &EngineDescription,
    settings: &CaseSettings,
) -> Result<(), PlanProblem> {
    let role = phase.role();
    if !engine.roles.includes(role) {
        return Err(PlanProblem::UnsupportedRole { role: role.name(), engine: engine.name.to_owned() });
    }
    check_artifact(role, name, engine, settings)?;
    let requested = settings.precision_of(phase);
    if !engine.supports(requested) {
        let supported = list_names(engine.supported_precisions().map(Precision::name));
        let (name, chosen) = (name.to_owned(), String::new());
        return Err(PlanProblem::Precision { role: role.name(), name, requested, supported, chosen });
    }
    Ok(())
}

/// Returns the error about a precision that an engine does not compute in, at the line that requests it. `chosen_at` is
/// where the case names the engine.
pub(super) fn precision_error(problem: PlanProblem, case: &CaseConfig, chosen_at: &Origin) -> Finding {
    let origin = case.settings["precision"].origin.clone();
    let problem = match problem {
        PlanProblem::Precision { role, name, requested, supported, .. } => {
            let chosen = format!("; case `{}` names it in {chosen_at}", case.key.value.case);
            PlanProblem::Precision { role, name, requested, supported, chosen }
        }
        other => other,
    };
    let finding = Finding::error(origin.clone(), problem);
    match origin {
        Origin::CommandLine(argument) => {
            Finding { hint: format!("delete `{argument}`, or request a supported precision"), ..finding }
        }
        _ => finding,
    }
}

/// Checks the version that the engine has on this machine against the one in its name.
pub(super) fn check_found_version(
    role: EngineRole,
    choice: &EngineChoice,
    found: Option<String>,
) -> Result<(), PlanProblem> {
    let mismatch = found.and_then(|found| Some((choice.version_mismatch(&found)?.to_owned(), found)));
    let Some((required, found)) = mismatch else { return Ok(()) };
    Err(PlanProblem::EngineVersion { role: role.name(), name: choice.name.clone(), required, found })
}

/// Checks that a vendor's engine knows the operators of which the case's script builds the model. A file that exists
/// already may be older.
pub(super) fn check_operator_set(
    role: EngineRole,
    name: &str,
    engine: &EngineDescription,
    settings: &CaseSettings,
) -> Result<(), PlanProblem> {
    let is_built = match role {
        EngineRole::Framework => true,
        EngineRole::Compiler => settings.exist_onnx_path.is_none() && settings.exist_compiler_path.is_none(),
    };
    if !is_built || engine.opset_max >= OPSET {
        return Ok(());
    }
    Err(PlanProblem::OldOperatorSet { role: role.name(), name: name.to_owned(), opset_max: engine.opset_max })
}

/// Checks that a compiler accepts the kind of file that the settings give it.
fn check_artifact(
    role: EngineRole,
    name: &str,
    engine: &EngineDescription,
    settings: &CaseSettings,
) -> Result<(), PlanProblem> {
    if role == EngineRole::Framework {
        return Ok(());
    }
    let (name, own) = (name.to_owned(), engine.name.to_owned());
    match &settings.exist_compiler_path {
        None if !engine.compiles => Err(PlanProblem::OnlyCompiledFiles { role: role.name(), name, engine: own }),
        Some(_) if !engine.loads_compiled => {
            Err(PlanProblem::CompiledFileNotLoaded { role: role.name(), name, engine: own })
        }
        // A manifest names the files.
        Some(path) if !Manifest::has_manifest_name(path) && !engine.accepts_compiled_name(path) => {
            let (path, extensions) = (path.clone(), list_extensions(engine));
            Err(PlanProblem::CompiledFileOfAnotherKind { role: role.name(), name, path, extensions })
        }
        _ => Ok(()),
    }
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
