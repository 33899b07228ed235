//! What prepares workers without containers: variables and Python packages.

use std::fs;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

use super::sites::{SHELL, shell_sidecar};
use crate::support;
use crate::support::program;
use crate::support::site::Site;

/// Prints the place of the package and the variables.
const REPORT: &str = r#"python3 -c "import greeting; print('greeting in', greeting.__file__)" >&2
echo "case $FROM_CASE, vendor $FROM_VENDOR, both $BOTH" >&2"#;
/// Writes a wheel of version 1.0 to the path in its argument.
const WHEEL: &str = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    wheel.writestr("greeting.py", "")
    wheel.writestr("greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    wheel.writestr("greeting-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("greeting-1.0.dist-info/RECORD", "")
"#;
const REQUIREMENTS: &str = "scripts/tiny/requirements.txt";

/// Returns a checkout whose case requires a package, and whose `PIP_SOURCE` is a folder that has it. Without a Python, the
/// calling test is counted as left out.
fn site() -> Option<Site> {
    let python = support::python()?;
    let site = Site::new(SHELL);
    site.write("vendors/side/engine.sh", &shell_sidecar(REPORT));
    site.write(REQUIREMENTS, "greeting==1.0\n");
    let wheel = "greeting-1.0-py3-none-any.whl";
    site.write("index/greeting/index.html", &format!("<a href=\"{wheel}\">{wheel}</a>\n"));
    let made = Command::new(python).args(["-c", WHEEL]).arg(site.path().join("index/greeting").join(wheel)).ok();
    made.expect("a wheel");
    let index = site.path().join("index");
    let host = "VENDOR: side\nCONTAINER: none\nCASES:\n    \"tiny:interpreter\": data\n";
    site.write("configs/host.yaml", &format!("PIP_SOURCE: \"file://{}\"\n{host}", index.display()));
    Some(site)
}

/// Runs the case with a cache of its own. Returns what the run displayed, and the log of its workers or the reason why there
/// are none.
fn run(site: &Site) -> (String, String) {
    let results = site.path().join("result");
    let _ = fs::remove_dir_all(&results);
    let mut command = Command::from_std(program::command(site.path(), &["run", "--plain"]));
    command.env("XDG_CACHE_HOME", site.path().join("cache"));
    // Nothing but the index of the site.
    command.env("PIP_CONFIG_FILE", "/dev/null").env_remove("PIP_EXTRA_INDEX_URL").env_remove("PIP_FIND_LINKS");
    let Output { status, stderr, .. } = command.output().expect("the program starts");
    assert_eq!(status.code(), Some(1), "the compiler ends after its report");
    let run = fs::read_dir(results).expect("results").next().expect("a run").expect("a run");
    let folder = run.path().join("tiny_interpreter/localhost_noderank0");
    let text = |name| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let record: Value = serde_json::from_str(&text("record.json")).expect("a record");
    let failure = &record["failures"][0];
    let log = format!("{}{}\n{}", text("stdout_err.out.log"), failure["reason"], failure["hint"]);
    (String::from_utf8_lossy(&stderr).into_owned(), log)
}

#[test]
fn packages_are_installed_once_for_each_content_and_never_in_the_python_of_the_user() {
    let Some(site) = site() else { return };
    let (shown, log) = run(&site);
    assert!(shown.contains("Successfully installed greeting-1.0"), "{shown}");
    let folder = site.path().join("cache/flagperf/venv");
    let place = format!("greeting in {}/", folder.display());
    assert!(log.contains(&place), "{log}");
    let environments = || fs::read_dir(&folder).expect("environments").flatten().filter(|e| e.path().is_dir()).count();
    assert_eq!(environments(), 1);

    let (shown, log) = run(&site);
    assert!(!shown.contains("prepare") && log.contains(&place), "{shown}\n{log}");
    site.write(REQUIREMENTS, "greeting==1.0  # as before\n");
    let (shown, _) = run(&site);
    assert!(shown.contains("Successfully installed greeting-1.0"), "{shown}");
    assert_eq!(environments(), 2);

    let python = support::python().expect("a Python");
    Command::new(python).args(["-c", "import greeting"]).assert().failure();
}

#[test]
fn a_package_that_the_index_lacks_fails_the_case_with_the_words_of_pip() {
    let Some(site) = site() else { return };
    site.write(REQUIREMENTS, "greeting==2.0\n");
    let (_, reason) = run(&site);
    assert!(reason.contains("pip failed: exited with status 1"), "{reason}");
    assert!(reason.contains("No matching distribution found for greeting==2.0"), "{reason}");
    assert!(reason.contains("`PIP_SOURCE` in host.yaml"), "{reason}");
}

#[test]
fn variables_of_the_case_come_after_those_of_the_vendor() {
    let Some(site) = site() else { return };
    fs::remove_file(site.path().join(REQUIREMENTS)).expect("no packages");
    site.write("vendors/side/environment_variables.sh", "FROM_VENDOR=one; BOTH=vendor\n");
    site.write("scripts/tiny/environment_variables.sh", "export FROM_CASE='a  b'; BOTH=\"$BOTH and case\"\n");
    let (_, log) = run(&site);
    assert!(log.contains("case a  b, vendor one, both vendor and case\n"), "{log}");
}
