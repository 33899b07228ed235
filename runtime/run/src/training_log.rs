//! The files of the logs of a training, written while events arrive: see `flagperf_result::TrainingLog`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flagperf_core::event::Event;
use flagperf_core::file;
use flagperf_core::hash::WrittenHash;
use flagperf_core::units::Seconds;
use flagperf_result::{LogText, Record, TrainingLog};

/// The open logs of a training. A write error does not stop the run; the first one is kept.
pub(super) struct TrainingLogFiles {
    log: TrainingLog,
    folder: PathBuf,
    /// The files so far, by path in the folder.
    files: BTreeMap<String, (File, WrittenHash)>,
    error: Option<io::Error>,
}

impl TrainingLogFiles {
    /// Prepares the logs in the folder of a case that trains on the host of this name.
    pub(super) fn new(record: &Record, host: &str, folder: &Path) -> Self {
        let log = TrainingLog::new(record, host);
        TrainingLogFiles { log, folder: folder.to_owned(), files: BTreeMap::new(), error: None }
    }

    /// Writes the lines for an event that arrived `at` after the begin of the case.
    pub(super) fn write(&mut self, at: Seconds, event: &Event) {
        for LogText { path, text } in self.log.add(at, event) {
            if let Err(error) = self.append(path, &text) {
                self.error.get_or_insert(error);
            }
        }
    }

    fn append(&mut self, path: String, text: &str) -> io::Result<()> {
        if !self.files.contains_key(&path) {
            let file = create(&self.folder, Path::new(&path))?;
            self.files.insert(path.clone(), (file, WrittenHash::default()));
        }
        let Some((file, written)) = self.files.get_mut(&path) else { return Ok(()) };
        file.write_all(text.as_bytes())?;
        written.add(text.as_bytes());
        Ok(())
    }

    /// Checks that the paths still refer to these files, and that they contain what was written to them.
    ///
    /// # Errors
    /// When a file was removed, replaced or changed.
    pub(super) fn check(&self) -> io::Result<()> {
        // What a full disk has cut off is no other program's change.
        if self.error.is_some() {
            return Ok(());
        }
        self.files.iter().try_for_each(|(path, (file, written))| {
            let path = self.folder.join(path);
            file::check_same(file, &path)?;
            written.check(&path)
        })
    }

    /// Returns why lines are missing; `None` when the logs are complete.
    pub(super) fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }
}

/// Creates a file and the folders that lead to it. A link in their place is refused: another program made it.
fn create(folder: &Path, path: &Path) -> io::Result<File> {
    let mut current = folder.to_owned();
    for name in path.parent().into_iter().flat_map(Path::components) {
        current.push(name);
        match fs::create_dir(&current) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !fs::symlink_metadata(&current)?.is_dir() {
                    return Err(io::Error::other(format!("`{}` is not a folder", current.display())));
                }
            }
            created => created?,
        }
    }
    File::create_new(folder.join(path))
}
