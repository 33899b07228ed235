//! Files mapped into memory.
//!
//! Knows nothing about file formats.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::HostMemory;
use flagperf_core::regular_file::open_regular;

/// A whole file as bytes. Cloning shares the mapping.
#[derive(Clone)]
pub(crate) struct MappedFile(Option<Arc<Mmap>>);

impl MappedFile {
    /// Maps a regular file. An empty file is not mapped and has no bytes.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let file = open_regular(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(MappedFile(None));
        }
        // SAFETY: the mapping is read-only. Its bytes do not change unless the file is rewritten in place. This crate
        // never does that (it writes a new file and renames it), and model files are not edited during a run.
        let map = unsafe { Mmap::map(&file)? };
        Ok(MappedFile(Some(Arc::new(map))))
    }

    /// Returns the file's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |map| &map[..])
    }

    /// Returns a part of the file as tensor memory. The range must lie within the file.
    pub(crate) fn slice(&self, range: Range<usize>) -> Arc<dyn HostMemory> {
        Arc::new(MappedRange { file: self.clone(), range })
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

struct MappedRange {
    file: MappedFile,
    range: Range<usize>,
}

impl HostMemory for MappedRange {
    fn bytes(&self) -> &[u8] {
        &self.file.bytes()[self.range.clone()]
    }
}
