//! Resolves the names of frameworks and compilers to engines and their options.

use std::path::PathBuf;

use indexmap::IndexMap;
use serde_json::Value;

use super::class_keys::class_file;
use super::engine_checks::{
    check_described_options, check_engine, check_found_version, check_operator_set, precision_error,
};
use super::problem::{PLUGIN, SIDECAR};
use super::{
    CaseSettings, Catalogue, EngineChoice, EngineOnMachine, Job, PlanProblem, Preparation, RefusedOption,
    UnavailableEngine,
};
use flagperf_config::{
    CaseConfig, EngineEntry, Finding, Origin, Sourced, THREADS_MAX, Vendor, list_names, nearest, option_of_entry,
};
use flagperf_core::description::{Delivery, EngineDescription, TF32_OPTION};
use flagperf_core::precision::Precision;
use flagperf_core::step::{EngineRole, Phase};

/// Returns the vendor's entry for the engine that the case names, the name, and the origin of the name.
fn find_entry<'v>(
    role: EngineRole,
    vendor: &'v Vendor,
    case: &CaseConfig,
) -> (Option<&'v EngineEntry>, String, Origin) {
    match role {
        EngineRole::Framework => {
            let key = &case.key;
            (vendor.framework(&key.value).map(|(_, entry)| entry), key.value.framework.clone(), key.origin.clone())
        }
        EngineRole::Compiler => {
            let compiler = &case.settings["compiler"];
            let name = compiler.value.as_str().unwrap_or_default();
            (vendor.compilers.get(name), name.to_owned(), compiler.origin.clone())
        }
    }
}

/// Returns the section of vendor.yaml that lists the engines of a role, and its entries.
const fn section(role: EngineRole, vendor: &Vendor) -> (&'static str, &IndexMap<String, EngineEntry>) {
    match role {
        EngineRole::Framework => ("frameworks", &vendor.frameworks),
        EngineRole::Compiler => ("compilers", &vendor.compilers),
    }
}

/// Returns the key of an entry. It may differ from the name in the case, which may contain a version.
fn entry_key<'v>(role: EngineRole, vendor: &'v Vendor, entry: &EngineEntry) -> &'v str {
    let (_, entries) = section(role, vendor);
    entries.iter().find(|(_, known)| std::ptr::eq(*known, entry)).map_or("", |(key, _)| key)
}

/// Returns the position of a field of an entry in vendor.yaml.
fn field_origin(role: EngineRole, vendor: &Vendor, entry: &EngineEntry, field: &str) -> Origin {
    vendor.origin(&[section(role, vendor).0, entry_key(role, vendor, entry), field])
}

/// Returns the position of an option of an entry in vendor.yaml.
fn option_origin(role: EngineRole, vendor: &Vendor, entry: &EngineEntry, option: &str) -> Origin {
    vendor.origin(&[section(role, vendor).0, entry_key(role, vendor, entry), "options", option])
}

/// Returns the version in the name of a framework that vendor.yaml lists without a version.
fn named_version(role: EngineRole, vendor: &Vendor, case: &CaseConfig) -> Option<String> {
    let key = &case.key.value;
    let (listed, _) = vendor.framework(key).filter(|_| role == EngineRole::Framework)?;
    Some(key.framework.strip_prefix(listed.as_str())?.strip_prefix('_')?.to_owned())
}

/// Returns the names of the vendor's engines for a role.
fn engine_names(role: EngineRole, vendor: &Vendor) -> impl Iterator<Item = &str> {
    section(role, vendor).1.keys().map(String::as_str)
}

/// Chooses the engine for one phase of a case, with its options.
pub(super) fn choose_engine(
    phase: Phase,
    vendor: &Vendor,
    case: &CaseConfig,
    settings: &CaseSettings,
    catalogue: &Catalogue,
    preparation: &Preparation,
) -> Result<EngineChoice, Finding> {
    let role = phase.role();
    let (entry, name, origin) = find_entry(role, vendor, case);
    let Some(entry) = entry else {
        let problem = PlanProblem::UnknownEngineName {
            vendor: vendor.name.clone(),
            role: role.name(),
            known: list_names(engine_names(role, vendor)),
            nearest: nearest(&name, engine_names(role, vendor)).map(str::to_owned),
            name,
        };
        return Err(Finding::error(origin, problem));
    };
    let engine_error = |problem| match problem {
        PlanProblem::EngineNotInBuild { .. } => Finding::error(field_origin(role, vendor, entry, "engine"), problem),
        // What the vendor brings does not work: its entry says what was loaded or started.
        PlanProblem::EngineUnavailable { .. } if !entry.command.is_empty() => {
            Finding::error(field_origin(role, vendor, entry, "command"), problem)
        }
        PlanProblem::EngineUnavailable { .. } if entry.library.is_some() => {
            Finding::error(field_origin(role, vendor, entry, "library"), problem)
        }
        PlanProblem::Precision { .. } => precision_error(problem, case, &origin),
        PlanProblem::CompiledFileNotLoaded { .. }
        | PlanProblem::CompiledFileOfAnotherKind { .. }
        | PlanProblem::OnlyCompiledFiles { .. } => {
            // Nobody has set the path of the compiled file: what names the compiler has to change.
            let set_at = &case.settings["exist_compiler_path"].origin;
            Finding::error(if *set_at == Origin::Default { origin.clone() } else { set_at.clone() }, problem)
        }
        _ => Finding::error(origin.clone(), problem),
    };
    let engine = find_engine(role, &name, entry, catalogue).map_err(engine_error)?;
    check_engine(phase, &name, engine, settings).map_err(engine_error)?;
    let library = choose_library(role, &name, entry, vendor, catalogue)?;
    check_command(role, &name, entry, vendor, catalogue)?;
    let delivery = engine.delivery;
    let entry_name = entry_key(role, vendor, entry);
    // An error about an option is placed at the value that wins: the case's own, or else that in vendor.yaml.
    let place_at_option = |option: &str, problem| {
        let defined = || option_origin(role, vendor, entry, option);
        let origin = own_value(case, entry_name, option).map_or_else(defined, |set| set.origin.clone());
        Finding::error(origin, problem)
    };
    let mut options = merge_options(entry_name, entry, case, delivery == Delivery::Command);
    let threads = match options.shift_remove("threads") {
        None | Some(Value::Null) => 0,
        Some(value) => parse_thread_count(&value)
            .ok_or_else(|| place_at_option("threads", PlanProblem::Threads { value: value.to_string() }))?,
    };
    let precision = settings.precision_of(phase);
    if options.contains_key(TF32_OPTION) {
        return Err(place_at_option(TF32_OPTION, PlanProblem::Tf32Option));
    }
    if precision == Precision::Tf32 {
        options.insert(TF32_OPTION.to_owned(), Value::Bool(true));
    }
    let EngineEntry { engine, command, .. } = entry.clone();
    let version = named_version(role, vendor, case);
    let folder = vendor.folder.clone();
    let choice = EngineChoice { name, version, engine, folder, library, command, threads, options };
    let option_error =
        |RefusedOption { option, message }| place_at_option(&option, PlanProblem::EngineOption { message });
    (catalogue.check_options)(&choice, precision.dtype()).map_err(option_error)?;
    let describe = |choice| match preparation.can_query_engine(delivery) {
        true => (catalogue.describe)(choice),
        false => Ok(EngineOnMachine::default()),
    };
    let found = describe(&choice).map_err(|UnavailableEngine { reason, remedy }| {
        let name = choice.name.clone();
        engine_error(PlanProblem::EngineUnavailable { role: role.name(), name, reason, remedy })
    })?;
    check_found_version(role, &choice, found.version).map_err(engine_error)?;
    if let Some(description) = found.description {
        check_engine(phase, &choice.name, &description, settings).map_err(engine_error)?;
        check_operator_set(role, &choice.name, &description, settings).map_err(engine_error)?;
        check_described_options(&description, &choice).map_err(option_error)?;
    }
    Ok(choice)
}

fn parse_thread_count(value: &Value) -> Option<u32> {
    value.as_u64().filter(|threads| *threads <= THREADS_MAX).and_then(|threads| u32::try_from(threads).ok())
}

/// Returns the row of the table of engines that an entry of vendor.yaml names.
fn find_engine<'c>(
    role: EngineRole,
    name: &str,
    entry: &EngineEntry,
    catalogue: &'c Catalogue,
) -> Result<&'c EngineDescription, PlanProblem> {
    let names = || catalogue.engines.iter().map(|engine| engine.name);
    catalogue.engine(&entry.engine).ok_or_else(|| PlanProblem::EngineNotInBuild {
        role: role.name(),
        name: name.to_owned(),
        engine: entry.engine.clone(),
        known: list_names(names()),
        nearest: nearest(&entry.engine, names()).map(str::to_owned),
    })
}

/// Returns the path of a plug-in's library, which must exist; `None` for an engine that is not a plug-in.
fn choose_library(
    role: EngineRole,
    name: &str,
    entry: &EngineEntry,
    vendor: &Vendor,
    catalogue: &Catalogue,
) -> Result<Option<PathBuf>, Finding> {
    let (name, engine) = (name.to_owned(), entry.engine.clone());
    let accepts_library = catalogue.engine(&engine).is_some_and(|engine| engine.delivery == Delivery::Library);
    let backend = entry.backend().map(|backend| (backend.to_owned(), catalogue.backend(backend)));
    let problem = match (&entry.library, accepts_library) {
        (None, true) => PlanProblem::NoLibrary { role: role.name(), name, engine },
        (Some(_), false) => PlanProblem::LibraryNotAccepted { role: role.name(), name, engine },
        (Some(library), true) => match backend {
            Some((_, Some(Some(installed)))) => return Ok(Some(installed.clone())),
            Some((backend, Some(None))) => PlanProblem::NotInstalled { role: role.name(), name, backend },
            Some((backend, None)) => {
                let known = list_names(catalogue.backends.iter().map(|(name, _)| name.as_str()));
                PlanProblem::UnknownBackend { role: role.name(), name, backend, known }
            }
            None if (catalogue.exists)(&vendor.folder.join(library)) => return Ok(Some(library.clone())),
            None => PlanProblem::Missing { what: PLUGIN, path: vendor.folder.join(library) },
        },
        (None, false) => return Ok(None),
    };
    Err(Finding::error(field_origin(role, vendor, entry, "library"), problem))
}

/// Checks that a sidecar has a command whose files exist, and that any other engine has no command.
fn check_command(
    role: EngineRole,
    name: &str,
    entry: &EngineEntry,
    vendor: &Vendor,
    catalogue: &Catalogue,
) -> Result<(), Finding> {
    let (name, engine) = (name.to_owned(), entry.engine.clone());
    let accepts_command = catalogue.engine(&engine).is_some_and(|engine| engine.delivery == Delivery::Command);
    let mut files = command_files(&entry.command).map(|file| vendor.folder.join(file));
    let missing = files.find(|file| !(catalogue.exists)(file));
    let problem = match (entry.command.is_empty(), accepts_command, missing) {
        (true, true, _) => PlanProblem::NoCommand { role: role.name(), name, engine },
        (false, false, _) => PlanProblem::CommandNotAccepted { role: role.name(), name, engine },
        (false, true, Some(path)) => PlanProblem::Missing { what: SIDECAR, path },
        _ => return Ok(()),
    };
    Err(Finding::error(field_origin(role, vendor, entry, "command"), problem))
}

/// Returns the files of the vendor that a command is known to need: a program whose path contains a slash, and the file
/// that the adaptor runs.
fn command_files(command: &[String]) -> impl Iterator<Item = &str> {
    let program = command.first().filter(|program| program.contains('/'));
    program.map(String::as_str).into_iter().chain(class_file(command))
}

/// Returns a warning for each vendor option that is set although none of the case's engines accepts it.
pub(super) fn warn_of_unused_options(
    vendor: &Vendor,
    case: &CaseConfig,
    jobs: &[Job],
    catalogue: &Catalogue,
) -> Vec<Finding> {
    let set = case.vendor_values.iter().filter(|(key, own)| !own.value.is_null() && vendor.has_option(key));
    let uses_threads =
        |engine: &EngineChoice| catalogue.engine(&engine.engine).is_none_or(|described| described.uses_threads);
    let accepts = |engine: &EngineChoice, key: &str| {
        if key == "threads" { uses_threads(engine) } else { engine.options.contains_key(key) }
    };
    let is_accepted = |key: &str| {
        jobs.iter().map(|job| &job.engine).any(|engine| {
            let qualified = option_of_entry(key, engine.entry_name());
            accepts(engine, key) || qualified.is_some_and(|option| accepts(engine, option))
        })
    };
    let unused = set.filter(|(key, _)| !is_accepted(key));
    unused
        .map(|(key, own)| {
            let engines = list_names(jobs.iter().map(|job| job.engine.name.as_str()));
            Finding::warning(own.origin.clone(), PlanProblem::UnusedOption { option: key.clone(), engines })
        })
        .collect()
}

/// Merges the case's own values over the vendor's defaults. A null leaves the option to the engine and is left out, unless
/// `keeps_nulls`: a sidecar receives every option of its entry, because vendors' code reads all keys of FlagPerf's
/// `config`.
fn merge_options(
    entry_name: &str,
    entry: &EngineEntry,
    case: &CaseConfig,
    keeps_nulls: bool,
) -> IndexMap<String, Value> {
    let value = |key: &String, default: &Value| {
        own_value(case, entry_name, key).map_or_else(|| default.clone(), |own| own.value.clone())
    };
    let options = entry.options.iter().map(|(key, default)| (key.clone(), value(key, default)));
    let options = options.chain(unlisted_options(entry_name, entry, case));
    options.filter(|(_, value)| keeps_nulls || !value.is_null()).collect()
}

/// Iterates over the options that the case sets after the engine's name although the engine's entry does not list them.
fn unlisted_options<'c>(
    entry_name: &'c str,
    entry: &'c EngineEntry,
    case: &'c CaseConfig,
) -> impl Iterator<Item = (String, Value)> + use<'c> {
    case.vendor_values.iter().filter_map(move |(key, own)| {
        let option = option_of_entry(key, entry_name)?;
        (!entry.options.contains_key(option)).then(|| (option.to_owned(), own.value.clone()))
    })
}

/// Returns the case's own value of an engine's option: the one after the engine's name (`rten.threads`), or else the one
/// for all engines (`threads`).
fn own_value<'c>(case: &'c CaseConfig, entry_name: &str, option: &str) -> Option<&'c Sourced<Value>> {
    let qualified = case.vendor_values.get(&format!("{entry_name}.{option}"));
    qualified.or_else(|| case.vendor_values.get(option))
}
