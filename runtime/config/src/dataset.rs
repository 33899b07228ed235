//! `dataset.yaml`: the source of a dataset, the layout of its files, and their sizes and hashes. Knows no particular
//! dataset.

use std::path::Path;

use indexmap::IndexMap;

use super::file::{ConfigFile, display_name, read_text};
use super::section::{SectionKind, TEXT, TEXT_MAP, read_section, section};
use super::yaml::Content;
use super::{Finding, ValueKind};

/// The file that describes a dataset, in the folder of the dataset.
pub const DATASET_FILE: &str = "dataset.yaml";

const PATH: SectionKind = SectionKind::Value(ValueKind::RelativePath);
const SHA256: SectionKind = SectionKind::Value(ValueKind::Sha256);
const COUNT: SectionKind = SectionKind::Value(ValueKind::Count);

/// The values of `generator`.
const GENERATORS: [&str; 3] = ["flagperf", "flagperf_masks", "flagperf_boxes"];

section! {
    /// The description of a dataset.
    #[derive(Clone, Debug, PartialEq)]
    pub struct DatasetDescription {
        /// the name of the dataset's folder in datasets/
        required(TEXT) name: String,
        /// one line that describes the samples
        required(TEXT) about: String,
        /// where the dataset comes from: a URL, or the program that makes it
        required(TEXT) source: String,
        /// the licence of the files, and whether they may be redistributed
        required(TEXT) licence: String,
        /// what flagperf draws into the folder `generated` on first use: images in class folders, with masks or with boxes
        optional(SectionKind::Value(ValueKind::OptionalWord(&GENERATORS)), "null") generator: Option<String>,
        /// the command that gets the files; `{}` stands for the data directory
        optional(TEXT, "null") fetch: Option<String>,
        /// the number of samples
        optional(COUNT, "null") samples: Option<u64>,
        /// paths in the data directory, each with its meaning
        required(TEXT_MAP) layout: IndexMap<String, String>,
        /// the files by which the dataset is recognised
        optional(SectionKind::List(DatasetFile::KEYS), "[]") files: Vec<DatasetFile>,
        /// groups of many files, each recognised by its number and its index
        optional(SectionKind::List(DatasetFolder::KEYS), "[]") folders: Vec<DatasetFolder>,
    }
}

section! {
    /// A file of a dataset.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DatasetFile {
        /// the path in the data directory
        required(PATH) path: String,
        /// the size in bytes
        optional(SectionKind::Bytes, "null") bytes: Option<u64>,
        /// the SHA-256 of the content
        optional(SHA256, "null") sha256: Option<String>,
        /// whether a case needs it; default: true
        optional(SectionKind::Boolean, "true") required: bool,
    }
}

section! {
    /// A group of files of a dataset.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DatasetFolder {
        /// the paths in the data directory; `*` stands for any part of a name, except a leading dot
        required(PATH) glob: String,
        /// the number of files
        required(COUNT) count: u64,
        /// the SHA-256 of the index: for each file, in byte order of the paths, its path, a zero byte, its size and a line
        /// feed
        optional(SHA256, "null") index_sha256: Option<String>,
        /// whether a case needs them; default: true
        optional(SectionKind::Boolean, "true") required: bool,
    }
}

impl DatasetDescription {
    /// Reads a dataset.yaml. Messages name a file under `root` by its path relative to `root`.
    ///
    /// # Errors
    /// Fails when the file cannot be read, or when a key is unknown, missing or of the wrong type.
    pub fn read(path: &Path, root: &Path) -> Result<DatasetDescription, Finding> {
        let name = display_name(path, root);
        let file = ConfigFile::parse(&read_text(path, &name)?, name)?;
        let description: DatasetDescription = read_section(&file, DatasetDescription::KEYS)?;
        if description.files.is_empty() && description.folders.is_empty() {
            let reason = "`files` or `folders` must list at least one item".to_owned();
            return Err(Finding::error(file.top(), reason));
        }
        description.check_duplicates(&file).map(|()| description)
    }

    /// Reads `datasets/<name>/dataset.yaml` in the checkout at `root`.
    ///
    /// # Errors
    /// As [`DatasetDescription::read`]; also when `name` in the file is not the name of the folder.
    pub fn read_named(root: &Path, name: &str) -> Result<DatasetDescription, Finding> {
        let path = root.join("datasets").join(name).join(DATASET_FILE);
        let description = DatasetDescription::read(&path, root)?;
        if description.name == name {
            return Ok(description);
        }
        let reason = format!("`name` is `{}`, but the folder is `{name}`", description.name);
        let file = ConfigFile::read(&path, root)?;
        let origin = file.entries.get("name").map_or_else(|| file.top(), |node| file.origin(node));
        Err(Finding::error(origin, reason))
    }

    /// Returns the names of the folders in `datasets/` that have a dataset.yaml, sorted.
    pub fn names(root: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(root.join("datasets")).into_iter().flatten().flatten();
        let described = entries.filter(|entry| entry.path().join(DATASET_FILE).symlink_metadata().is_ok());
        let mut names: Vec<String> = described.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Refuses an item that is listed twice.
    fn check_duplicates(&self, file: &ConfigFile) -> Result<(), Finding> {
        let files = self.files.iter().enumerate().map(|(index, item)| ("files", index, &item.path));
        let folders = self.folders.iter().enumerate().map(|(index, item)| ("folders", index, &item.glob));
        let mut seen: Vec<&String> = Vec::new();
        for (list, index, path) in files.chain(folders) {
            if seen.contains(&path) {
                let items = file.entries.get(list);
                let item = items.and_then(|node| match &node.content {
                    Content::List(items) => items.get(index),
                    _ => None,
                });
                let origin = item.map_or_else(|| file.top(), |node| file.origin(node));
                let reason = format!("`{path}` is listed twice");
                return Err(Finding::error(origin, reason));
            }
            seen.push(path);
        }
        Ok(())
    }
}
