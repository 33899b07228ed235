//! Decides which events of a session are displayed. Those that were missed while the connection was broken are read
//! from the file of events, so that each is displayed once.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;

use super::session::is_displayed;
use flagperf_core::event::Event;
use flagperf_core::hash::hash_bytes;
use flagperf_core::run_files::EVENTS_FILE;
use flagperf_core::step::Phase;

/// How much of the file before its end is searched after the first reconnection. What was written earlier was sent on the first
/// connection.
const SEARCHED_BYTES: u64 = 256 << 10;
/// Largest number of events that are remembered.
const EVENTS_MAX: usize = 10_000;

/// A line of the file of events.
#[derive(Deserialize)]
struct Line {
    phase: Phase,
    #[serde(flatten)]
    event: Event,
}

/// The events of one session for the display. Progress is displayed only if it arrives in time.
#[derive(Debug, Default)]
pub(super) struct DisplayedEvents {
    /// The events that the session sent, and those that were read from the file and that it may still send.
    sent: HashSet<String>,
    read: HashSet<String>,
    /// The position from which the file is searched; `None` if nothing was missed.
    position: Option<u64>,
}

fn key(phase: Phase, event: &Event) -> String {
    hash_bytes(&serde_json::to_vec(&(phase, event)).unwrap_or_default())
}

impl DisplayedEvents {
    /// Returns whether an event that the session has sent is to be displayed.
    pub(super) fn accept(&mut self, phase: Phase, event: &Event) -> bool {
        if event.is_progress() {
            return true;
        }
        let key = key(phase, event);
        let is_new = !self.read.remove(&key);
        if is_new && self.sent.len() < EVENTS_MAX {
            self.sent.insert(key);
        }
        is_new
    }

    /// Begins to search for missed events, because the connection was broken. `folder` has the files of the session.
    pub(super) fn connection_broke(&mut self, folder: &Path) {
        let size = || std::fs::metadata(folder.join(EVENTS_FILE)).map_or(0, |found| found.len());
        self.position.get_or_insert_with(|| size().saturating_sub(SEARCHED_BYTES));
    }

    /// Returns the events in the new part of the file that were not displayed.
    pub(super) fn missed(&mut self, folder: &Path) -> Vec<(Phase, Event)> {
        let (Some(position), Ok(mut file)) = (&mut self.position, File::open(folder.join(EVENTS_FILE))) else {
            return Vec::new();
        };
        let mut missed = Vec::new();
        if file.seek(SeekFrom::Start(*position)).is_err() {
            return missed;
        }
        let (mut reader, mut line) = (BufReader::new(file), Vec::new());
        while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) && line.ends_with(b"\n") {
            *position += line.len() as u64;
            // The search may begin within a line.
            let found = serde_json::from_slice::<Line>(&line).ok().filter(|found| is_displayed(&found.event));
            line.clear();
            let Some(Line { phase, event }) = found else { continue };
            let key = key(phase, &event);
            if !self.sent.contains(&key) && self.read.len() < EVENTS_MAX && self.read.insert(key) {
                missed.push((phase, event));
            }
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::step::Step;
    use flagperf_core::units::Seconds;
    use flagperf_result::EventChain;

    #[test]
    fn events_that_fell_into_a_broken_connection_are_displayed_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut chain = EventChain::create(&folder.path().join(EVENTS_FILE)).unwrap();
        let end = |seconds: f64| Event::StepEnd { step: Step::Validation, time_s: Seconds(seconds) };
        let mut push = |event: &Event| chain.push(Seconds(1.0), Phase::Validate, event).unwrap();
        let mut displayed = DisplayedEvents::default();
        push(&end(1.0));
        assert!(displayed.accept(Phase::Validate, &end(1.0)));
        assert_eq!(displayed.missed(folder.path()).len(), 0, "the connection is not broken");
        displayed.connection_broke(folder.path());
        push(&end(2.0));
        push(&end(3.0));
        push(&Event::Ready { step: Step::Inference });
        let missed = displayed.missed(folder.path());
        assert!(matches!(&missed[..], [(_, Event::StepEnd { time_s: Seconds(2.0), .. }), (_, Event::StepEnd { .. })]));
        assert!(!displayed.accept(Phase::Validate, &end(3.0)), "it was read before");
        assert!(displayed.accept(Phase::Validate, &end(4.0)));
        push(&end(4.0));
        assert_eq!(displayed.missed(folder.path()).len(), 0, "it was sent before");
    }
}
