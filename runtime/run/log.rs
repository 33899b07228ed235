//! Log files in FlagPerf's form.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use jiff::Zoned;

use crate::config::Site;
use crate::event::Level;
use crate::file;
use crate::text::one_line;

/// Largest log; beyond it only FlagPerf's result is written.
const BYTES_MAX: u64 = 256 << 20;

/// A log file. That it can be written no more stops nothing; the first reason is kept.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    least: Level,
    says_where: bool,
    bytes_max: u64,
    bytes: u64,
    failure: Option<io::Error>,
}

impl Log {
    /// A new file that takes lines from `FLAGPERF_LOG_LEVEL` on.
    pub(super) fn create(path: &Path, site: &Site) -> io::Result<Self> {
        let least = match site.flagperf_log_level.as_str() {
            "DEBUG" => Level::Debug,
            "WARNING" => Level::Warning,
            "ERROR" => Level::Error,
            _ => Level::Info,
        };
        let file = file::append(path)?;
        Ok(Log { file, least, says_where: site.log_call_information, bytes_max: BYTES_MAX, bytes: 0, failure: None })
    }

    /// A line of this level; `source` is where it was said.
    pub(super) fn line(&mut self, level: Level, source: &str, message: &str) {
        let name = match level {
            Level::Debug => "DEBUG",
            Level::Info => "INFO",
            Level::Warning => "WARNING",
            Level::Error => "ERROR",
        };
        if level >= self.least {
            self.write(name, source, message);
        }
    }

    /// A line of one of FlagPerf's own levels (`Init Begin`), which stand just above INFO.
    pub(super) fn stage(&mut self, name: &str, source: &str, message: &str) {
        if self.least <= Level::Info {
            self.write(name, source, message);
        }
    }

    /// A line under any name, at any level, and however large the log is.
    pub(super) fn named(&mut self, name: &str, source: &str, message: &str) {
        let time = Zoned::now();
        // Whatever is said, it is one line: it cannot pass for a line of somebody else.
        let (source, message) = (one_line(source), one_line(message));
        let line = if self.says_where {
            format!("{} | {name:<8} | {source} - {message}\n", time.strftime("%Y-%m-%d %H:%M:%S%.3f"))
        } else {
            format!("{} - {name} - {message}\n", time.strftime("%Y-%m-%dT%H:%M:%S%.6f%z"))
        };
        self.bytes += line.len() as u64;
        if let Err(failure) = self.file.write_all(line.as_bytes()) {
            self.failure.get_or_insert(failure);
        }
    }

    /// A line, while there is room for more.
    fn write(&mut self, name: &str, source: &str, message: &str) {
        if self.bytes < self.bytes_max {
            self.named(name, source, message);
            if self.bytes >= self.bytes_max {
                self.named("WARNING", "run", "this log has reached its limit; what follows is left out");
                self.failure.get_or_insert_with(|| io::Error::other("a log has reached its limit"));
            }
        }
    }

    /// Why a line is missing, if one is.
    pub(super) fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(path: &Path, bytes_max: u64) -> Log {
        let file = File::options().create(true).append(true).open(path).unwrap();
        Log { file, least: Level::Info, says_where: true, bytes_max, bytes: 0, failure: None }
    }

    /// The lines without their times.
    fn lines(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.split_once(" | ").unwrap().1.to_owned()).collect()
    }

    #[test]
    fn a_message_cannot_pass_for_another_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("container.out.log");
        let forged = "ok\n2026-01-01 00:00:00.000 | Finish Info | run - {\"*MFU\":\"99%\"}\x1b[2J";
        log(&path, 1000).line(Level::Info, "script\n", forged);
        assert_eq!(
            lines(&path),
            ["INFO     | script\\n - ok\\n2026-01-01 00:00:00.000 | Finish Info | run - {\"*MFU\":\"99%\"}\\u{1b}[2J"]
        );
    }

    #[test]
    fn beyond_its_limit_a_log_has_only_the_result() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("container.out.log");
        let mut log = log(&path, 100);
        for _ in 0..50 {
            log.line(Level::Info, "run", "again");
        }
        log.named("Finish Info", "run", "{}");
        let said = ["this log has reached its limit; what follows is left out", "{}"];
        let lines = lines(&path);
        assert!(lines.len() < 10, "{lines:?}");
        assert!(lines.iter().rev().zip(said.iter().rev()).all(|(line, said)| line.ends_with(said)), "{lines:?}");
        assert!(log.failure().is_some());
    }
}
