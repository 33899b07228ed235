//! Where a value comes from, and which of several values wins.

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file; the file name is relative to the checkout when the file lies in it.
    File {
        file: Arc<str>,
        /// Line, from 1; 0 for the whole file.
        line: usize,
        /// Column, from 1; 0 for the whole file.
        column: usize,
    },
    /// A position in a script.
    Script {
        /// The file, relative to the checkout when it lies in it.
        file: Arc<str>,
        /// Line, from 1; 0 for the whole file.
        line: usize,
        /// Column, from 1; 0 when unknown.
        column: usize,
    },
    /// An environment variable.
    Environment(&'static str),
    /// The command line, such as `--vendor` or `--set batch_size=4`.
    CommandLine(String),
    /// The built-in default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { file, line: 0, .. } => write!(f, "{file}"),
            Origin::File { file, line, .. } => write!(f, "{file}:{line}"),
            Origin::Script { file, line: 0, .. } => write!(f, "{file}"),
            Origin::Script { file, line, column: 0 } => write!(f, "{file}:{line}"),
            Origin::Script { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Origin::Environment(variable) => write!(f, "${variable}"),
            Origin::CommandLine(argument) => write!(f, "{argument}"),
            Origin::Default => write!(f, "default"),
        }
    }
}

/// A value and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced<T> {
    pub value: T,
    /// Where the value comes from.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    /// Combines `value` with its `origin`.
    pub fn new(value: T, origin: Origin) -> Self {
        Sourced { value, origin }
    }
}

/// Values with their origins, by key, in the order of the files.
pub type Values = IndexMap<String, Sourced<Value>>;

/// Merges layers of values. This is the only rule of precedence: when several layers set a key, the last one wins.
///
/// Layers of the site: defaults, host.yaml, environment, command line. Layers of a case: defaults, configurations.yaml,
/// the vendor's overlay, `--set`.
pub fn merge_layers<const LAYERS: usize>(layers: [Values; LAYERS]) -> Values {
    layers.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_layer_wins_and_keys_keep_the_order_of_first_appearance() {
        let layer = |entries: &[(&str, i32)], origin: Origin| -> Values {
            entries.iter().map(|(k, v)| ((*k).to_owned(), Sourced::new(Value::from(*v), origin.clone()))).collect()
        };
        let merged = merge_layers([
            layer(&[("a", 1), ("b", 1)], Origin::Default),
            layer(&[("c", 2)], Origin::Default),
            layer(&[("a", 3)], Origin::Environment("X")),
        ]);
        assert_eq!(merged.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(merged["a"], Sourced::new(Value::from(3), Origin::Environment("X")));
        assert_eq!(merged["b"].origin, Origin::Default);
    }
}
