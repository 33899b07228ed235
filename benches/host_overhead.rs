//! What the host itself costs: the null engine with a case's scripts around it.
//!
//! `cargo bench --bench host_overhead` prints, for batches of 1 and 64 preloaded samples, the time of a step that is
//! the host's (script, outputs, accounting; evaluation apart), and the ratio whole / core with an engine that sleeps
//! 5 ms a step.

#[path = "../tests/support/jobs.rs"]
mod jobs;

use std::sync::{Arc, Mutex};

use flagperf::event::Event;
use flagperf::measure::Measurement;
use flagperf::step::Phase;
use flagperf::work::{self, Emit};
use indexmap::IndexMap;
use serde_json::json;

fn main() {
    println!("{:<34}{:>10}{:>12}{:>12}{:>14}", "null engine", "steps", "core us", "host us", "evaluate us");
    for batch in [1, 64] {
        let m = measure(batch, batch * 2_000, 0.0);
        let steps = m.steps as f64;
        let us = |part: fn(&flagperf::measure::PassTimes) -> f64| m.passes.iter().map(part).sum::<f64>() * 1e6 / steps;
        let (core, evaluate) = (us(|p| p.core_s.0), us(|p| p.evaluate_s.0));
        let host = us(|p| p.load_wait_s.0 + p.output_s.0 + p.host_s.0);
        println!("{:<34}{:>10}{core:>12.2}{host:>12.2}{evaluate:>14.2}", format!("batch {batch}"), m.steps);
    }
    let m = measure(64, 64 * 100, 5.0);
    let rate = |r: Option<flagperf::units::SamplesPerSecond>| r.map_or(f64::NAN, |r| r.0);
    let ratio = rate(m.throughput_whole_samples_per_s) / rate(m.throughput_core_samples_per_s);
    println!("whole / core, 5 ms a step, batch 64: {ratio:.4}");
}

fn measure(batch: u32, samples: u32, sleep_ms: f64) -> Measurement {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut job = jobs::tiny(folder.path(), Phase::Validate, "null", samples, batch);
    job.export = None;
    job.outputs = None;
    job.settings.log_freq = u32::MAX;
    job.config.insert("preloaded".to_owned(), json!(true));
    job.engine = jobs::engine_choice("null", IndexMap::from([("sleep_ms".to_owned(), json!(sleep_ms))]));
    let last = Arc::new(Mutex::new(None));
    let sink = last.clone();
    let emit: Emit = Arc::new(move |event| {
        if let Event::Measured(measurement) = event {
            *sink.lock().expect("one thread measures") = Some(*measurement);
        }
    });
    work::run(&job, &emit).expect("the tiny case runs on the null engine");
    let measured = last.lock().expect("one thread measures").take();
    measured.expect("a phase measures")
}
