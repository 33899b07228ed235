//! host.yaml: where and how the site runs. Nothing in it changes what is measured.
//!
//! FlagPerf lacks ten of its keys: `INTERFACE`, `LAUNCHER`, `SSH_CONFIG`, `HOST_TIMEOUT`, `BUSY_HOST`, `CONTAINER`,
//! `PHASE_TIMEOUT`, `WORKER_MEMORY`, `WORKER_PROTECTION` and `MONITOR_RATE`.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use serde::Deserialize;

use super::{ConfigKey, Owner, ValueKind, env};
use flagperf_core::units::{Bytes, Seconds};

const LEVELS: ValueKind = ValueKind::Word(&["DEBUG", "INFO", "WARNING", "ERROR"]);

/// The keys of host.yaml: those of FlagPerf, then those that only flagperf has.
pub const SITE: &[ConfigKey] = &[
    ConfigKey {
        name: "FLAGPERF_PATH",
        kind: ValueKind::OptionalText,
        default: Some("null"),
        about: "the checkout to run; by default, the one that contains the current directory",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "FLAGPERF_LOG_PATH",
        kind: ValueKind::Text,
        default: Some("result"),
        about: "the folder for the logs and records of runs",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "VENDOR",
        kind: ValueKind::Text,
        default: Some("cpu"),
        about: "the vendor whose device is measured: a folder in vendors/",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "FLAGPERF_LOG_LEVEL",
        kind: LEVELS,
        default: Some("INFO"),
        about: "the lowest level that is logged",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "LOG_CALL_INFORMATION",
        kind: ValueKind::Flag,
        default: Some("true"),
        about: "whether a log line contains the place that logged it",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "HOSTS",
        kind: ValueKind::NonEmptyTextList,
        default: Some("[localhost]"),
        about: "the machines with the devices",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "SSH_PORT",
        kind: ValueKind::Port,
        default: Some("22"),
        about: "the SSH port of the machines",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "HOSTS_PORTS",
        kind: ValueKind::Ports,
        default: Some("[2222]"),
        about: "the SSH ports inside FlagPerf's containers; has no effect, because processes in containers need no SSH",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "MASTER_PORT",
        kind: ValueKind::Port,
        default: Some("29501"),
        about: "the TCP port of the first host over which the processes that train a model together find each other",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "INTERFACE",
        kind: ValueKind::OptionalText,
        default: Some("null"),
        about: "the network card by which the processes that train a model together reach each other: its name on every host, such as `eth1`, or \
                the network of its address, such as `10.1.0.0/16`; null takes the card of the route to the other hosts",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "SHM_SIZE",
        kind: ValueKind::Size,
        default: Some("32G"),
        about: "the size of a container's shared memory",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "ACCE_CONTAINER_OPT",
        kind: ValueKind::OptionalText,
        default: Some("null"),
        about: "options of `docker run` that give a container access to the devices; null takes those of the vendor",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "PIP_SOURCE",
        kind: ValueKind::OptionalText,
        default: Some("null"),
        about: "the package index from which pip installs the requirements of a case",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "CLEAR_CACHES",
        kind: ValueKind::Flag,
        default: Some("false"),
        about: "whether the page cache is dropped before a case; the record has a warning if that is not permitted",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "ACCE_VISIBLE_DEVICE_ENV_NAME",
        kind: ValueKind::Variable,
        default: Some("null"),
        about: "the variable that selects the devices visible to a process: workers get `0`, unless the environment sets it",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "CASES",
        kind: ValueKind::TextMap,
        default: Some("{}"),
        about: "`<case>:<framework>[_<version>][:<hosts>x<devices>]`, or for a training `<case>:<framework>[_<version>]:<hardware>:<nnodes>:<nproc>:<repeat>`: the folder with its datasets and weights",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "LAUNCHER",
        kind: ValueKind::Word(&["auto", "local", "ssh", "slurm"]),
        default: Some("auto"),
        about: "how processes are started on HOSTS; auto selects slurm within a Slurm job, otherwise local for localhost and ssh for other hosts",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "SSH_CONFIG",
        kind: ValueKind::OptionalText,
        default: Some("null"),
        about: "a configuration file for ssh instead of your own; relative to FLAGPERF_PATH",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "HOST_TIMEOUT",
        kind: ValueKind::Count,
        default: Some("60"),
        about: "the time in seconds without contact after which a host counts as lost; it then stops the case that it runs",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "BUSY_HOST",
        kind: ValueKind::Word(&["refuse", "queue", "share"]),
        default: Some("refuse"),
        about: "what a run does while another run uses a host: refuse to start, wait until that run has ended, or share the host, which makes its results unofficial",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "CONTAINER",
        kind: ValueKind::Word(&["none", "docker"]),
        default: Some("none"),
        about: "where a case runs: none (directly on the machine) or docker (in a container of Docker or Podman)",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "PHASE_TIMEOUT",
        kind: ValueKind::Count,
        default: Some("86400"),
        about: "the time limit of a phase in seconds, after which it is killed",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "WORKER_MEMORY",
        kind: ValueKind::Size,
        default: Some("null"),
        about: "the limit of the memory of a worker and its processes, in which shared pages count in part; null means no limit",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "WORKER_PROTECTION",
        kind: ValueKind::Flag,
        default: Some("true"),
        about: "whether the system keeps workers and their engines from other processes (Landlock and seccomp)",
        owner: Owner::Site,
    },
    ConfigKey {
        name: "MONITOR_RATE",
        kind: ValueKind::PerSecond,
        default: Some("1"),
        about: "how many times per second processor, memory, power and devices are read during a case, at most 10; with 0 nothing is read, and the record has a warning",
        owner: Owner::Site,
    },
];

/// The values of host.yaml after environment and command line. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub struct Site {
    /// The checkout; relative paths start here.
    pub flagperf_path: PathBuf,
    /// Folder for the logs and records of runs.
    pub flagperf_log_path: PathBuf,
    /// The vendor whose device is measured.
    pub vendor: String,
    /// Lowest level that is logged: `DEBUG`, `INFO`, `WARNING` or `ERROR`.
    pub flagperf_log_level: String,
    /// Whether a log line contains the place that logged it.
    pub log_call_information: bool,
    /// The machines with the devices.
    pub hosts: Vec<String>,
    /// SSH port of the machines.
    pub ssh_port: u16,
    /// SSH ports inside containers.
    pub hosts_ports: Vec<u16>,
    /// Port over which the processes of a case find each other.
    pub master_port: u16,
    /// The network card over which they exchange data: its name, its network or its address.
    pub interface: Option<String>,
    /// Size of a container's shared memory.
    pub shm_size: Option<Bytes>,
    /// Options that give a container access to the devices.
    pub acce_container_opt: Option<String>,
    /// Package index for the requirements of cases.
    pub pip_source: Option<String>,
    /// Whether the page cache is dropped before a case.
    pub clear_caches: bool,
    /// Environment variable that selects the devices visible to a process.
    pub acce_visible_device_env_name: Option<String>,
    /// How processes are started on the machines.
    pub launcher: LauncherChoice,
    /// Configuration file for ssh; `None` selects the user's own.
    pub ssh_config: Option<PathBuf>,
    /// Time without contact after which a host counts as lost.
    pub host_timeout: Seconds,
    /// What a run does while another one uses a host.
    pub busy_host: BusyHost,
    /// What a case runs in.
    pub container: Container,
    /// Time limit of a phase, after which it is killed.
    pub phase_timeout: Seconds,
    /// Limit of the resident memory of a worker and the processes that it starts.
    pub worker_memory: Option<Bytes>,
    /// Whether workers restrict themselves before they run an engine.
    pub worker_protection: bool,
    /// Readings per second of each source that is read during a case; 0 means none.
    pub monitor_rate: u32,
}

/// How processes are started on the machines with the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LauncherChoice {
    /// Slurm within an allocation; otherwise `Local` for this machine and `Ssh` for others.
    Auto,
    /// As processes of this machine, whatever the host is called.
    Local,
    /// By the user's own ssh.
    Ssh,
    /// By a job step of Slurm.
    Slurm,
}

/// What a run does while another one uses a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BusyHost {
    /// It does not start.
    Refuse,
    /// It waits for the end of the other run.
    Queue,
    /// It runs at the same time, and its results are not official.
    Share,
}

/// What a case runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Container {
    /// No container: directly on the machine.
    None,
    /// A Docker container made from `docker_images/<vendor>/<framework>/Dockerfile`.
    Docker,
}

impl Site {
    /// Returns whether cases run on other machines, whose engines and data are unknown on this one.
    pub fn uses_other_hosts(&self) -> bool {
        match self.launcher {
            LauncherChoice::Auto => env::slurm_nodes().is_some() || !self.hosts.iter().all(|host| is_local(host)),
            LauncherChoice::Local => false,
            LauncherChoice::Ssh | LauncherChoice::Slurm => true,
        }
    }
}

/// Longest name of a host with that of a user, which is part of the name of a folder.
const HOST_NAME_MAX: usize = 200;

/// Returns whether ssh and folders can have this name, which no program takes for an option.
pub fn is_host_name(host: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    if host.len() > HOST_NAME_MAX {
        return false;
    }
    let is_host = |host: &str| is_part(host) || host.parse::<Ipv6Addr>().is_ok();
    host.split_once('@').map_or_else(|| is_host(host), |(user, host)| is_part(user) && is_host(host))
}

/// Returns whether `host` is this machine.
pub fn is_local(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "::1")
}
