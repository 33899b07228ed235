//! Parses scripts as the sandbox does, and turns them into outlines.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use indexmap::IndexMap;
use rhai::{AST, ASTNode, Engine, Expr, Stmt};

use super::outline::{FunctionOutline, ScriptOutline, SyntaxNode};
use super::visit::{Closures, Visitor};
use crate::HostServices;
use crate::error::Sources;
use crate::packages;
use crate::sandbox::{ScriptState, build_engine};
use flagperf_core::limits::Limits;
use flagperf_core::measure::Clock;

/// The beginning of the names that the parser gives to closures.
const CLOSURE: &str = "anon$";

/// A script that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct SyntaxProblem {
    /// The line, from 1; 0 when unknown.
    pub line: usize,
    /// Lower-case description of the mistake.
    pub reason: String,
}

/// Parses any number of scripts with the settings and the limits of the sandbox.
pub struct ScriptParser {
    engine: Engine,
    state: Arc<ScriptState>,
}

impl ScriptParser {
    /// Creates a parser; `clock` limits the time of each script.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let services = HostServices { log: Arc::new(|_, _, _| {}), clock };
        let (engine, state) = build_engine(&packages::names(), Limits::default(), services, "script".to_owned());
        ScriptParser { engine, state }
    }

    /// Parses a script.
    ///
    /// # Errors
    /// When the text is no script, or exceeds a limit of the sandbox.
    pub fn parse(&self, text: &str) -> Result<ScriptOutline, SyntaxProblem> {
        let memory_scope = self.state.budget.start();
        let parsed = catch_unwind(AssertUnwindSafe(|| {
            let ast = self.engine.compile(text).map_err(|error| self.problem(text, &error))?;
            let too_deep = || SyntaxProblem { line: 0, reason: "expressions are nested too deeply".to_owned() };
            outline(&ast, text).ok_or_else(too_deep)
        }));
        drop(memory_scope);
        parsed.unwrap_or_else(|panic| {
            Err(SyntaxProblem {
                line: 0,
                reason: format!("the parser failed: {}", flagperf_core::panic::panic_text(&*panic)),
            })
        })
    }

    fn problem(&self, text: &str, error: &rhai::ParseError) -> SyntaxProblem {
        let line = error.position().line().unwrap_or(0);
        let reason = match self.state.budget.exceeded() {
            Some(exceeded) => exceeded.to_string(),
            None => Sources::new("script".as_ref(), text.to_owned()).parse_error(error, &packages::names()).reason,
        };
        SyntaxProblem { line, reason }
    }
}

/// Returns the outline of a parsed script; `None` if its expressions are nested too deeply.
fn outline(ast: &AST, text: &str) -> Option<ScriptOutline> {
    let closures = closures(ast);
    let mut outline = ScriptOutline::default();
    let statements = top_level(ast.clone().clear_functions(), &closures, &mut outline.imports)?;
    outline.statements = statements;
    for function in ast.iter_functions().filter(|function| !function.name.starts_with(CLOSURE)) {
        let mut body = ast.clone();
        body.clear_statements()
            .retain_functions(|_, _, name, arity| name == function.name && arity == function.params.len());
        let nodes = top_level(&body, &closures, &mut outline.imports)?;
        outline.functions.push(FunctionOutline {
            name: function.name.to_owned(),
            parameters: function.params.iter().map(|name| (*name).to_owned()).collect(),
            is_private: function.access == rhai::FnAccess::Private,
            line: line_of(text, function.name, nodes.first().map_or(0, |first| first.line)),
            nodes,
        });
    }
    outline.functions.sort_by_key(|function| function.line);
    Some(outline)
}

/// Returns the nodes of the statements of a script, or of its only function; `None` if they are nested too deeply.
fn top_level(ast: &AST, closures: &Closures, imports: &mut IndexMap<String, String>) -> Option<Vec<SyntaxNode>> {
    let mut visitor = Visitor::new(closures);
    ast.walk(&mut |path| {
        if let Some(ASTNode::Stmt(Stmt::Import(import, _))) = path.last()
            && let (Expr::StringConstant(name, _), alias) = &**import
        {
            imports.insert(alias.name.to_string(), name.to_string());
        }
        if let [ASTNode::Stmt(statement)] = path {
            visitor.statement(statement);
        }
        true
    });
    (!visitor.is_cut).then_some(visitor.nodes)
}

/// Returns the closures of a script by the names that the parser gave to them.
fn closures(ast: &AST) -> Closures {
    let mut closures = HashMap::new();
    for function in ast.iter_functions().filter(|function| function.name.starts_with(CLOSURE)) {
        let mut body = ast.clone();
        body.clear_statements().retain_functions(|_, _, name, _| name == function.name);
        let parameters = function.params.iter().map(|name| (*name).to_owned()).collect();
        closures.insert(function.name.to_owned(), (parameters, body));
    }
    closures
}

/// Returns the line on which a function is defined: the last one with `fn NAME(` that does not follow the first node of
/// its body, which is on line `first` (0 for an empty body).
fn line_of(text: &str, name: &str, first: usize) -> usize {
    let defines = |line: &str| {
        let after = line.split("fn ").skip(1).map(|rest| rest.trim_start());
        let mut names = after.filter_map(|rest| rest.strip_prefix(name));
        names.any(|rest| rest.trim_start().starts_with('('))
    };
    let lines = (1..).zip(text.lines()).filter(|(number, _)| first == 0 || *number <= first);
    lines.filter(|(_, line)| defines(line)).last().map_or(first, |(number, _)| number)
}
