//! host.yaml: where and how the site runs. Nothing in it changes what is measured.

use std::path::PathBuf;

use serde::Deserialize;

use super::{Key, Kind, Owner};
use crate::units::{Bytes, Seconds};

const LEVELS: Kind = Kind::Word(&["DEBUG", "INFO", "WARNING", "ERROR"]);

/// The keys of host.yaml: FlagPerf's, then ours.
pub const SITE: &[Key] = &[
    Key {
        name: "FLAGPERF_PATH",
        kind: Kind::OptionalText,
        default: Some("null"),
        about: "the checkout to run; by default the one around the current directory",
        owner: Owner::Site,
    },
    Key {
        name: "FLAGPERF_LOG_PATH",
        kind: Kind::Text,
        default: Some("result"),
        about: "where runs leave logs and records",
        owner: Owner::Site,
    },
    Key {
        name: "VENDOR",
        kind: Kind::Text,
        default: Some("cpu"),
        about: "whose device is measured: a folder in vendors/",
        owner: Owner::Site,
    },
    Key {
        name: "FLAGPERF_LOG_LEVEL",
        kind: LEVELS,
        default: Some("INFO"),
        about: "least serious line that is logged",
        owner: Owner::Site,
    },
    Key {
        name: "LOG_CALL_INFORMATION",
        kind: Kind::Flag,
        default: Some("true"),
        about: "whether a log line says where it was logged",
        owner: Owner::Site,
    },
    Key {
        name: "HOSTS",
        kind: Kind::Texts,
        default: Some("[localhost]"),
        about: "the machines that hold the devices",
        owner: Owner::Site,
    },
    Key {
        name: "SSH_PORT",
        kind: Kind::Port,
        default: Some("22"),
        about: "port of ssh on the machines",
        owner: Owner::Site,
    },
    Key {
        name: "HOSTS_PORTS",
        kind: Kind::Ports,
        default: Some("[2222]"),
        about: "ports of ssh inside containers",
        owner: Owner::Site,
    },
    Key {
        name: "MASTER_PORT",
        kind: Kind::Port,
        default: Some("29501"),
        about: "port where processes of a case meet",
        owner: Owner::Site,
    },
    Key {
        name: "SHM_SIZE",
        kind: Kind::Size,
        default: Some("32G"),
        about: "shared memory of a container",
        owner: Owner::Site,
    },
    Key {
        name: "ACCE_CONTAINER_OPT",
        kind: Kind::OptionalText,
        default: Some("null"),
        about: "options that give a container its devices",
        owner: Owner::Site,
    },
    Key {
        name: "PIP_SOURCE",
        kind: Kind::OptionalText,
        default: Some("null"),
        about: "package index inside containers",
        owner: Owner::Site,
    },
    Key {
        name: "CLEAR_CACHES",
        kind: Kind::Flag,
        default: Some("false"),
        about: "whether the page cache is dropped before a case; where that is not permitted, the record says so",
        owner: Owner::Site,
    },
    Key {
        name: "ACCE_VISIBLE_DEVICE_ENV_NAME",
        kind: Kind::Variable,
        default: Some("null"),
        about: "variable that says which devices a process sees: a worker gets `0` in it, unless the environment sets it",
        owner: Owner::Site,
    },
    Key {
        name: "CASES",
        kind: Kind::Map,
        default: Some("{}"),
        about: "`<case>:<framework>[_<version>]`: folder with its datasets and weights",
        owner: Owner::Site,
    },
    Key {
        name: "CONTAINER",
        kind: Kind::Word(&["none", "docker"]),
        default: Some("none"),
        about: "what a case runs in",
        owner: Owner::Site,
    },
    Key {
        name: "PHASE_TIMEOUT",
        kind: Kind::Count,
        default: Some("86400"),
        about: "seconds after which a phase is killed",
        owner: Owner::Site,
    },
    Key {
        name: "WORKER_MEMORY",
        kind: Kind::Size,
        default: Some("null"),
        about: "resident memory that a worker and the processes it starts may hold; null is no limit",
        owner: Owner::Site,
    },
];

/// host.yaml after environment and command line. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub struct Site {
    /// The checkout: relative paths count from here.
    pub flagperf_path: PathBuf,
    /// Where runs leave logs and records.
    pub flagperf_log_path: PathBuf,
    /// Whose device is measured.
    pub vendor: String,
    /// Least serious line that is logged: `DEBUG`, `INFO`, `WARNING`, `ERROR`.
    pub flagperf_log_level: String,
    /// Whether a log line says where it was logged.
    pub log_call_information: bool,
    /// The machines that hold the devices.
    pub hosts: Vec<String>,
    /// Port of ssh on the machines.
    pub ssh_port: u16,
    /// Ports of ssh inside containers.
    pub hosts_ports: Vec<u16>,
    /// Port where processes of a case meet.
    pub master_port: u16,
    /// Shared memory of a container.
    pub shm_size: Option<Bytes>,
    /// Options that give a container its devices.
    pub acce_container_opt: Option<String>,
    /// Package index inside containers.
    pub pip_source: Option<String>,
    /// Whether the page cache is dropped before a case.
    pub clear_caches: bool,
    /// Variable that says which devices a process sees.
    pub acce_visible_device_env_name: Option<String>,
    /// What a case runs in.
    pub container: Container,
    /// Time after which a phase is killed.
    pub phase_timeout: Seconds,
    /// Resident memory that a worker and the processes it starts may hold.
    pub worker_memory: Option<Bytes>,
}

/// What a case runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Container {
    /// Straight on the machine.
    None,
    /// A Docker container made from `docker_images/<vendor>/<framework>/Dockerfile`.
    Docker,
}

/// Whether `host` is this machine.
pub fn is_local(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "::1")
}
