//! The resources of this process and of the processes that it started: memory, threads, open files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Numbers of resources that a session must not leave behind.
#[derive(Debug)]
pub struct ProcessResources {
    threads: usize,
    files: usize,
    processes: usize,
}

impl ProcessResources {
    /// Counts this process's threads, open files and child processes.
    pub fn current() -> Self {
        let children = children(Path::new("/proc/self"));
        ProcessResources {
            threads: entries(Path::new("/proc/self/task")).len(),
            files: files(),
            processes: children.len(),
        }
    }

    /// Returns whether no count is larger than before.
    pub fn is_within(&self, before: &ProcessResources) -> bool {
        self.threads <= before.threads && self.files <= before.files && self.processes <= before.processes
    }
}

/// Returns every thread of this process and of all its descendants.
pub fn tasks() -> BTreeSet<PathBuf> {
    let (mut tasks, mut processes) = (BTreeSet::new(), vec![PathBuf::from("/proc/self")]);
    while let Some(process) = processes.pop() {
        tasks.extend(entries(&process.join("task")));
        processes.extend(children(&process));
    }
    tasks
}

/// Returns the bytes of resident memory of this process, after the allocator has released its reserves.
pub fn resident_bytes() -> u64 {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` only returns free memory to the system, and may be called at any time.
    unsafe {
        nix::libc::malloc_trim(0);
    }
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Returns the living child processes of a process.
fn children(process: &Path) -> Vec<PathBuf> {
    let of = |task: &PathBuf| fs::read_to_string(task.join("children")).unwrap_or_default();
    let lists: Vec<String> = entries(&process.join("task")).iter().map(of).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).map(|process| Path::new("/proc").join(process)).collect()
}

fn files() -> usize {
    entries(Path::new("/proc/self/fd")).len()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    // A thread or process may end while its folder is read.
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}
