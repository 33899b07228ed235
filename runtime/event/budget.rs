//! Limits of what a worker tells: long texts are cut, and of each kind of line a step may tell so many; the rest is
//! counted.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Event, Level};
use crate::step::Step;
use crate::text;

/// Longest text in an event; what is longer is cut with a mark.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Longest text in an event that is too long as a whole even so.
const TEXT_BYTES_LEAST: usize = 256;
/// Longest line of an event; a worker whose line is longer fails.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// Lines of each kind that a step may tell.
pub const LINES_MAX: u64 = 1000;
/// Bytes of lines of each kind that a step may tell.
pub const LINES_BYTES_MAX: u64 = 1 << 20;

/// The kinds of event that something in a worker may tell any number of.
const KINDS: [&str; 3] = ["lines of the log", "warnings", "failed samples"];

/// Counts what the step under way has told, and leaves out what is beyond its budget.
#[derive(Debug, Default)]
pub struct EventBudget {
    step: Option<Step>,
    used: [Used; KINDS.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    lines: u64,
    bytes: u64,
    left_out: u64,
}

impl EventBudget {
    /// What is to be told instead of `event`: itself, or nothing when it is beyond the budget. Before a step ends, and
    /// once when a budget is used up, a line says so.
    pub fn admit(&mut self, event: Event) -> Vec<Event> {
        let (kind, bytes) = match &event {
            Event::Log { level: Level::Debug | Level::Info, source, message } => (0, source.len() + message.len()),
            Event::Log { source, message, .. } => (1, source.len() + message.len()),
            Event::SampleFailed { sample, reason } => (2, sample.len() + reason.len()),
            Event::StepBegin { step, .. } => {
                let before = self.close();
                self.step = Some(*step);
                return before.into_iter().chain([event]).collect();
            }
            Event::StepEnd { .. } | Event::Failed(_) | Event::Finished { .. } => {
                return self.close().into_iter().chain([event]).collect();
            }
            _ => return vec![event],
        };
        let used = &mut self.used[kind];
        let bytes = bytes.min(TEXT_BYTES_MAX) as u64;
        if used.left_out == 0 && used.lines < LINES_MAX && used.bytes + bytes <= LINES_BYTES_MAX {
            used.lines += 1;
            used.bytes += bytes;
            return vec![event];
        }
        used.left_out += 1;
        let limits = format!("the limit of a step is {LINES_MAX} lines and {LINES_BYTES_MAX} bytes");
        let first = (used.left_out == 1).then(|| self.note(format!("further {} are left out: {limits}", KINDS[kind])));
        first.into_iter().collect()
    }

    /// Ends the step's budget: says how much of each kind was left out, if some was.
    fn close(&mut self) -> Vec<Event> {
        let used = std::mem::take(&mut self.used);
        let left_out = KINDS.iter().zip(used).filter(|(_, used)| used.left_out > 0);
        left_out.map(|(kind, used)| self.note(format!("{} {kind} were left out", used.left_out))).collect()
    }

    fn note(&self, message: String) -> Event {
        let source = self.step.map_or("worker", Step::name).to_owned();
        Event::Log { level: Level::Warning, source, message }
    }
}

impl Event {
    /// The event as one JSON line without its end, its long texts cut.
    pub fn to_line(&self) -> Vec<u8> {
        let line = serde_json::to_vec(self).expect("an event is plain data");
        if line.len() <= TEXT_BYTES_MAX {
            return line;
        }
        let mut value: Value = serde_json::to_value(self).expect("an event is plain data");
        for bytes_max in [TEXT_BYTES_MAX, TEXT_BYTES_LEAST] {
            if cut_texts(&mut value, bytes_max) {
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

    /// The event of a line, its long texts cut.
    ///
    /// # Errors
    /// When the line is no event.
    pub fn from_line(line: &str) -> Result<Self, serde_json::Error> {
        let event: Event = serde_json::from_str(line)?;
        if line.len() <= TEXT_BYTES_MAX {
            return Ok(event);
        }
        let mut value = serde_json::to_value(&event)?;
        if cut_texts(&mut value, TEXT_BYTES_MAX) { serde_json::from_value(value) } else { Ok(event) }
    }
}

/// Cuts every text and every name that is longer; gives whether there was one.
fn cut_texts(value: &mut Value, bytes_max: usize) -> bool {
    match value {
        Value::String(whole) => match text::cut(whole, bytes_max) {
            Cow::Borrowed(_) => false,
            Cow::Owned(cut) => {
                *whole = cut;
                true
            }
        },
        Value::Array(values) => values.iter_mut().fold(false, |cut, value| cut_texts(value, bytes_max) | cut),
        Value::Object(entries) => {
            let cut = entries.values_mut().fold(false, |cut, value| cut_texts(value, bytes_max) | cut);
            cut_names(entries, bytes_max) | cut
        }
        _ => false,
    }
}

fn cut_names(entries: &mut Map<String, Value>, bytes_max: usize) -> bool {
    let is_long = |name: &String| matches!(text::cut(name, bytes_max), Cow::Owned(_));
    if !entries.keys().any(is_long) {
        return false;
    }
    let renamed = |(index, (name, value)): (usize, (String, Value))| match text::cut(&name, bytes_max) {
        Cow::Borrowed(_) => (name, value),
        // Two long names may begin alike; both stay.
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
    fn of_a_loop_of_lines_a_step_tells_the_first_and_how_many_were_left_out() {
        let mut budget = EventBudget::default();
        budget.admit(Event::StepBegin { step: Step::Inference, detail: String::new() });
        let mut told = Vec::new();
        for _ in 0..5000 {
            told.extend(budget.admit(log(Level::Debug, "again")));
        }
        told.extend(budget.admit(log(Level::Warning, "heard all the same")));
        told.extend(budget.admit(Event::StepEnd { step: Step::Inference, time_s: Seconds(1.0) }));
        assert_eq!(told.len(), 1000 + 1 + 1 + 1 + 1);
        assert!(matches!(told.last(), Some(Event::StepEnd { .. })));
        let said = messages(&told);
        insta::assert_snapshot!(said[1000..].join("\n"), @r"
        inference: further lines of the log are left out: the limit of a step is 1000 lines and 1048576 bytes
        script: heard all the same
        inference: 4000 lines of the log were left out
        ");
        assert_eq!(budget.admit(log(Level::Debug, "the next step has its own")).len(), 1);
    }

    #[test]
    fn few_long_lines_use_up_the_bytes() {
        let mut budget = EventBudget::default();
        let long = "x".repeat(1 << 20);
        let told: Vec<Event> = (0..100).flat_map(|_| budget.admit(log(Level::Warning, &long))).collect();
        assert_eq!(told.len(), 16 + 1);
    }

    #[test]
    fn long_texts_and_names_are_cut_on_both_sides_and_nothing_else_changes() {
        let long = "ü".repeat(1 << 19);
        let line = String::from_utf8(log(Level::Warning, &long).to_line()).unwrap();
        assert!(line.len() < TEXT_BYTES_MAX + 200, "{}", line.len());
        let uncut = serde_json::to_string(&log(Level::Warning, &long)).unwrap();
        let (told, heard) = (Event::from_line(&line).unwrap(), Event::from_line(&uncut).unwrap());
        assert_eq!(messages(&[told])[0], messages(std::slice::from_ref(&heard))[0]);
        assert!(messages(&[heard])[0].ends_with("... (983040 more bytes)"));

        let mut value = serde_json::json!({ "a": { (long.clone() + "1"): 1, (long.clone() + "2"): [long] }, "b": 2.5 });
        assert!(cut_texts(&mut value, 10));
        let expected = "üüüüü... (1048566 more bytes)";
        let name = "üüüüü... (1048567 more bytes)";
        let whole = serde_json::json!({
            "a": { (format!("0: {name}")): 1, (format!("1: {name}")): [expected] }, "b": 2.5
        });
        assert_eq!(value, whole);
    }
}
