//! A file that an import writes into the checkout: its text, and its differences from an existing file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use tempfile::NamedTempFile;

use super::report::FileOutcome;
use super::yaml_text::{is_same, line};
use flagperf_config::{ConfigFile, Node};
use flagperf_core::file::stage;

/// Maximum size of a file that is copied or compared.
pub(super) const TEXT_BYTES_MAX: u64 = 1 << 20;

/// A file that the checkout should have.
pub(super) struct NewFile {
    /// The path in the checkout.
    pub(super) path: PathBuf,
    /// The file or folder of the source.
    pub(super) from: String,
    pub(super) content: FileContent,
    pub(super) replacement: Replacement,
}

/// When a file replaces one with another content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replacement {
    /// It contains all that the other file has.
    Always,
    ByForce,
    /// The other file is the vendor's.
    Never,
}

/// The content of a new file.
pub(super) enum FileContent {
    /// A YAML file.
    Keys {
        /// The lines of comments at its beginning.
        header: String,
        /// Its keys; a file that is replaced keeps its keys that are not among them.
        entries: IndexMap<String, Node>,
    },
    /// Any other text.
    Text(String),
}

/// What happened to a file, and what differed from one that existed.
pub(super) struct Written {
    pub(super) outcome: FileOutcome,
    pub(super) differences: Vec<String>,
}

/// Whether and how files are written.
#[derive(Clone, Copy)]
pub(super) struct WriteMode {
    pub(super) replaces: bool,
    pub(super) is_dry_run: bool,
}

impl NewFile {
    /// Writes the file into the checkout at `root`, or finds what would happen.
    ///
    /// # Errors
    /// When the file cannot be written, or its path leads through a link.
    pub(super) fn write(&self, root: &Path, mode: WriteMode) -> io::Result<Written> {
        check_links(root, &self.path)?;
        let path = root.join(&self.path);
        let exists = path.symlink_metadata().is_ok();
        let differences = if exists { self.differences(&path) } else { Vec::new() };
        let replaces = match self.replacement {
            Replacement::Always => true,
            Replacement::ByForce => mode.replaces,
            Replacement::Never => false,
        };
        let outcome = match (exists, differences.is_empty(), replaces) {
            (false, ..) => FileOutcome::Created,
            (true, true, _) => FileOutcome::Unchanged,
            (true, false, true) => FileOutcome::Replaced,
            (true, false, false) => FileOutcome::Kept,
        };
        if !mode.is_dry_run && matches!(outcome, FileOutcome::Created | FileOutcome::Replaced) {
            place(&path, &self.text(&path), exists)?;
        }
        Ok(Written { outcome, differences })
    }

    /// Returns the keys that differ from those of the file at `path`; `text` for a file that cannot be compared by keys.
    fn differences(&self, path: &Path) -> Vec<String> {
        let whole = || vec!["text".to_owned()];
        let entries = match &self.content {
            FileContent::Text(text) => {
                let current = flagperf_core::regular_file::read_regular_text(path, TEXT_BYTES_MAX);
                return if current.is_ok_and(|current| current == *text) { Vec::new() } else { whole() };
            }
            FileContent::Keys { entries, .. } => entries,
        };
        let Ok(current) = ConfigFile::read(path, path) else { return whole() };
        let differs = |(key, node): &(&String, &Node)| current.entries.get(*key).is_none_or(|own| !is_same(own, node));
        entries.iter().filter(differs).map(|(key, _)| key.clone()).collect()
    }

    /// Returns the text of the file; `path` may contain one from which keys are kept.
    fn text(&self, path: &Path) -> String {
        let (header, entries) = match &self.content {
            FileContent::Text(text) => return text.clone(),
            FileContent::Keys { header, entries } => (header, entries),
        };
        let current = ConfigFile::read(path, path).ok();
        let others = current.iter().flat_map(|current| &current.entries);
        let others = others.filter(|(key, _)| !entries.contains_key(*key));
        let lines: String = entries.iter().chain(others).map(|(key, node)| line(key, node)).collect();
        format!("{header}{lines}")
    }
}

/// Checks that no folder on the way to a file in the checkout, nor the file itself, is a link: what it points to need not be
/// in the checkout.
fn check_links(root: &Path, path: &Path) -> io::Result<()> {
    let mut parts: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    parts.reverse();
    match parts.into_iter().find(|part| root.join(part).is_symlink()) {
        Some(link) => Err(io::Error::other(format!("`{}` is a symbolic link", link.display()))),
        None => Ok(()),
    }
}

/// Writes a file beside its place and moves it there, so that nobody reads half of it. A new file replaces none.
fn place(path: &Path, text: &str, replaces: bool) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)?;
    let file = stage(text.as_bytes(), path, Some(permissions(path, replaces)?))?;
    let placed = |file: NamedTempFile| if replaces { file.persist(path) } else { file.persist_noclobber(path) };
    placed(file).map(drop).map_err(|failed| failed.error)
}

/// Returns the permissions of the file that is replaced, or else those of a file that everybody may read.
fn permissions(path: &Path, replaces: bool) -> io::Result<fs::Permissions> {
    use std::os::unix::fs::PermissionsExt as _;
    if replaces { Ok(path.metadata()?.permissions()) } else { Ok(fs::Permissions::from_mode(0o644)) }
}
