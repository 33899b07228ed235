//! A model store: a folder with a folder for each model, which contains model.yaml and a folder for each version.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use flagperf_config::{ServedModel, list_known};

use super::generation::TextSource;
use super::model_source::{EngineTable, ModelSource, SourceError, read_labels};

/// The ONNX file in the folder of a version.
pub const MODEL_FILE: &str = "model.onnx";
/// The most entries of a folder that are read.
const ENTRIES_MAX: usize = 10_000;
/// The longest name of a model in bytes.
const NAME_BYTES_MAX: usize = 128;

/// A folder of models.
#[derive(Debug)]
pub struct ModelStore {
    folder: PathBuf,
    engines: EngineTable,
}

impl ModelStore {
    /// Creates the store in a folder whose models run on these engines.
    pub fn new(folder: PathBuf, engines: EngineTable) -> Self {
        ModelStore { folder, engines }
    }

    /// Returns the names of the models, in order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)?.take(ENTRIES_MAX) {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') || !entry.path().is_dir() {
                continue;
            }
            if !is_model_name(&name) {
                return Err(io::Error::other(format!("the folder {name:?} cannot be the name of a model")));
            }
            names.push(name);
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the versions of a model in order.
    ///
    /// # Errors
    /// When there is no such model, it has no version, or a file is wrong.
    pub fn read(&self, name: &str) -> Result<Vec<ModelSource>, SourceError> {
        let folder = self.folder.join(name);
        if !is_model_name(name) || !folder.is_dir() {
            let names = self.names().unwrap_or_default();
            let known = list_known(name, names.iter().map(String::as_str));
            return Err(SourceError::Other(format!("unknown model `{name}` (in the model store: {known})")));
        }
        let (mut settings, places) = ServedModel::read_with_places(&folder, &self.folder).map_err(Box::new)?;
        let engine = self.engines.resolve(&places, &settings)?;
        let place = places.of("labels");
        if let Some(labels) = settings.labels.as_ref().filter(|labels| labels.contains('/')) {
            return Err(SourceError::Other(format!("{place}: `labels` must be a file beside it, not `{labels}`")));
        }
        let labels = settings.labels.as_ref().map(|file| read_labels(place, &folder.join(file))).transpose()?;
        let versions = versions(&folder).map_err(|error| SourceError::Other(format!("`{name}`: {error}")))?;
        if versions.is_empty() {
            let reason = format!("model `{name}` has no version: a file `{name}/1/{MODEL_FILE}` would be version 1");
            return Err(SourceError::Other(reason));
        }
        let text = TextSource::of_folder(&folder, &mut settings);
        let source = |version: &u64| ModelSource {
            name: name.to_owned(),
            version: *version,
            settings: settings.clone(),
            engine: engine.clone(),
            file: folder.join(version.to_string()).join(MODEL_FILE),
            labels: labels.clone().unwrap_or_default(),
            text: text.clone(),
            record: None,
        };
        Ok(versions.iter().map(source).collect())
    }
}

/// Returns whether a name can be that of a model: it becomes a part of paths.
fn is_model_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with('.') && name.chars().all(allowed)
}

/// Returns the numbers of the folders in a model's folder that contain an ONNX file, in order.
fn versions(folder: &Path) -> io::Result<Vec<u64>> {
    let mut versions = Vec::new();
    for entry in fs::read_dir(folder)?.take(ENTRIES_MAX) {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.parse::<u64>().ok());
        // `01` and `+1` are not the names of versions.
        let number = number.filter(|number| name.to_str() == Some(&number.to_string()));
        if number == Some(0) {
            return Err(io::Error::other("the folder `0` is not a version: versions are 1 and above"));
        }
        versions.extend(number.filter(|_| entry.path().join(MODEL_FILE).exists()));
    }
    versions.sort_unstable();
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(files: &[(&str, &str)]) -> (tempfile::TempDir, ModelStore) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let store = ModelStore::new(folder.path().to_owned(), EngineTable::default());
        (folder, store)
    }

    #[test]
    fn versions_are_numbers_and_are_in_their_order() {
        let files = ["m/10/model.onnx", "m/2/model.onnx", "m/01/model.onnx", "m/new/model.onnx", "m/3/other"];
        let (_folder, store) = store(&files.map(|path| (path, "")));
        let versions: Vec<u64> = store.read("m").unwrap().iter().map(|source| source.version).collect();
        assert_eq!((versions, store.names().unwrap()), (vec![2, 10], vec!["m".to_owned()]));
    }

    #[test]
    fn what_cannot_be_served_is_an_error_that_says_what_is_known() {
        let files = [
            ("empty/model.yaml", ""),
            ("typo/model.yaml", "compilre: rten"),
            ("engine/model.yaml", "compiler: rtne"),
            ("framework/model.yaml", "compiler: interpreter"),
            ("option/model.yaml", "options: {prepack: true}"),
            ("labels/model.yaml", "labels: labels.txt"),
            ("zero/0/model.onnx", ""),
        ];
        let (_folder, store) = store(&files);
        for (name, expected) in [
            ("empty", "model `empty` has no version: a file `empty/1/model.onnx` would be version 1"),
            ("typo", "typo/model.yaml:1: unknown key `compilre` (nearest: `compiler`)"),
            ("engine", "engine/model.yaml:1: unknown engine `rtne` (known: "),
            ("framework", "framework/model.yaml:1: engine `interpreter` is not a compiler (compilers: "),
            ("option", "option/model.yaml:1: engine `rten`: option `prepack`: unknown (known: "),
            ("zero", "`zero`: the folder `0` is not a version: versions are 1 and above"),
            ("emty", "unknown model `emty` (in the model store: empty, engine, "),
            ("../x", "unknown model `../x` (in the model store: "),
        ] {
            let error = store.read(name).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let error = store.read("labels").unwrap_err().to_string();
        assert!(
            error.starts_with("labels/model.yaml:1: `labels`: `") && error.contains("labels/labels.txt"),
            "{error}"
        );
    }
}
