//! Finds variables that load other code into the processes of a run. Whatever they load is in no record.

use similar::{ChangeTag, TextDiff};

use super::tree::{Change, Snapshot};
use flagperf_config::env::CODE_VARIABLES;

/// The names of further such variables and of files, beside [`CODE_VARIABLES`].
const NAMES: [&str; 4] = ["LD_LIBRARY_PATH", "ld.so.preload", "sitecustomize", "usercustomize"];
/// Folders whose files a run executes or reads.
const FOLDERS: [&str; 4] = ["configs/", "docker_images/", "scripts/", "vendors/"];

/// Returns the lines that a change adds to a file with such a name, each with its number and the name.
pub(super) fn loader_variables(
    change: &Change,
    (before, after): (&dyn Snapshot, &dyn Snapshot),
) -> Vec<(usize, &'static str)> {
    let Some(side) = change.after() else { return Vec::new() };
    let path = side.path.text();
    if !FOLDERS.iter().any(|folder| path.starts_with(folder)) || path.ends_with(".md") {
        return Vec::new();
    }
    // A name is also found in a binary file.
    let text = |tree: &dyn Snapshot, path: &str| {
        tree.read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    };
    let old = change.before().map(|side| text(before, side.path.text())).unwrap_or_default();
    let new = text(after, path);
    let name_of = |text: &str| CODE_VARIABLES.into_iter().chain(NAMES).find(|name| text.contains(name));
    if name_of(&new).is_none() {
        return Vec::new();
    }
    let diff = TextDiff::from_lines(&old, &new);
    let added = diff.iter_all_changes().filter(|line| line.tag() == ChangeTag::Insert);
    added.filter_map(|line| Some((line.new_index()? + 1, name_of(line.value())?))).collect()
}
