//! This machine as another host: a sshd of the test's own on the loopback interface, whose users have their own cache folder.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::support::{self, Missing};

/// Programs of OpenSSH's server may be missing in PATH of a user.
const SSHD: &str = "/usr/sbin/sshd";
/// Where sshd expects an empty folder if root starts it.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";
/// Number of attempts to connect to a new sshd, and the time between two attempts.
const TRIES: u32 = 200;
const WAIT: Duration = Duration::from_millis(50);

/// A host named `other`. Its sshd ends when this value is dropped, and when the test is killed.
pub struct LoopbackHost {
    folder: TempDir,
    sshd: Child,
}

impl LoopbackHost {
    /// Starts sshd; `cache` is the cache folder of the programs that it starts. Where sshd is missing, the calling test is counted
    /// as left out.
    pub fn start(cache: &Path) -> Option<Self> {
        if !Path::new(SSHD).exists() {
            support::leave_out(&Missing::new("no sshd", "run `apt-get install openssh-server`"));
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        for key in ["host_key", "client_key"] {
            let made = command("ssh-keygen").args(["-t", "ed25519", "-q", "-N", "", "-f"]).arg(path.join(key)).status();
            assert!(made.expect("ssh-keygen").success());
        }
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port();
        let text = |name: &str| fs::read_to_string(path.join(name)).expect("a file");
        let write = |name: &str, text: &str| fs::write(path.join(name), text).expect("a file");
        write("known_hosts", &format!("[127.0.0.1]:{port} {}", text("host_key.pub")));
        let shown = path.display();
        write(
            "sshd_config",
            &format!(
                "ListenAddress 127.0.0.1\nPort {port}\nHostKey {shown}/host_key\nAuthorizedKeysFile {shown}/client_key.pub\n\
                 StrictModes no\nPidFile none\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
                 PermitRootLogin yes\nSetEnv XDG_CACHE_HOME={} FLAGPERF_HOST_LOCK=/dev/null\n",
                cache.display()
            ),
        );
        write(
            "config",
            &format!(
                "Host other\n    HostName 127.0.0.1\n    Port {port}\n    IdentityFile {shown}/client_key\n    IdentitiesOnly yes\n    \
                 IdentityAgent none\n    UserKnownHostsFile {shown}/known_hosts\n    GlobalKnownHostsFile none\n    \
                 StrictHostKeyChecking yes\n    BatchMode yes\n"
            ),
        );
        if nix::unistd::geteuid().is_root() {
            fs::create_dir_all(PRIVILEGE_SEPARATION).expect("the folder of sshd");
        }
        // The kernel kills sshd with the thread of the test.
        let mut sshd = command("setpriv");
        sshd.args(["--pdeathsig", "KILL", SSHD, "-D", "-E"])
            .arg(path.join("log"))
            .arg("-f")
            .arg(path.join("sshd_config"));
        let sshd = sshd.spawn().expect("setpriv starts");
        let log = path.join("log");
        let host = LoopbackHost { folder, sshd };
        let answers = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        let mut tries = 0;
        while !answers() {
            tries += 1;
            assert!(tries < TRIES, "{}", fs::read_to_string(log).unwrap_or_default());
            std::thread::sleep(WAIT);
        }
        Some(host)
    }

    /// Returns the configuration for `ssh -F`.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    /// Ends sshd and all of its connections. Programs that it has started keep running if they do not need the connection.
    pub fn kill(&self) {
        let listener = self.sshd.id();
        let children = fs::read_to_string(format!("/proc/{listener}/task/{listener}/children")).unwrap_or_default();
        for pid in std::iter::once(listener.to_string()).chain(children.split_whitespace().map(str::to_owned)) {
            // A connection may have ended in the meantime.
            let _ = command("kill").args(["-KILL", &pid]).status();
        }
    }
}

impl Drop for LoopbackHost {
    fn drop(&mut self) {
        self.kill();
        let _ = self.sshd.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a test that starts another host")]
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
