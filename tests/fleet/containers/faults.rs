//! Containers that end in other ways than their workers do.

use std::thread;
use std::time::Duration;

use assert_cmd::Command;
use serde_json::Value;

use super::sites::{ContainerSite, docker, docker_text};
use crate::support::program;

/// Waits until somebody ends the container.
const WAIT: &str = "sleep 600";

/// Returns the reason of the only failure. The results of validation are kept.
fn reason(record: &Value) -> String {
    assert!(record["finish_info"]["p_validation_core(qps)"].as_f64().is_some_and(|rate| rate > 0.0), "{record}");
    record["failures"][0]["reason"].as_str().expect("a reason").to_owned()
}

#[test]
fn a_container_that_another_program_kills_or_removes_fails_the_case_with_that_reason() {
    let Some(site) = ContainerSite::with_shell("killed", WAIT) else { return };
    let killed = site.run_while(|id| drop(docker_text(&["kill", id])));
    let expected = "the worker ended before it had finished: killed by signal 9 (SIGKILL): another program sent it to the \
                    container";
    assert_eq!(reason(&killed), expected);
    let removed = site.run_while(|id| drop(docker_text(&["rm", "--force", id])));
    let expected = "the worker ended before it had finished: its container was removed by another program";
    assert!(reason(&removed) == expected || reason(&removed).contains("SIGKILL"), "{}", reason(&removed));
    assert!(site.containers().is_empty());
}

#[test]
fn a_process_that_exhausts_the_memory_of_its_container_is_killed_by_the_kernel_and_the_record_says_so() {
    let Some(site) = ContainerSite::with_shell("memory", "tail /dev/zero; exit 3") else { return };
    site.host("WORKER_MEMORY: 512M\n");
    let (record, code) = site.run(&[]);
    assert_eq!(code, Some(1), "{record}");
    let warnings = record["warnings"].to_string();
    let named = reason(&record).contains("its container reached its memory limit");
    assert!(
        named
            || warnings.contains(
                "the kernel killed a process in the container because the memory limit (`WORKER_MEMORY`) was reached"
            ),
        "{record}"
    );
}

#[test]
fn ctrl_c_ends_the_container() {
    let Some(site) = ContainerSite::with_shell("interrupted", WAIT) else { return };
    let record = site.run_while(|id| {
        let conductor = docker_text(&["inspect", "--format", "{{index .Config.Labels \"flagperf.conductor\"}}", id]);
        let pid = conductor.split(' ').nth(2).expect("a process id").to_owned();
        Command::new("kill").args(["-INT", &pid]).assert().success();
    });
    assert_eq!(record["status"], "interrupted");
    assert!(site.containers().is_empty());
}

#[test]
fn the_container_of_a_killed_conductor_ends_by_itself_and_the_next_run_removes_it() {
    // The run of another test may remove it first.
    for _ in 0..5 {
        let Some(site) = ContainerSite::with_shell("leftover", WAIT) else { return };
        let left = leave_container(&site);
        site.write_vendor_rten();
        let output = program::flagperf(site.path(), &["run"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{errors}");
        assert!(!docker(&["inspect", &left]).status.success());
        if errors.contains(&format!("removed leftover container {} of case tiny:interpreter of run", &left[..12])) {
            return;
        }
    }
    panic!("the runs of other tests removed every container");
}

/// Kills a run while its container works, and returns the container once it has ended.
fn leave_container(site: &ContainerSite) -> String {
    let left = thread::scope(|scope| {
        let run = scope.spawn(|| program::flagperf(site.path(), &["run"]));
        let id = site.await_inference();
        let conductor = docker_text(&["inspect", "--format", "{{index .Config.Labels \"flagperf.conductor\"}}", &id]);
        let pid = conductor.split(' ').nth(2).expect("a process id").to_owned();
        Command::new("kill").args(["-KILL", &pid]).assert().success();
        assert_eq!(run.join().expect("the run ended").status.code(), None);
        id
    });
    let is_running = || docker_text(&["inspect", "--format", "{{.State.Running}}", &left]) == "true";
    for _ in 0..1500 {
        if !is_running() {
            return left;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("the worker did not notice the end of its input");
}
