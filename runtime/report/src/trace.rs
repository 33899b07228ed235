//! A trace of a case for the viewers of Chrome and Perfetto, from the events of its result.
//!
//! The format is Chrome's Trace Event Format, with complete events (`ph: X`) in microseconds since the case began. Each phase
//! is a process; its steps, passes, batches and the parts of a batch are threads. Nothing is measured for it: the parts
//! of a batch follow each other, so that their times give their places.

use flagperf_core::event::Event;
use flagperf_core::measure::StepTimes;
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
    /// The number of batches so far.
    batches: u64,
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
            Event::StepEnd { .. } => {
                if let Some((name, from)) = self.step.take() {
                    self.push(&name, process, 0, from, at_s - from);
                }
            }
            Event::PassBegin { pass, .. } => self.pass = Some((*pass, at_s, at_s)),
            Event::Steps { times, .. } => times.0.iter().for_each(|times| self.add_batch(process, times)),
            Event::PassEnd(_) => {
                if let Some((pass, from, to)) = self.pass.take() {
                    self.push(&format!("pass {pass}"), process, 1, from, to - from);
                }
            }
            _ => {}
        }
    }

    fn add_batch(&mut self, process: usize, times: &StepTimes) {
        let Some((pass, from, end)) = self.pass else { return };
        let number = self.batches;
        self.batches += 1;
        self.push(&format!("batch {number}"), process, 2, end, times.total().0);
        let StepTimes { load_wait_s, core_s, output_s, evaluate_s, host_s, .. } = times;
        let parts = [
            ("load_wait", load_wait_s),
            ("core", core_s),
            ("output", output_s),
            ("evaluate", evaluate_s),
            ("host", host_s),
        ];
        let mut place = end;
        for (name, Seconds(time)) in parts {
            self.push(name, process, 3, place, *time);
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
        let micros = |seconds: f64| seconds * 1e6;
        self.events.push(json!({
            "name": name, "ph": "X", "pid": process, "tid": thread, "ts": micros(from_s), "dur": micros(time_s),
        }));
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
            .filter(|event| event["ph"] == "X" && event["dur"] != 0.0)
            .map(|event| {
                (event["name"].as_str().unwrap(), event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap())
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
