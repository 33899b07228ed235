//! A Slurm cluster with two nodes on this machine (tests/lab/README.md), and faults of it.

use std::path::PathBuf;
use std::time::Duration;

use assert_cmd::Command;
use tempfile::TempDir;

use crate::support::lab;

/// The longest time that a command of Slurm may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The nodes n1 and n2. The cluster ends when this value is dropped; that of a test that was killed ends when the next
/// test starts one.
pub struct Slurm {
    folder: TempDir,
}

impl Slurm {
    /// Starts a cluster and waits until its nodes are idle. Where this machine cannot, the calling test is counted as left
    /// out.
    pub fn start() -> Option<Self> {
        lab::left_out("slurm")?;
        let folder = tempfile::tempdir().expect("a folder");
        lab::successful(lab::script("slurm").arg("start").arg(folder.path()));
        Some(Slurm { folder })
    }

    /// Returns the value of the variable SLURM_CONF with which every command of Slurm uses this cluster.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("slurm.conf")
    }

    /// Returns a command of Slurm, such as `srun`, on this cluster.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("SLURM_CONF", self.config()).timeout(TIMEOUT);
        command
    }

    /// Runs a command of Slurm, which must succeed, and returns what it printed.
    pub fn output(&self, program: &str, arguments: &[&str]) -> String {
        let output = lab::successful(&mut self.command(program, arguments));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the state of a node: `idle`, `mixed`, `allocated`, `down`.
    pub fn state(&self, node: &str) -> String {
        self.output("sinfo", &["--noheader", "--nodes", node, "--format", "%T"]).trim_end().to_owned()
    }

    /// Sets a node down, as an administrator does; Slurm ends its jobs.
    pub fn set_down(&self, node: &str) {
        let (name, state) = (format!("nodename={node}"), "state=down");
        self.output("scontrol", &["update", &name, state, "reason=set down by a test"]);
    }

    /// Makes a node that was set down available again.
    pub fn resume(&self, node: &str) {
        self.output("scontrol", &["update", &format!("nodename={node}"), "state=resume"]);
    }

    /// Kills slurmd of a node, the job steps and their tasks. Slurm notices the lost node after some seconds.
    pub fn kill(&self, node: &str) {
        self.signal(node, "KILL");
    }

    /// Stops the same processes: the node is silent, and nobody sees an end of a connection.
    pub fn freeze(&self, node: &str) {
        self.signal(node, "STOP");
    }

    /// Lets the processes of a frozen node go on.
    pub fn thaw(&self, node: &str) {
        self.signal(node, "CONT");
    }

    fn signal(&self, node: &str, signal: &str) {
        lab::successful(lab::script("slurm").arg("signal").arg(self.folder.path()).args([node, signal]));
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // A panic here during a panic of the test would end the program and hide the reason.
        let output = lab::script("slurm").arg("stop").arg(self.folder.path()).output();
        if !output.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("the cluster is not stopped: {output:?}");
        }
    }
}
