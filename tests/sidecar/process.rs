//! Processes that are not what they should be, as scripts of the shell.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use assert_cmd::Command;

use crate::program;
use crate::site::Site;

const SHELL: &str = "{engine: sidecar, command: [sh, engine.sh]}";
pub const HELLO: &str = r#"read hello; echo '{"answer":"hello","protocol":1,"name":"shell","version":"1","roles":["compiler"],"kinds":["onnx"],"precisions":["f32"]}'"#;
pub const LOADED: &str = r#"read load; echo '{"answer":"loaded"}'"#;
/// Whatever is asked before the first run: memory to map.
pub const LENT: &str =
    r#"while read ask; do case $ask in *'"ask":"run"'*) break;; esac; echo '{"answer":"done"}'; done"#;

pub fn shell(lines: &[&str]) -> Site {
    Site::new(SHELL).with("engine.sh", &format!("{}\n", lines.join("\n")))
}

/// What planning says, which starts nothing.
fn refused(own: &str) -> String {
    let site = Site::new(own);
    let output = program::flagperf(site.path(), &["run"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!site.path().join("result").exists());
    String::from_utf8_lossy(&output.stderr).replace(&*site.path().to_string_lossy(), "[CHECKOUT]")
}

/// Whether a process is there and no zombie.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn is_gone(pid_file: &Path) {
    let pid = fs::read_to_string(pid_file).expect("the sidecar was started");
    // A killed process needs a moment to go.
    for _ in 0..3000 {
        if !is_running(&pid) {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("the sidecar {pid} is still there");
}

#[test]
fn a_sidecar_without_a_command_is_refused_with_its_line() {
    let said = refused("{engine: sidecar}");
    assert!(said.contains("vendors/side/vendor.yaml:"), "{said}");
    assert!(said.contains("compiler `own` has no `command`, which engine `sidecar` needs"), "{said}");
}

#[test]
fn a_command_for_another_engine_is_refused_with_its_line() {
    let said = refused("{engine: rten, command: [sh, engine.sh]}");
    assert!(said.contains("vendors/side/vendor.yaml:7: compiler `own` has a `command`, which engine `rten`"), "{said}");
}

#[test]
fn a_command_whose_file_is_not_there_is_refused_before_anything_runs() {
    let said = refused("{engine: sidecar, command: [engines/none, x]}");
    assert!(said.contains("sidecar `[CHECKOUT]/vendors/side/engines/none` does not exist"), "{said}");
    let said = refused("{engine: sidecar, command: [python3, -m, flagperf_sidecar, engines/none.py]}");
    assert!(said.contains("sidecar `[CHECKOUT]/vendors/side/engines/none.py` does not exist"), "{said}");
}

#[test]
fn a_command_that_is_not_on_the_path_is_named() {
    let reason = Site::new("{engine: sidecar, command: [no_such_program]}").reason();
    assert!(reason.starts_with("engine `sidecar`: cannot start `no_such_program`: No such file"), "{reason}");
}

#[test]
fn one_that_exits_at_once_is_named_with_its_status_and_last_lines() {
    let reason = shell(&["echo cannot find the licence >&2", "exit 3"]).reason();
    let expected = "the sidecar `sh engine.sh`, asked to `hello`, ended: exited with status 3; its last lines on standard \
                    error:\n  cannot find the licence";
    assert_eq!(reason, expected);
}

#[test]
fn another_version_of_the_protocol_is_refused() {
    let reason = shell(&[&HELLO.replace("\"protocol\":1", "\"protocol\":2"), "read x"]).reason();
    assert_eq!(reason, "the sidecar `shell` speaks protocol 2, this program speaks 1: update the older of the two");
}

#[test]
fn a_side_or_a_precision_that_it_lacks_is_refused() {
    let (record, _) = shell(&[HELLO, "read x"]).run(&["--case", "tiny:own"]);
    assert_eq!(
        record["failures"][0]["reason"],
        "engine `sidecar` takes a file: it says that it is no framework, not the graph `tiny`"
    );
    let reason = shell(&[&HELLO.replace("[\"f32\"]", "[\"f16\",\"bf16\"]"), "read x"]).reason();
    assert_eq!(reason, "engine `sidecar` does not compute in `f32` (it has: f16, bf16)");
}

#[test]
fn garbage_is_shown() {
    let reason = shell(&["read hello", "echo Loading model...", "read x"]).reason();
    assert!(
        reason.starts_with(
            "the sidecar `sh engine.sh`, asked to `hello`, wrote what is no answer: `Loading model...` (expected"
        ),
        "{reason}"
    );
    let reason = shell(&[HELLO, "read load; head -c 3000 /dev/zero; echo", "read x"]).reason();
    assert!(reason.len() < 600 && reason.contains("asked to `load`"), "{reason}");
}

#[test]
fn an_answer_to_another_question_is_shown() {
    let reason = shell(&[HELLO, "read load; echo '{\"answer\":\"done\"}'", "read x"]).reason();
    assert_eq!(reason, "the sidecar `sh engine.sh`, asked to `load`, answered `{\"answer\":\"done\"}`");
}

#[test]
fn a_crash_in_the_middle_names_the_signal_and_the_next_case_still_runs() {
    let site = shell(&[HELLO, LOADED, LENT, "kill -SEGV $$"]);
    site.write(
        "configs/host.yaml",
        "VENDOR: side\nCASES:\n    \"tiny:candle\": data\n    \"tiny_again:candle\": data\n",
    );
    site.write("configs/tiny_again/vendor_config/side_configurations.yaml", "compiler: rten\n");
    let output = program::flagperf(site.path(), &["run", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let records = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<serde_json::Value>();
    let records: Vec<_> = records.map(|record| record.expect("a record")).collect();
    let reason = records[0]["failures"][0]["reason"].as_str().expect("a reason");
    let expected =
        "the sidecar `sh engine.sh`, asked to `run`, ended: killed by signal 11 (SIGSEGV): a fault in native code";
    assert!(reason.contains(expected), "{reason}");
    assert_eq!((&records[1]["case"], &records[1]["status"]), (&"tiny_again".into(), &"ok".into()));
}

#[test]
fn a_status_after_bye_is_a_warning_with_the_last_lines() {
    let answers = r#"while read ask; do case $ask in
        *'"ask":"run"'*) echo '{"answer":"ran","outputs":["4,1000,f32"]}';;
        *'"ask":"bye"'*) echo results may be wrong >&2; exit 3;;
        *) echo '{"answer":"done"}';;
    esac; done"#;
    let (record, _) = shell(&[HELLO, LOADED, answers]).run(&[]);
    let expected = "own: the sidecar `sh engine.sh` exited with status 3 after `bye`; its last lines on standard \
                    error:\n  results may be wrong";
    assert!(record["warnings"].as_array().expect("warnings").contains(&expected.into()), "{}", record["warnings"]);
}

#[test]
fn one_that_hangs_is_killed_with_the_worker_at_the_limit() {
    let site = shell(&["echo $$ > pid", HELLO, LOADED, LENT, "trap '' TERM", "while :; do sleep 1; done"]);
    site.write("configs/host.yaml", "VENDOR: side\nPHASE_TIMEOUT: 10\nCASES:\n    \"tiny:candle\": data\n");
    assert_eq!(site.reason(), "the phase took longer than 10 s and was killed");
    let run = fs::read_dir(site.path().join("result")).expect("results").next().expect("a run").expect("a run").path();
    assert!(!run.join("tiny_candle/localhost_noderank0/scratch").exists(), "what it was given is left");
    is_gone(&site.folder().join("pid"));
}

#[test]
fn ctrl_c_in_the_middle_leaves_a_record_and_no_sidecar() {
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
    is_gone(&site.folder().join("pid"));
}

#[test]
fn a_worker_that_dies_takes_its_sidecar_along() {
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
    is_gone(&site.folder().join("pid"));
}

#[test]
fn outputs_that_are_not_the_models_are_refused() {
    let ran = |outputs: &str| format!("echo '{{\"answer\":\"ran\",\"outputs\":{outputs}}}'");
    let reason = |outputs: &str| shell(&[HELLO, LOADED, LENT, &ran(outputs), "read x"]).reason();
    let said =
        |text: &str, spec: &str| format!("the sidecar gave output `scores` as `{spec}`, the model declares {text}");
    let declared = "`N,1000,f32`, N = 4";
    assert!(reason(r#"["4,10,f32"]"#).contains(&said(declared, "4,10,f32")));
    assert!(reason(r#"["3,1000,f32"]"#).contains(&said(declared, "3,1000,f32")));
    assert!(reason(r#"["4,1000,f64"]"#).contains(&said(declared, "4,1000,f64")));
    assert!(reason(r#"["N,1000,f32"]"#).contains(&said(declared, "N,1000,f32")));
    assert!(reason("[]").contains("the sidecar gave 0 outputs, the model declares 1"));
}

#[test]
fn nothing_that_it_says_of_outputs_makes_the_host_take_absurd_memory() {
    let site = shell(&[
        HELLO,
        r#"read load; echo '{"answer":"loaded","outputs":[{"name":"scores","spec":"?,?,f32"}]}'"#,
        LENT,
        r#"echo '{"answer":"ran","outputs":["4000000000,4000000000,f32"]}'"#,
        "read x",
    ]);
    let reason = site.reason();
    assert!(reason.contains("out of memory: "), "{reason}");
}

/// Whether a process runs that was started under this name.
fn is_running_as(name: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    let command = |process: &Path| fs::read(process.join("cmdline")).unwrap_or_default();
    processes.filter(|process| process.join("stat").exists()).any(|process| {
        let command = command(&process);
        command.split(|byte| *byte == 0).any(|word| word == name.as_bytes())
    })
}

#[test]
fn one_that_forks_without_end_does_not_outlive_the_run() {
    let name = format!("forks-{}", std::process::id());
    // Each forks the next and ends, in a session of its own.
    let site = shell(&[
        &format!("setsid sh -c 'f() {{ f & }}; echo x > forks; f' {name} > /dev/null 2>&1 &"),
        "until [ -e forks ]; do sleep 0.01; done",
        "exit 3",
    ]);
    let (record, _) = site.run(&[]);
    assert_eq!(record["status"], "failed");
    // A chain that goes on may be between two looks, but not between many.
    assert!(!(0..200).any(|_| is_running_as(&name)), "it still forks");
}

#[test]
fn what_it_leaves_in_sessions_of_their_own_is_ended_and_in_the_record() {
    // The second forgets where it comes from, and its parent is gone.
    let site = shell(&[
        "setsid sh -c 'echo $$ > pid; exec sleep 600' &",
        "(env -i PATH=\"$PATH\" setsid sh -c 'echo $$ > orphan; exec sleep 601' &)",
        "until [ -s pid ] && [ -s orphan ]; do sleep 0.05; done",
        "until grep -q sleep /proc/$(cat pid)/comm && grep -q sleep /proc/$(cat orphan)/comm; do sleep 0.05; done",
        "exit 3",
    ]);
    let (record, _) = site.run(&[]);
    assert!(record["failures"][0]["reason"].as_str().expect("a reason").contains("exited with status 3"), "{record}");
    for (file, command) in [("pid", "sleep 600"), ("orphan", "sleep 601")] {
        let pid = fs::read_to_string(site.folder().join(file)).expect("it was started");
        let expected = format!(
            "the worker left a process behind, in a group of its own: {} (`{command}`); it was killed",
            pid.trim()
        );
        assert!(record["warnings"].as_array().expect("warnings").contains(&expected.into()), "{}", record["warnings"]);
        is_gone(&site.folder().join(file));
    }
}
