//! Regions of POSIX shared memory, from which inputs are read and to which outputs are written. They are files of /dev/shm,
//! and are copied with reads and writes: a client that truncates one cannot end the server.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use axum::body::Bytes;
use flagperf_config::list_known;
use nix::fcntl::OFlag;
use tokio::sync::OwnedSemaphorePermit;

use super::api_error::{ApiError, ErrorKind};
use super::body::BodyLimits;
use super::messages::system_shared_memory_status_response::RegionStatus;

/// Where the system keeps shared memory.
const FOLDER: &str = "/dev/shm";
/// The most regions.
const REGIONS_MAX: usize = 256;
/// The longest name of a region, and of a file, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// A part of a region, in which a tensor lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionRange {
    /// The name of the region.
    pub region: String,
    /// Where the tensor begins in the region.
    pub offset: u64,
    /// The size of the part in bytes.
    pub bytes: u64,
}

/// A registered region.
#[derive(Debug)]
struct Region {
    status: RegionStatus,
    file: File,
}

impl Region {
    /// Returns where a part begins in the file.
    fn begin(&self, range: &RegionRange) -> Result<u64, String> {
        let RegionRange { region, offset, bytes } = range;
        let size = self.status.byte_size;
        if offset.checked_add(*bytes).is_none_or(|end| end > size) {
            return Err(format!("region `{region}` has {size} bytes, but {bytes} from byte {offset} on are asked for"));
        }
        let begin = self.status.offset + offset;
        let file_size = self.file.metadata().map_err(|error| format!("region `{region}`: {error}"))?.len();
        if file_size < begin + bytes {
            return Err(format!("region `{region}`: its file `{}` has become smaller", self.status.key));
        }
        Ok(begin)
    }
}

/// The regions of a server.
#[derive(Debug)]
pub struct SharedRegions {
    regions: RwLock<BTreeMap<String, Arc<Region>>>,
    limits: BodyLimits,
}

impl SharedRegions {
    /// Creates the regions of a server. What is read from them counts as the bodies of requests do.
    pub fn new(limits: BodyLimits) -> Self {
        SharedRegions { regions: RwLock::default(), limits }
    }

    /// Registers a part of a file of /dev/shm under a name.
    ///
    /// # Errors
    /// When the name is taken, the key is not the name of a regular file there, or the file is too small.
    pub fn register(&self, status: RegionStatus) -> Result<(), ApiError> {
        let region = open(status).map_err(ApiError::bad_request)?;
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let name = region.status.name.clone();
        if regions.contains_key(&name) {
            return Err(ApiError::bad_request(format!("region `{name}` is registered already: unregister it first")));
        }
        if regions.len() >= REGIONS_MAX {
            return Err(ApiError::too_many(format!("{REGIONS_MAX} regions are registered already")));
        }
        regions.insert(name, Arc::new(region));
        Ok(())
    }

    /// Forgets a region; all of them if the name is empty. One that is not registered is no error, as for Triton.
    pub fn unregister(&self, name: &str) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        if name.is_empty() { regions.clear() } else { _ = regions.remove(name) }
    }

    /// Returns a region; all of them if the name is empty.
    ///
    /// # Errors
    /// When it is not registered.
    pub fn status(&self, name: &str) -> Result<Vec<RegionStatus>, ApiError> {
        if !name.is_empty() {
            return Ok(vec![self.find(name)?.status.clone()]);
        }
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        Ok(regions.values().map(|region| region.status.clone()).collect())
    }

    /// Reads a tensor. Its memory counts until the permit is dropped.
    ///
    /// # Errors
    /// When the region is not registered or too small, or the memory of all requests is used up.
    pub fn read(&self, range: &RegionRange) -> Result<(Bytes, OwnedSemaphorePermit), ApiError> {
        let region = self.find(&range.region)?;
        let begin = region.begin(range).map_err(ApiError::bad_request)?;
        let size = usize::try_from(range.bytes).unwrap_or(usize::MAX);
        let permit = self.limits.reserve(size)?;
        let mut content = vec![0; size];
        region.file.read_exact_at(&mut content, begin).map_err(|error| failed(range, &error))?;
        Ok((Bytes::from(content), permit))
    }

    /// Checks that a part of a region exists.
    ///
    /// # Errors
    /// When the region is not registered or too small.
    pub fn check(&self, range: &RegionRange) -> Result<(), ApiError> {
        self.find(&range.region)?.begin(range).map(|_| ()).map_err(ApiError::bad_request)
    }

    /// Writes a tensor.
    ///
    /// # Errors
    /// When the region is not registered or too small, or the part of it is.
    pub fn write(&self, range: &RegionRange, content: &[u8]) -> Result<(), ApiError> {
        let region = self.find(&range.region)?;
        let begin = region.begin(range).map_err(ApiError::bad_request)?;
        if content.len() as u64 > range.bytes {
            let (name, bytes) = (&range.region, range.bytes);
            return Err(ApiError::bad_request(format!(
                "the tensor has {} bytes, but its part of region `{name}` has {bytes}",
                content.len()
            )));
        }
        region.file.write_all_at(content, begin).map_err(|error| failed(range, &error))
    }

    fn find(&self, name: &str) -> Result<Arc<Region>, ApiError> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.get(name).cloned().ok_or_else(|| {
            let known = list_known(name, regions.keys().map(String::as_str));
            ApiError::new(ErrorKind::NotFound, format!("unknown region `{name}` (registered: {known})"))
        })
    }
}

/// Returns the answer to whoever asks for shared memory of CUDA.
pub fn no_cuda() -> ApiError {
    let message = "this server has no shared memory of CUDA: register system shared memory";
    ApiError::new(ErrorKind::Unimplemented, message)
}

fn failed(range: &RegionRange, error: &io::Error) -> ApiError {
    ApiError::bad_request(format!("region `{}`: {error}", range.region))
}

/// Opens the file of a region.
fn open(status: RegionStatus) -> Result<Region, String> {
    let RegionStatus { name, key, offset, byte_size } = &status;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(format!("the name of a region has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len()));
    }
    let file_name = key.strip_prefix('/').unwrap_or(key);
    if file_name.is_empty()
        || file_name.len() > NAME_BYTES_MAX
        || file_name.contains(['/', '\0'])
        || file_name.starts_with('.')
    {
        return Err(format!("region `{name}`: the key `{key}` cannot be the name of shared memory"));
    }
    let path = Path::new(FOLDER).join(file_name);
    // A link is not followed, and opening a FIFO does not wait for its other end.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags.bits()).open(&path);
    let file = file.map_err(|error| format!("region `{name}`: the shared memory `{key}` cannot be opened: {error}"))?;
    let facts = file.metadata().map_err(|error| format!("region `{name}`: {error}"))?;
    if !facts.is_file() {
        return Err(format!("region `{name}`: `{key}` is not shared memory"));
    }
    if *byte_size == 0 || offset.checked_add(*byte_size).is_none_or(|end| end > facts.len()) {
        let size = facts.len();
        return Err(format!(
            "region `{name}`: {byte_size} bytes from byte {offset} on are not in `{key}`, which has {size} bytes"
        ));
    }
    Ok(Region { status, file })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A file of /dev/shm, which the test removes.
    struct Shared(String);

    impl Shared {
        fn new(name: &str, content: &[u8]) -> Self {
            let name = format!("flagperf-test-{name}-{}", std::process::id());
            std::fs::write(Path::new(FOLDER).join(&name), content).unwrap();
            Shared(name)
        }
    }

    impl Drop for Shared {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(Path::new(FOLDER).join(&self.0));
        }
    }

    fn status(name: &str, key: &str, offset: u64, byte_size: u64) -> RegionStatus {
        RegionStatus { name: name.to_owned(), key: key.to_owned(), offset, byte_size }
    }

    fn regions() -> SharedRegions {
        SharedRegions::new(BodyLimits::new(1024))
    }

    #[test]
    fn a_tensor_is_read_and_written_in_its_part_of_a_region() {
        let (shared, regions) = (Shared::new("parts", &[0, 1, 2, 3, 4, 5, 6, 7]), regions());
        regions.register(status("a", &format!("/{}", shared.0), 2, 6)).unwrap();
        let range = RegionRange { region: "a".to_owned(), offset: 1, bytes: 3 };
        assert_eq!(regions.read(&range).unwrap().0, [3, 4, 5][..]);
        regions.write(&range, &[9, 9]).unwrap();
        assert_eq!(std::fs::read(Path::new(FOLDER).join(&shared.0)).unwrap(), [0, 1, 2, 9, 9, 5, 6, 7]);
        assert!(regions.write(&range, &[9; 4]).unwrap_err().message.starts_with("the tensor has 4 bytes"));
        let beyond = RegionRange { offset: u64::MAX, ..range.clone() };
        assert!(regions.read(&beyond).unwrap_err().message.starts_with("region `a` has 6 bytes, but 3 from byte"));
        let file = OpenOptions::new().write(true).open(Path::new(FOLDER).join(&shared.0)).unwrap();
        file.set_len(4).unwrap();
        assert!(regions.read(&range).unwrap_err().message.ends_with("has become smaller"));
        assert!(regions.write(&range, &[1]).unwrap_err().message.ends_with("has become smaller"));
        assert_eq!(file.metadata().unwrap().len(), 4, "the server does not make it larger");
        regions.unregister("a");
        assert_eq!(regions.read(&range).unwrap_err().kind, ErrorKind::NotFound);
    }

    #[test]
    fn only_regular_files_of_the_folder_are_opened_and_only_as_far_as_they_reach() {
        let (shared, regions) = (Shared::new("names", &[0; 8]), regions());
        let link = Shared(format!("{}-link", shared.0));
        symlink("/etc/passwd", Path::new(FOLDER).join(&link.0)).unwrap();
        for (key, offset, size, expected) in [
            ("/../etc/passwd", 0, 1, "cannot be the name of shared memory"),
            ("..", 0, 1, "cannot be the name of shared memory"),
            ("", 0, 1, "cannot be the name of shared memory"),
            ("a/b", 0, 1, "cannot be the name of shared memory"),
            ("flagperf-test-nothing", 0, 1, "cannot be opened: "),
            (link.0.as_str(), 0, 1, "cannot be opened: "),
            (shared.0.as_str(), 1, 8, "8 bytes from byte 1 on are not in `"),
            (shared.0.as_str(), u64::MAX, 1, "are not in `"),
            (shared.0.as_str(), 0, 0, "0 bytes from byte 0 on are not in `"),
        ] {
            let error = regions.register(status("a", key, offset, size)).unwrap_err();
            assert!(error.message.contains(expected), "{key}: {}", error.message);
        }
        regions.register(status("a", &shared.0, 0, 8)).unwrap();
        let again = regions.register(status("a", &shared.0, 0, 8)).unwrap_err();
        assert!(again.message.starts_with("region `a` is registered already"));
        assert_eq!(regions.status("").unwrap().len(), 1);
    }
}
