//! One script: loading it into the sandbox of its stage, checking it, and calling its functions.
//!
//! Knows nothing about cases.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;
use rhai::{CallFnOptions, Dynamic, Engine, FuncArgs, Position, Scope};

use flagperf_core::limits::Limits;

use super::budget::Budget;
use super::config_keys::{ConfigReads, ScriptTree, find_config_reads};
use super::error::{KnownNames, ScriptError, Sources, UNKNOWN_PROPERTY, file_error};
use super::names::{CallableFunctions, calls};
use super::sandbox::{Fallible, HostServices, ScriptState};
use super::shared::{LoadedScript, Loader, log_name, shared_file, ungranted_reason};
use super::stack::RunningScript;
use super::stage::Stage;
use super::suggestion::{Suggestion, suggestion};

/// The packages granted to dataloader.rhai whose functions describe no source of samples.
const OTHER_PACKAGES: [&str; 2] = ["image", "log"];

/// A compiled script with its engine.
pub(super) struct CompiledScript {
    stage: Stage,
    engine: Engine,
    tree: ScriptTree,
    /// The shared scripts that it imports, also through others.
    shared: IndexMap<String, ScriptTree>,
    callable: CallableFunctions,
    sources: Sources,
    pub(super) state: Arc<ScriptState>,
}

/// Where the script of a stage lies.
pub(super) enum ScriptPlace<'p> {
    /// In the folder of the case or of a vendor.
    Own(&'p Path),
    /// In `lib`: the name of a shared script.
    Shared(&'p str),
}

impl CompiledScript {
    /// Reads and compiles a script with everything that it imports, and checks that every function it calls exists and
    /// that it defines the functions of its stage. `scripts` is the folder that contains `lib`.
    pub(super) fn load(
        stage: Stage,
        scripts: &Path,
        place: &ScriptPlace<'_>,
        limits: Limits,
        services: HostServices,
    ) -> Result<Self, ScriptError> {
        let file = match place {
            ScriptPlace::Own(file) => (*file).to_owned(),
            ScriptPlace::Shared(name) => shared_file(scripts, name),
        };
        let mut loader = Loader::open(stage, scripts, &file, limits, services)?;
        let loaded = match place {
            ScriptPlace::Own(_) => loader.load_own()?,
            ScriptPlace::Shared(name) => loader.load_shared(name)?,
        };
        let imported = loader.sources.iter().skip(1).map(|source| (source.lines_before, log_name(&source.file)));
        loader.state.imported.get_or_init(|| imported.collect());
        let LoadedScript { tree, callable, ungranted } = loaded;
        let Loader { engine, state, sources, shared, .. } = loader;
        let script = CompiledScript { stage, engine, tree, shared, callable, sources, state };
        script.check_stage_functions(|name| Some(ungranted_reason(name, ungranted.get(name)?, stage)))?;
        Ok(script)
    }

    /// Returns whether the script defines the function `name`.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.tree.ast.iter_functions().any(|function| function.name == name)
    }

    /// Returns whether the script defines the function `name` with `arity` parameters.
    pub(super) fn defines_with(&self, name: &str, arity: usize) -> bool {
        self.tree.ast.iter_functions().any(|function| function.name == name && function.params.len() == arity)
    }

    /// Returns the keys of `config` that the functions of the stage read.
    pub(super) fn config_reads(&self) -> ConfigReads {
        let mut all = ConfigReads::default();
        for function in self.stage.functions() {
            let own =
                self.tree.ast.iter_functions().filter(|own| own.name == function.name).map(|own| own.params.len());
            for (arity, index) in own.filter_map(|arity| Some((arity, function.config_index(arity)?))) {
                let ConfigReads { keys, may_read_any } =
                    find_config_reads(&self.tree, &self.shared, (function.name, arity, index));
                all.keys.extend(keys);
                all.may_read_any |= may_read_any;
            }
        }
        all
    }

    /// Returns the keys of `config` that the script reads although they are not among the `known` ones, each with an
    /// error at its position. There are none if the script may set keys itself.
    pub(super) fn unset_keys(&self, known: &[&str]) -> Vec<(String, ScriptError)> {
        let ConfigReads { keys, may_read_any } = self.config_reads();
        let unset = keys.into_iter().filter(|(key, _)| !may_read_any && !known.contains(&key.as_str()));
        let error = |(key, position): (String, Position)| {
            let suggestion = suggestion(&key, known.iter().copied());
            let is_strange_property = !matches!(suggestion, Suggestion::Near(_));
            let error = self.sources.error_at(position, format!("{UNKNOWN_PROPERTY} `{key}`{suggestion}"));
            (key, ScriptError { is_strange_property, ..error })
        };
        unset.map(error).collect()
    }

    /// Returns an error at the definition of the script's function `name`.
    pub(super) fn function_error(&self, name: &str, reason: impl Into<String>) -> ScriptError {
        self.sources.error_at(self.sources.main().function_position(name), reason)
    }

    /// Returns an error at the latest call of a function of the package `data`, in this script or in a shared one, which names the
    /// call of this script then, too; without such a call, at the definition of the function `name`.
    pub(super) fn error_at_source(&self, name: &str, reason: impl Into<String>) -> ScriptError {
        let place = |position: Position| (position.line().unwrap_or(0), position.position().unwrap_or(0));
        let last = place(self.state.last_call());
        let describes =
            |name: &str| name.split_once("::").is_some_and(|(package, _)| !OTHER_PACKAGES.contains(&package));
        let mut calls: Vec<Position> = calls(&self.tree.ast)
            .into_iter()
            .filter(|(name, _)| describes(name))
            .map(|(_, position)| position)
            .collect();
        calls.sort_by_key(|position| place(*position));
        let before = calls.iter().rev().find(|position| place(**position) <= last).or(calls.first());
        let own = before.copied().unwrap_or_else(|| self.sources.main().function_position(name));
        let is_of_package = |name: &str| {
            name.split_once("::").is_some_and(|(package, _)| {
                self.stage.packages().contains(&package) && !OTHER_PACKAGES.contains(&package)
            })
        };
        // The lines of shared scripts follow those of this one.
        let main = self.sources.main().text.lines().count();
        let shared = self.shared.values().flat_map(|tree| super::names::calls(&tree.ast));
        let shared = shared.filter(|(name, position)| is_of_package(name) && place(*position) <= last);
        let describing = shared.map(|(_, position)| position).max_by_key(|position| place(*position));
        match describing.filter(|_| last.0 > main) {
            Some(position) => {
                let ScriptError { file, line, .. } = self.sources.error_at(own, "");
                ScriptError { called_from: vec![(file, line)], ..self.sources.error_at(position, reason) }
            }
            None => self.sources.error_at(own, reason),
        }
    }

    /// Calls the script's function `name` with a fresh budget and returns its return value converted by `convert`.
    ///
    /// `arguments` are created and the return value is dropped while the script's memory is counted, so that the
    /// remainder is what the script keeps. `properties` returns the property names of the arguments, for suggestions in
    /// errors.
    pub(super) fn call<A: FuncArgs, T>(
        &self,
        scope: &mut Scope<'static>,
        name: &str,
        arguments: impl FnOnce() -> A,
        properties: impl FnOnce() -> Vec<String>,
        convert: impl FnOnce(&Dynamic) -> Result<T, String>,
    ) -> Result<T, ScriptError> {
        self.state.clear_last_call();
        let _running = RunningScript::begin(&self.state);
        let memory_scope = self.state.budget.start();
        let called = catch_unwind(AssertUnwindSafe(|| -> Fallible<Result<T, String>> {
            let options = CallFnOptions::new();
            let returned: Dynamic =
                self.engine.call_fn_with_options(options, scope, &self.tree.ast, name, arguments())?;
            let converted = Budget::uncounted(|| convert(&returned));
            drop(returned);
            Ok(converted)
        }));
        if self.stage.is_every_step() {
            self.state.budget.record_leak();
        }
        drop(memory_scope);
        let position = || {
            let last_call = Some(self.state.last_call()).filter(|position| !position.is_none());
            last_call.unwrap_or_else(|| self.sources.main().function_position(name))
        };
        let called = called.map_err(|panic| self.sources.panic_error(position(), &*panic))?;
        let called = match self.state.budget.exceeded() {
            Some(exceeded) if called.is_ok() => Err(exceeded.into()),
            _ => called,
        };
        let converted = called.map_err(|error| {
            let names = KnownNames {
                functions: &|| self.callable.signatures.clone(),
                calls: &|| self.trees().flat_map(|tree| calls(&tree.ast)).collect(),
                properties: &properties(),
                last_call: position(),
            };
            self.sources.runtime_error(*error, &names)
        })?;
        converted.map_err(|reason| self.returned_error(name, reason))
    }

    /// Returns the syntax trees of the script and of those that it imports.
    fn trees(&self) -> impl Iterator<Item = &ScriptTree> {
        std::iter::once(&self.tree).chain(self.shared.values())
    }

    /// Returns an error about the value that the function `name` returned: at the shared function whose value it is if its last
    /// call is one, and otherwise at its own definition.
    fn returned_error(&self, name: &str, reason: String) -> ScriptError {
        let mut own = self.tree.ast.clone();
        own.clear_statements().retain_functions(|_, _, function, _| function == name);
        let last = calls(&own).into_iter().max_by_key(|(_, position)| (position.line(), position.position()));
        let shared = last.as_ref().and_then(|(called, position)| {
            let (alias, function) = called.split_once("::")?;
            let file = shared_file(Path::new(""), self.tree.imports.get(alias)?);
            let source = self.sources.iter().find(|source| source.file.ends_with(&file))?;
            Some((source.function_position(function), *position))
        });
        match shared {
            Some((defined, called)) if !defined.is_none() => {
                let ScriptError { file, line, .. } = self.sources.error_at(called, "");
                ScriptError { called_from: vec![(file, line)], ..self.sources.error_at(defined, reason) }
            }
            _ => self.function_error(name, reason),
        }
    }

    /// Returns the functions that neither the host nor the script calls.
    fn unused_functions(&self) -> impl Iterator<Item = &str> {
        let called: HashSet<String> = calls(&self.tree.ast).into_iter().map(|(name, _)| name).collect();
        let is_of_stage = |name: &str| self.stage.functions().iter().any(|function| function.name == name);
        let defined = self.tree.ast.iter_functions().map(|function| function.name);
        defined.filter(move |name| !is_of_stage(name) && !called.contains(*name))
    }

    /// Checks that the script defines the functions of its stage, with the expected number of parameters.
    /// `ungranted` explains why a function was left out.
    fn check_stage_functions(&self, ungranted: impl Fn(&str) -> Option<String>) -> Result<(), ScriptError> {
        for function in self.stage.functions() {
            let arities: Vec<usize> =
                self.tree.ast.iter_functions().filter(|f| f.name == function.name).map(|f| f.params.len()).collect();
            let expected = function.signature();
            if arities.is_empty() && !function.required {
                if let Some(near) = flagperf_config::nearest(function.name, self.unused_functions()) {
                    let reason = format!("the host does not call `{near}`; did you mean `fn {expected}`?");
                    return Err(self.function_error(near, reason));
                }
                continue;
            }
            if arities.iter().any(|arity| function.accepts(*arity)) {
                continue;
            }
            return Err(match arities.first() {
                Some(actual) => {
                    let parameters = if *actual == 1 { "parameter" } else { "parameters" };
                    let reason = format!("`{}` has {actual} {parameters}, expected `fn {expected}`", function.name);
                    self.function_error(function.name, reason)
                }
                None => {
                    let near = suggestion(function.name, self.tree.ast.iter_functions().map(|f| f.name));
                    let near = if let Suggestion::Near(_) = near { near } else { Suggestion::Nothing };
                    let missing = || format!("the function `{expected}` is missing{near}");
                    file_error(&self.sources.main().file, ungranted(function.name).unwrap_or_else(missing))
                }
            });
        }
        // The functions of the case stay: a vendor's optimizer or schedule would be another training.
        if let (Stage::TrainingAdapter, Some(unused)) = (self.stage, self.unused_functions().next()) {
            let known: Vec<_> =
                self.stage.functions().iter().map(|known| format!("`fn {}`", known.signature())).collect();
            let known = known.join(" and ");
            return Err(
                self.function_error(unused, format!("the host does not call `{unused}` of a vendor, only {known}"))
            );
        }
        Ok(())
    }
}
