//! A small checkout in a temporary folder, for tests. Knows no rule of the configuration.
#![expect(clippy::unwrap_used, reason = "only tests use it")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::{Config, Finding, Findings, Overrides, find_root, load};
use flagperf_core::event::Level;

/// A checkout with the case `toy`, the vendors `chip` and `other`, and data in `data/`.
pub struct Checkout(TempDir);

pub const HOST: &str = "VENDOR: chip\nCASES:\n    \"toy:frame\": data\n";
pub const CONFIGURATIONS: &str =
    "batch_size: 256\nflops: 4.12e9\nfp16: true\ncompiler: fast\nnum_workers: 8\nrepeat: 5\n";
const PARAMETERS: &str = "image_size: 224\ntarget_accuracy: {top1: 0.5}\n";
const CHIP: &str = "name: chip
about: a chip
frameworks:
    frame: {engine: interpreter, options: {threads: 0}}
compilers:
    fast: {engine: rten, options: {threads: 2, level: null}}
    raw: {engine: rten, opens_onnx: false}
    rare: {engine: xla}
devices:
    - {name: Chip 1, matches: [CHIP-1 80GB], peak_flops_per_s: {f16: 200.0e12}, source: sheet}
";

impl Checkout {
    #[expect(clippy::new_without_default, reason = "each call creates a folder")]
    pub fn new() -> Self {
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

    pub fn with(self, path: &str, text: &str) -> Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub fn without(self, path: &str) -> Self {
        let path = self.root().join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        self
    }

    /// Adds an overlay of the vendor `chip` for the case `toy`.
    pub fn overlay(self, text: &str) -> Self {
        self.with("configs/toy/vendor_config/chip_configurations.yaml", text)
    }

    pub fn root(&self) -> &Path {
        self.0.path()
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.root().join(below)
    }

    pub fn load(&self, overrides: &Overrides) -> Result<Config, Findings> {
        load(self.root(), overrides)
    }

    /// Loads the configuration and returns the messages of one level, whether or not loading succeeds.
    pub fn messages(&self, level: Level, overrides: &Overrides) -> Vec<String> {
        match self.load(overrides) {
            Ok(config) => messages_of(level, &config.findings),
            Err(findings) => messages_of(level, &findings.0),
        }
    }
}

/// Formats the findings of one level.
pub fn messages_of(level: Level, findings: &[Finding]) -> Vec<String> {
    findings.iter().filter(|finding| finding.level == level).map(ToString::to_string).collect()
}

/// Returns overrides with only these `--set` arguments.
pub fn set(arguments: &[&str]) -> Overrides {
    Overrides { set: arguments.iter().map(|&argument| argument.to_owned()).collect(), ..Overrides::default() }
}

/// Returns overrides with only this `--case`.
pub fn case(name: &str) -> Overrides {
    Overrides { cases: vec![name.to_owned()], ..Overrides::default() }
}

/// Returns the root of this repository.
pub fn repository() -> PathBuf {
    find_root(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Checks that docs/schemas contains a schema; with `UPDATE_SCHEMAS=1` writes it there first.
pub fn check_schema(name: &str, schema: &Value) {
    let file = repository().join("docs/schemas").join(format!("{name}.json"));
    let text = format!("{}\n", serde_json::to_string_pretty(schema).unwrap());
    if std::env::vars().any(|(variable, _)| variable == "UPDATE_SCHEMAS") {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &text).unwrap();
    }
    let current = fs::read_to_string(&file).unwrap_or_default() == text;
    assert!(current, "docs/schemas/{name}.json is stale; run with UPDATE_SCHEMAS=1 to regenerate it");
}
