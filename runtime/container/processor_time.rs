//! Processor time of containers. The processes of a container are no children of this process, so the kernel counts their time
//! only in the control group of the container, which ends with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::units::Seconds;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";
/// Time between two readings. What a container uses after the last one, while it ends, is not counted.
const INTERVAL: Duration = Duration::from_millis(50);

/// The time of each container that this process has started, as last read; `None` for one that could not be read.
static TIMES: Mutex<Vec<Option<Seconds>>> = Mutex::new(Vec::new());

fn times() -> MutexGuard<'static, Vec<Option<Seconds>>> {
    TIMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the processor time of all containers that this process has started for workers; `None` if that of one is unknown.
pub fn containers_processor_time() -> Option<Seconds> {
    times().iter().copied().sum()
}

/// Counts the processor time of a container until it ends. `pid` is its main process on this machine; `None` if it is unknown.
pub(super) fn count_container(pid: Option<u32>) {
    let mut all = times();
    let index = all.len();
    all.push(None);
    drop(all);
    let groups = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()).unwrap_or_default();
    let Some(counter) = Counter::find(&groups, Path::new(GROUPS)) else { return };
    thread::spawn(move || {
        // The file disappears with the container.
        while let Some(time) = counter.read() {
            times()[index] = Some(time);
            thread::sleep(INTERVAL);
        }
    });
}

/// The file in which the kernel counts the processor time of a control group.
#[derive(Debug, PartialEq)]
enum Counter {
    /// `cpuacct.usage`, of version 1.
    Nanoseconds(PathBuf),
    /// `cpu.stat`, of version 2.
    Statistics(PathBuf),
}

impl Counter {
    /// Finds the counter of a process from its list of control groups, which are mounted in the folder `root`.
    fn find(groups: &str, root: &Path) -> Option<Self> {
        let counters = groups.lines().filter_map(|line| {
            let (_, entry) = line.split_once(':')?;
            let (controllers, path) = entry.split_once(":/")?;
            match controllers {
                "" => Some(Counter::Statistics(root.join(path).join("cpu.stat"))),
                list if list.split(',').any(|name| name == "cpuacct") => {
                    Some(Counter::Nanoseconds(root.join("cpuacct").join(path).join("cpuacct.usage")))
                }
                _ => None,
            }
        });
        counters.into_iter().find(|counter| counter.read().is_some())
    }

    fn read(&self) -> Option<Seconds> {
        match self {
            Counter::Nanoseconds(path) => {
                Some(Seconds::from_nanos(fs::read_to_string(path).ok()?.trim().parse().ok()?))
            }
            Counter::Statistics(path) => {
                let text = fs::read_to_string(path).ok()?;
                let used: u64 = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok()?;
                Some(Seconds(used as f64 / 1e6))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_a_container_is_found_in_both_versions_of_control_groups() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let write = |path: &str, text: &str| {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        };
        write("cpuacct/docker/one/cpuacct.usage", "1500000000\n");
        write("system.slice/two.scope/cpu.stat", "usage_usec 2500000\nuser_usec 1\n");
        let time = |groups: &str| Counter::find(groups, root).and_then(|counter| counter.read());
        assert_eq!(time("4:memory:/docker/one\n3:cpu,cpuacct:/docker/one\n0::/docker/one\n"), Some(Seconds(1.5)));
        assert_eq!(time("0::/system.slice/two.scope\n"), Some(Seconds(2.5)));
        assert_eq!((time("0::/other\n"), time("4:memory:/docker/one\n"), time("")), (None, None, None));
    }

    #[test]
    fn a_container_that_cannot_be_read_makes_the_sum_unknown_and_none_makes_it_zero() {
        assert_eq!(containers_processor_time(), Some(Seconds(0.0)));
        count_container(None);
        assert_eq!(containers_processor_time(), None);
    }
}
