//! The libraries of TensorRT: found, opened and checked once a process.

use std::error::Error as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flagperf_plugin::Error;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::flavour::{FILES, REMEDY, TITLE, VERSION};

/// Opens the libraries where the build was told that they are, else where the system's loader finds them. Gives the
/// version: `1.7.1`.
///
/// # Errors
/// [`Error::Unavailable`]: what is missing or of another version.
pub fn open() -> Result<&'static str, Error> {
    static OPENED: OnceLock<Result<String, Error>> = OnceLock::new();
    let opened = OPENED.get_or_init(|| {
        let [library, parser] = places(option_env!("FLAGPERF_TENSORRT").map(Path::new))?;
        let version = open_library(&library)?;
        trtx::dynamically_load_tensorrt(Some(&library)).map_err(|error| missing(&library, &error.to_string()))?;
        check_file(&parser)?;
        trtx::dynamically_load_tensorrt_onnxparser(Some(&parser))
            .map_err(|error| missing(&parser, &error.to_string()))?;
        Ok(version)
    });
    opened.as_deref().map_err(Clone::clone)
}

/// Opens a library with operators of its own: it registers them as it is loaded.
///
/// # Errors
/// When it cannot be loaded, with the reason.
pub fn open_plugin(path: &Path) -> Result<(), Error> {
    let refused = |reason: String| Error::BadOption { option: "plugins".to_owned(), reason };
    // One without a slash would be searched for in the system's folders.
    let path = path.canonicalize().map_err(|error| refused(format!("`{}`: {error}", path.display())))?;
    check_file(&path).map_err(|error| refused(error.to_string()))?;
    dlopen(&path).map(keep_open).map_err(|cause| refused(format!("`{}` cannot be loaded: {cause}", path.display())))
}

/// The files in a folder, or their names for the system's loader.
fn places(folder: Option<&Path>) -> Result<[PathBuf; 2], Error> {
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

/// Opens the library for everything in this process, because libraries with operators look for its registry there.
fn open_library(path: &Path) -> Result<String, Error> {
    type Version = unsafe extern "C" fn() -> i32;
    check_file(path)?;
    let library = dlopen(path).map_err(|cause| missing(path, &cause))?;
    // SAFETY: by its name the function has this signature (NvInferRuntimeBase.h), and takes nothing.
    let found = unsafe { library.get::<Version>(b"getInferLibVersion\0").map(|version| version()) };
    let found = found.map_err(|_| unavailable(format!("`{}` is not {TITLE}", path.display())))?;
    keep_open(library);
    let found = format!("{}.{}.{}", found / 10000, found / 100 % 100, found % 100);
    if found.strip_prefix(VERSION).is_some_and(|rest| rest.starts_with('.')) {
        return Ok(found);
    }
    let reason = format!("`{}` is {TITLE} `{found}`, this plug-in is for `{VERSION}`", path.display());
    Err(unavailable(reason))
}

fn dlopen(path: &Path) -> Result<Library, String> {
    // SAFETY: its initialisers register what is in it, which is what opening it is for.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    library.map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))
}

/// Libraries of GPUs start threads, which closing would pull their code away from.
fn keep_open(library: Library) {
    let _ = library.into_raw();
}

fn missing(path: &Path, cause: &str) -> Error {
    unavailable(format!("{TITLE} cannot be loaded: `{}`: {cause}", path.display()))
}

fn unavailable(reason: String) -> Error {
    Error::Unavailable { reason, remedy: REMEDY.to_owned() }
}

/// Refuses a file that is for another processor: the system's loader calls one "not found".
fn check_file(path: &Path) -> Result<(), Error> {
    if path.components().count() < 2 {
        return Ok(());
    }
    let mut header = [0; 20];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut header))
        .map_err(|error| missing(path, &error.to_string()))?;
    let ours = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let machine = u16::from_le_bytes([header[18], header[19]]);
    if header.starts_with(b"\x7fELF") && machine == ours {
        return Ok(());
    }
    let arch = std::env::consts::ARCH;
    Err(missing(path, &format!("it is no library for this processor (`{arch}`, ELF machine `{ours}`)")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library in C.
    fn compiled(folder: &Path, name: &str, source: &str) -> PathBuf {
        let (code, library) = (folder.join("code.c"), folder.join(name));
        fs::write(&code, source).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test compiles what it opens")]
        let made = std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &code]).status();
        assert!(made.unwrap().success());
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
    fn a_library_that_is_absent_is_named_with_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let expected = format!("{TITLE} is missing: no `{}` in `{}`", FILES[0], folder.path().display());
        assert_eq!(reason(places(Some(folder.path()))), expected);
        fs::write(folder.path().join(FILES[0]), b"").unwrap();
        assert!(reason(places(Some(folder.path()))).contains(FILES[1]));
        fs::write(folder.path().join(FILES[1]), b"").unwrap();
        assert_eq!(places(Some(folder.path())).unwrap(), FILES.map(|file| folder.path().join(file)));
    }

    #[test]
    fn a_library_of_another_version_or_none_at_all_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let source = "int getInferLibVersion(void) { return 10302; }";
        let said = reason(open_library(&compiled(folder.path(), "old.so", source)));
        assert!(said.ends_with(&format!("is {TITLE} `1.3.2`, this plug-in is for `{VERSION}`")), "{said}");
        let said = reason(open_library(&compiled(folder.path(), "other.so", "int other;")));
        assert!(said.ends_with(&format!("other.so` is not {TITLE}")), "{said}");
    }

    #[test]
    fn a_library_for_another_processor_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("foreign.so");
        fs::write(&path, [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 9], &[3, 0, 243, 0], &[0; 44]].concat()).unwrap();
        assert!(reason(open_library(&path)).contains("it is no library for this processor (`"));
    }

    #[test]
    fn a_library_with_operators_finds_what_the_process_has_and_one_that_does_not_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let registry =
            compiled(folder.path(), "registry.so", "int registered; void *registry(void) { return &registered; }");
        let begins =
            "extern int *registry(void); __attribute__((constructor)) static void begin(void) { *registry() = 7; }";
        let operators = compiled(folder.path(), "operators.so", begins);
        let said = open_plugin(&operators).unwrap_err().to_string();
        assert!(said.contains("option `plugins`: ") && said.contains("undefined symbol: registry"), "{said}");
        let opened = dlopen(&registry).unwrap();
        open_plugin(&operators).unwrap();
        // SAFETY: the symbol is a number.
        assert_eq!(unsafe { **opened.get::<*const i32>(b"registered\0").unwrap() }, 7);
        assert!(open_plugin(Path::new("none.so")).unwrap_err().to_string().contains("`none.so`: No such file"));
    }
}
