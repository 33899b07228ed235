//! Measures the overhead of the host: a case's scripts with the null engine.
//!
//! `cargo bench --bench host_overhead` prints, for batches of 1 and 64 preloaded samples, the host's part of a step
//! (script, outputs, accounting; evaluation separately), and the ratio whole / core with an engine that sleeps 5 ms per
//! step.

#[path = "../tests/support/jobs.rs"]
mod jobs;

use std::sync::{Arc, Mutex};

use flagperf_core::measure::{Measurement, Nanos, PassTimes};
use flagperf_core::step::Phase;
use flagperf_core::units::Seconds;
use flagperf_plan::Task;
use flagperf_result::{PhaseCollector, ReceivedEvent};
use flagperf_work::Emit;
use indexmap::IndexMap;
use serde_json::json;

fn main() {
    println!("us per step, null engine steps      core load_wait    output      host  evaluate");
    for batch in [1, 64] {
        print_row(&format!("batch {batch}"), &measure(batch, batch * 2_000, 0.0));
    }
    let m = measure(64, 64 * 100, 5.0);
    print_row("batch 64, sleeps 5 ms", &m);
    let rate = |r: Option<flagperf_core::units::SamplesPerSecond>| r.map_or(f64::NAN, |r| r.0);
    let ratio = rate(m.throughput_whole_samples_per_s) / rate(m.throughput_core_samples_per_s);
    println!("whole / core, 5 ms per step, batch 64: {ratio:.4}");
}

fn print_row(name: &str, m: &Measurement) {
    let us = |part: fn(&PassTimes) -> Seconds| m.passes.iter().map(|p| part(p).0).sum::<f64>() * 1e6 / m.steps as f64;
    let parts = [us(|p| p.core_s), us(|p| p.load_wait_s), us(|p| p.output_s), us(|p| p.host_s), us(|p| p.evaluate_s)];
    let parts: String = parts.iter().map(|part| format!("{part:>10.2}")).collect();
    println!("{name:<24}{:>6}{parts}", m.steps);
}

fn measure(batch: u32, samples: u32, sleep_ms: f64) -> Measurement {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut job = jobs::tiny(folder.path(), Phase::Validate, "null", samples, batch);
    job.task = Task::Validate { export: None };
    job.outputs = None;
    job.settings.log_freq = u32::MAX;
    job.parameters.preloaded = true;
    job.engine = jobs::engine_choice("null", IndexMap::from([("sleep_ms".to_owned(), json!(sleep_ms))]));
    let collector = Arc::new(Mutex::new(PhaseCollector::new(Phase::Validate, Nanos(0))));
    let sink = collector.clone();
    let emit: Emit = Arc::new(move |event| {
        sink.lock().expect("one thread measures").add(ReceivedEvent { at: Nanos(0), event: &event });
    });
    flagperf_work::run(&job, &emit, &|| ()).expect("the tiny case runs on the null engine");
    let measured = collector.lock().expect("one thread measures").measurement();
    measured.expect("a phase measures")
}
