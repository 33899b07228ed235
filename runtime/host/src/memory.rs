//! Memory of a process and all its descendants.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::descendants;

/// Beginnings of the paths of files in memory: the system lists a file made with `memfd_create` under the first one, whatever its
/// name.
const MEMORY_PATHS: [&str; 2] = ["/memfd:", "/dev/shm/"];
/// Bytes of a block, the unit in which the system reports the space that a file takes.
const BLOCK_BYTES: u64 = 512;

/// A file: its device and its inode number.
type FileId = (u64, u64);

/// Returns the memory in bytes of `root` and its descendants if it is above `limit`: their resident memory, and the
/// files in memory that one of them has open, mapped or not.
///
/// The sum of resident sizes counts shared memory once per process, so it serves only as a quick first check. The
/// result is the sum of proportional sizes, which counts shared memory once; files in memory count with their own size
/// instead.
pub fn above(root: i32, limit: u64) -> Option<u64> {
    let processes = descendants::tree(root);
    let files: BTreeMap<FileId, u64> = processes.iter().flat_map(|pid| files_in_memory(*pid)).collect();
    let in_files = files.values().sum::<u64>();
    if sum(&processes, resident).saturating_add(in_files) <= limit {
        return None;
    }
    let mapped = if files.is_empty() { 0 } else { sum(&processes, |pid| mapped_from(&files, pid)) };
    let proportional = sum(&processes, |pid| proportional(pid).or_else(|| resident(pid)));
    Some(proportional.saturating_sub(mapped).saturating_add(in_files)).filter(|bytes| *bytes > limit)
}

/// Returns the memory in bytes that `root`, its descendants, the adopted orphans and, in process 1, every process with this
/// marker use now: their resident pages, of which shared ones count whole in each process, and the files in memory that one of
/// them has open without mapping them.
pub fn in_use(root: i32, marker: &str) -> u64 {
    let mut processes = descendants::tree(root);
    // It gets the orphans of all processes, and recognises its own by their environment.
    if std::process::id() == 1 {
        processes.extend(descendants::with_marker(marker));
    }
    let files: BTreeMap<FileId, u64> = processes.iter().flat_map(|pid| files_in_memory(*pid)).collect();
    let shared = sum(&processes, |pid| status(pid, "RssShmem:"));
    let resident = sum(&processes, resident);
    // What is mapped from these files is in `shared`, perhaps in part.
    resident + files.values().sum::<u64>().saturating_sub(shared)
}

fn sum(processes: &BTreeSet<i32>, bytes: impl Fn(i32) -> Option<u64>) -> u64 {
    processes.iter().filter_map(|pid| bytes(*pid)).sum()
}

/// Returns the sum of the peak resident memory, in bytes, of every process that descends from this one and runs. As the system
/// counts it, shared memory is included in each.
pub fn descendants_peak() -> u64 {
    let own = std::process::id().cast_signed();
    let descendants = descendants::tree(own).into_iter().filter(|pid| *pid != own).collect();
    sum(&descendants, |pid| status(pid, "VmHWM:"))
}

fn resident(pid: i32) -> Option<u64> {
    status(pid, "VmRSS:")
}

fn status(pid: i32, name: &str) -> Option<u64> {
    field(&format!("/proc/{pid}/status"), name)
}

fn proportional(pid: i32) -> Option<u64> {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Returns the files in memory that a process has open, with the bytes that they take.
fn files_in_memory(pid: i32) -> Vec<(FileId, u64)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_in_memory = |file: PathBuf| is_memory_path(file.as_os_str().as_bytes());
    let in_memory = entries.filter(|entry| fs::read_link(entry.path()).is_ok_and(is_in_memory));
    let found = in_memory.filter_map(|entry| fs::metadata(entry.path()).ok());
    found.map(|file| ((file.dev(), file.ino()), file.blocks() * BLOCK_BYTES)).collect()
}

fn is_memory_path(path: &[u8]) -> bool {
    MEMORY_PATHS.iter().any(|beginning| path.starts_with(beginning.as_bytes()))
}

/// Returns the part of a process's proportional size that is mapped from these files.
fn mapped_from(files: &BTreeMap<FileId, u64>, pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?;
    let inodes: BTreeSet<u64> = files.keys().map(|(_, inode)| *inode).collect();
    let mut is_in_memory = false;
    let mut bytes = 0;
    for line in text.lines() {
        if let Some(size) = line.strip_prefix("Pss:") {
            bytes += parse_kilobytes(size).filter(|_| is_in_memory).unwrap_or(0);
        } else if let [addresses, _, _, _, inode, file, ..] = line.split_whitespace().collect::<Vec<_>>()[..]
            && !addresses.ends_with(':')
        {
            is_in_memory = is_memory_path(file.as_bytes()) && inode.parse().is_ok_and(|inode| inodes.contains(&inode));
        } else if !line.contains(": ") {
            is_in_memory = false;
        }
    }
    Some(bytes)
}

/// Reads a size that /proc reports in kB, and returns it in bytes.
fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    parse_kilobytes(text.lines().find_map(|line| line.strip_prefix(name))?)
}

fn parse_kilobytes(value: &str) -> Option<u64> {
    Some(value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    const SIZE: u64 = 64 << 20;

    /// Returns the memory of this process and its descendants.
    fn own_memory() -> u64 {
        above(std::process::id().cast_signed(), 0).unwrap()
    }

    #[test]
    fn a_file_in_memory_is_counted_once_whether_it_is_mapped_or_not() {
        let before = own_memory();
        let before_use = in_use(std::process::id().cast_signed(), "");
        let mut file = File::from(memfd_create(c"x y", MFdFlags::empty()).unwrap());
        let again = file.try_clone().unwrap();
        for _ in 0..SIZE >> 20 {
            file.write_all(&[1; 1 << 20]).unwrap();
        }
        let unmapped = in_use(std::process::id().cast_signed(), "").saturating_sub(before_use);
        assert!(unmapped > SIZE / 2 && unmapped < SIZE * 3 / 2, "{unmapped}");
        let near = |bytes: u64| bytes.saturating_sub(before).abs_diff(SIZE) < SIZE / 4;
        let written = own_memory();
        assert!(near(written), "{written} after {before}");
        // SAFETY: nobody changes the file while it is mapped.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        assert_eq!(map.iter().map(|byte| u64::from(*byte)).sum::<u64>(), SIZE);
        let mapped = own_memory();
        assert!(near(mapped), "{mapped} after {before}");
        drop((file, again));
        assert!(in_use(std::process::id().cast_signed(), "") >= SIZE);
        let _other = memfd_create(c"other", MFdFlags::empty()).unwrap();
        let without_file = own_memory();
        assert!(near(without_file), "{without_file} after {before}");
        drop(map);
        assert!(own_memory().saturating_sub(before) < SIZE / 4);
    }
}
