//! The hosts and the cluster of the tests: they answer, and their faults are what they say.

use std::thread;
use std::time::Duration;

use flagperf_core::measure::{Clock, MonotonicClock};

use crate::support::lab::{Lab, ssh, successful};
use crate::support::slurm::Slurm;

/// The options with which ssh gives up when a host has been silent for two seconds.
const IMPATIENT: [&str; 3] = ["-oConnectTimeout=2", "-oServerAliveInterval=1", "-oServerAliveCountMax=2"];

/// Waits on a host until a command has made the file `began`.
const UNTIL_BEGUN: &str = "until [ -e began ]; do sleep 0.05; done";

fn stdout(mut command: assert_cmd::Command) -> String {
    String::from_utf8(successful(&mut command).stdout).expect("text")
}

#[test]
fn all_hosts_answer_at_the_same_time_under_their_own_names() {
    let Some(lab) = Lab::hosts(2) else { return };
    let config = lab.config();
    thread::scope(|scope| {
        let answer = |name| (name, stdout(ssh(&config, &[], name, "hostname")));
        let answers: Vec<_> = lab.names().into_iter().map(|name| scope.spawn(move || answer(name))).collect();
        for (name, answer) in answers.into_iter().map(|answer| answer.join().expect("an answer")) {
            assert_eq!(answer.trim_end(), name);
        }
    });
    let wrong_key = std::fs::read_to_string(lab.config()).expect("the configuration").replace("known_hosts", "lab");
    std::fs::write(&config, wrong_key).expect("a file");
    let refused = ssh(&config, &[], "h1", "hostname").output().expect("ssh");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Host key verification failed"), "{refused:?}");
}

#[test]
fn a_cut_connection_ends_within_the_limits_of_ssh_and_a_restored_host_answers() {
    let Some(lab) = Lab::hosts(2) else { return };
    let (config, host) = (lab.config(), lab.host(1));
    thread::scope(|scope| {
        let mut session = ssh(&config, &IMPATIENT, "h1", "touch began; sleep 100");
        let session = scope.spawn(move || session.output().expect("ssh"));
        successful(&mut ssh(&config, &[], "h1", UNTIL_BEGUN));
        host.cut();
        let errors = String::from_utf8(session.join().expect("an end").stderr).expect("text");
        assert!(errors.contains("not responding"), "{errors}");
    });
    assert_eq!(ssh(&config, &IMPATIENT, "h1", "true").output().expect("ssh").status.code(), Some(255));
    assert_eq!(stdout(ssh(&config, &[], "h2", "hostname")), "h2\n");
    host.restore();
    assert_eq!(stdout(ssh(&config, &[], "h1", "hostname")), "h1\n");
    host.cut_for(Duration::from_secs(1));
    assert_eq!(stdout(ssh(&config, &[], "h1", "hostname")), "h1\n", "TCP repeats what was lost");
}

#[test]
fn a_frozen_host_accepts_connections_and_says_nothing() {
    let Some(lab) = Lab::hosts(1) else { return };
    let (config, host) = (lab.config(), lab.host(1));
    host.freeze();
    let silent = ssh(&config, &IMPATIENT, "h1", "true").output().expect("ssh");
    let errors = String::from_utf8_lossy(&silent.stderr);
    assert!(errors.contains("timed out during banner exchange"), "{errors}");
    host.thaw();
    assert_eq!(stdout(ssh(&config, &[], "h1", "hostname")), "h1\n");
    host.power_off();
    assert_eq!(ssh(&config, &IMPATIENT, "h1", "true").output().expect("ssh").status.code(), Some(255));
}

#[test]
fn a_full_home_folder_refuses_further_bytes() {
    let Some(lab) = Lab::hosts_with_small_homes(1, 1 << 20) else { return };
    let (config, host) = (lab.config(), lab.host(1));
    host.fill_home();
    let refused = ssh(&config, &[], "h1", "echo a >file").output().expect("ssh");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("No space left on device"), "{refused:?}");
    host.free_home();
    successful(&mut ssh(&config, &[], "h1", "echo a >file"));
}

#[test]
fn the_wall_clock_of_one_host_can_be_stepped() {
    let Some(lab) = Lab::hosts(1) else { return };
    let (config, host) = (&lab.config(), lab.host(1));
    host.use_own_clock();
    let seconds = |text: String| text.trim().parse::<i64>().expect("seconds since 1970");
    let ahead = || seconds(stdout(ssh(config, &[], "h1", "date +%s"))) - seconds(host.exec("date +%s"));
    assert!(ahead().abs() < 1800);
    // One program that runs on sees the step.
    thread::scope(|scope| {
        let wait = r#"python3 -c '
import time
begin = time.time()
open("began", "w")
while time.time() < begin + 3000: time.sleep(0.05)'"#;
        let session = scope.spawn(move || successful(&mut ssh(config, &[], "h1", wait)));
        successful(&mut ssh(config, &[], "h1", UNTIL_BEGUN));
        host.step_clock(3600);
        session.join().expect("the clock jumps");
    });
}

#[test]
fn the_relay_delays_both_directions_and_keeps_every_byte() {
    let Some(lab) = Lab::hosts(1) else { return };
    let config = lab.delayed_config(Duration::from_millis(50));
    let clock = MonotonicClock::start();
    assert_eq!(stdout(ssh(&config, &[], "h1", "hostname")), "h1\n");
    // Connect, exchange versions, keys and authentication, run the command: at least four round trips of 100 ms.
    let time = Duration::from_nanos(clock.now().0);
    assert!(time > Duration::from_millis(400), "{time:?}");
    eprintln!("a command with 50 ms each way: {time:?}");
    let mut transfer = ssh(&config, &[], "h1", "cat");
    let sent: Vec<u8> = (0..64_u32 << 18).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let received = successful(transfer.write_stdin(sent.clone())).stdout;
    assert!(sent == received, "64 MiB there and back");
}

#[test]
fn a_job_step_runs_on_both_nodes_with_the_devices_that_slurm_granted() {
    let Some(slurm) = Slurm::start() else { return };
    let step = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES";
    let printed = slurm.output("srun", &["--nodes=2", "--gpus-per-node=2", "sh", "-c", step]);
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["n1 0,1", "n2 0,1"]);
}

#[test]
fn two_clusters_run_at_a_time_and_a_node_that_is_set_down_ends_the_job() {
    let (Some(slurm), Some(other)) = (Slurm::start(), Slurm::start()) else { return };
    let job = slurm
        .output("sbatch", &["--parsable", "--nodes=2", "--no-requeue", "--output=/dev/null", "--wrap=srun sleep 100"]);
    let job = job.trim_end();
    wait_until("the job runs", || slurm.output("squeue", &["--noheader", "--states=running"]).contains(job));
    slurm.set_down("n2");
    wait_until("the job has failed", || slurm.output("scontrol", &["show", "job", job]).contains("JobState=NODE_FAIL"));
    assert_eq!((slurm.state("n2").as_str(), other.state("n2").as_str()), ("down", "idle"));
    slurm.resume("n2");
    wait_until("the node is back", || slurm.state("n2") == "idle");
}

#[test]
fn slurm_notices_a_killed_node_and_a_cancelled_job() {
    let Some(slurm) = Slurm::start() else { return };
    thread::scope(|scope| {
        let mut step = slurm.command("srun", &["--nodes=2", "sleep", "100"]);
        let step = scope.spawn(move || step.output().expect("srun"));
        wait_until("the step runs", || slurm.output("squeue", &["--steps", "--noheader"]).contains(".0"));
        slurm.kill("n2");
        let errors = String::from_utf8(step.join().expect("an end").stderr).expect("text");
        assert!(errors.contains("Node failure on n2"), "{errors}");
    });
    assert_eq!(slurm.state("n2"), "down*");
    let mut step = slurm.command("srun", &["sleep", "100"]);
    let step = thread::spawn(move || step.output().expect("srun"));
    // The first job may still be listed as completing.
    let job = || slurm.output("squeue", &["--noheader", "--states=RUNNING", "--format", "%i"]).trim().to_owned();
    let steps = || slurm.output("squeue", &["--steps", "--noheader"]);
    wait_until("the step runs", || !job().is_empty() && steps().contains(&format!("{}.0", job())));
    slurm.output("scancel", &[&job()]);
    let errors = String::from_utf8(step.join().expect("an end").stderr).expect("text");
    assert!(errors.contains("CANCELLED"), "{errors}");
}

/// Waits until a condition holds, at most a minute.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..600 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("not within a minute: {what}");
}
