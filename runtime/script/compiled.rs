//! One script: reading it, compiling it in the sandbox of its stage, checking it, and calling its functions.
//!
//! Knows nothing about cases.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use rhai::{AST, ASTNode, CallFnOptions, Dynamic, Engine, Expr, FnCallExpr, FuncArgs, Position, Scope, Stmt};

use crate::plan::Limits;

use super::budget::Budget;
use super::error::{KnownNames, ScriptError, ScriptSource, function_name};
use super::sandbox::{self, Fallible, HostServices, ScriptState};
use super::stack::RunningScript;
use super::stage::Stage;
use super::suggestion::suggestion;

/// Largest size of a script in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A compiled script with its engine.
pub(super) struct CompiledScript {
    stage: Stage,
    engine: Engine,
    ast: AST,
    source: ScriptSource,
    pub(super) state: Arc<ScriptState>,
}

impl CompiledScript {
    /// Reads and compiles `file`, and checks that every function it calls exists and that it defines the functions of
    /// its stage.
    pub(super) fn load(stage: Stage, file: &Path, limits: Limits, services: HostServices) -> Result<Self, ScriptError> {
        let text = read_script(file)?;
        let name = file.iter().rev().take(2).map(|part| part.to_string_lossy()).collect::<Vec<_>>();
        let name = name.into_iter().rev().collect::<Vec<_>>().join("/");
        let (engine, state) = sandbox::build_engine(stage, limits, services, name);
        let source = ScriptSource { file: file.to_owned(), text };
        let memory_scope = state.budget.start();
        let running = RunningScript::begin(&state);
        let compiled = catch_unwind(AssertUnwindSafe(|| engine.compile(&source.text)));
        drop(running);
        drop(memory_scope);
        let compiled = compiled.map_err(|panic| source.panic_error(Position::NONE, &*panic))?;
        let ast = compiled.map_err(|error| match state.budget.exceeded() {
            Some(exceeded) => source.error_at(error.position(), exceeded.to_string()),
            None => source.parse_error(&error, stage.packages()),
        })?;
        let script = CompiledScript { stage, engine, ast, source, state };
        script.check_reserved_names()?;
        script.check_stage_functions(stage)?;
        script.check_calls()?;
        Ok(script)
    }

    /// Returns the text of the script.
    pub(super) fn text(&self) -> &str {
        &self.source.text
    }

    /// Returns whether the script defines the function `name`.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.ast.iter_functions().any(|function| function.name == name)
    }

    /// Returns an error at the definition of the script's function `name`.
    pub(super) fn function_error(&self, name: &str, reason: impl Into<String>) -> ScriptError {
        self.source.error_at(self.function_position(name), reason)
    }

    /// Returns the position where the script's function `name` is defined.
    fn function_position(&self, name: &str) -> Position {
        let opens = |line: &str| {
            let line = line.trim_start();
            let rest = line.strip_prefix("private").map_or(line, str::trim_start).strip_prefix("fn");
            // The name of a method for one type follows the type: `fn array.first_two()`.
            rest.and_then(|rest| rest.split('(').next()).is_some_and(|named| {
                named.starts_with(char::is_whitespace)
                    && named.rsplit(['.', ' ', '\t']).find(|w| !w.is_empty()) == Some(name)
            })
        };
        let found = self.source.text.lines().position(opens).and_then(|line| u16::try_from(line + 1).ok());
        found.map_or(Position::NONE, |line| Position::new(line, 1))
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
            let returned: Dynamic = self.engine.call_fn_with_options(options, scope, &self.ast, name, arguments())?;
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
            last_call.unwrap_or_else(|| self.function_position(name))
        };
        let called = called.map_err(|panic| self.source.panic_error(position(), &*panic))?;
        let called = match self.state.budget.exceeded() {
            Some(exceeded) if called.is_ok() => Err(exceeded.into()),
            _ => called,
        };
        let converted = called.map_err(|error| {
            let names =
                KnownNames { functions: &|| self.functions(), properties: &properties(), last_call: position() };
            self.source.runtime_error(*error, &names)
        })?;
        converted.map_err(|reason| self.function_error(name, reason))
    }

    /// Returns the signatures of all functions that the script can call.
    fn functions(&self) -> Vec<String> {
        let own = self.ast.iter_functions().map(|f| format!("{}({})", f.name, f.params.join(", ")));
        self.engine.gen_fn_signatures(true).into_iter().chain(own).collect()
    }

    /// Refuses functions that would shadow those granted to the stage: Rhai prefers a script's own functions.
    fn check_reserved_names(&self) -> Result<(), ScriptError> {
        let granted = self.engine.gen_fn_signatures(true);
        for function in self.ast.iter_functions() {
            let name = function.name;
            let package = self.stage.packages().iter().find(|package| {
                **package == name
                    || granted.iter().any(|f| function_name(f).split_once("::") == Some((**package, name)))
            });
            let what = match package {
                Some(package) if *package == name => "the name of a package".to_owned(),
                Some(package) => format!("a function of the package `{package}`"),
                None if granted.iter().any(|f| function_name(f) == name) => "a function of the language".to_owned(),
                None => continue,
            };
            let reason = format!("`{name}` is {what} and cannot be redefined: give the function another name");
            return Err(self.function_error(name, reason));
        }
        Ok(())
    }

    /// Checks that the script defines the functions of its stage, with the expected number of parameters.
    fn check_stage_functions(&self, stage: Stage) -> Result<(), ScriptError> {
        for function in stage.functions() {
            let arity = function.parameters.len();
            let arities: Vec<usize> =
                self.ast.iter_functions().filter(|f| f.name == function.name).map(|f| f.params.len()).collect();
            if arities.contains(&arity) || (arities.is_empty() && !function.required) {
                continue;
            }
            let expected = function.signature();
            return Err(match arities.first() {
                Some(actual) => {
                    let parameters = if *actual == 1 { "parameter" } else { "parameters" };
                    let reason = format!("`{}` has {actual} {parameters}, expected `fn {expected}`", function.name);
                    self.function_error(function.name, reason)
                }
                None => {
                    let near = suggestion(function.name, self.ast.iter_functions().map(|f| f.name));
                    let near = if near.starts_with(';') { near } else { String::new() };
                    ScriptSource::file_error(&self.source.file, format!("the function `{expected}` is missing{near}"))
                }
            });
        }
        Ok(())
    }

    /// Refuses calls of unknown functions, in every branch, before the script runs.
    fn check_calls(&self) -> Result<(), ScriptError> {
        let mut called = Vec::new();
        self.ast.walk(&mut |path| {
            called.extend(path.last().and_then(called_function));
            true
        });
        let known = self.functions();
        let names: HashSet<&str> = known.iter().map(|f| function_name(f)).collect();
        let methods: HashSet<&str> = names.iter().filter_map(|name| name.rsplit("::").next()).collect();
        match called.iter().find(|(name, _)| !names.contains(name.as_str()) && !methods.contains(name.as_str())) {
            Some((name, position)) => {
                let near = suggestion(name, names.iter().copied());
                Err(self.source.error_at(*position, format!("unknown function `{name}`{near}")))
            }
            None => Ok(()),
        }
    }
}

/// Functions that are part of the language and have no signature.
const KEYWORDS: [&str; 9] =
    ["print", "debug", "type_of", "Fn", "call", "curry", "is_shared", "is_def_var", "is_def_fn"];

/// Returns the name and the position of the function that a node calls; `None` for operators and [`KEYWORDS`].
fn called_function(node: &ASTNode<'_>) -> Option<(String, Position)> {
    let (call, position): (&FnCallExpr, Position) = match node {
        ASTNode::Expr(Expr::FnCall(call, position) | Expr::MethodCall(call, position)) => (call, *position),
        ASTNode::Stmt(Stmt::FnCall(call, position)) => (call, *position),
        _ => return None,
    };
    if call.is_operator_call() || KEYWORDS.contains(&call.name.as_str()) {
        return None;
    }
    let namespace: String = call.namespace.path.iter().map(|part| format!("{}::", part.name)).collect();
    Some((format!("{namespace}{}", call.name), position))
}

fn read_script(file: &Path) -> Result<String, ScriptError> {
    flagperf_onnx::read_regular_text(file, FILE_BYTES_MAX)
        .map_err(|error| ScriptSource::file_error(file, format!("cannot be read: {error}")))
}
