//! `dataset.yaml`: the source of a dataset, the layout of its files, and their sizes and hashes. Knows no particular
//! dataset.

use std::path::Path;

use indexmap::IndexMap;
use serde::Deserialize;

use super::file::{ConfigFile, display_name, read_text};
use super::section::{SectionKey, SectionKind, TEXT, TEXT_MAP, check_keys, optional, required};
use super::yaml::Content;
use super::{Finding, ValueKind};

/// The file that describes a dataset, in the folder of the dataset.
pub const DATASET_FILE: &str = "dataset.yaml";

const PATH: SectionKind = SectionKind::Value(ValueKind::RelativePath);
const SHA256: SectionKind = SectionKind::Value(ValueKind::Sha256);
const COUNT: SectionKind = SectionKind::Value(ValueKind::Count);

/// The keys of dataset.yaml. Each has a field of the same name in [`DatasetDescription`].
pub const DATASET: &[SectionKey] = &[
    required("name", TEXT, "the name of the dataset's folder in datasets/"),
    required("about", TEXT, "one line that describes the samples"),
    required("source", TEXT, "where the dataset comes from: a URL, or the program that makes it"),
    required("licence", TEXT, "the licence of the files, and whether they may be redistributed"),
    optional(
        "generator",
        SectionKind::Value(ValueKind::OptionalWord(&GENERATORS)),
        "what flagperf draws into the folder `generated` on first use: images in class folders, or images with masks",
    ),
    optional("fetch", TEXT, "the command that gets the files; `{}` stands for the data directory"),
    optional("samples", COUNT, "the number of samples"),
    required("layout", TEXT_MAP, "paths in the data directory, each with its meaning"),
    optional("files", SectionKind::List(FILE), "the files by which the dataset is recognised"),
    optional("folders", SectionKind::List(FOLDER), "groups of many files, each recognised by its number and its index"),
];

/// The values of `generator`.
const GENERATORS: [&str; 2] = ["flagperf", "flagperf_masks"];

/// The keys of a file.
const FILE: &[SectionKey] = &[
    required("path", PATH, "the path in the data directory"),
    optional("bytes", SectionKind::Bytes, "the size in bytes"),
    optional("sha256", SHA256, "the SHA-256 of the content"),
    optional("required", SectionKind::Boolean, "whether a case needs it; default: true"),
];

/// The keys of a group of files.
const FOLDER: &[SectionKey] = &[
    required("glob", PATH, "the paths in the data directory; `*` stands for any part of a name, except a leading dot"),
    required("count", COUNT, "the number of files"),
    optional(
        "index_sha256",
        SHA256,
        "the SHA-256 of the index: for each file, in byte order of the paths, its path, a zero byte, its size and a line feed",
    ),
    optional("required", SectionKind::Boolean, "whether a case needs them; default: true"),
];

/// The description of a dataset.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetDescription {
    /// Name of the dataset's folder in `datasets/`.
    pub name: String,
    /// One-line description.
    pub about: String,
    /// URL of the publisher, or the program that makes the files.
    pub source: String,
    /// Licence of the files.
    pub licence: String,
    /// What flagperf draws on first use.
    #[serde(default)]
    pub generator: Option<String>,
    /// The command that gets the files; `{}` stands for the data directory.
    #[serde(default)]
    pub fetch: Option<String>,
    /// Number of samples.
    #[serde(default)]
    pub samples: Option<u64>,
    /// Paths in the data directory, each with its meaning.
    pub layout: IndexMap<String, String>,
    /// Single files.
    #[serde(default)]
    pub files: Vec<DatasetFile>,
    /// Groups of many files.
    #[serde(default)]
    pub folders: Vec<DatasetFolder>,
}

/// A file of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetFile {
    /// Path in the data directory.
    pub path: String,
    /// Size in bytes; `None` when it may vary.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// SHA-256 of the content; `None` when it may vary.
    #[serde(default)]
    pub sha256: Option<String>,
    /// Whether a case needs the file.
    #[serde(default = "is_required")]
    pub required: bool,
}

/// A group of files of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetFolder {
    /// Pattern of the paths in the data directory.
    pub glob: String,
    /// Number of files.
    pub count: u64,
    /// SHA-256 of the paths and sizes; `None` when nobody who may publish it has seen the files.
    #[serde(default)]
    pub index_sha256: Option<String>,
    /// Whether a case needs the files.
    #[serde(default = "is_required")]
    pub required: bool,
}

const fn is_required() -> bool {
    true
}

impl DatasetDescription {
    /// Reads a dataset.yaml. Messages name a file under `root` by its path relative to `root`.
    ///
    /// # Errors
    /// Fails when the file cannot be read, or when a key is unknown, missing or of the wrong type.
    pub fn read(path: &Path, root: &Path) -> Result<DatasetDescription, Finding> {
        let name = display_name(path, root);
        let file = ConfigFile::parse(&read_text(path, &name)?, name)?;
        check_keys(&file, DATASET)?;
        let values = file.entries.iter().map(|(key, node)| (key.clone(), node.value())).collect();
        let description: DatasetDescription =
            serde_json::from_value(values).map_err(|error| Finding::error(file.top(), error.to_string()))?;
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
