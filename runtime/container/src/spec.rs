//! The container of a worker: its mounts, rights and limits. A container gets only what its worker needs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, DeviceMapping, DeviceRequest, HealthConfig, HostConfig, Mount, MountType, ResourcesUlimits,
};
use indexmap::IndexMap;
use nix::unistd::{getgid, getgroups, getuid};

use super::EngineFacts;
use flagperf_config::{ContainerOptions, ResourceLimit, Volume};

/// Resource limits that FlagPerf sets: 64 MiB of stack, and unlimited locked memory for the buffers of devices.
const STACK_BYTES: i64 = 64 << 20;
const LOCKED_MEMORY: &str = "memlock";
const UNLIMITED: i64 = -1;
/// Largest number of processes and threads: several hundred for each engine on a machine with many cores.
const TASKS_MAX: i64 = 16384;
/// The only writable folder other than the folder of the results. Engines compile code there and load it.
const TEMPORARY: (&str, &str) = ("/tmp", "rw,exec,nosuid,nodev,mode=1777");
/// The network of a container without access to other machines, and with such access.
const NO_NETWORK: &str = "none";
const NETWORK: &str = "bridge";

/// A container for one worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerSpec {
    /// Id of the image.
    pub image: String,
    /// Name of the container, for users.
    pub name: String,
    pub labels: IndexMap<String, String>,
    /// The program and its arguments, with paths inside the container.
    pub argv: Vec<String>,
    /// Files that set environment variables before the program starts, in order.
    pub variable_files: Vec<PathBuf>,
    /// Environment variables in addition to those of the image.
    pub environment: IndexMap<String, String>,
    /// The current directory of the program.
    pub folder: PathBuf,
    /// Files and folders of this machine.
    pub mounts: Vec<MountPoint>,
    /// Limit of memory and swap in bytes.
    pub memory: Option<u64>,
    /// Size of shared memory in bytes.
    pub shared_memory: Option<u64>,
    /// Whether the worker needs a network.
    pub has_network: bool,
    /// Whether the container keeps the engine's limit of locked memory, because the engine is not permitted to raise it.
    pub keeps_locked_memory: bool,
    /// Options of the site or the vendor.
    pub options: ContainerOptions,
}

/// A file or folder of this machine that a container sees at the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// The path; it must exist.
    pub path: PathBuf,
    /// Whether the container may write to it.
    pub is_writable: bool,
}

impl ContainerSpec {
    /// Adds a file or folder, unless a mounted folder already contains it with the same rights.
    pub fn mount(&mut self, path: &Path, is_writable: bool) {
        let contains = |mount: &MountPoint| path.starts_with(&mount.path) && mount.is_writable == is_writable;
        if !self.mounts.iter().any(contains) {
            self.mounts.retain(|mount| mount.path != path);
            self.mounts.push(MountPoint { path: path.to_owned(), is_writable });
        }
    }

    /// Returns the request that creates the container. `socket` is the folder of the worker's socket on this machine and in the
    /// container.
    pub(super) fn request(&self, engine: &EngineFacts, socket: (&Path, &Path)) -> ContainerCreateBody {
        let variables = self.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let added = self.options.environment.iter().map(|(name, value)| format!("{name}={value}"));
        ContainerCreateBody {
            image: Some(self.image.clone()),
            user: Some(user(engine)),
            env: Some(added.chain(variables).collect()),
            // Replaces the program that the image would start.
            entrypoint: Some(self.command()),
            cmd: Some(Vec::new()),
            working_dir: Some(self.folder.to_string_lossy().into_owned()),
            labels: Some(self.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect()),
            healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
            host_config: Some(self.host_config(engine, socket)),
            ..ContainerCreateBody::default()
        }
    }

    /// Returns the command of the container: the program, or a shell that sources the files with variables and then
    /// executes the program.
    fn command(&self) -> Vec<String> {
        if self.variable_files.is_empty() {
            return self.argv.clone();
        }
        let script = format!(
            "set -a; for file in \"${{@:1:{count}}}\"; do . \"$file\"; done; set +a; shift {count}; exec \"$@\"",
            count = self.variable_files.len()
        );
        let files = self.variable_files.iter().map(|file| file.to_string_lossy().into_owned());
        let shell = ["/bin/bash", "-c", &script, "worker"].map(str::to_owned);
        shell.into_iter().chain(files).chain(self.argv.iter().cloned()).collect()
    }

    fn host_config(&self, engine: &EngineFacts, socket: (&Path, &Path)) -> HostConfig {
        let options = &self.options;
        let memory = self.memory.map(u64::cast_signed);
        let (temporary, settings) = TEMPORARY;
        let network = options.network.as_deref().unwrap_or(if self.has_network { NETWORK } else { NO_NETWORK });
        // Podman opens the file of a profile itself.
        let security = if engine.is_podman() { options.security.clone() } else { options.security_with_profile() };
        let security = ["no-new-privileges".to_owned()].into_iter().chain(security);
        HostConfig {
            mounts: Some(self.all_mounts(socket)),
            tmpfs: Some(HashMap::from([(temporary.to_owned(), settings.to_owned())])),
            readonly_rootfs: Some(true),
            cap_drop: Some(vec!["ALL".to_owned()]),
            cap_add: non_empty(options.capabilities.clone()),
            security_opt: Some(security.collect()),
            privileged: Some(options.privileged),
            network_mode: Some(network.to_owned()),
            ipc_mode: options.ipc.clone(),
            pid_mode: options.pid.clone(),
            group_add: non_empty(groups(engine).into_iter().chain(options.groups.iter().cloned()).collect()),
            devices: non_empty(devices(options)),
            device_cgroup_rules: non_empty(options.device_rules.clone()),
            device_requests: non_empty(options.gpus.iter().map(|gpus| device_request(gpus)).collect()),
            runtime: options.runtime.clone(),
            ulimits: Some(limits(options, engine.is_rootless || self.keeps_locked_memory)),
            shm_size: options.shm_size.map(|bytes| bytes.0).or(self.shared_memory).map(u64::cast_signed),
            memory,
            // The limit of memory and swap together is the same, so a worker cannot swap: it would measure the speed of the
            // disk.
            memory_swap: memory,
            pids_limit: Some(TASKS_MAX),
            // An init process reaps orphaned processes and forwards signals.
            init: Some(true),
            ..HostConfig::default()
        }
    }

    fn all_mounts(&self, socket: (&Path, &Path)) -> Vec<Mount> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let volume = |source: &Path, target: &Path, is_read_only: bool| Volume {
            source: path(source),
            target: path(target),
            is_read_only,
        };
        let own = self.mounts.iter().map(|mount| volume(&mount.path, &mount.path, !mount.is_writable));
        let own = own.chain([volume(socket.0, socket.1, true)]);
        let bind = |volume: Volume| Mount {
            typ: Some(MountType::BIND),
            source: Some(volume.source),
            target: Some(volume.target),
            read_only: Some(volume.is_read_only),
            ..Mount::default()
        };
        own.chain(self.options.volumes.iter().cloned()).map(bind).collect()
    }
}

/// Returns the list, or `None` if it is empty.
fn non_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// Returns the user of the worker: the user of this process, so that the worker's files belong to this user.
fn user(engine: &EngineFacts) -> String {
    if engine.is_rootless { "0:0".to_owned() } else { format!("{}:{}", getuid(), getgid()) }
}

/// Returns the supplementary groups of this process, which may grant access to devices and data. An engine without root
/// privileges cannot add them.
fn groups(engine: &EngineFacts) -> Vec<String> {
    if engine.is_rootless || getuid().is_root() {
        return Vec::new();
    }
    getgroups().unwrap_or_default().into_iter().map(|group| group.to_string()).collect()
}

fn devices(options: &ContainerOptions) -> Vec<DeviceMapping> {
    let mapping = |file: &flagperf_config::DeviceFile| DeviceMapping {
        path_on_host: Some(file.source.clone()),
        path_in_container: Some(file.target.clone()),
        cgroup_permissions: Some(file.permissions.clone()),
    };
    options.devices.iter().map(mapping).collect()
}

/// Returns the request for devices of the vendor's container runtime, from `all`, a number, or `device=0,1`.
fn device_request(gpus: &str) -> DeviceRequest {
    let ids = gpus.trim_matches('"').strip_prefix("device=");
    let ids = ids.map(|ids| ids.split(',').map(str::to_owned).collect::<Vec<_>>());
    let count = gpus.parse().unwrap_or(-1);
    DeviceRequest {
        count: ids.is_none().then_some(count),
        device_ids: ids,
        capabilities: Some(vec![vec!["gpu".to_owned()]]),
        ..DeviceRequest::default()
    }
}

/// Returns the resource limits: FlagPerf's limits, unless the options set them. Raising the limit of locked memory needs
/// privileges that not every engine has.
fn limits(options: &ContainerOptions, keeps_locked_memory: bool) -> Vec<ResourcesUlimits> {
    let is_set = |name: &str| {
        (keeps_locked_memory && name == LOCKED_MEMORY) || options.limits.iter().any(|limit| limit.name == name)
    };
    let own = [("stack", STACK_BYTES), (LOCKED_MEMORY, UNLIMITED)];
    let own = own.into_iter().filter(|(name, _)| !is_set(name));
    let own = own.map(|(name, limit)| ResourceLimit { name: name.to_owned(), soft: limit, hard: limit });
    let entry = |limit: ResourceLimit| ResourcesUlimits {
        name: Some(limit.name),
        soft: Some(limit.soft),
        hard: Some(limit.hard),
    };
    own.chain(options.limits.iter().cloned()).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(is_rootless: bool) -> EngineFacts {
        EngineFacts {
            name: "Docker".into(),
            version: "20".into(),
            socket: "/s".into(),
            is_rootless,
            limits_memory: true,
        }
    }

    fn request(spec: &ContainerSpec, is_rootless: bool) -> ContainerCreateBody {
        spec.request(&engine(is_rootless), (Path::new("/tmp/x"), Path::new("/run/flagperf")))
    }

    #[test]
    fn a_container_has_no_rights_unless_an_option_names_them() {
        let host = request(&ContainerSpec::default(), false).host_config.unwrap();
        assert_eq!(host.cap_drop, Some(vec!["ALL".to_owned()]));
        assert_eq!((host.privileged, host.readonly_rootfs), (Some(false), Some(true)));
        assert_eq!((host.network_mode.as_deref(), host.cap_add, host.devices), (Some("none"), None, None));
        assert_eq!(host.security_opt, Some(vec!["no-new-privileges".to_owned()]));
        assert!(host.mounts.unwrap().iter().all(|mount| mount.read_only == Some(true)));
        let options = ContainerOptions::parse("--privileged --cap-add SYS_NICE --device /dev/x --net host").unwrap();
        let host = request(&ContainerSpec { options, ..ContainerSpec::default() }, false).host_config.unwrap();
        assert_eq!((host.privileged, host.network_mode.as_deref()), (Some(true), Some("host")));
        assert_eq!((host.cap_add.unwrap().len(), host.devices.unwrap().len()), (1, 1));
        let host =
            request(&ContainerSpec { has_network: true, ..ContainerSpec::default() }, false).host_config.unwrap();
        assert_eq!(host.network_mode.as_deref(), Some("bridge"));
    }

    #[test]
    fn docker_gets_the_content_of_a_seccomp_profile_and_podman_its_path() {
        let options = ContainerOptions::parse("--security-opt seccomp=/p.json").unwrap();
        let options = ContainerOptions { seccomp_profile: Some("{}".to_owned()), ..options };
        let spec = ContainerSpec { options, ..ContainerSpec::default() };
        let sent = |name: &str| {
            let engine = EngineFacts { name: name.to_owned(), ..engine(false) };
            let request = spec.request(&engine, (Path::new("/tmp/x"), Path::new("/run/flagperf")));
            request.host_config.unwrap().security_opt.unwrap()
        };
        assert_eq!(sent("Docker"), ["no-new-privileges", "seccomp={}"]);
        assert_eq!(sent("Podman"), ["no-new-privileges", "seccomp=/p.json"]);
    }

    #[test]
    fn files_of_a_result_belong_to_the_user_of_this_process() {
        assert_eq!(request(&ContainerSpec::default(), false).user, Some(format!("{}:{}", getuid(), getgid())));
        assert_eq!(request(&ContainerSpec::default(), true).user.as_deref(), Some("0:0"));
    }

    #[test]
    fn a_path_below_a_mounted_folder_is_mounted_only_with_other_rights() {
        let mut spec = ContainerSpec::default();
        for (path, is_writable) in [("/a", false), ("/a/b", false), ("/a/c", true), ("/ab", false), ("/a", false)] {
            spec.mount(Path::new(path), is_writable);
        }
        let paths: Vec<_> = spec.mounts.iter().map(|mount| (mount.path.to_str().unwrap(), mount.is_writable)).collect();
        assert_eq!(paths, [("/a", false), ("/a/c", true), ("/ab", false)]);
    }

    #[test]
    fn files_with_variables_are_arguments_of_the_shell_and_no_text_of_it() {
        let spec = ContainerSpec {
            argv: vec!["/p".into(), "work".into()],
            variable_files: vec!["/a b;rm".into(), "/c".into()],
            ..ContainerSpec::default()
        };
        let command = request(&spec, false).entrypoint.unwrap();
        assert_eq!(command[3..], ["worker", "/a b;rm", "/c", "/p", "work"]);
        assert!(!command[2].contains("rm"), "{command:?}");
        assert_eq!(command[..2], ["/bin/bash", "-c"]);
    }

    #[test]
    fn devices_of_a_runtime_are_all_some_or_a_number() {
        let request = |text: &str| {
            let request = device_request(text);
            (request.count, request.device_ids)
        };
        assert_eq!(request("all"), (Some(-1), None));
        assert_eq!(request("2"), (Some(2), None));
        assert_eq!(request("\"device=0,1\""), (None, Some(vec!["0".to_owned(), "1".to_owned()])));
    }

    #[test]
    fn limits_of_the_options_replace_those_of_flagperf() {
        let options = ContainerOptions::parse("--ulimit memlock=1:2 --ulimit nofile=9").unwrap();
        let names = |keeps_locked_memory| {
            let limits = limits(&options, keeps_locked_memory);
            limits.into_iter().map(|limit| (limit.name.unwrap(), limit.soft.unwrap())).collect::<Vec<_>>()
        };
        let named =
            |list: &[(&str, i64)]| list.iter().map(|(name, soft)| ((*name).to_owned(), *soft)).collect::<Vec<_>>();
        assert_eq!(names(false), named(&[("stack", STACK_BYTES), ("memlock", 1), ("nofile", 9)]));
        assert_eq!(names(true), names(false));
        assert_eq!(super::limits(&ContainerOptions::default(), true).len(), 1);
    }
}
