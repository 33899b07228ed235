//! Runs work that may crash or hang in a process of its own: starts this program again and reads its reply, one line of
//! JSON.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use flagperf_config::env;
use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_core::units::Seconds;
use flagperf_host::{Ending, Process, ProcessError, ProcessEvent, Program, Worker as _};

/// Time after which a process that has not replied counts as hung.
pub(super) const TIME_LIMIT: Seconds = Seconds(60.0);

/// Why a process gave no reply.
#[derive(Debug)]
pub(super) enum NoReply {
    /// It could not be started.
    NotStarted(ProcessError),
    /// It ended without a reply.
    Ended {
        /// How it ended.
        ending: Ending,
        /// The last lines of its standard error.
        stderr: Vec<String>,
    },
    /// It took longer than this and was killed.
    TimedOut(Seconds),
}

/// Starts a program with this input and returns the last JSON line that it prints.
///
/// # Errors
/// When the program prints no such line, or takes longer than `limit`.
pub(super) fn run_for_reply<T: DeserializeOwned>(
    argv: Vec<OsString>,
    input: String,
    limit: Seconds,
) -> Result<T, NoReply> {
    let environment = env::inherited_variables();
    let program = Program { argv, input, stderr: "/dev/null".into(), inherits: false, environment };
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::start());
    let mut process = Process::start(&program, clock.clone()).map_err(NoReply::NotStarted)?;
    let began = clock.now();
    let mut reply = None;
    while clock.now().since(began) < limit {
        match process.next_event(Duration::from_millis(50)) {
            ProcessEvent::Line(_, line) => reply = serde_json::from_str(&line).ok().or(reply),
            ProcessEvent::Silence => {}
            ProcessEvent::Ended(ending) => {
                return reply.ok_or_else(|| NoReply::Ended { ending, stderr: process.last_stderr_lines() });
            }
        }
    }
    process.kill();
    Err(NoReply::TimedOut(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(script: &str, limit: f64) -> Result<Vec<u32>, NoReply> {
        run_for_reply(["/bin/sh", "-c", script].map(OsString::from).to_vec(), "[7]\n".to_owned(), Seconds(limit))
    }

    #[test]
    fn a_process_without_a_reply_is_abandoned_at_the_time_limit() {
        let hangs = reply("trap '' TERM; while :; do sleep 1; done", 0.2);
        assert!(matches!(hangs, Err(NoReply::TimedOut(Seconds(0.2)))), "{hangs:?}");
    }

    #[test]
    fn a_process_that_crashes_is_reported_with_its_ending_and_its_last_lines() {
        let crashes = reply("echo '[1]'; echo no >&2; kill -SEGV $$", 60.0);
        assert_eq!(crashes.expect("a crash after the reply does not matter"), [1]);
        let Err(NoReply::Ended { ending, stderr }) = reply("echo no >&2; kill -SEGV $$", 60.0) else {
            panic!("it ran")
        };
        assert_eq!((ending, stderr), (Ending::Killed(11), vec!["no".to_owned()]));
    }

    #[test]
    fn the_last_line_of_json_is_the_reply_and_the_input_arrives() {
        assert_eq!(reply("echo '[1]'; read line; echo; echo $line; echo x", 60.0).unwrap(), [7]);
    }
}
