//! Processor time of containers. The processes of a container are not children of this process, so the kernel counts
//! their time only in the control group of the container, which is removed when the container ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use flagperf_core::units::Seconds;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";
/// Time between two readings.
const INTERVAL: Duration = Duration::from_millis(50);
/// Interval while a container ends, and the number of readings at that interval. The control group is removed some milliseconds
/// after its last process has ended, so the last reading is complete. If the container ends in another way, for example
/// because the engine kills it, the processor time after the last reading is not counted.
const INTERVAL_AT_END: Duration = Duration::from_millis(1);
const READINGS_AT_END: u32 = 5000;

/// The time of each container that this process has started, as last read; `None` for one that could not be read.
static TIMES: Mutex<Vec<Option<Seconds>>> = Mutex::new(Vec::new());

fn times() -> MutexGuard<'static, Vec<Option<Seconds>>> {
    TIMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the processor time of all containers that this process has started for workers; `None` if that of one is unknown.
pub fn containers_processor_time() -> Option<Seconds> {
    times().iter().copied().sum()
}

/// Tells the thread that counts the processor time of a container that the container is about to end.
#[derive(Clone, Debug)]
pub(super) struct EndNotice(Sender<()>);

impl EndNotice {
    /// Has an effect only the first time.
    pub(super) fn send(&self) {
        let _ = self.0.try_send(());
    }
}

/// Counts the processor time of a container until it ends. `pid` is its main process on this machine; `None` if it is unknown.
pub(super) fn count_container(pid: Option<u32>) -> EndNotice {
    let (sender, ends) = bounded(1);
    let notice = EndNotice(sender);
    let mut all = times();
    let index = all.len();
    all.push(None);
    drop(all);
    let groups = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()).unwrap_or_default();
    if let Some(counter) = Counter::find(&groups, Path::new(GROUPS)) {
        thread::spawn(move || follow(&counter, &ends, |time| times()[index] = Some(time)));
    }
    notice
}

/// Reads a counter until its file disappears with the container.
fn follow(counter: &Counter, ends: &Receiver<()>, mut note: impl FnMut(Seconds)) {
    let mut readings_left: Option<u32> = None;
    while let Some(time) = counter.read() {
        note(time);
        match readings_left {
            Some(0) => thread::sleep(INTERVAL),
            Some(left) => {
                readings_left = Some(left - 1);
                thread::sleep(INTERVAL_AT_END);
            }
            // If nobody can send any more, the container is being removed.
            None if ends.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) => {
                readings_left = Some(READINGS_AT_END);
            }
            None => {}
        }
    }
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
    fn what_a_container_uses_while_it_ends_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cpuacct.usage");
        fs::write(&file, "1000000000").unwrap();
        let (counter, (sender, ends)) = (Counter::Nanoseconds(file.clone()), bounded(1));
        let (noted, times) = crossbeam_channel::unbounded();
        let following = thread::spawn(move || follow(&counter, &ends, |time| noted.send(time).unwrap()));
        let mut times = times.iter();
        assert_eq!(times.next(), Some(Seconds(1.0)));
        EndNotice(sender).send();
        // The container ends after its worker has closed its output, and is removed later.
        let staged = folder.path().join("new");
        fs::write(&staged, "2000000000").unwrap();
        fs::rename(staged, &file).unwrap();
        assert!(times.any(|time| time == Seconds(2.0)));
        fs::remove_file(&file).unwrap();
        following.join().unwrap();
    }

    #[test]
    fn a_container_that_cannot_be_read_makes_the_sum_unknown_and_none_makes_it_zero() {
        assert_eq!(containers_processor_time(), Some(Seconds(0.0)));
        count_container(None);
        assert_eq!(containers_processor_time(), None);
    }
}
