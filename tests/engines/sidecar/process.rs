//! Sidecars that fail, as shell scripts.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use assert_cmd::Command;

use crate::support::program;
use crate::support::site::Site;

const SHELL: &str = "{engine: sidecar, command: [sh, engine.sh]}";
pub const HELLO: &str = r#"read hello; echo '{"answer":"hello","protocol":1,"name":"shell","version":"1","roles":["compiler"],"kinds":["onnx"],"precisions":["f32"]}'"#;
/// Exits when the plan only wants its reply to `hello`.
pub const LOADED: &str = r#"read load; case $load in *bye*) exit;; esac; echo '{"answer":"loaded"}'"#;
/// Replies to the requests before the first run, which lend memory.
pub const LENT: &str =
    r#"while read ask; do case $ask in *'"ask":"run"'*) break;; esac; echo '{"answer":"done"}'; done"#;

pub fn shell(lines: &[&str]) -> Site {
    Site::new(SHELL).with_vendor_file("engine.sh", &format!("{}\n", lines.join("\n")))
}

/// Returns the errors of planning, which starts no process.
fn plan_error(own: &str) -> String {
    let site = Site::new(own);
    let output = program::flagperf(site.path(), &["run"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!site.path().join("result").exists());
    String::from_utf8_lossy(&output.stderr).replace(&*site.path().to_string_lossy(), "[CHECKOUT]")
}

/// Whether a process exists and is not a zombie.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn check_gone(pid_file: &Path) {
    let pid = fs::read_to_string(pid_file).expect("the sidecar was started");
    // A killed process needs a moment to end.
    for _ in 0..3000 {
        if !is_running(&pid) {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("the sidecar {pid} still runs");
}

#[test]
fn a_sidecar_without_a_command_is_refused_with_its_line() {
    let error = plan_error("{engine: sidecar}");
    assert!(error.contains("vendors/side/vendor.yaml:"), "{error}");
    assert!(error.contains("compiler `own` has no `command`, but engine `sidecar` needs one"), "{error}");
}

#[test]
fn a_command_for_another_engine_is_refused_with_its_line() {
    let error = plan_error("{engine: rten, command: [sh, engine.sh]}");
    assert!(
        error.contains(
            "vendors/side/vendor.yaml:7: compiler `own` has a `command`, but engine `rten` does not accept one"
        ),
        "{error}"
    );
}

#[test]
fn a_command_with_a_missing_file_is_refused_before_anything_runs() {
    let error = plan_error("{engine: sidecar, command: [engines/none, x]}");
    assert!(error.contains("sidecar `[CHECKOUT]/vendors/side/engines/none` does not exist"), "{error}");
    let error = plan_error("{engine: sidecar, command: [python3, -m, flagperf_sidecar, engines/none.py]}");
    assert!(error.contains("sidecar `[CHECKOUT]/vendors/side/engines/none.py` does not exist"), "{error}");
}

#[test]
fn a_command_that_is_not_executable_has_a_remedy() {
    let own = "{engine: sidecar, command: [engines/own]}";
    let reason = Site::new(own).with_vendor_file("engines/own", "#!/bin/sh\n").refusal();
    assert!(reason.contains("(`chmod +x` makes a script executable)"), "{reason}");
}

#[test]
fn a_command_that_is_not_on_the_path_is_named() {
    let reason = Site::new("{engine: sidecar, command: [no_such_program]}").refusal();
    assert!(reason.starts_with("cannot start `no_such_program`: No such file"), "{reason}");
}

#[test]
fn a_sidecar_that_exits_at_once_is_named_with_its_status_and_last_lines() {
    let reason = shell(&["echo cannot find the licence >&2", "exit 3"]).refusal();
    let expected = "the sidecar `sh engine.sh` ended while handling `hello`: exited with status 3; its last lines on standard \
                    error: cannot find the licence";
    assert_eq!(reason, expected);
}

#[test]
fn another_version_of_the_protocol_is_refused() {
    let reason = shell(&[&HELLO.replace("\"protocol\":1", "\"protocol\":2"), "read x"]).refusal();
    assert_eq!(
        reason,
        "the sidecar `shell` uses protocol version 2, but this program uses version 1: update the older of the two"
    );
}

#[test]
fn an_unsupported_role_or_precision_is_refused() {
    let site = shell(&[HELLO, "read x"]);
    let output = program::flagperf(site.path(), &["run", "--case", "tiny:own"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("engine `shell` cannot be a framework"), "{error}");
    assert_eq!(output.status.code(), Some(2), "the plan refuses it before anything runs");
    let site = shell(&[&HELLO.replace("[\"f32\"]", "[\"f16\",\"bf16\"]"), "read x"]);
    let output = program::flagperf(site.path(), &["run"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("compiler `own` does not compute in `fp32` (supported: fp16, bf16)"), "{error}");
    assert_eq!(output.status.code(), Some(2), "the plan refuses it before validation runs");
}

#[test]
fn a_version_and_a_device_that_a_sidecar_does_not_tell_are_recorded_as_such() {
    let replies = r#"while read ask; do case $ask in
        *'"ask":"run"'*) echo '{"answer":"ran","outputs":["4,1000,f32"]}';;
        *'"ask":"bye"'*) exit;;
        *) echo '{"answer":"done"}';;
    esac; done"#;
    let (record, _) = shell(&[&HELLO.replace("\"version\":\"1\"", "\"version\":null"), LOADED, replies]).run(&[]);
    let engine = &record["phases"][1]["engine"];
    assert_eq!((&engine["version"], &engine["device"]), (&"not told".into(), &"not told".into()));
    assert_eq!(engine["sidecar"]["version"], "not told");
}

#[test]
fn an_invalid_reply_is_shown() {
    let reason = shell(&["read hello", "echo Loading model...", "read x"]).refusal();
    assert!(
        reason.starts_with(
            "the sidecar `sh engine.sh`, on request `hello`, wrote a line that is not a reply: `Loading model...` (expected"
        ),
        "{reason}"
    );
    let reason = shell(&[HELLO, "read load; head -c 3000 /dev/zero; echo", "read x"]).inference_failure();
    assert!(reason.len() < 600 && reason.contains("on request `load`"), "{reason}");
}

#[test]
fn a_reply_to_another_request_is_shown() {
    let reason = shell(&[HELLO, "read load; echo '{\"answer\":\"done\"}'", "read x"]).inference_failure();
    assert_eq!(
        reason,
        "the sidecar `sh engine.sh`, on request `load`, sent the unexpected reply `{\"answer\":\"done\"}`"
    );
}

#[test]
fn a_crash_during_a_run_names_the_signal_and_the_next_case_still_runs() {
    let site = shell(&[HELLO, LOADED, LENT, "kill -SEGV $$"]);
    site.write(
        "configs/host.yaml",
        "VENDOR: side\nCASES:\n    \"tiny:interpreter\": data\n    \"tiny_again:interpreter\": data\n",
    );
    site.write("configs/tiny_again/vendor_config/side_configurations.yaml", "compiler: rten\n");
    let output = program::flagperf(site.path(), &["run", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let records = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<serde_json::Value>();
    let records: Vec<_> = records.map(|record| record.expect("a record")).collect();
    let reason = records[0]["failures"][0]["reason"].as_str().expect("a reason");
    let expected =
        "the sidecar `sh engine.sh` ended while handling `run`: killed by signal 11 (SIGSEGV): a fault in native code";
    assert!(reason.contains(expected), "{reason}");
    assert_eq!((&records[1]["case"], &records[1]["status"]), (&"tiny_again".into(), &"ok".into()));
}

#[test]
fn a_nonzero_exit_status_after_bye_is_a_warning_with_the_last_lines() {
    let replies = r#"while read ask; do case $ask in
        *'"ask":"run"'*) echo '{"answer":"ran","outputs":["4,1000,f32"]}';;
        *'"ask":"bye"'*) echo results may be wrong >&2; exit 3;;
        *'"ask":"memory"'*) echo '{"answer":"memory","bytes":null}';;
        *) echo '{"answer":"done"}';;
    esac; done"#;
    let (record, _) = shell(&[HELLO, LOADED, replies]).run(&[]);
    let expected = "own: the sidecar `sh engine.sh` exited with status 3 after `bye`; its last lines on standard \
                    error:\n  results may be wrong";
    assert!(record["warnings"].as_array().expect("warnings").contains(&expected.into()), "{}", record["warnings"]);
}

#[test]
fn a_sidecar_that_hangs_is_killed_with_the_worker_at_the_time_limit() {
    let site = shell(&["echo $$ > pid", HELLO, LOADED, LENT, "trap '' TERM", "while :; do sleep 1; done"]);
    site.write("configs/host.yaml", "VENDOR: side\nPHASE_TIMEOUT: 10\nCASES:\n    \"tiny:interpreter\": data\n");
    assert_eq!(site.inference_failure(), "the phase took longer than 10 s and was killed");
    let run = fs::read_dir(site.path().join("result")).expect("results").next().expect("a run").expect("a run").path();
    assert!(!run.join("tiny_interpreter/localhost_noderank0/scratch").exists(), "scratch files are left");
    check_gone(&site.vendor_folder().join("pid"));
}

#[test]
fn ctrl_c_during_a_run_leaves_a_record_and_no_sidecar() {
    let site = shell(&[HELLO, LOADED, LENT, "echo $$ > pid.part; mv pid.part pid", "sleep 600"]);
    let program = assert_cmd::cargo::cargo_bin("flagperf");
    let script = "\"$0\" run --json & run=$!
        until [ -e vendors/side/pid ]; do kill -0 $run || exit; sleep 0.1; done
        kill -INT $run; wait $run; echo code $?";
    let mut command = Command::new("/bin/bash");
    command.args(["-c", script]).arg(program).current_dir(site.path()).timeout(Duration::from_secs(580));
    let output = command.output().expect("a shell");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("code 130") && out.contains("\"status\": \"interrupted\""), "{out}");
    check_gone(&site.vendor_folder().join("pid"));
}

#[test]
fn a_sidecar_ends_with_its_worker() {
    let site = shell(&[HELLO, LOADED, LENT, "echo $$ > pid.part; mv pid.part pid", "sleep 600"]);
    let program = assert_cmd::cargo::cargo_bin("flagperf");
    let script = "\"$0\" run & run=$!
        until [ -e vendors/side/pid ]; do kill -0 $run || exit; sleep 0.1; done
        worker=$(grep '^PPid:' /proc/$(cat vendors/side/pid)/status | cut -f 2)
        kill -9 $worker; wait $run; echo code $?";
    let mut command = Command::new("/bin/bash");
    command.args(["-c", script]).arg(program).current_dir(site.path()).timeout(Duration::from_secs(580));
    let output = command.output().expect("a shell");
    assert!(String::from_utf8_lossy(&output.stdout).contains("code 1\n"), "{output:?}");
    check_gone(&site.vendor_folder().join("pid"));
}

#[test]
fn outputs_that_do_not_match_the_model_are_refused() {
    let ran = |outputs: &str| format!("echo '{{\"answer\":\"ran\",\"outputs\":{outputs}}}'");
    let reason = |outputs: &str| shell(&[HELLO, LOADED, LENT, &ran(outputs), "read x"]).inference_failure();
    let expected =
        |text: &str, spec: &str| format!("the sidecar returned output `scores` as `{spec}`, the model declares {text}");
    let declared = "`N,1000,f32`, N = 4";
    assert!(reason(r#"["4,10,f32"]"#).contains(&expected(declared, "4,10,f32")));
    assert!(reason(r#"["3,1000,f32"]"#).contains(&expected(declared, "3,1000,f32")));
    assert!(reason(r#"["4,1000,f64"]"#).contains(&expected(declared, "4,1000,f64")));
    assert!(reason(r#"["N,1000,f32"]"#).contains(&expected(declared, "N,1000,f32")));
    assert!(reason("[]").contains("the sidecar's number of outputs is 0, the model declares 1"));
}

#[test]
fn a_reported_output_size_cannot_exhaust_the_memory_of_the_host() {
    let site = shell(&[
        HELLO,
        r#"read load; echo '{"answer":"loaded","outputs":[{"name":"scores","spec":"?,?,f32"}]}'"#,
        LENT,
        r#"echo '{"answer":"ran","outputs":["4000000000,4000000000,f32"]}'"#,
        "read x",
    ]);
    let reason = site.inference_failure();
    assert!(reason.contains("out of memory: "), "{reason}");
}

/// Returns whether a process with this word in its command line exists.
fn is_running_as(name: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    let command = |process: &Path| fs::read(process.join("cmdline")).unwrap_or_default();
    processes.filter(|process| process.join("stat").exists()).any(|process| {
        let command = command(&process);
        command.split(|byte| *byte == 0).any(|word| word == name.as_bytes())
    })
}

#[test]
fn a_sidecar_that_forks_without_end_does_not_outlive_the_run() {
    let name = format!("forks-{}", std::process::id());
    // Each process forks the next one and ends, in a session of its own.
    let site = shell(&[
        &format!("setsid sh -c 'f() {{ f & }}; echo x > forks; f' {name} > /dev/null 2>&1 &"),
        "until [ -e forks ]; do sleep 0.01; done",
        HELLO,
        LOADED,
        "exit 3",
    ]);
    let (record, _) = site.run(&[]);
    assert_eq!(record["status"], "failed");
    // One search may miss a chain that is still forking; two hundred searches cannot.
    assert!(!(0..200).any(|_| is_running_as(&name)), "it still forks");
}

#[test]
fn processes_left_in_their_own_sessions_are_killed_and_recorded() {
    // The second process has no environment of the sidecar, and its parent has ended.
    let site = shell(&[
        "setsid sh -c 'echo $$ > pid; exec sleep 600' &",
        "(env -i PATH=\"$PATH\" setsid sh -c 'echo $$ > orphan; exec sleep 601' &)",
        "until [ -s pid ] && [ -s orphan ]; do sleep 0.05; done",
        "until grep -q sleep /proc/$(cat pid)/comm && grep -q sleep /proc/$(cat orphan)/comm; do sleep 0.05; done",
        HELLO,
        LOADED,
        "exit 3",
    ]);
    let (record, _) = site.run(&[]);
    assert!(record["failures"][0]["reason"].as_str().expect("a reason").contains("exited with status 3"), "{record}");
    for (file, command) in [("pid", "sleep 600"), ("orphan", "sleep 601")] {
        let pid = fs::read_to_string(site.vendor_folder().join(file)).expect("it was started");
        let expected = format!(
            "the worker left a process behind in another process group: {} (`{command}`); it was killed",
            pid.trim()
        );
        assert!(record["warnings"].as_array().expect("warnings").contains(&expected.into()), "{}", record["warnings"]);
        check_gone(&site.vendor_folder().join(file));
    }
}

#[test]
fn doctor_greets_each_sidecar_and_fails_if_one_that_a_case_uses_does_not_reply() {
    let doctor = |lines: &[&str]| {
        let site = shell(lines);
        let output = program::flagperf(site.path(), &["doctor"]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, table, errors) = doctor(&[HELLO, "read bye"]);
    assert_eq!(code, Some(0), "{errors}");
    let row = "side.own  works, shell 1";
    assert_eq!(table.matches(row).count(), 1, "{table}");
    assert!(table.contains("compiler; fp32"), "{table}");
    let (code, table, errors) = doctor(&["echo no such module >&2; exit 3"]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(table.contains("missing: the sidecar") && table.contains("no such module"), "{table}");
    let fault =
        "error: vendors/side/vendor.yaml:7: compiler `own` cannot be used on this machine: the sidecar `sh engine.sh`";
    assert!(errors.contains(fault), "{errors}");
}

#[test]
fn a_plan_ends_the_processes_that_a_probed_sidecar_leaves_behind() {
    // Without the sidecar's environment and with another parent, only a plan that adopts it can find it.
    let site = shell(&[
        "(env -i PATH=\"$PATH\" setsid sh -c 'echo $$ > orphan; exec sleep 602' &)",
        "until [ -s orphan ]; do sleep 0.05; done",
        HELLO,
        "read bye",
    ]);
    let output = program::flagperf(site.path(), &["plan"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let pid = fs::read_to_string(site.vendor_folder().join("orphan")).expect("it was started");
    assert!(!is_running(&pid), "it outlived the plan");
}

#[test]
fn doctor_starts_each_sidecar_once_also_one_that_hangs() {
    for (lines, code, state) in [
        (vec!["echo start >> starts", HELLO, "read bye"], 0, "works, shell 1"),
        (vec!["echo start >> starts", "sleep 600"], 1, "loading took longer than 3 s"),
    ] {
        let site = shell(&lines);
        site.write("configs/host.yaml", "VENDOR: side\nPHASE_TIMEOUT: 3\nCASES:\n    \"tiny:interpreter\": data\n");
        let output = program::flagperf(site.path(), &["doctor"]);
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!((output.status.code(), table.contains(state)), (Some(code), true), "{table}");
        let starts = fs::read_to_string(site.vendor_folder().join("starts")).expect("it was started");
        assert_eq!(starts, "start\n");
    }
}

#[test]
fn doctor_shows_the_last_line_of_a_traceback() {
    let traceback = "printf 'Traceback (most recent call last):\\n  File \"a.py\", line 1\\nImportError: no x\\n' >&2";
    let site = shell(&[traceback, "exit 1"]);
    let output = program::flagperf(site.path(), &["doctor"]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("ImportError: no x") && !table.contains("Traceback"), "{table}");
}

#[test]
fn a_sidecar_has_no_variable_of_the_shell_beside_those_that_workers_inherit() {
    let site = shell(&["env > variables", HELLO, "read x"]);
    let mut command = program::command(site.path(), &["run", "--json"]);
    command.env("PYTHONPATH", "/elsewhere").env("OTHER", "1").env("LD_LIBRARY_PATH", "/libraries");
    let output = command.output().expect("the program starts");
    let variables = fs::read_to_string(site.vendor_folder().join("variables")).expect("the sidecar was started");
    assert!(!variables.contains("/elsewhere") && !variables.contains("OTHER=1"), "{variables}");
    assert!(variables.contains("LD_LIBRARY_PATH=/libraries\n"), "{variables}");
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a record");
    let expected =
        "workers do not inherit PYTHONPATH (what a case or a vendor needs is in its environment_variables.sh)";
    assert!(record["warnings"].as_array().expect("warnings").contains(&expected.into()), "{}", record["warnings"]);
}
