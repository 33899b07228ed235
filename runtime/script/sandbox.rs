//! The sandbox: a Rhai engine that has nothing but what a stage is granted, with limits that are the same in every
//! build.
//!
//! No evaluation of text, no imports, no files, no clock, no sleep. Knows no case.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rhai::packages::{
    ArithmeticPackage, BasicArrayPackage, BasicFnPackage, BasicIteratorPackage, BasicMapPackage, BasicMathPackage,
    BasicStringPackage, LogicPackage, MoreStringPackage, Package,
};
use rhai::{
    Dynamic, Engine, EvalAltResult, ImmutableString, LexError, Module, NativeCallContext, OptimizationLevel, Position,
    Shared, Token,
};

use crate::event::Level;
use crate::measure::Clock;
use crate::plan::Limits;

use super::budget::{Budget, Spent};
use super::packages;
use super::stage::Stage;

/// Bytes of one string, and of all strings in one array or map.
const STRING_BYTES: usize = 1 << 20;
/// Elements of one array, nested ones included.
const ARRAY_ELEMENTS: usize = 1 << 18;
/// Entries of one map, nested ones included.
const MAP_ENTRIES: usize = 1 << 16;
/// Levels of calls; the stack of a thread (2 MiB) has room for them at full expression depth.
const CALL_LEVELS: usize = 32;
/// Levels of an expression or of nested statements.
const EXPRESSION_DEPTH: usize = 32;
const VARIABLES: usize = 1000;
const FUNCTIONS: usize = 500;

pub(super) type Fallible<T> = Result<T, Box<EvalAltResult>>;

/// What scripts are given of the host: a place to say something, and the clock that measures spans.
#[derive(Clone)]
pub struct ScriptHost {
    /// Takes a line for the logs: level, where it was said (`script resnet50/model.rhai:12`), what was said.
    pub log: Arc<dyn Fn(Level, String, String) + Send + Sync>,
    /// Bounds a script's time and measures its spans; scripts cannot read it.
    pub clock: Arc<dyn Clock>,
}

/// The host's side of one script: native functions reach it through their call's context.
pub(super) struct Host {
    pub(super) budget: Arc<Budget>,
    pub(super) host: ScriptHost,
    /// How the script is named in the logs.
    pub(super) name: String,
    /// Weights lie here; set before the model is made.
    pub(super) data_dir: Mutex<PathBuf>,
    pub(super) spans: Mutex<packages::timing::Spans>,
    /// Line and column of the native call that runs or ran last: Rhai does not give a place to errors of functions
    /// called with their package's name.
    place: AtomicU32,
}

/// A [`Host`] as the context's tag.
#[derive(Clone)]
pub(super) struct Tag(pub(super) Arc<Host>);

impl From<Spent> for Box<EvalAltResult> {
    fn from(spent: Spent) -> Self {
        // A script cannot catch a termination.
        EvalAltResult::ErrorTerminated(spent.to_string().into(), Position::NONE).into()
    }
}

/// The host behind a native call.
pub(super) fn host_of(context: &NativeCallContext<'_>) -> Fallible<Arc<Host>> {
    let tag = context.tag().and_then(|tag| tag.read_lock::<Tag>());
    let host = tag.map(|tag| tag.0.clone()).ok_or("the engine has no host")?;
    let position = context.call_position();
    let (line, column) = (position.line().unwrap_or(0) as u32, position.position().unwrap_or(0) as u32);
    host.place.store(line << 16 | column, Ordering::Relaxed);
    Ok(host)
}

/// Locks what cannot be left half-changed: a poisoned lock means a panic that ends the worker anyway.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `work` of the host's or of an engine's; a panic is an error at the script's call.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Fallible<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = flagperf_onnx::panic_text(&*panic);
        format!("panicked: {text} (a defect of flagperf or of the engine)").into()
    })
}

/// An engine for a stage: its packages, its limits, nothing else.
pub(super) fn engine(stage: Stage, limits: Limits, host: ScriptHost, name: String) -> (Engine, Arc<Host>) {
    let budget = Budget::new(limits, host.clock.clone());
    let host = Arc::new(Host {
        budget,
        host,
        name,
        data_dir: Mutex::default(),
        spans: Mutex::default(),
        place: AtomicU32::new(0),
    });
    let mut engine = Engine::new_raw();
    for module in language() {
        engine.register_global_module(module.clone());
    }
    for package in stage.packages() {
        packages::register(&mut engine, package);
    }
    restrict(&mut engine);
    engine.set_default_tag(Dynamic::from(Tag(host.clone())));
    let watched = host.clone();
    engine.on_progress(move |_| watched.budget.progress().err().map(|spent| spent.to_string().into()));
    bound_parsing(&mut engine, host.budget.clone());
    let said = host.clone();
    engine.on_print(move |text| said.say(Level::Info, None, text));
    let said = host.clone();
    engine.on_debug(move |text, _, position| said.say(Level::Debug, position.line(), text));
    (engine, host)
}

impl Host {
    /// Where the native call that ran last stands in the script.
    pub(super) fn place(&self) -> Position {
        let place = self.place.load(Ordering::Relaxed);
        match (place >> 16, place & 0xffff) {
            (0, _) => Position::NONE,
            (line, column) => Position::new(line as u16, column as u16),
        }
    }

    /// Forgets which native call ran last.
    pub(super) fn forget_place(&self) {
        self.place.store(0, Ordering::Relaxed);
    }

    /// Writes a line of the script's to the logs.
    pub(super) fn say(&self, level: Level, line: Option<usize>, text: &str) {
        Budget::uncounted(|| {
            let place = line.map(|line| format!(":{line}")).unwrap_or_default();
            (self.host.log)(level, format!("script {}{place}", self.name), text.to_owned());
        });
    }
}

/// Parsing takes the square of some scripts' length (100,000 parameters, a map of as many keys): every token is an
/// operation.
#[expect(deprecated, reason = "rhai marks so what may change; it says itself that the function is not deprecated")]
fn bound_parsing(engine: &mut Engine, budget: Arc<Budget>) {
    engine.on_parse_token(move |token, _, _| match budget.progress() {
        Ok(()) => token,
        Err(spent) => Token::LexError(LexError::Runtime(spent.to_string()).into()),
    });
}

fn restrict(engine: &mut Engine) {
    for symbol in ["eval", "import", "export"] {
        engine.disable_symbol(symbol);
    }
    engine
        // Dead code stays, so that unknown names are found in it too.
        .set_optimization_level(OptimizationLevel::None)
        .set_strict_variables(true)
        .set_fail_on_invalid_map_property(true)
        // The budget counts operations: Rhai starts anew in every callback.
        .set_max_operations(0)
        .set_max_call_levels(CALL_LEVELS)
        .set_max_expr_depths(EXPRESSION_DEPTH, EXPRESSION_DEPTH)
        .set_max_string_size(STRING_BYTES)
        .set_max_array_size(ARRAY_ELEMENTS)
        .set_max_map_size(MAP_ENTRIES)
        .set_max_variables(VARIABLES)
        .set_max_functions(FUNCTIONS)
        .set_max_modules(0);
}

/// The language itself: operators, strings, arrays, maps, mathematics. Without `LanguageCorePackage` (sleep, exit,
/// JSON), blobs and time.
fn language() -> &'static [Shared<Module>] {
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
            // Registered last, so found first.
            replace.into(),
        ]
    })
}

/// Rhai's own `replace` makes the whole result before it looks at its size: a million characters, each replaced by a
/// million, in one call.
fn bounded_replace(context: NativeCallContext<'_>, string: &mut ImmutableString, find: &str, by: &str) -> Fallible<()> {
    let found = string.matches(find).count();
    let length = found.saturating_mul(by.len()).saturating_add(string.len()).saturating_sub(found * find.len());
    if length > STRING_BYTES {
        return Err(EvalAltResult::ErrorDataTooLarge("Length of string".into(), context.call_position()).into());
    }
    *string = string.replace(find, by).into();
    Ok(())
}
