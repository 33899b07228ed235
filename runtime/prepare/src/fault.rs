//! A fault of a case, and the finding that reports it at its place in the configuration.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use flagperf_config::{CaseConfig, Cause, Finding, Origin, Values};
use flagperf_script::ScriptError;

/// Something that is wrong with a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Where it has to be corrected.
    pub place: FaultPlace,
    /// What is wrong.
    pub reason: String,
}

/// The place of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultPlace {
    /// A script.
    Script {
        file: PathBuf,
        /// Line, from 1; 0 for the whole file.
        line: usize,
        /// Column, from 1; 0 when unknown.
        column: usize,
    },
    /// A key of parameters.yaml.
    Parameter(String),
    /// A key of parameters.yaml without effect.
    UnreadKey(String),
    /// The parameter `weights`.
    Weights {
        /// Whether the data directory lacks the file.
        is_missing: bool,
    },
    /// A key of configurations.yaml.
    Setting(String),
    /// The call in a script that describes the dataset.
    Dataset {
        file: PathBuf,
        /// Line, from 1; 0 for the whole file.
        line: usize,
        /// Column, from 1; 0 when unknown.
        column: usize,
        /// Whether the script is at fault and not a file of the data directory.
        is_mistake: bool,
        /// What to do about the fault; may be empty.
        hint: String,
    },
    /// A key of training.yaml that says how the training program is started.
    Program(String),
    /// The data directory of the case.
    DataDirectory {
        /// What to do about the fault; may be empty.
        hint: String,
    },
    /// The case as a whole.
    Case,
}

impl From<ScriptError> for Fault {
    fn from(error: ScriptError) -> Self {
        let ScriptError { file, line, column, mut reason, called_from, .. } = error;
        if !called_from.is_empty() {
            let calls: Vec<_> = called_from.iter().map(|(file, line)| format!("{}:{line}", file.display())).collect();
            reason += &format!(" (called from {})", calls.join(", "));
        }
        Fault { place: FaultPlace::Script { file, line, column }, reason }
    }
}

/// Returns the finding that reports a fault; `None` for a key that does not come from parameters.yaml. `root` is the
/// checkout, relative to which files are named.
pub fn finding(fault: Fault, case: &CaseConfig, root: &Path) -> Option<Finding> {
    match &fault.place {
        FaultPlace::UnreadKey(key) => {
            let origin = case.parameters.get(key)?.origin.clone();
            let message = format!("parameter `{key}` has no effect: {}", fault.reason);
            Some(Finding::warning(origin, message))
        }
        _ => Some(error_finding(fault, case, root)),
    }
}

fn error_finding(fault: Fault, case: &CaseConfig, root: &Path) -> Finding {
    let Fault { place, reason } = fault;
    let in_script = |file: &Path, line: usize, column: usize| {
        let file = file.strip_prefix(root).unwrap_or(file).display().to_string().into();
        Origin::Script { file, line, column }
    };
    let origin_in = |values: &Values, key: &str| values.get(key).map_or(Origin::Default, |value| value.origin.clone());
    let (origin, cause, hint) = match &place {
        FaultPlace::Script { file, line, column } => (in_script(file, *line, *column), Cause::Configuration, ""),
        FaultPlace::Dataset { file, line, column, is_mistake, hint } => {
            let cause = if *is_mistake { Cause::Configuration } else { Cause::Machine };
            (in_script(file, *line, *column), cause, hint.as_str())
        }
        FaultPlace::Weights { is_missing } => {
            let hint = match is_missing {
                true => {
                    "give the data directory that contains it with --data DIR; `weights: null` draws random weights"
                }
                false => {
                    "`weights` must name a file, or a folder with safetensors, in the data directory; null draws random weights"
                }
            };
            (origin_in(&case.parameters, "weights"), Cause::Machine, hint)
        }
        FaultPlace::Parameter(key) | FaultPlace::UnreadKey(key) => {
            (origin_in(&case.parameters, key), Cause::Configuration, "")
        }
        FaultPlace::Setting(key) => {
            let hint = match key.as_str() {
                "exist_onnx_path" => "it must be a complete ONNX file; `exist_onnx_path: null` exports a new one",
                _ => "give more data, or a smaller value",
            };
            (origin_in(&case.settings, key), Cause::Machine, hint)
        }
        FaultPlace::Program(key) => {
            let hint = "the folder is relative to the data directory, and a program or script to this folder";
            (origin_in(&case.settings, key), Cause::Machine, hint)
        }
        FaultPlace::DataDirectory { hint } => (case.data_dir.origin.clone(), Cause::Machine, hint.as_str()),
        FaultPlace::Case => (case.key.origin.clone(), Cause::Configuration, ""),
    };
    let message = join_lines(&reason);
    let message = match place {
        FaultPlace::Script { .. } => message.replace(&format!("{}/", root.display()), ""),
        FaultPlace::Dataset { .. } => format!("dataset of case `{}`: {message}", case.key.value.case),
        _ => message,
    };
    Finding { cause, ..Finding::error(origin, message).with_hint(hint) }
}

/// Returns the warning that a case could not be checked; the run will check it again.
pub fn unchecked_finding(reason: &str, case: &CaseConfig) -> Finding {
    let message = format!("case `{}` could not be checked before the run: {}", case.key.value, join_lines(reason));
    Finding::warning(case.key.origin.clone(), message).on_machine()
}

/// Joins the lines of a reason: a finding is one line. A semicolon separates them, unless a line ends with a mark of its
/// own.
fn join_lines(reason: &str) -> String {
    let mut joined = String::new();
    for line in reason.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let separator = match joined.chars().last() {
            None => "",
            Some(':' | ';' | ',' | '.') => " ",
            Some(_) => "; ",
        };
        joined += separator;
        joined += line;
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_with_a_separator() {
        let reason = "the weights do not fit:\n  missing (1): `fc2.bias`\n  unexpected (1): `fc3.bias`\n";
        let joined = "the weights do not fit: missing (1): `fc2.bias`; unexpected (1): `fc3.bias`";
        assert_eq!(join_lines(reason), joined);
    }
}
