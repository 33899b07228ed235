//! Raw times of every step, in `samples.<phase>.csv` beside the record: one row per step, written after each pass.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::file;
use crate::measure::StepTimes;
use crate::step::Phase;

/// An open file of raw step times.
pub struct SampleFile {
    path: PathBuf,
    writer: csv::Writer<File>,
}

impl SampleFile {
    /// Creates the file of a phase in `folder`.
    ///
    /// # Errors
    /// When the file cannot be created; the error names it.
    pub fn create(folder: &Path, phase: Phase) -> io::Result<Self> {
        let path = folder.join(format!("samples.{}.csv", phase.name()));
        let file = file::create(&path).map_err(|error| with_path(error, &path))?;
        let writer = csv::Writer::from_writer(file);
        Ok(SampleFile { path, writer })
    }

    /// Appends the steps of a pass and flushes them to disk.
    ///
    /// # Errors
    /// When the steps cannot be written; the error names the file.
    pub fn append(&mut self, steps: &[StepTimes]) -> io::Result<()> {
        self.write(steps).map_err(|error| with_path(error, &self.path))
    }

    fn write(&mut self, steps: &[StepTimes]) -> io::Result<()> {
        for step in steps {
            self.writer.serialize(step).map_err(io::Error::other)?;
        }
        self.writer.flush()?;
        self.writer.get_ref().sync_data()
    }

    /// Checks that the path still refers to this file.
    ///
    /// # Errors
    /// When the file was removed or replaced.
    pub fn check(&self) -> io::Result<()> {
        file::check_same(self.writer.get_ref(), &self.path)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn with_path(error: io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Seconds;

    #[test]
    fn a_full_disk_is_an_error_with_the_name_of_the_file() {
        let path = PathBuf::from("/dev/full");
        let file = File::options().write(true).open(&path).unwrap();
        let mut samples = SampleFile { path, writer: csv::Writer::from_writer(file) };
        let error = samples.append(&[StepTimes::default()]).unwrap_err().to_string();
        assert_eq!(error, "cannot write `/dev/full`: No space left on device (os error 28)");
        let error = SampleFile::create(Path::new("/no/such"), Phase::Infer).err().unwrap().to_string();
        assert!(error.starts_with("cannot write `/no/such/samples.infer.csv`: "), "{error}");
    }

    #[test]
    fn every_step_is_a_row_under_named_columns() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = SampleFile::create(folder.path(), Phase::Infer).unwrap();
        let step = StepTimes { samples: 8, core_s: Seconds(0.25), ..StepTimes::default() };
        file.append(&[step, step]).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("pass,samples,load_wait_s,core_s,output_s,evaluate_s,host_s"));
        assert_eq!(lines.next(), Some("0,8,0.0,0.25,0.0,0.0,0.0"));
        assert_eq!(lines.count(), 1);
    }

    #[test]
    fn a_link_in_place_of_the_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let theirs = folder.path().join("theirs");
        std::fs::write(&theirs, "theirs").unwrap();
        let link = folder.path().join("samples.infer.csv");
        std::os::unix::fs::symlink(&theirs, &link).unwrap();
        let mut file = SampleFile::create(folder.path(), Phase::Infer).unwrap();
        file.append(&[StepTimes::default()]).unwrap();
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "theirs");
        file.check().unwrap();
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&theirs, &link).unwrap();
        file.append(&[StepTimes::default()]).unwrap();
        assert!(file.check().unwrap_err().to_string().starts_with("another program replaced the file `"));
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "theirs");
    }
}
