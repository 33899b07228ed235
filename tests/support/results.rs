//! Results of small runs for tests that change them.

use std::fs;
use std::path::{Path, PathBuf};

use flagperf_core::run_files::MANIFEST_FILE;
use flagperf_result::write_manifest;
use tempfile::TempDir;

use crate::support::{self, program};

const CONFIGURATIONS: &str = "batch_size: 4\nflops: 1e6\nfp16: false\ncompiler: rten\nnum_workers: 1\nlog_freq: 1\nrepeat: 3\nno_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n";

/// Creates a checkout with the case `tiny` on the processor.
pub fn checkout() -> TempDir {
    let checkout = tempfile::tempdir().expect("a temporary folder can be made");
    fill_checkout(checkout.path());
    checkout
}

/// Makes such a checkout in an existing folder.
pub fn fill_checkout(checkout: &Path) {
    support::fill_checkout(checkout);
    let at = |path: &str| checkout.join(path);
    for folder in ["configs/tiny/vendor_config", "scripts/tiny", "data"] {
        fs::create_dir_all(at(folder)).expect("a folder");
    }
    for script in fs::read_dir(support::root().join("tests/cases/tiny")).expect("the case") {
        let script = script.expect("a file");
        fs::copy(script.path(), at("scripts/tiny").join(script.file_name())).expect("a file");
    }
    fs::write(at("configs/host.yaml"), "VENDOR: cpu\nCASES:\n    \"tiny:interpreter\": \"data\"\n").expect("a file");
    fs::write(at("configs/tiny/configurations.yaml"), CONFIGURATIONS).expect("a file");
    fs::write(at("configs/tiny/parameters.yaml"), "samples: 10\nweights: null\nseed: 0\n").expect("a file");
}

/// Runs the case in the checkout, and returns the folder of the result and its digest.
pub fn run(checkout: &Path, arguments: &[&str]) -> (PathBuf, String) {
    let before = results(checkout);
    let output = program::flagperf(checkout, &[&["run"], arguments].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let digest = text.lines().find_map(|line| line.trim().strip_prefix("digest  ")).expect("a digest").to_owned();
    let new: Vec<PathBuf> = results(checkout).into_iter().filter(|folder| !before.contains(folder)).collect();
    (new[0].clone(), digest)
}

/// Runs the case on two devices of this machine, which share the processor, and returns its folder and what the run printed.
pub fn run_on_two_devices(checkout: &Path) -> (PathBuf, String) {
    let site = format!(
        "VENDOR: cpu\nACCE_VISIBLE_DEVICE_ENV_NAME: TEST_DEVICES\nLAUNCHER: local\nCASES:\n    \"tiny:interpreter:1x2\": \"{}\"\n",
        checkout.join("data").display()
    );
    fs::write(checkout.join("configs/host.yaml"), site).expect("a file");
    let output = program::flagperf(checkout, &["run", "--plain"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let runs = fs::read_dir(checkout.join("result")).expect("results").map(|run| run.expect("a folder").path());
    let case = runs.map(|run| run.join("tiny_interpreter_1x2")).find(|case| case.exists());
    (case.expect("a result"), text)
}

fn results(checkout: &Path) -> Vec<PathBuf> {
    let runs = fs::read_dir(checkout.join("result")).into_iter().flatten();
    runs.map(|run| run.expect("a folder").path().join("tiny_interpreter/localhost_noderank0")).collect()
}

/// Copies a result, so that it can be changed.
pub fn copy(result: &Path) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    copy_folder(result, folder.path());
    folder
}

/// Copies a folder with everything in it.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry")) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Returns every file of a result by its path in it.
pub fn files(result: &Path) -> Vec<String> {
    let mut files = vec![MANIFEST_FILE.to_owned()];
    files.extend(flagperf_result::list_files(result).expect("a result").into_iter().map(|file| file.path));
    files
}

/// Writes the manifest again, as someone does who has changed files.
pub fn seal_again(result: &Path) -> String {
    fs::remove_file(result.join(MANIFEST_FILE)).expect("a manifest");
    write_manifest(result).expect("a manifest")
}

/// Changes the record and writes the manifest again.
pub fn change_record(result: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let path = result.join("record.json");
    let mut record = serde_json::from_str(&fs::read_to_string(&path).expect("a record")).expect("JSON");
    change(&mut record);
    fs::write(&path, serde_json::to_string_pretty(&record).expect("JSON") + "\n").expect("a file");
    seal_again(result);
}
