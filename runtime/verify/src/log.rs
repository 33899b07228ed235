//! Compares the end of a case's log with its record, because FlagPerf's readers take the result from the log.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use flagperf_core::regular_file::open_regular;

use super::CaseReport;
use flagperf_core::run_files::CASE_LOG;
use flagperf_core::text::one_line;
use flagperf_result::Record;

/// Bytes at the end of the log that are read.
const BYTES_MAX: u64 = 1 << 20;

/// Checks that the log ends with the verdict and the result of the record.
pub(super) fn check_log(folder: &Path, record: &Record, report: &mut CaseReport) {
    let text = match read_end(&folder.join(CASE_LOG)) {
        Ok(text) => text,
        Err(error) => return report.unchecked.push(format!("`{CASE_LOG}`: {error}")),
    };
    check_last_lines(&text, record, report);
}

/// Checks that the text of a log ends with the verdict and the result of the record.
pub(super) fn check_last_lines(text: &str, record: &Record, report: &mut CaseReport) {
    let info = serde_json::to_string(&record.finish_info).unwrap_or_default();
    let expected = [("Verdict", record.validity.line()), ("Finish Info", info)];
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.len().checked_sub(expected.len()).map(|from| &lines[from..]).unwrap_or_default();
    for (index, (name, content)) in expected.iter().enumerate() {
        let content = one_line(content);
        let line = last.get(index).copied().unwrap_or_default();
        if !(line.contains(name) && line.ends_with(&format!(" - {content}"))) {
            report.add(CASE_LOG, format!("the line `{name}`"), Some(content.into_owned()), Some(line.to_owned()));
        }
    }
}

fn read_end(path: &Path) -> std::io::Result<String> {
    let mut file = open_regular(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
