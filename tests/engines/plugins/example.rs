//! The example in plain C.

use std::fs;

use flagperf_core::hash::hash_file;

use super::fixture::{Site, compile};
use crate::support::program;

const AFFINE: &str = "runtime/plugin/examples/affine.c";
const CHIP: &str = "    chip: {engine: plugin, library: engines/libbad.so}\n";
const OVERLAY: &str = "compiler: chip\nexist_compiler_path: affine.txt\n";
const FILE: &str = "affine 2.0 1.0\nx N,1000,f32 y N,1000,f32\n";

/// Returns a checkout where the interpreter validates y = 2x + 1 and the example in C infers it; `None` without a C compiler.
pub fn site() -> Option<Site> {
    let site = Site::new(&["interpreter"], "    interpreter: {engine: interpreter}\n", CHIP, OVERLAY);
    site.write("affine.txt", FILE);
    compile(AFFINE, &site.library_path(), &[])?;
    Some(site)
}

#[test]
fn the_example_computes_what_the_interpreter_computes() {
    let Some(site) = site() else { return };
    let (records, code) = site.run();
    let record = &records[0];
    assert_eq!(code, Some(0), "{}", record["failures"]);
    let infer = &record["phases"][1];
    assert_eq!(
        (&infer["agreement"]["samples"], &infer["agreement"]["outputs"]["output"]["max_abs"]),
        (&10.into(), &0.0.into()),
        "{infer}"
    );
    assert_eq!((&infer["engine"]["name"], &infer["engine"]["version"]), (&"plugin".into(), &"1.0".into()));
    let plugin = &infer["engine"]["plugin"];
    assert_eq!((&plugin["name"], &plugin["version"]), (&"affine".into(), &"1.0".into()));
    assert_eq!(plugin["library_sha256"], hash_file(&site.library_path()).unwrap());
    assert_eq!(record["phases"][0]["engine"].get("plugin"), None, "the interpreter is not a plug-in");
}

#[test]
fn the_example_refuses_options_and_files_that_are_not_its_own() {
    let Some(site) = site() else { return };
    site.write("affine.txt", "ffine 2.0 1.0\n");
    let reason = site.run().0[0]["failures"][0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("plug-in `affine`: not a file of this engine: `"), "{reason}");
    let vendor = fs::read_to_string(site.path().join("vendors/chip/vendor.yaml")).unwrap();
    site.write("vendors/chip/vendor.yaml", &vendor.replace("libbad.so}", "libbad.so, options: {level: 3}}"));
    let output = program::flagperf(site.path(), &["run", "--json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("engine `affine`: option `level`: unknown"), "{error}");
    assert_eq!(output.status.code(), Some(2), "the plan refuses the option");
}

#[test]
fn the_example_is_not_given_artifacts_that_it_does_not_accept() {
    let Some(site) = site() else { return };
    site.write("configs/affine/vendor_config/chip_configurations.yaml", "compiler: chip\n");
    let output = program::flagperf(site.path(), &["run"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    let error = "compiler `chip` accepts only compiled files, not an ONNX file (engine `affine`)";
    assert!(errors.contains(error) && errors.contains("hint: set `exist_compiler_path`"), "{errors}");
}

#[test]
fn doctor_shows_for_each_plug_in_whether_it_loads() {
    let site = Site::bad();
    let doctor = || {
        let output = program::flagperf(site.path(), &["doctor"]);
        // The case uses the plug-in.
        let works = String::from_utf8_lossy(&output.stdout).contains("works, bad 1.0");
        assert_eq!(output.status.code(), Some(if works { 0 } else { 1 }));
        let text = String::from_utf8(output.stdout).unwrap();
        let row = text.split("chip.bad").nth(1).unwrap_or_else(|| panic!("{text}"));
        row.split("\n\n").next().unwrap().to_owned()
    };
    assert!(doctor().contains("missing: the library"));
    // Table cells wrap between words, so each expected text fits in one line.
    let states = [
        ("MODE=GOOD", "works, bad 1.0"),
        ("MODE=OTHER_VERSION", "`99`"),
        ("MODE=FAULTS", "SIGSEGV"),
        ("MODE=UNAVAILABLE", "purpose`"),
    ];
    for (mode, expected) in states {
        if compile("tests/engines/plugins/bad.c", &site.library_path(), &[mode]).is_some() {
            let line = doctor();
            assert!(line.contains(expected), "{line}");
        }
    }
}
