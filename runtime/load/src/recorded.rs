//! Times of arrival in a file: a column of a CSV file, such as that of an earlier result.

use std::io::Read;
use std::path::Path;

use flagperf_core::regular_file::open_regular;
use flagperf_core::text::{one_line, truncate};
use flagperf_core::units::Seconds;

/// The column with the times.
const COLUMN: &str = "scheduled_s";
/// The column with the number of the trial, of which the last one is the measurement.
const TRIAL: &str = "trial";
/// The latest time, a day after the first possible one.
const TIME_MAX: Seconds = Seconds(86_400.0);
/// Bytes that an error shows of a value.
const SHOWN_BYTES: usize = 60;
/// Largest size of a file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 31;

/// Reads the times of arrival in a CSV file with the column `scheduled_s`: seconds, sorted here, because a file of queries has the order
/// of their answers. If it has the column `trial`, the times of the last trial are read. At most `count_max` are accepted.
///
/// # Errors
/// When the file cannot be read or has no such column, no times, too many, or one that is no time; the error names file and line.
pub fn read_recorded_times(path: &Path, count_max: u64) -> Result<Vec<Seconds>, RecordedTimesError> {
    let failed = |line: Option<u64>, reason: String| {
        let place = line.map_or_else(String::new, |line| format!(":{line}"));
        RecordedTimesError { place: format!("{}{place}", path.display()), reason }
    };
    let file = open_regular(path).map_err(|error| failed(None, error.to_string()))?;
    let mut reader = csv::Reader::from_reader(file.take(FILE_BYTES_MAX));
    let headers = reader.headers().map_err(|error| failed(None, error.to_string()))?.clone();
    let position = |name: &str| headers.iter().position(|header| header == name);
    let Some(column) = position(COLUMN) else {
        let found = headers.iter().take(20).collect::<Vec<_>>().join(", ");
        let found = one_line(truncate(&found, SHOWN_BYTES).as_ref()).into_owned();
        return Err(failed(Some(1), format!("no column `{COLUMN}` (found: {found})")));
    };
    let (mut times, mut trial) = (Vec::new(), String::new());
    for record in reader.records() {
        let record = record.map_err(|error| failed(None, error.to_string()))?;
        let line = record.position().map(csv::Position::line);
        let text = record.get(column).unwrap_or_default();
        let time = text.trim().parse().ok().filter(|time: &f64| (0.0..=TIME_MAX.0).contains(time));
        let time = time.ok_or_else(|| {
            failed(line, format!("`{}` is not a time from 0 to {} s", truncate(text, SHOWN_BYTES), TIME_MAX.0))
        })?;
        if let Some(of) = position(TRIAL).and_then(|at| record.get(at))
            && of != trial
        {
            times.clear();
            of.clone_into(&mut trial);
        }
        times.push(Seconds(time));
        if times.len() as u64 > count_max {
            return Err(failed(line, format!("more than {count_max} times")));
        }
    }
    times.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    if times.is_empty() { Err(failed(None, "it has no times".to_owned())) } else { Ok(times) }
}

/// A file of times that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct RecordedTimesError {
    place: String,
    reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<f64>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("times.csv");
        std::fs::write(&path, text).unwrap();
        let times = read_recorded_times(&path, 4).map(|times| times.into_iter().map(|time| time.0).collect());
        times.map_err(|error| error.to_string().replace(&path.display().to_string(), "times.csv"))
    }

    #[test]
    fn the_times_of_the_last_trial_are_read_in_order() {
        assert_eq!(read("scheduled_s\n0\n0.5\n").unwrap(), [0.0, 0.5]);
        assert_eq!(read("trial,issued_s,scheduled_s\n0,1,9\n1,1,3\n1,1,2.5\n").unwrap(), [2.5, 3.0]);
    }

    #[test]
    fn the_error_about_a_file_names_the_line() {
        for (text, error) in [
            ("at\n1\n", "times.csv:1: no column `scheduled_s` (found: at)"),
            ("scheduled_s\n1\n-1\n", "times.csv:3: `-1` is not a time from 0 to 86400 s"),
            ("scheduled_s\nNaN\n", "times.csv:2: `NaN` is not a time from 0 to 86400 s"),
            ("scheduled_s\n", "times.csv: it has no times"),
            ("scheduled_s\n1\n1\n1\n1\n1\n", "times.csv:6: more than 4 times"),
            ("", "times.csv:1: no column `scheduled_s` (found: )"),
        ] {
            assert_eq!(read(text).unwrap_err(), error, "{text}");
        }
        let error = read_recorded_times(Path::new("/dev/zero"), 4).unwrap_err().to_string();
        assert!(error.starts_with("/dev/zero: "), "{error}");
    }
}
