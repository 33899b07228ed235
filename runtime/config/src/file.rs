//! One YAML file as a mapping of keys to values, each with its origin.

use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;

use super::yaml::{self, Content, Node, Place};
use super::{Finding, Origin};

/// Maximum size of a configuration file in bytes. Parsing a file takes about a hundred times its size in memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The place of a finding that concerns a file and not one of its lines.
const WHOLE_FILE: Place = Place { line: 0, column: 0 };

const TOP: Place = Place { line: 1, column: 1 };

/// A YAML file that contains a mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigFile {
    /// Name of the file in messages.
    pub name: Arc<str>,
    /// The top-level keys and their values.
    pub entries: IndexMap<String, Node>,
}

impl ConfigFile {
    /// Reads `path`; an empty file has no keys. Messages name a file under `root` by its path relative to `root`.
    pub fn read(path: &Path, root: &Path) -> Result<ConfigFile, Finding> {
        ConfigFile::read_as(path, display_name(path, root))
    }

    /// Reads `path`; messages call the file `name`.
    pub fn read_as(path: &Path, name: Arc<str>) -> Result<ConfigFile, Finding> {
        ConfigFile::parse(&read_text(path, &name)?, name)
    }

    /// Parses `text`; messages call the file `name`.
    pub fn parse(text: &str, name: Arc<str>) -> Result<ConfigFile, Finding> {
        let at = |place: Place| origin(&name, place);
        let tree = yaml::parse(text).map_err(|cause| Finding::error(at(cause.place), cause.reason))?;
        match tree.content {
            Content::Map(entries) => Ok(ConfigFile { entries, name }),
            _ if tree.is_null() => Ok(ConfigFile { entries: IndexMap::new(), name }),
            _ => Err(Finding::error(at(tree.place), "must be a mapping of keys to values")),
        }
    }

    /// Returns whether an origin is a line of this file.
    pub fn contains(&self, origin: &Origin) -> bool {
        matches!(origin, Origin::File { file, .. } if *file == self.name)
    }

    /// Returns the origin of `node`.
    pub fn origin(&self, node: &Node) -> Origin {
        origin(&self.name, node.place)
    }

    /// Returns the file as an origin, for a finding that concerns none of its lines.
    pub fn whole(&self) -> Origin {
        origin(&self.name, WHOLE_FILE)
    }

    /// Returns the beginning of the file as an origin.
    pub fn top(&self) -> Origin {
        origin(&self.name, TOP)
    }
}

/// Reads a configuration file as text; messages call the file `name`.
pub fn read_text(path: &Path, name: &Arc<str>) -> Result<String, Finding> {
    flagperf_core::regular_file::read_regular_text(path, FILE_BYTES_MAX).map_err(|cause| {
        let size = std::fs::metadata(path).map_or(0, |file| file.len());
        let finding = match size > FILE_BYTES_MAX {
            true => {
                Finding::unplaced(format!("has {size} bytes; the limit for a configuration file is {FILE_BYTES_MAX}"))
                    .with_hint("is it the right file? It contains only keys and short values")
            }
            false => Finding::unplaced(format!("cannot be read: {cause}")),
        };
        finding.at(origin(name, WHOLE_FILE))
    })
}

/// Formats a path for messages: relative to `root` when it lies there.
pub fn display_name(path: &Path, root: &Path) -> Arc<str> {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into()
}

fn origin(name: &Arc<str>, place: Place) -> Origin {
    Origin::File { file: Arc::clone(name), line: place.line, column: place.column }
}
