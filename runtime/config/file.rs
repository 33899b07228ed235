//! One YAML file: keys with values, each with its origin.

use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;

use super::yaml::{self, Content, Node, Place};
use super::{ConfigProblem, Finding, Origin};

/// Size that a configuration file may have: reading one takes some hundred times its size in memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

const TOP: Place = Place { line: 1, column: 1 };

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
        File::parse(&read_text(path, &name)?, name)
    }

    /// The file called `name` in messages, of this text.
    pub fn parse(text: &str, name: Arc<str>) -> Result<File, Finding> {
        let at = |place: Place| origin(&name, place);
        let tree = yaml::parse(text)
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
        origin(&self.name, TOP)
    }
}

/// The text of a configuration file. `name` is for messages.
pub fn read_text(path: &Path, name: &Arc<str>) -> Result<String, Finding> {
    flagperf_onnx::read_regular_text(path, FILE_BYTES_MAX).map_err(|cause| {
        let size = std::fs::metadata(path).map_or(0, |file| file.len());
        let problem = match size > FILE_BYTES_MAX {
            true => ConfigProblem::TooLarge { bytes: size, bytes_max: FILE_BYTES_MAX },
            false => ConfigProblem::Read { reason: cause.to_string() },
        };
        Finding::error(origin(name, TOP), problem)
    })
}

/// A path as messages show it: relative to `root` when it lies there.
pub fn display_name(path: &Path, root: &Path) -> Arc<str> {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into()
}

fn origin(name: &Arc<str>, place: Place) -> Origin {
    Origin::File { file: Arc::clone(name), line: place.line, column: place.column }
}
