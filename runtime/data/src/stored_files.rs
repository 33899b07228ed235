//! Compares the files in a data directory with the description of a dataset.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use flagperf_core::regular_file::open_regular;

use super::{DataError, DataRoot};
use flagperf_config::{DatasetDescription, DatasetFile, DatasetFolder};
use flagperf_core::hash::{hash_bytes, hash_reader};

/// An item of a description, compared with the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedItem {
    /// The path or pattern in the description.
    pub path: String,
    /// Whether a case needs the item.
    pub required: bool,
    pub state: ItemState,
}

/// The files found for an item. `expected` is the value in the description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemState {
    /// Everything that the description states is true.
    Intact {
        files: u64,
        bytes: u64,
    },
    Missing,
    /// A file has another size in bytes.
    WrongSize {
        expected: u64,
        found: u64,
    },
    /// The content, or the index of several files, has another SHA-256.
    WrongChecksum {
        expected: String,
        found: String,
    },
    /// There are more or fewer files.
    WrongCount {
        expected: u64,
        found: u64,
    },
    /// What exists is not a file that can be read.
    Unusable {
        reason: String,
    },
}

impl CheckedItem {
    /// Returns whether a case can do without what is wrong: nothing, or only a missing item that is not required.
    pub fn is_acceptable(&self) -> bool {
        match self.state {
            ItemState::Intact { .. } => true,
            ItemState::Missing => !self.required,
            _ => false,
        }
    }

    /// Returns the state in one or two words.
    pub fn label(&self) -> &'static str {
        match self.state {
            ItemState::Intact { .. } => "ok",
            ItemState::Missing if self.required => "missing",
            ItemState::Missing => "optional",
            ItemState::WrongSize { .. } => "wrong size",
            ItemState::WrongChecksum { .. } => "wrong checksum",
            ItemState::WrongCount { .. } => "wrong number",
            ItemState::Unusable { .. } => "unusable",
        }
    }
}

impl fmt::Display for ItemState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ItemState::Intact { files: 1, bytes } => write!(f, "{bytes} bytes"),
            ItemState::Intact { files, bytes } => write!(f, "{files} files, {bytes} bytes"),
            ItemState::Missing => write!(f, "not found"),
            ItemState::WrongSize { expected, found } => write!(f, "{found} bytes, expected {expected}"),
            ItemState::WrongChecksum { expected, found } => write!(f, "SHA-256 {found}, expected {expected}"),
            ItemState::WrongCount { expected, found } => write!(f, "{found} files, expected {expected}"),
            ItemState::Unusable { reason } => f.write_str(reason),
        }
    }
}

/// Compares each item of a description with the files in `root`, in order. Files are read 1 MiB at a time, and each item
/// is compared when the iterator reaches it.
pub fn check_items<'d>(
    root: &'d DataRoot,
    description: &'d DatasetDescription,
) -> impl Iterator<Item = CheckedItem> + 'd {
    let item = |path: &str, required, state: Result<ItemState, ItemState>| CheckedItem {
        path: path.to_owned(),
        required,
        state: state.unwrap_or_else(|state| state),
    };
    let files = description.files.iter().map(move |file| item(&file.path, file.required, check_file(root, file)));
    let folders =
        description.folders.iter().map(move |folder| item(&folder.glob, folder.required, check_folder(root, folder)));
    files.chain(folders)
}

fn unusable(error: impl fmt::Display) -> ItemState {
    ItemState::Unusable { reason: error.to_string() }
}

/// Resolves a path of the description; what prevents that is the state of the item.
fn resolve(root: &DataRoot, path: &Path) -> Result<PathBuf, ItemState> {
    root.resolve(path).map_err(|error| match error {
        DataError::Missing { .. } => ItemState::Missing,
        other => unusable(other),
    })
}

fn check_file(root: &DataRoot, file: &DatasetFile) -> Result<ItemState, ItemState> {
    let opened = open_regular(&resolve(root, Path::new(&file.path))?).map_err(unusable)?;
    let found = opened.metadata().map_err(unusable)?.len();
    if let Some(expected) = file.bytes.filter(|expected| *expected != found) {
        return Err(ItemState::WrongSize { expected, found });
    }
    if let Some(expected) = &file.sha256 {
        compare_hash(expected, hash_reader(opened).map_err(unusable)?)?;
    }
    Ok(ItemState::Intact { files: 1, bytes: found })
}

fn compare_hash(expected: &str, found: String) -> Result<(), ItemState> {
    match found == expected {
        true => Ok(()),
        false => Err(ItemState::WrongChecksum { expected: expected.to_owned(), found }),
    }
}

fn check_folder(root: &DataRoot, folder: &DatasetFolder) -> Result<ItemState, ItemState> {
    let mut files = Vec::new();
    let names: Vec<&str> = folder.glob.split('/').collect();
    expand(root, Path::new(""), &names, &mut files)?;
    files.sort();
    let found = files.len() as u64;
    match (found, folder.count) {
        (0, 1..) => return Err(ItemState::Missing),
        (found, expected) if found != expected => return Err(ItemState::WrongCount { expected, found }),
        _ => {}
    }
    if let Some(expected) = &folder.index_sha256 {
        let index: String = files.iter().map(|(path, bytes)| format!("{path}\0{bytes}\n")).collect();
        compare_hash(expected, hash_bytes(index.as_bytes()))?;
    }
    Ok(ItemState::Intact { files: found, bytes: files.iter().map(|(_, bytes)| bytes).sum() })
}

/// Collects the files below `folder` whose names match the rest of a pattern, each with its size in bytes. A place where
/// nothing matches has no files.
fn expand(root: &DataRoot, folder: &Path, names: &[&str], files: &mut Vec<(String, u64)>) -> Result<(), ItemState> {
    let Some((name, rest)) = names.split_first() else {
        let metadata = fs::metadata(resolve(root, folder)?).map_err(unusable)?;
        let path = folder.display();
        if !metadata.is_file() {
            return Err(unusable(format!("`{path}` is not a regular file")));
        }
        files.push((path.to_string(), metadata.len()));
        return Ok(());
    };
    for entry in matching_entries(root, folder, name)? {
        let path = folder.join(&entry);
        let is_folder = || resolve(root, &path).map(|resolved| resolved.is_dir());
        if rest.is_empty() || is_folder()? {
            expand(root, &path, rest, files)?;
        }
    }
    Ok(())
}

/// Returns the names in `folder` that match one name of a pattern.
fn matching_entries(root: &DataRoot, folder: &Path, pattern: &str) -> Result<Vec<String>, ItemState> {
    let resolved = match resolve(root, &if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.into() })
    {
        Err(ItemState::Missing) => return Ok(Vec::new()),
        resolved => resolved?,
    };
    if !pattern.contains('*') {
        let exists = resolved.join(pattern).symlink_metadata().is_ok();
        return Ok(if exists { vec![pattern.to_owned()] } else { Vec::new() });
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&resolved).map_err(|error| unusable(format!("`{}`: {error}", folder.display())))? {
        let name = entry.map_err(unusable)?.file_name();
        let matched = matches_pattern(&name.to_string_lossy(), pattern);
        match name.into_string() {
            Ok(name) if matched => found.push(name),
            Err(name) if matched => {
                return Err(unusable(format!("`{}` has a name that is not UTF-8", folder.join(name).display())));
            }
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

/// Returns whether `name` matches a pattern in which `*` stands for any text, except a leading dot.
fn matches_pattern(name: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    if first.is_empty() && name.starts_with('.') {
        return false;
    }
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests;
