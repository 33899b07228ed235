//! Cases within jobs of a cluster.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use super::site::{Site, TWO, finish, kill_process};
use crate::support::slurm::Slurm;
use crate::support::{self, kubernetes, lab};

#[test]
fn a_run_within_a_slurm_job_uses_its_nodes_and_reports_what_slurm_says_of_a_lost_one() {
    let Some(cluster) = Slurm::start() else { return };
    let site = Site::new(&format!("CASES:\n{TWO}")).with_short_timeout();
    let (run, _) = start_job(&cluster, &site);
    site.wait_for_pass("tiny_own_2x1/n2_noderank1");
    cluster.kill("n2");
    let (_, text) = finish(run);
    let lost = site.json("tiny_own_2x1/n2_noderank1/record.json");
    let reason = lost["failures"][0]["reason"].as_str().unwrap_or_else(|| panic!("{text}"));
    assert!(
        reason.starts_with("host `n2` was lost: ") && reason.contains("Slurm reports for node n2: State="),
        "{reason}"
    );
    assert_eq!(site.json("tiny_own_2x1/n1_noderank0/record.json")["status"], "ok", "{text}");
}

#[test]
fn jobs_for_schedulers_are_accepted_by_them() {
    let site = Site::new(&format!("CASES:\n{TWO}"));
    let (code, text) = site.run(&["run", "--submit", "kubernetes"]);
    assert!(
        code == Some(2) && text.contains("a case needs 2 hosts, but `--submit kubernetes` supports only one"),
        "{text}"
    );
    let (code, manifest) = site.run(&["run", "--submit", "kubernetes", "--case", "tiny:own"]);
    assert_eq!(code, Some(0), "{manifest}");
    site.write("job.yaml", &manifest);
    if let Some(python) = support::python() {
        assert_eq!(kubernetes::job_faults(&python, &site.path().join("job.yaml")), "");
    }
    let Some(cluster) = Slurm::start() else { return };
    let (code, script) = site.run(&["run", "--submit", "slurm"]);
    assert_eq!(code, Some(0), "{script}");
    site.write("job.sh", &script);
    let script = site.path().join("job.sh");
    lab::successful(&mut cluster.command("sbatch", &["--test-only", script.to_str().expect("text")]));
}

#[test]
fn a_job_that_is_cancelled_and_a_node_that_is_set_down_leave_records_with_reasons() {
    let Some(cluster) = Slurm::start() else { return };
    let site = Site::new(&format!("CASES:\n{TWO}")).with_short_timeout();
    let (run, _) = start_job(&cluster, &site);
    site.wait_for_pass("tiny_own_2x1/n2_noderank1");
    cluster.set_down("n2");
    let (_, text) = finish(run);
    let reason = |site: &Site, node: &str| {
        let record = site.json(&format!("tiny_own_2x1/{node}/record.json"));
        let reason = record["failures"][0]["reason"].as_str().map(str::to_owned);
        reason.unwrap_or_else(|| panic!("{record}"))
    };
    let lost = reason(&site, "n2_noderank1");
    assert!(
        lost.contains("Slurm reports for node n2: State=DOWN") && lost.contains("set down by a test"),
        "{lost}\n{text}"
    );
    cluster.resume("n2");
    let site = Site::new(&format!("CASES:\n{TWO}")).with_short_timeout();
    let (run, job) = start_job(&cluster, &site);
    site.wait_for_pass("tiny_own_2x1/n2_noderank1");
    cluster.output("scancel", &[&job]);
    let (code, text) = finish(run);
    assert_ne!(code, Some(0), "{text}");
    for node in ["n1_noderank0", "n2_noderank1"] {
        let record = site.json(&format!("tiny_own_2x1/{node}/record.json"));
        assert_ne!(record["status"], "ok", "{record}");
        assert!(
            record["finish_info"]["*p_inference_core(qps)"].as_f64().is_some_and(|figure| figure > 0.0),
            "{record}"
        );
    }
}

#[test]
fn a_session_keeps_running_when_the_job_step_of_its_agent_ends() {
    let Some(cluster) = Slurm::start() else { return };
    let site = Site::new(&format!("CASES:\n{TWO}"));
    let (run, _) = start_job(&cluster, &site);
    site.wait_for_pass("tiny_own_2x1/n2_noderank1");
    let steps = cluster.output("squeue", &["--steps", "--noheader", "--format", "%i %j %N"]);
    let agent = steps.lines().find_map(|line| line.strip_suffix(" flagperf n2")).expect("the step of the agent");
    cluster.output("scancel", &[agent]);
    let (code, text) = finish(run);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("host n2 is disconnected") && text.contains("host n2 has reconnected"), "{text}");
    site.assert_consistent(2);
}

#[test]
fn a_run_whose_main_process_was_killed_is_resumed_within_the_same_job() {
    let Some(cluster) = Slurm::start() else { return };
    let site = Site::new(&format!("CASES:\n{TWO}"));
    site.write("job.sh", "$1 run --plain & echo $! >pid; wait $!; exec $1 resume result/run* --plain\n");
    let program = assert_cmd::cargo::cargo_bin("flagperf");
    let (job, _) = start_job_of(&cluster, &site, &["sh", "job.sh", program.to_str().expect("text")]);
    site.wait_for_pass("tiny_own_2x1/n2_noderank1");
    let first = fs::read_to_string(site.path().join("pid")).expect("the number of the process");
    kill_process(first.trim().parse().expect("a number"), Signal::SIGKILL);
    let (code, text) = finish(job);
    assert_eq!(code, Some(0), "{text}");
    site.assert_consistent(2);
}

/// Starts a run within a job, and returns it with the number of the job.
fn start_job(cluster: &Slurm, site: &Site) -> (std::process::Child, String) {
    let program = assert_cmd::cargo::cargo_bin("flagperf");
    start_job_of(cluster, site, &[program.to_str().expect("text"), "run", "--plain"])
}

/// Starts a job in which this command starts a run, and returns it with its number.
fn start_job_of(cluster: &Slurm, site: &Site, command: &[&str]) -> (std::process::Child, String) {
    #[expect(clippy::disallowed_methods, reason = "a test that starts a job")]
    let mut job = Command::new("salloc");
    job.args(["--nodes=2", "--no-kill"]).args(command).current_dir(site.path());
    job.env("SLURM_CONF", cluster.config()).env("XDG_CACHE_HOME", site.path().join("cache"));
    job.env("FLAGPERF_HOST_LOCK", "/dev/null").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = job.spawn().expect("salloc");
    site.wait_for_pass("tiny_own_2x1/n1_noderank0");
    let id = cluster.output("squeue", &["--noheader", "--format", "%i"]);
    (run, id.trim().to_owned())
}
