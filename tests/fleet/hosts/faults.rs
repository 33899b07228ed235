//! Faults of hosts and networks, and runs of other users. The measurements so far are always kept, and the reason is stated.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::site::{H1, H2, Site, TWO, finish, kill, wait_until};
use crate::support::lab::Lab;
use crate::support::leaves::{field, leaves, others, remove};
use crate::support::results;
use flagperf_verify::{Standing, verify_summary};

const ONE: &str = "    \"tiny:own\": datasets/tiny\n";
const ONLY_H1: &str = "tiny_own/h1_noderank0";
/// The second case runs whatever happens to the first one.
const TWO_CASES: &str = "    \"tiny:own\": datasets/tiny\n    \"tiny_again:own\": datasets/tiny\n";

/// Returns the reason why a replica failed; there is one.
fn reason(site: &Site, replica: &str) -> String {
    let record = site.json(&format!("{replica}/record.json"));
    record["failures"][0]["reason"].as_str().unwrap_or_else(|| panic!("no reason: {record}")).to_owned()
}

fn status(site: &Site, replica: &str) -> String {
    site.json(&format!("{replica}/record.json"))["status"].as_str().expect("a status").to_owned()
}

/// Asserts that a record has the throughput of what was measured before the fault.
fn assert_measured(site: &Site, replica: &str) {
    let record = site.json(&format!("{replica}/record.json"));
    let figure = record["finish_info"]["*p_inference_core(qps)"].as_f64();
    assert!(figure.is_some_and(|figure| figure > 0.0), "{record}");
}

#[test]
fn a_host_that_answers_pings_and_nothing_else_is_lost_and_the_other_one_goes_on() {
    let Some(lab) = Lab::hosts(2) else { return };
    let site = Site::on_hosts(&lab, TWO).with_short_timeout();
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(H2);
    lab.host(2).freeze();
    let (code, text) = finish(run);
    lab.host(2).thaw();
    assert_eq!(code, Some(1), "{text}");
    let reason = reason(&site, H2);
    assert!(reason.starts_with("host `h2` was lost: no contact for "), "{reason}");
    assert_measured(&site, H2);
    assert_eq!(status(&site, H1), "ok");
}

#[test]
fn a_host_that_does_not_answer_is_named_and_an_interruption_ends_the_wait() {
    let Some(lab) = Lab::hosts(1) else { return };
    let site = Site::on_hosts(&lab, ONE).with_short_timeout();
    lab.host(1).freeze();
    let (code, text) = site.run(&["run", "--plain"]);
    assert!(code == Some(2) && text.contains("error: host `h1` cannot be used: "), "{text}");
    assert!(!text.contains("results in"), "there are none: {text}");
    let run = site.start(&["run", "--plain"]);
    wait_until(|| site.runs() == 1);
    kill(&run, Signal::SIGINT);
    let (code, text) = finish(run);
    lab.host(1).thaw();
    assert!(code == Some(130) && text.contains("nothing was run"), "{text}");
    assert_eq!(site.runs(), 0, "a run that measured nothing leaves no folder");
}

#[test]
fn a_login_shell_that_hangs_and_a_port_on_which_nobody_listens_are_stated() {
    let Some(lab) = Lab::hosts(1) else { return };
    let site = Site::on_hosts(&lab, ONE).with_short_timeout();
    let shell = "printf '#!/bin/sh\\necho Welcome >&2\\nexec sleep 1000\\n' >/usr/local/bin/hang && \
                 chmod 755 /usr/local/bin/hang && usermod --shell /usr/local/bin/hang tester";
    lab.host(1).exec(shell);
    let (code, text) = site.run(&["run", "--plain"]);
    assert!(code == Some(2) && text.contains("no answer for 15 s; `ssh` printed: Welcome"), "{text}");
    let host = fs::read_to_string(site.path().join("configs/host.yaml")).expect("a file");
    site.write("configs/host.yaml", &format!("SSH_PORT: 2\n{host}"));
    let (code, text) = site.run(&["run", "--plain"]);
    assert!(code == Some(2) && text.contains("Connection refused"), "{text}");
}

#[test]
fn two_runs_on_one_host_wait_for_each_other_or_are_refused() {
    let Some(lab) = Lab::hosts(1) else { return };
    let [first, second, third] = [(); 3].map(|()| Site::on_hosts(&lab, ONE));
    // The first run is longer than the others take until they look at the host.
    let run = first.start(&["run", "--plain", "--set", "repeat=24"]);
    first.wait_for_pass(ONLY_H1);
    let (code, text) = second.run(&["run", "--plain"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("error: host `h1`: another run is using this host: run"), "{text}");
    assert_eq!(second.runs(), 0, "a run that measured nothing leaves no folder");
    let host = fs::read_to_string(third.path().join("configs/host.yaml")).expect("a file");
    third.write("configs/host.yaml", &format!("BUSY_HOST: queue\n{host}"));
    let (code, text) = third.run(&["run", "--plain"]);
    assert!(code == Some(0) && text.contains("waiting for that run to end"), "{text}");
    let (code, text) = finish(run);
    assert_eq!(code, Some(0), "{text}");
    let end_of_first = first.json(&format!("{ONLY_H1}/record.json"))["started"].clone();
    let begin_of_third = third.json(&format!("{ONLY_H1}/record.json"))["started"].clone();
    assert!(begin_of_third.as_str() > end_of_first.as_str(), "{begin_of_third} {end_of_first}");
}

#[test]
fn two_runs_that_wait_for_the_same_hosts_both_end() {
    let Some(lab) = Lab::hosts(2) else { return };
    let sites = ["[h1, h2]", "[h2, h1]"].map(|hosts| {
        let site = Site::on_hosts(&lab, TWO);
        let host = fs::read_to_string(site.path().join("configs/host.yaml")).expect("a file");
        site.write("configs/host.yaml", &format!("BUSY_HOST: queue\n{}", host.replace("[h1, h2]", hosts)));
        site
    });
    // Both begin at the same time, and each finds a host first that is the last one for the other.
    let runs = [0, 1].map(|number| sites[number].start(&["run", "--plain"]));
    for run in runs {
        let (code, text) = finish(run);
        assert_eq!(code, Some(0), "{text}");
    }
    let windows = sites.map(|site| {
        let summary = site.json("tiny_own_2x1/summary.json");
        let window = |step: usize, end: usize| {
            summary["replicas"][0]["measured"][step]["window_s"][end].as_f64().expect("a time")
        };
        (window(0, 0), window(1, 1))
    });
    let [first, second] = windows;
    assert!(first.1 < second.0 || second.1 < first.0, "they measured at the same time: {first:?}, {second:?}");
}

#[test]
fn a_process_that_stops_on_a_host_that_answers_is_given_up_and_the_next_case_runs() {
    let Some(lab) = Lab::hosts(1) else { return };
    let site = Site::on_hosts(&lab, TWO_CASES).with_short_timeout();
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(ONLY_H1);
    lab.host(1).exec("pkill -STOP -f '^/proc/self/exe session'");
    let (code, text) = finish(run);
    lab.host(1).exec("pkill -CONT -f '^/proc/self/exe session'; true");
    assert_eq!(code, Some(1), "{text}");
    assert!(reason(&site, ONLY_H1).contains("has given no sign for 1"), "{}", reason(&site, ONLY_H1));
    assert_measured(&site, ONLY_H1);
    assert_eq!(status(&site, "tiny_again_own/h1_noderank0"), "ok", "{text}");
    // Nobody needs the files of the session that was given up.
    let sessions = || lab.host(1).exec("ls /home/tester/.cache/flagperf/sessions").trim().to_owned();
    assert_ne!(sessions(), "");
    wait_until(|| lab.host(1).exec("pgrep -c flagperf || true").trim() == "0");
    let (code, text) = site.run(&["run", "--plain", "--case", "tiny_again:own"]);
    assert_eq!((code, sessions().as_str()), (Some(0), ""), "{text}");
}

#[test]
fn a_run_is_resumed_without_a_host_that_is_gone_only_if_the_user_says_so() {
    let Some(lab) = Lab::hosts(2) else { return };
    let site = Site::on_hosts(&lab, TWO).with_short_timeout();
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(H2);
    kill(&run, Signal::SIGKILL);
    finish(run);
    lab.host(2).power_off();
    let folder = site.run_folder();
    let folder = folder.to_str().expect("text");
    let (code, text) = site.run(&["resume", folder, "--plain"]);
    assert!(code == Some(2) && text.contains("error: host `h2` cannot be used: "), "{text}");
    assert!(text.contains("hint: try again when the host is back; `flagperf resume --skip-unreachable`"), "{text}");
    let (code, text) = site.run(&["resume", folder, "--plain", "--skip-unreachable"]);
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(status(&site, H1), "ok");
    assert!(reason(&site, H2).starts_with("host `h2` was lost: "), "{}", reason(&site, H2));
    assert_measured(&site, H2);
}

#[test]
fn a_clock_that_is_stepped_by_an_hour_changes_no_figure() {
    let Some(lab) = Lab::hosts(2) else { return };
    lab.host(2).use_own_clock();
    let site = Site::on_hosts(&lab, TWO);
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(H2);
    lab.host(2).step_clock(3600);
    let (code, text) = finish(run);
    assert_eq!(code, Some(0), "{text}");
    site.assert_consistent(2);
    let summary = site.json("tiny_own_2x1/summary.json");
    let share = summary["steps"][1]["common_share"].as_f64().expect("both clocks are known");
    assert!(share > 0.0, "{summary}");
}

#[test]
fn results_that_are_deleted_while_they_arrive_come_again() {
    let Some(lab) = Lab::hosts(1) else { return };
    let site = Site::on_hosts(&lab, ONE);
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(ONLY_H1);
    let folder = site.run_folder();
    // Files that arrive at the same time keep the folder from being removed.
    wait_until(|| fs::remove_dir_all(&folder).is_ok());
    let (code, text) = finish(run);
    assert_eq!(code, Some(0), "{text}");
    site.assert_consistent(1);
}

#[test]
fn processes_that_are_killed_on_a_host_are_reported_and_the_next_case_runs() {
    let Some(lab) = Lab::hosts(1) else { return };
    let killed = |pattern: &str| {
        let site = Site::on_hosts(&lab, TWO_CASES);
        let run = site.start(&["run", "--plain"]);
        site.wait_for_pass(ONLY_H1);
        lab.host(1).exec(&format!("pkill -KILL -f '{pattern}'"));
        let (code, text) = finish(run);
        assert_eq!(status(&site, "tiny_again_own/h1_noderank0"), "ok", "{text}");
        (site, code, text)
    };
    let (site, code, text) = killed("^/proc/self/exe work");
    assert_eq!((code, reason(&site, ONLY_H1).contains("killed by signal 9")), (Some(1), true), "{text}");
    assert_measured(&site, ONLY_H1);
    let (site, code, text) = killed("^/proc/self/exe session");
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(reason(&site, ONLY_H1), "the process that ran the case on host `h1` ended unexpectedly");
    assert_measured(&site, ONLY_H1);
    // An agent only forwards the results of a session, so nothing is lost.
    let (site, code, text) = killed("flagperf agent$");
    assert!(code == Some(0) && text.contains("host h1 has reconnected"), "{text}");
    assert_eq!(status(&site, ONLY_H1), "ok");
}

#[test]
fn results_that_are_deleted_on_their_host_lose_nothing_that_had_arrived() {
    let Some(lab) = Lab::hosts(1) else { return };
    let site = Site::on_hosts(&lab, ONE);
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(ONLY_H1);
    lab.host(1).exec("rm -rf /home/tester/.cache/flagperf/sessions/*/results/*");
    let (code, text) = finish(run);
    assert_ne!(code, Some(0), "{text}");
    assert_measured(&site, ONLY_H1);
    assert!(text.contains("so somebody deleted them there"), "{text}");
}

#[test]
fn a_disk_that_fills_while_a_host_measures_loses_only_what_came_after() {
    let Some(lab) = Lab::hosts_with_small_homes(1, 400 << 20) else { return };
    let site = Site::on_hosts(&lab, ONE);
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(ONLY_H1);
    lab.host(1).fill_home();
    let (code, text) = finish(run);
    assert_eq!(code, Some(1), "{text}");
    assert_measured(&site, ONLY_H1);
    assert_ne!(status(&site, ONLY_H1), "ok");
    assert!(reason(&site, ONLY_H1).contains("disk"), "{}", reason(&site, ONLY_H1));
}

#[test]
fn a_run_on_this_machine_whose_process_was_killed_is_resumed() {
    let site = Site::new(&format!("CASES:\n{TWO_CASES}"));
    let run = site.start(&["run", "--plain"]);
    let replica = "tiny_own/localhost_noderank0";
    site.wait_for_pass(replica);
    kill(&run, Signal::SIGKILL);
    finish(run);
    let folder = site.run_folder();
    let words = ["resume", folder.to_str().expect("text"), "--plain"];
    let parameters = fs::read_to_string(site.path().join("configs/tiny/parameters.yaml")).expect("the parameters");
    site.write("configs/tiny/parameters.yaml", &parameters.replace("samples: 400", "samples: 200"));
    let (code, text) = site.run(&words);
    let changed = "`tiny:own` would not be measured as when the run began: `samples` (was 400, is 200)";
    assert!(code == Some(2) && text.contains(changed), "{text}");
    site.write("configs/tiny/parameters.yaml", &parameters);
    let (code, text) = site.run(&words);
    assert_eq!(code, Some(0), "{text}");
    let kept = format!("cut_off/{replica}");
    assert!(
        text.contains("was cut off and is run again; its earlier measurements are in ") && text.contains(&kept),
        "{text}"
    );
    assert_measured(&site, &kept);
    assert!(reason(&site, &kept).starts_with("the main process of the run ended before the case was complete"));
    for complete in [replica, "tiny_again_own/localhost_noderank0"] {
        assert_eq!(status(&site, complete), "ok");
    }
    let (code, text) = site.run(&["verify", folder.to_str().expect("text")]);
    assert_eq!((code, text.matches("consistent  tiny").count()), (Some(0), 2), "{text}");
    let (code, text) = site.run(&words);
    assert!(code == Some(2) && text.contains("error: cannot resume `"), "{text}");
}

#[test]
fn a_summary_that_was_changed_is_wrong() {
    let site = Site::new(
        "ACCE_VISIBLE_DEVICE_ENV_NAME: SIDE_DEVICES\nLAUNCHER: local\nCASES:\n    \"tiny:own:1x2\": datasets/tiny\n",
    );
    let (code, text) = site.run(&["run", "--plain"]);
    assert_eq!(code, Some(0), "{text}");
    site.assert_consistent(2);
    let path = site.run_folder().join("tiny_own_1x2/summary.json");
    let honest = fs::read_to_string(&path).expect("a summary");
    let mut summary: serde_json::Value = serde_json::from_str(&honest).expect("JSON");
    let figure = &mut summary["steps"][1]["throughput_core_samples_per_s"];
    *figure = (2.0 * figure.as_f64().expect("a figure")).into();
    fs::write(&path, summary.to_string()).expect("a file");
    let run = site.run_folder();
    let (code, text) = site.run(&["verify", run.to_str().expect("text")]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("summary.steps[1].throughput_core_samples_per_s: expected "), "{text}");
    let stretched = honest.replace("\"samples\": 2400", "\"samples\": 2401");
    let other_host = honest.replace("\"host\": \"localhost\"", "\"host\": \"h9\"");
    let other_replica = other_host.replace("localhost_noderank", "h9_noderank");
    let unknown = honest.replacen('{', "{\n\"extra\": 5,", 1);
    let nested = honest.replacen("\"node_rank\":", "\"extra\": {\"a\": 5}, \"node_rank\":", 1);
    for (changed, finding) in [
        (stretched, "summary.replicas[0].measured["),
        (other_host, "folder of the replica on host `h9`: expected h9_noderank0_device0"),
        (other_replica, "replica without a folder in the result"),
        (unknown, "summary.extra: expected null, found 5"),
        (nested, "summary.replicas[0].extra: expected null, found {\"a\":5}"),
    ] {
        assert_ne!(changed, honest);
        fs::write(&path, changed).expect("a file");
        let (code, text) = site.run(&["verify", run.to_str().expect("text")]);
        assert!(code == Some(1) && text.contains(finding), "{finding}: {text}");
    }
}

#[test]
fn every_field_of_a_summary_is_computed_again_or_named_and_a_copied_replica_is_found() {
    let site = Site::new(
        "ACCE_VISIBLE_DEVICE_ENV_NAME: SIDE_DEVICES\nLAUNCHER: local\nCASES:\n    \"tiny:own:1x2\": datasets/tiny\n",
    );
    let (code, text) = site.run(&["run", "--plain", "--set", "repeat=1"]);
    assert_eq!(code, Some(0), "{text}");
    site.assert_consistent(2);
    let case = site.run_folder().join("tiny_own_1x2");
    let path = case.join("summary.json");
    let honest: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).expect("a file")).expect("JSON");
    let report = || verify_summary(&case).expect("a summary");
    let is_named = |field: &str| report().not_checkable.iter().any(|name| field.starts_with(name));
    for pointer in leaves(&honest) {
        let field = field(&pointer);
        let value = honest.pointer(&pointer).expect("a value");
        for other in others(value) {
            let mut changed = honest.clone();
            changed.pointer_mut(&pointer).expect("a value").clone_from(&other);
            let is_summary = serde_json::from_value::<flagperf_result::Summary>(changed.clone()).is_ok();
            fs::write(&path, changed.to_string()).expect("a file");
            let is_found = report().standing > Standing::Consistent;
            assert!(is_found || is_named(&field) || !is_summary, "{field}: {value} -> {other}");
        }
        let mut deleted = honest.clone();
        if remove(&mut deleted, &pointer) {
            fs::write(&path, deleted.to_string()).expect("a file");
            assert!(report().standing > Standing::Consistent || is_named(&field), "{field} deleted");
        }
    }
    // A replica with other settings than the first one.
    fs::write(&path, honest.to_string()).expect("a file");
    let record = case.join("localhost_noderank0_device1/record.json");
    let text = fs::read_to_string(&record).expect("a record");
    let mut changed: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    changed["settings"]["batch_size"]["value"] = 40.into();
    fs::write(&record, changed.to_string()).expect("a file");
    let found = report();
    let other = "`localhost_noderank0_device1`: `batch_size` is 40 (expected: 4)";
    assert!(found.findings.iter().any(|finding| finding.what == other), "{found:?}");
    fs::write(&record, text).expect("a file");
    // One replica in place of another, also as the device that the summary expects.
    let [first, second] = [0, 1].map(|device| case.join(format!("localhost_noderank0_device{device}")));
    fs::remove_dir_all(&second).expect("a folder");
    results::copy_folder(&first, &second);
    let mut summary = honest;
    let (replicas, name) = (&mut summary["replicas"], second.file_name().expect("a name").to_string_lossy());
    let mut copied = replicas[0].clone();
    (copied["device"], copied["folder"]) = (1.into(), (&*name).into());
    replicas[1] = copied;
    fs::write(&path, summary.to_string()).expect("a file");
    let found = report();
    let same = "`localhost_noderank0_device0` and `localhost_noderank0_device1` are the same result";
    assert!(found.findings.iter().any(|finding| finding.what.starts_with(same)), "{found:?}");
    let (code, text) = site.run(&["verify", site.run_folder().to_str().expect("text")]);
    assert!(code == Some(1) && text.contains("device of `localhost_noderank0_device1`"), "{text}");
}

#[test]
fn start_up_files_of_a_login_shell_that_print_or_end_it_are_stated() {
    let Some(lab) = Lab::hosts(1) else { return };
    let site = Site::on_hosts(&lab, ONE).with_short_timeout();
    let run = |line: &str| {
        lab.host(1).exec(&format!("echo '{line}' >/home/tester/.bashrc"));
        site.run(&["run", "--plain", "--set", "repeat=1"])
    };
    let (code, text) = run("printf abc");
    assert_eq!(code, Some(0), "{text}");
    let greeting = format!("echo flagperf-bootstrap {} present", std::env::consts::ARCH);
    for (line, reason) in [
        (
            "exit 3",
            "the connection ended: launcher `ssh` exited with status 3 (does a start-up file of the login shell",
        ),
        ("printf abc; exec sleep 1000", "no answer for 15 s; unexpected output from the host: `abc` (a start-up file"),
        (greeting.as_str(), "the answer of the host is not that of flagperf: `flagperf-bootstrap "),
    ] {
        let (code, text) = run(line);
        assert!(code == Some(2) && text.contains(reason), "{text}");
    }
}

#[test]
fn the_folder_of_a_session_that_is_deleted_on_its_host_is_the_reason() {
    let Some(lab) = Lab::hosts(1) else { return };
    let site = Site::on_hosts(&lab, ONE);
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(ONLY_H1);
    // The worker may create a file meanwhile.
    lab.host(1).exec("cd /home/tester/.cache && until rm -rf flagperf; do :; done");
    let (code, text) = finish(run);
    assert_eq!(code, Some(1), "{text}");
    let reason = reason(&site, ONLY_H1);
    let deleted = "host `h1`: somebody deleted the folder of the session there, `/home/tester/.cache/flagperf/";
    assert!(reason.starts_with(deleted), "{reason}");
    assert_measured(&site, ONLY_H1);
}

/// Duration of a broken connection that is too short to be noticed.
const SHORT: Duration = Duration::from_secs(5);

#[test]
fn a_cut_of_five_seconds_is_not_even_noticed_in_the_result() {
    let Some(lab) = Lab::hosts(1) else { return };
    let site = Site::on_hosts(&lab, ONE);
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(ONLY_H1);
    lab.host(1).cut_for(SHORT);
    let (code, text) = finish(run);
    assert_eq!(code, Some(0), "{text}");
    site.assert_consistent(1);
}
