//! The rights that container options grant beyond what a worker needs, and with which an engine reaches processes and files
//! outside its container.
//!
//! Does not judge results.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path};

use super::socket::candidates;
use flagperf_config::env::is_code_variable;
use flagperf_config::{ContainerOptions, DeviceFile, Volume};

/// Capabilities with which a process acts outside its container, by reading or changing other processes, the kernel, disks or the
/// clock.
const WIDE_CAPABILITIES: [&str; 16] = [
    "ALL",
    "AUDIT_CONTROL",
    "BPF",
    "CHECKPOINT_RESTORE",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "PERFMON",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_MODULE",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_TIME",
];
/// Capabilities with which it acts on the network of the machine, if it has that network.
const NETWORK_CAPABILITIES: [&str; 2] = ["NET_ADMIN", "NET_RAW"];
/// Folders with the programs and the settings of the machine, whose every part is one.
const SYSTEM_FOLDERS: [&str; 15] = [
    "/bin",
    "/boot",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/run/systemd",
    "/sbin",
    "/sys",
    "/usr",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/systemd",
    "/var/spool",
];
/// Folders with the users' and other programs' files. What lies in them may be data that is mounted.
const SHARED_FOLDERS: [&str; 6] = ["/dev", "/home", "/root", "/run", "/var", "/var/lib"];
/// Folders in system folders in which vendors install their own software.
const VENDOR_FOLDERS: [&str; 1] = ["/usr/local"];
/// Folders of users.
const USER_FOLDERS: [&str; 2] = ["/home", "/root"];
/// Ends of the names of the sockets of container engines.
const SOCKETS: [&str; 4] = ["docker.sock", "podman.sock", "containerd.sock", "crio.sock"];

/// Character devices that are memory or the log of the kernel.
const KERNEL_DEVICES: [&str; 4] = ["/dev/kmem", "/dev/kmsg", "/dev/mem", "/dev/port"];
/// Largest number of files in a folder of devices that are examined.
const DEVICES_MAX: usize = 10_000;
/// The memory of the kernel, as a file.
const KERNEL_MEMORY: &str = "/proc/kcore";
/// Files and folders of /proc by which the kernel is changed.
const KERNEL_SETTINGS: [&str; 8] = ["acpi", "bus", "fs", "irq", "kmsg", "scsi", "sys", "sysrq-trigger"];
/// The file by which the loader of an image executes other code in every process.
const PRELOAD: &str = "/etc/ld.so.preload";

/// Returns each such right, as a fragment. `engine` is the socket of the container engine, and `checkout` the folder of the
/// benchmark.
pub fn wide_rights(options: &ContainerOptions, engine: &Path, checkout: &Path) -> Vec<String> {
    let mut rights = Vec::new();
    if options.privileged {
        rights.push("`--privileged` gives it all rights of the machine".to_owned());
    }
    rights.extend(options.volumes.iter().filter_map(|volume| right_of_mount(volume, engine, checkout)));
    let has_network = options.network.as_deref() == Some("host");
    let is_wide = |capability: &&String| {
        let upper = capability.to_ascii_uppercase();
        let name = upper.strip_prefix("CAP_").unwrap_or(&upper);
        WIDE_CAPABILITIES.contains(&name) || has_network && NETWORK_CAPABILITIES.contains(&name)
    };
    let wide = options.capabilities.iter().filter(is_wide);
    rights.extend(wide.map(|name| format!("`--cap-add {name}` lets it act outside the container")));
    rights.extend(options.devices.iter().filter_map(right_of_device));
    rights.extend(options.device_rules.iter().filter_map(|rule| right_of_rule(rule)));
    let switched_off = options.security.iter().filter(|option| is_switched_off(option));
    rights.extend(switched_off.map(|option| format!("`--security-opt {option}` switches a protection off")));
    if let Some(pid) = options.pid.as_deref().filter(|pid| *pid != "private") {
        let whose = if pid == "host" { "the machine" } else { "another container" };
        rights.push(format!("`--pid {pid}` lets it reach the processes of {whose}"));
    }
    let code = options.environment.iter().filter(|(name, value)| is_code_variable(name) && !value.is_empty());
    rights.extend(code.map(|(name, value)| format!("`-e {name}={value}` makes it execute other code")));
    rights
}

/// Returns what a container shares with the machine or with other containers by its options, as fragments. Code outside the
/// container can thereby work for the engine, but FlagPerf's own containers have these options, too.
pub fn shared_parts(options: &ContainerOptions) -> Vec<String> {
    let mut shared = Vec::new();
    if options.network.as_deref() == Some("host") {
        shared.push("`--network host` lets the worker reach the network services of the machine".to_owned());
    }
    let ipc = options.ipc.as_deref().filter(|ipc| *ipc == "host" || ipc.contains(':'));
    shared.extend(ipc.map(|ipc| {
        let whose = if ipc == "host" { "the machine" } else { "another container" };
        format!("`--ipc {ipc}` shares memory with processes of {whose}, which is not counted for the worker")
    }));
    let is_socket = |path: &str| fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let sockets = options.volumes.iter().filter(|volume| is_socket(&volume.source));
    shared.extend(sockets.map(|Volume { source, target, .. }| {
        format!("`-v {source}:{target}` lets the worker reach the process of a socket")
    }));
    let profile = options.seccomp_file().map(Path::display);
    shared.extend(
        profile.map(|file| format!("`--security-opt seccomp={file}` replaces the engine's filter of system calls")),
    );
    shared
}

/// Returns whether a security option switches a protection off.
fn is_switched_off(option: &str) -> bool {
    let (name, value) = option.split_once(['=', ':']).unwrap_or((option, ""));
    matches!((name, value), (_, "unconfined") | ("label", "disable") | ("no-new-privileges", "false"))
        || name == "unmask"
}

/// Returns what a device file gives a container if it is a disk, memory of the kernel, or a folder with such files.
fn right_of_device(device: &DeviceFile) -> Option<String> {
    let option = format!("`--device {}`", device.source);
    let path = fs::canonicalize(&device.source).unwrap_or_else(|_| (&device.source).into());
    if path == Path::new("/dev") {
        return Some(format!("{option} gives it all devices of the machine"));
    }
    let mut next = vec![path];
    let mut examined = 0;
    while let Some(path) = next.pop() {
        let Ok(kind) = fs::metadata(&path).map(|found| found.file_type()) else { continue };
        examined += 1;
        if kind.is_block_device() {
            return Some(format!("{option} gives it a disk of the machine"));
        }
        if KERNEL_DEVICES.iter().any(|known| path == Path::new(known)) {
            return Some(format!("{option} gives it the memory or the log of the kernel"));
        }
        let is_folder = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
        if is_folder && examined < DEVICES_MAX {
            next.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    None
}

/// Returns what a rule such as `b 8:* rwm` permits if it includes disks or the memory of the kernel.
fn right_of_rule(rule: &str) -> Option<String> {
    let (kind, rest) = rule.split_once(' ').unwrap_or((rule, ""));
    let major = rest.split(':').next().unwrap_or_default();
    // Character devices with the major number 1 are those of the memory.
    let what = match (kind, major) {
        ("a", _) => "all devices",
        ("b", _) => "disks",
        ("c", "*" | "1") => "the memory",
        _ => return None,
    };
    Some(format!("`--device-cgroup-rule '{rule}'` permits it {what} of the machine"))
}

/// Returns what a mount lets a container do; `None` if it is only data.
fn right_of_mount(volume: &Volume, engine: &Path, checkout: &Path) -> Option<String> {
    let Volume { source, target, is_read_only } = volume;
    let path = fs::canonicalize(source).unwrap_or_else(|_| source.into());
    let option = format!("`-v {source}:{target}`");
    if Path::new(target) == Path::new(PRELOAD) {
        return Some(format!("{option} makes it execute other code"));
    }
    if path == Path::new("/") || shows_processes(&path) || shows_processes(Path::new(source)) {
        return Some(format!("{option} shows it all files of the machine"));
    }
    if path == Path::new(KERNEL_MEMORY) {
        return Some(format!("{option} shows it the memory of the kernel"));
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
    if *is_read_only {
        return None;
    }
    let checkout = fs::canonicalize(checkout).unwrap_or_else(|_| checkout.to_owned());
    if checkout.starts_with(&path) || path.starts_with(&checkout) {
        return Some(format!("{option} lets it change files of the benchmark"));
    }
    (is_of_system(&path) || is_of_system(Path::new(source)))
        .then(|| format!("{option} lets it change files of the machine"))
}

/// Returns whether a path of /proc leads to the files of processes: /proc itself, or the folder of a process.
fn shows_processes(path: &Path) -> bool {
    let Ok(below) = path.strip_prefix("/proc") else { return false };
    let is_process =
        |name: &str| ["self", "thread-self"].contains(&name) || name.bytes().all(|byte| byte.is_ascii_digit());
    below.components().next().is_none_or(|first| first.as_os_str().to_str().is_some_and(is_process))
}

/// Returns whether a file or folder is a program or a setting of the machine or of a user.
fn is_of_system(path: &Path) -> bool {
    let is_below = |folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
    let is_setting = path.strip_prefix("/proc").ok().and_then(|below| below.components().next());
    if is_setting.is_some_and(|first| KERNEL_SETTINGS.iter().any(|name| first.as_os_str() == *name)) {
        return true;
    }
    SHARED_FOLDERS.iter().any(|folder| path == Path::new(folder))
        || is_below(&SYSTEM_FOLDERS) && !is_below(&VENDOR_FOLDERS)
        || is_of_user(path)
}

/// Returns whether a path is the folder of a user, or is below it and hidden: the settings of a shell, keys.
fn is_of_user(path: &Path) -> bool {
    let Some(folder) = USER_FOLDERS.iter().find(|folder| path.starts_with(folder)) else { return false };
    let Ok(below) = path.strip_prefix(folder) else { return false };
    let is_hidden =
        |part: Component<'_>| matches!(part, Component::Normal(name) if name.as_encoded_bytes().starts_with(b"."));
    (*folder == "/home" && below.components().count() == 1) || below.components().any(is_hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKOUT: &str = "/work/checkout";

    fn rights(text: &str, engine: &Path) -> Vec<String> {
        wide_rights(&ContainerOptions::parse(text).unwrap(), engine, Path::new(CHECKOUT))
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
            ("--device /dev".to_owned(), "`--device /dev` gives it all devices of the machine"),
            ("--device /dev/kmsg".to_owned(), "gives it the memory or the log of the kernel"),
            ("--device-cgroup-rule 'b 8:* rwm'".to_owned(), "permits it disks of the machine"),
            ("--device-cgroup-rule 'a *:* rwm'".to_owned(), "permits it all devices of the machine"),
            ("--device-cgroup-rule 'c 1:1 r'".to_owned(), "permits it the memory of the machine"),
            ("-v /proc:/x:ro".to_owned(), "shows it all files of the machine"),
            ("-v /proc/kcore:/x:ro".to_owned(), "shows it the memory of the kernel"),
            ("-v /proc/sys/kernel:/x".to_owned(), "lets it change files of the machine"),
            ("-v /etc/passwd:/x".to_owned(), "lets it change files of the machine"),
            ("-v /usr/bin:/x".to_owned(), "lets it change files of the machine"),
            ("-v /home/me:/x".to_owned(), "lets it change files of the machine"),
            ("-v /home/me/.ssh:/x".to_owned(), "lets it change files of the machine"),
            ("-v /work:/x".to_owned(), "lets it change files of the benchmark"),
            (format!("-v {CHECKOUT}/vendors:/x"), "lets it change files of the benchmark"),
            ("--network host --cap-add NET_ADMIN".to_owned(), "lets it act outside the container"),
            ("--cap-add SYSLOG".to_owned(), "lets it act outside the container"),
            ("--security-opt label=disable".to_owned(), "switches a protection off"),
            ("--security-opt no-new-privileges=false".to_owned(), "switches a protection off"),
            ("-e LD_PRELOAD=/x.so".to_owned(), "`-e LD_PRELOAD=/x.so` makes it execute other code"),
            ("--pid container:other".to_owned(), "lets it reach the processes of another container"),
            ("--security-opt systempaths=unconfined".to_owned(), "switches a protection off"),
            ("--pid host".to_owned(), "`--pid host` lets it reach the processes"),
        ] {
            let found = rights(&options, &engine);
            assert!(found.len() == 1 && found[0].contains(right), "{options}: {found:?}");
        }
        let harmless = format!(
            "--gpus all -v /dev/shm:/dev/shm -v /etc:/x:ro -v /usr/local:/usr/local --cap-add SYS_NICE --ipc host --network host \
             --security-opt no-new-privileges --device /dev/null -v /procedures:/x -v /etcetera:/y -v /home/me/data:/z \
             -v /proc/cpuinfo:/proc/cpuinfo -v {CHECKOUT}/data:/data:ro --device-cgroup-rule 'c 195:* rmw' -e A=b \
             --cap-add NET_ADMIN"
        );
        let without_network = harmless.replace("--network host", "");
        assert_eq!(rights(&without_network, &engine), [""; 0]);
        assert_eq!(rights(&harmless.replace("--cap-add NET_ADMIN", ""), &engine), [""; 0]);
    }

    #[test]
    fn a_folder_of_devices_is_named_only_with_a_disk_or_memory_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
        link("/dev/null", "renderD128");
        std::fs::create_dir(folder.path().join("by-path")).unwrap();
        link("../renderD128", "by-path/pci");
        let option = format!("--device {}", folder.path().display());
        assert_eq!(rights(&option, Path::new("/none")), [""; 0], "a folder of GPUs");
        assert_eq!(rights("--device /dev/none-dri", Path::new("/none")), [""; 0]);
    }

    #[test]
    fn what_is_shared_with_the_machine_is_named_without_being_a_right() {
        let shared = |text: &str| shared_parts(&ContainerOptions::parse(text).unwrap());
        assert_eq!(shared("--gpus all --network bridge --ipc private"), [""; 0]);
        let found = shared("--network host --ipc host --security-opt seccomp=/p.json");
        assert_eq!(
            found,
            [
                "`--network host` lets the worker reach the network services of the machine",
                "`--ipc host` shares memory with processes of the machine, which is not counted for the worker",
                "`--security-opt seccomp=/p.json` replaces the engine's filter of system calls",
            ]
        );
        assert!(shared("--ipc container:x")[0].contains("shares memory with processes of another container"));
    }
}
