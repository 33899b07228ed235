//! The keys of `config` that scripts read, from their syntax trees.
//!
//! Knows nothing about values and files.

use std::collections::{BTreeSet, HashSet};

use indexmap::IndexMap;
use rhai::{AST, ASTNode, Expr, FnCallExpr, FnPtr, Position, Stmt};

/// The name of the call with which a closure captures variables.
const CURRY: &str = "curry";

/// A parsed script and the shared scripts that it imports.
pub(super) struct ScriptTree {
    pub(super) ast: AST,
    /// The names of the imported shared scripts, by the names that the script gives to them.
    pub(super) imports: IndexMap<String, String>,
}

/// The keys of `config` that a script reads, also through the functions to which it passes `config`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConfigReads {
    /// Each `config.KEY`, with the position of the key.
    pub(super) keys: Vec<(String, Position)>,
    /// Whether the script uses `config` in another way, so that it may read any key, or set one.
    pub(super) may_read_any: bool,
}

impl ConfigReads {
    /// Returns the names of the keys; `None` if they are unknown.
    pub(super) fn names(&self) -> Option<BTreeSet<String>> {
        (!self.may_read_any).then(|| self.keys.iter().map(|(key, _)| key.clone()).collect())
    }
}

/// A use of a parameter in the body of a function.
enum ParameterUse {
    /// `config.key`.
    Key(String, Position),
    /// The parameter is an argument of a function: the name of its import, its own name, the number of arguments
    /// (`None` for a closure) and the position of this one.
    Argument { import: String, function: String, arity: Option<usize>, index: usize },
    /// Anything else.
    Other,
}

/// Finds the keys that the function `entry` of `main` reads of its parameter number `index`.
pub(super) fn find_config_reads(
    main: &ScriptTree,
    shared: &IndexMap<String, ScriptTree>,
    (entry, arity, index): (&str, usize, usize),
) -> ConfigReads {
    let mut finder = Finder { shared, seen: HashSet::new(), reads: ConfigReads::default() };
    finder.follow(main, "", (entry, Some(arity), index));
    finder.reads
}

struct Finder<'t> {
    shared: &'t IndexMap<String, ScriptTree>,
    /// The functions already followed: shared script, name, position of the parameter.
    seen: HashSet<(String, String, Option<usize>, usize)>,
    reads: ConfigReads,
}

impl Finder<'_> {
    /// Follows a parameter of a function of a script; `script` is its name, empty for the stage's own.
    fn follow(&mut self, tree: &ScriptTree, script: &str, (function, arity, index): (&str, Option<usize>, usize)) {
        if !self.seen.insert((script.to_owned(), function.to_owned(), arity, index)) {
            return;
        }
        let mut functions = tree.ast.iter_functions();
        let is_it = |own: &rhai::ScriptFnMetadata<'_>| {
            own.name == function && arity.is_none_or(|arity| own.params.len() == arity)
        };
        let found =
            functions.find(is_it).and_then(|own| Some(((*own.params.get(index)?).to_owned(), own.params.len())));
        // A function of the host, or one that a closure reaches in a way that is not followed.
        let Some((parameter, parameters)) = found else { return self.reads.may_read_any = true };
        let mut body = tree.ast.clone();
        body.clear_statements().retain_functions(|_, _, name, arity| name == function && arity == parameters);
        for used in parameter_uses(&body, &parameter) {
            match used {
                ParameterUse::Key(key, position) => self.reads.keys.push((key, position)),
                ParameterUse::Other => self.reads.may_read_any = true,
                ParameterUse::Argument { import, function, arity, index } if import.is_empty() => {
                    self.follow(tree, script, (&function, arity, index));
                }
                ParameterUse::Argument { import, function, arity, index } => {
                    let shared = self.shared;
                    match tree.imports.get(&import).and_then(|name| Some((name, shared.get(name)?))) {
                        Some((name, tree)) => self.follow(tree, name, (&function, arity, index)),
                        None => self.reads.may_read_any = true,
                    }
                }
            }
        }
    }
}

/// Returns the uses of a parameter in the only function of a script. A variable of the same name makes them uncertain.
fn parameter_uses(body: &AST, parameter: &str) -> Vec<ParameterUse> {
    let mut uses = Vec::new();
    body.walk(&mut |path| {
        match path.last() {
            Some(ASTNode::Expr(variable @ Expr::Variable(named, ..))) if named.1 == parameter => {
                uses.push(classify(variable, &path[..path.len() - 1]));
            }
            Some(ASTNode::Stmt(Stmt::Var(declared, ..))) if declared.0.name == parameter => {
                uses.push(ParameterUse::Other);
            }
            Some(ASTNode::Stmt(Stmt::For(declared, ..)))
                if declared.0.name == parameter
                    || declared.1.as_ref().is_some_and(|counter| counter.name == parameter) =>
            {
                uses.push(ParameterUse::Other);
            }
            _ => {}
        }
        true
    });
    uses
}

/// Returns the use of a variable in the innermost of the nodes around it.
fn classify(variable: &Expr, around: &[ASTNode<'_>]) -> ParameterUse {
    match around {
        // `config.key = value` sets a key, which `config.key` then reads.
        [.., ASTNode::Stmt(Stmt::Assignment(assigned)), ASTNode::Expr(target)]
            if std::ptr::eq(*target, &assigned.1.lhs) =>
        {
            ParameterUse::Other
        }
        [.., ASTNode::Expr(Expr::Dot(dot, flags, _))]
            if std::ptr::eq(variable, &dot.lhs) && !flags.intersects(rhai::ASTFlags::NEGATED) =>
        {
            let first = match &dot.rhs {
                Expr::Dot(rest, ..) | Expr::Index(rest, ..) => &rest.lhs,
                only => only,
            };
            match first {
                Expr::Property(property, position) => ParameterUse::Key(property.2.to_string(), *position),
                _ => ParameterUse::Other,
            }
        }
        [.., ASTNode::Expr(Expr::FnCall(call, _)) | ASTNode::Stmt(Stmt::FnCall(call, _))] => argument(variable, call),
        _ => ParameterUse::Other,
    }
}

/// Returns the use of a variable as an argument of a call.
fn argument(variable: &Expr, call: &FnCallExpr) -> ParameterUse {
    let index = call.args.iter().position(|argument| std::ptr::eq(argument, variable));
    let Some(index) = index.filter(|_| !call.is_operator_call()) else { return ParameterUse::Other };
    let import: Vec<&str> = call.namespace.path.iter().map(|part| part.name.as_str()).collect();
    match (call.name.as_str(), call.args.first()) {
        // A closure gets what it captures before its own parameters.
        (CURRY, Some(Expr::DynamicConstant(value, _))) => match value.read_lock::<FnPtr>() {
            Some(closure) if index > 0 => ParameterUse::Argument {
                import: String::new(),
                function: closure.fn_name().to_owned(),
                arity: None,
                index: index - 1,
            },
            _ => ParameterUse::Other,
        },
        (name, _) => ParameterUse::Argument {
            import: import.join("::"),
            function: name.to_owned(),
            arity: Some(call.args.len()),
            index,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str, imports: &[(&str, &str)]) -> ScriptTree {
        let imports = imports.iter().map(|(alias, name)| ((*alias).to_owned(), (*name).to_owned())).collect();
        ScriptTree { ast: rhai::Engine::new().compile(text).unwrap(), imports }
    }

    /// Returns the keys that `main(config)` reads; `None` if it may read any.
    fn read(text: &str) -> Option<Vec<String>> {
        let shared = tree("fn size(settings) { settings.size } fn all(settings) { settings.keys() }", &[]);
        let shared = IndexMap::from([("lib/shapes".to_owned(), shared)]);
        let main = tree(text, &[("s", "lib/shapes")]);
        let reads = find_config_reads(&main, &shared, ("main", 1, 0));
        reads.names().map(|names| names.into_iter().collect())
    }

    #[test]
    fn keys_are_found_also_in_the_functions_to_which_config_is_passed() {
        for (text, keys) in [
            ("fn main(config) { config.a + config.b.c + config.d[0].e }", vec!["a", "b", "d"]),
            ("fn main(config) { let x = `${config.a}`; if x == config.b { throw config.c; } }", vec!["a", "b", "c"]),
            ("fn main(config) { let x = #{config: 1}; x.config.a }", vec![]),
            ("fn main(c) { other(1, c) } fn other(n, config) { config.a } fn other(config) { config.b }", vec!["a"]),
            ("fn main(config) { if config.a { main(config) } }", vec!["a"]),
            ("fn main(config) { s::size(config) + config.a }", vec!["a", "size"]),
            ("fn main(config) { [1, 2].map(|n| n + config.a) }", vec!["a"]),
            ("fn main(config) { 1 } fn other(config) { config.a }", vec![]),
        ] {
            assert_eq!(read(text), Some(keys.into_iter().map(str::to_owned).collect()), "{text}");
        }
    }

    #[test]
    fn any_other_use_of_config_may_read_any_key() {
        for text in [
            "fn main(config) { let c = config; c.a }",
            "fn main(config) { config.keys() }",
            "fn main(config) { config[\"a\"] }",
            "fn main(config) { \"a\" in config && config.a }",
            "fn main(config) { config.a = 1; config.a }",
            "fn main(config) { config.a += 1; config.b }",
            "fn main(config) { config?.a }",
            "fn main(config) { print(config) }",
            "fn main(config) { s::all(config) }",
            "fn main(config) { t::size(config) }",
            "fn main(config) { let config = #{a: 1}; config.a }",
            "fn main(config) { for config in [#{a: 1}] { config.a; } }",
            "fn main(config) { [config] }",
            "fn main(config) { config }",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
