//! Stores a copy of this program for containers, under the hash of its content, so that containers use the same program even if
//! the file that was started is replaced.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::ContainerError;
use flagperf_config::cache_folder;
use flagperf_core::hash::hash_file;
use flagperf_host::THIS_PROGRAM;

/// The folder of programs in the cache.
const FOLDER: &str = "bin";
/// Name of the program.
const NAME: &str = "flagperf";

/// Returns the path of a copy of this program in the cache folder, and creates the copy if it does not exist. `hash` is the
/// SHA-256 of this program, if it is known.
///
/// # Errors
/// When there is no cache folder, or it is not writable.
pub fn stored_program(hash: Option<&str>) -> Result<PathBuf, ContainerError> {
    store(Path::new(THIS_PROGRAM), hash, &cache_folder().ok_or(ContainerError::NoCache)?)
}

fn store(program: &Path, known: Option<&str>, cache: &Path) -> Result<PathBuf, ContainerError> {
    let failed = |path: &Path, source| ContainerError::Store { path: path.to_owned(), source };
    let hash = known.map_or_else(|| hash_file(program), |hash| Ok(hash.to_owned()));
    let hash = hash.map_err(|error| failed(program, error))?;
    let folder = cache.join(FOLDER).join(&hash);
    let stored = folder.join(NAME);
    // An existing copy is hashed again, because somebody may have changed it.
    if hash_file(&stored).is_ok_and(|found| found == hash) {
        return Ok(stored);
    }
    fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
    copy(program, &stored).map_err(|error| failed(&stored, error))?;
    Ok(stored)
}

/// Copies a program atomically: no other process sees an incomplete copy.
fn copy(program: &Path, stored: &Path) -> io::Result<()> {
    let folder = stored.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut staged = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempfile_in(folder)?;
    io::copy(&mut File::open(program)?, &mut staged)?;
    staged.as_file().set_permissions(Permissions::from_mode(0o755))?;
    staged.persist(stored).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_stored_once_and_a_changed_copy_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "content").unwrap();
        let stored = store(&program, None, folder.path()).unwrap();
        let modified = fs::metadata(&stored).unwrap().modified().unwrap();
        assert_eq!(store(&program, None, folder.path()).unwrap(), stored);
        assert_eq!(fs::metadata(&stored).unwrap().modified().unwrap(), modified);
        assert_eq!(fs::metadata(&stored).unwrap().permissions().mode() & 0o777, 0o755);
        fs::write(&stored, "changed").unwrap();
        assert_eq!(fs::read_to_string(store(&program, None, folder.path()).unwrap()).unwrap(), "content");
        fs::write(&program, "other").unwrap();
        assert_ne!(store(&program, None, folder.path()).unwrap(), stored);
    }
}
