//! Cases on several devices of this machine, whose sessions need no connection.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::signal::{Signal, kill as signal};

use super::site::{Site, finish, kill};
use crate::support::loopback::LoopbackHost;

/// Two cases, each on two devices of this machine.
const CASES: &str = "ACCE_VISIBLE_DEVICE_ENV_NAME: SIDE_DEVICES\nLAUNCHER: local\nCASES:\n    \"tiny:own:1x2\": datasets/tiny\n    \
                     \"tiny_again:own:1x2\": datasets/tiny\n";
const FIRST: &str = "tiny_own_1x2/localhost_noderank0_device0";
const SECOND: &str = "tiny_again_own_1x2/localhost_noderank0_device1";

/// Runs the program with this file as the lock of the host.
fn start_with_lock(site: &Site, lock: &Path, words: &[&str]) -> std::process::Child {
    site.command(words).env("FLAGPERF_HOST_LOCK", lock).spawn().expect("the program starts")
}

#[test]
fn two_names_of_one_machine_and_an_unusable_lock_are_in_the_records_and_in_the_summary() {
    let site = Site::new("HOSTS: [localhost, 127.0.0.1]\nCASES:\n    \"tiny:own:2x1\": datasets/tiny\n");
    let lock = site.path().join("no/lock");
    let (code, text) = finish(start_with_lock(&site, &lock, &["run", "--plain"]));
    assert_eq!(code, Some(0), "{text}");
    site.assert_consistent(2);
    let summary = site.json("tiny_own_2x1/summary.json");
    for (index, (host, other)) in [("localhost", "127.0.0.1"), ("127.0.0.1", "localhost")].iter().enumerate() {
        let record = site.json(&format!("tiny_own_2x1/{host}_noderank{index}/record.json"));
        let same = format!("host `{host}` is the same machine as `{other}`: ");
        let unusable = "the lock of this host cannot be used, so other runs on it are not noticed: `";
        let reasons = &summary["replicas"][index]["validity_reasons"];
        for list in [&record["warnings"], &record["validity"]["reasons"], reasons] {
            let texts: Vec<&str> = list.as_array().expect("a list").iter().filter_map(|text| text.as_str()).collect();
            for expected in [same.as_str(), unusable] {
                assert_eq!(texts.iter().filter(|text| text.starts_with(expected)).count(), 1, "{expected}: {texts:?}");
            }
        }
    }
}

#[test]
fn a_second_signal_ends_the_run_and_says_what_its_hosts_do() {
    let site = Site::new(CASES).with_short_timeout();
    let run = site.start(&["run", "--plain"]);
    site.wait_for_pass(FIRST);
    kill(&run, Signal::SIGINT);
    kill(&run, Signal::SIGTERM);
    let (code, text) = finish(run);
    assert_eq!(code, Some(130), "{text}");
    let expected = "warning: this process ends now and does not wait for the hosts, which stop and are free for other runs after 45 s \
                    without contact (`HOST_TIMEOUT` plus 30 s); `flagperf resume result/run";
    assert!(text.contains(expected), "{text}");
    let folder = site.run_folder();
    let (_, text) = site.run(&["resume", folder.to_str().expect("text"), "--plain"]);
    assert!(site.json(&format!("{FIRST}/record.json"))["status"].is_string(), "{text}");
}

#[test]
fn a_killed_run_is_named_to_its_user_and_its_finished_cases_are_in_the_overview_when_it_is_resumed() {
    let site = Site::new(CASES);
    let lock = site.path().join("lock");
    let run = start_with_lock(&site, &lock, &["run", "--plain"]);
    site.wait_for_pass(SECOND);
    kill(&run, Signal::SIGKILL);
    finish(run);
    let folder = site.run_folder();
    let name = folder.file_name().expect("a name").to_str().expect("text");
    let (code, text) = finish(start_with_lock(&site, &lock, &["run", "--plain"]));
    assert_eq!(code, Some(2), "{text}");
    let holder = format!("error: host `localhost`: another run is using this host: {name} of user `");
    assert!(text.contains(&holder) && text.contains(", started by `") && text.contains(", since 20"), "{text}");
    let own = format!("that is your own run, whose main process has ended: `flagperf resume {}`", folder.display());
    assert!(text.contains(&own), "{text}");
    let words = ["resume", folder.to_str().expect("text"), "--plain"];
    let (code, text) = finish(start_with_lock(&site, &lock, &words));
    assert_eq!(code, Some(0), "{text}");
    let overview: Vec<&str> = text.lines().filter(|line| line.contains(", finished before")).collect();
    assert!(overview.len() == 2 && overview[0].starts_with("ok  tiny:own "), "{text}");
}

#[test]
fn the_record_of_a_lost_replica_states_what_it_was_to_measure() {
    let site = Site::new(CASES);
    let run = site.start(&["run", "--plain", "--case", "tiny:own:1x2"]);
    site.wait_for_pass(FIRST);
    site.sessions().into_iter().for_each(|session| signal(session, Signal::SIGKILL).expect("it runs"));
    let (code, text) = finish(run);
    assert_eq!(code, Some(1), "{text}");
    let provenance = &site.json(&format!("{FIRST}/record.json"))["provenance"];
    assert!(provenance["scripts_sha256"]["tiny/model.rhai"].is_string(), "{provenance}");
    assert!(provenance["config_files_sha256"]["configs/tiny/parameters.yaml"].is_string(), "{provenance}");
    // Only the killed process knew it: an engine could read it in a file.
    assert_eq!(provenance["run_seed"], "0".repeat(64), "{provenance}");
}

#[test]
fn what_somebody_changed_in_the_cache_of_a_host_is_replaced_with_a_warning() {
    let site = Site::new("HOSTS: [localhost, 127.0.0.1]\nCASES:\n    \"tiny:own:2x1\": datasets/tiny\n");
    let words = ["run", "--plain", "--set", "repeat=1"];
    let (code, text) = site.run(&words);
    assert!(code == Some(0) && !text.contains("had stored"), "{text}");
    fs::remove_dir_all(site.run_folder()).expect("a folder");
    let cache = site.path().join("cache/flagperf");
    let only = |folder: &str| fs::read_dir(cache.join(folder)).expect("a folder").flatten().next().expect("one").path();
    let checkout = only("trees");
    let settings = checkout.join("configs/tiny/configurations.yaml");
    let text = fs::read_to_string(&settings).expect("a file");
    fs::write(&settings, text.replace("batch_size: 4", "batch_size: 40")).expect("a file");
    let program = only("bin").join("flagperf");
    fs::remove_file(&program).expect("a file");
    fs::write(&program, "").expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a file");
    let (code, text) = site.run(&words);
    assert_eq!(code, Some(0), "{text}");
    let file = "had stored `configs/tiny/configurations.yaml` otherwise than as sent, which is replaced or removed";
    for what in [file, "had another file stored as this program, which is replaced"] {
        assert!(text.contains(what), "{what}: {text}");
    }
    for replica in ["localhost_noderank0", "127.0.0.1_noderank1"] {
        let record = site.json(&format!("tiny_own_2x1/{replica}/record.json"));
        assert_eq!(record["settings"]["batch_size"]["value"], 4, "{replica}");
    }
    site.assert_consistent(2);
}

#[test]
fn a_host_plans_the_first_case_in_its_session_and_refuses_it_before_anything_is_measured() {
    let cases = "CASES:\n    \"tiny:own\": /data/of/tiny\n    \"tiny_again:own\": datasets/tiny\n";
    let site = Site::new(cases);
    let Some(other) = LoopbackHost::start(&site.path().join("other")) else { return };
    let host = fs::read_to_string(site.path().join("configs/host.yaml")).expect("a file");
    let config = other.config().display().to_string();
    site.write("configs/host.yaml", &format!("{host}HOSTS: [other]\nSSH_CONFIG: {config}\n"));
    let sessions = || fs::read_dir(site.path().join("other/flagperf/sessions")).map_or(0, Iterator::count);
    let run = |words: &[&str]| site.run(&[&["run", "--plain", "--set", "repeat=1"], words].concat());
    // The second time, the host plans this case beside the first one.
    for words in [&[][..], &["--case", "tiny_again:own", "--case", "tiny:own"]] {
        let (code, text) = run(words);
        let refused = "error: host `other` reports: configs/host.yaml:4: data directory `/data/of/tiny` does not exist";
        assert!(code == Some(2) && text.contains(refused), "{text}");
        assert_eq!((site.runs(), sessions()), (0, 0), "a run that measured nothing leaves nothing: {text}");
    }
    // A relative path is that of the user's current directory.
    let (code, text) = run(&["--case", "tiny_again:own", "--data", "datasets/tiny"]);
    assert_eq!(code, Some(0), "{text}");
    site.assert_consistent(1);
}

#[test]
fn a_replica_that_measured_something_else_than_was_planned_fails_with_the_difference() {
    let site = Site::new(
        "ACCE_VISIBLE_DEVICE_ENV_NAME: SIDE_DEVICES\nLAUNCHER: local\nCASES:\n    \"tiny:own:1x2\": datasets/tiny\n",
    );
    let run = site.start(&["run", "--plain", "--set", "repeat=1"]);
    let planned = fs::read_to_string(site.path().join("configs/tiny/configurations.yaml")).expect("a file");
    let other = planned.replace("batch_size: 4", "batch_size: 40");
    let mut run = Some(run);
    // Another program changes the file between the check of the agent and the session that reads it.
    let (code, text) = std::thread::scope(|scope| {
        let ended = scope.spawn(|| finish(run.take().expect("it runs")));
        while !ended.is_finished() {
            for checkout in fs::read_dir(site.path().join("cache/flagperf/trees")).into_iter().flatten().flatten() {
                let folder = checkout.path().join("configs/tiny");
                // The checkout may not be complete yet.
                if fs::write(folder.join(".other"), &other).is_ok() {
                    let _ = fs::rename(folder.join(".other"), folder.join("configurations.yaml"));
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        ended.join().expect("the run ends")
    });
    assert_eq!(code, Some(1), "{text}");
    for device in [0, 1] {
        let record = site.json(&format!("tiny_own_1x2/localhost_noderank0_device{device}/record.json"));
        let reason = record["failures"][0]["reason"].as_str().unwrap_or_default();
        // A session may have read the setting before the change, and hashed the file after it.
        let is_named = ["`batch_size` is 40 (expected: 4)", "`configs/tiny/configurations.yaml` is not the file that"]
            .iter()
            .any(|what| reason.starts_with(&format!("the host did not measure what was planned: {what}")));
        assert!(is_named, "{reason}");
    }
    assert_eq!(site.json("tiny_own_1x2/summary.json")["steps"], serde_json::json!([]), "there is no sum");
}

#[test]
fn an_interrupted_run_is_resumed_with_the_case_that_was_interrupted_and_those_that_did_not_run() {
    let on_one = "CASES:\n    \"tiny:own\": datasets/tiny\n    \"tiny_again:own\": datasets/tiny\n";
    for (host, scale, device) in [(on_one, "", ""), (CASES, "_1x2", "_device0")] {
        let [first, second] =
            ["tiny", "tiny_again"].map(|case| format!("{case}_own{scale}/localhost_noderank0{device}"));
        let site = Site::new(host);
        let status = |replica: &str| site.json(&format!("{replica}/record.json"))["status"].clone();
        let run = site.start(&["run", "--plain"]);
        site.wait_for_pass(&first);
        kill(&run, Signal::SIGINT);
        let (code, text) = finish(run);
        assert!(code == Some(130) && text.contains("note: `flagperf resume result/run"), "{text}");
        assert_eq!(status(&first), "interrupted");
        let folder = site.run_folder();
        let (code, text) = site.run(&["resume", folder.to_str().expect("text"), "--plain"]);
        assert_eq!(code, Some(0), "{text}");
        for (replica, expected) in [(first.clone(), "ok"), (second, "ok"), (format!("cut_off/{first}"), "interrupted")]
        {
            assert_eq!(status(&replica), expected, "{replica}");
        }
        assert!(!folder.join("run.json").exists(), "nothing is left to resume");
    }
}
