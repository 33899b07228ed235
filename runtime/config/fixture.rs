//! A small checkout in a temporary folder, for tests. Knows no rule of the configuration.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Config, Finding, Findings, Overrides, load};
use crate::event::Level;

/// A checkout with the case `toy`, the vendors `chip` and `other`, and data in `data/`.
pub(crate) struct Checkout(TempDir);

pub(crate) const HOST: &str = "VENDOR: chip\nCASES:\n    \"toy:frame\": data\n";
pub(crate) const CONFIGURATIONS: &str =
    "batch_size: 256\nflops: 4.12e9\nfp16: true\ncompiler: fast\nnum_workers: 8\nrepeat: 5\n";
const PARAMETERS: &str = "image_size: 224\ntarget_accuracy: {top1: 0.5}\n";
const CHIP: &str = "name: chip
about: a chip
frameworks:
    frame: {engine: interpreter, options: {threads: 0}}
compilers:
    fast: {engine: rten, options: {threads: 2, level: null}}
    raw: {engine: rten, opens_onnx: false}
    rare: {engine: tract}
devices:
    - {name: Chip 1, matches: [CHIP-1 80GB], peak_flops_per_s: {f16: 200.0e12}, source: sheet}
";

impl Checkout {
    pub(crate) fn new() -> Self {
        let checkout = Checkout(tempfile::tempdir().unwrap());
        checkout
            .with("configs/host.yaml", HOST)
            .with("configs/toy/configurations.yaml", CONFIGURATIONS)
            .with("configs/toy/parameters.yaml", PARAMETERS)
            .with("scripts/toy/dataloader.rhai", "")
            .with("scripts/toy/model.rhai", "")
            .with("scripts/toy/forward.rhai", "")
            .with("scripts/toy/evaluator.rhai", "")
            .with("vendors/chip/vendor.yaml", CHIP)
            .with("vendors/other/vendor.yaml", &CHIP.replace("chip", "other").replace("frame:", "slide:"))
            .with("data/list.txt", "")
    }

    pub(crate) fn with(self, path: &str, text: &str) -> Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub(crate) fn without(self, path: &str) -> Self {
        let path = self.root().join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        self
    }

    /// Adds an overlay of the vendor `chip` for the case `toy`.
    pub(crate) fn overlay(self, text: &str) -> Self {
        self.with("configs/toy/vendor_config/chip_configurations.yaml", text)
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root().join(below)
    }

    pub(crate) fn load(&self, overrides: &Overrides) -> Result<Config, Findings> {
        load(self.root(), overrides)
    }

    /// Loads the configuration and returns the messages of one level, whether or not loading succeeds.
    pub(crate) fn messages(&self, level: Level, overrides: &Overrides) -> Vec<String> {
        match self.load(overrides) {
            Ok(config) => messages_of(level, &config.findings),
            Err(findings) => messages_of(level, &findings.0),
        }
    }
}

/// Formats the findings of one level.
pub(crate) fn messages_of(level: Level, findings: &[Finding]) -> Vec<String> {
    findings.iter().filter(|finding| finding.level == level).map(ToString::to_string).collect()
}

/// Returns overrides with only these `--set` arguments.
pub(crate) fn set(arguments: &[&str]) -> Overrides {
    Overrides { set: arguments.iter().map(|&argument| argument.to_owned()).collect(), ..Overrides::default() }
}

/// Returns overrides with only this `--case`.
pub(crate) fn case(name: &str) -> Overrides {
    Overrides { cases: vec![name.to_owned()], ..Overrides::default() }
}
