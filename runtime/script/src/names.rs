//! The functions that a script calls and those that it may call. Both are compared before the script runs.
//!
//! Knows nothing about files.

use std::collections::HashSet;

use indexmap::IndexMap;
use rhai::{AST, ASTNode, Dynamic, Expr, FnCallExpr, FnPtr, Position, Stmt};

use super::error::function_name;

/// Functions that are part of the language and have no signature.
const KEYWORDS: [&str; 9] =
    ["print", "debug", "type_of", "Fn", "call", "curry", "is_shared", "is_def_var", "is_def_fn"];

/// Returns the type of a value in the words of scripts: `int`, `string`, `tensor`.
pub(super) fn script_type(value: &Dynamic) -> String {
    type_word(value.type_name())
}

/// Converts the name of a type in Rust or in Rhai to a word of scripts.
pub(super) fn type_word(name: &str) -> String {
    let name = name.trim().trim_start_matches("&mut ").trim_start_matches('&');
    // A parameter that accepts several types of Rust, often one type of scripts.
    if name.contains(" | ") {
        let mut words: Vec<String> = name.split(" | ").map(type_word).collect();
        words.dedup();
        return words.join(" or ");
    }
    let generic = name.split('<').next().unwrap_or(name);
    match generic.rsplit("::").next().unwrap_or(generic) {
        "i64" | "INT" => "int".to_owned(),
        "f64" | "FLOAT" => "float".to_owned(),
        "str" | "ImmutableString" | "String" => "string".to_owned(),
        "Fn" | "FnPtr" => "function".to_owned(),
        "Range" | "RangeInclusive" | "ExclusiveRange" | "InclusiveRange" | "range" | "range=" => "range".to_owned(),
        "Dynamic" | "?" | "_" => "any".to_owned(),
        other => other.to_lowercase(),
    }
}

/// The functions that a script may call, by their signatures: `metric::top_k(scores: Tensor, ..)`.
#[derive(Clone, Default)]
pub(super) struct CallableFunctions {
    pub(super) signatures: Vec<String>,
    names: HashSet<String>,
}

impl CallableFunctions {
    /// Adds functions by their signatures. A function of a package can also be called as a method, without the name of
    /// the package.
    pub(super) fn add(&mut self, signatures: impl IntoIterator<Item = String>) {
        for signature in signatures {
            let name = function_name(&signature);
            self.names.extend(name.rsplit_once("::").map(|(_, method)| method.to_owned()));
            self.add_imported([signature]);
        }
    }

    /// Adds functions that can be called only with the name of their import.
    pub(super) fn add_imported(&mut self, signatures: impl IntoIterator<Item = String>) {
        for signature in signatures {
            self.names.insert(function_name(&signature).to_owned());
            self.signatures.push(signature);
        }
    }

    /// Returns whether a function with this name may be called.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Returns the names of all functions, with those of their packages.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.signatures.iter().map(|signature| function_name(signature))
    }
}

/// Returns the signatures of the functions that a script defines.
pub(super) fn own_signatures(ast: &AST) -> impl Iterator<Item = String> {
    ast.iter_functions().map(|function| format!("{}({})", function.name, function.params.join(", ")))
}

/// Returns the functions that a script calls, with the positions of the calls. A closure counts as called where it is
/// written.
pub(super) fn calls(ast: &AST) -> Vec<(String, Position)> {
    let mut called = Vec::new();
    ast.walk(&mut |path| {
        called.extend(path.last().and_then(called_function));
        true
    });
    called
}

/// Returns the name and the position of the function that a node calls; `None` for operators and [`KEYWORDS`].
fn called_function(node: &ASTNode<'_>) -> Option<(String, Position)> {
    let (call, position): (&FnCallExpr, Position) = match node {
        ASTNode::Expr(Expr::FnCall(call, position) | Expr::MethodCall(call, position)) => (call, *position),
        ASTNode::Stmt(Stmt::FnCall(call, position)) => (call, *position),
        ASTNode::Expr(Expr::DynamicConstant(value, position)) => {
            return value.read_lock::<FnPtr>().map(|closure| (closure.fn_name().to_owned(), *position));
        }
        _ => return None,
    };
    if call.is_operator_call() || KEYWORDS.contains(&call.name.as_str()) {
        return None;
    }
    let namespace: String = call.namespace.path.iter().map(|part| format!("{}::", part.name)).collect();
    Some((format!("{namespace}{}", call.name), position))
}

/// Returns the functions of a script that cannot run with only the `granted` functions, each with the name of the
/// function that is not granted. A function that calls such a function cannot run either.
pub(super) fn ungranted_functions(ast: &AST, granted: &CallableFunctions) -> IndexMap<String, String> {
    let own: HashSet<&str> = ast.iter_functions().map(|function| function.name).collect();
    let calls_of = |name: &str| {
        let mut only = ast.clone();
        calls(only.clear_statements().retain_functions(|_, _, function, _| function == name))
    };
    let calls: Vec<(&str, Vec<(String, Position)>)> = own.iter().map(|name| (*name, calls_of(name))).collect();
    let mut ungranted: IndexMap<String, String> = IndexMap::new();
    loop {
        let before = ungranted.len();
        for (name, calls) in &calls {
            let missing = calls.iter().find_map(|(callee, _)| match ungranted.get(callee) {
                Some(missing) => Some(missing.clone()),
                None if own.contains(callee.as_str()) || granted.contains(callee) => None,
                None => Some(callee.clone()),
            });
            if let Some(missing) = missing.filter(|_| !ungranted.contains_key(*name)) {
                ungranted.insert((*name).to_owned(), missing);
            }
        }
        if ungranted.len() == before {
            return ungranted;
        }
    }
}

/// Returns what the name already means, if a script must not define a function of this name; `None` when it may.
pub(super) fn reserved_meaning(name: &str, packages: &[&str], granted: &CallableFunctions) -> Option<String> {
    let has = |package: &&&str| granted.names().any(|function| function.split_once("::") == Some((**package, name)));
    if packages.contains(&name) {
        return Some("the name of a package".to_owned());
    }
    match packages.iter().find(has) {
        Some(package) => Some(format!("a function of the package `{package}`")),
        None => granted.names().any(|function| function == name).then(|| "a function of the language".to_owned()),
    }
}
