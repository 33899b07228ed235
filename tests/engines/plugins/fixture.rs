//! A checkout with the case `affine` (y = 2x + 1) and the vendor `chip`, and a compiler for plug-ins in C.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use tempfile::TempDir;

use crate::support::{self, program};

const CONFIGURATIONS: &str = "batch_size: 4\nflops: 1e3\nfp16: false\ncompiler: mock\nnum_workers: 1\nlog_freq: 1\nrepeat: 2\nno_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n";

/// A checkout in a temporary folder.
pub struct Site {
    pub folder: TempDir,
}

impl Site {
    /// Creates a checkout that runs the case `affine` once with each framework in `cases`. `frameworks` and `compilers`
    /// are entries of vendor.yaml; `overlay` is the vendor's overlay for the case.
    pub fn new(cases: &[&str], frameworks: &str, compilers: &str, overlay: &str) -> Self {
        let site = Site { folder: support::checkout() };
        for script in fs::read_dir(support::root().join("tests/cases/affine")).expect("the case") {
            let script = script.expect("a file");
            let text = fs::read_to_string(script.path()).expect("a script");
            site.write(&format!("scripts/affine/{}", script.file_name().display()), &text);
        }
        let cases: String = cases.iter().map(|framework| format!("    \"affine:{framework}\": data\n")).collect();
        site.write("data/list.txt", "");
        site.write("configs/host.yaml", &format!("VENDOR: chip\nPHASE_TIMEOUT: 120\nCASES:\n{cases}"));
        site.write("configs/affine/configurations.yaml", CONFIGURATIONS);
        site.write("configs/affine/parameters.yaml", "samples: 10\n");
        site.write("configs/affine/vendor_config/chip_configurations.yaml", overlay);
        let vendor = format!("name: chip\nabout: a chip\nframeworks:\n{frameworks}compilers:\n{compilers}");
        site.write("vendors/chip/vendor.yaml", &vendor);
        site
    }

    /// Creates a checkout with two cases: one validates with the plug-in `engines/libbad.so`, the other with the null
    /// engine.
    pub fn bad() -> Self {
        let frameworks = "    bad: {engine: plugin, library: engines/libbad.so}\n    mock: {engine: \"null\"}\n";
        Site::new(&["bad", "mock"], frameworks, "    mock: {engine: \"null\"}\n", "compiler: null\n")
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, file: &str, text: &str) {
        let file = self.path().join(file);
        fs::create_dir_all(file.parent().expect("below the checkout")).expect("a folder");
        fs::write(file, text).expect("a file");
    }

    /// Returns the path of the plug-in, and creates its folder.
    pub fn library_path(&self) -> PathBuf {
        let folder = self.path().join("vendors/chip/engines");
        fs::create_dir_all(&folder).expect("a folder");
        folder.join("libbad.so")
    }

    /// Runs every case and returns the records, in order, and the exit code.
    pub fn run(&self) -> (Vec<serde_json::Value>, Option<i32>) {
        let output = program::flagperf(self.path(), &["run", "--json"]);
        let records = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
        let records: Result<Vec<serde_json::Value>, _> = records.collect();
        let records = records.unwrap_or_else(|error| panic!("{error}\n{}", String::from_utf8_lossy(&output.stderr)));
        (records, output.status.code())
    }
}

/// Compiles a plug-in in C with warnings as errors. Without a C compiler it returns `None` and reports the test as left
/// out.
pub fn compile(source: &str, library: &Path, defines: &[&str]) -> Option<()> {
    if !support::has_compiler("cc") {
        return None;
    }
    let mut command = Command::new("cc");
    command.current_dir(support::root()).args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"]);
    command.args(["-shared", "-fPIC", "-I", "runtime/plugin/include", source, "-o"]).arg(library);
    command.args(defines.iter().map(|define| format!("-D{define}"))).assert().success();
    Some(())
}
