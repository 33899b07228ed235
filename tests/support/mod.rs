//! Shared by the integration tests: material that is not in the repository, other programs, temporary checkouts.
//!
//! A test that this machine cannot run reports it through [`leave_out`], so that `tests/run` can count it.

#![allow(dead_code, reason = "each test program uses its own part")]

pub mod cases;
pub mod completions;
pub mod docker;
pub mod graphs;
pub mod jobs;
pub mod kubernetes;
pub mod lab;
pub mod language_model;
pub mod leaves;
pub mod loopback;
pub mod once;
pub mod program;
pub mod repository;
pub mod results;
pub mod site;
pub mod slurm;

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use flagperf_engine::Unavailable;
use flagperf_engine::backend::Backend;
use tempfile::TempDir;

/// The folders that a run reads from a checkout.
const RUN_FOLDERS: [&str; 5] = ["configs", "datasets", "docker_images", "scripts", "vendors"];

/// The commands of tests/reference/README.md in a line.
const PYTHON_REMEDY: &str = "run `python3 -m venv ~/.cache/flagperf-python && ~/.cache/flagperf-python/bin/pip install \
                             -r tests/reference/requirements.txt && \
                             export FLAGPERF_PYTHON=~/.cache/flagperf-python/bin/python`";

/// What this machine lacks for a test.
#[derive(Clone)]
pub struct Missing {
    /// What is missing, the same for all tests that need it.
    what: String,
    /// How to get it; a command where there is one.
    remedy: String,
}

impl Missing {
    /// Describes what is missing and how to get it.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Missing { what: what.into(), remedy: remedy.into() }
    }

    /// Describes why an engine cannot be used.
    pub fn engine(name: &str, unavailable: Unavailable) -> Self {
        Missing::new(format!("{name}: {unavailable}"), unavailable.remedy)
    }
}

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the test material that may not be redistributed (ImageNet images, EfficientNet weights): the folder `data`
/// in `FLAGPERF_SHARED`, by default in `../shared`. Without it the calling test is counted as left out.
pub fn shared_data() -> Option<PathBuf> {
    let given = variable("FLAGPERF_SHARED").map(PathBuf::from);
    let data = given.unwrap_or_else(|| root().with_file_name("shared")).join("data");
    let missing = || Missing::new(format!("no folder `{}`", data.display()), "set FLAGPERF_SHARED (tests/README.md)");
    or_leave_out(if data.is_dir() { Ok(data) } else { Err(missing()) })
}

/// Returns the Python with the packages of `tests/reference/requirements.txt`: `FLAGPERF_PYTHON`. Without it the
/// calling test is counted as left out.
pub fn python() -> Option<PathBuf> {
    or_leave_out(find_python())
}

/// Returns the same Python, or that it is missing.
pub fn find_python() -> Result<PathBuf, Missing> {
    let missing = || Missing::new("no Python with the packages for comparison", PYTHON_REMEDY);
    variable("FLAGPERF_PYTHON").map(PathBuf::from).ok_or_else(missing)
}

/// Runs a Python script of `tests/reference` with two threads, like the CI machine; panics with its output if it fails.
pub fn run_script(python: &Path, script: &str, arguments: &[&str]) {
    let mut command = assert_cmd::Command::new(python);
    command.arg(root().join("tests/reference").join(script)).args(arguments).env("OMP_NUM_THREADS", "2");
    let done = command.output().expect("FLAGPERF_PYTHON names a program");
    let printed = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{script} {arguments:?}:\n{printed}");
    println!("{printed}");
}

/// Returns the plug-in of libtorch: the one in this target folder (runtime/libtorch/README.md), else the installed one.
/// Without it the calling test is counted as left out.
pub fn libtorch() -> Option<PathBuf> {
    or_leave_out(find_libtorch())
}

/// Returns the same plug-in, or that it is missing.
pub fn find_libtorch() -> Result<PathBuf, Missing> {
    plugin("flagperf_libtorch", "libtorch").ok_or_else(|| not_installed("libtorch"))
}

/// Returns the plug-in of TensorRT-RTX: the one in this target folder (vendors/nvidia/tensorrt/README.md), else the
/// installed one. Without the plug-in or the library that it opens, the calling test is counted as left out.
pub fn tensorrt_rtx() -> Option<PathBuf> {
    let found = plugin("flagperf_tensorrt", "tensorrt_rtx").ok_or_else(|| not_installed("tensorrt_rtx"));
    let library = or_leave_out(found)?;
    let checked = flagperf_engine::open_plugin(&library).and_then(|engine| engine.check());
    or_leave_out(checked.map_err(|unavailable| Missing::engine("tensorrt_rtx", unavailable)))?;
    Some(library)
}

/// Returns the folder of TensorRT's headers in the sources of the crate that its plug-in needs. Without it the calling test is
/// counted as left out.
pub fn tensorrt_headers() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(variable("HOME")?).join(".cargo"));
    let sources = variable("CARGO_HOME").map(PathBuf::from).or_else(home).map(|cargo| cargo.join("registry/src"));
    let below = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let begins = |path: &PathBuf, with: &str| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(with));
    let crates = sources.into_iter().flat_map(below).flat_map(below).filter(|path| begins(path, "trtx-sys-"));
    let headers = crates.flat_map(|source| below(source.join("TensorRT-Headers")));
    let found = headers.filter(|path| begins(path, "TRT-Enterprise-")).max();
    let remedy = "run `cargo fetch --manifest-path vendors/nvidia/tensorrt/Cargo.toml`";
    or_leave_out(found.ok_or_else(|| Missing::new("no headers of TensorRT", remedy)))
}

/// Returns the device on which engines are tested in addition to the processor: `FLAGPERF_DEVICE`, such as `cuda:0`.
pub fn device() -> Option<String> {
    variable("FLAGPERF_DEVICE")
}

fn not_installed(backend: &str) -> Missing {
    Missing::new(format!("{backend}: not installed"), format!("run `flagperf backend install {backend}`"))
}

/// Returns a plug-in that was built next to this program, else the installed one.
fn plugin(library: &str, backend: &str) -> Option<PathBuf> {
    let name = format!("{DLL_PREFIX}{library}{DLL_SUFFIX}");
    let built = std::env::current_exe().expect("this program has a path").with_file_name(name);
    if built.is_file() { Some(built) } else { Backend::find(root(), backend)?.installed() }
}

/// Returns a checkout whose vendor `cpu` uses the plug-in that [`libtorch`] returns.
pub fn checkout_with_libtorch() -> Option<TempDir> {
    let (library, checkout) = (libtorch()?, checkout());
    let file = checkout.path().join("vendors/cpu/vendor.yaml");
    let text = fs::read_to_string(&file).expect("the vendor");
    assert!(text.contains("backend:libtorch"), "{text}");
    let named = text.replace("backend:libtorch", library.to_str().expect("a path that is text"));
    fs::write(file, named).expect("the temporary folder can be written");
    Some(checkout)
}

/// Names the variable by which the processes of a checkout get devices, and a port of their own: other tests run at the same time.
pub fn give_devices(checkout: &Path) {
    let site = checkout.join("configs/host.yaml");
    let text = fs::read_to_string(&site).expect("the site");
    let variable = "ACCE_VISIBLE_DEVICE_ENV_NAME: ";
    let text = text.replace(&format!("{variable}null"), &format!("{variable}TEST_DEVICES"));
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
    let text = text.replace("#MASTER_PORT: \"29501\"", &format!("MASTER_PORT: \"{free}\""));
    fs::write(&site, text).expect("the temporary folder can be written");
}

/// Returns whether an engine of the table works on this machine (`flagperf backend install NAME` fetches its library).
/// Otherwise the calling test is counted as left out.
pub fn has_engine(name: &str) -> bool {
    let checked = flagperf_engine::find(name).expect("a row of the table").check();
    or_leave_out(checked.map_err(|unavailable| Missing::engine(name, unavailable))).is_some()
}

/// Returns whether a compiler of C or C++ can be started. Otherwise the calling test is counted as left out.
pub fn has_compiler(program: &str) -> bool {
    let found = assert_cmd::Command::new(program).arg("--version").output();
    let missing = |_| Missing::new(format!("no compiler `{program}`"), "run `apt-get install gcc g++ libc6-dev`");
    or_leave_out(found.map_err(missing)).is_some()
}

pub fn or_leave_out<T>(found: Result<T, Missing>) -> Option<T> {
    found.map_err(|missing| leave_out(&missing)).ok()
}

/// Reports that the calling test did not run completely, and why; the caller returns immediately afterwards.
///
/// `tests/run` counts these tests by name, and fails on CI if there are any.
pub fn leave_out(missing: &Missing) {
    // The test harness names the thread of a test after the test.
    leave_out_named(std::thread::current().name().unwrap_or("a thread without a name"), missing);
}

/// Reports the same for the test of the given name, for harnesses that do not name threads after tests.
pub fn leave_out_named(test: &str, missing: &Missing) {
    let program = std::env::current_exe().expect("this program has a path");
    let program = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // Cargo appends a hash to the name.
    let binary = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let [what, remedy] = [&missing.what, &missing.remedy].map(|text| text.replace(['\n', '\t'], " "));
    let line = format!("{binary} {test}\t{what}\t{remedy}");
    eprintln!("left out: {line}");
    if let Some(path) = variable("FLAGPERF_LEFT_OUT") {
        // A single short write, so that the lines of concurrent tests do not mix.
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
            .expect("the file that FLAGPERF_LEFT_OUT names can be written");
    }
}

/// Returns a copy of the folders that a run reads (configs, scripts, vendors, datasets, container recipes), which a
/// test may change.
pub fn checkout() -> TempDir {
    let copy = tempfile::tempdir().expect("a temporary folder can be made");
    fill_checkout(copy.path());
    copy
}

/// Makes such a copy in an existing folder.
pub fn fill_checkout(copy: &Path) {
    for folder in RUN_FOLDERS {
        copy_folder(&root().join(folder), &copy.join(folder));
    }
}

/// Copies a folder, if it exists, without files that runs generated (`generated`).
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

#[expect(clippy::disallowed_methods, reason = "the environment describes the machine to the tests")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
