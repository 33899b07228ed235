//! Shared scripts: `scripts/lib/NAME.rhai`, which a script imports by name: `import "lib/NAME" as n;`.
//!
//! They are loaded with the script that imports them and run in its engine, within its limits and with its packages. A
//! function that needs a package of another stage is left out. Knows nothing about cases.

use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;
use rhai::module_resolvers::StaticModuleResolver;
use rhai::{AST, ASTNode, Engine, Expr, FnAccess, Module, Position, Scope, Stmt};

use flagperf_config::is_shared_script;
use flagperf_core::limits::Limits;

use super::config_keys::ScriptTree;
use super::error::{KnownNames, ScriptError, ScriptSource, Sources, file_error};
use super::function_error::unknown_function;
use super::names::{self, CallableFunctions};
use super::packages;
use super::sandbox::{self, HostServices, IMPORTS_MAX, ScriptState};
use super::stack::RunningScript;
use super::stage::Stage;
use super::suggestion::suggestion;

/// Largest size of a script in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Loads the script of a stage with everything that it imports.
pub(super) struct Loader {
    pub(super) stage: Stage,
    pub(super) engine: Engine,
    pub(super) state: Arc<ScriptState>,
    pub(super) sources: Sources,
    /// The folder that contains `lib`.
    scripts: PathBuf,
    /// The engine that parses shared scripts: with every package, because one file serves several stages.
    parser: OnceCell<(Engine, Arc<ScriptState>)>,
    /// The shared scripts loaded so far, by name.
    loaded: IndexMap<String, SharedFunctions>,
    /// Their syntax trees.
    pub(super) shared: IndexMap<String, ScriptTree>,
    /// The names of the shared scripts whose imports are being loaded, outermost first.
    pending: Vec<String>,
    resolver: StaticModuleResolver,
}

/// The public functions of a shared script.
#[derive(Clone, Default)]
struct SharedFunctions {
    /// Signatures of those that the stage can call.
    granted: Vec<String>,
    /// The others, each with the name of the function that is not granted to the stage.
    ungranted: IndexMap<String, String>,
}

/// The functions that a script gets through its imports, under the names that it gives to them.
#[derive(Default)]
struct ImportedFunctions {
    /// Functions that it can call.
    callable: CallableFunctions,
    /// Functions that its stage cannot call, each with the name of the function that is not granted.
    ungranted: IndexMap<String, String>,
    /// The names of the shared scripts, by the names that it gives to them.
    names: IndexMap<String, String>,
}

/// An `import` statement.
struct Import {
    name: String,
    alias: String,
    position: Position,
}

/// A script that was parsed and checked, and what it cannot call.
pub(super) struct LoadedScript {
    pub(super) tree: ScriptTree,
    /// Functions that the script can call.
    pub(super) callable: CallableFunctions,
    /// Functions of a shared script that were left out, each with the name of the function that is not granted.
    pub(super) ungranted: IndexMap<String, String>,
}

impl Loader {
    /// Reads the script in `file`; `scripts` is the folder that contains `lib`.
    pub(super) fn open(
        stage: Stage,
        scripts: &Path,
        file: &Path,
        limits: Limits,
        services: HostServices,
    ) -> Result<Self, ScriptError> {
        let text = read_script(file)?;
        let (engine, state) = sandbox::build_engine(stage.packages(), limits, services, log_name(file));
        Ok(Loader {
            stage,
            engine,
            state,
            sources: Sources::new(file, text),
            scripts: scripts.to_owned(),
            parser: OnceCell::new(),
            loaded: IndexMap::new(),
            shared: IndexMap::new(),
            pending: Vec::new(),
            resolver: StaticModuleResolver::new(),
        })
    }

    /// Loads the script of a case.
    pub(super) fn load_own(&mut self) -> Result<LoadedScript, ScriptError> {
        let ast = self.parse(self.sources.main(), &self.engine, &self.state, self.stage.packages())?;
        self.check_definitions(&ast, self.sources.main(), self.stage.packages(), &granted(&self.engine))?;
        let ImportedFunctions { mut callable, ungranted, names: imports } = self.import_all(&ast)?;
        callable.add(self.engine.gen_fn_signatures(true).into_iter().chain(names::own_signatures(&ast)));
        self.check_calls(&ast, &callable, &ungranted)?;
        Ok(LoadedScript { tree: ScriptTree { ast, imports }, callable, ungranted: IndexMap::new() })
    }

    /// Loads the shared script `name` from the source added most recently.
    pub(super) fn load_shared(&mut self, name: &str) -> Result<LoadedScript, ScriptError> {
        let all = packages::names();
        let (parser, state) = self.parser.get_or_init(|| self.build_parser());
        let everywhere = granted(parser);
        let source = self.sources.iter().last().unwrap_or_else(|| self.sources.main());
        let mut ast = self.parse(source, parser, state, &all)?;
        self.check_definitions(&ast, source, &all, &everywhere)?;
        self.pending.push(name.to_owned());
        let ImportedFunctions { mut callable, ungranted: withheld, names: imports } = self.import_all(&ast)?;
        self.pending.pop();
        let mut known = everywhere;
        known.add_imported(callable.signatures.iter().chain(withheld.keys()).cloned());
        known.add(names::own_signatures(&ast));
        callable.add(self.engine.gen_fn_signatures(true));
        let ungranted = names::ungranted_functions(&ast, &callable);
        self.check_calls(&ast, &known, &IndexMap::new())?;
        ast.retain_functions(|_, _, function, _| !ungranted.contains_key(function));
        callable.add(names::own_signatures(&ast));
        self.check_calls(&ast, &callable, &withheld)?;
        Ok(LoadedScript { tree: ScriptTree { ast, imports }, callable, ungranted })
    }

    /// Loads everything that a script imports.
    fn import_all(&mut self, ast: &AST) -> Result<ImportedFunctions, ScriptError> {
        let mut imported = ImportedFunctions::default();
        for Import { name, alias, position } in self.imports(ast)? {
            self.import(&name, position)?;
            let functions = self.loaded.get(&name).cloned().unwrap_or_default();
            imported.callable.add_imported(functions.granted.iter().map(|function| format!("{alias}::{function}")));
            let ungranted = functions.ungranted.into_iter();
            imported.ungranted.extend(ungranted.map(|(function, needed)| (format!("{alias}::{function}"), needed)));
            imported.names.insert(alias, name);
        }
        Ok(imported)
    }

    /// Loads the shared script `name`, unless it is loaded, and makes it known to the engine.
    fn import(&mut self, name: &str, position: Position) -> Result<(), ScriptError> {
        if self.loaded.contains_key(name) {
            return Ok(());
        }
        let refuse = |reason: String| self.sources.error_at(position, reason);
        if self.pending.iter().any(|pending| pending == name) {
            let cycle = self.pending.iter().map(|name| format!("`{name}` imports ")).collect::<String>();
            return Err(refuse(format!("shared scripts import each other in a circle: {cycle}`{name}`")));
        }
        if self.loaded.len() + self.pending.len() >= IMPORTS_MAX {
            return Err(refuse(format!("a script imports at most {IMPORTS_MAX} shared scripts, also through others")));
        }
        let file = shared_file(&self.scripts, name);
        let text = read_script(&file).map_err(|error| {
            let known = shared_names(&self.scripts);
            let known = suggestion(name, known.iter().map(String::as_str));
            refuse(format!("shared script `{name}`: scripts/{name}.rhai {}{known}", error.reason))
        })?;
        self.sources.add(&file, text)?;
        let LoadedScript { tree, ungranted, .. } = self.load_shared(name)?;
        let module = self.evaluate(&tree.ast)?;
        self.resolver.insert(name, module);
        self.engine.set_module_resolver(self.resolver.clone());
        let public = tree.ast.iter_functions().filter(|function| function.access == FnAccess::Public);
        let granted = public.map(|function| format!("{}({})", function.name, function.params.join(", "))).collect();
        self.loaded.insert(name.to_owned(), SharedFunctions { granted, ungranted });
        self.shared.insert(name.to_owned(), tree);
        Ok(())
    }

    /// Returns the `import` statements of a script, anywhere in it.
    fn imports(&self, ast: &AST) -> Result<Vec<Import>, ScriptError> {
        let mut found = Vec::new();
        ast.walk(&mut |path| {
            if let Some(ASTNode::Stmt(Stmt::Import(import, position))) = path.last() {
                let (name, alias) = &**import;
                let name = if let Expr::StringConstant(name, _) = name { name.to_string() } else { String::new() };
                found.push(Import { name, alias: alias.name.to_string(), position: *position });
            }
            true
        });
        for Import { name, alias, position } in &found {
            let refuse = |reason: String| Err(self.sources.error_at(*position, reason));
            if !is_shared_script(name) {
                return refuse(format!(
                    "`import` accepts only a shared script by its name, such as `import \"lib/classification\" as c;` \
                     (not {})",
                    if name.is_empty() { "an expression".to_owned() } else { format!("`{name}`") }
                ));
            }
            if alias.is_empty() {
                return refuse(format!("the import needs a name: `import \"{name}\" as NAME;`"));
            }
            if packages::names().contains(&alias.as_str()) || alias == "global" {
                return refuse(format!("`{alias}` is the name of a package: give the import another name"));
            }
        }
        Ok(found)
    }

    fn build_parser(&self) -> (Engine, Arc<ScriptState>) {
        let budget = &self.state.budget;
        sandbox::build_engine(&packages::names(), budget.limits(), self.state.services.clone(), self.state.name.clone())
    }

    /// Parses a script within the limits of a call.
    fn parse(
        &self,
        source: &ScriptSource,
        engine: &Engine,
        state: &Arc<ScriptState>,
        packages: &[&str],
    ) -> Result<AST, ScriptError> {
        let text = source.numbered_text();
        let memory_scope = state.budget.start();
        let running = RunningScript::begin(state);
        let compiled = catch_unwind(AssertUnwindSafe(|| engine.compile(&text)));
        drop(running);
        drop(memory_scope);
        let compiled = compiled.map_err(|panic| self.sources.panic_error(Position::NONE, &*panic))?;
        compiled.map_err(|error| match state.budget.exceeded() {
            Some(exceeded) => self.sources.error_at(error.position(), exceeded.to_string()),
            None => self.sources.parse_error(&error, packages),
        })
    }

    /// Runs the statements of a shared script outside its functions, within the limits of a call.
    fn evaluate(&self, ast: &AST) -> Result<Module, ScriptError> {
        let memory_scope = self.state.budget.start();
        let running = RunningScript::begin(&self.state);
        let module = catch_unwind(AssertUnwindSafe(|| Module::eval_ast_as_new(Scope::new(), ast, &self.engine)));
        drop(running);
        drop(memory_scope);
        let module = module.map_err(|panic| self.sources.panic_error(Position::NONE, &*panic))?;
        let names = KnownNames {
            functions: &Vec::new,
            calls: &|| names::calls(ast),
            properties: &[],
            last_call: self.state.last_call(),
        };
        module.map_err(|error| self.sources.runtime_error(*error, &names))
    }

    /// Refuses functions that would shadow granted ones: Rhai prefers a script's own functions.
    fn check_definitions(
        &self,
        ast: &AST,
        source: &ScriptSource,
        packages: &[&str],
        granted: &CallableFunctions,
    ) -> Result<(), ScriptError> {
        for function in ast.iter_functions() {
            let name = function.name;
            if let Some(what) = names::reserved_meaning(name, packages, granted) {
                let reason = format!("`{name}` is {what} and cannot be redefined: give the function another name");
                return Err(self.sources.error_at(source.function_position(name), reason));
            }
        }
        Ok(())
    }

    /// Refuses calls of unknown functions, in every branch, before the script runs.
    fn check_calls(
        &self,
        ast: &AST,
        callable: &CallableFunctions,
        ungranted: &IndexMap<String, String>,
    ) -> Result<(), ScriptError> {
        let calls = names::calls(ast);
        let Some((name, position)) = calls.iter().find(|(name, _)| !callable.contains(name)) else { return Ok(()) };
        let reason = match ungranted.get(name) {
            Some(needed) => ungranted_reason(name, needed, self.stage),
            None => unknown_function(name, &callable.signatures),
        };
        Err(self.sources.error_at(*position, reason))
    }
}

/// Explains that a function of a shared script cannot be called in a stage.
pub(super) fn ungranted_reason(name: &str, needed: &str, stage: Stage) -> String {
    let packages = stage.packages().join(", ");
    format!("`{name}` calls `{needed}`, which is not granted to {} (granted: {packages})", stage.file())
}

/// Returns the file of the shared script `name`, such as `lib/classification`.
pub(super) fn shared_file(scripts: &Path, name: &str) -> PathBuf {
    scripts.join(format!("{name}.rhai"))
}

fn shared_names(scripts: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(scripts.join("lib")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rhai")?.to_owned()));
    names.map(|name| format!("lib/{name}")).collect()
}

/// Returns the functions of an engine.
fn granted(engine: &Engine) -> CallableFunctions {
    let mut callable = CallableFunctions::default();
    callable.add(engine.gen_fn_signatures(true));
    callable
}

/// Returns the name of a script in logs: its folder and its file.
pub(super) fn log_name(file: &Path) -> String {
    let parts: Vec<_> = file.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join("/")
}

fn read_script(file: &Path) -> Result<String, ScriptError> {
    flagperf_core::regular_file::read_regular_text(file, FILE_BYTES_MAX)
        .map_err(|error| file_error(file, format!("cannot be read: {error}")))
}
