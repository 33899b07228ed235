//! Memory of a process and everything that it has started.

use std::fs;

use super::descendants;

/// Bytes in memory of `root` and its descendants, if they are more than `limit`.
///
/// The sum of resident sizes counts shared memory once for each process, so it is only what is looked at first; what
/// is given is the sum of proportional sizes, which counts it once.
pub(super) fn beyond(root: i32, limit: u64) -> Option<u64> {
    let processes = descendants::tree(root);
    let sum = |field: fn(i32) -> Option<u64>| processes.iter().filter_map(|pid| field(*pid)).sum::<u64>();
    if sum(resident) <= limit {
        return None;
    }
    Some(sum(|pid| proportional(pid).or_else(|| resident(pid)))).filter(|bytes| *bytes > limit)
}

fn resident(pid: i32) -> Option<u64> {
    field(&format!("/proc/{pid}/status"), "VmRSS:")
}

fn proportional(pid: i32) -> Option<u64> {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// A size that /proc gives in kB.
fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
