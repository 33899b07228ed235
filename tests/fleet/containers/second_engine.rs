//! A container engine of a test's own, which can be ended and started again without disturbing other tests.

#![expect(clippy::disallowed_methods, reason = "a daemon outlives the command that starts it")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use tempfile::TempDir;

use super::sites::{BASE, docker_text};
use crate::support::{self, Missing};

/// Time in which the daemon starts on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(120);
/// What the daemon prints when it answers requests.
const READY: &str = "API listen on ";
/// Prints an archive of what a worker in a container needs: importing it takes a fraction of the time of the whole image.
const SMALL_IMAGE: &str = r#"programs="/bin/sh /bin/bash /bin/sleep"
libraries="$(ldd $programs | grep -o '/[^ :]*') $(ls /lib/*/libgcc_s.so.1 /lib/*/libm.so.6)"
mkdir /tmp/image
cp --parents --dereference $(printf '%s\n' $programs $libraries | sort -u) /tmp/image
tar --create --directory /tmp/image ."#;

/// A daemon with folders, a socket and a network of its own. Dropping it removes everything.
pub struct SecondEngine {
    folder: TempDir,
    options: Vec<&'static str>,
    driver: String,
    daemon: Option<Child>,
}

impl SecondEngine {
    /// Starts a daemon with the image [`BASE`]; `options` are further ones of dockerd. Without the rights for a network of its
    /// own, the calling test is counted as left out.
    pub fn start(options: &[&'static str]) -> Option<Self> {
        let is_possible = geteuid().is_root() && Command::new("dockerd").arg("--version").output().is_ok();
        if !is_possible {
            support::leave_out(&Missing::new(
                "a second container engine needs dockerd and root",
                "run the tests as root",
            ));
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        // The options of the machine's own daemon do not apply.
        fs::write(folder.path().join("daemon.json"), "{}").expect("a file");
        let driver = docker_text(&["info", "--format", "{{.Driver}}"]);
        let mut engine = SecondEngine { folder, options: options.to_vec(), driver, daemon: None };
        engine.start_daemon();
        engine.import_base();
        Some(engine)
    }

    /// Returns the value of `DOCKER_HOST` for this engine.
    pub fn address(&self) -> String {
        format!("unix://{}", self.path("docker.sock").display())
    }

    /// Runs the engine's command line.
    pub fn docker(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("docker");
        command.args(arguments).env("DOCKER_HOST", self.address()).output().expect("docker starts")
    }

    /// Returns the ids of its containers, running or not.
    pub fn containers(&self) -> Vec<String> {
        let output = self.docker(&["ps", "--all", "--quiet", "--no-trunc"]);
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// Sends a signal to the worker in the only container.
    pub fn signal_worker(&self, signal: Signal) {
        let [id] = &self.containers()[..] else { panic!("one container") };
        let processes = self.docker(&["top", id, "-o", "pid"]);
        let processes = String::from_utf8_lossy(&processes.stdout).into_owned();
        for pid in processes.lines().filter_map(|line| line.trim().parse().ok()) {
            kill(Pid::from_raw(pid), signal).expect("the process exists");
        }
    }

    /// Ends the daemon with a signal and waits until it has ended.
    pub fn end_daemon(&mut self, signal: Signal) {
        let Some(mut daemon) = self.daemon.take() else { return };
        let containerd = fs::read_to_string(self.path("run/containerd/containerd.pid")).expect("its process");
        kill(Pid::from_raw(daemon.id().cast_signed()), signal).expect("the daemon exists");
        let status = daemon.wait().expect("the daemon ended");
        assert!(status.code() == Some(0) || status.signal() == Some(signal as i32), "{status}");
        // A new daemon takes one that is about to end for its own.
        let mut end = Command::new("tail");
        end.args(["--pid", containerd.trim(), "--follow", "/dev/null"]).status().expect("tail waits for a process");
    }

    /// Starts the daemon and waits until it answers requests.
    pub fn start_daemon(&mut self) {
        let path = |name| self.path(name).to_string_lossy().into_owned();
        // A network of its own: a daemon removes the bridge of another one. It ends with this thread, also if that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "unshare", "--net", "dockerd", "--bridge", "none", "--iptables=false"]);
        command.args(["--ip6tables=false", "--storage-driver", &self.driver, "--config-file", &path("daemon.json")]);
        command.args(["--host", &self.address(), "--data-root", &path("data"), "--exec-root", &path("run")]);
        command.args(["--pidfile", &path("pid")]).args(&self.options).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut daemon = command.spawn().expect("setpriv starts");
        let lines = BufReader::new(daemon.stderr.take().expect("a pipe")).lines();
        let (sender, ready) = crossbeam_channel::bounded(1);
        // To its end, so that the daemon is never blocked.
        thread::spawn(move || {
            let mut last = String::new();
            for line in lines.map_while(Result::ok) {
                if line.contains(READY) {
                    let _ = sender.try_send(Ok(()));
                }
                last = line;
            }
            let _ = sender.try_send(Err(last));
        });
        self.daemon = Some(daemon);
        ready.recv_timeout(START_LIMIT).expect("the daemon starts in time").expect("the daemon starts");
    }

    fn import_base(&self) {
        let mut archive = Command::new("docker");
        archive.args(["run", "--rm", "--network", "none", BASE, "sh", "-c", SMALL_IMAGE]).stdout(Stdio::piped());
        let mut archive = archive.spawn().expect("docker starts");
        let content = archive.stdout.take().expect("a pipe");
        let mut import = Command::new("docker");
        import.args(["import", "-", BASE]).env("DOCKER_HOST", self.address()).stdin(content);
        let imported = import.output().expect("docker starts");
        assert!(archive.wait().expect("docker ended").success(), "the files of {BASE}");
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for SecondEngine {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            for id in self.containers() {
                self.docker(&["rm", "--force", &id]);
            }
            // Errors are ignored: a test that failed may have ended it.
            let _ = kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGTERM);
            let _ = daemon.wait();
        }
        // A daemon that was killed has left the file systems of its containers.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let folder = self.folder.path().to_string_lossy().into_owned();
        let own = mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|target| target.starts_with(&folder));
        for target in own {
            let _ = Command::new("umount").args(["--lazy", target]).status();
        }
    }
}
