//! Memory that this process and the sidecar both see: a file in memory only, mapped on both sides.
//!
//! Knows no message: it gives numbers to regions, and finds a region by an address in it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::{MmapMut, MmapOptions};
use nix::fcntl::{FcntlArg, SealFlag, fcntl, posix_fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use sysinfo::{MemoryRefreshKind, RefreshKind, System};

use crate::engine::LentMemory;
use crate::tensor::HostMemory;

/// The regions that are lent to one sidecar.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    numbers: u32,
    lent: Vec<Entry>,
    /// Regions that are gone here, of which the sidecar was not told yet.
    gone: Vec<u32>,
}

#[derive(Debug)]
struct Entry {
    buffer: u32,
    address: usize,
    bytes: usize,
}

impl Book {
    /// The region that these bytes lie in, and where in it they begin.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<(u32, usize)> {
        let address = bytes.as_ptr() as usize;
        let within = |entry: &&Entry| {
            address >= entry.address && address + bytes.len() <= entry.address + entry.bytes && !bytes.is_empty()
        };
        self.entries().lent.iter().find(within).map(|entry| (entry.buffer, address - entry.address))
    }

    /// The regions that went since this was last called.
    pub(super) fn take_gone(&self) -> Vec<u32> {
        std::mem::take(&mut self.entries().gone)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory shared with a sidecar.
#[derive(Debug)]
pub(super) struct Region {
    map: MmapMut,
    bytes: usize,
    buffer: u32,
    book: Arc<Book>,
}

/// The file behind a region, open until the sidecar has mapped it.
#[derive(Debug)]
pub(super) struct RegionFile(File);

impl RegionFile {
    /// A path by which the sidecar, a process of the same user, can open it.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()))
    }
}

impl Region {
    /// `bytes` of zeros, all of them there.
    ///
    /// # Errors
    /// When there is not that much memory.
    pub(super) fn create(bytes: usize, book: &Arc<Book>) -> io::Result<(Region, RegionFile)> {
        if bytes as u64 > available() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let file = File::from(memfd_create(c"flagperf", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
        // A mapping cannot be empty.
        let size = bytes.max(1);
        posix_fallocate(&file, 0, i64::try_from(size).map_err(io::Error::other)?)?;
        // Memory that is read after somebody cut its file short ends a process, so nobody can.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        // SAFETY: the file is known to this process and to the sidecar that it is lent to. The sidecar writes to it
        // while it is asked to fetch, when nothing here reads it, and reads it while it runs, when nothing here writes.
        let map = unsafe { MmapOptions::new().len(size).populate().map_mut(&file) }?;
        let mut entries = book.entries();
        let buffer = entries.numbers;
        entries.numbers += 1;
        entries.lent.push(Entry { buffer, address: map.as_ptr() as usize, bytes });
        drop(entries);
        Ok((Region { map, bytes, buffer, book: Arc::clone(book) }, RegionFile(file)))
    }

    /// Its number in messages.
    pub(super) fn buffer(&self) -> u32 {
        self.buffer
    }
}

/// Memory that can be had, in bytes. Asked before, because the system kills processes rather than refuse shared memory.
fn available() -> u64 {
    let asked = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    // A system that does not say leaves it to the allocation.
    let Ok(system) = System::new_with_specifics(asked) else { return u64::MAX };
    let limit = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
    system.available_memory().min(limit)
}

impl HostMemory for Region {
    fn bytes(&self) -> &[u8] {
        &self.map[..self.bytes]
    }
}

impl LentMemory for Region {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map[..self.bytes]
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let mut entries = self.book.entries();
        entries.lent.retain(|entry| entry.buffer != self.buffer);
        entries.gone.push(self.buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_a_region_finds_it_as_long_as_it_is_there() {
        let book = Arc::new(Book::default());
        let (first, _) = Region::create(100, &book).unwrap();
        let (second, _) = Region::create(100, &book).unwrap();
        assert_eq!(book.find(&second.bytes()[8..20]), Some((second.buffer(), 8)));
        assert_eq!(book.find(first.bytes()), Some((first.buffer(), 0)));
        assert_eq!(book.find(&[0; 4]), None);
        let number = first.buffer();
        drop(first);
        assert_eq!((book.take_gone(), book.take_gone()), (vec![number], vec![]));
    }

    #[test]
    fn what_is_written_on_one_side_is_read_on_the_other() {
        use std::os::unix::fs::FileExt;
        let (mut region, file) = Region::create(5, &Arc::default()).unwrap();
        region.bytes_mut()[0] = 7;
        assert_eq!(std::fs::read(file.path()).unwrap(), [7, 0, 0, 0, 0]);
        // As a sidecar does: it opens the path and changes the file, whose length stays.
        let theirs = File::options().write(true).open(file.path()).unwrap();
        theirs.write_all_at(&[1, 2], 3).unwrap();
        drop((theirs, file));
        assert_eq!(region.bytes(), [7, 0, 0, 1, 2]);
    }

    #[test]
    fn nobody_can_change_the_size_of_the_file() {
        let (mut region, file) = Region::create(5, &Arc::default()).unwrap();
        let opened = std::fs::OpenOptions::new().write(true).open(file.path()).unwrap();
        for bytes in [0, 1 << 20] {
            assert_eq!(opened.set_len(bytes).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{bytes}");
        }
        region.bytes_mut()[4] = 7;
        assert_eq!(region.bytes(), [0, 0, 0, 0, 7]);
    }

    #[test]
    fn more_memory_than_there_is_is_an_error() {
        assert_eq!(Region::create(1 << 60, &Arc::default()).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert!((1..1 << 60).contains(&available()));
    }
}
