//! Log files in FlagPerf's form.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use jiff::Zoned;

use crate::config::Site;
use crate::event::Level;

/// A log file. That it can be written no more stops nothing; the first reason is kept.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    least: Level,
    says_where: bool,
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
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Log { file, least, says_where: site.log_call_information, failure: None })
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
            self.named(name, source, message);
        }
    }

    /// A line of one of FlagPerf's own levels (`Init Begin`), which stand just above INFO.
    pub(super) fn stage(&mut self, name: &str, source: &str, message: &str) {
        if self.least <= Level::Info {
            self.named(name, source, message);
        }
    }

    /// A line under any name and at any level.
    pub(super) fn named(&mut self, name: &str, source: &str, message: &str) {
        let time = Zoned::now();
        let line = if self.says_where {
            format!("{} | {name:<8} | {source} - {message}\n", time.strftime("%Y-%m-%d %H:%M:%S%.3f"))
        } else {
            format!("{} - {name} - {message}\n", time.strftime("%Y-%m-%dT%H:%M:%S%.6f%z"))
        };
        if let Err(failure) = self.file.write_all(line.as_bytes()) {
            self.failure.get_or_insert(failure);
        }
    }

    /// Why a line is missing, if one is.
    pub(super) fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }
}
