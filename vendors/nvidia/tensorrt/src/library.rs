//! Finds, opens and checks the TensorRT libraries, once per process.

use std::error::Error as _;
use std::ffi::{CStr, c_char};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flagperf_plugin::Error;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::variant::{FILES, PARSER_OPENS, REMEDY, TITLE, VERSION};

/// Opens the libraries in the folder that was set at build time, or else where the system's loader finds them, and
/// returns the version: `1.7.1`.
///
/// # Errors
/// [`Error::Unavailable`] when a library is missing or has another version.
pub fn open() -> Result<&'static str, Error> {
    static OPENED: OnceLock<Result<String, Error>> = OnceLock::new();
    let opened = OPENED.get_or_init(|| {
        let [library, parser] = find_libraries(option_env!("FLAGPERF_TENSORRT").map(Path::new))?;
        let version = open_library(&library)?;
        trtx::dynamically_load_tensorrt(Some(&library)).map_err(|error| load_error(&library, &error.to_string()))?;
        check_architecture(&parser)?;
        trtx::dynamically_load_tensorrt_onnxparser(Some(&parser))
            .map_err(|error| load_error(&parser, &error.to_string()))?;
        Ok(version)
    });
    opened.as_deref().map_err(Clone::clone)
}

/// The library by which TensorRT finds an operator of the vendor, in the folder of the operator's libraries.
const OPERATOR_FILE: &str = "tensorrt.so";

/// Opens a library with additional operators. It registers them when it is loaded, or when its function is called if it is
/// that of a vendor's operator.
///
/// # Errors
/// When the library cannot be loaded or registered.
pub fn open_plugin(path: &Path) -> Result<(), Error> {
    load_plugin(path).map_err(|reason| Error::BadOption { option: "plugins".to_owned(), reason })
}

/// Opens the library by which TensorRT finds an operator of the vendor, in the folder of the operator's libraries.
///
/// # Errors
/// [`Error::Unavailable`] when the library was not built, or cannot be loaded or registered.
pub fn open_operator(name: &str, folder: &Path) -> Result<(), Error> {
    let operator = name.replacen('.', "/", 1);
    load_plugin(&folder.join(OPERATOR_FILE)).map_err(|reason| Error::Unavailable {
        reason: format!("the operator `{operator}`: {reason}"),
        remedy: format!("run `flagperf operator build {operator}` where the headers of {TITLE} are"),
    })
}

/// Checks that the parser will find the library under the name by which it opens it again when a node is a plug-in.
///
/// # Errors
/// [`Error::Unavailable`] when it will not: the parser would end the process.
pub fn check_parser() -> Result<(), Error> {
    let Some(name) = PARSER_OPENS else { return Ok(()) };
    dlopen(Path::new(name)).map(keep_open).map_err(|cause| Error::Unavailable {
        reason: format!("the parser does not find {TITLE}: {cause}"),
        remedy: format!("link `{name}` to `{}` in a folder of LD_LIBRARY_PATH", FILES[0]),
    })
}

fn load_plugin(path: &Path) -> Result<(), String> {
    type Register = unsafe extern "C" fn() -> *const c_char;
    // The loader searches the system's folders for a path without a slash.
    let path = path.canonicalize().map_err(|error| format!("`{}`: {error}", path.display()))?;
    check_architecture(&path).map_err(|error| error.to_string())?;
    let failed = |cause: &str| format!("`{}` cannot be loaded: {cause}", path.display());
    let library = dlopen(&path).map_err(|cause| failed(&cause))?;
    // SAFETY: the function of this name has this signature (operator_shell/plugin.cpp).
    let register = unsafe { library.get::<Register>(b"flagperf_register_operator\0").map(|register| *register) };
    keep_open(library);
    let Ok(register) = register else { return Ok(()) };
    // SAFETY: the library stays open.
    let reason = unsafe { register() };
    if reason.is_null() {
        return Ok(());
    }
    // SAFETY: the function returned static text.
    Err(failed(&unsafe { CStr::from_ptr(reason) }.to_string_lossy()))
}

/// Returns the paths of the library and the parser in a folder, or their names for the system's loader.
fn find_libraries(folder: Option<&Path>) -> Result<[PathBuf; 2], Error> {
    let Some(folder) = folder else { return Ok(FILES.map(PathBuf::from)) };
    let found = FILES.map(|file| {
        let files = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let fits = |path: &PathBuf| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(file));
        files.filter(fits).max()
    });
    match found {
        [Some(library), Some(parser)] => Ok([library, parser]),
        [library, _] => {
            let file = FILES[usize::from(library.is_some())];
            Err(unavailable(format!("{TITLE} is missing: no `{file}` in `{}`", folder.display())))
        }
    }
}

/// Opens the library with global symbols, because libraries with operators need its registry, and returns its version.
fn open_library(path: &Path) -> Result<String, Error> {
    type Version = unsafe extern "C" fn() -> i32;
    check_architecture(path)?;
    let library = dlopen(path).map_err(|cause| load_error(path, &cause))?;
    // SAFETY: the function of this name has this signature (NvInferRuntimeBase.h).
    let found = unsafe { library.get::<Version>(b"getInferLibVersion\0").map(|version| version()) };
    let found = found.map_err(|_| unavailable(format!("`{}` is not {TITLE}", path.display())))?;
    keep_open(library);
    let found = format!("{}.{}.{}", found / 10000, found / 100 % 100, found % 100);
    if found.strip_prefix(VERSION).is_some_and(|rest| rest.starts_with('.')) {
        return Ok(found);
    }
    let reason = format!("`{}` is {TITLE} `{found}`, but this plug-in needs `{VERSION}`", path.display());
    Err(unavailable(reason))
}

fn dlopen(path: &Path) -> Result<Library, String> {
    // SAFETY: the library's initializers register its contents, which is the purpose of opening it.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    library.map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))
}

/// Leaves the library open for good: GPU libraries start threads, whose code closing would unmap.
fn keep_open(library: Library) {
    let _ = library.into_raw();
}

fn load_error(path: &Path, cause: &str) -> Error {
    unavailable(format!("{TITLE} cannot be loaded: `{}`: {cause}", path.display()))
}

fn unavailable(reason: String) -> Error {
    Error::Unavailable { reason, remedy: REMEDY.to_owned() }
}

/// Rejects a library for another CPU architecture, which the system's loader would report as "not found".
fn check_architecture(path: &Path) -> Result<(), Error> {
    if path.components().count() < 2 {
        return Ok(());
    }
    let mut header = [0; 20];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut header))
        .map_err(|error| load_error(path, &error.to_string()))?;
    let expected = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let machine = u16::from_le_bytes([header[18], header[19]]);
    if header.starts_with(b"\x7fELF") && machine == expected {
        return Ok(());
    }
    let arch = std::env::consts::ARCH;
    Err(load_error(path, &format!("it is not a library for this CPU (`{arch}`, ELF machine `{expected}`)")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles a library from C source.
    fn compile(folder: &Path, name: &str, source: &str) -> PathBuf {
        let (code, library) = (folder.join("code.c"), folder.join(name));
        fs::write(&code, source).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test compiles what it opens")]
        let status = std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &code]).status();
        assert!(status.unwrap().success());
        library
    }

    fn reason<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
        match result.unwrap_err() {
            Error::Unavailable { reason, remedy } => {
                assert!(remedy.contains("backend install"), "{remedy}");
                reason
            }
            error => error.to_string(),
        }
    }

    #[test]
    fn the_error_for_a_missing_library_contains_its_name_and_folder() {
        let folder = tempfile::tempdir().unwrap();
        let expected = format!("{TITLE} is missing: no `{}` in `{}`", FILES[0], folder.path().display());
        assert_eq!(reason(find_libraries(Some(folder.path()))), expected);
        fs::write(folder.path().join(FILES[0]), b"").unwrap();
        assert!(reason(find_libraries(Some(folder.path()))).contains(FILES[1]));
        fs::write(folder.path().join(FILES[1]), b"").unwrap();
        assert_eq!(find_libraries(Some(folder.path())).unwrap(), FILES.map(|file| folder.path().join(file)));
    }

    #[test]
    fn a_library_of_another_version_or_another_kind_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let source = "int getInferLibVersion(void) { return 10302; }";
        let message = reason(open_library(&compile(folder.path(), "old.so", source)));
        assert!(message.ends_with(&format!("is {TITLE} `1.3.2`, but this plug-in needs `{VERSION}`")), "{message}");
        let message = reason(open_library(&compile(folder.path(), "other.so", "int other;")));
        assert!(message.ends_with(&format!("other.so` is not {TITLE}")), "{message}");
    }

    #[test]
    fn a_library_for_another_cpu_architecture_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("foreign.so");
        fs::write(&path, [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 9], &[3, 0, 243, 0], &[0; 44]].concat()).unwrap();
        assert!(reason(open_library(&path)).contains("it is not a library for this CPU (`"));
    }

    #[test]
    fn a_library_with_operators_finds_global_symbols_and_is_rejected_without_them() {
        let folder = tempfile::tempdir().unwrap();
        let registry =
            compile(folder.path(), "registry.so", "int registered; void *registry(void) { return &registered; }");
        let constructor =
            "extern int *registry(void); __attribute__((constructor)) static void begin(void) { *registry() = 7; }";
        let operators = compile(folder.path(), "operators.so", constructor);
        let message = open_plugin(&operators).unwrap_err().to_string();
        assert!(message.contains("option `plugins`: ") && message.contains("undefined symbol: registry"), "{message}");
        let opened = dlopen(&registry).unwrap();
        open_plugin(&operators).unwrap();
        // SAFETY: the symbol is an `int`.
        assert_eq!(unsafe { **opened.get::<*const i32>(b"registered\0").unwrap() }, 7);
        assert!(open_plugin(Path::new("none.so")).unwrap_err().to_string().contains("`none.so`: No such file"));
    }
}
