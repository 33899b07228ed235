//! One YAML file: keys with values, each with its origin.

use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;

use super::yaml::{self, Content, Node, Place};
use super::{ConfigProblem, Finding, Origin};

/// A YAML file whose top is keys with values.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Its name in messages.
    pub name: Arc<str>,
    /// Its keys.
    pub entries: IndexMap<String, Node>,
}

impl File {
    /// Reads `path`; an empty file has no keys. Messages name it relative to `root` when it lies there.
    pub fn read(path: &Path, root: &Path) -> Result<File, Finding> {
        let name = display_name(path, root);
        let at = |place: Place| origin(&name, place);
        let top = Place { line: 1, column: 1 };
        let text = std::fs::read_to_string(path)
            .map_err(|cause| Finding::error(at(top), ConfigProblem::Read { reason: cause.to_string() }))?;
        let tree = yaml::parse(&text)
            .map_err(|cause| Finding::error(at(cause.place), ConfigProblem::Yaml { reason: cause.reason }))?;
        match tree.content {
            Content::Map(entries) => Ok(File { entries, name }),
            _ if tree.is_null() => Ok(File { entries: IndexMap::new(), name }),
            _ => Err(Finding::error(at(tree.place), ConfigProblem::NotMapping)),
        }
    }

    /// The origin of `node`.
    pub fn origin(&self, node: &Node) -> Origin {
        origin(&self.name, node.place)
    }

    /// The file itself as an origin.
    pub fn top(&self) -> Origin {
        origin(&self.name, Place { line: 1, column: 1 })
    }
}

/// A path as messages show it: relative to `root` when it lies there.
pub fn display_name(path: &Path, root: &Path) -> Arc<str> {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into()
}

fn origin(name: &Arc<str>, place: Place) -> Origin {
    Origin::File { file: Arc::clone(name), line: place.line, column: place.column }
}
