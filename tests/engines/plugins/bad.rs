//! Plug-ins that are missing, built for another machine or broken: the record has a clear reason, and the next case
//! runs.

use std::fs;
use std::path::Path;

use super::fixture::{Site, compile};
use crate::support::program;

/// Returns why the case on the plug-in failed; the case after it must succeed.
fn failure_reason(site: &Site) -> String {
    let (records, code) = site.run();
    let [bad, good] = records.as_slice() else { panic!("{} records", records.len()) };
    assert_eq!((code, &bad["status"], &good["status"]), (Some(1), &"failed".into(), &"ok".into()), "{bad} {good}");
    assert!(!leaves_scratch(&site.path().join("result")), "scratch files are left");
    let failure = &bad["failures"][0];
    assert_eq!(failure["step"], "validation", "{failure}");
    format!("{}; {}", failure["reason"].as_str().unwrap(), failure["hint"].as_str().unwrap())
}

/// Returns why the plan refuses the plug-in; nothing may run.
fn refusal(site: &Site) -> String {
    let output = program::flagperf(site.path(), &["run", "--json"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("error: vendors/chip/vendor.yaml:4: framework `bad` cannot be used"), "{errors}");
    assert!(!site.path().join("result").exists());
    errors.trim_end().replace("\n  hint: ", "; ")
}

/// Whether a worker's scratch folder is left somewhere below a folder.
fn leaves_scratch(folder: &Path) -> bool {
    let folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    folders.into_iter().any(|path| path.ends_with("scratch") || leaves_scratch(&path))
}

/// Runs a plug-in of each mode; the reason of its failure must contain the expected text.
fn check_reasons(modes: &[(&str, &str)]) {
    check_modes(modes, failure_reason);
}

fn check_modes(modes: &[(&str, &str)], reason: fn(&Site) -> String) {
    for (mode, expected) in modes {
        let site = Site::bad();
        if compile("tests/engines/plugins/bad.c", &site.library_path(), &[&format!("MODE={mode}")]).is_none() {
            return;
        }
        let reason = reason(&site);
        assert!(reason.contains(expected), "{mode}: {reason}");
    }
}

#[test]
fn a_missing_library_is_found_before_anything_runs() {
    let site = Site::bad();
    let output = program::flagperf(site.path(), &["run", "--json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("vendors/chip/vendor.yaml:4: plug-in `"), "{stderr}");
    assert!(stderr.contains("engines/libbad.so` does not exist\n  hint: build it first"), "{stderr}");
    assert!(!site.path().join("result").exists());
}

#[test]
fn a_file_that_is_not_a_library_is_named() {
    let site = Site::bad();
    fs::write(site.library_path(), "#!/bin/sh\necho I am a script, and long enough\n").unwrap();
    assert!(refusal(&site).contains("engines/libbad.so` is not a shared library"));
    fs::write(site.library_path(), "short").unwrap();
    assert!(refusal(&site).contains("engines/libbad.so` is not a shared library"));
    fs::write(site.library_path(), [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 9], &elf_machine(), &[0; 44]].concat())
        .unwrap();
    assert!(refusal(&site).contains("engines/libbad.so` cannot be loaded: "));
}

/// Returns the ELF fields for a library of this machine's processor, read from this test program.
fn elf_machine() -> [u8; 4] {
    let program = fs::read(std::env::current_exe().unwrap()).unwrap();
    [3, 0, program[18], program[19]]
}

#[test]
fn a_library_for_another_architecture_is_refused_with_both_architectures() {
    let site = Site::bad();
    let other: u8 = if cfg!(target_arch = "riscv64") { 183 } else { 243 };
    fs::write(site.library_path(), [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 9], &[3, 0, other, 0], &[0; 44]].concat())
        .unwrap();
    let reason = refusal(&site);
    let expected = format!("this machine is `{}`; build it for this machine", std::env::consts::ARCH);
    assert!(reason.contains("is built for `") && reason.ends_with(&expected), "{reason}");
}

#[test]
fn a_library_without_the_entry_symbol_is_refused() {
    let site = Site::bad();
    if compile("tests/engines/plugins/bad.c", &site.library_path(), &["MODE=GOOD", "WITHOUT_ENTRY"]).is_some() {
        let reason = refusal(&site);
        assert!(reason.contains("is not a plug-in: it has no symbol `flagperf_plugin`; build it with"), "{reason}");
    }
}

#[test]
fn a_library_with_an_undefined_symbol_is_refused_before_it_is_called() {
    let site = Site::bad();
    if compile("tests/engines/plugins/bad.c", &site.library_path(), &["MODE=GOOD", "NEEDS_MORE"]).is_some() {
        let reason = refusal(&site);
        assert!(reason.contains("cannot be loaded: ") && reason.contains("no_such_function; run `ldd`"), "{reason}");
    }
}

#[test]
fn a_table_that_breaks_the_interface_is_refused() {
    let modes = [
        ("OTHER_VERSION", "uses interface version `99`, but this program uses version `1`; build it with the header"),
        ("SHORT_TABLE", "is malformed: its table has 24 bytes, but version 1 has at least "),
        ("NO_TABLE", "is malformed: its table is null or misaligned"),
        ("NO_SUBMIT", "is malformed: its function `submit` is null"),
        ("NO_ROLE", "is malformed: it is neither a framework nor a compiler"),
        ("NO_PRECISION", "is malformed: its `precisions` has the invalid value `0`"),
        ("NO_NAME", "is malformed: its `name` is null, empty or not UTF-8"),
    ];
    check_modes(&modes, refusal);
}

#[test]
fn a_plug_in_that_crashes_or_hangs_while_it_is_loaded_is_refused_by_the_plan() {
    let modes = [
        ("ABORTS", "loading failed: killed by signal 6 (SIGABRT): aborted by native code; run `flagperf probe "),
        ("FAULTS", "loading failed: killed by signal 11 (SIGSEGV): a fault in native code; run `flagperf probe "),
        ("UNAVAILABLE", "plug-in `bad`: it failed `on purpose`; ask for another mode"),
    ];
    check_modes(&modes, refusal);
    let hanging = |site: &Site| {
        let host = fs::read_to_string(site.path().join("configs/host.yaml")).unwrap();
        site.write("configs/host.yaml", &host.replace("PHASE_TIMEOUT: 120", "PHASE_TIMEOUT: 1"));
        refusal(site)
    };
    check_modes(&[("HANGS_LOADING", "loading took longer than 1 s; run `flagperf probe ")], hanging);
}

#[test]
fn a_plug_in_that_ends_the_process_while_it_is_loaded_is_refused_by_the_plan() {
    let site = Site::bad();
    if compile("tests/engines/plugins/bad.c", &site.library_path(), &["MODE=GOOD", "EXITS"]).is_some() {
        let reason = refusal(&site);
        assert!(
            reason.contains("cannot be used on this machine: it ended the process while it was loaded"),
            "{reason}"
        );
    }
}

#[test]
fn a_plug_in_that_crashes_fails_only_its_own_case() {
    let expected = "killed by signal 11 (SIGSEGV): a fault in native code; the worker ran the plug-in `";
    check_reasons(&[("FAULTS_LATER", expected)]);
}

#[test]
fn a_plug_in_that_hangs_is_killed_at_the_limit() {
    let site = Site::bad();
    let host = fs::read_to_string(site.path().join("configs/host.yaml")).unwrap();
    site.write("configs/host.yaml", &host.replace("PHASE_TIMEOUT: 120", "PHASE_TIMEOUT: 10"));
    if compile("tests/engines/plugins/bad.c", &site.library_path(), &["MODE=HANGS"]).is_some() {
        let reason = failure_reason(&site);
        assert!(reason.starts_with("the phase took longer than 10 s and was killed"), "{reason}");
    }
}

#[test]
fn the_message_of_a_plug_in_is_the_reason_of_the_failure() {
    check_reasons(&[
        ("FAILS_LATER", "plug-in `bad`: it failed `on purpose`"),
        ("FAILS_SILENTLY", "plug-in `bad`: failed with status 1 and gave no reason"),
    ]);
}

#[test]
fn a_session_that_does_not_match_the_model_is_refused() {
    check_reasons(&[
        ("NO_SESSION", "plug-in `bad` returned neither a session nor an error"),
        ("NO_VALUES", "plug-in `bad` declares an invalid table of inputs (count 1, address 0x0)"),
        ("OTHER_NAME", "plug-in `bad` declares the outputs `z: N,1000,f32`, the model has `y: N,1000,f32`"),
        ("MORE_OUTPUTS", "declares the outputs `y: N,1000,f32`, `more: N,f32`, the model has `y: N,1000,f32`"),
        ("BAD_SPEC", "plug-in `bad` declares `y` with an invalid specification: unknown element type `f33`"),
        ("SHORT_BUFFER", "plug-in `bad` lent 15999 bytes at "),
    ]);
}

#[test]
fn outputs_that_do_not_match_the_declaration_are_refused() {
    check_reasons(&[
        ("NO_OUTPUT", "plug-in `bad` returned no output `y`"),
        ("INPUT_AS_OUTPUT", "plug-in `bad` returned an input or another output again as output `y`"),
        ("OTHER_ROWS", "plug-in `bad` returned output `y` as `3,1000,f32`, but declares `N,1000,f32`"),
        ("OTHER_TYPE", "plug-in `bad` returned output `y` as `4,1000,i32`, but declares `N,1000,f32`"),
        ("OTHER_RANK", "plug-in `bad` returned output `y` as `4,f32`, but declares `N,1000,f32`"),
        ("UNKNOWN_TYPE", "returned output `y` with an unsupported element type (DLPack code 2, 32 bits, 4 lanes)"),
    ]);
}

#[test]
fn outputs_that_cannot_be_read_are_refused() {
    check_reasons(&[
        ("NO_SHAPE", "returned output `y` without a valid shape (rank 2)"),
        ("NEGATIVE_SHAPE", "returned output `y` with the invalid shape `[4, -1000]`"),
        ("HUGE_SHAPE", "returned output `y` with the invalid shape `[4, 9223372036854775807]`"),
        ("NO_DATA", "returned output `y` with a null data pointer"),
        ("STRIDED", "returned output `y` that is not dense and row-major (strides `[1, 4]`, shape `[4, 1000]`)"),
        ("ON_DEVICE", "on a device (DLPack device type `2`), but has no function `copy_to_host`"),
        ("OTHER_DLPACK", "returned output `y` in DLPack version `9`, but this program reads version `1`"),
    ]);
}

#[test]
fn an_out_of_memory_error_names_the_requested_size_and_the_batch_size() {
    let needs = "out of memory: 3072 MiB requested at batch size 4; reduce `batch_size`";
    check_reasons(&[("LACKS_MEMORY_LOADING", needs), ("LACKS_MEMORY", needs)]);
}

#[test]
fn outputs_that_are_nan_fail_the_case_for_any_weights() {
    let site = Site::bad();
    if compile("tests/engines/plugins/bad.c", &site.library_path(), &["MODE=NO_NUMBERS"]).is_none() {
        return;
    }
    let (records, code) = site.run();
    let record = &records[0];
    assert_eq!((code, &record["status"]), (Some(1), &"failed".into()), "{record}");
    assert_eq!(record["accuracy"]["verdict"], "missed");
    let lost = record["phases"][0]["measured"][0]["non_finite_outputs"].as_u64().unwrap();
    let expected = format!("accuracy check failed: validation: {lost} output elements are NaN or infinite");
    assert!(lost > 0 && record["failures"][0]["reason"] == expected.as_str(), "{record}");
}

#[test]
fn a_library_that_never_finishes_loading_does_not_outlive_doctor() {
    let site = Site::bad();
    if compile("tests/engines/plugins/loops.c", &site.library_path(), &[]).is_none() {
        return;
    }
    let script = r#"
        "$0" doctor > doctor.txt & doctor=$!
        until probe=$(grep -ls "^PPid:.$doctor\$" /proc/[0-9]*/status | grep -o '[0-9]*') &&
            grep -qs libbad /proc/$probe/cmdline; do sleep 0.05; done
        kill -KILL $doctor
        for look in $(seq 2400); do
            grep -qs 'State:.[RSD]' /proc/$probe/status || { echo gone; break; }
            sleep 0.05
        done
        kill -KILL $probe 2> /dev/null
        cat doctor.txt"#;
    let mut command = assert_cmd::Command::new("/bin/bash");
    command.args(["-c", script]).arg(assert_cmd::cargo::cargo_bin("flagperf")).current_dir(site.path());
    let output = command.timeout(std::time::Duration::from_secs(580)).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.starts_with("gone\n") && stdout.contains("monitors\n"), "{output:?}");
}
