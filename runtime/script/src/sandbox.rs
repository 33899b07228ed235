//! The sandbox: a Rhai engine that provides only what is granted to a stage, with limits that are the same in every
//! build.
//!
//! No `eval`, no files, no clock, no sleep; imports only of shared scripts that the host has loaded. Knows nothing about
//! cases.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rhai::packages::{
    ArithmeticPackage, BasicArrayPackage, BasicFnPackage, BasicIteratorPackage, BasicMapPackage, BasicMathPackage,
    BasicStringPackage, LogicPackage, MoreStringPackage, Package,
};
use rhai::{
    Dynamic, Engine, EvalAltResult, ImmutableString, LexError, Module, NativeCallContext, OptimizationLevel, Position,
    Shared, Token,
};

use flagperf_core::event::Level;
use flagperf_core::limits::Limits;
use flagperf_core::measure::Clock;

use super::budget::{Budget, BudgetExceeded};
use super::packages;

/// Maximum size in bytes of one string, and of all strings in one array or map.
pub(super) const STRING_BYTES_MAX: usize = 1 << 20;
/// Largest number of elements of one array, including nested ones.
pub(super) const ARRAY_ELEMENTS_MAX: usize = 1 << 18;
/// Largest number of entries of one map, including nested ones.
pub(super) const MAP_ENTRIES_MAX: usize = 1 << 16;
/// Largest depth of calls; it fits on the stack of a thread (2 MiB) even at full expression depth.
pub(super) const CALL_LEVELS_MAX: usize = 32;
/// Largest depth of an expression or of nested statements.
pub(super) const EXPRESSION_DEPTH_MAX: usize = 32;
pub(super) const VARIABLES_MAX: usize = 1000;
pub(super) const FUNCTIONS_MAX: usize = 500;
/// Largest number of shared scripts that one script imports, directly and through each other.
pub(super) const IMPORTS_MAX: usize = 16;

pub(super) type Fallible<T> = Result<T, Box<EvalAltResult>>;

/// What the host provides to scripts: the log, and the clock that limits their time and measures spans.
#[derive(Clone)]
pub struct HostServices {
    /// Writes a line to the logs: level, origin (`script resnet50/model.rhai:12`), text.
    pub log: Arc<dyn Fn(Level, String, String) + Send + Sync>,
    /// Limits the time of scripts and measures spans; scripts cannot read it.
    pub clock: Arc<dyn Clock>,
}

/// The host's state for one script; native functions reach it through the context of their call.
pub(super) struct ScriptState {
    pub(super) budget: Arc<Budget>,
    pub(super) services: HostServices,
    /// Name of the script in logs: `resnet50/model.rhai`.
    pub(super) name: String,
    /// The shared scripts that the script imports: the lines before each in the line numbers of the concatenated
    /// sources (see `Sources`), and its name. Set when the script has been loaded.
    pub(super) imported: OnceLock<Vec<(usize, String)>>,
    /// The folder that contains the weights; set before `create_model` is called.
    pub(super) data_dir: Mutex<PathBuf>,
    /// The files that the script has read for a model and that its weights do not name: ONNX files, indices of weights.
    pub(super) model_files: Mutex<Vec<PathBuf>>,
    /// The folder of the vendor whose `export.rhai` it is.
    pub(super) vendor: Mutex<Option<PathBuf>>,
    pub(super) spans: Mutex<packages::timing::Spans>,
    /// What the script changed of graphs.
    pub(super) changes: packages::graph::Changes,
    /// The most bytes that one set of states has held.
    pub(super) state_bytes_max: Arc<AtomicU64>,
    /// Line (upper 16 bits) and column (lower 16 bits) of the latest native call: Rhai gives no position to errors of
    /// functions that are called with the name of their package.
    last_call: AtomicU32,
}

/// The state of a script as the tag of its Rhai engine.
#[derive(Clone)]
pub(super) struct Tag(pub(super) Arc<ScriptState>);

impl From<BudgetExceeded> for Box<EvalAltResult> {
    fn from(exceeded: BudgetExceeded) -> Self {
        // Unlike other errors, a script cannot catch a termination.
        EvalAltResult::ErrorTerminated(exceeded.to_string().into(), Position::NONE).into()
    }
}

/// Returns the state of the script that made a native call, and remembers the position of the call.
pub(super) fn script_state(context: &NativeCallContext<'_>) -> Fallible<Arc<ScriptState>> {
    let tag = context.tag().and_then(|tag| tag.read_lock::<Tag>());
    let state = tag.map(|tag| tag.0.clone()).ok_or("the script engine has no state")?;
    let position = context.call_position();
    let (line, column) = (position.line().unwrap_or(0) as u32, position.position().unwrap_or(0) as u32);
    state.last_call.store(line << 16 | column, Ordering::Relaxed);
    Ok(state)
}

/// Locks a mutex and ignores poisoning: the protected values are never left half-changed, and a panic ends the worker
/// anyway.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` of the host or of an engine, and turns a panic into an error at the script's call.
pub(super) fn catch_panic<T>(work: impl FnOnce() -> T) -> Fallible<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = flagperf_core::panic::panic_text(&*panic);
        format!("panicked: {text} (a bug in flagperf or in the engine)").into()
    })
}

/// Builds the Rhai engine for a script: with these packages, the limits, and nothing else.
pub(super) fn build_engine(
    packages: &[&str],
    limits: Limits,
    services: HostServices,
    name: String,
) -> (Engine, Arc<ScriptState>) {
    let budget = Budget::new(limits, services.clock.clone());
    let state = Arc::new(ScriptState {
        budget,
        services,
        name,
        imported: OnceLock::new(),
        data_dir: Mutex::default(),
        model_files: Mutex::default(),
        vendor: Mutex::default(),
        spans: Mutex::default(),
        changes: packages::graph::Changes::default(),
        state_bytes_max: Arc::default(),
        last_call: AtomicU32::new(0),
    });
    let mut engine = Engine::new_raw();
    for module in language_modules() {
        engine.register_global_module(module.clone());
    }
    for package in packages {
        packages::register(&mut engine, package);
    }
    packages::refuse_meaningless_comparisons(&mut engine);
    restrict_language(&mut engine);
    engine.set_default_tag(Dynamic::from(Tag(state.clone())));
    let progress = state.clone();
    engine.on_progress(move |_| progress.budget.progress().err().map(|exceeded| exceeded.to_string().into()));
    limit_parsing(&mut engine, state.budget.clone());
    let print = state.clone();
    engine.on_print(move |text| print.log(Level::Info, None, text));
    let debug = state.clone();
    engine.on_debug(move |text, _, position| debug.log(Level::Debug, position.line(), text));
    (engine, state)
}

impl ScriptState {
    /// Returns the position of the latest native call in the script.
    pub(super) fn last_call(&self) -> Position {
        let packed = self.last_call.load(Ordering::Relaxed);
        match (packed >> 16, packed & 0xffff) {
            (0, _) => Position::NONE,
            (line, column) => Position::new(line as u16, column as u16),
        }
    }

    /// Clears the position of the latest native call.
    pub(super) fn clear_last_call(&self) {
        self.last_call.store(0, Ordering::Relaxed);
    }

    /// Returns the name of the script that contains a line, given by its line number in the concatenated sources (see
    /// `Sources`), and its line number in that script.
    pub(super) fn locate(&self, line: usize) -> (&str, usize) {
        let imported = self.imported.get().into_iter().flatten().rev();
        let found = imported.map(|(before, name)| (*before, name.as_str())).find(|(before, _)| *before < line);
        let (before, name) = found.unwrap_or((0, &self.name));
        (name, line - before)
    }

    /// Writes a line of the script to the logs.
    pub(super) fn log(&self, level: Level, line: Option<usize>, text: &str) {
        Budget::uncounted(|| {
            let (name, line) = self.locate(line.unwrap_or(0));
            let line = if line > 0 { format!(":{line}") } else { String::new() };
            (self.services.log)(level, format!("script {name}{line}"), text.to_owned());
        });
    }
}

/// Limits parsing by counting every token as an operation: for some scripts (100,000 parameters, a map with as many
/// keys) the time to parse grows with the square of their length.
#[expect(deprecated, reason = "rhai marks unstable functions so; its documentation calls this one not deprecated")]
fn limit_parsing(engine: &mut Engine, budget: Arc<Budget>) {
    engine.on_parse_token(move |token, _, _| match budget.progress() {
        Ok(()) => token,
        Err(exceeded) => Token::LexError(LexError::Runtime(exceeded.to_string()).into()),
    });
}

fn restrict_language(engine: &mut Engine) {
    for symbol in ["eval", "export"] {
        engine.disable_symbol(symbol);
    }
    engine
        // Dead code is kept, so that unknown names in it are found, too.
        .set_optimization_level(OptimizationLevel::None)
        .set_strict_variables(true)
        .set_fail_on_invalid_map_property(true)
        // The budget counts operations instead, because Rhai restarts its count in every callback.
        .set_max_operations(0)
        .set_max_call_levels(CALL_LEVELS_MAX)
        .set_max_expr_depths(EXPRESSION_DEPTH_MAX, EXPRESSION_DEPTH_MAX)
        .set_max_string_size(STRING_BYTES_MAX)
        .set_max_array_size(ARRAY_ELEMENTS_MAX)
        .set_max_map_size(MAP_ENTRIES_MAX)
        .set_max_variables(VARIABLES_MAX)
        .set_max_functions(FUNCTIONS_MAX)
        .set_max_modules(IMPORTS_MAX);
}

/// Returns the modules of the language itself: operators, strings, arrays, maps, mathematics. `LanguageCorePackage`
/// (sleep, exit, JSON), blobs and time are left out.
pub(super) fn language_modules() -> &'static [Shared<Module>] {
    static MODULES: OnceLock<Vec<Shared<Module>>> = OnceLock::new();
    MODULES.get_or_init(|| {
        let mut replace = Module::new();
        replace.set_native_fn("replace", bounded_replace);
        replace.set_native_fn("replace", |c: NativeCallContext<'_>, s: &mut ImmutableString, find: &str, by: char| {
            bounded_replace(c, s, find, by.encode_utf8(&mut [0; 4]))
        });
        replace.set_native_fn("replace", |c: NativeCallContext<'_>, s: &mut ImmutableString, find: char, by: &str| {
            bounded_replace(c, s, find.encode_utf8(&mut [0; 4]), by)
        });
        vec![
            ArithmeticPackage::new().as_shared_module(),
            LogicPackage::new().as_shared_module(),
            BasicMathPackage::new().as_shared_module(),
            BasicFnPackage::new().as_shared_module(),
            BasicIteratorPackage::new().as_shared_module(),
            BasicStringPackage::new().as_shared_module(),
            MoreStringPackage::new().as_shared_module(),
            BasicArrayPackage::new().as_shared_module(),
            BasicMapPackage::new().as_shared_module(),
            // Registered last, so that it is found first.
            replace.into(),
        ]
    })
}

/// Replaces `find` by `by` and checks the length of the result first. Rhai's own `replace` builds the whole result
/// before it checks the length, so one call could replace each of a million characters by a million others.
fn bounded_replace(context: NativeCallContext<'_>, string: &mut ImmutableString, find: &str, by: &str) -> Fallible<()> {
    let found = string.matches(find).count();
    let length = found.saturating_mul(by.len()).saturating_add(string.len()).saturating_sub(found * find.len());
    if length > STRING_BYTES_MAX {
        return Err(EvalAltResult::ErrorDataTooLarge("Length of string".into(), context.call_position()).into());
    }
    *string = string.replace(find, by).into();
    Ok(())
}
