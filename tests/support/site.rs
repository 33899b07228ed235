//! A checkout with the case `tiny` and a vendor of its own, whose engine the test supplies.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::support::{self, program};

const CONFIGURATIONS: &str = "batch_size: 4\nflops: 1e3\nfp16: false\ncompiler: own\nnum_workers: 1\nlog_freq: 1\nrepeat: 2\nno_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n";

/// A checkout in which `flagperf run` uses the interpreter for validation and the compiler `own` of the vendor `side` for
/// inference.
pub struct Site {
    checkout: TempDir,
}

impl Site {
    /// Creates the checkout; `own` is the compiler's entry in vendor.yaml: `{engine: sidecar, command: [..]}`.
    pub fn new(own: &str) -> Self {
        let site = Site { checkout: support::checkout() };
        for case in ["tiny", "tiny_again"] {
            for script in fs::read_dir(support::root().join("tests/cases/tiny")).expect("the case").flatten() {
                let text = fs::read_to_string(script.path()).expect("a script");
                site.write(&format!("scripts/{case}/{}", script.file_name().display()), &text);
            }
            site.write(&format!("configs/{case}/configurations.yaml"), CONFIGURATIONS);
            site.write(&format!("configs/{case}/parameters.yaml"), "samples: 10\nweights: null\nseed: 0\n");
        }
        site.write("configs/host.yaml", "VENDOR: side\nCASES:\n    \"tiny:interpreter\": data\n");
        site.write("data/nothing", "");
        site.write_vendor(own);
        site
    }

    fn write_vendor(&self, own: &str) {
        let text = format!(
            "name: side\nabout: tried by tests\nframeworks:\n    interpreter: {{engine: interpreter}}\n    own: {own}\ncompilers:\n    \
             own: {own}\n    rten: {{engine: rten}}\n"
        );
        self.write("vendors/side/vendor.yaml", &text);
    }

    /// Returns the checkout's folder.
    pub fn path(&self) -> &Path {
        self.checkout.path()
    }

    /// Returns the vendor's folder.
    pub fn vendor_folder(&self) -> PathBuf {
        self.path().join("vendors/side")
    }

    /// Writes a file in the checkout, and its parent folders.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    /// Writes a file in the vendor's folder.
    pub fn with_vendor_file(self, path: &str, text: &str) -> Self {
        self.write(&format!("vendors/side/{path}"), text);
        self
    }

    /// Runs the case and returns the record and the exit code.
    pub fn run(&self, arguments: &[&str]) -> (serde_json::Value, Option<i32>) {
        program::record(self.path(), arguments)
    }

    /// Runs the case, which must succeed, and returns the record.
    pub fn run_successfully(&self, arguments: &[&str]) -> serde_json::Value {
        let (record, code) = self.run(arguments);
        assert_eq!((code, record["status"].as_str()), (Some(0), Some("ok")), "{}", record["failures"]);
        record
    }

    /// Returns the first ONNX file that a run exported.
    pub fn exported(record: &serde_json::Value) -> PathBuf {
        let files = record["phases"][0]["files"].as_array().expect("files");
        let onnx = files.iter().find(|file| file["what"] == "onnx").expect("an export");
        PathBuf::from(onnx["path"].as_str().expect("a path"))
    }

    /// Runs the case, checks that the plan refuses the vendor's engine before anything runs, and returns the reason.
    pub fn refusal(&self) -> String {
        let output = program::flagperf(self.path(), &["run"]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("error: vendors/side/vendor.yaml:7: compiler `own` "), "{errors}");
        assert!(!self.path().join("result").exists());
        let (_, reason) = errors.split_once("cannot be used on this machine: ").expect("the reason");
        reason.lines().next().unwrap_or_default().to_owned()
    }

    /// Runs the case, checks that inference failed and that the results of validation are kept, and returns the reason.
    pub fn inference_failure(&self) -> String {
        let (record, code) = self.run(&[]);
        assert_eq!((code, record["status"].as_str()), (Some(1), Some("failed")), "{record}");
        assert!(record["finish_info"]["p_validation_core(qps)"].as_f64().is_some_and(|rate| rate > 0.0), "{record}");
        record["failures"][0]["reason"].as_str().expect("a reason").to_owned()
    }
}
