//! What a page needs of `events.jsonl`: when the passes began, and the losses of a training.
//!
//! The lines with the times of steps, nearly all of the file, are skipped: `samples.<phase>.csv` has the same times. The hashes of the
//! lines are not checked; `flagperf verify` does that.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flagperf_core::event::{Event, LINE_BYTES_MAX};
use flagperf_core::measure::EpochLosses;
use flagperf_core::regular_file::open_regular;
use flagperf_core::step::Phase;
use flagperf_core::units::Seconds;
use serde::Deserialize;

use super::envelope::Envelope;
use super::step_file::SECONDS_MAX;

/// Longest line that is read: an event and what the chain adds to it.
const LINE_BYTES_READ: u64 = (LINE_BYTES_MAX + (64 << 10)) as u64;
/// Bytes at the beginning of a line in which its kind is.
const HEAD_BYTES: usize = 400;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Most passes whose begins are kept; a record has fewer.
const PASSES_MAX: usize = 10_000_000;

/// What was read of the events of a case.
#[derive(Debug)]
pub(super) struct CaseEvents {
    /// When each pass began, in seconds since the case began.
    pub(super) passes: Vec<(Phase, f64)>,
    /// The loss of each step of the last repetition of a training.
    pub(super) loss: Envelope,
    round: u32,
    steps: f64,
}

#[derive(Deserialize)]
struct Line {
    at_s: Seconds,
    phase: Phase,
    #[serde(flatten)]
    event: Event,
}

impl CaseEvents {
    /// Creates what is known without events. `resumed` is the repetition that was resumed, with its steps before that.
    pub(super) fn new(resumed: (u32, u64), buckets_max: usize) -> Self {
        let steps = resumed.1 as f64;
        CaseEvents { passes: Vec::new(), loss: Envelope::new(steps, 1.0, buckets_max), round: resumed.0, steps }
    }

    /// Reads the events of a case.
    ///
    /// # Errors
    /// When the file cannot be read, or a line that is needed is not an event.
    pub(super) fn read(mut self, path: &Path) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(PIECE_BYTES, open_regular(path)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            if file.by_ref().take(LINE_BYTES_READ).read_until(b'\n', &mut line)? == 0 {
                return Ok(self);
            }
            if matches!(kind(&line), Some(b"pass_begin" | b"epoch_losses")) {
                let Line { at_s, phase, event } = serde_json::from_slice(&line)?;
                self.add(at_s, phase, &event);
            }
        }
    }

    fn add(&mut self, at: Seconds, phase: Phase, event: &Event) {
        match event {
            Event::PassBegin { .. } if self.passes.len() < PASSES_MAX && (0.0..=SECONDS_MAX).contains(&at.0) => {
                self.passes.push((phase, at.0));
            }
            Event::EpochLosses(losses) => self.add_losses(losses),
            _ => {}
        }
    }

    fn add_losses(&mut self, EpochLosses { round, loss, .. }: &EpochLosses) {
        if *round != self.round {
            *self = CaseEvents {
                passes: std::mem::take(&mut self.passes),
                ..CaseEvents::new((*round, 0), self.loss.capacity())
            };
        }
        for loss in loss {
            self.steps += 1.0;
            self.loss.add(self.steps, *loss);
        }
    }
}

/// Returns the kind of the event of a line: the value of its key `event`.
fn kind(line: &[u8]) -> Option<&[u8]> {
    const KEY: &[u8] = b"\"event\":\"";
    let head = &line[..line.len().min(HEAD_BYTES)];
    let begin = head.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let length = head[begin..].iter().position(|byte| *byte == b'"')?;
    Some(&head[begin..begin + length])
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::{StepColumns, StepTimes};
    use flagperf_core::step::Step;
    use flagperf_result::EventChain;

    #[test]
    fn passes_and_the_losses_of_the_last_repetition_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut chain = EventChain::create(&path).unwrap();
        let losses = |round, loss: &[f64]| {
            Event::EpochLosses(Box::new(EpochLosses { round, loss: loss.to_vec(), ..EpochLosses::default() }))
        };
        let step = Step::Training;
        let times = StepColumns(vec![StepTimes::default(); 2]);
        let events = [
            Event::PassBegin { step, pass: 0 },
            Event::Steps { step, times },
            losses(0, &[9.0, 8.0]),
            Event::PassBegin { step, pass: 0 },
            losses(1, &[3.0, f64::NAN, 1.0]),
        ];
        for (at, event) in events.iter().enumerate() {
            chain.push(Seconds(at as f64), Phase::Train, event).unwrap();
        }
        let found = CaseEvents::new((0, 0), 100).read(&path).unwrap();
        assert_eq!(found.passes, [(Phase::Train, 0.0), (Phase::Train, 3.0)]);
        let losses: Vec<_> = found.loss.buckets().iter().map(|bucket| (bucket.at.floor(), bucket.max)).collect();
        assert_eq!(losses, [(1.0, 3.0), (3.0, 1.0)]);
    }
}
