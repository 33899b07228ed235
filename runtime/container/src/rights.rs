//! The rights that container options grant beyond what a worker needs, and with which an engine reaches processes and files
//! outside its container.
//!
//! Does not judge results.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::socket::candidates;
use flagperf_config::{ContainerOptions, DeviceFile, Volume};

/// Capabilities with which a process acts outside its container, by reading or changing other processes, the kernel, disks or the
/// clock.
const WIDE_CAPABILITIES: [&str; 10] = [
    "ALL",
    "BPF",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_MODULE",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_TIME",
];
/// Folders with the programs, the settings and the users' files of the machine. What lies in them may be mounted.
const SYSTEM_FOLDERS: [&str; 9] = ["/boot", "/dev", "/etc", "/home", "/proc", "/root", "/sys", "/usr", "/var"];
/// Ends of the names of the sockets of container engines.
const SOCKETS: [&str; 4] = ["docker.sock", "podman.sock", "containerd.sock", "crio.sock"];

/// Character devices that are memory or the log of the kernel.
const KERNEL_DEVICES: [&str; 4] = ["/dev/kmem", "/dev/kmsg", "/dev/mem", "/dev/port"];
/// The file by which the loader of an image executes other code in every process.
const PRELOAD: &str = "/etc/ld.so.preload";

/// Returns each such right, as a fragment. `engine` is the socket of the container engine.
pub fn wide_rights(options: &ContainerOptions, engine: &Path) -> Vec<String> {
    let mut rights = Vec::new();
    if options.privileged {
        rights.push("`--privileged` gives it all rights of the machine".to_owned());
    }
    rights.extend(options.volumes.iter().filter_map(|volume| right_of_mount(volume, engine)));
    let is_wide = |capability: &&String| {
        let upper = capability.to_ascii_uppercase();
        WIDE_CAPABILITIES.contains(&upper.strip_prefix("CAP_").unwrap_or(&upper))
    };
    let wide = options.capabilities.iter().filter(is_wide);
    rights.extend(wide.map(|name| format!("`--cap-add {name}` lets it act outside the container")));
    rights.extend(options.devices.iter().filter(|device| is_of_machine(device)).map(|device| {
        format!("`--device {}` gives it a disk, the memory or all devices of the machine", device.source)
    }));
    let switched_off = options.security.iter().filter(|option| option.ends_with("=unconfined"));
    rights.extend(switched_off.map(|option| format!("`--security-opt {option}` switches a protection off")));
    if options.pid.as_deref() == Some("host") {
        rights.push("`--pid host` lets it reach the processes of the machine".to_owned());
    }
    rights
}

/// Returns whether a device is a disk, memory of the kernel, or a folder of devices.
fn is_of_machine(device: &DeviceFile) -> bool {
    let path = fs::canonicalize(&device.source).unwrap_or_else(|_| (&device.source).into());
    let kind = fs::metadata(&path).map(|found| found.file_type());
    kind.is_ok_and(|kind| kind.is_block_device() || kind.is_dir())
        || KERNEL_DEVICES.iter().any(|known| path == Path::new(known))
}

/// Returns what a mount lets a container do; `None` if it is only data.
fn right_of_mount(volume: &Volume, engine: &Path) -> Option<String> {
    let Volume { source, target, is_read_only } = volume;
    let path = fs::canonicalize(source).unwrap_or_else(|_| source.into());
    let option = format!("`-v {source}:{target}`");
    if target == PRELOAD {
        return Some(format!("{option} makes it execute other code"));
    }
    if path == Path::new("/") || source.starts_with("/proc") {
        return Some(format!("{option} shows it all files of the machine"));
    }
    let contains = |socket: &Path| {
        let real = fs::canonicalize(socket).unwrap_or_else(|_| socket.to_owned());
        socket.starts_with(&path) || real.starts_with(&path)
    };
    let is_socket = SOCKETS.iter().any(|name| path.ends_with(name));
    let sockets = candidates().unwrap_or_default();
    if is_socket || contains(engine) || sockets.iter().any(|socket| socket.exists() && contains(socket)) {
        return Some(format!(
            "{option} gives it the socket of a container engine, and thereby all rights of the machine"
        ));
    }
    let is_system = SYSTEM_FOLDERS.iter().any(|folder| path == Path::new(folder));
    (is_system && !is_read_only).then(|| format!("{option} lets it change files of the machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(text: &str, engine: &Path) -> Vec<String> {
        wide_rights(&ContainerOptions::parse(text).unwrap(), engine)
    }

    #[test]
    fn options_that_lead_out_of_the_container_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let engine = folder.path().join("engine.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&engine).unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("root")).unwrap();
        let (shown, path) = (folder.path().display().to_string(), engine.display().to_string());
        for (options, right) in [
            ("--privileged".to_owned(), "`--privileged` gives it all rights"),
            ("-v /:/host".to_owned(), "`-v /:/host` shows it all files of the machine"),
            ("-v /:/host:ro".to_owned(), "shows it all files of the machine"),
            (format!("-v {shown}/root:/x"), "shows it all files of the machine"),
            (format!("-v {path}:/e.sock"), "gives it the socket of a container engine"),
            (format!("-v {shown}:/x:ro"), "gives it the socket of a container engine"),
            ("-v /somewhere/docker.sock:/x".to_owned(), "gives it the socket of a container engine"),
            ("--mount type=bind,src=/etc,dst=/x".to_owned(), "`-v /etc:/x` lets it change files of the machine"),
            ("--cap-add cap_sys_admin".to_owned(), "`--cap-add cap_sys_admin` lets it act outside the container"),
            ("-v /proc/1/root:/x:ro".to_owned(), "shows it all files of the machine"),
            ("-v /opt/x:/etc/ld.so.preload".to_owned(), "makes it execute other code"),
            ("--device /dev".to_owned(), "`--device /dev` gives it a disk, the memory or all devices"),
            ("--device /dev/kmsg".to_owned(), "gives it a disk, the memory or all devices"),
            ("--security-opt systempaths=unconfined".to_owned(), "switches a protection off"),
            ("--pid host".to_owned(), "`--pid host` lets it reach the processes"),
        ] {
            let found = rights(&options, &engine);
            assert!(found.len() == 1 && found[0].contains(right), "{options}: {found:?}");
        }
        let harmless = "--gpus all -v /dev/shm:/dev/shm -v /etc:/x:ro -v /usr/local:/usr/local --cap-add SYS_NICE --ipc host \
                        --network host --security-opt no-new-privileges --device /dev/null";
        assert_eq!(rights(harmless, &engine), [""; 0]);
    }
}
