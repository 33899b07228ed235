//! One script: read, compiled in its stage's sandbox, checked, and called.
//!
//! Knows no case.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use rhai::{AST, ASTNode, CallFnOptions, Dynamic, Engine, Expr, FnCallExpr, FuncArgs, Position, Scope, Stmt};

use crate::plan::Limits;

use super::error::{Names, ScriptError, Source, bare};
use super::nearest::nearest;
use super::sandbox::{self, Host, ScriptHost};
use super::stage::Stage;

/// Bytes of a script's file at most.
const FILE_BYTES: u64 = 1 << 20;

/// A compiled script with its engine.
pub(super) struct Compiled {
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
        let compiled = engine.compile(&source.text).map_err(|error| source.parsing(&error, stage.packages()));
        drop(counting);
        let script = Compiled { engine, ast: compiled?, source, host };
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
        let opening = format!("fn {name}");
        let found = self.source.text.lines().position(|line| line.trim_start().starts_with(&opening));
        let line = found.and_then(|line| u16::try_from(line + 1).ok());
        self.source.at(line.map_or(Position::NONE, |line| Position::new(line, 1)), reason)
    }

    /// Calls the script's function `name` on a fresh budget.
    ///
    /// `properties` are names that the arguments have, for the hint of an error.
    pub(super) fn call(
        &self,
        scope: &mut Scope<'static>,
        name: &str,
        arguments: impl FuncArgs,
        properties: impl FnOnce() -> Vec<String>,
    ) -> Result<Dynamic, ScriptError> {
        let counting = self.host.budget.start();
        let called = self.engine.call_fn_with_options(CallFnOptions::new(), scope, &self.ast, name, arguments);
        drop(counting);
        let called = match self.host.budget.ended() {
            Some(spent) if called.is_ok() => Err(spent.into()),
            _ => called,
        };
        called.map_err(|error| {
            let names = Names { functions: &|| self.functions(), properties: &properties(), place: self.host.place() };
            self.source.running(*error, &names)
        })
    }

    /// Signatures of every function that the script can call.
    fn functions(&self) -> Vec<String> {
        let own = self.ast.iter_functions().map(|f| format!("{}({})", f.name, f.params.join(", ")));
        self.engine.gen_fn_signatures(true).into_iter().chain(own).collect()
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
    let refused = |reason: String| Source::whole(file, reason);
    let size = std::fs::metadata(file).map_err(|error| refused(format!("cannot be read: {error}")))?.len();
    if size > FILE_BYTES {
        return Err(refused(format!("is {size} bytes long, a script has at most {FILE_BYTES}")));
    }
    let bytes = std::fs::read(file).map_err(|error| refused(format!("cannot be read: {error}")))?;
    String::from_utf8(bytes).map_err(|_| refused("is not UTF-8 text".to_owned()))
}
