//! Resolves the names of frameworks and compilers to engines and their options.

use std::path::PathBuf;

use indexmap::{IndexMap, IndexSet};
use serde_json::Value;

use super::catalogue::missing_file;
use super::class_keys::class_file;
use super::engine_checks::{EngineCheck, check_described_options, check_found_version};
use super::options::parse_thread_count;
use super::{
    CaseSettings, Catalogue, EngineChoice, EngineOnMachine, Job, Preparation, RefusedOption, UnavailableEngine,
};
use flagperf_config::{
    CaseConfig, EngineEntry, Finding, Origin, Sourced, Vendor, did_you_mean, list_names, nearest, option_of_entry,
};
use flagperf_core::description::{ConfigRead, Delivery, EngineDescription, OWN_STREAM_OPTION, TF32_OPTION};
use flagperf_core::precision::Precision;
use flagperf_core::process_group::PROCESS_GROUP_OPTION;
use flagperf_core::step::{EngineRole, Phase};

/// Engines of older versions, each with the one in its place: a vendor.yaml may be older.
const FORMER_ENGINES: [(&str, &str); 2] = [("candle", "interpreter"), ("tract", "rten")];

/// Returns the role of the engine of a phase. A training step is one graph, which a compiler can load as a file: the key of a
/// training may name a compiler.
fn role_of(phase: Phase, vendor: &Vendor, case: &CaseConfig) -> EngineRole {
    let key = &case.key.value;
    let names_compiler = vendor.framework(key).is_none() && vendor.compilers.contains_key(&key.framework);
    if phase == Phase::Train && names_compiler { EngineRole::Compiler } else { phase.role() }
}

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
        EngineRole::Compiler if case.key.value.training.is_some() => {
            let key = &case.key;
            (vendor.compilers.get(&key.value.framework), key.value.framework.clone(), key.origin.clone())
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
fn option_origin_in_vendor(role: EngineRole, vendor: &Vendor, entry: &EngineEntry, option: &str) -> Origin {
    vendor.origin(&[section(role, vendor).0, entry_key(role, vendor, entry), "options", option])
}

/// Returns the version in the name of a framework that vendor.yaml lists without a version.
fn named_version(role: EngineRole, vendor: &Vendor, case: &CaseConfig) -> Option<String> {
    let key = &case.key.value;
    let (listed, _) = vendor.framework(key).filter(|_| role == EngineRole::Framework)?;
    Some(key.framework.strip_prefix(listed.as_str())?.strip_prefix('_')?.to_owned())
}

/// Chooses the engine for one phase of a case, with its options. The keys of `config` that it is known to read are beside it.
pub(super) fn choose_engine(
    phase: Phase,
    vendor: &Vendor,
    case: &CaseConfig,
    settings: &CaseSettings,
    catalogue: &Catalogue,
    preparation: &Preparation,
) -> Result<(EngineRole, EngineChoice, Vec<ConfigRead>), Finding> {
    let role = role_of(phase, vendor, case);
    let (entry, name, origin) = find_entry(role, vendor, case);
    let Some(entry) = entry else {
        return Err(unknown_engine_name(phase, &name, vendor).at(origin));
    };
    let not_in_build = |finding: Finding| finding.at(field_origin(role, vendor, entry, "engine"));
    let engine = find_engine(role, &name, entry, catalogue).map_err(not_in_build)?;
    let check = EngineCheck { role, phase, name: &name, named_at: &origin, case, settings };
    check.accepts_case(engine)?;
    let library = choose_library(role, &name, entry, vendor, catalogue)?;
    check_command(role, &name, entry, vendor, catalogue)?;
    let delivery = engine.delivery;
    let entry_name = entry_key(role, vendor, entry);
    // An error about an option is placed at the value that wins: the case's own, or else that in vendor.yaml.
    let option_origin = |option: &str| {
        let defined = || option_origin_in_vendor(role, vendor, entry, option);
        own_value(case, entry_name, option).map_or_else(defined, |set| set.origin.clone())
    };
    let mut options = merge_options(entry_name, entry, case, delivery == Delivery::Command);
    let threads = match options.shift_remove("threads") {
        None | Some(Value::Null) => 0,
        Some(value) => parse_thread_count(&value).map_err(|refused| refused.at(option_origin("threads")))?,
    };
    let precision = settings.precision_of(phase);
    let of_host = [
        (TF32_OPTION, "`precision`", "delete the option, and set `precision: tf32`"),
        (OWN_STREAM_OPTION, "what a session is for", "delete the option"),
        (
            PROCESS_GROUP_OPTION,
            "the key of the case",
            "delete the option; `CASE:FRAMEWORK:HARDWARE:1:8:1` trains on 8 devices",
        ),
    ];
    if let Some((option, source, hint)) = of_host.into_iter().find(|(option, ..)| options.contains_key(*option)) {
        let message = format!("`{option}` cannot be set directly; it follows {source}");
        return Err(Finding::error(option_origin(option), message).with_hint(hint));
    }
    if precision == Precision::Tf32 {
        options.insert(TF32_OPTION.to_owned(), Value::Bool(true));
    }
    let EngineEntry { engine, command, .. } = entry.clone();
    let version = named_version(role, vendor, case);
    let folder = vendor.folder.clone();
    let choice = EngineChoice { name: name.clone(), version, engine, folder, library, command, threads, options };
    let option_error = |RefusedOption { option, message }| {
        let of_case = case.parameters.get(&option).filter(|_| !choice.options.contains_key(&option));
        Finding::error(of_case.map_or_else(|| option_origin(&option), |set| set.origin.clone()), message)
    };
    let values = case.values().map(|(key, set)| (key.clone(), set.value.clone())).collect();
    (catalogue.check_options)(&choice, precision.dtype(), &values).map_err(option_error)?;
    let describe = |choice| match preparation.can_query_engine(delivery) {
        true => (catalogue.describe)(choice),
        false => Ok(EngineOnMachine::default()),
    };
    let found = describe(&choice).map_err(|UnavailableEngine { reason, remedy }| {
        // If what the vendor brings does not work, its entry says what was loaded or started.
        let place = match entry {
            EngineEntry { command, .. } if !command.is_empty() => field_origin(role, vendor, entry, "command"),
            EngineEntry { library: Some(_), .. } => field_origin(role, vendor, entry, "library"),
            _ => origin.clone(),
        };
        let message = format!("{} `{name}` cannot be used on this machine: {reason}", role.name());
        Finding::error(place, message).with_hint(remedy).on_machine()
    })?;
    check_found_version(role, &choice, found.version).map_err(|finding| finding.at(origin.clone()))?;
    if let Some(description) = found.description {
        check.accepts_case(&description)?;
        check.knows_operators(&description)?;
        check_described_options(&description, &choice).map_err(option_error)?;
    }
    Ok((role, choice, found.config_reads))
}

fn unknown_engine_name(phase: Phase, name: &str, vendor: &Vendor) -> Finding {
    let of_role = |role| section(role, vendor).1.keys().map(String::as_str);
    let compilers = (phase == Phase::Train).then(|| of_role(EngineRole::Compiler)).into_iter().flatten();
    // A vendor may give both roles to an engine of one name.
    let names: IndexSet<&str> = of_role(phase.role()).chain(compilers).collect();
    let role_name = if phase == Phase::Train { "framework or compiler" } else { phase.role().name() };
    let (vendor_name, known) = (&vendor.name, list_names(names.iter().copied()));
    let otherwise = format!("the engines are listed in vendors/{vendor_name}/vendor.yaml");
    Finding::unplaced(format!("vendor `{vendor_name}` has no {role_name} `{name}` (known: {known})"))
        .with_hint(did_you_mean(nearest(name, names), &otherwise))
}

/// Returns the row of the table of engines that an entry of vendor.yaml names.
fn find_engine<'c>(
    role: EngineRole,
    name: &str,
    entry: &EngineEntry,
    catalogue: &'c Catalogue,
) -> Result<&'c EngineDescription, Finding> {
    let (role, engine) = (role.name(), &entry.engine);
    if let Some(found) = catalogue.engine(engine) {
        return Ok(found);
    }
    let names = || catalogue.engines.iter().map(|engine| engine.name);
    let message = format!(
        "{role} `{name}` needs engine `{engine}`, which this build does not contain (known: {})",
        list_names(names())
    );
    let hint = match FORMER_ENGINES.iter().find(|(former, _)| former == engine) {
        Some((_, now)) => format!("`{now}` took the place of engine `{engine}`: change `engine` in vendor.yaml"),
        None => did_you_mean(nearest(engine, names()), "`flagperf list engines` lists them"),
    };
    Err(Finding::unplaced(message).with_hint(hint))
}

/// Returns the path of a plug-in's library, which must exist; `None` for an engine that is not a plug-in.
fn choose_library(
    role: EngineRole,
    name: &str,
    entry: &EngineEntry,
    vendor: &Vendor,
    catalogue: &Catalogue,
) -> Result<Option<PathBuf>, Finding> {
    let (role_name, engine) = (role.name(), &entry.engine);
    let accepts_library = catalogue.engine(engine).is_some_and(|engine| engine.delivery == Delivery::Library);
    let backend = entry.backend().map(|backend| (backend, catalogue.backend(backend)));
    let finding = match (&entry.library, accepts_library) {
        (None, true) => {
            Finding::unplaced(format!("{role_name} `{name}` has no `library`, but engine `{engine}` needs one"))
                .with_hint("add, for example, `library: engines/libmychip.so` (relative to the vendor's folder)")
        }
        (Some(_), false) => Finding::unplaced(format!(
            "{role_name} `{name}` has a `library`, but engine `{engine}` does not accept one"
        ))
        .with_hint("only `engine: plugin` loads a library"),
        (Some(library), true) => match backend {
            Some((_, Some(Some(installed)))) => return Ok(Some(installed.clone())),
            Some((backend, Some(None))) => {
                Finding::unplaced(format!("{role_name} `{name}` needs backend `{backend}`, which is not installed"))
                    .with_hint(format!("run `flagperf backend install {backend}`"))
                    .on_machine()
            }
            Some((backend, None)) => {
                let known = list_names(catalogue.backends.iter().map(|(name, _)| name.as_str()));
                Finding::unplaced(format!(
                    "{role_name} `{name}` needs the unknown backend `{backend}` (known: {known})"
                ))
                .with_hint("`flagperf backend list` lists the backends")
            }
            None if (catalogue.exists)(&vendor.folder.join(library)) => return Ok(Some(library.clone())),
            None => missing_file("plug-in", &vendor.folder.join(library)).with_hint(
                "build it first: the README in the vendor's folder or the beginning of its source describes how",
            ),
        },
        (None, false) => return Ok(None),
    };
    Err(finding.at(field_origin(role, vendor, entry, "library")))
}

/// Checks that a sidecar has a command whose files exist, and that any other engine has no command.
fn check_command(
    role: EngineRole,
    name: &str,
    entry: &EngineEntry,
    vendor: &Vendor,
    catalogue: &Catalogue,
) -> Result<(), Finding> {
    let (role_name, engine) = (role.name(), &entry.engine);
    let accepts_command = catalogue.engine(engine).is_some_and(|engine| engine.delivery == Delivery::Command);
    let mut files = command_files(&entry.command).map(|file| vendor.folder.join(file));
    let missing = files.find(|file| !(catalogue.exists)(file));
    let finding = match (entry.command.is_empty(), accepts_command, missing) {
        (true, true, _) => {
            Finding::unplaced(format!("{role_name} `{name}` has no `command`, but engine `{engine}` needs one"))
                .with_hint("add one, for example `command: [python3, -m, flagperf_sidecar, engines/mine.py]`")
        }
        (false, false, _) => Finding::unplaced(format!(
            "{role_name} `{name}` has a `command`, but engine `{engine}` does not accept one"
        ))
        .with_hint("only `engine: sidecar` starts a command"),
        (false, true, Some(path)) => {
            missing_file("sidecar", &path).with_hint("paths in `command` are relative to the vendor's folder")
        }
        _ => return Ok(()),
    };
    Err(finding.at(field_origin(role, vendor, entry, "command")))
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
            let message = format!("option `{key}` has no effect: no engine of this case accepts it ({engines})");
            Finding::warning(own.origin.clone(), message)
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
