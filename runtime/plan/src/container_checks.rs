//! Checks of the options of containers: paths with which the container engine starts no container.

use std::path::{Component, Path, PathBuf};

use super::Catalogue;
use super::catalogue::missing_file;
use super::container::{container_options, option_text};
use flagperf_config::{Config, ContainerOptions, Finding, Origin, Volume, WORKER_SOCKET_FOLDER};

/// Files below `/proc` that the container runtime runc lets a mount replace.
const REPLACEABLE: [&str; 11] = [
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/net/dev",
    "/proc/slabinfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/sys/crypto/fips_enabled",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/uptime",
];

/// Reports options of containers that cannot be used.
pub(super) fn check_container_options(config: &Config, catalogue: &Catalogue, findings: &mut Vec<Finding>) {
    let options = match container_options(config, catalogue) {
        Ok(options) => options,
        Err(finding) => return findings.push(finding),
    };
    let (_, origin) = option_text(config);
    let mut found = impossible_mounts(config, &options);
    let sources = options.volumes.iter().map(|volume| ("mounted path", &volume.source));
    let devices = options.devices.iter().map(|device| ("device file", &device.source));
    for (what, path) in sources.chain(devices).map(|(what, path)| (what, Path::new(path))) {
        if (catalogue.is_absent)(path) {
            let hint = "`ACCE_CONTAINER_OPT` in host.yaml replaces the container options of the vendor";
            found.push(missing_file(what, path).with_hint(hint));
        }
    }
    findings.extend(found.into_iter().map(|finding| finding.at(origin.clone())));
    let site = &config.site_values["SHM_SIZE"].origin;
    let differs = options.shm_size.is_some() && options.shm_size != config.site.shm_size;
    if differs && *site != Origin::Default {
        let message = format!(
            "`SHM_SIZE` has no effect: `--shm-size` of the container options ({origin}) sets the size of shared memory"
        );
        findings.push(Finding::warning(site.clone(), message));
    }
}

/// Returns an error for each mount at a path that nothing can replace, or that has a mount already.
fn impossible_mounts(config: &Config, options: &ContainerOptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut taken = vec![
        (normal(Path::new(WORKER_SOCKET_FOLDER)), "flagperf mounts the socket of the worker there".to_owned()),
        (normal(&config.site.flagperf_path), "flagperf mounts the checkout there".to_owned()),
    ];
    for case in &config.cases {
        let reason = format!("flagperf mounts the data directory of case `{}` there", case.key.value);
        // The mount of the checkout includes the folders in it.
        let folder = normal(&case.data_dir.value);
        if !folder.starts_with(normal(&config.site.flagperf_path)) {
            taken.push((folder, reason));
        }
    }
    for volume in &options.volumes {
        let target = normal(Path::new(&volume.target));
        let reason = impossible(volume, &target)
            .or_else(|| taken.iter().find(|(path, _)| *path == target).map(|(_, reason)| reason.clone()));
        taken.push((target, format!("another option mounts `{}` there", volume.source)));
        if let Some(reason) = reason {
            let Volume { source, target, .. } = volume;
            let message = format!("the container options mount `{source}` at `{target}`, but {reason}");
            let hint = "name another path in the container, or remove the mount";
            findings.push(Finding::unplaced(message).with_hint(hint));
        }
    }
    findings
}

/// Returns why no container can have a mount at `target`, the normal form of a volume's target.
fn impossible(volume: &Volume, target: &Path) -> Option<String> {
    if target == Path::new("/") {
        return Some("a mount cannot replace the root folder of a container".to_owned());
    }
    let is_process_folder = target == Path::new("/proc") && normal(Path::new(&volume.source)) == target;
    let is_permitted = is_process_folder || REPLACEABLE.iter().any(|path| target == Path::new(path));
    (target.starts_with("/proc") && !is_permitted)
        .then(|| "the container runtime permits no mounts in the `/proc` of a container".to_owned())
}

/// Returns an absolute path without `.`, `..` and repeated slashes.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => drop(normal.pop()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use crate::tests::{catalogue, errors, planned, runnable};
    use crate::{Catalogue, plan};
    use flagperf_config::Overrides;
    use flagperf_config::fixture::{Checkout, HOST, messages_of};
    use flagperf_core::event::Level;

    fn with_options(options: &str) -> Checkout {
        let host = format!("{HOST}CONTAINER: docker\nACCE_CONTAINER_OPT: \"{options}\"\n");
        runnable().with("configs/host.yaml", &host).with("docker_images/chip/frame/Dockerfile", "FROM scratch\n")
    }

    /// Returns the errors of these options, without their place and their hints.
    fn errors_of(options: &str) -> Vec<String> {
        let found = errors(&with_options(options), &Overrides::default());
        let message = |text: &String| {
            let text = text.strip_prefix("configs/host.yaml:5: ").expect("the line of the options");
            text.split('\n').next().unwrap().to_owned()
        };
        found.iter().map(message).collect()
    }

    #[test]
    fn a_mount_that_no_container_can_have_is_an_error_with_its_place() {
        for (options, reason) in [
            ("-v /tmp:/", "a mount cannot replace the root folder"),
            ("-v /tmp:/x/..", "a mount cannot replace the root folder"),
            ("-v /tmp:/proc", "the container runtime permits no mounts in the `/proc`"),
            ("-v /tmp://proc/self/x", "the container runtime permits no mounts in the `/proc`"),
            ("-v /tmp:/run/flagperf/", "flagperf mounts the socket of the worker there"),
            ("-v /tmp:/a --mount type=bind,src=/usr,dst=/a/", "another option mounts `/tmp` there"),
        ] {
            let found = errors_of(options);
            assert!(found.len() == 1 && found[0].contains(reason), "{options}: {found:?}");
        }
        assert_eq!(
            errors_of("-v /tmp:/proc/x"),
            [
                "the container options mount `/tmp` at `/proc/x`, but the container runtime permits no mounts in the `/proc` of a \
              container"
            ]
        );
        let fine = "-v /proc/cpuinfo:/proc/cpuinfo -v /proc:/proc -v /tmp:/tmp -v /tmp:/run/flagperf/x";
        assert!(planned(&with_options(fine), &Overrides::default()).is_ok());
    }

    #[test]
    fn a_mount_at_the_checkout_is_an_error() {
        let checkout = with_options("");
        let options = format!("-v /tmp:{}", checkout.root().display());
        let host = format!("{HOST}CONTAINER: docker\nACCE_CONTAINER_OPT: \"{options}\"\n");
        let found = errors(&checkout.with("configs/host.yaml", &host), &Overrides::default());
        assert!(
            found.len() == 1 && found[0].contains(", but flagperf mounts the checkout there\n  hint: "),
            "{found:?}"
        );
    }

    #[test]
    fn paths_that_this_machine_lacks_are_errors_of_a_plan_for_this_machine() {
        let options = "-v /none/a:/a --device /none/b --security-opt seccomp=/none/c";
        assert_eq!(errors_of(options), ["the seccomp profile `/none/c` does not exist"]);
        let options = "-v /none/a:/a --device /none/b";
        assert_eq!(
            errors_of(options),
            ["mounted path `/none/a` does not exist", "device file `/none/b` does not exist"]
        );
        let checkout = with_options(options);
        let config = checkout.load(&Overrides::default()).unwrap();
        assert!(plan(&config, &catalogue(checkout.root()).with_every_machine_part()).is_ok());
    }

    #[test]
    fn a_seccomp_profile_is_read_as_docker_run_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let (good, bad) = (folder.path().join("good.json"), folder.path().join("bad.json"));
        std::fs::write(&good, "{\n  \"defaultAction\": \"SCMP_ACT_ALLOW\"\n}\n").unwrap();
        std::fs::write(&bad, "/x").unwrap();
        let option = |path: &std::path::Path| format!("--security-opt seccomp={}", path.display());
        let planned_profile = |options: &str| {
            let plan = planned(&with_options(options), &Overrides::default()).unwrap();
            plan.cases[0].container.clone().unwrap().options.seccomp_profile
        };
        assert_eq!(planned_profile(&option(&good)).as_deref(), Some("{\"defaultAction\":\"SCMP_ACT_ALLOW\"}"));
        assert_eq!(planned_profile("--security-opt seccomp=unconfined"), None);
        let reason = |path: &std::path::Path| errors_of(&option(path)).pop().unwrap();
        assert!(reason(&bad).ends_with("bad.json` is not a JSON object: expected value at line 1 column 1"));
        assert!(reason(folder.path()).contains("` is a folder"), "{}", reason(folder.path()));
        assert_eq!(reason("p.json".as_ref()), "the seccomp profile `p.json` is not an absolute path");
    }

    #[test]
    fn a_size_of_shared_memory_that_an_option_replaces_is_a_warning() {
        let warnings = |size: &str| {
            let host = format!("{HOST}CONTAINER: docker\nACCE_CONTAINER_OPT: --shm-size 1G\n{size}");
            let checkout = with_options("").with("configs/host.yaml", &host);
            messages_of(Level::Warning, &planned(&checkout, &Overrides::default()).unwrap().findings)
        };
        assert_eq!(
            warnings("SHM_SIZE: 2G\n"),
            [
                "configs/host.yaml:6: `SHM_SIZE` has no effect: `--shm-size` of the container options (configs/host.yaml:5) sets the \
              size of shared memory"
            ]
        );
        assert_eq!((warnings(""), warnings("SHM_SIZE: 1G\n")), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_path_that_this_process_may_not_see_is_not_reported() {
        let checkout = with_options("-v /hidden:/a");
        let config = checkout.load(&Overrides::default()).unwrap();
        let catalogue = Catalogue { is_absent: Box::new(|_| false), ..catalogue(checkout.root()) };
        assert!(plan(&config, &catalogue).is_ok());
    }
}
