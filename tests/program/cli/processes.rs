//! Runs that end early: signals, time limits, killed workers, full disks.

use super::*;

/// Returns whether the worker that a run started is still alive.
fn worker_is_alive(folder: &Path) -> bool {
    let events = fs::read_to_string(folder.join("events.jsonl")).expect("events");
    let started: serde_json::Value = serde_json::from_str(events.lines().next().expect("a line")).expect("JSON");
    Path::new(&format!("/proc/{}", started["pid"])).exists()
}

#[test]
fn ctrl_c_leaves_a_record_and_no_process() {
    let checkout = checkout();
    let (out, err) = bash(checkout.path(), &format!("{START_RUN} kill -INT $run; wait $run; echo code $?"));
    assert!(out.contains("code 130"), "{out}\n{err}");
    let (folder, record) = record(checkout.path());
    assert_eq!(record["status"], "interrupted");
    assert!(!worker_is_alive(&folder));
}

#[test]
fn every_signal_that_asks_the_run_to_end_leaves_a_record() {
    // A terminal that closes sends its signal more than once.
    for signals in ["kill -QUIT $run", "kill -HUP $run; kill -HUP $run; kill -HUP $run"] {
        let checkout = checkout();
        let (out, err) = bash(checkout.path(), &format!("{START_RUN} {signals}; wait $run; echo code $?"));
        assert!(out.contains("code 130"), "{signals}: {out}\n{err}");
        assert_eq!(record(checkout.path()).1["status"], "interrupted", "{signals}");
    }
}

#[test]
fn a_second_ctrl_c_ends_the_run_immediately_and_leaves_no_process() {
    let checkout = checkout();
    // The first Ctrl-C waits for a worker that does not react: the worker is stopped, so SIGTERM (bit 14) stays
    // pending.
    let script = "kill -STOP $worker; kill -INT $run
        until grep -q '^ShdPnd:.*[4-7c-f]...$' /proc/$worker/status; do sleep 0.1; done
        kill -INT $run; wait $run; echo code $?; kill -CONT $worker
        while grep '^State:' /proc/$worker/status | grep -qv zombie; do sleep 0.1; done; echo gone";
    let (out, err) = bash(checkout.path(), &format!("{START_RUN} {script}"));
    assert!(out.contains("code 130") && out.contains("gone"), "{out}\n{err}");
}

#[test]
fn a_phase_that_hangs_is_killed_at_its_time_limit_and_leaves_no_process() {
    let checkout = checkout();
    fs::write(checkout.path().join("configs/host.yaml"), format!("PHASE_TIMEOUT: 10\n{HOST}")).expect("a file");
    let (record, code) = program::record(checkout.path(), &["--set", "sleep_ms=600000"]);
    assert_eq!(code, Some(1));
    assert_eq!(record["failures"][0]["reason"], "the phase took longer than 10 s and was killed");
    assert!(!worker_is_alive(&self::record(checkout.path()).0));
}

#[test]
fn a_killed_worker_leaves_a_failed_record_that_names_the_signal() {
    let checkout = checkout();
    let (out, err) = bash(checkout.path(), &format!("{START_RUN} kill -9 $worker; wait $run; echo code $?"));
    assert!(out.contains("code 1\n"), "{out}\n{err}");
    let reason = record(checkout.path()).1["failures"][0]["reason"].as_str().expect("a reason").to_owned();
    assert!(reason.ends_with("killed by signal 9 (SIGKILL): perhaps out of memory"), "{reason}");
}

#[test]
fn a_record_that_does_not_fit_on_the_disk_is_printed_instead() {
    let checkout = checkout();
    // A limit of 4 KiB per file simulates a full disk: the record is larger.
    let (out, err) = bash(checkout.path(), "ulimit -f 4; \"$0\" run; echo code $?");
    assert!(out.contains("code 3\n"), "{out}\n{err}");
    assert!(err.contains("error: cannot write `") && err.contains("hint: the file reached the largest size"), "{err}");
    assert!(err.contains("\"finish_info\": {"), "{err}");
}
