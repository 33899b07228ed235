//! Where a served model comes from: its file, its engine and its settings.

use std::path::{Path, PathBuf};

use flagperf_config::{Finding, ServedModel, ServedModelPlaces, Vendor, list_known};
use flagperf_core::precision::Precision;
use flagperf_engine::{EngineSource, LoadOptions, TABLE, UnknownEngine, check_options};
use indexmap::IndexMap;

use super::frame::LoadRequest;
use super::generation::TextSource;

/// A model version that can be served.
#[derive(Clone, Debug)]
pub struct ModelSource {
    /// The name under which it is served.
    pub name: String,
    /// The version.
    pub version: u64,
    /// How it is served.
    pub settings: ServedModel,
    /// The engine that runs it.
    pub engine: EngineSource,
    /// The ONNX file.
    pub file: PathBuf,
    /// The names of classes, in order.
    pub labels: Vec<String>,
    /// Of a language model, its further files.
    pub text: Option<TextSource>,
    /// The record in which the model was measured.
    pub record: Option<MeasuredRecord>,
}

/// The record in which a model was measured.
#[derive(Clone, Debug)]
pub struct MeasuredRecord {
    /// The digest of the result.
    pub digest: String,
    /// The SHA-256 of the model's files, by file name.
    pub files_sha256: IndexMap<String, String>,
}

impl ModelSource {
    /// Returns what a worker loads, with a folder for its temporary files.
    pub fn load_request(&self, scratch: &Path) -> LoadRequest {
        LoadRequest {
            file: self.file.clone(),
            engine: self.engine.engine.clone(),
            folder: self.engine.folder.clone(),
            library: self.engine.library.clone(),
            command: self.engine.command.clone(),
            threads: self.engine.threads as usize,
            batch_size: self.settings.max_batch_size.max(1) as usize,
            chunk: self.text.as_ref().map(|text| text.chunk),
            precision: self.settings.precision.dtype(),
            options: self.engine.options.clone(),
            scratch: scratch.to_owned(),
        }
    }
}

/// Among the options of a vendor, the number of threads.
const THREADS: &str = "threads";

/// A model that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file of the configuration is wrong.
    #[error(transparent)]
    Configuration(#[from] Box<Finding>),
    /// The engine is unknown.
    #[error("{place}: {source}")]
    Engine {
        /// The file that names it.
        place: String,
        /// The known engines.
        source: UnknownEngine,
    },
    /// Anything else, with what to do about it.
    #[error("{0}")]
    Other(String),
}

/// The engines that `compiler` of a model.yaml may name: the rows of the table of engines, or the compilers of a vendor.
#[derive(Debug, Default)]
pub struct EngineTable {
    vendor: Option<(PathBuf, Vendor)>,
}

impl EngineTable {
    /// Returns the engines of a vendor of the checkout at `root`.
    ///
    /// # Errors
    /// When vendor.yaml is missing or malformed.
    pub fn of_vendor(root: &Path, name: &str) -> Result<Self, SourceError> {
        let vendor = Vendor::read(root, name).map_err(Box::new)?;
        Ok(EngineTable { vendor: Some((root.to_owned(), vendor)) })
    }

    /// Returns the engine with this name and these options. `places` are those of the settings.
    ///
    /// # Errors
    /// When the engine is unknown, is not a compiler, or refuses an option.
    pub fn resolve(&self, places: &ServedModelPlaces, settings: &ServedModel) -> Result<EngineSource, SourceError> {
        let source = match &self.vendor {
            Some((root, vendor)) => of_entry(root, vendor, places.of("compiler"), &settings.compiler)?,
            None => EngineSource { engine: settings.compiler.clone(), ..EngineSource::default() },
        };
        let mut options = source.options;
        let of_vendor = options.shift_remove(THREADS).and_then(|threads| u32::try_from(threads.as_u64()?).ok());
        options.extend(settings.options.clone());
        let threads = if settings.threads > 0 { settings.threads } else { of_vendor.unwrap_or(0) };
        let source = EngineSource { options, threads, ..source };
        check(places, &source, settings.precision)?;
        Ok(source)
    }
}

/// Returns the engine of an entry of vendor.yaml.
fn of_entry(root: &Path, vendor: &Vendor, place: &str, name: &str) -> Result<EngineSource, SourceError> {
    let Some(entry) = vendor.compilers.get(name) else {
        let known = list_known(name, vendor.compilers.keys().map(String::as_str));
        let file = format!("vendors/{}/vendor.yaml", vendor.name);
        return Err(SourceError::Other(format!("{place}: unknown compiler `{name}` (known in {file}: {known})")));
    };
    EngineSource::of_entry(root, vendor, entry).map_err(|reason| SourceError::Other(format!("{place}: {reason}")))
}

/// Checks what needs no model: that the engine is a compiler, and its options.
fn check(places: &ServedModelPlaces, source: &EngineSource, precision: Precision) -> Result<(), SourceError> {
    let unknown = |source| SourceError::Engine { place: places.of("compiler").to_owned(), source };
    let engine = flagperf_engine::find(&source.engine).map_err(unknown)?;
    let other = |key, reason: String| SourceError::Other(format!("{}: {reason}", places.of(key)));
    if !engine.roles().compiler {
        let compilers = TABLE.iter().filter(|row| row.roles().compiler).map(|row| row.name());
        let known = compilers.collect::<Vec<_>>().join(", ");
        return Err(other("compiler", format!("engine `{}` is not a compiler (compilers: {known})", source.engine)));
    }
    let options =
        LoadOptions { threads: source.threads as usize, precision: precision.dtype(), ..LoadOptions::default() };
    check_options(engine, &options).map_err(|error| other("precision", error.to_string()))?;
    let options = LoadOptions { extra: source.options.clone(), ..options };
    check_options(engine, &options).map_err(|error| other("options", error.to_string()))
}

/// Reads the names of classes. `place` is that of the file's name.
///
/// # Errors
/// When the file cannot be read as text.
pub fn read_labels(place: &str, path: &Path) -> Result<Vec<String>, SourceError> {
    /// The most bytes of a file of labels.
    const BYTES_MAX: u64 = 16 << 20;
    let text = flagperf_core::regular_file::read_regular_text(path, BYTES_MAX);
    let text = text.map_err(|error| SourceError::Other(format!("{place}: `labels`: `{}`: {error}", path.display())))?;
    Ok(text.lines().map(|line| line.trim_end().to_owned()).collect())
}
