//! Options that give a container access to devices, in the notation of `docker run`: `ACCE_CONTAINER_OPT` of host.yaml and
//! `container_options` of vendor.yaml.

use std::path::Path;

use super::entries::parse_bytes;
use super::{ContainerOptionFault, list_names, nearest};
use flagperf_core::units::Bytes;

/// The folder in which a container mounts the socket of its worker.
pub const WORKER_SOCKET_FOLDER: &str = "/run/flagperf";

/// Options of a container beyond those that every container of a run has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerOptions {
    /// Devices of the vendor's runtime: `all`, a number, or `device=0,1`.
    pub gpus: Option<String>,
    /// Device files.
    pub devices: Vec<DeviceFile>,
    /// Rules of the device control group: `c 195:* rmw`.
    pub device_rules: Vec<String>,
    /// Files and folders of the machine.
    pub volumes: Vec<Volume>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    /// Added capabilities of the kernel.
    pub capabilities: Vec<String>,
    /// Added groups.
    pub groups: Vec<String>,
    /// Security options: `seccomp=unconfined`.
    pub security: Vec<String>,
    /// The content of the file that a security option `seccomp=FILE` names. The plan reads it, because Docker expects the
    /// content.
    pub seccomp_profile: Option<String>,
    /// The namespace of shared memory: `host`.
    pub ipc: Option<String>,
    /// The namespace of processes: `host`.
    pub pid: Option<String>,
    /// The network: `host`.
    pub network: Option<String>,
    /// Limits of resources.
    pub limits: Vec<ResourceLimit>,
    /// Size of shared memory; replaces `SHM_SIZE`.
    pub shm_size: Option<Bytes>,
    /// The runtime that starts the container: `nvidia`.
    pub runtime: Option<String>,
    /// Whether the container has all rights of the machine.
    pub privileged: bool,
}

/// A device file in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFile {
    /// Path on the machine.
    pub source: String,
    /// Path in the container.
    pub target: String,
    /// What is permitted: some of `r`, `w`, `m`.
    pub permissions: String,
}

/// A file or folder of the machine in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Path on the machine.
    pub source: String,
    /// Path in the container.
    pub target: String,
    /// Whether the container may not write to it.
    pub is_read_only: bool,
}

/// A limit of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceLimit {
    /// Name: `memlock`.
    pub name: String,
    /// Soft limit; -1 means none.
    pub soft: i64,
    /// Hard limit; -1 means none.
    pub hard: i64,
}

/// An option.
struct OptionRow {
    name: &'static str,
    /// Another name.
    alias: &'static str,
    /// What a value is, for a message.
    expected: &'static str,
    /// Stores a value; `None` when it is none.
    set: fn(&mut ContainerOptions, &str) -> Option<()>,
}

const fn row(
    name: &'static str,
    alias: &'static str,
    expected: &'static str,
    set: fn(&mut ContainerOptions, &str) -> Option<()>,
) -> OptionRow {
    OptionRow { name, alias, expected, set }
}

const PATHS: &str = "`SOURCE:TARGET[:ro]` with absolute paths";
/// The modes of a volume, of Docker and of Podman.
const VOLUME_MODES: [&str; 25] = [
    "O",
    "U",
    "Z",
    "bind",
    "cached",
    "consistent",
    "delegated",
    "dev",
    "exec",
    "nocopy",
    "nodev",
    "noexec",
    "nosuid",
    "private",
    "rbind",
    "ro",
    "rprivate",
    "rshared",
    "rslave",
    "rw",
    "shared",
    "slave",
    "suid",
    "z",
    "",
];

/// The known options. All but [`SWITCH`] have a value.
const TABLE: &[OptionRow] = &[
    row("--gpus", "", "`all`, a number from 1 or `device=ID,..`", |options, value| {
        fill(&mut options.gpus, &gpus(value)?)
    }),
    row("--device", "", "`SOURCE[:TARGET[:rwm]]` with absolute paths", |options, value| {
        push(&mut options.devices, device(value))
    }),
    row("--device-cgroup-rule", "", "a rule such as `c 195:* rmw`", |options, value| {
        push(&mut options.device_rules, device_rule(value))
    }),
    row("--volume", "-v", PATHS, |options, value| push(&mut options.volumes, volume(value))),
    row("--mount", "", "`type=bind,source=SOURCE,target=TARGET[,readonly]`", |options, value| {
        push(&mut options.volumes, mount(value))
    }),
    row("--env", "-e", "`NAME=VALUE`", |options, value| push(&mut options.environment, variable(value))),
    row("--cap-add", "", "a capability", |options, value| push(&mut options.capabilities, text(value))),
    row("--group-add", "", "a group", |options, value| push(&mut options.groups, text(value))),
    row("--security-opt", "", "a security option", |options, value| push(&mut options.security, text(value))),
    row("--ipc", "", "a namespace", |options, value| fill(&mut options.ipc, value)),
    row("--pid", "", "a namespace", |options, value| fill(&mut options.pid, value)),
    row("--network", "--net", "a network", |options, value| fill(&mut options.network, value)),
    row("--ulimit", "", "`NAME=SOFT[:HARD]`", |options, value| push(&mut options.limits, limit(value))),
    row("--shm-size", "", "a number of bytes such as `32G`", |options, value| {
        options.shm_size = Some(bytes(value)?);
        Some(())
    }),
    row("--runtime", "", "a runtime", |options, value| fill(&mut options.runtime, value)),
    row(SWITCH, "", "true or false", |options, value| {
        options.privileged = value.parse().ok()?;
        Some(())
    }),
];

/// The option that needs no value.
const SWITCH: &str = "--privileged";
/// The options that a container can have only once.
const SINGLE: [&str; 6] = ["--gpus", "--ipc", "--pid", "--network", "--shm-size", "--runtime"];

impl ContainerOptions {
    /// Parses options as `docker run` accepts them: `--gpus all -v /a:/a --device=/dev/x`.
    ///
    /// # Errors
    /// When an option is unknown or its value is invalid.
    pub fn parse(text: &str) -> Result<Self, ContainerOptionFault> {
        let mut options = ContainerOptions::default();
        let words = shlex::split(text).ok_or_else(|| ContainerOptionFault::Quote(text.to_owned()))?;
        let mut words = words.into_iter();
        let mut values: Vec<(&'static str, String)> = Vec::new();
        while let Some(word) = words.next() {
            if !word.starts_with('-') {
                return Err(ContainerOptionFault::Word(word));
            }
            let (name, value) = split(&word);
            let row = TABLE.iter().find(|row| row.name == name || (row.alias == name && !name.is_empty()));
            let row = row.ok_or_else(|| unknown(name))?;
            let value = match value {
                Some(value) => value.to_owned(),
                None if row.name == SWITCH => "true".to_owned(),
                None => words.next().ok_or_else(|| ContainerOptionFault::NoValue(name.to_owned()))?,
            };
            if (row.set)(&mut options, &value).is_none() {
                return Err(ContainerOptionFault::Value { option: row.name, value, expected: row.expected });
            }
            let (option, is_single) = (row.name, SINGLE.contains(&row.name));
            if let Some((_, first)) =
                values.iter().find(|(name, first)| is_single && *name == option && *first != value)
            {
                return Err(ContainerOptionFault::Twice { option, first: first.clone(), second: value });
            }
            values.push((option, value));
        }
        options.fault().map_or(Ok(options), Err)
    }

    /// Returns the file with the profile of system calls; the last option counts, as for `docker run`.
    pub fn seccomp_file(&self) -> Option<&Path> {
        let profile = self.security.iter().filter_map(|option| seccomp_value(option)).next_back()?;
        // The engine knows these names. A text that begins with a brace is a profile.
        let is_file = !["unconfined", "builtin"].contains(&profile) && !profile.starts_with('{');
        is_file.then_some(Path::new(profile))
    }

    /// Returns the security options as Docker expects them: with the profile in place of its file.
    pub fn security_with_profile(&self) -> Vec<String> {
        let content = |option: &String| {
            let file = seccomp_value(option).filter(|value| self.seccomp_file() == Some(Path::new(value)));
            file.and(self.seccomp_profile.as_ref()).map(|profile| format!("seccomp={profile}"))
        };
        self.security.iter().map(|option| content(option).unwrap_or_else(|| option.clone())).collect()
    }
}

/// Returns the value of the security option `seccomp`; `None` for another option.
fn seccomp_value(option: &str) -> Option<&str> {
    option.strip_prefix("seccomp")?.strip_prefix(['=', ':'])
}

/// Splits `--name=value` and `-nvalue`.
fn split(word: &str) -> (&str, Option<&str>) {
    if word.starts_with("--") {
        return word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    }
    match word.split_at_checked(2) {
        Some((name, "")) => (name, None),
        Some((name, value)) => (name, Some(value.strip_prefix('=').unwrap_or(value))),
        None => (word, None),
    }
}

fn unknown(option: &str) -> ContainerOptionFault {
    let names = || TABLE.iter().map(|row| row.name);
    ContainerOptionFault::Unknown {
        option: option.to_owned(),
        known: list_names(names()),
        nearest: nearest(option, names()),
    }
}

fn fill(field: &mut Option<String>, value: &str) -> Option<()> {
    *field = Some(text(value)?);
    Some(())
}

fn push<T>(field: &mut Vec<T>, value: Option<T>) -> Option<()> {
    field.push(value?);
    Some(())
}

fn text(value: &str) -> Option<String> {
    Some(value.trim()).filter(|value| !value.is_empty()).map(str::to_owned)
}

fn absolute(path: &str) -> Option<String> {
    path.starts_with('/').then(|| path.to_owned())
}

fn device(value: &str) -> Option<DeviceFile> {
    let mut parts = value.split(':');
    let source = absolute(parts.next()?)?;
    let (target, permissions) = match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => (source.clone(), "rwm".to_owned()),
        (Some(target), None, _) if target.starts_with('/') => (target.to_owned(), "rwm".to_owned()),
        (Some(permissions), None, _) => (source.clone(), permissions.to_owned()),
        (Some(target), Some(permissions), None) => (absolute(target)?, permissions.to_owned()),
        _ => return None,
    };
    are_permissions(&permissions).then_some(DeviceFile { source, target, permissions })
}

/// Returns whether a text consists of some of the letters `rwm`, each once.
fn are_permissions(text: &str) -> bool {
    let is_once = |letter: char| "rwm".contains(letter) && text.matches(letter).count() == 1;
    !text.is_empty() && text.chars().all(is_once)
}

/// Returns a rule if the kernel knows its form: `c 195:* rmw`.
fn device_rule(value: &str) -> Option<String> {
    let parts: Vec<&str> = value.trim().split(' ').collect();
    let [kind, numbers, permissions] = parts[..] else { return None };
    let (major, minor) = numbers.split_once(':')?;
    let is_number = |text: &str| text == "*" || !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_valid = ["a", "b", "c"].contains(&kind) && is_number(major) && is_number(minor);
    (is_valid && are_permissions(permissions)).then(|| value.trim().to_owned())
}

/// Returns a request for devices of a runtime, without the quotes that Docker requires around several devices.
fn gpus(value: &str) -> Option<String> {
    let value = value.trim().trim_matches('"');
    let ids = value.strip_prefix("device=");
    let is_valid = match ids {
        Some(ids) => ids.split(',').all(|id| !id.is_empty() && !id.contains('=')),
        None => value == "all" || value.parse::<u32>().is_ok_and(|count| count > 0),
    };
    is_valid.then(|| value.to_owned())
}

fn volume(value: &str) -> Option<Volume> {
    let mut parts = value.split(':');
    let (source, target) = (absolute(parts.next()?)?, absolute(parts.next()?)?);
    let mode = parts.next().unwrap_or("rw");
    // Labels of SELinux and kinds of propagation are left out: they do not change what is accessible.
    let is_read_only = mode.split(',').any(|word| word == "ro");
    let is_valid = parts.next().is_none() && mode.split(',').all(|word| VOLUME_MODES.contains(&word));
    is_valid.then_some(Volume { source, target, is_read_only })
}

fn mount(value: &str) -> Option<Volume> {
    let (mut source, mut target, mut is_read_only) = (None, None, false);
    for part in value.split(',') {
        match part.split_once('=').unwrap_or((part, "true")) {
            ("type", "bind") => {}
            ("source" | "src", path) => source = Some(absolute(path)?),
            ("target" | "destination" | "dst", path) => target = Some(absolute(path)?),
            ("readonly" | "ro", word) => is_read_only = word.parse().ok()?,
            _ => return None,
        }
    }
    Some(Volume { source: source?, target: target?, is_read_only })
}

fn variable(value: &str) -> Option<(String, String)> {
    let (name, value) = value.split_once('=')?;
    (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
}

fn limit(value: &str) -> Option<ResourceLimit> {
    let (name, limits) = value.split_once('=')?;
    let (soft, hard) = limits.split_once(':').unwrap_or((limits, limits));
    Some(ResourceLimit { name: text(name)?, soft: soft.parse().ok()?, hard: hard.parse().ok()? })
}

fn bytes(value: &str) -> Option<Bytes> {
    parse_bytes(value).filter(|bytes| *bytes > 0).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        ContainerOptions::parse(text).expect_err(text).to_string()
    }

    #[test]
    fn options_of_flagperfs_vendors_are_understood() {
        let options = ContainerOptions::parse(
            " --gpus all -v /dev/shm:/dev/shm --device=/dev/davinci0 --device /dev/x:/dev/y:rw -e A=b=c --cap-add=SYS_NICE \
             --mount type=bind,src=/a,dst=/b,readonly --ulimit memlock=-1 --shm-size 1G --privileged --net=host \
             -v=/c:/c:ro,z --security-opt 'seccomp=unconfined' --runtime nvidia --group-add video --pid=host --ipc host \
             --device-cgroup-rule='c 195:* rmw'",
        )
        .unwrap();
        assert_eq!((options.gpus.as_deref(), options.network.as_deref()), (Some("all"), Some("host")));
        let targets: Vec<_> = options.volumes.iter().map(|volume| (&*volume.target, volume.is_read_only)).collect();
        assert_eq!(targets, [("/dev/shm", false), ("/b", true), ("/c", true)]);
        let devices: Vec<_> = options.devices.iter().map(|file| (&*file.target, &*file.permissions)).collect();
        assert_eq!(devices, [("/dev/davinci0", "rwm"), ("/dev/y", "rw")]);
        assert_eq!(options.environment, [("A".to_owned(), "b=c".to_owned())]);
        assert_eq!(options.limits, [ResourceLimit { name: "memlock".into(), soft: -1, hard: -1 }]);
        assert_eq!((options.shm_size, options.privileged), (Some(Bytes(1 << 30)), true));
        assert_eq!(options.device_rules, ["c 195:* rmw"]);
        assert_eq!(ContainerOptions::parse("").unwrap(), ContainerOptions::default());
    }

    #[test]
    fn an_unknown_option_names_the_known_ones() {
        let message = fault("--gpu all");
        assert!(message.starts_with("unknown container option `--gpu` (known: --gpus, --device,"), "{message}");
        let Err(ContainerOptionFault::Unknown { nearest, .. }) = ContainerOptions::parse("--gpu all") else { panic!() };
        assert_eq!(nearest, Some("--gpus"));
    }

    #[test]
    fn invalid_values_are_refused_with_what_is_expected() {
        assert_eq!(fault("--gpus"), "container option `--gpus` needs a value");
        assert_eq!(fault("all"), "`all` is not a container option: every option begins with `-`");
        assert_eq!(fault("-v 'a"), "the container options contain an unclosed quote: `-v 'a`");
        for text in [
            "-v a:/b",
            "-v /a",
            "-v /a:/b:ro:x",
            "-v /a:/b:or",
            "--gpus two",
            "--gpus 0",
            "--gpus device=",
            "--device /dev/x:rr",
            "--device-cgroup-rule 'd 1:3 r'",
            "--device-cgroup-rule 'c 1:x r'",
            "--device-cgroup-rule 'c 1:3'",
            "--device dev",
            "--device /dev/x:z",
            "--mount type=volume,src=/a",
            "-e A",
            "--ulimit x",
            "--shm-size lots",
            "--privileged=maybe",
        ] {
            assert!(fault(text).contains(" must be "), "{text}");
        }
    }

    #[test]
    fn docker_gets_the_profile_in_place_of_its_file() {
        let sent = |text: &str| {
            let options = ContainerOptions::parse(text).unwrap();
            let options = ContainerOptions { seccomp_profile: options.seccomp_file().map(|_| "{}".into()), ..options };
            options.security_with_profile()
        };
        assert_eq!(sent("--security-opt seccomp=/p.json"), ["seccomp={}"]);
        assert_eq!(sent("--security-opt seccomp=unconfined"), ["seccomp=unconfined"]);
        assert_eq!(sent("--security-opt label=disable --security-opt seccomp:/p"), ["label=disable", "seccomp={}"]);
        assert_eq!(sent("--security-opt 'seccomp={\"a\":1}'"), ["seccomp={\"a\":1}"]);
    }

    #[test]
    fn every_option_has_one_name() {
        for option in TABLE {
            let count = TABLE.iter().filter(|other| other.name == option.name || other.alias == option.name).count();
            assert_eq!(count, 1, "{}", option.name);
        }
    }
}
