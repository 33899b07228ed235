//! A plug-in's shared library: opened once, its table checked, kept until the process ends.
//!
//! It is never closed: libraries of engines start threads and keep thread-local state, which closing would pull away.

use std::error::Error as _;
use std::ffi::c_char;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use flagperf_plugin::abi::{
    FLAGPERF_ABI_VERSION, FLAGPERF_COMPILED, FLAGPERF_COMPILER, FLAGPERF_FRAMEWORK, FLAGPERF_OK, FLAGPERF_ONNX,
    FlagperfEntry, FlagperfPlugin, SYMBOL,
};
use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

use super::calls;
use super::given::Model;
use super::session::PluginSession;
use super::table::{Problem, read, read_text};
use crate::engine::options::check_common;
use crate::engine::{Artifact, Engine, EngineError, Facts, Options, Roles, Session, Unavailable};
use crate::event::PluginFacts;
use crate::hash::hash_file;
use crate::tensor::DType;

/// A plug-in whose table is well formed.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) table: FlagperfPlugin,
    pub(super) name: &'static str,
    version: &'static str,
    about: &'static str,
    precisions: &'static [DType],
    path: PathBuf,
    sha256: OnceLock<Option<String>>,
}

/// Every library that was opened.
static OPENED: Mutex<Vec<&'static Library>> = Mutex::new(Vec::new());

/// The plug-in in a shared library. One that crashes while it is loaded takes this process with it.
///
/// # Errors
/// When it is no plug-in for this program.
pub fn open_plugin(library: &Path) -> Result<&'static dyn Engine, Unavailable> {
    Library::open(library).map(|library| library as _)
}

impl Engine for Library {
    fn facts(&self) -> Facts {
        let has = |bit| self.table.roles & bit != 0;
        Facts {
            roles: Roles { framework: has(FLAGPERF_FRAMEWORK), compiler: has(FLAGPERF_COMPILER) },
            precisions: self.precisions,
            opset_max: self.table.opset_max,
            ..Facts::widest(self.name, self.about)
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        // SAFETY: a function of the table, which takes nothing.
        let status = self.table.check.map_or(FLAGPERF_OK, |check| unsafe { check() });
        match calls::result(self, status) {
            Ok(()) => Ok(self.version.to_owned()),
            Err(EngineError::Unavailable(missing)) => Err(missing),
            Err(error) => Err(unavailable(error.to_string(), "its library says no more")),
        }
    }

    fn load(&self, artifact: Artifact<'_>, options: &Options) -> Result<Box<dyn Session>, EngineError> {
        let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let library = *opened.iter().find(|library| std::ptr::eq(**library, self)).expect("a library stays open");
        drop(opened);
        library.check()?;
        check_common(library, options)?;
        let given = Model::new(library, artifact, options)?;
        Ok(Box::new(PluginSession::load(library, given, options)?))
    }
}

impl Library {
    /// The plug-in in the library at `path`; opened when it is not yet.
    pub(super) fn open(path: &Path) -> Result<&'static Library, Unavailable> {
        let path = path
            .canonicalize()
            .map_err(|error| unavailable(format!("the library `{}` cannot be read: {error}", path.display()), BUILD))?;
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = opened.iter().find(|library| library.path == path) {
            return Ok(library);
        }
        let library: &'static Library = Box::leak(Box::new(load(&path)?));
        opened.push(library);
        Ok(library)
    }

    /// Whether it takes this kind of model.
    pub(super) fn takes(&self, artifact: Artifact<'_>) -> bool {
        let (role, kind) = match artifact {
            Artifact::Graph(_) => (FLAGPERF_FRAMEWORK, FLAGPERF_ONNX),
            Artifact::Onnx(_) => (FLAGPERF_COMPILER, FLAGPERF_ONNX),
            Artifact::Compiled(_) => (FLAGPERF_COMPILER, FLAGPERF_COMPILED),
        };
        self.table.roles & role != 0 && self.table.artifacts & kind != 0
    }

    /// What it takes, in words.
    pub(super) fn taken(&self) -> &'static str {
        let Roles { framework, compiler } = self.roles();
        let has = |kind| compiler && self.table.artifacts & kind != 0;
        match (framework, has(FLAGPERF_ONNX), has(FLAGPERF_COMPILED)) {
            (true, true, true) => "graphs, ONNX files and files that it made earlier",
            (true, true, false) => "graphs and ONNX files",
            (true, false, true) => "graphs and files that it made earlier",
            (true, false, false) => "graphs",
            (false, true, true) => "ONNX files and files that it made earlier",
            (false, true, false) => "ONNX files",
            (false, false, _) => "files that it made earlier",
        }
    }

    /// What the record says of it; hashes the library at the first call.
    pub(super) fn record(&self) -> PluginFacts {
        PluginFacts {
            name: self.name.to_owned(),
            version: self.version.to_owned(),
            library: self.path.display().to_string(),
            library_sha256: self.sha256.get_or_init(|| hash_file(&self.path).ok()).clone(),
        }
    }
}

const BUILD: &str = "build it first: the README of the vendor's folder says how";
const NEEDS: &str = "`ldd` says which libraries it needs and which of them are missing";
const REBUILD: &str = "build it with the header or the crate of this version of flagperf";

fn unavailable(reason: String, remedy: &str) -> Unavailable {
    Unavailable { reason, remedy: remedy.to_owned() }
}

fn load(path: &Path) -> Result<Library, Unavailable> {
    let shown = path.display();
    check_file(path)?;
    let entry = entry(path)?;
    let malformed = |what: String| unavailable(format!("the plug-in `{shown}` is malformed: {what}"), REBUILD);
    // SAFETY: by its name the function is the one that the interface describes, and the table that it gives is there.
    let table = unsafe { read(entry()) }.map_err(|problem| match problem {
        Problem::Version(theirs) => {
            let ours = FLAGPERF_ABI_VERSION;
            let reason = format!("the plug-in `{shown}` is of interface version `{theirs}`, this program of `{ours}`");
            unavailable(reason, REBUILD)
        }
        Problem::Malformed(what) => malformed(what),
    })?;
    let text = |name: &str, text: *const c_char| {
        // SAFETY: the plug-in says that its texts are there and stay.
        unsafe { read_text(text) }.ok_or_else(|| malformed(format!("its `{name}` is no text")))
    };
    let precisions = flagperf_plugin::DType::from_bits(table.precisions).filter(|all| !all.is_empty());
    let precisions = precisions.ok_or_else(|| malformed(format!("its `precisions` are `{}`", table.precisions)))?;
    let precisions: Vec<DType> = precisions.iter().filter_map(|precision| precision.name().parse().ok()).collect();
    Ok(Library {
        name: text("name", table.name)?,
        version: text("version", table.version)?,
        about: text("about", table.about)?,
        precisions: precisions.leak(),
        path: path.to_owned(),
        sha256: OnceLock::new(),
        table,
    })
}

/// Opens a library for good, and finds what it exports.
fn entry(path: &Path) -> Result<FlagperfEntry, Unavailable> {
    let shown = path.display();
    // SAFETY: the library's initialisers run; the configuration names it, and this process is there to run it.
    // `RTLD_NOW`: what is missing is found here and not in the middle of a measurement.
    let handle = unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
        let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        unavailable(format!("the library `{shown}` cannot be loaded: {cause}"), NEEDS)
    })?;
    // SAFETY: by its name the symbol is the function that the interface describes.
    let entry = unsafe { handle.get::<FlagperfEntry>(SYMBOL) }.map(|entry| *entry);
    let _ = handle.into_raw();
    entry.map_err(|_| unavailable(format!("the library `{shown}` is no plug-in: it has no symbol `{SYMBOL}`"), REBUILD))
}

/// Refuses a file that is no library for this processor: the system's loader calls one "not found".
fn check_file(path: &Path) -> Result<(), Unavailable> {
    let shown = path.display();
    let mut header = [0; 20];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut header))
        .map_err(|error| unavailable(format!("the library `{shown}` cannot be read: {error}"), BUILD))?;
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    if !header.starts_with(b"\x7fELF") {
        return Err(unavailable(format!("`{shown}` is not a shared library"), BUILD));
    }
    let machine = u16::from_le_bytes([header[18], header[19]]);
    match MACHINES.iter().find(|(_, name)| *name == std::env::consts::ARCH) {
        Some((ours, name)) if *ours != machine => {
            let theirs = MACHINES.iter().find(|(number, _)| *number == machine);
            let theirs = theirs.map_or_else(|| format!("machine {machine}"), |(_, name)| (*name).to_owned());
            let reason = format!("the library `{shown}` is built for `{theirs}`, this machine is `{name}`");
            Err(unavailable(reason, "build it for this machine"))
        }
        _ => Ok(()),
    }
}

/// Processors by their number in an ELF file (`e_machine`, System V ABI).
const MACHINES: [(u16, &str); 6] =
    [(3, "x86"), (40, "arm"), (62, "x86_64"), (183, "aarch64"), (243, "riscv64"), (258, "loongarch64")];
