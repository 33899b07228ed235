//! A trace of a case for the viewers of Chrome and Perfetto, from the events of its result.
//!
//! The format is Chrome's Trace Event Format, with complete events (`ph: X`) in microseconds since the case began. Each phase
//! is a process; its steps, passes, batches and the parts of a batch are threads. Nothing is measured for them: the parts
//! of a batch follow each other, so that their times give their places. The rows of batches that were traced after the
//! measurement are further threads.

use flagperf_core::event::Event;
use flagperf_core::measure::{StepTimes, TraceSpan};
use flagperf_core::step::Phase;
use flagperf_core::units::Seconds;
use flagperf_result::ChainedEvent;
use serde_json::{Value, json};

/// The threads of a phase, in the order in which viewers show them.
const THREADS: [&str; 4] = ["steps of the case", "passes", "batches", "parts of a batch"];

/// Builds the trace of a case event by event.
#[derive(Default)]
pub struct TraceBuilder {
    events: Vec<Value>,
    /// The phases so far.
    phases: Vec<Phase>,
    /// The step of the case that has begun, with its place.
    step: Option<(String, f64)>,
    /// The pass that has begun: its index, its place, and the end of its last batch.
    pass: Option<(u32, f64, f64)>,
    /// The rows of the traced batches so far, each with its process.
    rows: Vec<(usize, String)>,
    /// The number of batches so far.
    batches: u64,
    /// Whether the last event of a case was added.
    is_complete: bool,
}

impl TraceBuilder {
    /// Adds an event of the case.
    pub fn add(&mut self, ChainedEvent { at, phase, event }: &ChainedEvent) {
        let at_s = at.since(flagperf_core::measure::Nanos(0)).0;
        let process = self.process(*phase);
        match event {
            Event::StepBegin { detail, step } => {
                self.step = Some((format!("{}: {detail}", format!("{step:?}").to_lowercase()), at_s));
            }
            Event::StepEnd { time_s, .. } => {
                if let Some((name, from)) = self.step.take() {
                    self.push(&name, process, 0, from, time_s.0);
                }
            }
            Event::PassBegin { pass, .. } => self.pass = Some((*pass, at_s, at_s)),
            Event::Steps { times, .. } => times.0.iter().for_each(|times| self.add_batch(process, times)),
            Event::PassEnd(_) => {
                if let Some((pass, from, to)) = self.pass.take() {
                    self.push(&format!("pass {pass}"), process, 1, from, to - from);
                }
            }
            Event::Observed { .. } => self.is_complete = true,
            Event::Trace { spans } => spans.iter().for_each(|span| self.add_span(process, span)),
            _ => {}
        }
    }

    /// Adds a span of the traced batches, whose step has begun.
    fn add_span(&mut self, process: usize, TraceSpan { row, name, operator, begin_s, time_s }: &TraceSpan) {
        let Some((_, from)) = &self.step else { return };
        let from = from + begin_s.0;
        let thread = THREADS.len() + self.row(process, row);
        self.push(name, process, thread, from, time_s.0);
        if let (Some(operator), Some(event)) = (operator, self.events.last_mut()) {
            event["args"] = json!({"operator": operator});
        }
    }

    /// Returns the index of a row of a phase, which is named when it is new.
    fn row(&mut self, process: usize, row: &str) -> usize {
        let rows = self.rows.iter().filter(|(of, _)| *of == process);
        let (count, known) = (rows.clone().count(), rows.map(|(_, known)| known).position(|known| known == row));
        known.unwrap_or_else(|| {
            self.name("thread_name", process, THREADS.len() + count, row);
            self.rows.push((process, row.to_owned()));
            count
        })
    }

    fn add_batch(&mut self, process: usize, times: &StepTimes) {
        let Some((pass, from, end)) = self.pass else { return };
        let number = self.batches;
        self.batches += 1;
        self.push(&format!("batch {number}"), process, 2, end, times.total().0);
        let mut place = end;
        for (name, Seconds(time)) in times.parts() {
            self.push(name, process, 3, place, time);
            place += time;
        }
        self.pass = Some((pass, from, place));
    }

    fn process(&mut self, phase: Phase) -> usize {
        if let Some(known) = self.phases.iter().position(|known| *known == phase) {
            return known;
        }
        let process = self.phases.len();
        self.phases.push(phase);
        self.name("process_name", process, 0, phase.name());
        for (thread, name) in THREADS.iter().enumerate() {
            self.name("thread_name", process, thread, name);
        }
        process
    }

    fn name(&mut self, kind: &str, process: usize, thread: usize, name: &str) {
        self.events.push(json!({"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}));
    }

    fn push(&mut self, name: &str, process: usize, thread: usize, from_s: f64, time_s: f64) {
        let nanos = |seconds: f64| (seconds * 1e9).round();
        // Viewers cut to whole nanoseconds; a tenth more keeps one from getting lost, after which neighbours would overlap.
        let micros = |nanos: f64| ((nanos + 0.1) * 10.0).round() / 1e4;
        let from = nanos(from_s);
        let time = (nanos(from_s + time_s) - from).max(0.0);
        self.events.push(json!({
            "name": name, "ph": "X", "pid": process, "tid": thread, "ts": micros(from), "dur": micros(time),
        }));
    }

    /// Returns whether the events are those of a whole case.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the trace.
    pub fn finish(self) -> Value {
        json!({"traceEvents": self.events, "displayTimeUnit": "ms"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::{Nanos, StepColumns};
    use flagperf_core::step::Step;

    #[test]
    fn neighbours_do_not_overlap_where_a_viewer_cuts_to_nanoseconds() {
        let mut builder = TraceBuilder::default();
        let mut at = 15_759.0;
        for index in 0..1000 {
            let time = 1.0e-6 + f64::from(index) * 1.37e-9;
            builder.push("node", 0, 0, at, time);
            at += time;
        }
        let cut = |event: &Value, key: &str| (event[key].as_f64().unwrap() * 1000.0) as i64;
        for pair in builder.events.windows(2) {
            assert_eq!(cut(&pair[0], "ts") + cut(&pair[0], "dur"), cut(&pair[1], "ts"));
        }
    }

    #[test]
    fn the_parts_of_a_batch_follow_each_other_from_the_beginning_of_the_pass() {
        let step = Step::Inference;
        let times = StepTimes {
            load_wait_s: Seconds(0.25),
            core_s: Seconds(0.5),
            output_s: Seconds(0.125),
            ..StepTimes::default()
        };
        let mut builder = TraceBuilder::default();
        for (at, event) in [
            (1_000_000_000, Event::StepBegin { step, detail: "measuring".to_owned() }),
            (2_000_000_000, Event::PassBegin { step, pass: 0 }),
            (3_000_000_000, Event::Steps { step, times: StepColumns(vec![times, times]) }),
            (4_000_000_000, Event::StepEnd { step, time_s: Seconds(3.0) }),
        ] {
            builder.add(&ChainedEvent { at: Nanos(at), phase: Phase::Infer, event });
        }
        let trace = builder.finish();
        let events = trace["traceEvents"].as_array().unwrap();
        let found: Vec<(&str, f64, f64)> = events
            .iter()
            .filter(|event| event["ph"] == "X" && event["dur"] != 0.0001)
            .map(|event| {
                let time = |key: &str| (event[key].as_f64().unwrap() * 1e3).floor() / 1e3;
                (event["name"].as_str().unwrap(), time("ts"), time("dur"))
            })
            .collect();
        let expected = [
            ("batch 0", 2.0e6, 875_000.0),
            ("load_wait", 2.0e6, 250_000.0),
            ("core", 2.25e6, 500_000.0),
            ("output", 2.75e6, 125_000.0),
            ("batch 1", 2.875e6, 875_000.0),
            ("load_wait", 2.875e6, 250_000.0),
            ("core", 3.125e6, 500_000.0),
            ("output", 3.625e6, 125_000.0),
            ("inference: measuring", 1.0e6, 3.0e6),
        ];
        assert_eq!(found, expected);
        assert_eq!(events.iter().filter(|event| event["ph"] == "M").count(), 5);
    }
}
