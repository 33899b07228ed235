//! Errors in scripts, displayed as `file:line:column: reason` with the source line below.
//!
//! Knows nothing about packages.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};

use rhai::{EvalAltResult, ParseError, ParseErrorType, Position};

use super::function_error::{function_not_found, last_part};
use super::names::type_word;
use super::sandbox::{
    ARRAY_ELEMENTS_MAX, CALL_LEVELS_MAX, EXPRESSION_DEPTH_MAX, FUNCTIONS_MAX, MAP_ENTRIES_MAX, STRING_BYTES_MAX,
    VARIABLES_MAX,
};
use super::suggestion::{Suggestion, suggestion};

/// An error in a script: its position, the reason, and the source line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError {
    /// Path of the script, below the folder of the case as the caller gave it.
    pub file: PathBuf,
    /// Line, from 1; 0 when the error concerns the whole file.
    pub line: usize,
    /// Column, from 1; 0 when unknown.
    pub column: usize,
    /// Reason: a lower-case fragment with the value in backticks, and what is known in parentheses.
    pub reason: String,
    /// Text of the line.
    pub source_line: String,
    /// Files and lines of the calls that led to the function with the error, innermost first.
    pub called_from: Vec<(PathBuf, usize)>,
    /// Whether the script reads a property that its map does not have and that resembles no known one.
    pub is_strange_property: bool,
}

impl std::error::Error for ScriptError {}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if self.line > 0 {
            write!(f, "{}:{}:", self.line, self.column.max(1))?;
        }
        write!(f, " {}", self.reason)?;
        if !self.source_line.is_empty() {
            let text = self.source_line.trim_end();
            // Tabs before the caret are kept, so that the caret is below its character.
            let before = text.chars().take(self.column.saturating_sub(1));
            let space: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            write!(f, "\n    {text}\n    {space}^")?;
        }
        for (file, line) in &self.called_from {
            write!(f, "\n    called from {}:{line}", file.display())?;
        }
        Ok(())
    }
}

/// Returns an error about a whole file.
pub(super) fn file_error(file: &Path, reason: impl Into<String>) -> ScriptError {
    ScriptError {
        file: file.to_owned(),
        line: 0,
        column: 0,
        reason: reason.into(),
        source_line: String::new(),
        called_from: Vec::new(),
        is_strange_property: false,
    }
}

/// The path and the text of one script.
#[derive(Clone)]
pub(super) struct ScriptSource {
    pub(super) file: PathBuf,
    pub(super) text: String,
    /// Lines of the scripts before this one in [`Sources`]; the positions of this script continue after them.
    pub(super) lines_before: usize,
}

impl ScriptSource {
    /// Returns the text that the parser reads: its positions continue after those of the scripts before.
    pub(super) fn numbered_text(&self) -> String {
        format!("{}{}", "\n".repeat(self.lines_before), self.text)
    }

    /// Returns the position where the function `name` of this script is defined.
    pub(super) fn function_position(&self, name: &str) -> Position {
        let opens = |line: &str| {
            let line = line.trim_start();
            let rest = line.strip_prefix("private").map_or(line, str::trim_start).strip_prefix("fn");
            // The name of a method for one type follows the type: `fn array.first_two()`.
            rest.and_then(|rest| rest.split('(').next()).is_some_and(|named| {
                named.starts_with(char::is_whitespace)
                    && named.rsplit(['.', ' ', '\t']).find(|w| !w.is_empty()) == Some(name)
            })
        };
        let found = self.text.lines().position(opens).map(|line| self.lines_before + line + 1);
        found.and_then(|line| u16::try_from(line).ok()).map_or(Position::NONE, |line| Position::new(line, 1))
    }
}

/// The script of a stage and the shared scripts that it imports. Their lines have one numbering, so that a position
/// of Rhai, which has no file, refers to one line of one script.
pub(super) struct Sources(Vec<ScriptSource>);

impl Sources {
    /// Creates the sources of a stage from its own script.
    pub(super) fn new(file: &Path, text: String) -> Self {
        Sources(vec![ScriptSource { file: file.to_owned(), text, lines_before: 0 }])
    }

    /// Adds a shared script.
    ///
    /// # Errors
    /// When the lines of all scripts are more than a position can count.
    pub(super) fn add(&mut self, file: &Path, text: String) -> Result<&ScriptSource, ScriptError> {
        let lines = |source: &ScriptSource| source.lines_before + source.text.lines().count() + 1;
        let lines_before = self.0.last().map_or(0, lines);
        self.0.push(ScriptSource { file: file.to_owned(), text, lines_before });
        let added = self.0.last().filter(|added| lines(added) <= usize::from(u16::MAX));
        added.ok_or_else(|| {
            file_error(file, format!("the script and those before it have more than {} lines", u16::MAX))
        })
    }

    /// Returns the stage's own script.
    pub(super) fn main(&self) -> &ScriptSource {
        &self.0[0]
    }

    /// Returns every script.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ScriptSource> {
        self.0.iter()
    }

    /// Returns the script that contains a line of the common numbering, and its own number of the line.
    fn locate(&self, line: usize) -> (&ScriptSource, usize) {
        let source = self.0.iter().rev().find(|source| source.lines_before < line).unwrap_or(&self.0[0]);
        (source, line - source.lines_before)
    }

    /// Returns an error at a position.
    pub(super) fn error_at(&self, position: Position, reason: impl Into<String>) -> ScriptError {
        let (source, line) = self.locate(position.line().unwrap_or(0));
        ScriptError {
            line,
            column: position.position().unwrap_or(0),
            source_line: line.checked_sub(1).and_then(|l| source.text.lines().nth(l)).unwrap_or_default().to_owned(),
            ..file_error(&source.file, reason)
        }
    }

    /// Returns the error for a panic of a native function that was called at `position` or later.
    pub(super) fn panic_error(&self, position: Position, panic: &(dyn Any + Send)) -> ScriptError {
        let text = flagperf_core::panic::panic_text(panic);
        self.error_at(position, format!("panicked here or later: {text} (a bug in flagperf or in the engine)"))
    }

    /// Returns the error for a script that does not compile; `packages` are those granted to it.
    pub(super) fn parse_error(&self, error: &ParseError, packages: &[&str]) -> ScriptError {
        let reason = match error.err_type() {
            ParseErrorType::ModuleUndefined(name) => {
                format!("unknown package `{name}`{}", suggestion(name, packages.iter().copied()))
            }
            ParseErrorType::VariableUndefined(name) => format!("unknown variable `{name}`"),
            ParseErrorType::ExprTooDeep => {
                format!("expressions are nested too deeply (at most {EXPRESSION_DEPTH_MAX} levels are supported)")
            }
            ParseErrorType::TooManyFunctions => format!("too many functions (at most {FUNCTIONS_MAX} are supported)"),
            other => to_fragment(&other.to_string()),
        };
        self.error_at(error.position(), reason)
    }

    /// Returns the error for a script that failed at run time; `names` are the names that it may have misspelled.
    pub(super) fn runtime_error(&self, mut error: EvalAltResult, names: &KnownNames<'_>) -> ScriptError {
        let (mut called_from, mut function) = (Vec::new(), None);
        while let EvalAltResult::ErrorInFunctionCall(name, _, inner, position) = error {
            function = Some(name);
            let caller = position.line().map(|line| self.locate(line));
            called_from.extend(caller.map(|(source, line)| (source.file.clone(), line)));
            error = *inner;
        }
        called_from.reverse();
        let begin = self.known_place(function.as_deref(), names.last_call);
        let position = Some(error.take_position()).filter(|position| !position.is_none());
        // The latest native call may be that of a shared function that has returned.
        let is_begin_of_caller = function.is_none() && self.locate(place(begin).0).0.lines_before > 0;
        let first = if is_begin_of_caller { Position::NONE } else { begin };
        let position = position.or_else(|| unknown_call(&error, first, names)).unwrap_or(begin);
        let is_strange_property = matches!(&error, EvalAltResult::ErrorPropertyNotFound(name, _)
            if !matches!(names.suggest_property(name), Suggestion::Near(_)));
        let reason = error_reason(&error, names);
        ScriptError { called_from, is_strange_property, ..self.error_at(position, reason) }
    }

    /// Returns the last place that an error without a position is known to have passed: the latest native call, or the beginning
    /// of the innermost `function`. The lines of shared scripts follow those of the script.
    fn known_place(&self, function: Option<&str>, last_call: Position) -> Position {
        let function = function.map(last_part);
        let begins = self.0.iter().filter_map(|source| Some(source.function_position(function?)));
        begins.chain([last_call]).max_by_key(|position| place(*position)).unwrap_or(last_call)
    }
}

/// Returns a position as line and column, which can be compared.
fn place(position: Position) -> (usize, usize) {
    (position.line().unwrap_or(0), position.position().unwrap_or(0))
}

/// Returns the position of a call that fits no function, to which Rhai gives none if it has the name of a package: the first such
/// call from `begin` on.
fn unknown_call(error: &EvalAltResult, begin: Position, names: &KnownNames<'_>) -> Option<Position> {
    let EvalAltResult::ErrorFunctionNotFound(signature, _) = error else { return None };
    let called = last_part(function_name(signature));
    let calls = (names.calls)().into_iter();
    let fits = calls.filter(|(name, position)| last_part(name) == called && place(*position) >= place(begin));
    fits.map(|(_, position)| position).min_by_key(|position| place(*position))
}

/// The beginning of the reason of an error about a property that a map does not have.
pub(super) const UNKNOWN_PROPERTY: &str = "unknown property";

/// The names that a script can use, for suggestions in errors.
pub(super) struct KnownNames<'a> {
    /// Signatures of the functions of its packages, with their namespaces, and of its own functions.
    pub(super) functions: &'a dyn Fn() -> Vec<String>,
    /// The calls in all its scripts, each with its position.
    pub(super) calls: &'a dyn Fn() -> Vec<(String, Position)>,
    /// Keys of `config` and fields of batches.
    pub(super) properties: &'a [String],
    /// Position of its last native call, for errors that have no position.
    pub(super) last_call: Position,
}

impl KnownNames<'_> {
    fn suggest_property(&self, name: &str) -> Suggestion {
        suggestion(name, self.properties.iter().map(String::as_str))
    }
}

fn error_reason(error: &EvalAltResult, names: &KnownNames<'_>) -> String {
    use EvalAltResult as E;
    match error {
        E::ErrorRuntime(reason, _) | E::ErrorTerminated(reason, _) => reason.to_string(),
        E::ErrorVariableNotFound(name, _) => format!("unknown variable `{name}`"),
        E::ErrorPropertyNotFound(name, _) => {
            format!("{UNKNOWN_PROPERTY} `{name}`{}", names.suggest_property(name))
        }
        E::ErrorFunctionNotFound(signature, _) => function_not_found(signature, &(names.functions)()),
        E::ErrorDataRace(name, _) => {
            let name = if name.is_empty() { "a value" } else { name };
            format!("`{name}` is in use by the call that this function belongs to, and cannot be used in it")
        }
        E::ErrorModuleNotFound(name, _) => {
            let functions = (names.functions)();
            let known = functions.iter().filter_map(|f| f.split_once("::")).map(|(module, _)| module);
            format!("unknown package `{name}`{}", suggestion(name, known))
        }
        E::ErrorStackOverflow(_) => format!(
            "calls are nested too deeply (at most {CALL_LEVELS_MAX} levels are supported): is there an infinite recursion?"
        ),
        E::ErrorTooManyVariables(_) => format!("too many variables (at most {VARIABLES_MAX} are supported)"),
        E::ErrorDataTooLarge(what, _) => data_too_large(what),
        E::ErrorIndexingType(types, _) => indexing_error(types),
        E::ErrorMismatchDataType(expected, actual, _) | E::ErrorMismatchOutputType(expected, actual, _) => {
            type_mismatch(&type_word(expected), &type_word(actual))
        }
        other => to_fragment(&other.to_string()),
    }
}

/// Returns the reason for a value that exceeds a limit of the sandbox; `what` is Rhai's description of the limit.
fn data_too_large(what: &str) -> String {
    let (value, limit, unit) = match what.to_lowercase() {
        what if what.contains("string") => ("a string", STRING_BYTES_MAX, "bytes"),
        what if what.contains("array") => ("an array", ARRAY_ELEMENTS_MAX, "elements"),
        what if what.contains("map") => ("a map", MAP_ENTRIES_MAX, "entries"),
        what => return format!("a value is too large: {what}"),
    };
    format!("{value} is too large (at most {limit} {unit} are supported)")
}

/// Returns the reason for a value of the type `actual` where the language requires one of the type `expected`.
fn type_mismatch(expected: &str, actual: &str) -> String {
    let hint = match (expected, actual) {
        ("bool", "tensor") => ": reduce a comparison of tensors with `.any()` or `.all()`",
        ("int" | "float", "tensor") => ": `.item()` returns the only element of a tensor",
        _ => "",
    };
    if expected.is_empty() {
        return format!("a value of the type `{actual}` cannot be used here{hint}");
    }
    format!("expected `{expected}`, not `{actual}`{hint}")
}

/// Returns the reason for a value that has no index; `types` are those of the value and of the index: `Node [i64]`.
fn indexing_error(types: &str) -> String {
    let (value, index) =
        types.split_once(" [").map_or((types, ""), |(value, index)| (value, index.trim_end_matches(']')));
    let hint = match type_word(value).as_str() {
        "node" => ": use `select(axis, index)` or `slice(axis, start, end)`",
        _ => "",
    };
    format!("a value of the type `{}` has no index of the type `{}`{hint}", type_word(value), type_word(index))
}

/// Returns the function name in a signature: `metric::top_k` for `metric::top_k(scores: Tensor)`.
pub(super) fn function_name(signature: &str) -> &str {
    signature.split_once('(').map_or(signature, |(name, _)| name).trim()
}

/// Converts a message of Rhai to a fragment: lower case, no full stop.
fn to_fragment(message: &str) -> String {
    let message = message.trim_end_matches('.');
    let mut characters = message.chars();
    let first = characters.next().map(|c| c.to_lowercase().to_string()).unwrap_or_default();
    first + characters.as_str()
}
