//! Raw times beside the record, written by the conductor as they arrive: in `samples.<phase>.csv` one row per step, and in
//! `queries.csv` one row per query of a scenario.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::FileRecord;
use flagperf_core::event::Event;
use flagperf_core::file;
use flagperf_core::hash::{changed_error, hash_file, hexadecimal};
use flagperf_core::measure::QueryTimes;
use flagperf_core::run_files::{QUERIES_FILE, samples_file};
use flagperf_core::step::Phase;
use flagperf_core::units::{Bytes, Seconds};

/// The kind of the file in a record.
pub const SAMPLES_KIND: &str = "samples";

/// The open files of a phase, each of which is created when there is something to write.
#[derive(Default)]
pub struct SampleFiles {
    steps: Option<SampleFile>,
    queries: Option<SampleFile>,
    query_rows: QueryRows,
}

impl SampleFiles {
    /// Appends the times in an event to their file in `folder`, and flushes them to disk.
    ///
    /// # Errors
    /// When they cannot be written; the error names the file.
    pub fn append(&mut self, folder: &Path, phase: Phase, event: &Event) -> io::Result<()> {
        match event {
            Event::Steps { times, .. } => open(&mut self.steps, folder, &samples_file(phase))?.append(&times.0),
            Event::Queries { times } => {
                let rows = self.query_rows.of(&times.0);
                open(&mut self.queries, folder, QUERIES_FILE)?.append(&rows)
            }
            _ => Ok(()),
        }
    }

    /// Returns the files for the record: see [`SampleFile::finish`].
    pub fn finish(self) -> impl Iterator<Item = io::Result<FileRecord>> {
        self.steps.into_iter().chain(self.queries).map(SampleFile::finish)
    }
}

fn open<'f>(file: &'f mut Option<SampleFile>, folder: &Path, name: &str) -> io::Result<&'f mut SampleFile> {
    Ok(match file {
        Some(open) => open,
        None => file.insert(SampleFile::create(folder, name)?),
    })
}

/// Makes the rows of queries, which all have the same columns: those of tokens exist if a query of the first event has a token.
#[derive(Default)]
struct QueryRows {
    have_tokens: Option<bool>,
}

/// The row of a query; a time that it does not have is an empty field.
#[derive(Serialize)]
#[serde(untagged)]
enum QueryRow {
    WithoutTokens(QueryTimes),
    WithTokens {
        trial: u32,
        scheduled_s: Seconds,
        issued_s: Seconds,
        started_s: Seconds,
        ended_s: Seconds,
        core_s: Seconds,
        batch: u64,
        first_token_s: Option<Seconds>,
        next_token_s: Option<Seconds>,
    },
}

impl QueryRows {
    fn of(&mut self, queries: &[QueryTimes]) -> Vec<QueryRow> {
        let has_token = |query: &QueryTimes| query.first_token_s.is_some();
        let have_tokens = *self.have_tokens.get_or_insert_with(|| queries.iter().any(has_token));
        queries.iter().map(|query| QueryRow::of(query, have_tokens)).collect()
    }
}

impl QueryRow {
    fn of(query: &QueryTimes, has_tokens: bool) -> Self {
        let QueryTimes { trial, scheduled_s, issued_s, started_s, ended_s, core_s, batch, first_token_s, next_token_s } =
            *query;
        match has_tokens {
            false => QueryRow::WithoutTokens(QueryTimes { first_token_s: None, next_token_s: None, ..*query }),
            true => QueryRow::WithTokens {
                trial,
                scheduled_s,
                issued_s,
                started_s,
                ended_s,
                core_s,
                batch,
                first_token_s,
                next_token_s,
            },
        }
    }
}

/// An open file of raw times.
pub struct SampleFile {
    path: PathBuf,
    writer: csv::Writer<File>,
    hasher: SampleHasher,
}

impl SampleFile {
    /// Creates a file in `folder`.
    ///
    /// # Errors
    /// When the file cannot be created; the error names it.
    pub fn create(folder: &Path, name: &str) -> io::Result<Self> {
        let path = folder.join(name);
        let file = file::create(&path).map_err(|error| with_path(error, &path))?;
        let writer = csv::Writer::from_writer(file);
        Ok(SampleFile { path, writer, hasher: SampleHasher::default() })
    }

    /// Appends rows and flushes them to disk.
    ///
    /// # Errors
    /// When the rows cannot be written; the error names the file.
    pub fn append<R: Serialize>(&mut self, rows: &[R]) -> io::Result<()> {
        self.write(rows).map_err(|error| with_path(error, &self.path))
    }

    fn write<R: Serialize>(&mut self, rows: &[R]) -> io::Result<()> {
        for row in rows {
            self.writer.serialize(row).map_err(io::Error::other)?;
        }
        self.hasher.append(rows)?;
        self.writer.flush()?;
        self.writer.get_ref().sync_data()
    }

    fn check(&self) -> io::Result<()> {
        file::check_same(self.writer.get_ref(), &self.path)
    }

    /// Returns the file for the record, after checking that the path still refers to it and that it contains what was written.
    ///
    /// # Errors
    /// When the file was removed, replaced or changed, or cannot be read.
    pub fn finish(self) -> io::Result<FileRecord> {
        self.check()?;
        let sha256 = hash_file(&self.path).map_err(|error| with_path(error, &self.path))?;
        if sha256 != self.hasher.finish()? {
            return Err(changed_error(&self.path));
        }
        let size_bytes = Bytes(self.writer.get_ref().metadata()?.len());
        Ok(FileRecord { what: SAMPLES_KIND.to_owned(), path: self.path.display().to_string(), size_bytes, sha256 })
    }
}

/// Computes the hashes that the files of a phase have, from the same events.
#[derive(Default)]
pub struct SampleHashers {
    steps: Option<SampleHasher>,
    queries: Option<SampleHasher>,
    query_rows: QueryRows,
}

impl SampleHashers {
    /// Adds the times in an event.
    ///
    /// # Errors
    /// When they cannot be written as rows.
    pub fn add(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Steps { times, .. } => self.steps.get_or_insert_default().append(&times.0),
            Event::Queries { times } => {
                let rows = self.query_rows.of(&times.0);
                self.queries.get_or_insert_default().append(&rows)
            }
            _ => Ok(()),
        }
    }

    /// Returns the SHA-256 of each file by its name.
    ///
    /// # Errors
    /// When the last rows cannot be written.
    pub fn finish(self, phase: Phase) -> io::Result<Vec<(String, String)>> {
        let steps = self.steps.map(|hasher| Ok((samples_file(phase), hasher.finish()?)));
        let queries = self.queries.map(|hasher| Ok((QUERIES_FILE.to_owned(), hasher.finish()?)));
        steps.into_iter().chain(queries).collect()
    }
}

/// Computes the hash that a file has, from the same rows.
pub struct SampleHasher {
    writer: csv::Writer<HashWriter>,
}

#[derive(Default)]
struct HashWriter(Sha256);

impl io::Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Default for SampleHasher {
    fn default() -> Self {
        SampleHasher { writer: csv::Writer::from_writer(HashWriter::default()) }
    }
}

impl SampleHasher {
    /// Adds rows.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn append<R: Serialize>(&mut self, rows: &[R]) -> io::Result<()> {
        rows.iter().try_for_each(|row| self.writer.serialize(row)).map_err(io::Error::other)
    }

    /// Returns the SHA-256 of the file, hexadecimal.
    ///
    /// # Errors
    /// When the last rows cannot be written.
    pub fn finish(self) -> io::Result<String> {
        let HashWriter(hasher) = self.writer.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
        Ok(hexadecimal(&hasher.finalize()))
    }
}

fn with_path(error: io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::{QueryColumns, StepTimes};

    const STEPS: &str = "samples.infer.csv";

    #[test]
    fn a_full_disk_is_an_error_with_the_name_of_the_file() {
        let path = PathBuf::from("/dev/full");
        let file = File::options().write(true).open(&path).unwrap();
        let mut samples = SampleFile { path, writer: csv::Writer::from_writer(file), hasher: SampleHasher::default() };
        let error = samples.append(&[StepTimes::default()]).unwrap_err().to_string();
        assert_eq!(error, "cannot write `/dev/full`: No space left on device (os error 28)");
        let error = SampleFile::create(Path::new("/no/such"), STEPS).err().unwrap().to_string();
        assert!(error.starts_with("cannot write `/no/such/samples.infer.csv`: "), "{error}");
    }

    #[test]
    fn the_hash_of_a_samples_file_is_computed_without_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = SampleFile::create(folder.path(), STEPS).unwrap();
        let mut hasher = SampleHasher::default();
        let step = StepTimes { samples: 8, core_s: Seconds(0.1), ..StepTimes::default() };
        for steps in [&[step, step][..], &[step]] {
            file.append(steps).unwrap();
            hasher.append(steps).unwrap();
        }
        assert_eq!(hasher.finish().unwrap(), file.finish().unwrap().sha256);
    }

    #[test]
    fn every_step_is_a_row_under_named_columns() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = SampleFile::create(folder.path(), STEPS).unwrap();
        let step = StepTimes { samples: 8, core_s: Seconds(0.25), ..StepTimes::default() };
        file.append(&[step, step]).unwrap();
        let text = std::fs::read_to_string(&file.path).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("pass,samples,load_wait_s,core_s,output_s,evaluate_s,host_s,outputs"));
        let digest = "0".repeat(32);
        assert_eq!(lines.next(), Some(format!("0,8,0.0,0.25,0.0,0.0,0.0,{digest}").as_str()));
        assert_eq!(lines.count(), 1);
    }

    #[test]
    fn queries_have_a_file_of_their_own_whose_hash_follows_from_the_events() {
        let query = QueryTimes { trial: 1, ended_s: Seconds(0.5), core_s: Seconds(0.25), ..QueryTimes::default() };
        let one_token = QueryTimes { first_token_s: Some(Seconds(0.5)), ..query };
        let tokens = QueryTimes { next_token_s: Some(Seconds(0.125)), ..one_token };
        let columns = "trial,scheduled_s,issued_s,started_s,ended_s,core_s,batch";
        for (queries, expected) in [
            ([query, query], format!("{columns}\n1,0.0,0.0,0.0,0.5,0.25,0\n1,0.0,0.0,0.0,0.5,0.25,0\n")),
            (
                [tokens, one_token],
                format!(
                    "{columns},first_token_s,next_token_s\n1,0.0,0.0,0.0,0.5,0.25,0,0.5,0.125\n1,0.0,0.0,0.0,0.5,0.25,0,0.5,\n"
                ),
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let (mut files, mut hashers) = (SampleFiles::default(), SampleHashers::default());
            for query in queries {
                let event = Event::Queries { times: QueryColumns(vec![query]) };
                files.append(folder.path(), Phase::Infer, &event).unwrap();
                hashers.add(&event).unwrap();
            }
            let written: Vec<FileRecord> = files.finish().collect::<Result<_, _>>().unwrap();
            let hashes = hashers.finish(Phase::Infer).unwrap();
            assert_eq!(hashes, [(QUERIES_FILE.to_owned(), written[0].sha256.clone())]);
            assert_eq!(std::fs::read_to_string(folder.path().join(QUERIES_FILE)).unwrap(), expected);
        }
    }

    #[test]
    fn a_link_in_place_of_the_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let theirs = folder.path().join("theirs");
        std::fs::write(&theirs, "theirs").unwrap();
        let link = folder.path().join("samples.infer.csv");
        std::os::unix::fs::symlink(&theirs, &link).unwrap();
        let mut file = SampleFile::create(folder.path(), STEPS).unwrap();
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
