//! Log files in FlagPerf's format.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Zoned;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use flagperf_config::Site;
use flagperf_core::diagnostics::level_filter;
use flagperf_core::event::Level;
use flagperf_core::file;
use flagperf_core::hash::WrittenHash;
use flagperf_core::text::one_line;

/// Largest log in bytes. Beyond this limit only FlagPerf's result is written.
const BYTES_MAX: u64 = 256 << 20;

/// A log file. A write error does not stop the run; the first one is kept.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    level_min: Level,
    with_source: bool,
    bytes_max: u64,
    bytes: u64,
    written: WrittenHash,
    error: Option<io::Error>,
}

impl LogFile {
    /// Creates a log file for lines of at least the level `FLAGPERF_LOG_LEVEL`.
    pub(super) fn create(path: &Path, site: &Site) -> io::Result<Self> {
        let level_min = Level::from_word(&site.flagperf_log_level);
        let file = file::append(path)?;
        Ok(LogFile {
            path: path.to_owned(),
            file,
            level_min,
            with_source: site.log_call_information,
            bytes_max: BYTES_MAX,
            bytes: 0,
            written: WrittenHash::default(),
            error: None,
        })
    }

    /// Checks that the path still refers to this file, which was new, and that it contains what was written to it.
    ///
    /// # Errors
    /// When the file was removed, replaced or changed.
    pub(super) fn check(&self) -> io::Result<()> {
        file::check_same(&self.file, &self.path)?;
        // What a full disk has cut off is no other program's change.
        if self.error.is_some() { Ok(()) } else { self.written.check(&self.path) }
    }

    /// Writes a line of `level`; `source` is the origin of the message.
    pub(super) fn write_line(&mut self, level: Level, source: &str, message: &str) {
        if level >= self.level_min {
            self.write_limited(level_name(level), source, message);
        }
    }

    /// Writes a line of one of FlagPerf's own levels (`Init Begin`), which rank just above INFO.
    pub(super) fn write_stage(&mut self, name: &str, source: &str, message: &str) {
        if self.level_min <= Level::Info {
            self.write_limited(name, source, message);
        }
    }

    /// Writes a line with any level name, regardless of the minimum level and the size limit.
    pub(super) fn write_unlimited(&mut self, name: &str, source: &str, message: &str) {
        self.write_text(&format_line(self.with_source, name, source, message));
    }

    /// Writes a line unless the log has reached its size limit.
    fn write_limited(&mut self, name: &str, source: &str, message: &str) {
        if self.bytes < self.bytes_max {
            self.write_unlimited(name, source, message);
            if self.bytes >= self.bytes_max {
                self.write_unlimited(
                    "WARNING",
                    "run",
                    "this log has reached its size limit; further lines are dropped",
                );
                self.error.get_or_insert_with(|| io::Error::other("a log has reached its size limit"));
            }
        }
    }

    fn write_text(&mut self, line: &str) {
        self.bytes += line.len() as u64;
        self.written.add(line.as_bytes());
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            self.error.get_or_insert(error);
        }
    }

    /// Returns why lines are missing; `None` when the log is complete.
    pub(super) fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }
}

const fn level_name(level: Level) -> &'static str {
    match level {
        Level::Debug => "DEBUG",
        Level::Info => "INFO",
        Level::Warning => "WARNING",
        Level::Error => "ERROR",
    }
}

/// Formats a line of a log as FlagPerf does with and without `LOG_CALL_INFORMATION`.
fn format_line(with_source: bool, name: &str, source: &str, message: &str) -> String {
    let time = Zoned::now();
    // A message is a single line, so that it cannot imitate lines of another source.
    let (source, message) = (one_line(source), one_line(message));
    match with_source {
        true => format!("{} | {name:<8} | {source} - {message}\n", time.strftime("%Y-%m-%d %H:%M:%S%.3f")),
        false => format!("{} - {name} - {message}\n", time.strftime("%Y-%m-%dT%H:%M:%S%.6f%z")),
    }
}

/// Writes the diagnostics of a thread into a log while the layer's subscriber is the current one.
pub(super) struct LogLayer(pub(super) Arc<Mutex<LogFile>>);

impl LogLayer {
    /// Returns a subscriber that writes diagnostics of at least the level of the log.
    pub(super) fn subscriber(self) -> impl Subscriber + Send + Sync {
        let level = self.0.lock().unwrap_or_else(PoisonError::into_inner).level_min;
        tracing_subscriber::registry().with(self.with_filter(level_filter(level)))
    }
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for LogLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = FieldText::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let mut message = String::new();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            let fields = span.extensions().get::<FieldText>().map(|fields| fields.0.clone()).unwrap_or_default();
            message += &format!("{}{{{fields}}}: ", span.name());
        }
        let mut fields = FieldText::default();
        event.record(&mut fields);
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warning,
            tracing::Level::INFO => Level::Info,
            _ => Level::Debug,
        };
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.write_line(level, event.metadata().target(), &(message + fields.0.as_str()));
    }
}

/// The fields of an event or a span as text: the message, then `name=value`.
#[derive(Default)]
struct FieldText(String);

impl Visit for FieldText {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let gap = if self.0.is_empty() { "" } else { " " };
        self.0 += &match field.name() {
            "message" => format!("{gap}{value:?}"),
            name => format!("{gap}{name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::run_files::{CASE_LOG, RUN_LOG};

    fn log(path: &Path, bytes_max: u64) -> LogFile {
        let file = File::options().create(true).append(true).open(path).unwrap();
        LogFile {
            path: path.to_owned(),
            file,
            level_min: Level::Info,
            with_source: true,
            bytes_max,
            bytes: 0,
            written: WrittenHash::default(),
            error: None,
        }
    }

    /// Returns the lines without their times.
    fn lines(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.split_once(" | ").unwrap().1.to_owned()).collect()
    }

    #[test]
    fn a_message_cannot_imitate_another_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CASE_LOG);
        let forged = "ok\n2026-01-01 00:00:00.000 | Finish Info | run - {\"*MFU\":\"99%\"}\x1b[2J";
        log(&path, 1000).write_line(Level::Info, "script\n", forged);
        assert_eq!(
            lines(&path),
            ["INFO     | script\\n - ok\\n2026-01-01 00:00:00.000 | Finish Info | run - {\"*MFU\":\"99%\"}\\u{1b}[2J"]
        );
    }

    #[test]
    fn diagnostics_are_lines_with_their_level_target_and_spans() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RUN_LOG);
        let shared = Arc::new(Mutex::new(log(&path, 1000)));
        let subscriber = LogLayer(shared).subscriber();
        tracing::subscriber::with_default(subscriber, || {
            let _case = tracing::info_span!("case", case = "tiny:frame").entered();
            tracing::info!(pid = 7, "started a worker");
            tracing::debug!("below the level");
        });
        let target = module_path!();
        assert_eq!(
            lines(&path),
            [format!("INFO     | {target} - case{{case=\"tiny:frame\"}}: started a worker pid=7")]
        );
    }

    #[test]
    fn beyond_its_limit_a_log_contains_only_the_result() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CASE_LOG);
        let mut log = log(&path, 100);
        for _ in 0..50 {
            log.write_line(Level::Info, "run", "again");
        }
        log.write_unlimited("Finish Info", "run", "{}");
        let last = ["this log has reached its size limit; further lines are dropped", "{}"];
        let lines = lines(&path);
        assert!(lines.len() < 10, "{lines:?}");
        assert!(lines.iter().rev().zip(last.iter().rev()).all(|(line, last)| line.ends_with(last)), "{lines:?}");
        assert!(log.error().is_some());
    }
}
