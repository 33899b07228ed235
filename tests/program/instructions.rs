//! The instructions for adding something, followed literally: every shell block of a page runs in a copy of the
//! checkout, as a user would run it.

#![expect(clippy::unwrap_used, reason = "test helpers may panic, too")]

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use tempfile::TempDir;

use crate::support::{self, program};

/// Returns the shell blocks of a section of a README, in order, without their indentation.
fn shell_blocks(readme: &str, heading: &str) -> String {
    let text = fs::read_to_string(support::root().join(readme)).unwrap();
    let section = text.split(&format!("{heading}\n")).nth(1).unwrap_or_else(|| panic!("{readme} lacks `{heading}`"));
    let section = section.split("\n#").next().unwrap().trim().trim_start_matches("[中文](README.zh.md)").trim_start();
    assert!(section.lines().count() <= 24, "{readme}: the instructions are short");
    let mut commands = String::new();
    let mut indent = None;
    for line in section.lines() {
        match (indent, line.trim()) {
            (None, "```sh") => indent = Some(line.len() - line.trim_start().len()),
            (Some(_), "```") => indent = None,
            (Some(indent), _) => commands += &format!("{}\n", line.get(indent..).unwrap_or_default()),
            _ => {}
        }
    }
    assert!(!commands.is_empty(), "{readme} has no shell block");
    commands
}

/// Makes the case resnet50 a small network on small images, because its standard size takes minutes in a build for tests.
fn shrink_resnet50(checkout: &Path) {
    let file = checkout.join("configs/resnet50/parameters.yaml");
    let mut text = fs::read_to_string(&file).unwrap();
    for (standard, small) in
        [("size: full", "size: tiny"), ("resize: 256", "resize: 32"), ("image_size: 224", "image_size: 32")]
    {
        assert!(text.contains(standard), "{text}");
        text = text.replace(standard, small);
    }
    fs::write(file, text).unwrap();
}

/// Runs the shell blocks of a README in a copy of the checkout. Returns the copy and what they print.
fn follow(readme: &str, heading: &str) -> (TempDir, String) {
    let checkout = support::checkout();
    shrink_resnet50(checkout.path());
    // What the instructions only read.
    for folder in ["runtime", "tests"] {
        std::os::unix::fs::symlink(support::root().join(folder), checkout.path().join(folder)).unwrap();
    }
    let program = assert_cmd::cargo::cargo_bin("flagperf");
    let path = program::path();
    let folders = std::iter::once(program.parent().unwrap().to_owned()).chain(std::env::split_paths(&path));
    let mut shell = Command::new("sh");
    shell
        .current_dir(checkout.path())
        .env("PATH", std::env::join_paths(folders).unwrap())
        .env_remove("FLAGPERF_CONFIG");
    let output = shell.args(["-e", "-c", &shell_blocks(readme, heading)]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{readme}:\n{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    (checkout, printed)
}

/// Returns every record in a checkout, oldest first.
fn records(checkout: &Path) -> Vec<serde_json::Value> {
    let folders = |path: &Path| {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let mut folders: Vec<_> = entries.filter(|path| path.is_dir()).collect();
        folders.sort();
        folders
    };
    let cases = folders(&checkout.join("result")).into_iter().flat_map(|run| folders(&run));
    let hosts = cases.flat_map(|case| folders(&case));
    hosts.map(|host| serde_json::from_str(&fs::read_to_string(host.join("record.json")).unwrap()).unwrap()).collect()
}

/// Checks that every record of a checkout succeeded, and returns the case and the vendor of each.
fn what_ran(checkout: &Path) -> Vec<[String; 2]> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let records = records(checkout);
    for record in &records {
        assert_eq!(record["status"], "ok", "{}", record["failures"]);
        assert_eq!(record["phases"].as_array().map(Vec::len), Some(2));
    }
    records.iter().map(|record| [text(&record["case"]), text(&record["vendor"])]).collect()
}

/// Returns the agreement of inference with validation in the last record.
fn last_agreement(checkout: &Path) -> serde_json::Value {
    records(checkout).last().unwrap()["phases"][1]["agreement"].clone()
}

#[test]
fn the_instructions_for_adding_a_case_work() {
    let (checkout, printed) = follow("scripts/README.md", "## How to add a case");
    assert!(printed.contains("mycase:interpreter runs validate, then infer"), "{printed}");
    assert_eq!(what_ran(checkout.path()), [["mycase", "mock"], ["mycase", "cpu"]]);
}

#[test]
fn the_instructions_for_adding_a_dataset_work() {
    let (_, printed) = follow("docs/add-a-dataset.md", "## Describe and check the files");
    let intact = printed.lines().filter(|line| line.starts_with(" ok ") && line.contains("questions.txt"));
    assert_eq!(intact.count(), 2, "{printed}");
}

#[test]
fn the_instructions_for_adding_a_vendor_work() {
    let (checkout, _) = follow("vendors/README.md", "## How to add a vendor");
    assert_eq!(what_ran(checkout.path()), [["resnet50", "mychip"]]);
}

#[test]
fn the_instructions_for_adding_an_engine_as_a_plug_in_work() {
    if !support::has_compiler("cc") {
        return;
    }
    let (checkout, printed) = follow("runtime/plugin/README.md", "## How to add an engine as a plug-in");
    assert!(printed.contains("works, affine 1.0"), "{printed}");
    assert_eq!(what_ran(checkout.path()), [["resnet50", "myplugin"], ["affine", "myplugin"]]);
    let agreement = last_agreement(checkout.path());
    assert_eq!(agreement["outputs"]["output"]["max_abs"].as_f64(), Some(0.0), "{agreement}");
}

/// Only resolves what the crate needs: to build it would take minutes.
#[test]
fn the_instructions_for_a_plug_in_in_rust_leave_both_workspaces_intact() {
    let checkout = support::checkout();
    for file in ["Cargo.toml", "Cargo.lock"] {
        fs::copy(support::root().join(file), checkout.path().join(file)).unwrap();
    }
    for folder in ["runtime", "benches", "tests"] {
        std::os::unix::fs::symlink(support::root().join(folder), checkout.path().join(folder)).unwrap();
    }
    let shell = |command: &str| {
        let output = Command::new("sh").current_dir(checkout.path()).args(["-e", "-c", command]).output().unwrap();
        assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let flagperf = assert_cmd::cargo::cargo_bin("flagperf");
    shell(&format!("{} new vendor myplugin", flagperf.display()));
    let readme = fs::read_to_string(support::root().join("runtime/plugin/README.md")).unwrap();
    let section = readme.split("## A plug-in in Rust\n").nth(1).unwrap();
    let blocks: Vec<_> = section.split("   ```sh\n").skip(1).map(|rest| rest.split("   ```").next().unwrap()).collect();
    let dedent = |block: &str| block.lines().map(|line| format!("{}\n", line.trim_start())).collect::<String>();
    shell(&dedent(blocks[0]));
    let [entry, build, _run] = blocks[1].lines().collect::<Vec<_>>()[..] else { panic!("three lines: {}", blocks[1]) };
    shell(entry.trim());
    let plan = flagperf_errors(checkout.path());
    assert!(plan.contains("plug-in `") && plan.contains("libmyengine.so` does not exist"), "{plan}");
    let manifest = build.split("--manifest-path ").nth(1).unwrap();
    let metadata = shell(&format!(
        "cargo metadata --offline --format-version 1 --filter-platform $(rustc -vV | sed -n 's/host: //p') \
         --manifest-path {manifest}"
    ));
    assert!(metadata.contains("\"myengine\""), "{metadata}");
    shell("cargo metadata --offline --locked --no-deps --format-version 1");
    for file in ["Cargo.toml", "Cargo.lock"] {
        let [ours, theirs] =
            [support::root(), checkout.path()].map(|root| fs::read_to_string(root.join(file)).unwrap());
        assert_eq!(ours, theirs, "{file} is as it was");
    }
}

/// Returns the errors of a plan for the compiler that the instructions for a plug-in in Rust add.
fn flagperf_errors(checkout: &Path) -> String {
    let arguments = ["plan", "--case", "resnet50", "--vendor", "myplugin", "--set", "compiler=myengine"];
    String::from_utf8_lossy(&program::flagperf(checkout, &arguments).stderr).into_owned()
}

#[test]
fn the_instructions_for_adding_an_engine_as_a_sidecar_work() {
    if support::python().is_none() {
        return;
    }
    let (checkout, _) = follow("runtime/sidecar/README.md", "# How to add an engine as a sidecar");
    assert_eq!(what_ran(checkout.path()), [["resnet50", "mysidecar"]; 2]);
    let agreement = last_agreement(checkout.path());
    assert!(agreement["outputs"]["output"]["cosine"].as_f64().is_some_and(|cosine| cosine > 0.999), "{agreement}");
}
