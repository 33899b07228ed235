//! Memory of a process and everything that it has started.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::descendants;

/// How the system names a file that was made with `memfd_create`, whatever it was called.
const IN_MEMORY: &str = "/memfd:";
/// Bytes of a block, in which sizes of files are counted.
const BLOCK_BYTES: u64 = 512;

/// A file, by its device and its number there.
type FileId = (u64, u64);

/// Bytes in memory of `root` and its descendants, if they are more than `limit`: what is resident, and what lies in files
/// in memory that one of them has open, mapped or not.
///
/// The sum of resident sizes counts shared memory once for each process, so it is only what is looked at first; what
/// is given is the sum of proportional sizes, which counts it once. There, files in memory count by their own size.
pub(super) fn beyond(root: i32, limit: u64) -> Option<u64> {
    let processes = descendants::tree(root);
    let files: BTreeMap<FileId, u64> = processes.iter().flat_map(|pid| files_in_memory(*pid)).collect();
    let in_files = files.values().sum::<u64>();
    if sum(&processes, resident).saturating_add(in_files) <= limit {
        return None;
    }
    let mapped = if files.is_empty() { 0 } else { sum(&processes, |pid| mapped(pid, &files)) };
    let proportional = sum(&processes, |pid| proportional(pid).or_else(|| resident(pid)));
    Some(proportional.saturating_sub(mapped).saturating_add(in_files)).filter(|bytes| *bytes > limit)
}

fn sum(processes: &BTreeSet<i32>, bytes: impl Fn(i32) -> Option<u64>) -> u64 {
    processes.iter().filter_map(|pid| bytes(*pid)).sum()
}

fn resident(pid: i32) -> Option<u64> {
    field(&format!("/proc/{pid}/status"), "VmRSS:")
}

fn proportional(pid: i32) -> Option<u64> {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// The files in memory that a process has open, with the bytes that they take.
fn files_in_memory(pid: i32) -> Vec<(FileId, u64)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_in_memory = |file: PathBuf| file.as_os_str().as_bytes().starts_with(IN_MEMORY.as_bytes());
    let in_memory = entries.filter(|entry| fs::read_link(entry.path()).is_ok_and(is_in_memory));
    let found = in_memory.filter_map(|entry| fs::metadata(entry.path()).ok());
    found.map(|file| ((file.dev(), file.ino()), file.blocks() * BLOCK_BYTES)).collect()
}

/// The part of the proportional size of a process that is mapped from these files.
fn mapped(pid: i32, files: &BTreeMap<FileId, u64>) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?;
    let numbers: BTreeSet<u64> = files.keys().map(|(_, number)| *number).collect();
    let mut is_one = false;
    let mut bytes = 0;
    for line in text.lines() {
        if let Some(size) = line.strip_prefix("Pss:") {
            bytes += kilobytes(size).filter(|_| is_one).unwrap_or(0);
        } else if let [addresses, _, _, _, number, file, ..] = line.split_whitespace().collect::<Vec<_>>()[..]
            && !addresses.ends_with(':')
        {
            is_one = file.starts_with(IN_MEMORY) && number.parse().is_ok_and(|number| numbers.contains(&number));
        } else if !line.contains(": ") {
            is_one = false;
        }
    }
    Some(bytes)
}

/// A size that /proc gives in kB.
fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    kilobytes(text.lines().find_map(|line| line.strip_prefix(name))?)
}

fn kilobytes(value: &str) -> Option<u64> {
    Some(value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    const SIZE: u64 = 64 << 20;

    /// Bytes of this process as they count.
    fn own() -> u64 {
        beyond(std::process::id().cast_signed(), 0).unwrap()
    }

    #[test]
    fn a_file_in_memory_counts_once_mapped_or_not() {
        let before = own();
        let mut file = File::from(memfd_create(c"x y", MFdFlags::empty()).unwrap());
        let again = file.try_clone().unwrap();
        for _ in 0..SIZE >> 20 {
            file.write_all(&[1; 1 << 20]).unwrap();
        }
        let near = |bytes: u64| bytes.saturating_sub(before).abs_diff(SIZE) < SIZE / 4;
        let written = own();
        assert!(near(written), "{written} after {before}");
        // SAFETY: nobody changes the file.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        assert_eq!(map.iter().map(|byte| u64::from(*byte)).sum::<u64>(), SIZE);
        let mapped = own();
        assert!(near(mapped), "{mapped} after {before}");
        drop((file, again));
        let _other = memfd_create(c"other", MFdFlags::empty()).unwrap();
        let without_file = own();
        assert!(near(without_file), "{without_file} after {before}");
        drop(map);
        assert!(own().saturating_sub(before) < SIZE / 4);
    }
}
