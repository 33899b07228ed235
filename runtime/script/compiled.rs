//! One script: read, compiled in its stage's sandbox, checked, and called.
//!
//! Knows no case.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use rhai::{AST, ASTNode, CallFnOptions, Dynamic, Engine, Expr, FnCallExpr, FuncArgs, Position, Scope, Stmt};

use crate::plan::Limits;

use super::budget::Budget;
use super::error::{Names, ScriptError, Source, bare};
use super::nearest::nearest;
use super::sandbox::{self, Fallible, Host, ScriptHost};
use super::stack::Running;
use super::stage::Stage;

/// Bytes of a script's file at most.
const FILE_BYTES: u64 = 1 << 20;

/// A compiled script with its engine.
pub(super) struct Compiled {
    stage: Stage,
    engine: Engine,
    ast: AST,
    source: Source,
    pub(super) host: Arc<Host>,
}

impl Compiled {
    /// Reads and compiles `file`; checks that every function it calls exists and that it has the stage's functions.
    pub(super) fn load(stage: Stage, file: &Path, limits: Limits, host: ScriptHost) -> Result<Self, ScriptError> {
        let text = read(file)?;
        let name = file.iter().rev().take(2).map(|part| part.to_string_lossy()).collect::<Vec<_>>();
        let name = name.into_iter().rev().collect::<Vec<_>>().join("/");
        let (engine, host) = sandbox::engine(stage, limits, host, name);
        let source = Source { file: file.to_owned(), text };
        let counting = host.budget.start();
        let running = Running::begin(&host);
        let compiled = catch_unwind(AssertUnwindSafe(|| engine.compile(&source.text)));
        drop(running);
        drop(counting);
        let compiled = compiled.map_err(|panic| source.panicked(Position::NONE, &*panic))?;
        let ast = compiled.map_err(|error| match host.budget.ended() {
            Some(spent) => source.at(error.position(), spent.to_string()),
            None => source.parsing(&error, stage.packages()),
        })?;
        let script = Compiled { stage, engine, ast, source, host };
        script.check_names()?;
        script.check_functions(stage)?;
        script.check_calls()?;
        Ok(script)
    }

    /// The script's text.
    pub(super) fn text(&self) -> &str {
        &self.source.text
    }

    /// Whether the script defines `name`.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.ast.iter_functions().any(|function| function.name == name)
    }

    /// An error at the script's function `name`.
    pub(super) fn error_at(&self, name: &str, reason: impl Into<String>) -> ScriptError {
        self.source.at(self.opening(name), reason)
    }

    /// Where the script's function `name` begins.
    fn opening(&self, name: &str) -> Position {
        let opens = |line: &str| {
            let line = line.trim_start();
            let rest = line.strip_prefix("private").map_or(line, str::trim_start).strip_prefix("fn");
            // A function for values of one type has the type before its name.
            rest.and_then(|rest| rest.split('(').next()).is_some_and(|named| {
                named.starts_with(char::is_whitespace)
                    && named.rsplit(['.', ' ', '\t']).find(|w| !w.is_empty()) == Some(name)
            })
        };
        let found = self.source.text.lines().position(opens).and_then(|line| u16::try_from(line + 1).ok());
        found.map_or(Position::NONE, |line| Position::new(line, 1))
    }

    /// Calls the script's function `name` on a fresh budget, and makes the host's value of what it returns with
    /// `convert`.
    ///
    /// `arguments` are made, and what the script returned is dropped, while the script's memory is counted, so that what
    /// remains is what the script keeps. `properties` are names that the arguments have, for the hint of an error.
    pub(super) fn call<A: FuncArgs, T>(
        &self,
        scope: &mut Scope<'static>,
        name: &str,
        arguments: impl FnOnce() -> A,
        properties: impl FnOnce() -> Vec<String>,
        convert: impl FnOnce(&Dynamic) -> Result<T, String>,
    ) -> Result<T, ScriptError> {
        self.host.forget_place();
        let _running = Running::begin(&self.host);
        let counting = self.host.budget.start();
        let called = catch_unwind(AssertUnwindSafe(|| -> Fallible<Result<T, String>> {
            let options = CallFnOptions::new();
            let returned: Dynamic = self.engine.call_fn_with_options(options, scope, &self.ast, name, arguments())?;
            let made = Budget::uncounted(|| convert(&returned));
            drop(returned);
            Ok(made)
        }));
        if self.stage.is_every_step() {
            self.host.budget.leave();
        }
        drop(counting);
        let known = || Some(self.host.place()).filter(|place| !place.is_none()).unwrap_or_else(|| self.opening(name));
        let called = called.map_err(|panic| self.source.panicked(known(), &*panic))?;
        let called = match self.host.budget.ended() {
            Some(spent) if called.is_ok() => Err(spent.into()),
            _ => called,
        };
        let made = called.map_err(|error| {
            let names = Names { functions: &|| self.functions(), properties: &properties(), place: known() };
            self.source.running(*error, &names)
        })?;
        made.map_err(|reason| self.error_at(name, reason))
    }

    /// Signatures of every function that the script can call.
    fn functions(&self) -> Vec<String> {
        let own = self.ast.iter_functions().map(|f| format!("{}({})", f.name, f.params.join(", ")));
        self.engine.gen_fn_signatures(true).into_iter().chain(own).collect()
    }

    /// Refuses functions that would take the place of those that the stage is granted: Rhai calls a script's own first.
    fn check_names(&self) -> Result<(), ScriptError> {
        let granted = self.engine.gen_fn_signatures(true);
        for function in self.ast.iter_functions() {
            let name = function.name;
            let package = self.stage.packages().iter().find(|package| {
                **package == name || granted.iter().any(|f| bare(f).split_once("::") == Some((**package, name)))
            });
            let what = match package {
                Some(package) if *package == name => "the name of a package".to_owned(),
                Some(package) => format!("a function of the package `{package}`"),
                None if granted.iter().any(|f| bare(f) == name) => "a function of the language".to_owned(),
                None => continue,
            };
            let reason =
                format!("`{name}` is {what}, and a script cannot take its place: give the function another name");
            return Err(self.error_at(name, reason));
        }
        Ok(())
    }

    fn check_functions(&self, stage: Stage) -> Result<(), ScriptError> {
        for function in stage.functions() {
            let arity = function.parameters.len();
            let own: Vec<usize> =
                self.ast.iter_functions().filter(|f| f.name == function.name).map(|f| f.params.len()).collect();
            if own.contains(&arity) || (own.is_empty() && !function.required) {
                continue;
            }
            let expected = function.signature();
            return Err(match own.first() {
                Some(has) => {
                    let reason = format!("`{}` has {has} parameters, expected `fn {expected}`", function.name);
                    self.error_at(function.name, reason)
                }
                None => {
                    let near = nearest(function.name, self.ast.iter_functions().map(|f| f.name));
                    let near = if near.starts_with(';') { near } else { String::new() };
                    Source::whole(&self.source.file, format!("the function `{expected}` is missing{near}"))
                }
            });
        }
        Ok(())
    }

    /// Finds calls of functions that nobody defines, in every branch, before the script runs.
    fn check_calls(&self) -> Result<(), ScriptError> {
        let mut called = Vec::new();
        self.ast.walk(&mut |path| {
            called.extend(path.last().and_then(call_in));
            true
        });
        let known = self.functions();
        let names: HashSet<&str> = known.iter().map(|f| bare(f)).collect();
        let methods: HashSet<&str> = names.iter().filter_map(|name| name.rsplit("::").next()).collect();
        match called.iter().find(|(name, _)| !names.contains(name.as_str()) && !methods.contains(name.as_str())) {
            Some((name, position)) => {
                let near = nearest(name, names.iter().copied());
                Err(self.source.at(*position, format!("unknown function `{name}`{near}")))
            }
            None => Ok(()),
        }
    }
}

/// Functions that are part of the language.
const KEYWORDS: [&str; 9] =
    ["print", "debug", "type_of", "Fn", "call", "curry", "is_shared", "is_def_var", "is_def_fn"];

/// The name of the function that a node calls, unless it is an operator or part of the language.
fn call_in(node: &ASTNode<'_>) -> Option<(String, Position)> {
    let (call, position): (&FnCallExpr, Position) = match node {
        ASTNode::Expr(Expr::FnCall(call, position) | Expr::MethodCall(call, position)) => (call, *position),
        ASTNode::Stmt(Stmt::FnCall(call, position)) => (call, *position),
        _ => return None,
    };
    if call.is_operator_call() || KEYWORDS.contains(&call.name.as_str()) {
        return None;
    }
    let space: String = call.namespace.path.iter().map(|part| format!("{}::", part.name)).collect();
    Some((format!("{space}{}", call.name), position))
}

fn read(file: &Path) -> Result<String, ScriptError> {
    flagperf_onnx::read_regular_text(file, FILE_BYTES)
        .map_err(|error| Source::whole(file, format!("cannot be read: {error}")))
}
