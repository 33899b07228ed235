//! Memory of a process and all its descendants.

use std::fs;

use super::descendants;

/// Returns the memory in bytes of `root` and its descendants if it is above `limit`.
///
/// The sum of resident sizes counts shared memory once per process, so it serves only as a quick first check. The
/// result is the sum of proportional sizes, which counts shared memory once.
pub(super) fn above(root: i32, limit: u64) -> Option<u64> {
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

/// Reads a size that /proc reports in kB, and returns it in bytes.
fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
