//! Mistakes in the options of containers, and values with which no container starts.

use super::{ContainerOptions, ResourceLimit, list_names, nearest};

/// The capabilities of Linux 5.9 and later, as capabilities(7) lists them, and `ALL`.
const CAPABILITIES: [&str; 42] = [
    "ALL",
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

/// The limits of resources that Docker and Podman know, as setrlimit(2) lists them.
const LIMITS: [&str; 15] = [
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
];
/// The security options that Docker or Podman knows.
const SECURITY_OPTIONS: [&str; 9] = [
    "apparmor",
    "label",
    "mask",
    "no-new-privileges",
    "proc-opts",
    "seccomp",
    "systempaths",
    "unmask",
    "writable-cgroups",
];

/// Options that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerOptionFault {
    /// Quotes that are not closed.
    #[error("the container options contain an unclosed quote: `{0}`")]
    Quote(String),
    /// An unknown option.
    #[error("unknown container option `{option}` (known: {known})")]
    Unknown {
        option: String,
        /// The known options.
        known: String,
        /// The known option that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A word that is not an option.
    #[error("`{0}` is not a container option: every option begins with `-`")]
    Word(String),
    /// An option without its value.
    #[error("container option `{0}` needs a value")]
    NoValue(String),
    /// An option with a value that it does not take.
    #[error("container option `{option}` must be {expected}, not `{value}`")]
    Value {
        option: &'static str,
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// An option that a container can have only once, with two values.
    #[error("container option `{option}` is given twice, with different values: `{first}` and `{second}`")]
    Twice {
        option: &'static str,
        /// The first value.
        first: String,
        /// The second value.
        second: String,
    },
    /// A negative limit.
    #[error("container option `--ulimit {name}` has the negative limit {limit} (-1 means no limit)")]
    NegativeLimit {
        /// The resource.
        name: String,
        /// The limit.
        limit: i64,
    },
    /// A soft limit above the hard limit.
    #[error(
        "container option `--ulimit {name}={soft}:{hard}` has a soft limit above the hard limit (-1 means no limit)"
    )]
    SoftLimit {
        /// The resource.
        name: String,
        /// The soft limit.
        soft: i64,
        /// The hard limit.
        hard: i64,
    },
    /// An unknown capability.
    #[error("unknown capability `{capability}` in container option `--cap-add`")]
    Capability {
        capability: String,
        /// The capability that was probably meant.
        nearest: Option<&'static str>,
    },
    /// An unknown limit of a resource.
    #[error("unknown limit `{name}` in container option `--ulimit` (known: {known})")]
    Limit {
        name: String,
        /// The known limits.
        known: String,
        /// The limit that was probably meant.
        nearest: Option<&'static str>,
    },
    /// An unknown security option.
    #[error("unknown option `{name}` in container option `--security-opt` (known: {known})")]
    Security {
        name: String,
        /// The known options.
        known: String,
        /// The option that was probably meant.
        nearest: Option<&'static str>,
    },
    /// An unknown namespace.
    #[error("container option `{option}` does not know the namespace `{value}` (known: {known}, container:NAME)")]
    Namespace {
        option: &'static str,
        value: String,
        /// The known values.
        known: String,
    },
    /// The network of another container.
    #[error(
        "container option `--network {0}` cannot be used: a worker cannot join the network of another container (use `host`, \
         `bridge`, `none` or the name of a network)"
    )]
    ContainerNetwork(String),
}

impl ContainerOptionFault {
    /// Returns the known option or value that was probably meant.
    pub fn nearest(&self) -> Option<&'static str> {
        match self {
            Self::Unknown { nearest, .. }
            | Self::Capability { nearest, .. }
            | Self::Limit { nearest, .. }
            | Self::Security { nearest, .. } => *nearest,
            _ => None,
        }
    }
}

impl ContainerOptions {
    /// Returns a value with which no container starts.
    pub(super) fn fault(&self) -> Option<ContainerOptionFault> {
        let limit = self.limits.iter().find_map(ResourceLimit::fault);
        let capability = self.capabilities.iter().find_map(|capability| unknown_capability(capability));
        let network = self.network.iter().find(|network| network.starts_with("container:"));
        let namespace = unknown_namespace("--ipc", self.ipc.as_deref(), &["none", "private", "shareable", "host"])
            .or_else(|| unknown_namespace("--pid", self.pid.as_deref(), &["private", "host"]));
        let network = network.cloned().map(ContainerOptionFault::ContainerNetwork);
        let security = self.security.iter().find_map(|option| unknown_security_option(option));
        limit.or(capability).or(security).or(namespace).or(network)
    }
}

impl ResourceLimit {
    fn fault(&self) -> Option<ContainerOptionFault> {
        let ResourceLimit { name, soft, hard } = self.clone();
        if !LIMITS.contains(&name.as_str()) {
            let nearest = nearest(&name, LIMITS.iter().copied());
            return Some(ContainerOptionFault::Limit { name, known: list_names(LIMITS.iter().copied()), nearest });
        }
        if let Some(limit) = [soft, hard].into_iter().find(|limit| *limit < -1) {
            return Some(ContainerOptionFault::NegativeLimit { name, limit });
        }
        let is_above = hard != -1 && (soft == -1 || soft > hard);
        is_above.then_some(ContainerOptionFault::SoftLimit { name, soft, hard })
    }
}

/// Returns the fault of a namespace that no engine knows. Podman also joins that of a path.
fn unknown_namespace(option: &'static str, value: Option<&str>, known: &[&str]) -> Option<ContainerOptionFault> {
    let joined = |value: &str| value.strip_prefix("container:").or(value.strip_prefix("ns:")).map(str::len);
    let is_known = |value: &str| known.contains(&value) || joined(value).is_some_and(|length| length > 0);
    let value = value.filter(|value| !is_known(value))?.to_owned();
    Some(ContainerOptionFault::Namespace { option, value, known: list_names(known.iter().copied()) })
}

fn unknown_capability(capability: &str) -> Option<ContainerOptionFault> {
    let upper = capability.to_ascii_uppercase();
    let name = upper.strip_prefix("CAP_").unwrap_or(&upper);
    let is_known = CAPABILITIES.contains(&name);
    let nearest = nearest(name, CAPABILITIES.iter().copied());
    (!is_known).then(|| ContainerOptionFault::Capability { capability: capability.to_owned(), nearest })
}

fn unknown_security_option(option: &str) -> Option<ContainerOptionFault> {
    let name = option.split(['=', ':']).next().unwrap_or_default();
    let nearest = nearest(name, SECURITY_OPTIONS.iter().copied());
    let known = list_names(SECURITY_OPTIONS.iter().copied());
    (!SECURITY_OPTIONS.contains(&name)).then(|| ContainerOptionFault::Security {
        name: name.to_owned(),
        known,
        nearest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        ContainerOptions::parse(text).expect_err(text).to_string()
    }

    #[test]
    fn values_with_which_no_container_starts_are_refused() {
        assert_eq!(
            fault("--pid host --pid=private"),
            "container option `--pid` is given twice, with different values: `host` and `private`"
        );
        assert!(fault("--network host --net none").starts_with("container option `--network` is given twice"));
        assert_eq!(ContainerOptions::parse("--net host --network host").unwrap().network.as_deref(), Some("host"));
        let namespace = "container option `--ipc` does not know the namespace `hots` (known: none, private, shareable, host, \
                         container:NAME)";
        assert_eq!(fault("--ipc hots"), namespace);
        assert!(fault("--pid none").contains("the namespace `none` (known: private, host, container:NAME)"));
        assert!(ContainerOptions::parse("--ipc shareable --pid container:x").is_ok());
        assert!(fault("--net=container:x").starts_with("container option `--network container:x` cannot be used"));
        for limits in ["5:4", "-1:4"] {
            let message = fault(&format!("--ulimit nofile={limits}"));
            assert!(message.contains(&format!("`--ulimit nofile={limits}` has a soft limit above")), "{message}");
        }
        assert!(fault("--ulimit nofile=-2").contains("the negative limit -2 (-1 means no limit)"));
        assert!(ContainerOptions::parse("--ulimit nofile=4:-1 --ulimit core=0 --ulimit memlock=-1:-1").is_ok());
        assert!(
            fault("--ulimit nofiles=4")
                .starts_with("unknown limit `nofiles` in container option `--ulimit` (known: core, ")
        );
        assert_eq!(ContainerOptions::parse("--security-opt secomp=unconfined").unwrap_err().nearest(), Some("seccomp"));
        assert!(
            fault("--security-opt x").starts_with("unknown option `x` in container option `--security-opt` (known: ")
        );
        assert!(ContainerOptions::parse("--security-opt label:disable --security-opt no-new-privileges").is_ok());
        assert_eq!(fault("--cap-add SYS_NICER"), "unknown capability `SYS_NICER` in container option `--cap-add`");
        assert_eq!(ContainerOptions::parse("--cap-add SYS_NICER").unwrap_err().nearest(), Some("SYS_NICE"));
        assert!(ContainerOptions::parse("--cap-add cap_sys_nice --cap-add ALL --cap-add=sys_ptrace").is_ok());
    }
}
