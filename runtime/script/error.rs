//! What went wrong in a script, shown as `file:line:column: reason` with the source line below.
//!
//! Knows no package.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};

use rhai::{EvalAltResult, ParseError, ParseErrorType, Position};

use super::nearest::nearest;

/// An error in a script: where, why, and the source line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError {
    /// The script, as its folder was given.
    pub file: PathBuf,
    /// Line, from 1; 0 when the error belongs to the whole file.
    pub line: usize,
    /// Column, from 1; 0 when unknown.
    pub column: usize,
    /// Lower-case fragment with the value in backticks, and what is known.
    pub reason: String,
    /// The text of the line.
    pub source_line: String,
    /// Lines from which the function with the error was called, innermost first.
    pub called_from: Vec<usize>,
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
            // Tabs before the caret are kept, so that it stands under its character.
            let before = text.chars().take(self.column.saturating_sub(1));
            let space: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            write!(f, "\n    {text}\n    {space}^")?;
        }
        for line in &self.called_from {
            write!(f, "\n    called from {}:{line}", self.file.display())?;
        }
        Ok(())
    }
}

/// A script's file and text, and the names it can use: what an error needs to explain itself.
pub(super) struct Source {
    pub(super) file: PathBuf,
    pub(super) text: String,
}

impl Source {
    /// An error of the file as a whole.
    pub(super) fn whole(file: &Path, reason: impl Into<String>) -> ScriptError {
        ScriptError {
            file: file.to_owned(),
            line: 0,
            column: 0,
            reason: reason.into(),
            source_line: String::new(),
            called_from: Vec::new(),
        }
    }

    /// An error at a place in the file.
    pub(super) fn at(&self, position: Position, reason: impl Into<String>) -> ScriptError {
        let line = position.line().unwrap_or(0);
        ScriptError {
            line,
            column: position.position().unwrap_or(0),
            source_line: line.checked_sub(1).and_then(|l| self.text.lines().nth(l)).unwrap_or_default().to_owned(),
            ..Self::whole(&self.file, reason)
        }
    }

    /// A panic of a native function that was called at this place or after it.
    pub(super) fn panicked(&self, position: Position, panic: &(dyn Any + Send)) -> ScriptError {
        let text = flagperf_onnx::panic_text(panic);
        self.at(position, format!("panicked here or after: {text} (a defect of flagperf or of the engine)"))
    }

    /// A script that could not be compiled.
    pub(super) fn parsing(&self, error: &ParseError, packages: &[&str]) -> ScriptError {
        let reason = match error.err_type() {
            ParseErrorType::ModuleUndefined(name) => {
                format!("unknown package `{name}`{}", nearest(name, packages.iter().copied()))
            }
            ParseErrorType::VariableUndefined(name) => format!("unknown variable `{name}`"),
            other => fragment(&other.to_string()),
        };
        self.at(error.position(), reason)
    }

    /// A script that failed as it ran. `functions` and `properties` are the names it could have meant.
    pub(super) fn running(&self, mut error: EvalAltResult, names: &Names<'_>) -> ScriptError {
        let mut called_from = Vec::new();
        while let EvalAltResult::ErrorInFunctionCall(_, _, inner, position) = error {
            called_from.extend(position.line());
            error = *inner;
        }
        called_from.reverse();
        let position = Some(error.take_position()).filter(|position| !position.is_none()).unwrap_or(names.place);
        ScriptError { called_from, ..self.at(position, reason(&error, names)) }
    }
}

/// Names that a script could have meant.
pub(super) struct Names<'a> {
    /// Functions of its packages and its own, namespaces included.
    pub(super) functions: &'a dyn Fn() -> Vec<String>,
    /// Keys of `config` and fields of batches.
    pub(super) properties: &'a [String],
    /// Where its last native call stands.
    pub(super) place: Position,
}

fn reason(error: &EvalAltResult, names: &Names<'_>) -> String {
    use EvalAltResult as E;
    match error {
        E::ErrorRuntime(reason, _) | E::ErrorTerminated(reason, _) => reason.to_string(),
        E::ErrorVariableNotFound(name, _) => format!("unknown variable `{name}`"),
        E::ErrorPropertyNotFound(name, _) => {
            format!("unknown property `{name}`{}", nearest(name, names.properties.iter().map(String::as_str)))
        }
        E::ErrorFunctionNotFound(signature, _) => unknown_function(signature, &(names.functions)()),
        E::ErrorModuleNotFound(name, _) => {
            let functions = (names.functions)();
            let known = functions.iter().filter_map(|f| f.split_once("::")).map(|(module, _)| module);
            format!("unknown package `{name}`{}", nearest(name, known))
        }
        E::ErrorStackOverflow(_) => "calls nest too deep: is there a recursion without an end?".to_owned(),
        E::ErrorTooManyVariables(_) => "too many variables".to_owned(),
        other => fragment(&other.to_string()),
    }
}

/// `signature` is as Rhai gives it: `metric::topk (Tensor, array)`.
fn unknown_function(signature: &str, known: &[String]) -> String {
    let (name, given) = signature.split_once('(').unwrap_or((signature, ""));
    let (name, given) = (name.trim(), given.trim_end_matches(')'));
    let forms: Vec<&str> = known.iter().filter(|f| bare(f) == name).map(String::as_str).collect();
    if forms.is_empty() {
        return format!("unknown function `{name}`{}", nearest(name, known.iter().map(|f| bare(f))));
    }
    format!("`{name}` does not take ({given}); it is {}", forms.join(" or "))
}

/// A signature's name: `metric::top_k(scores: Tensor)` is `metric::top_k`.
pub(super) fn bare(signature: &str) -> &str {
    signature.split_once('(').map_or(signature, |(name, _)| name).trim()
}

/// Rhai's message as a fragment: lower case, no full stop.
fn fragment(message: &str) -> String {
    let message = message.trim_end_matches('.');
    let mut characters = message.chars();
    let first = characters.next().map(|c| c.to_lowercase().to_string()).unwrap_or_default();
    first + characters.as_str()
}
