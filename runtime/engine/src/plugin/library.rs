//! A plug-in's shared library: opened once, its table checked, and kept until the process ends.
//!
//! A library is never closed: engine libraries start threads and keep thread-local state that closing would invalidate.

use std::error::Error as _;
use std::ffi::c_char;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use flagperf_plugin::abi::{
    FLAGPERF_ABI_VERSION, FLAGPERF_COMPILED, FLAGPERF_COMPILER, FLAGPERF_FRAMEWORK, FLAGPERF_GRADIENT, FLAGPERF_OK,
    FLAGPERF_ONNX, FlagperfEntry, FlagperfPlugin, SYMBOL,
};
use libloading::os::unix::{Library as OpenLibrary, RTLD_LOCAL, RTLD_NOW};

use super::calls;
use super::model_file::ModelFile;
use super::session::PluginSession;
use super::table::{TableError, read_table, read_text};
use crate::library_file::check_library;
use crate::options::EngineOptions;
use crate::{Artifact, Engine, EngineError, LoadOptions, Session, Unavailable};
use flagperf_config::is_case_key;
use flagperf_core::description::{Delivery, EngineDescription, EngineOption, OptionMessage, Roles, parse_options};
use flagperf_core::event::PluginFacts;
use flagperf_core::hash::hash_file;
use flagperf_core::tensor::DType;

/// A plug-in with a valid table.
#[derive(Debug)]
pub(super) struct PluginLibrary {
    pub(super) table: FlagperfPlugin,
    pub(super) name: &'static str,
    version: &'static str,
    about: &'static str,
    precisions: &'static [DType],
    options: Option<&'static [EngineOption]>,
    path: PathBuf,
    sha256: OnceLock<Option<String>>,
}

/// Every plug-in that this process has opened.
static OPENED: Mutex<Vec<&'static PluginLibrary>> = Mutex::new(Vec::new());

/// Opens the plug-in in a shared library. A plug-in that crashes while it is loaded ends this process.
///
/// # Errors
/// When the file is not a plug-in that this program can use.
pub fn open_plugin(library: &Path) -> Result<&'static dyn Engine, Unavailable> {
    PluginLibrary::open(library).map(|library| library as _)
}

impl Engine for PluginLibrary {
    fn description(&self) -> EngineDescription {
        let has = |bit| self.table.roles & bit != 0;
        EngineDescription {
            name: self.name,
            about: self.about,
            roles: Roles { framework: has(FLAGPERF_FRAMEWORK), compiler: has(FLAGPERF_COMPILER) },
            precisions: self.precisions,
            opset_max: self.table.opset_max,
            compiles: self.table.artifacts & FLAGPERF_ONNX != 0,
            loads_compiled: self.table.artifacts & FLAGPERF_COMPILED != 0,
            compiled_extensions: &[],
            delivery: Delivery::Library,
            uses_threads: true,
            generates_text: false,
            options: self.options,
        }
    }

    fn differentiates(&self, _: &LoadOptions) -> Result<bool, EngineError> {
        Ok(self.table.artifacts & FLAGPERF_GRADIENT != 0)
    }

    fn check(&self) -> Result<String, Unavailable> {
        // SAFETY: `check` is a function of the table and has no arguments.
        let status = self.table.check.map_or(FLAGPERF_OK, |check| unsafe { check() });
        match calls::check_status(self, status) {
            Ok(()) => Ok(self.version.to_owned()),
            Err(EngineError::Unavailable(missing)) => Err(missing),
            Err(error) => Err(unavailable(error.to_string(), "")),
        }
    }

    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let library = *opened.iter().find(|library| std::ptr::eq(**library, self)).expect("a library stays open");
        drop(opened);
        library.check()?;
        EngineOptions::check(library, options)?;
        let model = ModelFile::prepare(library, artifact, options)?;
        Ok(Box::new(PluginSession::load(library, model, options)?))
    }
}

impl PluginLibrary {
    /// Returns the plug-in in the library at `path`, and opens it at the first call.
    pub(super) fn open(path: &Path) -> Result<&'static PluginLibrary, Unavailable> {
        let path = path.canonicalize().map_err(|error| {
            unavailable(format!("the library `{}` cannot be read: {error}", path.display()), BUILD_HINT)
        })?;
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = opened.iter().find(|library| library.path == path) {
            return Ok(library);
        }
        let library: &'static PluginLibrary = Box::leak(Box::new(load_library(&path)?));
        opened.push(library);
        Ok(library)
    }

    /// Whether the plug-in accepts this kind of artifact.
    pub(super) fn accepts(&self, artifact: Artifact<'_>) -> bool {
        let (role, kind) = match artifact {
            Artifact::Graph(_) => (FLAGPERF_FRAMEWORK, FLAGPERF_ONNX),
            Artifact::Onnx(_) => (FLAGPERF_COMPILER, FLAGPERF_ONNX),
            Artifact::Compiled(_) => (FLAGPERF_COMPILER, FLAGPERF_COMPILED),
        };
        self.table.roles & role != 0 && self.table.artifacts & kind != 0
    }

    /// Describes the artifacts that the plug-in accepts, for messages.
    pub(super) fn accepted_artifacts(&self) -> &'static str {
        let Roles { framework, compiler } = self.roles();
        let has = |kind| compiler && self.table.artifacts & kind != 0;
        match (framework, has(FLAGPERF_ONNX), has(FLAGPERF_COMPILED)) {
            (true, true, true) => "graphs, ONNX files and compiled files",
            (true, true, false) => "graphs and ONNX files",
            (true, false, true) => "graphs and compiled files",
            (true, false, false) => "graphs",
            (false, true, true) => "ONNX files and compiled files",
            (false, true, false) => "ONNX files",
            (false, false, _) => "compiled files",
        }
    }

    /// Returns the facts about the plug-in for the record; hashes the library at the first call.
    pub(super) fn plugin_facts(&self) -> PluginFacts {
        PluginFacts {
            name: self.name.to_owned(),
            version: self.version.to_owned(),
            library: self.path.display().to_string(),
            library_sha256: self.sha256.get_or_init(|| hash_file(&self.path).ok()).clone(),
        }
    }
}

const BUILD_HINT: &str = "build it first: the README in the vendor's folder describes how";
const DEPENDENCIES_HINT: &str = "run `ldd` on it to see which libraries are missing";
const REBUILD_HINT: &str = "build it with the header or the crate of this version of flagperf";

fn unavailable(reason: String, remedy: &str) -> Unavailable {
    Unavailable { reason, remedy: remedy.to_owned() }
}

/// Opens a library and reads its table.
fn load_library(path: &Path) -> Result<PluginLibrary, Unavailable> {
    let shown = path.display();
    check_library(path).map_err(|fault| fault.into_unavailable(BUILD_HINT))?;
    let entry = open_entry(path)?;
    let malformed = |what: String| unavailable(format!("the plug-in `{shown}` is malformed: {what}"), REBUILD_HINT);
    // SAFETY: the symbol's name identifies the function that the interface describes, and its table is static.
    let table = unsafe { read_table(entry()) }.map_err(|error| match error {
        TableError::Version(theirs) => {
            let ours = FLAGPERF_ABI_VERSION;
            let reason = format!(
                "the plug-in `{shown}` uses interface version `{theirs}`, but this program uses version `{ours}`"
            );
            unavailable(reason, REBUILD_HINT)
        }
        TableError::Malformed(what) => malformed(what),
    })?;
    let text = |name: &str, text: *const c_char| {
        // SAFETY: the interface requires that the table's texts are static.
        unsafe { read_text(text) }.ok_or_else(|| malformed(format!("its `{name}` is null, empty or not UTF-8")))
    };
    let precisions = flagperf_plugin::DType::from_bits(table.precisions).filter(|all| !all.is_empty());
    let precisions = precisions
        .ok_or_else(|| malformed(format!("its `precisions` has the invalid value `{}`", table.precisions)))?;
    let precisions: Vec<DType> = precisions.iter().filter_map(|precision| precision.name().parse().ok()).collect();
    let options = if table.options.is_null() {
        None
    } else {
        let listed = parse_options(text("options", table.options)?, is_case_key);
        let options = listed.map_err(|reason| malformed(format!("its `options`: {reason}")))?;
        Some(&*options.into_iter().map(OptionMessage::into_option).collect::<Vec<_>>().leak())
    };
    Ok(PluginLibrary {
        options,
        name: text("name", table.name)?,
        version: text("version", table.version)?,
        about: text("about", table.about)?,
        precisions: precisions.leak(),
        path: path.to_owned(),
        sha256: OnceLock::new(),
        table,
    })
}

/// Opens a library for the life of the process and returns its entry function.
fn open_entry(path: &Path) -> Result<FlagperfEntry, Unavailable> {
    let shown = path.display();
    tracing::debug!(path = %shown, "opening a library");
    // SAFETY: the library's initialisers run; the configuration names it, and this process exists to run it.
    // `RTLD_NOW`: a missing symbol is found here and not in the middle of a measurement.
    let library = unsafe { OpenLibrary::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
        let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        unavailable(format!("the library `{shown}` cannot be loaded: {cause}"), DEPENDENCIES_HINT)
    })?;
    // SAFETY: the symbol's name identifies the function that the interface describes.
    let entry = unsafe { library.get::<FlagperfEntry>(SYMBOL) }.map(|entry| *entry);
    let _ = library.into_raw();
    entry.map_err(|_| {
        unavailable(format!("the library `{shown}` is not a plug-in: it has no symbol `{SYMBOL}`"), REBUILD_HINT)
    })
}
