//! Reads from /proc the ancestors of running processes and the files that they execute.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
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

/// Something from which a process executes code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExecutedCode {
    /// A program or a shared library.
    File(PathBuf),
    /// A file that no longer exists, or that never had a place in a folder (memfd), by the name in the list of mappings.
    Removed(String),
    /// A process whose list of mappings cannot be read, by its name.
    Unreadable(String),
}

/// Returns the code that a process and its descendants execute, except code in memory that belongs to no file and this program
/// itself if it was replaced. Empty when the process has ended.
pub fn executed_code(pid: u32) -> BTreeSet<ExecutedCode> {
    let processes = descendants::tree(pid.cast_signed());
    processes.into_iter().take(PROCESSES_MAX).flat_map(mappings).collect()
}

fn mappings(pid: i32) -> Vec<ExecutedCode> {
    let mut text = Vec::new();
    let read =
        File::open(format!("/proc/{pid}/maps")).and_then(|file| file.take(MAPPINGS_BYTES_MAX).read_to_end(&mut text));
    match read {
        Ok(_) => text.split(|byte| *byte == b'\n').filter_map(executed).collect(),
        // A process that has ended has no mappings; one that forbids reading them has a name.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            program_name(pid.cast_unsigned()).map(ExecutedCode::Unreadable).into_iter().collect()
        }
        Err(_) => Vec::new(),
    }
}

/// Returns what a line of `maps` executes: `55d-55e r-xp 00000000 08:01 1234    /usr/lib/x.so`.
fn executed(line: &[u8]) -> Option<ExecutedCode> {
    let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let permissions = fields.nth(1)?;
    let inode = fields.nth(2)?;
    let path = &line[line.iter().position(|byte| *byte == b'/')?..];
    let begins_name = fields.next().is_some_and(|name| name.starts_with(b"/"));
    if !permissions.contains(&b'x') || !begins_name {
        return None;
    }
    let is_removed = path.ends_with(b" (deleted)") || path.starts_with(b"/memfd:");
    match is_removed {
        false => Some(ExecutedCode::File(std::ffi::OsString::from_vec(path.to_vec()).into())),
        true => (!is_own_program(inode)).then(|| ExecutedCode::Removed(String::from_utf8_lossy(path).into_owned())),
    }
}

/// Returns whether an inode is that of this program, which may have been replaced while it runs.
fn is_own_program(inode: &[u8]) -> bool {
    let own = fs::metadata("/proc/self/exe").map(|program| program.ino().to_string());
    own.is_ok_and(|own| own.as_bytes() == inode)
}

/// Returns whether a process itself maps the file with this inode; `None` if its list of mappings cannot be read.
pub(super) fn maps_file(pid: u32, inode: u64) -> Option<bool> {
    let mut text = Vec::new();
    File::open(format!("/proc/{pid}/maps")).ok()?.take(MAPPINGS_BYTES_MAX).read_to_end(&mut text).ok()?;
    let inode = inode.to_string();
    let is_of_file = |line: &[u8]| {
        line.split(|byte| *byte == b' ').filter(|field| !field.is_empty()).nth(4) == Some(inode.as_bytes())
    };
    Some(text.split(|byte| *byte == b'\n').any(is_of_file))
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
    fn executed_files_are_listed_and_removed_ones_named() {
        let of = |line: &str| executed(line.as_bytes());
        let library = "7f0-7f1 r-xp 00001000 08:01 77                         /usr/lib/lib with blank.so.1";
        assert_eq!(of(library), Some(ExecutedCode::File("/usr/lib/lib with blank.so.1".into())));
        for name in ["/usr/lib/libc.so.6 (deleted)", "/memfd:code (deleted)", "/memfd:code"] {
            let line = format!("7f0-7f1 rwxp 00001000 00:01 77                         {name}");
            assert_eq!(of(&line), Some(ExecutedCode::Removed(name.to_owned())));
        }
        let own = fs::metadata("/proc/self/exe").unwrap().ino();
        for line in [
            "7f0-7f1 r--p 00001000 08:01 77                         /usr/lib/libc.so.6",
            "7f0-7f1 rw-s 00001000 00:01 77                         /memfd:outputs (deleted)",
            "7f0-7f1 r-xp 00000000 00:00 0                          [vdso]",
            "7f0-7f1 r-xp 00000000 00:00 0                          [anon:a/b]",
            "7f0-7f1 r-xp 00000000 00:00 0 ",
            &format!("7f0-7f1 r-xp 00001000 00:01 {own}                         /usr/bin/flagperf (deleted)"),
            "",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn this_process_executes_its_own_program() {
        let own = fs::canonicalize("/proc/self/exe").unwrap();
        assert!(executed_code(std::process::id()).contains(&ExecutedCode::File(own)));
        assert_eq!(executed_code(u32::MAX / 2), BTreeSet::new());
    }

    #[test]
    fn the_process_that_maps_a_file_is_known() {
        let own = std::env::current_exe().unwrap();
        let (pid, inode) = (std::process::id(), fs::metadata(own).unwrap().ino());
        assert_eq!((maps_file(pid, inode), maps_file(pid, u64::MAX)), (Some(true), Some(false)));
        assert_eq!(maps_file(u32::MAX / 2, inode), None);
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
