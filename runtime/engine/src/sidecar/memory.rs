//! Memory shared with a sidecar: a file in memory that both processes map. Its size is sealed; its content is not,
//! because a file that is sealed against writes cannot be pinned for a device.
//!
//! Does not depend on the protocol: it numbers the regions and finds a region by an address inside it.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::{MmapMut, MmapOptions};
use nix::fcntl::{FcntlArg, SealFlag, fcntl, posix_fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::LentMemory;
use crate::available_memory::available_memory;
use flagperf_core::tensor::HostMemory;

/// The regions that are lent to one sidecar.
#[derive(Debug, Default)]
pub(super) struct LentRegions {
    state: Mutex<LentState>,
}

#[derive(Debug, Default)]
struct LentState {
    next_buffer: u32,
    lent: Vec<RegionRange>,
    /// Dropped regions, to be reported to the sidecar.
    dropped: Vec<u32>,
}

#[derive(Debug)]
struct RegionRange {
    buffer: u32,
    address: usize,
    bytes: usize,
}

impl LentRegions {
    /// Returns the number of the region that contains `bytes`, and the offset of `bytes` in that region.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<(u32, usize)> {
        let address = bytes.as_ptr() as usize;
        let contains = |range: &&RegionRange| {
            address >= range.address && address + bytes.len() <= range.address + range.bytes && !bytes.is_empty()
        };
        self.state().lent.iter().find(contains).map(|range| (range.buffer, address - range.address))
    }

    /// Returns the regions that were dropped since the previous call.
    pub(super) fn take_dropped(&self) -> Vec<u32> {
        std::mem::take(&mut self.state().dropped)
    }

    fn state(&self) -> MutexGuard<'_, LentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A region of memory that is shared with a sidecar.
#[derive(Debug)]
pub(super) struct Region {
    map: MmapMut,
    bytes: usize,
    buffer: u32,
    regions: Arc<LentRegions>,
}

impl Region {
    /// Creates a region of `bytes` zeros, all of them allocated. The file must stay open until the sidecar has mapped it.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub(super) fn create(bytes: usize, regions: &Arc<LentRegions>) -> io::Result<(Region, File)> {
        if bytes as u64 > available_memory() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let file = File::from(memfd_create(c"flagperf", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
        // A mapping cannot be empty.
        let size = bytes.max(1);
        posix_fallocate(&file, 0, i64::try_from(size).map_err(io::Error::other)?)?;
        // Reading a mapping behind the end of a truncated file would kill this process, so the size is sealed.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        // SAFETY: only this process and the sidecar know the file. The sidecar writes to it during `fetch`, when this
        // process does not read it, and reads it during `run`, when this process does not write to it.
        let map = unsafe { MmapOptions::new().len(size).populate().map_mut(&file) }?;
        let mut state = regions.state();
        let buffer = state.next_buffer;
        state.next_buffer += 1;
        state.lent.push(RegionRange { buffer, address: map.as_ptr() as usize, bytes });
        drop(state);
        Ok((Region { map, bytes, buffer, regions: Arc::clone(regions) }, file))
    }

    /// Returns the number of the region in messages.
    pub(super) fn buffer(&self) -> u32 {
        self.buffer
    }
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
        let mut state = self.regions.state();
        state.lent.retain(|range| range.buffer != self.buffer);
        state.dropped.push(self.buffer);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    use super::*;

    fn path(file: &File) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }

    #[test]
    fn an_address_finds_its_region_until_the_region_is_dropped() {
        let regions = Arc::new(LentRegions::default());
        let (first, _) = Region::create(100, &regions).unwrap();
        let (second, _) = Region::create(100, &regions).unwrap();
        assert_eq!(regions.find(&second.bytes()[8..20]), Some((second.buffer(), 8)));
        assert_eq!(regions.find(first.bytes()), Some((first.buffer(), 0)));
        assert_eq!(regions.find(&[0; 4]), None);
        let number = first.buffer();
        drop(first);
        assert_eq!((regions.take_dropped(), regions.take_dropped()), (vec![number], vec![]));
    }

    #[test]
    fn each_side_reads_what_the_other_side_wrote() {
        use std::os::unix::fs::FileExt;
        let (mut region, file) = Region::create(5, &Arc::default()).unwrap();
        region.bytes_mut()[0] = 7;
        assert_eq!(std::fs::read(path(&file)).unwrap(), [7, 0, 0, 0, 0]);
        // A sidecar opens the path and changes the contents of the file, whose length stays the same.
        let theirs = File::options().write(true).open(path(&file)).unwrap();
        theirs.write_all_at(&[1, 2], 3).unwrap();
        drop((theirs, file));
        assert_eq!(region.bytes(), [7, 0, 0, 1, 2]);
    }

    #[test]
    fn the_size_of_the_file_is_sealed() {
        let (mut region, file) = Region::create(5, &Arc::default()).unwrap();
        let opened = std::fs::OpenOptions::new().write(true).open(path(&file)).unwrap();
        for bytes in [0, 1 << 20] {
            assert_eq!(opened.set_len(bytes).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{bytes}");
        }
        region.bytes_mut()[4] = 7;
        assert_eq!(region.bytes(), [0, 0, 0, 0, 7]);
    }

    #[test]
    fn a_region_larger_than_the_memory_is_an_error() {
        assert_eq!(Region::create(1 << 60, &Arc::default()).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert!((1..1 << 60).contains(&available_memory()));
    }
}
