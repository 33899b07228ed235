//! Names of frameworks and compilers made into engines and their options.

use std::path::PathBuf;

use indexmap::IndexMap;
use serde_json::Value;

use super::problem::{PLUGIN, SIDECAR};
use super::{Catalogue, EngineChoice, Job, KnownEngine, PlanProblem, RefusedOption, Settings};
use crate::config::{CaseConfig, EngineEntry, Finding, Origin, THREADS_MAX, Vendor, known, nearest};

/// The module of Python that runs FlagPerf's engine classes: `python3 -m flagperf_sidecar FILE`.
const ADAPTOR: &str = "flagperf_sidecar";

/// The side of a case that an engine takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It validates.
    Framework,
    /// It infers.
    Compiler,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Role::Framework => "framework",
            Role::Compiler => "compiler",
        }
    }

    /// The vendor's entry by the name in the case, that name, and where it is said.
    fn entry<'v>(self, vendor: &'v Vendor, case: &CaseConfig) -> (Option<&'v EngineEntry>, String, Origin) {
        match self {
            Role::Framework => {
                let key = &case.key;
                (vendor.framework(&key.value).map(|(_, entry)| entry), key.value.framework.clone(), key.origin.clone())
            }
            Role::Compiler => {
                let compiler = &case.settings["compiler"];
                let name = compiler.value.as_str().unwrap_or_default();
                (vendor.compilers.get(name), name.to_owned(), compiler.origin.clone())
            }
        }
    }

    /// Where vendor.yaml says a field of an entry.
    fn origin(self, vendor: &Vendor, entry: &EngineEntry, field: &str) -> Origin {
        vendor.origin(&[self.side(), self.key(vendor, entry), field])
    }

    const fn side(self) -> &'static str {
        match self {
            Role::Framework => "frameworks",
            Role::Compiler => "compilers",
        }
    }

    /// The key of an entry: a framework may be asked for with a version that its key lacks.
    fn key<'v>(self, vendor: &'v Vendor, entry: &EngineEntry) -> &'v str {
        let entries = match self {
            Role::Framework => &vendor.frameworks,
            Role::Compiler => &vendor.compilers,
        };
        entries.iter().find(|(_, known)| std::ptr::eq(*known, entry)).map_or("", |(key, _)| key)
    }

    /// Where vendor.yaml says an option of an entry.
    fn origin_of_option(self, vendor: &Vendor, entry: &EngineEntry, option: &str) -> Origin {
        vendor.origin(&[self.side(), self.key(vendor, entry), "options", option])
    }

    /// The version in the name of a framework that the vendor lists without.
    fn version(self, vendor: &Vendor, case: &CaseConfig) -> Option<String> {
        let key = &case.key.value;
        let (listed, _) = vendor.framework(key).filter(|_| self == Role::Framework)?;
        Some(key.framework.strip_prefix(listed.as_str())?.strip_prefix('_')?.to_owned())
    }

    fn takes(self, engine: &KnownEngine) -> bool {
        match self {
            Role::Framework => engine.framework,
            Role::Compiler => engine.compiler,
        }
    }

    fn names(self, vendor: &Vendor) -> impl Iterator<Item = &str> {
        match self {
            Role::Framework => &vendor.frameworks,
            Role::Compiler => &vendor.compilers,
        }
        .keys()
        .map(String::as_str)
    }
}

/// The engine of a case on one side, with its options.
pub(super) fn choose_engine(
    role: Role,
    vendor: &Vendor,
    case: &CaseConfig,
    settings: &Settings,
    catalogue: &Catalogue,
) -> Result<EngineChoice, Finding> {
    let (entry, name, origin) = role.entry(vendor, case);
    let Some(entry) = entry else {
        let problem = PlanProblem::UnknownEngineName {
            vendor: vendor.name.clone(),
            role: role.name(),
            known: known(role.names(vendor)),
            nearest: nearest(&name, role.names(vendor)).map(str::to_owned),
            name,
        };
        return Err(Finding::error(origin, problem));
    };
    check_engine(role, &name, entry, settings, catalogue).map_err(|problem| match problem {
        PlanProblem::Precision { .. } => Finding::error(case.settings["fp16"].origin.clone(), problem),
        PlanProblem::CompiledUnused { .. } => {
            Finding::error(case.settings["exist_compiler_path"].origin.clone(), problem)
        }
        _ => Finding::error(origin, problem),
    })?;
    let library = library(role, &name, entry, vendor, catalogue)?;
    check_command(role, &name, entry, vendor, catalogue)?;
    let mut options = options(entry, case);
    let threads = match options.shift_remove("threads") {
        None => 0,
        Some(value) => thread_count(&value).ok_or_else(|| {
            let defined = || role.origin_of_option(vendor, entry, "threads");
            let origin = case.own.get("threads").map_or_else(defined, |own| own.origin.clone());
            Finding::error(origin, PlanProblem::Threads { value: value.to_string() })
        })?,
    };
    let EngineEntry { engine, command, .. } = entry.clone();
    let version = role.version(vendor, case);
    let folder = vendor.folder.clone();
    let choice = EngineChoice { name, version, engine, folder, library, command, threads, options };
    (catalogue.check_options)(&choice, settings.precision()).map_err(|RefusedOption { option, message }| {
        let defined = || role.origin_of_option(vendor, entry, &option);
        let origin = case.own.get(&option).map_or_else(defined, |own| own.origin.clone());
        Finding::error(origin, PlanProblem::EngineOption { message })
    })?;
    Ok(choice)
}

fn thread_count(value: &Value) -> Option<u32> {
    value.as_u64().filter(|threads| *threads <= THREADS_MAX).and_then(|threads| u32::try_from(threads).ok())
}

fn check_engine(
    role: Role,
    name: &str,
    entry: &EngineEntry,
    settings: &Settings,
    catalogue: &Catalogue,
) -> Result<(), PlanProblem> {
    let Some(engine) = catalogue.engine(&entry.engine) else {
        return Err(PlanProblem::EngineLacking {
            role: role.name(),
            name: name.to_owned(),
            engine: entry.engine.clone(),
            known: known(catalogue.engines.iter().map(|engine| engine.name.as_str())),
        });
    };
    if !role.takes(engine) {
        return Err(PlanProblem::EngineRole { role: role.name(), engine: engine.name.clone() });
    }
    let compiled = role == Role::Compiler && settings.exist_compiler_path.is_some();
    if compiled && !engine.takes_compiled {
        let (name, engine) = (name.to_owned(), engine.name.clone());
        return Err(PlanProblem::CompiledUnused { role: role.name(), name, engine });
    }
    let asked = settings.precision();
    if !engine.precisions.contains(&asked) {
        let has = known(engine.precisions.iter().map(|precision| precision.name()));
        return Err(PlanProblem::Precision { role: role.name(), name: name.to_owned(), asked, has });
    }
    Ok(())
}

/// The library that an engine is in: there if it needs one, none if it does not take any.
fn library(
    role: Role,
    name: &str,
    entry: &EngineEntry,
    vendor: &Vendor,
    catalogue: &Catalogue,
) -> Result<Option<PathBuf>, Finding> {
    let (name, engine) = (name.to_owned(), entry.engine.clone());
    let takes = catalogue.engine(&engine).is_some_and(|engine| engine.takes_library);
    let backend = entry.backend().map(|backend| (backend.to_owned(), catalogue.backend(backend)));
    let problem = match (&entry.library, takes) {
        (None, true) => PlanProblem::NoLibrary { role: role.name(), name, engine },
        (Some(_), false) => PlanProblem::LibraryUnused { role: role.name(), name, engine },
        (Some(library), true) => match backend {
            Some((_, Some(Some(installed)))) => return Ok(Some(installed.clone())),
            Some((backend, Some(None))) => PlanProblem::NotInstalled { role: role.name(), name, backend },
            Some((backend, None)) => {
                let known = known(catalogue.backends.iter().map(|(name, _)| name.as_str()));
                PlanProblem::UnknownBackend { role: role.name(), name, backend, known }
            }
            None if (catalogue.exists)(&vendor.folder.join(library)) => return Ok(Some(library.clone())),
            None => PlanProblem::Missing { what: PLUGIN, path: vendor.folder.join(library) },
        },
        (None, false) => return Ok(None),
    };
    Err(Finding::error(role.origin(vendor, entry, "library"), problem))
}

/// Whether an engine has the command that it needs, its files where they should be, and none that it does not take.
fn check_command(
    role: Role,
    name: &str,
    entry: &EngineEntry,
    vendor: &Vendor,
    catalogue: &Catalogue,
) -> Result<(), Finding> {
    let (name, engine) = (name.to_owned(), entry.engine.clone());
    let takes = catalogue.engine(&engine).is_some_and(|engine| engine.takes_command);
    let mut files = command_files(&entry.command).map(|file| vendor.folder.join(file));
    let missing = files.find(|file| !(catalogue.exists)(file));
    let problem = match (entry.command.is_empty(), takes, missing) {
        (true, true, _) => PlanProblem::NoCommand { role: role.name(), name, engine },
        (false, false, _) => PlanProblem::CommandUnused { role: role.name(), name, engine },
        (false, true, Some(path)) => PlanProblem::Missing { what: SIDECAR, path },
        _ => return Ok(()),
    };
    Err(Finding::error(role.origin(vendor, entry, "command"), problem))
}

/// The files of the vendor's that a command is known to need: a program with a slash, and what the adaptor is to run.
fn command_files(command: &[String]) -> impl Iterator<Item = &str> {
    let program = command.first().filter(|program| program.contains('/'));
    let adaptor = command.iter().position(|word| word == ADAPTOR).and_then(|at| command.get(at + 1));
    program.into_iter().chain(adaptor).map(String::as_str)
}

/// Options of the vendor's that are set although none of the engines chosen takes them.
pub(super) fn unused_options(vendor: &Vendor, case: &CaseConfig, jobs: &[Job]) -> Vec<Finding> {
    let set = case.own.iter().filter(|(key, own)| !own.value.is_null() && vendor.option_names().any(|o| o == *key));
    let taken = |key: &str| key == "threads" || jobs.iter().any(|job| job.engine.options.contains_key(key));
    let unused = set.filter(|(key, _)| !taken(key));
    unused
        .map(|(key, own)| {
            let engines = known(jobs.iter().map(|job| job.engine.name.as_str()));
            Finding::warning(own.origin.clone(), PlanProblem::UnusedOption { option: key.clone(), engines })
        })
        .collect()
}

/// The vendor's defaults under the case's own keys; null leaves an option to the engine.
fn options(entry: &EngineEntry, case: &CaseConfig) -> IndexMap<String, Value> {
    let value =
        |key: &String, default: &Value| case.own.get(key).map_or_else(|| default.clone(), |own| own.value.clone());
    let options = entry.options.iter().map(|(key, default)| (key.clone(), value(key, default)));
    options.filter(|(_, value)| !value.is_null()).collect()
}
