//! Mirrors a folder while its files grow: the agent sends new content, and the receiver writes it at the same offsets.
//!
//! The result folder on the host is the send buffer. After a broken connection, the receiver states how many bytes of
//! each file it has, so parts need no sequence numbers, no second copy and no acknowledgement.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

use flagperf_core::file::is_inside;
use flagperf_core::run_files::{CHECKPOINTS_FOLDER, EVENTS_FILE, MANIFEST_FILE};

/// Largest number of files of a result.
pub(super) const FILES_MAX: usize = 100_000;
/// Number of bytes of a part. On the slowest connection that is used, a part arrives within the time after which a connection
/// without a complete message counts as broken.
const PART_BYTES: usize = 16 << 10;
/// Largest number of bytes of one file that are sent before other files get their turn.
const BYTES_PER_ROUND: u64 = 8 << 20;

/// Sends the new content of the files in a folder.
#[derive(Debug)]
pub(super) struct FolderSender {
    root: PathBuf,
    /// The number of bytes of each file that were sent.
    sent: BTreeMap<String, u64>,
}

impl FolderSender {
    pub(super) fn new(root: PathBuf, sent: BTreeMap<String, u64>) -> Self {
        FolderSender { root, sent }
    }

    /// Passes the new content to `send`, in parts. Returns whether all of it was sent; a large file takes several rounds.
    pub(super) fn send_new(&mut self, mut send: impl FnMut(&str, u64, &[u8]) -> io::Result<()>) -> io::Result<bool> {
        let mut is_complete = true;
        for (path, size) in list_files(&self.root)? {
            let offset = self.sent.get(&path).copied();
            // A file that has become shorter was rewritten and is sent from its beginning.
            let mut offset = if offset.is_some_and(|sent| sent > size) { None } else { offset };
            if offset == Some(size) {
                continue;
            }
            // The file may have been removed in the meantime.
            let Ok(file) = open(&self.root.join(&path)) else { continue };
            let end = size.min(offset.unwrap_or(0) + BYTES_PER_ROUND);
            is_complete &= end == size;
            let mut part = vec![0; PART_BYTES];
            while offset.is_none_or(|sent| sent < end) {
                let from = offset.unwrap_or(0);
                let wanted = usize::try_from(end - from).unwrap_or(PART_BYTES).min(PART_BYTES);
                let read = file.read_at(&mut part[..wanted], from)?;
                // A file is renamed before its content is masked.
                if !self.root.join(&path).exists() {
                    break;
                }
                send(&path, from, &part[..read])?;
                offset = Some(from + read as u64);
                self.sent.insert(path.clone(), from + read as u64);
                if read == 0 {
                    break;
                }
            }
        }
        Ok(is_complete)
    }

    /// Returns the files with their sizes in bytes.
    pub(super) fn files(&self) -> io::Result<BTreeMap<String, u64>> {
        list_files(&self.root)
    }
}

fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Returns the regular files below the folder of a result with their sizes. Until the result has a manifest, these are not the
/// files that are still being written, those of engines in `scratch`, and checkpoints, which come and go; a manifest lists every file. For a folder that does not
/// exist, the result is empty.
pub(super) fn list_files(root: &Path) -> io::Result<BTreeMap<String, u64>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![PathBuf::new()]);
    let is_sealed = root.join(MANIFEST_FILE).exists();
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(root.join(&folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            let is_scratch = folder.as_os_str().is_empty() && (name == "scratch" || name == CHECKPOINTS_FOLDER);
            // Only the manifest itself is written last.
            let is_temporary = match is_sealed {
                true => name.starts_with(MANIFEST_FILE) && name.ends_with(".part"),
                false => is_scratch || name.starts_with('.') || name.ends_with(".part"),
            };
            match entry.metadata() {
                Ok(kind) if kind.is_dir() && !is_temporary => folders.push(path),
                Ok(kind) if kind.is_file() && !is_temporary => {
                    found.insert(path.to_string_lossy().into_owned(), kind.len());
                }
                _ => {}
            }
        }
        if found.len() > FILES_MAX {
            return Err(io::Error::other(format!("the result has more than {FILES_MAX} files")));
        }
    }
    Ok(found)
}

/// Why a part of a file was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum PartError {
    /// The file ends before the offset of this part, or after it.
    #[error("an earlier part of the file is missing")]
    MissingPart,
    /// The file cannot be written.
    #[error(transparent)]
    Unwritable(#[from] io::Error),
}

/// Writes a part of a file in the folder `root` at its offset.
///
/// # Errors
/// When the path leaves the folder, an earlier part is missing, or the file cannot be written.
pub(super) fn write_part(root: &Path, path: &str, offset: u64, part: &[u8]) -> Result<(), PartError> {
    if !is_inside(Path::new(path)) {
        return Err(io::Error::other(format!("the host sent a file outside the result folder: `{path}`")).into());
    }
    let target = root.join(path);
    fs::create_dir_all(target.parent().unwrap_or(root))?;
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).custom_flags(O_NOFOLLOW | O_NONBLOCK);
    let file = options.open(&target)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file").into());
    }
    if offset == 0 {
        file.set_len(0)?;
    } else if file.metadata()?.len() != offset {
        return Err(PartError::MissingPart);
    }
    Ok(file.write_all_at(part, offset)?)
}

/// Compares the files of an ended session in `folder` with those on its host; both maps contain their sizes. If the host still
/// has the events, a file that only this machine has was removed by an engine, and is removed here, too. Otherwise somebody
/// deleted the result on the host: everything here is kept, without the manifest, which describes less. Returns the reason then.
pub(super) fn reconcile(folder: &Path, here: &BTreeMap<String, u64>, there: &BTreeMap<String, u64>) -> Option<String> {
    let mut only_here = here.keys().filter(|path| !there.contains_key(*path));
    if there.contains_key(EVENTS_FILE) || !here.contains_key(EVENTS_FILE) {
        only_here.for_each(|path| drop(fs::remove_file(folder.join(path))));
        return None;
    }
    let _ = fs::remove_file(folder.join(MANIFEST_FILE));
    let (first, more) = (only_here.next()?, only_here.count());
    let more = if more > 0 { format!(" and {more} more of its files") } else { String::new() };
    Some(format!(
        "the host no longer has `{first}`{more}, so somebody deleted them there; what had arrived before is kept"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrived_is_kept_when_the_result_was_deleted_on_the_host() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["events.jsonl", "engine.cache", "manifest.json", "record.json"] {
            fs::write(folder.path().join(path), path).unwrap();
        }
        let here = || list_files(folder.path()).unwrap();
        let there = |paths: &[&str]| paths.iter().map(|path| ((*path).to_owned(), path.len() as u64)).collect();
        let deleted = reconcile(folder.path(), &here(), &there(&["record.json", "manifest.json"])).unwrap();
        assert!(deleted.starts_with("the host no longer has `engine.cache` and 1 more of its files"), "{deleted}");
        assert_eq!(here().into_keys().collect::<Vec<_>>(), ["engine.cache", "events.jsonl", "record.json"]);
        assert_eq!(reconcile(folder.path(), &here(), &there(&["events.jsonl", "record.json"])), None);
        assert_eq!(here().into_keys().collect::<Vec<_>>(), ["events.jsonl", "record.json"]);
    }

    #[test]
    fn new_content_is_sent_once_and_after_a_broken_connection_from_the_size_at_the_receiver() {
        let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let write = |path: &str, text: &str| {
            fs::create_dir_all(from.path().join(path).parent().unwrap()).unwrap();
            fs::write(from.path().join(path), text).unwrap();
        };
        let read = |path: &str| fs::read_to_string(to.path().join(path)).unwrap();
        let mut sent = 0;
        let mut folder = FolderSender::new(from.path().to_owned(), BTreeMap::new());
        let mut send = |folder: &mut FolderSender| {
            folder.send_new(|path, offset, part| {
                sent += part.len();
                write_part(to.path(), path, offset, part).map_err(io::Error::other)
            })
        };
        for (path, text) in [("events.jsonl", "one\n"), ("a/b", ""), ("scratch/x", "x"), ("record.json.1.part", "x")] {
            write(path, text);
        }
        assert!(send(&mut folder).unwrap());
        write("events.jsonl", "one\ntwo\n");
        // The connection broke: a new sender gets the sizes of the files at the receiver.
        let mut folder = FolderSender::new(from.path().to_owned(), list_files(to.path()).unwrap());
        send(&mut folder).unwrap();
        assert_eq!((read("events.jsonl").as_str(), read("a/b").as_str()), ("one\ntwo\n", ""));
        write("events.jsonl", "new\n");
        send(&mut folder).unwrap();
        assert_eq!(read("events.jsonl"), "new\n");
        assert!(!to.path().join("scratch").exists() && !to.path().join("record.json.1.part").exists());
        assert_eq!(sent, 4 + 4 + 4);
        // A manifest lists every file, whatever its name.
        for path in ["engine.part", "a/scratch/.x", "manifest.json"] {
            write(path, "x");
        }
        let mut folder = FolderSender::new(from.path().to_owned(), list_files(to.path()).unwrap());
        folder
            .send_new(|path, offset, part| write_part(to.path(), path, offset, part).map_err(io::Error::other))
            .unwrap();
        assert_eq!((read("engine.part").as_str(), read("a/scratch/.x").as_str()), ("x", "x"));
    }

    #[test]
    fn a_part_arrives_on_the_slowest_connection_before_the_connection_counts_as_broken() {
        let from = tempfile::tempdir().unwrap();
        fs::write(from.path().join("samples"), vec![0; 5 * PART_BYTES / 2]).unwrap();
        let mut sizes = Vec::new();
        let mut folder = FolderSender::new(from.path().to_owned(), BTreeMap::new());
        let mut send = |_: &str, _, part: &[u8]| {
            sizes.push(part.len());
            Ok(())
        };
        folder.send_new(&mut send).unwrap();
        assert_eq!(sizes, [PART_BYTES, PART_BYTES, PART_BYTES / 2]);
        let slowest = PART_BYTES as f64 / crate::transfer_rate::BYTES_PER_S_MIN;
        assert!(slowest < crate::link_thread::SILENCE_MAX.0 / 2.0, "{slowest} s");
    }

    #[test]
    fn parts_outside_the_result_folder_or_after_a_missing_part_are_refused() {
        let to = tempfile::tempdir().unwrap();
        assert!(write_part(to.path(), "../x", 0, b"x").unwrap_err().to_string().contains("outside the result folder"));
        assert!(matches!(write_part(to.path(), "x", 5, b"x"), Err(PartError::MissingPart)));
        nix::unistd::mkfifo(&to.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(
            matches!(write_part(to.path(), "fifo", 0, b"x"), Err(PartError::Unwritable(_))),
            "it does not wait for a reader"
        );
    }
}
