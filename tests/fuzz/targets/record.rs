//! A result, of which the input replaces one file, as `flagperf verify` reads it.
//!
//! The result is that of a run of the case `tiny`, in the folder `result` beside this crate. If it does not exist, this
//! program creates it: with the arguments of `flagperf`, it is that program.

#![no_main]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::LazyLock;

use flagperf_core::run_files::{MANIFEST_FILE, SIGNATURE_FILE};
use flagperf_result::{Record, digest, list_files};
use flagperf_verify::{Standing, Trust, find_results, recomputed, verify_result};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

/// The files that the input replaces. Each seed is the file of the result.
const FILES: &[&str] = &[
    RECORD,
    EVENTS,
    MANIFEST_FILE,
    SIGNATURE_FILE,
    "evaluation.infer.safetensors",
    "evaluation.validate.safetensors",
    "samples.infer.csv",
    "sources/config.json",
    "sources/scripts/tiny/evaluator.rhai",
];
const RECORD: &str = "record.json";
const EVENTS: &str = "events.jsonl";

/// The files of the result by their path in it.
static RESULT: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("result");
    if !folder.join(MANIFEST_FILE).exists() {
        create_result(&folder);
    }
    let listed = list_files(&folder).expect("a result");
    let paths = listed.into_iter().map(|file| file.path).chain([MANIFEST_FILE.to_owned()]);
    paths.map(|path| (path.clone(), fs::read(folder.join(&path)).expect("a file"))).collect()
});
/// A copy of the result, in which the input replaces a file.
static COPY: LazyLock<PathBuf> = LazyLock::new(|| {
    for (path, content) in &*RESULT {
        support::write(&format!("copy/{path}"), content);
    }
    support::FOLDER.join("copy")
});

fuzz_target!(init: begin(), |input: &[u8]| {
    let Some((kind, bytes)) = support::split_kind(input, FILES.len()) else { return };
    let (path, before) = (FILES[kind], RESULT.get(FILES[kind]));
    let copy = &*COPY;
    let content = if path == EVENTS { chained(bytes) } else { bytes.to_vec() };
    support::write(&format!("copy/{path}"), &content);
    let trust = Trust { digests: vec![digest(&RESULT[MANIFEST_FILE])], keys: Vec::new() };
    let report = verify_result(copy, &trust);
    if path != SIGNATURE_FILE && before != Some(&content) {
        assert!(report.standing != Standing::Authentic, "`{path}` was changed");
    }
    if path == RECORD {
        check_record(bytes, copy);
    }
    match before {
        Some(before) => drop(support::write(&format!("copy/{path}"), before)),
        None => fs::remove_file(copy.join(path)).expect("it was written"),
    }
});

/// Reads a record alone, and prints and reads it again: it must be the same.
fn check_record(text: &[u8], folder: &Path) {
    let _ = find_results(&folder.join(RECORD));
    let Ok(record) = serde_json::from_slice::<Record>(text) else { return };
    let _ = recomputed(&record);
    let written = serde_json::to_string(&record).expect("a record is plain data");
    let again: Record = serde_json::from_str(&written).expect("it was written");
    assert_eq!(serde_json::to_string(&again).expect("a record is plain data"), written);
}

/// Returns events as a chain: each line contains the hash of the one before.
fn chained(text: &[u8]) -> Vec<u8> {
    let (mut chain, mut previous) = (Vec::new(), String::new());
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Ok(mut event) = serde_json::from_slice::<Map<String, Value>>(line) else {
            chain.extend_from_slice(line);
            break;
        };
        event.insert("previous".to_owned(), json!(previous));
        let line = serde_json::to_vec(&event).expect("an event is plain data");
        previous = flagperf_core::hash::hash_bytes(&line);
        chain.extend(line);
        chain.push(b'\n');
    }
    chain
}

/// Returns the options of AddressSanitizer: workers, which inherit no variables, would otherwise fail at their end because of what
/// they have not freed.
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const std::ffi::c_char {
    c"detect_leaks=0".as_ptr()
}

fn begin() {
    // The conductor starts itself as the worker.
    if let Some("run" | "work") = std::env::args().nth(1).as_deref() {
        let is_success = flagperf_cli::main().is_ok_and(|code| code == ExitCode::SUCCESS);
        std::process::exit(i32::from(!is_success));
    }
    LazyLock::force(&RESULT);
    support::write_seeds(seeds);
}

fn seeds() -> Vec<Vec<u8>> {
    let signature = format!("flagperf-signature ed25519 {} {}\n", "ab".repeat(32), "cd".repeat(64));
    let seed = |(kind, path): (usize, &&str)| {
        let content = RESULT.get(*path).cloned().unwrap_or_else(|| signature.clone().into_bytes());
        support::seed_of_kind(kind, content)
    };
    FILES.iter().enumerate().map(seed).collect()
}

/// Runs the case `tiny` in a checkout of its own and moves its result to `folder`.
fn create_result(folder: &Path) {
    let checkout = support::FOLDER.join("checkout");
    let own = [
        ("configs/host.yaml", "VENDOR: cpu\nWORKER_PROTECTION: false\nCASES:\n    \"tiny:interpreter\": data\n"),
        (
            "configs/tiny/configurations.yaml",
            "batch_size: 4\nflops: 1e6\nfp16: false\ncompiler: rten\nnum_workers: 1\nlog_freq: 1\nrepeat: 3\nno_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n",
        ),
        ("configs/tiny/parameters.yaml", "samples: 10\nweights: null\nseed: 0\n"),
        ("data/nothing", ""),
    ];
    own.iter().for_each(|(path, text)| drop(support::write(&format!("checkout/{path}"), text)));
    let copy = |from: &str, to: &str| {
        let content = fs::read(support::root().join(from)).expect("a file of the repository");
        support::write(&format!("checkout/{to}"), content);
    };
    for script in ["dataloader", "model", "forward", "evaluator"] {
        copy(&format!("tests/cases/tiny/{script}.rhai"), &format!("scripts/tiny/{script}.rhai"));
    }
    copy("vendors/cpu/vendor.yaml", "vendors/cpu/vendor.yaml");
    let mut run = Command::new(std::env::current_exe().expect("this program has a path"));
    let status = run.arg("run").arg("--plain").current_dir(&checkout).status();
    assert!(status.expect("this program starts").success(), "the case `tiny` failed");
    let runs = fs::read_dir(checkout.join("result")).expect("a folder of results");
    let run = runs.map(|run| run.expect("an entry").path()).next().expect("a run");
    copy_folder(&run.join("tiny_interpreter/localhost_noderank0"), folder);
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry")) {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("a copy")),
        }
    }
}
