//! What this process has, and the processes that it started: memory, threads, open files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What a session may not leave behind.
#[derive(Debug)]
pub struct Left {
    threads: usize,
    files: usize,
    processes: usize,
}

impl Left {
    pub fn now() -> Self {
        let children = children(Path::new("/proc/self"));
        Left { threads: entries(Path::new("/proc/self/task")).len(), files: files(), processes: children.len() }
    }

    /// Whether there is no more than before.
    pub fn is_within(&self, before: &Left) -> bool {
        self.threads <= before.threads && self.files <= before.files && self.processes <= before.processes
    }
}

/// Every thread of this process and of those that it started, and those that they started.
pub fn tasks() -> BTreeSet<PathBuf> {
    let (mut tasks, mut processes) = (BTreeSet::new(), vec![PathBuf::from("/proc/self")]);
    while let Some(process) = processes.pop() {
        tasks.extend(entries(&process.join("task")));
        processes.extend(children(&process));
    }
    tasks
}

/// Bytes of memory that this process has, without what its allocator only keeps for later.
pub fn resident() -> u64 {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function gives free memory back to the system, at any time.
    unsafe {
        nix::libc::malloc_trim(0);
    }
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// The processes that a process started and that still are.
fn children(process: &Path) -> Vec<PathBuf> {
    let of = |task: &PathBuf| fs::read_to_string(task.join("children")).unwrap_or_default();
    let lists: Vec<String> = entries(&process.join("task")).iter().map(of).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).map(|process| Path::new("/proc").join(process)).collect()
}

fn files() -> usize {
    entries(Path::new("/proc/self/fd")).len()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    // A thread or process may end while it is looked at.
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}
