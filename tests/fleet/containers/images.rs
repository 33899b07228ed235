//! Images are built once for each content of a recipe.

use serde_json::Value;

use super::sites::{BASE, ContainerSite, docker_text};
use crate::support::program;

/// The compiler is part of the program.
const RTEN: &str = "{engine: rten}";

/// Runs the case, which must succeed, and returns the record and what the run displayed.
fn run(site: &ContainerSite) -> (Value, String) {
    let output = program::flagperf(site.path(), &["run", "--json"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{errors}");
    (serde_json::from_slice(&output.stdout).expect("a record"), errors)
}

#[test]
fn a_case_runs_in_an_image_that_is_built_once_for_each_content_of_its_recipe() {
    let Some(site) = ContainerSite::new("built_once", RTEN) else { return };
    let (record, shown) = run(&site);
    assert!(shown.contains("building image flagperf-inference-side-interpreter:"), "{shown}");
    assert!(shown.contains("Step 1/"), "{shown}");
    let image = &record["provenance"]["image"];
    let base = docker_text(&["inspect", "--format", "{{.Id}}", BASE]);
    assert_eq!((&image["base"][0]["name"], &image["base"][0]["id"]), (&Value::from(BASE), &Value::from(base)));
    let tag =
        format!("flagperf-inference-side-interpreter:{}", &image["recipe_sha256"].as_str().expect("a hash")[..12]);
    assert_eq!(image["name"], tag);
    assert_eq!(image["id"], docker_text(&["inspect", "--format", "{{.Id}}", &tag]));
    assert_eq!(record["phases"][1]["ending"], "exited with status 0");

    let (again, shown) = run(&site);
    assert_eq!(again["provenance"]["image"], *image);
    assert!(!shown.contains("building image"), "{shown}");

    site.recipe("ENV ANOTHER=1\n");
    let (changed, shown) = run(&site);
    assert!(shown.contains("building image"), "{shown}");
    assert_ne!(changed["provenance"]["image"]["id"], image["id"]);
    assert!(site.containers().is_empty(), "{:?}", site.containers());
}

#[test]
fn install_scripts_and_requirements_become_part_of_the_image() {
    let Some(site) = ContainerSite::with_shell("layers", "cat /installed >&2; echo \"variable $FROM_CASE\" >&2") else {
        return;
    };
    let folder = "docker_images/side/interpreter";
    site.write(&format!("{folder}/interpreter_install.sh"), "cp addition /installed\n");
    site.write(&format!("{folder}/addition"), "by the install script\n");
    site.write("scripts/tiny/interpreter/requirements.txt", "# pip accepts an empty list\n");
    site.write("scripts/tiny/environment_variables.sh", "FROM_CASE='a b'\n");
    let (record, _) = site.run(&[]);
    let name = record["provenance"]["image"]["name"].as_str().expect("a name").to_owned();
    assert!(name.contains("-requirements-"), "{name}");
    let errors = site.errors();
    assert!(errors.contains("by the install script") && errors.contains("variable a b"), "{errors}");
    let hashes = &record["provenance"]["config_files_sha256"];
    for file in ["scripts/tiny/interpreter/requirements.txt", "scripts/tiny/environment_variables.sh"] {
        assert!(hashes[file].is_string(), "{hashes}");
    }
    assert_eq!(site.run(&[]).0["provenance"]["image"]["name"], name.as_str());
}

#[test]
fn a_base_image_that_cannot_be_had_is_named_with_its_line_and_how_to_get_it() {
    let Some(site) = ContainerSite::new("no_base", RTEN) else { return };
    site.write("docker_images/side/interpreter/Dockerfile", "# none\nFROM localhost:1/flagperf-no-such-image:1\n");
    let (record, code) = site.run(&[]);
    let failure = &record["failures"][0];
    let reason = failure["reason"].as_str().expect("a reason");
    assert_eq!(code, Some(1), "{reason}");
    let named = "the base image `localhost:1/flagperf-no-such-image:1` (";
    assert!(reason.starts_with(named) && reason.contains("Dockerfile:2) is not on this machine"), "{reason}");
    let hint = failure["hint"].as_str().expect("a hint");
    assert!(
        hint.contains("`docker pull localhost:1/flagperf-no-such-image:1`") && hint.contains("docker load"),
        "{hint}"
    );
}

#[test]
fn a_recipe_that_cannot_be_built_fails_the_case_with_the_last_lines() {
    let Some(site) = ContainerSite::new("broken", RTEN) else { return };
    site.recipe("RUN echo the last line; exit 7\n");
    let (record, code) = site.run(&[]);
    let reason = record["failures"][0]["reason"].as_str().expect("a reason");
    assert_eq!(code, Some(1), "{reason}");
    assert!(
        reason.starts_with("image `flagperf-inference-side-interpreter:") && reason.contains("the last line"),
        "{reason}"
    );
    assert!(reason.contains("returned a non-zero code: 7"), "{reason}");
}
