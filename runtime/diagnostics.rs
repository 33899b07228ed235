//! The diagnostics of the host and the worker: events and spans of `tracing`, filtered by `FLAGPERF_LOG_LEVEL`.
//!
//! They explain what the program does; nothing reads them. What a run measures is in the events of [`crate::event`].

use std::io;

use tracing_subscriber::filter::LevelFilter;

/// Returns the filter for a value of `FLAGPERF_LOG_LEVEL`; an unknown word selects `INFO`.
pub fn level_filter(level: &str) -> LevelFilter {
    match level.to_ascii_uppercase().as_str() {
        "DEBUG" => LevelFilter::DEBUG,
        "WARNING" => LevelFilter::WARN,
        "ERROR" => LevelFilter::ERROR,
        _ => LevelFilter::INFO,
    }
}

/// Writes the diagnostics of this process to standard error, from now on and on every thread. Without a level it writes
/// warnings and errors only.
pub fn write_to_stderr(level: Option<&str>) {
    let filter = level.map_or(LevelFilter::WARN, level_filter);
    // A second call, as in tests, changes nothing.
    let _ = tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).with_max_level(filter).try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_of_flagperf_selects_a_filter() {
        let filters = ["debug", "INFO", "Warning", "ERROR", "other"].map(level_filter);
        let expected =
            [LevelFilter::DEBUG, LevelFilter::INFO, LevelFilter::WARN, LevelFilter::ERROR, LevelFilter::INFO];
        assert_eq!(filters, expected);
    }
}
