//! The example in plain C, and the instructions for adding an engine, followed as a user would.

use std::fs;

use assert_cmd::Command;
use flagperf::hash::hash_file;

use crate::fixture::{Site, compile, is_installed};
use crate::{program, support};

const AFFINE: &str = "runtime/plugin/examples/affine.c";
const CHIP: &str = "    chip: {engine: plugin, library: engines/libbad.so}\n";
const OVERLAY: &str = "compiler: chip\nexist_compiler_path: affine.txt\n";
const FILE: &str = "affine 2.0 1.0\nx N,1000,f32 y N,1000,f32\n";

/// Returns a checkout where candle validates y = 2x + 1 and the example in C infers it; `None` without a C compiler.
pub fn site() -> Option<Site> {
    let site = Site::new(&["candle"], "    candle: {engine: candle}\n", CHIP, OVERLAY);
    site.write("affine.txt", FILE);
    compile(AFFINE, &site.library_path(), &[])?;
    Some(site)
}

#[test]
fn the_example_computes_what_candle_computes() {
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
    assert_eq!(record["phases"][0]["engine"].get("plugin"), None, "candle is not a plug-in");
}

#[test]
fn the_example_refuses_options_and_files_that_are_not_its_own() {
    let Some(site) = site() else { return };
    site.write("affine.txt", "ffine 2.0 1.0\n");
    let reason = site.run().0[0]["failures"][0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("plug-in `affine`: not a file of this engine: `"), "{reason}");
    let vendor = fs::read_to_string(site.path().join("vendors/chip/vendor.yaml")).unwrap();
    site.write("vendors/chip/vendor.yaml", &vendor.replace("libbad.so}", "libbad.so, options: {level: 3}}"));
    let reason = site.run().0[0]["failures"][0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("engine `affine`: option `level`: unknown"), "{reason}");
}

#[test]
fn the_example_is_not_given_artifacts_that_it_does_not_accept() {
    let Some(site) = site() else { return };
    site.write("configs/affine/vendor_config/chip_configurations.yaml", "compiler: chip\n");
    let reason = site.run().0[0]["failures"][0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("engine `affine` accepts compiled files, not the ONNX file `"), "{reason}");
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
        if compile("tests/plugins/bad.c", &site.library_path(), &[mode]).is_some() {
            let line = doctor();
            assert!(line.contains(expected), "{line}");
        }
    }
}

/// Runs the commands of the instructions unchanged, then a case on the engine that they added.
#[test]
fn the_instructions_for_adding_an_engine_work() {
    if !is_installed("cc") {
        return support::leave_out("how to add an engine: no C compiler `cc`");
    }
    let text = fs::read_to_string(support::root().join("runtime/plugin/README.md")).unwrap();
    let section = text.split("# How to add an engine as a plug-in").nth(1).unwrap().split("\n#").next().unwrap();
    assert!(section.lines().count() <= 22, "at most 20 lines");
    let commands = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let commands: String = commands.lines().map(|line| format!("{}\n", line.trim_start_matches("   "))).collect();
    let site = Site::new(&["candle"], "    candle: {engine: candle}\n", "    x: {engine: rten}\n", "compiler: x\n");
    let plugin = support::root().join("runtime/plugin");
    fs::create_dir_all(site.path().join("runtime")).unwrap();
    std::os::unix::fs::symlink(plugin, site.path().join("runtime/plugin")).unwrap();
    let program = assert_cmd::cargo::cargo_bin("flagperf");
    let paths = [program.parent().unwrap().as_os_str(), "/usr/local/bin:/usr/bin:/bin".as_ref()];
    let mut shell = Command::new("sh");
    shell.current_dir(site.path()).env("PATH", paths.join(":".as_ref())).args(["-e", "-c", &commands]);
    let output = shell.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    // The last command is `doctor`, and no overlay names the compiler yet.
    assert!(output.status.code() == Some(1) && stdout.contains("works, affine 1.0"), "{output:?}");
    site.write("affine.txt", FILE);
    site.write(
        "configs/affine/vendor_config/mychip_configurations.yaml",
        "compiler: mychip\nexist_compiler_path: affine.txt\n",
    );
    let output = program::flagperf(site.path(), &["run", "--json", "--vendor", "mychip"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
