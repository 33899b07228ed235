//! Hosts for tests: containers with sshd on a private network (tests/lab/README.md), and faults of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use assert_cmd::Command;
use tempfile::TempDir;

use crate::support::{self, Missing};

/// The longest time that a script or the engine may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The end of the commands that cut a host off, and of those that undo it.
const RULES: [&str; 2] = ["INPUT ! -i lo -j DROP", "OUTPUT ! -o lo -j DROP"];

/// Hosts h1, h2, .. on a network of their own. They are removed when this value is dropped; those of a test that was
/// killed are removed when the next test starts hosts.
pub struct Lab {
    folder: TempDir,
    hosts: Vec<Host>,
}

/// One of the hosts. Its account `tester` is not root and has a home folder.
pub struct Host {
    name: String,
    container: String,
    /// The folder of this machine that the host sees as /lab.
    folder: PathBuf,
}

impl Lab {
    /// Starts hosts and waits until their sshd answers. Where this machine cannot, the calling test is counted as left
    /// out.
    pub fn hosts(count: usize) -> Option<Self> {
        Self::start(count, &[])
    }

    /// Starts hosts whose home folder is a file system of its own of this size, so that [`Host::fill_home`] can fill it.
    pub fn hosts_with_small_homes(count: usize, size_bytes: u64) -> Option<Self> {
        Self::start(count, &["--tmpfs", &format!("/home/tester:size={size_bytes},uid=1000,gid=1000,mode=700,exec")])
    }

    /// Starts hosts with further options of `docker run`.
    pub fn start(count: usize, options: &[&str]) -> Option<Self> {
        left_out("hosts")?;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_str().expect("a path that is text");
        successful(script("hosts").args(["start", path, &count.to_string()]).args(options));
        let lab = fs::read_to_string(folder.path().join("lab")).expect("the name of the network");
        let host = |name: String| {
            let container = format!("{}-{name}", lab.trim_end());
            Host { container, folder: folder.path().join(&name), name }
        };
        let hosts = (1..=count).map(|number| host(format!("h{number}"))).collect();
        Some(Lab { folder, hosts })
    }

    /// Returns the configuration for `ssh -F`, with an entry and a known key for each host.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    /// Returns the same configuration with a delay of the network in each direction.
    pub fn delayed_config(&self, delay: Duration) -> PathBuf {
        let program = std::env::current_exe().expect("this program has a path");
        // Cargo places the tests in deps/, and beside this folder the examples.
        let folder = program.ancestors().nth(2).expect("the folder of the build").join("examples");
        let proxy = format!("    ProxyCommand {} {} %h %p\n", folder.join("ssh_delay").display(), delay.as_millis());
        let config = fs::read_to_string(self.config()).expect("the configuration");
        let delayed = self.folder.path().join(format!("config_{}ms", delay.as_millis()));
        fs::write(&delayed, format!("{config}{proxy}")).expect("a file");
        delayed
    }

    /// Returns a host by its number, which begins with 1 as in its name.
    pub fn host(&self, number: usize) -> &Host {
        &self.hosts[number - 1]
    }

    /// Returns the names of all hosts, as in the configuration.
    pub fn names(&self) -> Vec<&str> {
        self.hosts.iter().map(|host| host.name.as_str()).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A panic here during a panic of the test would end the program and hide the reason.
        let output = script("hosts").arg("stop").arg(self.folder.path()).output();
        if !output.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("the hosts are not removed: {output:?}");
        }
    }
}

impl Host {
    /// Returns the name of the host in the configuration of ssh.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Cuts the host off: packets in both directions are dropped, so nobody sees an end of a connection.
    pub fn cut(&self) {
        self.exec(&cut());
    }

    /// Ends a cut.
    pub fn restore(&self) {
        self.exec(&restore());
    }

    /// Cuts the host off and returns at once; the host ends the cut by itself after this time.
    pub fn cut_for(&self, time: Duration) {
        let command = format!("{} && sleep {} && {}", cut(), time.as_secs_f64(), restore());
        successful(docker().args(["exec", "--detach", &self.container, "sh", "-c", &command]));
    }

    /// Stops every process of the host. Its kernel still answers pings and accepts connections.
    pub fn freeze(&self) {
        successful(docker().args(["pause", &self.container]));
    }

    /// Lets the processes of a frozen host go on.
    pub fn thaw(&self) {
        successful(docker().args(["unpause", &self.container]));
    }

    /// Ends the host as a power cut does: nobody sees an end of a connection. It does not come back.
    pub fn power_off(&self) {
        self.cut();
        successful(docker().args(["kill", "--signal", "KILL", &self.container]));
    }

    /// Fills the home folder, which must be a small file system, to its last byte.
    pub fn fill_home(&self) {
        let fill = "cd /home/tester && [ \"$(stat --file-system --format %T .)\" = tmpfs ] || exit 1\n\
                    head --bytes 64G /dev/zero >.fill 2>/dev/null; [ \"$(df --output=avail . | tail -n 1)\" -eq 0 ]";
        self.exec(fill);
    }

    /// Frees what [`Host::fill_home`] used.
    pub fn free_home(&self) {
        self.exec("rm /home/tester/.fill");
    }

    /// Gives the host a wall clock of its own, which connections from now on use; it is right until it is stepped.
    pub fn use_own_clock(&self) {
        self.step_clock(0);
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]);
        compiler.arg(support::root().join("tests/lab/wall_clock.c"));
        successful(compiler.arg("-o").arg(self.folder.join("wall_clock.so")).timeout(TIMEOUT));
        self.exec("echo LD_PRELOAD=/lab/wall_clock.so >>/etc/environment");
    }

    /// Sets the host's own clock this number of seconds ahead of the right time, for running programs, too.
    pub fn step_clock(&self, seconds: i64) {
        // The file is replaced as a whole, so that nobody reads a part of it.
        let clock = self.folder.join("clock");
        fs::write(clock.with_extension("new"), format!("{seconds:+}\n")).expect("a file");
        fs::rename(clock.with_extension("new"), clock).expect("a file");
    }

    /// Runs a shell command in the host as root, past sshd, and returns what it printed. It must succeed.
    pub fn exec(&self, command: &str) -> String {
        let output = successful(docker().args(["exec", &self.container, "sh", "-c", command]));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Returns the shell command that drops all packets of a host.
fn cut() -> String {
    RULES.map(|rule| format!("iptables --wait --insert {rule}")).join(" && ")
}

/// Returns the shell command that undoes [`cut`].
fn restore() -> String {
    RULES.map(|rule| format!("iptables --wait --delete {rule}")).join(" && ")
}

/// Returns a script of tests/lab.
pub fn script(name: &str) -> Command {
    let mut command = Command::new(support::root().join("tests/lab").join(name));
    command.timeout(TIMEOUT);
    command
}

/// Returns `None`, and counts the calling test as left out, if a script of tests/lab cannot work on this machine.
pub fn left_out(name: &str) -> Option<()> {
    let output = script(name).arg("check").output().expect("bash");
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout);
        let (what, remedy) = text.trim_end().split_once('\n').expect("what is missing, and how to get it");
        support::leave_out(&Missing::new(what, remedy));
    }
    output.status.success().then_some(())
}

/// Returns the output of a command, which must succeed.
pub fn successful(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    output
}

fn docker() -> Command {
    let mut command = Command::new("docker");
    command.timeout(TIMEOUT);
    command
}

/// Returns a command on a host: `ssh -F CONFIG OPTION.. HOST COMMAND`.
pub fn ssh(config: &Path, options: &[&str], host: &str, command: &str) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.arg("-F").arg(config).args(options).args([host, command]).timeout(TIMEOUT);
    ssh
}
