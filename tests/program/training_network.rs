//! The port and the network card by which processes that train together find each other.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::training_group::{command, data, digits, folder_of_rank, json, run_folder};

const TWO: [&str; 3] = ["run", "--case", "digits:pytorch:cpu:1:2:1"];

/// Replaces a line of host.yaml.
fn set(checkout: &Path, key: &str, value: &str) {
    let site = checkout.join("configs/host.yaml");
    let text = fs::read_to_string(&site).expect("the site");
    let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with(&format!("{key}:"))).collect();
    fs::write(&site, format!("{}\n{key}: \"{value}\"\n", kept.join("\n"))).expect("the folder can be written");
}

/// Returns a checkout whose processes meet at a port that this listener occupies on 127.0.0.1.
fn with_used_port() -> Option<(TempDir, TcpListener)> {
    let checkout = digits(false)?;
    let used = TcpListener::bind("127.0.0.1:0").expect("a free port");
    set(checkout.path(), "MASTER_PORT", &used.local_addr().expect("an address").port().to_string());
    Some((checkout, used))
}

/// Trains for a few epochs; returns the exit code, what it printed, and the failures of both processes.
fn train(checkout: &Path) -> (Option<i32>, String, [String; 2]) {
    let _ = fs::remove_dir_all(checkout.join("result"));
    let data = data(checkout);
    let words = [&TWO[..], &["--plain", "--set", "max_epochs=2", "--set", "target={}", "--data", &data]].concat();
    let output = command(checkout, &words).output().expect("the program starts");
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    let failures = |rank| {
        let record = folder_of_rank(&run_folder(checkout)?, rank, 2).join("record.json");
        record.exists().then(|| json(&record)["failures"].to_string())
    };
    (output.status.code(), text, [0, 1].map(|rank| failures(rank).unwrap_or_default()))
}

fn assert_port_in_use((code, text, [first, second]): (Option<i32>, String, [String; 2])) {
    assert_eq!(code, Some(1), "{text}");
    let expected = "Address already in use (os error 98) (`MASTER_PORT` in host.yaml names another port)";
    assert!(first.contains("rank 0 cannot wait for the others at `127.0.0.1`") && first.contains(expected), "{first}");
    assert!(second.contains("ended because rank 0 (`localhost device 0`) failed: "), "{second}");
}

#[test]
fn a_port_that_another_program_or_run_uses_is_named_and_the_other_run_goes_on() {
    let Some((checkout, used)) = with_used_port() else { return };
    let port = used.local_addr().expect("an address").port();
    assert_port_in_use(train(checkout.path()));
    drop(used);
    let first = digits(false).expect("libtorch was found");
    set(first.path(), "MASTER_PORT", &port.to_string());
    let data = data(first.path());
    let endless = ["--set", "max_epochs=100000", "--set", "learning_rate=0.000001", "--set", "target={}"];
    let mut running = command(first.path(), &[&TWO[..], &endless, &["--data", &data]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let evaluations = || {
        let events = folder_of_rank(&run_folder(first.path())?, 0, 2).join("events.jsonl");
        Some(fs::read_to_string(events).ok()?.matches("\"evaluation\"").count())
    };
    let mut wait_for = |count: usize| {
        while evaluations().unwrap_or_default() < count {
            assert!(running.try_wait().expect("a process").is_none(), "it ended");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for(1);
    assert_port_in_use(train(checkout.path()));
    wait_for(evaluations().unwrap_or_default() + 2);
    kill(Pid::from_raw(running.id() as i32), Signal::SIGINT).expect("it runs");
    assert_eq!(running.wait().expect("it ended").code(), Some(130));
}

#[test]
fn processes_meet_at_the_address_of_the_chosen_network_card() {
    let Some((checkout, _used)) = with_used_port() else { return };
    set(checkout.path(), "INTERFACE", "eth77");
    let (code, text, _) = train(checkout.path());
    assert_eq!(code, Some(2), "{text}");
    let expected = "host `localhost` cannot be used: it has no network card or address `eth77`, which `INTERFACE` in host.yaml selects";
    assert!(text.contains(expected) && text.contains("lo 127.0.0.1"), "{text}");
    assert!(run_folder(checkout.path()).is_none(), "nothing was run");
    // IPv6 can be switched off.
    if TcpListener::bind("[::1]:0").is_ok() {
        set(checkout.path(), "INTERFACE", "::1/128");
        let (code, text, failures) = train(checkout.path());
        assert_eq!(code, Some(0), "the port is free at that address: {text} {failures:?}");
        fs::remove_dir_all(checkout.path().join("result")).expect("a result");
    }
    set(checkout.path(), "INTERFACE", "lo");
    assert_port_in_use(train(checkout.path()));
}
