//! Two trees of files, and what changed between them.
//!
//! Knows no version control: a tree is whatever lists folders and returns the content of files.

use std::fmt;

use serde::{Serialize, Serializer};

use flagperf_core::text::one_line;

/// Largest file that is read, in bytes. Larger ones are judged by their paths.
pub const FILE_BYTES_MAX: u64 = 4 << 20;

/// The path of a file, relative to the root of its tree, with `/` between names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath {
    text: String,
    is_utf8: bool,
}

impl FilePath {
    /// Creates a path from the bytes of its names. Bytes that are not UTF-8 are written as `\xff`.
    pub fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => FilePath { text: text.to_owned(), is_utf8: true },
            Err(_) => FilePath { text: flagperf_core::text::escape_log(bytes), is_utf8: false },
        }
    }

    /// Returns the path as text. For a path that is not UTF-8, no file of a tree has this name.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether every name is valid UTF-8.
    pub fn is_utf8(&self) -> bool {
        self.is_utf8
    }

    /// Returns the last name.
    pub fn name(&self) -> &str {
        self.text.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the path of the folder; empty at the root.
    pub fn folder(&self) -> &str {
        self.text.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

impl From<&str> for FilePath {
    fn from(text: &str) -> Self {
        FilePath { text: text.to_owned(), is_utf8: true }
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.text))
    }
}

impl Serialize for FilePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// What an entry of a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file.
    File,
    /// A file that may be executed.
    Executable,
    /// A symbolic link; its content is the target.
    Link,
    /// Another repository at a certain commit.
    Submodule,
}

impl EntryKind {
    /// Returns whether the entry is a file.
    pub fn is_file(self) -> bool {
        matches!(self, EntryKind::File | EntryKind::Executable)
    }
}

/// Why the content of a file is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// There is no such file.
    #[error("the file does not exist")]
    Missing,
    /// The file is larger than [`FILE_BYTES_MAX`].
    #[error("the file has {0} bytes (limit: {FILE_BYTES_MAX})")]
    TooLarge(u64),
    /// The file contains a zero byte or is not UTF-8.
    #[error("the file is binary")]
    Binary,
    /// The tree could not be read.
    #[error("{0}")]
    Failed(String),
}

/// A tree of files at one moment.
pub trait Snapshot {
    /// Returns the content of a file or the target of a link.
    ///
    /// # Errors
    /// When there is no such file, when it is larger than [`FILE_BYTES_MAX`], or when it cannot be read.
    fn read(&self, path: &str) -> Result<Vec<u8>, Unreadable>;

    /// Returns the names of the files and of the folders directly in a folder (empty: the root); none if it does not
    /// exist.
    fn list(&self, folder: &str) -> Vec<Name>;

    /// Returns the content of a text file.
    ///
    /// # Errors
    /// As [`Snapshot::read`], and when the file is binary.
    fn text(&self, path: &str) -> Result<String, Unreadable> {
        let bytes = self.read(path)?;
        if bytes.contains(&0) {
            return Err(Unreadable::Binary);
        }
        String::from_utf8(bytes).map_err(|_| Unreadable::Binary)
    }
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// A file on one side of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    pub path: FilePath,
    /// What it is.
    pub kind: EntryKind,
}

/// A file that differs between two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The file is new.
    Added(Side),
    /// The file is gone.
    Removed(Side),
    /// The content or the kind differs.
    Modified {
        /// The file before.
        before: Side,
        /// The file after.
        after: Side,
    },
    /// The file has another path, and possibly other content.
    Renamed {
        /// The file before.
        before: Side,
        /// The file after.
        after: Side,
    },
}

impl Change {
    /// Returns the file before the change.
    pub fn before(&self) -> Option<&Side> {
        match self {
            Change::Added(_) => None,
            Change::Removed(side) => Some(side),
            Change::Modified { before, .. } | Change::Renamed { before, .. } => Some(before),
        }
    }

    /// Returns the file after the change.
    pub fn after(&self) -> Option<&Side> {
        match self {
            Change::Added(side) => Some(side),
            Change::Removed(_) => None,
            Change::Modified { after, .. } | Change::Renamed { after, .. } => Some(after),
        }
    }

    /// Returns the path after the change, or before it if the file is gone.
    pub fn path(&self) -> &FilePath {
        match self {
            Change::Added(side) | Change::Removed(side) => &side.path,
            Change::Modified { after, .. } | Change::Renamed { after, .. } => &after.path,
        }
    }

    /// Returns every path that the change touches.
    pub fn paths(&self) -> Vec<&FilePath> {
        match self {
            Change::Renamed { before, after } => vec![&before.path, &after.path],
            other => vec![other.path()],
        }
    }

    /// Returns the change as a word: `added`, `removed`, `modified`, `renamed`.
    pub fn word(&self) -> &'static str {
        match self {
            Change::Added(_) => "added",
            Change::Removed(_) => "removed",
            Change::Modified { .. } => "modified",
            Change::Renamed { .. } => "renamed",
        }
    }
}
