//! The file of a shared library, checked before the system's loader opens it: the loader waits for a FIFO, and reports a
//! library for another processor as "not found".

use std::io::Read as _;
use std::path::Path;

use flagperf_core::regular_file::{NotRegular, open_regular};

use super::Unavailable;

/// Why a file is not a library for this machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LibraryFault {
    /// The reason, with the path.
    pub(super) reason: String,
    /// Whether the library is built for another processor.
    is_foreign: bool,
}

impl LibraryFault {
    fn new(reason: String) -> Self {
        LibraryFault { reason, is_foreign: false }
    }

    /// Converts the fault to an error with the remedy for a library that is missing.
    pub(super) fn into_unavailable(self, remedy: &str) -> Unavailable {
        let remedy = if self.is_foreign { "build it for this machine" } else { remedy };
        Unavailable { reason: self.reason, remedy: remedy.to_owned() }
    }
}

/// Checks that a file is a shared library for this processor.
///
/// # Errors
/// When the file cannot be read, is not a regular file, or is not such a library.
pub(super) fn check_library(path: &Path) -> Result<(), LibraryFault> {
    let shown = path.display();
    let mut header = [0; 20];
    let mut file = open_regular(path).map_err(|error| {
        let is_other_file = error.get_ref().is_some_and(|cause| cause.is::<NotRegular>());
        let separator = if is_other_file { " " } else { " cannot be read: " };
        LibraryFault::new(format!("the library `{shown}`{separator}{error}"))
    })?;
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    // A file shorter than the header is not an ELF file.
    if file.read_exact(&mut header).is_err() || !header.starts_with(b"\x7fELF") {
        return Err(LibraryFault::new(format!("`{shown}` is not a shared library")));
    }
    let machine = u16::from_le_bytes([header[18], header[19]]);
    match MACHINES.iter().find(|(_, name)| *name == std::env::consts::ARCH) {
        Some((ours, name)) if *ours != machine => {
            let theirs = MACHINES.iter().find(|(number, _)| *number == machine);
            let theirs = theirs.map_or_else(|| format!("machine {machine}"), |(_, name)| (*name).to_owned());
            let reason = format!("the library `{shown}` is built for `{theirs}`, but this machine is `{name}`");
            Err(LibraryFault { reason, is_foreign: true })
        }
        _ => Ok(()),
    }
}

/// Checks the path of an option as [`check_library`] does. A name without a slash is left to the system's loader, which
/// searches its own folders.
///
/// # Errors
/// As [`check_library`].
pub(super) fn check_library_option(path: &Path) -> Result<(), LibraryFault> {
    if path.as_os_str().as_encoded_bytes().contains(&b'/') { check_library(path) } else { Ok(()) }
}

/// Processors by their number in an ELF file (`e_machine`, System V ABI).
const MACHINES: [(u16, &str); 6] =
    [(3, "x86"), (40, "arm"), (62, "x86_64"), (183, "aarch64"), (243, "riscv64"), (258, "loongarch64")];

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn a_file_that_is_not_a_library_for_this_machine_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        std::fs::write(at("text"), "short").unwrap();
        let mut foreign = b"\x7fELF".to_vec();
        foreign.resize(20, 0xee);
        std::fs::write(at("foreign"), foreign).unwrap();
        let reason = |name: &str| {
            let fault = check_library_option(&at(name)).unwrap_err();
            fault.reason.replace(&format!("{}/", folder.path().display()), "")
        };
        assert_eq!(reason("fifo"), "the library `fifo` is a FIFO, not a regular file");
        assert_eq!(reason("."), "the library `.` is a folder, not a regular file");
        assert_eq!(reason("text"), "`text` is not a shared library");
        assert!(reason("missing").starts_with("the library `missing` cannot be read: No such file"));
        assert!(
            reason("foreign").starts_with("the library `foreign` is built for `machine 61166`, but this machine is ")
        );
        assert_eq!(
            check_library_option(Path::new("/dev/zero")).unwrap_err().reason,
            "the library `/dev/zero` is a device, not a regular file"
        );
        assert_eq!(check_library_option(Path::new("libc.so.6")), Ok(()), "the loader finds it");
    }
}
