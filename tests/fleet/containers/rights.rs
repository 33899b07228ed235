//! What a worker in a container can reach.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::sites::ContainerSite;
use crate::support::program;

/// Tries to leave the container, and says what succeeded.
const ATTEMPTS: &str = r#"
try() { name=$1; shift; if "$@" >/dev/null 2>&1; then echo "succeeded: $name" >&2; else echo "failed: $name" >&2; fi; }
try checkout touch "$PWD/x"
try data touch "$PWD/../../data/x"
try root touch /x
try device mknod /tmp/device b 8 0
try mount mount -t tmpfs none /mnt
try temporary touch /tmp/x
try cache touch "$FLAGPERF_CACHE/x"
try sessions ls "$FLAGPERF_CACHE/sessions"
echo "interfaces: $(tail -n +3 /proc/net/dev | grep -c .)" >&2
echo "capabilities: $(grep CapBnd /proc/self/status | tr -d '\t')" >&2
echo "processes: $(ls /proc | grep -c '^[0-9]')" >&2
"#;

#[test]
fn a_worker_reaches_only_its_results() {
    let Some(site) = ContainerSite::with_shell("rights", ATTEMPTS) else { return };
    // An agent on this machine keeps its sessions there.
    let cache = flagperf_config::cache_folder().expect("a cache folder");
    fs::create_dir_all(cache.join("sessions")).expect("a folder");
    let (record, _) = site.run(&[]);
    let errors = site.errors();
    for name in ["checkout", "data", "root", "device", "mount", "cache", "sessions"] {
        assert!(errors.contains(&format!("failed: {name}\n")), "{name}: {errors}");
    }
    assert!(errors.contains("succeeded: temporary\n"), "{errors}");
    assert!(errors.contains("interfaces: 1\n"), "only the loopback: {errors}");
    assert!(errors.contains("capabilities: CapBnd:0000000000000000\n"), "{errors}");
    let processes = errors.lines().find_map(|line| line.strip_prefix("processes: ")?.parse::<u32>().ok());
    assert!(processes.is_some_and(|count| count < 20), "{errors}");
    // Landlock and seccomp work inside, too.
    let protection = &record["phases"][1]["protection"];
    assert_eq!(protection["refused_system_calls"], true, "{protection}");
    let own = fs::metadata("/proc/self").expect("this process");
    for file in ["record.json", "stdout_err.out.log", "events.jsonl"] {
        let run = fs::read_dir(site.path().join("result")).expect("results").next().expect("a run").expect("a run");
        let file = run.path().join("tiny_interpreter/localhost_noderank0").join(file);
        assert_eq!(fs::metadata(&file).expect("a file").uid(), own.uid(), "{}", file.display());
    }
}

#[test]
fn a_seccomp_profile_from_a_file_applies() {
    let Some(site) =
        ContainerSite::with_shell("seccomp", "touch /tmp/x; chmod 600 /tmp/x && echo changed >&2 || echo refused >&2")
    else {
        return;
    };
    let profile = site.path().join("profile.json");
    let refused = r#"{"names": ["chmod", "fchmodat", "fchmodat2"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}"#;
    site.write("profile.json", &format!(r#"{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{refused}]}}"#));
    site.host(&format!("ACCE_CONTAINER_OPT: --security-opt seccomp={}\n", profile.display()));
    site.run(&[]);
    assert!(site.errors().contains("refused\n"), "{}", site.errors());
}

#[test]
fn a_case_that_needs_a_network_has_one() {
    let Some(site) =
        ContainerSite::with_shell("network", "echo interfaces: $(tail -n +3 /proc/net/dev | grep -c .) >&2")
    else {
        return;
    };
    site.write("configs/tiny/parameters.yaml", "samples: 10\nweights: null\nseed: 0\nneeds_network: true\n");
    site.run(&[]);
    assert!(site.errors().contains("interfaces: 2\n"), "{}", site.errors());
}

#[test]
fn options_give_a_container_more_and_an_unknown_one_is_refused() {
    let Some(site) = ContainerSite::with_shell("options", "cat /given >&2; echo \"variable $GIVEN\" >&2") else {
        return;
    };
    site.write("given.txt", "a file of the machine\n");
    let path = site.path().join("given.txt");
    site.host(&format!("ACCE_CONTAINER_OPT: \"-v {}:/given:ro -e GIVEN=1\"\n", path.display()));
    site.run(&[]);
    let errors = site.errors();
    assert!(errors.contains("a file of the machine\n") && errors.contains("variable 1\n"), "{errors}");
    site.host("ACCE_CONTAINER_OPT: --priviledged\n");
    let output = program::flagperf(site.path(), &["run"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("error: configs/host.yaml:3: unknown container option `--priviledged` (known: --gpus, "),
        "{errors}"
    );
    assert!(errors.contains("hint: did you mean `--privileged`?"), "{errors}");
}

#[test]
fn a_container_that_sees_the_machine_is_no_official_one_and_an_unknown_network_is_found_before() {
    let Some(site) = ContainerSite::with_shell("wide", "true") else { return };
    site.host("ACCE_CONTAINER_OPT: \"-v /:/host:ro\"\n");
    let (record, _) = site.run(&[]);
    let right = "`-v /:/host` shows it all files of the machine";
    let has = |list: &serde_json::Value| {
        list.as_array()
            .is_some_and(|texts| texts.iter().any(|text| text.as_str().is_some_and(|text| text.ends_with(right))))
    };
    assert!(has(&record["warnings"]) && has(&record["provenance"]["image"]["rights"]), "{record}");
    let refused = |options: &str| {
        site.host(&format!("ACCE_CONTAINER_OPT: \"{options}\"\n"));
        let output = program::flagperf(site.path(), &["plan"]);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (options, reason) in [
        ("--network nowhere", "the container engine has no network `nowhere`"),
        ("--ipc hots", "container option `--ipc` does not know the namespace `hots`"),
        ("--runtime nowhere", "the container engine does not know the runtime `nowhere`"),
        (
            "--ipc container:nowhere",
            "`--ipc container:nowhere` names a container that the container engine does not have",
        ),
        ("--security-opt secomp=unconfined", "unknown option `secomp` in container option `--security-opt` (known: "),
        ("--ulimit nofiles=4", "unknown limit `nofiles` in container option `--ulimit` (known: "),
        ("--gpus two", "container option `--gpus` must be `all`, a number from 1 or `device=ID,..`, not `two`"),
        (
            "-v /tmp:/x:or",
            "container option `--volume` must be `SOURCE:TARGET[:ro]` with absolute paths, not `/tmp:/x:or`",
        ),
    ] {
        let (code, errors) = refused(options);
        assert!(code != Some(0) && errors.contains(&format!("error: configs/host.yaml:3: {reason}")), "{errors}");
    }
}

#[test]
fn a_container_on_the_network_of_the_machine_is_named_as_such_and_separated_otherwise() {
    let Some(site) = ContainerSite::with_shell("shared", "true") else { return };
    site.host("ACCE_CONTAINER_OPT: \"--network host --ipc host --device /dev/null\"\n");
    let (record, _) = site.run(&[]);
    let warnings = record["warnings"].to_string();
    for part in
        ["`--network host` lets the worker reach the network services", "`--ipc host` shares memory with processes"]
    {
        assert!(warnings.contains(part), "{warnings}");
    }
    assert!(record["provenance"]["image"].get("rights").is_none(), "{record}");
    assert!(!record["validity"]["reasons"].to_string().contains("did not separate"), "{}", record["validity"]);
}

#[test]
fn the_processor_time_of_the_workers_is_that_of_their_containers() {
    let Some(site) = ContainerSite::new("processor", "{engine: rten}") else { return };
    // Another host or device gets only data below this folder.
    site.write("datasets/tiny/nothing", "");
    site.write("vendors/side/environment_variables.sh", "for ((i = 0; i < 500000; i++)); do :; done\n");
    site.write(
        "configs/host.yaml",
        "VENDOR: side\nCONTAINER: docker\nLAUNCHER: local\nACCE_VISIBLE_DEVICE_ENV_NAME: SIDE_DEVICES\nCASES:\n    \
         \"tiny:interpreter:1x2\": datasets/tiny\n",
    );
    let output = program::flagperf(site.path(), &["run"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let run = fs::read_dir(site.path().join("result")).expect("results").next().expect("a run").expect("a run");
    let text = fs::read_to_string(run.path().join("tiny_interpreter_1x2/summary.json")).expect("a summary");
    let summary: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for replica in summary["replicas"].as_array().expect("replicas") {
        // The shell in the container of each phase takes about a second.
        assert!(replica["processor"]["workers_s"].as_f64().is_some_and(|time| time > 0.5), "{replica}");
    }
}
