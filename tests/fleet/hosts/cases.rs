//! Cases on several hosts and devices.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::site::{H1, H2, Site, TWO, finish, kill, wait_until};
use crate::support::lab::Lab;

#[test]
fn a_case_runs_on_two_hosts_and_a_cut_of_some_seconds_loses_nothing() {
    let Some(lab) = Lab::hosts(2) else { return };
    let site = Site::on_hosts(&lab, TWO);
    let printed = site.path().join("printed");
    // The host must not finish before it is cut off.
    let mut run = site.command(&["run", "--plain", "--set", "repeat=20"]);
    let run = run.stderr(fs::File::create(&printed).expect("a file")).spawn().expect("the program starts");
    site.wait_for_pass(H2);
    lab.host(2).cut();
    let stderr = || fs::read_to_string(&printed).expect("a file");
    wait_until(|| stderr().contains("host h2 is disconnected"));
    lab.host(2).restore();
    let (code, text) = finish(run);
    assert_eq!(code, Some(0), "{text}{}", stderr());
    assert!(stderr().contains("host h2 has reconnected"), "{}", stderr());
    site.assert_consistent(2);
    let summary = site.json("tiny_own_2x1/summary.json");
    let [first, second] = [0, 1].map(|place| summary["replicas"][place]["measured"][1].clone());
    let core = |found: &Value| found["throughput_core_samples_per_s"].as_f64().expect("a figure");
    let inference = &summary["steps"][1];
    assert_eq!(core(inference), core(&first) + core(&second));
    assert!(inference["common_share"].as_f64().expect("both clocks are known") > 0.0, "{inference}");
    for host in [1, 2] {
        assert_eq!(lab.host(host).exec("pgrep -c flagperf || true").trim(), "0");
        assert_eq!(lab.host(host).exec("ls /home/tester/.cache/flagperf/sessions").trim(), "");
    }
}

#[test]
fn a_lost_host_keeps_what_had_arrived_and_the_next_case_runs() {
    let Some(lab) = Lab::hosts(2) else { return };
    let site = Site::on_hosts(&lab, &format!("{TWO}    \"tiny_again:own\": datasets/tiny\n")).with_short_timeout();
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(H2);
    lab.host(2).power_off();
    let (code, text) = finish(run);
    assert_eq!(code, Some(1), "{text}");
    let lost = site.json(&format!("{H2}/record.json"));
    let reason = lost["failures"][0]["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("host `h2` was lost: no contact for "), "{reason}");
    assert!(lost["finish_info"]["*p_inference_core(qps)"].as_f64().is_some_and(|figure| figure > 0.0), "{lost}");
    let summary = site.json("tiny_own_2x1/summary.json");
    assert_eq!((summary["steps"].as_array().map(Vec::len), &summary["status"]), (Some(0), &"failed".into()));
    for complete in [H1, "tiny_again_own/h1_noderank0"] {
        assert_eq!(site.json(&format!("{complete}/record.json"))["status"], "ok");
    }
}

#[test]
fn a_run_whose_main_process_was_killed_is_resumed() {
    let Some(lab) = Lab::hosts(2) else { return };
    let site = Site::on_hosts(&lab, TWO);
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(H1);
    kill(&run, Signal::SIGKILL);
    finish(run);
    let folder = site.run_folder();
    let path = folder.to_str().expect("text");
    let (code, text) = site.run(&["verify", path]);
    assert!(
        code == Some(2) && text.contains("is unfinished: it was interrupted, or its main process ended, before"),
        "{text}"
    );
    assert!(text.contains(&format!("hint: `flagperf resume {path}` continues it")), "{text}");
    let words = ["resume", path, "--plain"];
    let (code, text) = site.run(&words);
    assert_eq!(code, Some(0), "{text}");
    site.assert_consistent(2);
    let (code, text) = site.run(&words);
    assert!(code == Some(2) && text.contains("error: cannot resume `"), "{text}");
}

#[test]
fn an_interruption_ends_what_runs_on_every_host() {
    let Some(lab) = Lab::hosts(2) else { return };
    let site = Site::on_hosts(&lab, TWO);
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(H1);
    kill(&run, Signal::SIGINT);
    let (code, text) = finish(run);
    assert_eq!(code, Some(130), "{text}");
    for replica in [H1, H2] {
        assert_eq!(site.json(&format!("{replica}/record.json"))["status"], "interrupted");
    }
    wait_until(|| [1, 2].iter().all(|host| lab.host(*host).exec("pgrep -c flagperf || true").trim() == "0"));
}

#[test]
fn hosts_that_cannot_be_used_are_named_before_anything_runs() {
    let Some(lab) = Lab::hosts(1) else { return };
    let site = Site::on_hosts(&lab, "    \"tiny:own:2x1\": datasets/tiny\n");
    let host = fs::read_to_string(site.path().join("configs/host.yaml")).expect("a file");
    site.write("configs/host.yaml", &host.replace("[h1]", "[h1, nowhere.invalid]"));
    let (code, text) = site.run(&["run", "--plain"]);
    assert!(code == Some(2) && text.contains("error: host `nowhere.invalid` cannot be used: "), "{text}");
    let (code, text) = site.run(&["doctor", "--hosts"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(" h1               ready\n nowhere.invalid  unusable  ssh: "), "{text}");
    assert!(!text.contains("host h1\n"), "only with --details: {text}");
    let (_, text) = site.run(&["doctor", "--hosts", "--details"]);
    assert!(text.contains("\nhost h1\n") && text.contains(" is writable"), "{text}");
    let (_, text) = site.run(&["doctor", "--hosts", "--json"]);
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["hosts"][0]["state"], &report["hosts"][1]["state"]), (&"ready".into(), &"unusable".into()));
    // A host whose key is not the known one may be another machine.
    let config = fs::read_to_string(lab.config()).expect("a file");
    let strange = site.path().join("strange_hosts");
    site.write("strange_hosts", "");
    let file = site.path().join("ssh_config");
    site.write("ssh_config", &format!("UserKnownHostsFile {}\nStrictHostKeyChecking yes\n{config}", strange.display()));
    site.write("configs/host.yaml", &host.replace(&lab.config().display().to_string(), &file.display().to_string()));
    let (code, text) = site.run(&["run", "--plain", "--case", "tiny:own"]);
    assert!(code == Some(2) && text.contains("Host key verification failed"), "{text}");
}

#[test]
fn hosts_without_a_container_engine_are_named_with_the_file_that_asks_for_one_before_anything_runs() {
    let Some(lab) = Lab::hosts(2) else { return };
    let site = Site::on_hosts(&lab, TWO);
    let host = fs::read_to_string(site.path().join("configs/host.yaml")).expect("a file");
    site.write("docker_images/side/own/Dockerfile", "FROM scratch\n");
    site.write("elsewhere/host.yaml", &format!("CONTAINER: docker\n{host}"));
    let (code, text) = site.run(&["run", "--plain", "--config", "elsewhere"]);
    assert_eq!(code, Some(2), "{text}");
    let refused = "error: hosts `h1`, `h2` report: elsewhere/host.yaml:1: `CONTAINER: docker` cannot be used on this machine: no \
                   container engine answered";
    assert!(text.contains(refused) && text.contains("hint: start Docker or Podman"), "{text}");
    assert!(text.contains("hint: nothing was run;"), "{text}");
    assert_eq!(site.runs(), 0);
    let (code, text) = site.run(&["doctor", "--hosts", "--config", "elsewhere"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("hosts h1, h2, whose reports are identical"), "{text}");
    // The record of a host names the file, too, and contains a copy of it.
    site.write("elsewhere/host.yaml", &host);
    let (code, text) = site.run(&["run", "--plain", "--config", "elsewhere"]);
    assert_eq!(code, Some(0), "{text}");
    let record = site.json(&format!("{H2}/record.json"));
    assert_eq!(record["settings"]["HOSTS"]["origin"], "elsewhere/host.yaml:3");
    assert!(site.run_folder().join(H2).join("sources/elsewhere/host.yaml").is_file());
    site.assert_consistent(2);
}

#[test]
fn a_full_disk_of_a_host_is_the_stated_reason() {
    let Some(lab) = Lab::hosts_with_small_homes(1, 400 << 20) else { return };
    lab.host(1).fill_home();
    let site = Site::on_hosts(&lab, "    \"tiny:own\": datasets/tiny\n");
    let (code, text) = site.run(&["run", "--plain"]);
    assert!(code == Some(2) && text.contains("is there space?"), "{text}");
    lab.host(1).free_home();
    let (code, text) = site.run(&["run", "--plain"]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_case_runs_on_two_devices_of_this_machine_at_once() {
    let cases =
        "ACCE_VISIBLE_DEVICE_ENV_NAME: SIDE_DEVICES\nLAUNCHER: local\nCASES:\n    \"tiny:own:1x2\": datasets/tiny\n";
    let site = Site::new(cases);
    let (code, text) = site.run(&["run", "--plain"]);
    assert_eq!(code, Some(0), "{text}");
    site.assert_consistent(2);
    let summary = site.json("tiny_own_1x2/summary.json");
    assert_eq!(summary["replicas"][1]["device"], 1);
    assert!(summary["steps"][1]["common_share"].as_f64().is_some_and(|share| share > 0.0), "{summary}");
    // No monitor identifies the devices of this vendor.
    assert!(text.contains("warning: configs/host.yaml:6: case `tiny:own:1x2` runs 2 workers on each host"), "{text}");
    let record = site.json("tiny_own_1x2/localhost_noderank0_device1/record.json");
    assert_eq!(record["device"], 1, "{record}");
    assert!(record["warnings"].to_string().contains("case `tiny:own:1x2` runs 2 workers on each host"), "{record}");
    assert!(record["validity"]["unknown"].to_string().contains("infer: which device the worker used"), "{record}");
}

#[test]
fn workers_that_share_the_processor_give_no_official_sum_over_devices() {
    let cases =
        "ACCE_VISIBLE_DEVICE_ENV_NAME: SIDE_DEVICES\nLAUNCHER: local\nCASES:\n    \"tiny:own:1x2\": datasets/tiny\n";
    let site = Site::new(cases);
    let vendor = "name: side\nabout: tried by tests\nmonitor: processor\nframeworks: {own: {engine: interpreter}}\n\
                  compilers: {own: {engine: rten}}\n";
    site.write("vendors/side/vendor.yaml", vendor);
    let (code, text) = site.run(&["run", "--plain", "--set", "repeat=1"]);
    assert_eq!(code, Some(0), "{text}");
    site.assert_consistent(2);
    let summary = site.json("tiny_own_1x2/summary.json");
    assert_eq!((&summary["validity"], &summary["steps"][1]["shares_devices"]), (&"unofficial".into(), &true.into()));
    let shared = "inference: several workers used the same device or processor";
    assert!(summary["warnings"].to_string().contains(shared), "{summary}");
    assert!(text.contains("sum: 2 workers, not devices") && text.contains(&format!("warning: {shared}")), "{text}");
    let reason = "inference: the workers of the host shared its processor, which is not one of several devices";
    let record = site.json("tiny_own_1x2/localhost_noderank0_device0/record.json");
    assert!(record["validity"]["reasons"].to_string().contains(reason), "{record}");
}
