//! Reads from /proc the ancestors of running processes and the files that they execute.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::descendants;

/// Maximum number of processes whose files are listed.
const PROCESSES_MAX: usize = 64;
/// Maximum number of bytes of the list of mappings of a process.
const MAPPINGS_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of ancestors that are followed.
const ANCESTORS_MAX: usize = 64;

/// Returns whether a process descends from one of `ancestors`, or is one of them; `None` when there is no such process in
/// this process's numbering.
pub fn descends_from(pid: u32, ancestors: &[u32]) -> Option<bool> {
    let mut current = pid;
    for step in 0..ANCESTORS_MAX {
        let parent = parent_of(current);
        if step == 0 && parent.is_none() {
            return None;
        }
        if ancestors.contains(&current) {
            return Some(true);
        }
        match parent {
            Some(parent) if parent > 0 => current = parent,
            _ => return Some(false),
        }
    }
    Some(false)
}

/// Returns the name of a process's program as the kernel knows it: at most 15 bytes.
pub fn program_name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Returns the files from which a process and its descendants execute code: programs and shared libraries. Files that were
/// removed are left out. Empty when the process has ended.
pub fn executed_files(pid: u32) -> BTreeSet<PathBuf> {
    let processes = descendants::tree(pid.cast_signed());
    processes.into_iter().take(PROCESSES_MAX).flat_map(mappings).collect()
}

fn mappings(pid: i32) -> Vec<PathBuf> {
    let mut text = Vec::new();
    let read = File::open(format!("/proc/{pid}/maps")).map(|file| file.take(MAPPINGS_BYTES_MAX).read_to_end(&mut text));
    match read {
        Ok(Ok(_)) => text.split(|byte| *byte == b'\n').filter_map(executed_file).collect(),
        _ => Vec::new(),
    }
}

/// Returns the file of a line of `maps` if its content is executed: `55d-55e r-xp 00000000 08:01 1234    /usr/lib/x.so`.
fn executed_file(line: &[u8]) -> Option<PathBuf> {
    let permissions = line.split(|byte| *byte == b' ').nth(1)?;
    let path = &line[line.iter().position(|byte| *byte == b'/')?..];
    let is_file = permissions.contains(&b'x') && !path.ends_with(b" (deleted)") && !path.starts_with(b"/memfd:");
    is_file.then(|| std::ffi::OsString::from_vec(path.to_vec()).into())
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which is in parentheses, may contain anything.
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executed_files_that_still_exist_are_listed() {
        let file = |line: &str| executed_file(line.as_bytes()).map(|path| path.display().to_string());
        let library = "7f0-7f1 r-xp 00001000 08:01 77                         /usr/lib/lib with blank.so.1";
        assert_eq!(file(library).as_deref(), Some("/usr/lib/lib with blank.so.1"));
        for line in [
            "7f0-7f1 r--p 00001000 08:01 77                         /usr/lib/libc.so.6",
            "7f0-7f1 r-xp 00001000 08:01 77                         /usr/lib/libc.so.6 (deleted)",
            "7f0-7f1 r-xp 00001000 00:01 77                         /memfd:code (deleted)",
            "7f0-7f1 r-xp 00000000 00:00 0                          [vdso]",
            "",
        ] {
            assert_eq!(file(line), None, "{line}");
        }
    }

    #[test]
    fn this_process_executes_its_own_program() {
        let own = fs::canonicalize("/proc/self/exe").unwrap();
        assert!(executed_files(std::process::id()).contains(&own));
        assert_eq!(executed_files(u32::MAX / 2), BTreeSet::new());
    }

    #[test]
    fn this_process_descends_from_itself_and_the_first_process_does_not() {
        let own = std::process::id();
        assert_eq!((descends_from(own, &[own]), descends_from(u32::MAX / 2, &[own])), (Some(true), None));
        if own != 1 {
            assert_eq!((descends_from(1, &[own]), descends_from(own, &[1])), (Some(false), Some(true)));
        }
        assert!(program_name(own).is_some_and(|name| !name.is_empty()));
    }
}
