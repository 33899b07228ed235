//! The tree that is imported: regular files and folders only, within limits of size. Links are reported and not followed.

use std::fs;
use std::path::{Path, PathBuf};

use flagperf_config::{ConfigFile, Finding, Origin, display_name, read_text};

/// Folder of the configuration in FlagPerf's inference and in a checkout.
pub(super) const CONFIGS: &str = "configs";
/// Folder with the cases in Python in FlagPerf's inference and training.
pub(super) const BENCHMARKS: &str = "benchmarks";
/// How the names of files begin that an import does not read.
const README: &str = "README";
/// Maximum number of entries of a folder of the source that are looked at.
const ENTRIES_MAX: usize = 10_000;
/// How the lines begin between which an unfinished merge left both versions.
const MERGE_MARKERS: [&str; 3] = ["<<<<<<< ", "=======", ">>>>>>> "];

/// Why nothing could be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("`{}` does not exist", .0.display())]
    Missing(PathBuf),
    /// The folder is not FlagPerf's.
    #[error("`{}` is not FlagPerf: it has no inference with cases in `configs`, and no training in `benchmarks` and `run_benchmarks`", .0.display())]
    NotFlagPerf(PathBuf),
    /// The folder is the checkout itself.
    #[error("`{}` is the checkout into which it would be imported", .0.display())]
    OwnCheckout(PathBuf),
    /// The output is not a checkout.
    #[error("`{}` is not a checkout of flagperf: it needs the folders `configs` and `scripts`", .0.display())]
    NoCheckout(PathBuf),
}

impl ImportError {
    /// Returns what to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            ImportError::NotFlagPerf(_) => {
                "give the folder of FlagPerf, or its folder `inference` or `training`; nothing here corresponds to `base` and \
                 `operation`"
            }
            ImportError::Missing(_) | ImportError::OwnCheckout(_) => "give the folder of FlagPerf",
            ImportError::NoCheckout(_) => "clone flagperf into it, or give --output with the folder of a checkout",
        }
    }
}

/// A folder or file of the source.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) is_folder: bool,
}

/// FlagPerf's folder `inference`, or its folder `training`.
#[derive(Debug)]
pub struct SourceTree {
    /// The folder.
    pub root: PathBuf,
    /// Whether the folder is FlagPerf's inference.
    pub(super) has_inference: bool,
    /// FlagPerf's training, if it is beside the folder or is the folder itself.
    training: Option<Box<SourceTree>>,
}

impl SourceTree {
    /// Finds FlagPerf's inference and training in `folder`: the folder itself is one of them, or they are `inference` and `training`
    /// in it.
    ///
    /// # Errors
    /// When neither has a configuration.
    pub fn open(folder: &Path) -> Result<SourceTree, ImportError> {
        let is_tree = |folder: &PathBuf| {
            let configs = folder.join(CONFIGS);
            let mut entries = fs::read_dir(&configs).into_iter().flatten().flatten().take(ENTRIES_MAX);
            entries.any(|entry| entry.path().join("configurations.yaml").symlink_metadata().is_ok())
        };
        if !folder.exists() {
            return Err(ImportError::Missing(folder.to_owned()));
        }
        let is_training = |folder: &PathBuf| folder.join(BENCHMARKS).is_dir() && folder.join("run_benchmarks").is_dir();
        let training = [folder.join("training"), folder.to_owned()].into_iter().find(is_training);
        let inference = [folder.join("inference"), folder.to_owned()].into_iter().find(is_tree);
        let has_inference = inference.is_some();
        let root = inference.or_else(|| training.clone()).ok_or_else(|| ImportError::NotFlagPerf(folder.to_owned()))?;
        let of_training = |root| Box::new(SourceTree { root, has_inference: false, training: None });
        Ok(SourceTree { root, has_inference, training: training.map(of_training) })
    }

    /// Returns FlagPerf's training.
    pub(super) fn training(&self) -> Option<&SourceTree> {
        self.training.as_deref()
    }

    /// Returns the name of a path of the training in messages.
    pub(super) fn training_name(&self, below: &Path) -> String {
        self.training().unwrap_or(self).name(below)
    }

    /// Returns the name of a path in messages.
    pub(super) fn name(&self, below: &Path) -> String {
        self.root.join(below).display().to_string()
    }

    /// Returns the files and folders of a folder, sorted; none if it does not exist. Links are findings.
    pub(super) fn entries(&self, below: &Path, problems: &mut Vec<Finding>) -> Vec<Entry> {
        let Ok(found) = fs::read_dir(self.root.join(below)) else { return Vec::new() };
        let mut entries = Vec::new();
        for entry in found.flatten().take(ENTRIES_MAX) {
            let name = entry.file_name().to_string_lossy().into_owned();
            match entry.file_type() {
                _ if name.starts_with(['.', '_']) => {}
                Ok(kind) if kind.is_symlink() && name.starts_with(README) => {}
                Ok(kind) if kind.is_symlink() => problems.push(self.link_finding(&below.join(name))),
                Ok(kind) => entries.push(Entry { name, is_folder: kind.is_dir() }),
                Err(error) => problems.push(self.finding(&below.join(name), 0, &error.to_string(), "")),
            }
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        entries
    }

    /// Returns the files of a folder and of the folders in it, sorted, or the path itself if it is a file. Links are findings.
    pub(super) fn files(&self, below: &Path, problems: &mut Vec<Finding>) -> Vec<PathBuf> {
        let (mut files, mut paths) = (Vec::new(), vec![below.to_owned()]);
        while let Some(path) = paths.pop() {
            match self.root.join(&path).is_dir() {
                true if files.len() + paths.len() > ENTRIES_MAX => {}
                true => paths.extend(self.entries(&path, problems).into_iter().map(|entry| path.join(entry.name))),
                false => files.push(path),
            }
        }
        files.sort();
        files
    }

    /// Reads a YAML file. One that cannot be used becomes a finding.
    pub(super) fn read(&self, below: &Path, problems: &mut Vec<Finding>) -> Option<ConfigFile> {
        let text = self.text(below, problems)?;
        let markers = text.lines().position(|line| MERGE_MARKERS.iter().any(|marker| line.starts_with(marker)));
        if let Some(line) = markers {
            let reason = "the file contains the marks of an unfinished merge";
            problems.push(self.finding(below, line + 1, reason, "finish the merge in the source, and import again"));
            return None;
        }
        let parsed = ConfigFile::parse(&text, self.name(below).into());
        parsed.map_err(|finding| problems.push(finding)).ok()
    }

    /// Reads a text file. One that cannot be used becomes a finding.
    pub(super) fn text(&self, below: &Path, problems: &mut Vec<Finding>) -> Option<String> {
        let path = self.root.join(below);
        if path.is_symlink() {
            problems.push(self.link_finding(below));
            return None;
        }
        read_text(&path, &display_name(&path, Path::new(""))).map_err(|finding| problems.push(finding)).ok()
    }

    /// Returns whether the source has a file or folder, even a broken link.
    pub(super) fn has(&self, below: &Path) -> bool {
        self.root.join(below).symlink_metadata().is_ok()
    }

    fn link_finding(&self, below: &Path) -> Finding {
        let hint = "replace the link in the source by what it points to, and import again";
        self.finding(below, 0, "this is a symbolic link, which an import does not follow", hint)
    }

    /// Returns an error about a line of a file, or about a whole file for line 0.
    pub(super) fn finding(&self, below: &Path, line: usize, message: &str, hint: &str) -> Finding {
        let origin = Origin::File { file: self.name(below).into(), line, column: 0 };
        Finding::error(origin, message).with_hint(hint)
    }
}
