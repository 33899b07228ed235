//! The diagnostics of the host and the worker: events and spans of `tracing`, filtered by `FLAGPERF_LOG_LEVEL`.
//!
//! They explain what the program does; nothing reads them. The conductor writes them into host.out.log, and a worker to
//! standard error, which the conductor copies to stdout_err.out.log. The other lines of host.out.log and all of
//! container.out.log have FlagPerf's log format. What a run measures is in the events of [`crate::event`].

use std::io;

use tracing_subscriber::filter::LevelFilter;

use crate::event::Level;

/// Returns the filter that lets diagnostics of at least this level pass.
pub const fn level_filter(level: Level) -> LevelFilter {
    match level {
        Level::Debug => LevelFilter::DEBUG,
        Level::Info => LevelFilter::INFO,
        Level::Warning => LevelFilter::WARN,
        Level::Error => LevelFilter::ERROR,
    }
}

/// Writes the diagnostics of this process to standard error, from now on and on every thread. `level` is the value of
/// `FLAGPERF_LOG_LEVEL`; without it, only warnings and errors are written.
pub fn write_to_stderr(level: Option<&str>) {
    let filter = level_filter(level.map_or(Level::Warning, Level::from_word));
    let subscriber = tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).with_max_level(filter);
    // A diagnostic that cannot be written, such as on a full disk, is lost: the message about it would panic.
    let subscriber = subscriber.log_internal_errors(false);
    // A second call, as in tests, changes nothing.
    let _ = subscriber.try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_of_flagperf_selects_a_filter() {
        let filters = ["debug", "INFO", "Warning", "ERROR", "other"].map(|word| level_filter(Level::from_word(word)));
        let expected =
            [LevelFilter::DEBUG, LevelFilter::INFO, LevelFilter::WARN, LevelFilter::ERROR, LevelFilter::INFO];
        assert_eq!(filters, expected);
    }
}
