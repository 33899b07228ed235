//! Limits on what a worker emits: long texts are truncated, and each step may emit a limited number of lines of each
//! kind. Lines beyond the limit are counted.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Event, Level};
use crate::step::Step;
use crate::text;

/// Longest text in an event, in bytes. Longer texts are truncated and marked.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Longest text, in bytes, in an event that still exceeds [`LINE_BYTES_MAX`] after truncation to [`TEXT_BYTES_MAX`].
const SHORT_TEXT_BYTES_MAX: usize = 256;
/// Longest line of an event, in bytes. The phase fails when a worker writes a longer line.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// Lines of each kind that a step may emit.
pub const LINES_MAX: u64 = 1000;
/// Bytes in lines of each kind that a step may emit.
pub const LINES_BYTES_MAX: u64 = 1 << 20;

/// The kinds of line whose number a worker does not control.
const KINDS: [&str; 3] = ["log lines", "warnings", "failed samples"];

/// Counts the lines of the current step and drops those beyond its limits.
#[derive(Debug, Default)]
pub struct EventBudget {
    step: Option<Step>,
    usage: [Usage; KINDS.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    lines: u64,
    bytes: u64,
    dropped: u64,
}

impl EventBudget {
    /// Returns the events to emit instead of `event`: the event itself, or nothing when it exceeds the step's limits.
    /// A warning is added when a limit is reached, and another before the step ends, with the number of dropped lines.
    pub fn admit(&mut self, event: Event) -> Vec<Event> {
        let (kind, bytes) = match &event {
            Event::Log { level: Level::Debug | Level::Info, source, message } => (0, source.len() + message.len()),
            Event::Log { source, message, .. } => (1, source.len() + message.len()),
            Event::SampleFailed { sample, reason } => (2, sample.len() + reason.len()),
            Event::StepBegin { step, .. } => {
                let warnings = self.end_step();
                self.step = Some(*step);
                return warnings.into_iter().chain([event]).collect();
            }
            Event::StepEnd { .. } | Event::Failed(_) | Event::Finished { .. } => {
                return self.end_step().into_iter().chain([event]).collect();
            }
            _ => return vec![event],
        };
        let usage = &mut self.usage[kind];
        let bytes = bytes.min(TEXT_BYTES_MAX) as u64;
        if usage.dropped == 0 && usage.lines < LINES_MAX && usage.bytes + bytes <= LINES_BYTES_MAX {
            usage.lines += 1;
            usage.bytes += bytes;
            return vec![event];
        }
        usage.dropped += 1;
        let limits = format!("limit of a step: {LINES_MAX} lines and {LINES_BYTES_MAX} bytes");
        let first =
            (usage.dropped == 1).then(|| self.warning(format!("further {} are dropped ({limits})", KINDS[kind])));
        first.into_iter().collect()
    }

    /// Resets the counts and returns a warning for each kind of which lines were dropped.
    fn end_step(&mut self) -> Vec<Event> {
        let usage = std::mem::take(&mut self.usage);
        let dropped = KINDS.iter().zip(usage).filter(|(_, usage)| usage.dropped > 0);
        dropped.map(|(kind, usage)| self.warning(format!("number of dropped {kind}: {}", usage.dropped))).collect()
    }

    fn warning(&self, message: String) -> Event {
        let source = self.step.map_or("worker", Step::name).to_owned();
        Event::Log { level: Level::Warning, source, message }
    }
}

impl Event {
    /// Returns the event as one JSON line without a line break, with long texts truncated.
    pub fn to_line(&self) -> Vec<u8> {
        let line = serde_json::to_vec(self).expect("an event is plain data");
        if line.len() <= TEXT_BYTES_MAX {
            return line;
        }
        let mut value: Value = serde_json::to_value(self).expect("an event is plain data");
        for bytes_max in [TEXT_BYTES_MAX, SHORT_TEXT_BYTES_MAX] {
            if truncate_texts(&mut value, bytes_max) {
                let cut = serde_json::to_vec(&value).expect("a value is plain data");
                if cut.len() <= LINE_BYTES_MAX {
                    return cut;
                }
            } else if line.len() <= LINE_BYTES_MAX {
                break;
            }
        }
        line
    }

    /// Parses the event on a line and truncates its long texts.
    ///
    /// # Errors
    /// When the line is not an event.
    pub fn from_line(line: &str) -> Result<Self, serde_json::Error> {
        let event: Event = serde_json::from_str(line)?;
        if line.len() <= TEXT_BYTES_MAX {
            return Ok(event);
        }
        let mut value = serde_json::to_value(&event)?;
        if truncate_texts(&mut value, TEXT_BYTES_MAX) { serde_json::from_value(value) } else { Ok(event) }
    }
}

/// Truncates every text and every key longer than `bytes_max`. Returns whether any was.
fn truncate_texts(value: &mut Value, bytes_max: usize) -> bool {
    match value {
        Value::String(whole) => match text::truncate(whole, bytes_max) {
            Cow::Borrowed(_) => false,
            Cow::Owned(cut) => {
                *whole = cut;
                true
            }
        },
        Value::Array(values) => values.iter_mut().fold(false, |cut, value| truncate_texts(value, bytes_max) | cut),
        Value::Object(entries) => {
            let cut = entries.values_mut().fold(false, |cut, value| truncate_texts(value, bytes_max) | cut);
            truncate_keys(entries, bytes_max) | cut
        }
        _ => false,
    }
}

fn truncate_keys(entries: &mut Map<String, Value>, bytes_max: usize) -> bool {
    let is_long = |key: &String| matches!(text::truncate(key, bytes_max), Cow::Owned(_));
    if !entries.keys().any(is_long) {
        return false;
    }
    let renamed = |(index, (key, value)): (usize, (String, Value))| match text::truncate(&key, bytes_max) {
        Cow::Borrowed(_) => (key, value),
        // The index keeps two long keys distinct that begin with the same text.
        Cow::Owned(cut) => (format!("{index}: {cut}"), value),
    };
    *entries = std::mem::take(entries).into_iter().enumerate().map(renamed).collect();
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Seconds;

    fn log(level: Level, message: &str) -> Event {
        Event::Log { level, source: "script".to_owned(), message: message.to_owned() }
    }

    fn messages(events: &[Event]) -> Vec<String> {
        let message = |event: &Event| match event {
            Event::Log { source, message, .. } => Some(format!("{source}: {message}")),
            _ => None,
        };
        events.iter().filter_map(message).collect()
    }

    #[test]
    fn a_step_emits_its_first_lines_and_the_number_of_dropped_ones() {
        let mut budget = EventBudget::default();
        budget.admit(Event::StepBegin { step: Step::Inference, detail: String::new() });
        let mut emitted = Vec::new();
        for _ in 0..5000 {
            emitted.extend(budget.admit(log(Level::Debug, "again")));
        }
        emitted.extend(budget.admit(log(Level::Warning, "warnings have their own limit")));
        emitted.extend(budget.admit(Event::StepEnd { step: Step::Inference, time_s: Seconds(1.0) }));
        assert_eq!(emitted.len(), 1000 + 1 + 1 + 1 + 1);
        assert!(matches!(emitted.last(), Some(Event::StepEnd { .. })));
        insta::assert_snapshot!(messages(&emitted)[1000..].join("\n"), @r"
        inference: further log lines are dropped (limit of a step: 1000 lines and 1048576 bytes)
        script: warnings have their own limit
        inference: number of dropped log lines: 4000
        ");
        assert_eq!(budget.admit(log(Level::Debug, "the next step has its own limits")).len(), 1);
    }

    #[test]
    fn a_few_long_lines_reach_the_limit_of_bytes() {
        let mut budget = EventBudget::default();
        let long = "x".repeat(1 << 20);
        let emitted: Vec<Event> = (0..100).flat_map(|_| budget.admit(log(Level::Warning, &long))).collect();
        assert_eq!(emitted.len(), 16 + 1);
    }

    #[test]
    fn writing_and_reading_truncate_long_texts_and_keys_and_change_nothing_else() {
        let long = "ü".repeat(1 << 19);
        let line = String::from_utf8(log(Level::Warning, &long).to_line()).unwrap();
        assert!(line.len() < TEXT_BYTES_MAX + 200, "{}", line.len());
        let uncut = serde_json::to_string(&log(Level::Warning, &long)).unwrap();
        let (written, read) = (Event::from_line(&line).unwrap(), Event::from_line(&uncut).unwrap());
        assert_eq!(messages(&[written])[0], messages(std::slice::from_ref(&read))[0]);
        assert!(messages(&[read])[0].ends_with("... (983040 more bytes)"));

        let mut value = serde_json::json!({ "a": { (long.clone() + "1"): 1, (long.clone() + "2"): [long] }, "b": 2.5 });
        assert!(truncate_texts(&mut value, 10));
        let expected = "üüüüü... (1048566 more bytes)";
        let name = "üüüüü... (1048567 more bytes)";
        let whole = serde_json::json!({
            "a": { (format!("0: {name}")): 1, (format!("1: {name}")): [expected] }, "b": 2.5
        });
        assert_eq!(value, whole);
    }
}
