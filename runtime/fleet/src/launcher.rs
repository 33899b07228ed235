//! The table of launchers, which start processes on hosts. A launcher is a command line that runs an `sh` script on a
//! host and forwards its standard streams: ssh, srun, or sh itself.
//!
//! Slurm kills every process of a job step when the step ends, also when the connection of its srun breaks. A session
//! under Slurm therefore has a job step of its own: the agent prepares the folder of the session, and the process that
//! the user started then runs an srun that outlives it.

use std::ffi::OsString;

use super::protocol::SessionProcess;
use super::session::LOG_FILE;
use flagperf_config::{LauncherChoice, Site, env, is_local};
use flagperf_host::read_output;

/// Starts processes on hosts.
pub trait Launcher: Send + Sync {
    /// Name in `LAUNCHER` of host.yaml.
    fn name(&self) -> &'static str;
    /// One-line description.
    fn about(&self) -> &'static str;
    /// Returns the program and arguments that run `script` with `sh` on a host. The script gets the standard input and
    /// output of this program. `script` contains no single quotes.
    fn command(&self, host: &str, script: &str, site: &Site) -> Vec<OsString>;
    /// Whether the login shell of the user runs the script, after its start-up files.
    fn has_login_shell(&self) -> bool {
        false
    }
    /// Whether processes that an agent has started end with the agent. The launcher then starts the processes of sessions.
    fn starts_sessions(&self) -> bool {
        false
    }
    /// Returns the program and arguments that run the process of a session on a host. They keep running when this process ends.
    /// Empty unless [`Launcher::starts_sessions`].
    fn session_command(&self, host: &str, process: &SessionProcess) -> Vec<OsString> {
        let _ = (host, process);
        Vec::new()
    }
    /// Returns what the launcher knows about the state of a lost host; empty when it knows nothing.
    fn state_of(&self, host: &str) -> String {
        let _ = host;
        String::new()
    }
}

/// Every launcher, by name.
pub fn launchers() -> &'static [&'static dyn Launcher] {
    &[&Local, &Slurm, &Ssh]
}

/// Returns the launcher for a host.
pub(super) fn launcher_for(host: &str, choice: LauncherChoice) -> &'static dyn Launcher {
    match choice {
        LauncherChoice::Auto if env::slurm_nodes().is_some() => &Slurm,
        LauncherChoice::Auto if is_local(host) => &Local,
        LauncherChoice::Auto | LauncherChoice::Ssh => &Ssh,
        LauncherChoice::Local => &Local,
        LauncherChoice::Slurm => &Slurm,
    }
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Starts processes directly on this machine.
struct Local;

impl Launcher for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn about(&self) -> &'static str {
        "starts processes directly on this machine"
    }

    fn command(&self, _: &str, script: &str, _: &Site) -> Vec<OsString> {
        words(&["sh", "-c", script])
    }
}

/// The user's own OpenSSH, with its configuration, agent, jump hosts and known hosts.
struct Ssh;

impl Launcher for Ssh {
    fn name(&self) -> &'static str {
        "ssh"
    }

    fn about(&self) -> &'static str {
        "your own OpenSSH client, with its configuration, agent, jump hosts and known hosts"
    }

    fn has_login_shell(&self) -> bool {
        true
    }

    fn command(&self, host: &str, script: &str, site: &Site) -> Vec<OsString> {
        let mut command = words(&["ssh", "-T", "-a", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
        command.extend(words(&["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-o", "LogLevel=INFO"]));
        if let Some(config) = &site.ssh_config {
            command.extend([OsString::from("-F"), site.flagperf_path.join(config).into()]);
        }
        // The user's configuration of ssh may set a port for each host; the default port must not replace it.
        if site.ssh_port != DEFAULT_SSH_PORT {
            command.extend([OsString::from("-p"), site.ssh_port.to_string().into()]);
        }
        command.extend(words(&["--", host, &format!("exec sh -c '{script}'")]));
        command
    }
}

const DEFAULT_SSH_PORT: u16 = 22;

/// Starts processes as steps of a Slurm job, each on one node of the job.
struct Slurm;

impl Launcher for Slurm {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn about(&self) -> &'static str {
        "job steps of a Slurm allocation, one for each node"
    }

    fn command(&self, host: &str, script: &str, _: &Site) -> Vec<OsString> {
        job_step(host, "flagperf", &["sh", "-c", script].map(OsString::from))
    }

    /// Slurm kills every process of a job step when the step ends, so each session has a step of its own.
    fn starts_sessions(&self) -> bool {
        true
    }

    fn session_command(&self, host: &str, process: &SessionProcess) -> Vec<OsString> {
        let script = "umask 077; exec \"$0\" session \"$1\" >>\"$1/$2\" 2>&1";
        let shell = ["sh", "-c", script].map(OsString::from).to_vec();
        let arguments = vec![process.program.clone().into(), process.folder.clone().into(), LOG_FILE.into()];
        job_step(host, "flagperf-session", &[shell, arguments].concat())
    }

    fn state_of(&self, host: &str) -> String {
        let output = read_output(&["scontrol", "--oneliner", "show", "node", host], STATE_BYTES_MAX);
        let text = String::from_utf8_lossy(&output.unwrap_or_default()).into_owned();
        let field = |name: &str| text.split_whitespace().find(|word| word.starts_with(name)).map(str::to_owned);
        // The reason may contain spaces and extends to the end of the line.
        let reason = text.split_once("Reason=").map(|(_, reason)| format!("Reason={}", reason.trim()));
        let facts: Vec<String> = [field("State="), reason].into_iter().flatten().collect();
        if facts.is_empty() { String::new() } else { format!("Slurm reports for node {host}: {}", facts.join(", ")) }
    }
}

/// Returns the command that runs a program as a step of this job, on one node and beside the other steps.
fn job_step(node: &str, name: &str, program: &[OsString]) -> Vec<OsString> {
    let (node, name) = (format!("--nodelist={node}"), format!("--job-name={name}"));
    let step = ["srun", "--nodes=1", "--ntasks=1", &node, "--overlap", "--unbuffered", "--kill-on-bad-exit=0", &name];
    [&words(&step), program].concat()
}

/// Largest number of bytes of scontrol's output that are read.
const STATE_BYTES_MAX: u64 = 64 << 10;

/// Returns the nodes of the Slurm job in which this process runs; `None` outside a job.
///
/// # Errors
/// When scontrol does not expand the list of nodes.
pub(super) fn allocated_nodes() -> Option<Result<Vec<String>, String>> {
    let list = env::slurm_nodes()?;
    let output = read_output(&["scontrol", "show", "hostnames", &list], STATE_BYTES_MAX);
    let names = output.map(|output| String::from_utf8_lossy(&output).lines().map(str::to_owned).collect::<Vec<_>>());
    Some(
        names
            .filter(|names| !names.is_empty())
            .ok_or_else(|| format!("`scontrol show hostnames {list}` printed no node of the Slurm job")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_in_the_table_are_the_words_of_host_yaml() {
        let mut words = Vec::new();
        for launcher in launchers() {
            let choice: LauncherChoice = serde_yaml::from_str(launcher.name()).unwrap();
            assert_eq!(launcher_for("h", choice).name(), launcher.name());
            assert!(!launcher.about().is_empty());
            words.push(launcher.name());
        }
        assert_eq!(words, ["local", "slurm", "ssh"]);
    }
}
