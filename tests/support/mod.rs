//! What the tests of behaviour share: material that is not in the repository, other programs, throw-away checkouts.
//!
//! A test that this machine cannot run says so through [`leave_out`], so that `tests/run` can count it.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::io::Write;
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
pub fn shared_data() -> Option<PathBuf> {
    let given = variable("FLAGPERF_SHARED").map(PathBuf::from);
    let data = given.unwrap_or_else(|| root().with_file_name("shared")).join("data");
    let missing = || format!("shared data: no folder `{}` (set FLAGPERF_SHARED)", data.display());
    or_left_out(if data.is_dir() { Ok(data) } else { Err(missing()) })
}

/// The Python that has the packages of `tests/reference/requirements.txt`: `FLAGPERF_PYTHON`. Without it the caller is
/// counted as left out.
pub fn python() -> Option<PathBuf> {
    or_left_out(find_python())
}

/// The same Python, or why there is none.
pub fn find_python() -> Result<PathBuf, String> {
    let missing = "python: FLAGPERF_PYTHON is not set (tests/reference/README.md says how to get one)";
    variable("FLAGPERF_PYTHON").map(PathBuf::from).ok_or_else(|| missing.to_owned())
}

/// The plug-in of libtorch: built into this target folder (runtime/libtorch/README.md), else the installed one. Without
/// it the caller is counted as left out.
pub fn libtorch() -> Option<PathBuf> {
    or_left_out(find_libtorch())
}

/// The same plug-in, or why there is none.
pub fn find_libtorch() -> Result<PathBuf, String> {
    let missing = "libtorch: not built (`flagperf backend install libtorch`)";
    plugin("flagperf_libtorch", "libtorch").ok_or_else(|| missing.to_owned())
}

/// The plug-in of TensorRT-RTX: built into this target folder (vendors/nvidia/tensorrt/README.md), else the installed one.
/// Where it is not there, or not the library behind it, the caller is counted as left out.
pub fn tensorrt_rtx() -> Option<PathBuf> {
    let missing = "tensorrt_rtx: not built (`flagperf backend install tensorrt_rtx`)";
    let library = or_left_out(plugin("flagperf_tensorrt", "tensorrt_rtx").ok_or_else(|| missing.to_owned()))?;
    let checked = flagperf::engine::open_plugin(&library).and_then(|engine| engine.check());
    or_left_out(checked.map_err(|missing| format!("tensorrt_rtx: {missing} ({})", missing.remedy)))?;
    Some(library)
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
pub fn has_engine(name: &str) -> bool {
    let checked = flagperf::engine::find(name).expect("a row of the table").check();
    or_left_out(checked.map_err(|missing| format!("{name}: {missing} ({})", missing.remedy))).is_some()
}

fn or_left_out<T>(found: Result<T, String>) -> Option<T> {
    found.map_err(|reason| leave_out(&reason)).ok()
}

/// Reports that the calling test did not run, or not in whole, and why; the caller returns at once.
///
/// `tests/run` counts these tests by name, and fails for any on CI.
pub fn leave_out(reason: &str) {
    // The test harness names the thread of a test after the test.
    leave_out_named(std::thread::current().name().unwrap_or("a thread without a name"), reason);
}

/// The same for the test of this name: a harness that is not Rust's own does not name its threads.
pub fn leave_out_named(test: &str, reason: &str) {
    let program = std::env::current_exe().expect("this program has a path");
    let program = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // Cargo puts a hash behind the name.
    let binary = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let line = format!("{binary} {test}\t{}", reason.replace('\n', " "));
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
