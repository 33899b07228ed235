//! Plug-ins that are missing, foreign, broken: a clear reason in the record, and the next case still runs.

use std::fs;
use std::path::Path;

use crate::fixture::{Site, compile};
use crate::program;

/// Why the case on the plug-in failed; the case after it must be well.
fn reason(site: &Site) -> String {
    let (records, code) = site.run();
    let [bad, good] = records.as_slice() else { panic!("{} records", records.len()) };
    assert_eq!((code, &bad["status"], &good["status"]), (Some(1), &"failed".into(), &"ok".into()), "{bad} {good}");
    assert!(!leaves_scratch(&site.path().join("result")), "files of no use are left");
    let failure = &bad["failures"][0];
    assert_eq!(failure["step"], "validation", "{failure}");
    format!("{}; {}", failure["reason"].as_str().unwrap(), failure["hint"].as_str().unwrap())
}

/// Whether a worker's scratch is left somewhere below a folder.
fn leaves_scratch(folder: &Path) -> bool {
    let folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    folders.into_iter().any(|path| path.ends_with("scratch") || leaves_scratch(&path))
}

/// Runs a plug-in of each mode; every reason must hold the text beside it.
fn reasons(modes: &[(&str, &str)]) {
    for (mode, expected) in modes {
        let site = Site::bad();
        if compile("tests/plugins/bad.c", &site.library(), &[&format!("MODE={mode}")]).is_none() {
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("vendors/chip/vendor.yaml:4: plug-in `"), "{said}");
    assert!(said.contains("engines/libbad.so` does not exist\n  hint: build it first"), "{said}");
    assert!(!site.path().join("result").exists());
}

#[test]
fn a_file_that_is_no_library_is_named() {
    let site = Site::bad();
    fs::write(site.library(), "#!/bin/sh\necho I am a script, and long enough\n").unwrap();
    assert!(reason(&site).contains("engines/libbad.so` is not a shared library"));
    fs::write(site.library(), "short").unwrap();
    assert!(reason(&site).contains("engines/libbad.so` cannot be read: "));
    fs::write(site.library(), [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 9], &elf_machine(), &[0; 44]].concat()).unwrap();
    assert!(reason(&site).contains("engines/libbad.so` cannot be loaded: "));
}

/// The number of this machine's processor in an ELF file, as this very program has it.
fn elf_machine() -> [u8; 4] {
    let program = fs::read(std::env::current_exe().unwrap()).unwrap();
    [3, 0, program[18], program[19]]
}

#[test]
fn a_library_of_another_architecture_is_named_with_both() {
    let site = Site::bad();
    let other: u8 = if cfg!(target_arch = "riscv64") { 183 } else { 243 };
    fs::write(site.library(), [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 9], &[3, 0, other, 0], &[0; 44]].concat())
        .unwrap();
    let reason = reason(&site);
    let expected = format!("this machine is `{}`; build it for this machine", std::env::consts::ARCH);
    assert!(reason.contains("is built for `") && reason.ends_with(&expected), "{reason}");
}

#[test]
fn a_library_that_is_no_plug_in_says_what_it_lacks() {
    let site = Site::bad();
    if compile("tests/plugins/bad.c", &site.library(), &["MODE=GOOD", "WITHOUT_ENTRY"]).is_some() {
        let reason = reason(&site);
        assert!(reason.contains("is no plug-in: it has no symbol `flagperf_plugin`; build it with"), "{reason}");
    }
}

#[test]
fn a_library_that_lacks_what_it_needs_is_refused_before_it_is_called() {
    let site = Site::bad();
    if compile("tests/plugins/bad.c", &site.library(), &["MODE=GOOD", "NEEDS_MORE"]).is_some() {
        let reason = reason(&site);
        assert!(reason.contains("cannot be loaded: ") && reason.contains("no_such_function; `ldd` says"), "{reason}");
    }
}

#[test]
fn a_table_that_breaks_the_interface_is_refused() {
    reasons(&[
        ("OTHER_VERSION", "is of interface version `99`, this program of `1`; build it with the header"),
        ("SHORT_TABLE", "is malformed: its table has 24 bytes, version 1 has at least "),
        ("NO_TABLE", "is malformed: it has no table"),
        ("NO_SUBMIT", "is malformed: its function `submit` is null"),
        ("NO_ROLE", "is malformed: it can be neither framework nor compiler"),
        ("NO_PRECISION", "is malformed: its `precisions` are `0`"),
        ("NO_NAME", "is malformed: its `name` is no text"),
    ]);
}

#[test]
fn a_plug_in_that_crashes_is_a_reason_and_not_the_end() {
    reasons(&[
        ("ABORTS", "killed by signal 6 (SIGABRT): native code gave up; the plug-in `engines/libbad.so` ran in it"),
        ("FAULTS", "killed by signal 11 (SIGSEGV): a fault in native code; the plug-in `engines/libbad.so` ran in it"),
        ("FAULTS_LATER", "killed by signal 11 (SIGSEGV): a fault in native code; the plug-in `"),
    ]);
}

#[test]
fn a_plug_in_that_hangs_is_killed_at_the_limit() {
    for mode in ["HANGS_LOADING", "HANGS"] {
        let site = Site::bad();
        let host = fs::read_to_string(site.path().join("configs/host.yaml")).unwrap();
        site.write("configs/host.yaml", &host.replace("PHASE_TIMEOUT: 120", "PHASE_TIMEOUT: 10"));
        if compile("tests/plugins/bad.c", &site.library(), &[&format!("MODE={mode}")]).is_some() {
            let reason = reason(&site);
            assert!(reason.starts_with("the phase took longer than 10 s and was killed"), "{mode}: {reason}");
        }
    }
}

#[test]
fn what_a_plug_in_says_of_its_failure_is_the_reason() {
    reasons(&[
        ("UNAVAILABLE", "plug-in `bad`: it failed `on purpose`; ask for another mode"),
        ("FAILS_LATER", "plug-in `bad`: it failed `on purpose`"),
        ("FAILS_IN_SILENCE", "plug-in `bad`: status 1, and no reason given"),
    ]);
}

#[test]
fn a_session_that_is_not_the_models_is_refused() {
    reasons(&[
        ("NO_SESSION", "plug-in `bad` gave no session and no error"),
        ("NO_VALUES", "plug-in `bad` declares 1 inputs at 0x0"),
        ("OTHER_NAME", "plug-in `bad` declares the outputs `z: N,1000,f32`, the model has `y: N,1000,f32`"),
        ("MORE_OUTPUTS", "declares the outputs `y: N,1000,f32`, `more: N,f32`, the model has `y: N,1000,f32`"),
        ("BAD_SPEC", "plug-in `bad` declares `y`: unknown element type `f33`"),
        ("SHORT_BUFFER", "plug-in `bad` lent 15999 bytes at "),
    ]);
}

#[test]
fn outputs_that_are_not_as_declared_are_refused() {
    reasons(&[
        ("NO_OUTPUT", "plug-in `bad` gave no output `y`"),
        ("INPUT_AS_OUTPUT", "plug-in `bad` gave a tensor twice, as output `y` too"),
        ("OTHER_ROWS", "plug-in `bad` gave output `y` as `3,1000,f32`, it declares `N,1000,f32`"),
        ("OTHER_TYPE", "plug-in `bad` gave output `y` as `4,1000,i32`, it declares `N,1000,f32`"),
        ("OTHER_RANK", "plug-in `bad` gave output `y` as `4,f32`, it declares `N,1000,f32`"),
        ("UNKNOWN_TYPE", "gave output `y` of an unknown element type (code 2, 32 bits, 4 lanes)"),
    ]);
}

#[test]
fn outputs_that_cannot_be_read_are_refused() {
    reasons(&[
        ("NO_SHAPE", "gave output `y` without a shape (2 dimensions)"),
        ("NEGATIVE_SHAPE", "gave output `y` of shape `[4, -1000]`"),
        ("HUGE_SHAPE", "gave output `y` of shape `[4, 9223372036854775807]`"),
        ("NO_DATA", "gave output `y` without data"),
        ("STRIDED", "gave output `y` that is not dense and row-major (strides `[1, 4]`, shape `[4, 1000]`)"),
        ("ON_DEVICE", "on a device (DLPack type `2`), but has no function `copy_to_host`"),
        ("OTHER_DLPACK", "gave output `y` in DLPack version `9`, this program reads `1`"),
    ]);
}

#[test]
fn a_lack_of_memory_names_the_need_and_the_batch_size() {
    let needs = "out of memory: 3072 MiB asked for, at batch size 4; a smaller `batch_size` needs less";
    reasons(&[("LACKS_MEMORY_LOADING", needs), ("LACKS_MEMORY", needs)]);
}

#[test]
fn outputs_that_are_no_numbers_fail_the_case_whatever_the_weights() {
    let site = Site::bad();
    if compile("tests/plugins/bad.c", &site.library(), &["MODE=NO_NUMBERS"]).is_none() {
        return;
    }
    let (records, code) = site.run();
    let record = &records[0];
    assert_eq!((code, &record["status"]), (Some(1), &"failed".into()), "{record}");
    assert_eq!(record["accuracy"]["verdict"], "missed");
    let lost = record["phases"][0]["measured"][0]["non_finite_outputs"].as_u64().unwrap();
    let expected = format!("the accuracy gate: validation: {lost} outputs are NaN or infinite");
    assert!(lost > 0 && record["failures"][0]["reason"] == expected.as_str(), "{record}");
}

#[test]
fn a_library_that_never_loads_does_not_outlive_doctor() {
    let site = Site::bad();
    if compile("tests/plugins/loops.c", &site.library(), &[]).is_none() {
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
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("gone\n") && said.contains("monitors\n"), "{output:?}");
}
