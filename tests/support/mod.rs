//! What the tests of behaviour share: material that is not in the repository, other programs, throw-away checkouts.
//!
//! A test that this machine cannot run says so through [`leave_out`], so that `tests/run` can count it.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::io::Write;
use std::panic::Location;
use std::path::{Path, PathBuf};

use flagperf::engine::backend::Backend;
use tempfile::TempDir;

/// Folders that a checkout needs for a run.
const RUN_FOLDERS: [&str; 5] = ["configs", "datasets", "docker_images", "scripts", "vendors"];

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The test material that may not be redistributed (ImageNet images, EfficientNet weights): `FLAGPERF_SHARED`, else
/// `../shared`, in either case with a folder `data`. Without it the caller is counted as left out.
#[track_caller]
pub fn shared_data() -> Option<PathBuf> {
    let given = variable("FLAGPERF_SHARED").map(PathBuf::from);
    let data = given.unwrap_or_else(|| root().with_file_name("shared")).join("data");
    if data.is_dir() {
        return Some(data);
    }
    leave_out(&format!("shared data: no folder `{}` (set FLAGPERF_SHARED)", data.display()));
    None
}

/// The Python that has the packages of `tests/reference/requirements.txt`: `FLAGPERF_PYTHON`. Without it the caller is
/// counted as left out.
#[track_caller]
pub fn python() -> Option<PathBuf> {
    let python = variable("FLAGPERF_PYTHON").map(PathBuf::from);
    if python.is_none() {
        leave_out("python: FLAGPERF_PYTHON is not set (tests/reference/README.md says how to get one)");
    }
    python
}

/// The plug-in of libtorch: built into this target folder (runtime/libtorch/README.md), else the installed one. Without
/// it the caller is counted as left out.
#[track_caller]
pub fn libtorch() -> Option<PathBuf> {
    let library = plugin("flagperf_libtorch", "libtorch");
    if library.is_none() {
        leave_out("libtorch: not built (`flagperf backend install libtorch`)");
    }
    library
}

/// The plug-in of TensorRT-RTX: built into this target folder (vendors/nvidia/tensorrt/README.md), else the installed one.
/// Where it is not there, or not the library behind it, the caller is counted as left out.
#[track_caller]
pub fn tensorrt_rtx() -> Option<PathBuf> {
    let Some(library) = plugin("flagperf_tensorrt", "tensorrt_rtx") else {
        leave_out("tensorrt_rtx: not built (`flagperf backend install tensorrt_rtx`)");
        return None;
    };
    let checked = flagperf::engine::open_plugin(&library).and_then(|engine| engine.check());
    if let Err(missing) = &checked {
        leave_out(&format!("tensorrt_rtx: {missing} ({})", missing.remedy));
    }
    checked.is_ok().then_some(library)
}

/// The device to try engines on besides the processor: `FLAGPERF_DEVICE`, as `cuda:0`.
pub fn device() -> Option<String> {
    variable("FLAGPERF_DEVICE")
}

/// A plug-in that is built beside this program, else the one that is installed.
fn plugin(library: &str, backend: &str) -> Option<PathBuf> {
    let name = format!("{DLL_PREFIX}{library}{DLL_SUFFIX}");
    let built = std::env::current_exe().expect("this program has a path").with_file_name(name);
    if built.is_file() { Some(built) } else { Backend::named(root(), backend)?.installed() }
}

/// A checkout whose vendor `cpu` has the plug-in of libtorch that these tests are about.
#[track_caller]
pub fn checkout_with_libtorch() -> Option<TempDir> {
    let (library, checkout) = (libtorch()?, checkout());
    let file = checkout.path().join("vendors/cpu/vendor.yaml");
    let text = fs::read_to_string(&file).expect("the vendor");
    assert!(text.contains("backend:libtorch"), "{text}");
    let named = text.replace("backend:libtorch", library.to_str().expect("a path that is text"));
    fs::write(file, named).expect("the temporary folder can be written");
    Some(checkout)
}

/// Whether an engine of the table works on this machine (`flagperf backend install NAME` gets its library). Without it
/// the caller is counted as left out.
#[track_caller]
pub fn has_engine(name: &str) -> bool {
    let missing = flagperf::engine::find(name).expect("a row of the table").check().err();
    if let Some(missing) = &missing {
        leave_out(&format!("{name}: {missing} ({})", missing.remedy));
    }
    missing.is_none()
}

/// Says that the calling test did not run, and why; the caller returns at once.
///
/// `tests/run` counts these, and fails for any on CI.
#[track_caller]
pub fn leave_out(reason: &str) {
    let line = format!("{}: {reason}", Location::caller());
    eprintln!("left out: {line}");
    if let Some(path) = variable("FLAGPERF_LEFT_OUT") {
        // One short write, so that lines of tests that run at once do not mix.
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
            .expect("the file that FLAGPERF_LEFT_OUT names can be written");
    }
}

/// A copy of what a run reads (configs, scripts, vendors, datasets, container recipes), for a test to change.
pub fn checkout() -> TempDir {
    let copy = tempfile::tempdir().expect("a temporary folder can be made");
    for folder in RUN_FOLDERS {
        copy_folder(&root().join(folder), &copy.path().join(folder));
    }
    copy
}

/// Copies a folder that may not be there; leaves out what runs made (`generated`).
fn copy_folder(from: &Path, to: &Path) {
    let Ok(entries) = fs::read_dir(from) else { return };
    fs::create_dir_all(to).expect("the temporary folder can be written");
    for entry in entries.map(|entry| entry.expect("the repository can be read")) {
        let target = to.join(entry.file_name());
        if !entry.path().is_dir() {
            fs::copy(entry.path(), target).expect("the temporary folder can be written");
        } else if entry.file_name() != "generated" {
            copy_folder(&entry.path(), &target);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "tests are told about their machine by the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
