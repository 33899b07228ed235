//! Tests of sources that work, fail, hang and report nonsense.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::{Sample, SourceRecord};
use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_core::run_files::MONITOR_FILE;
use flagperf_monitor::DeviceSample;

/// What a source of a test does in its reading with this number, from 0.
type Behaviour = fn(u64) -> Result<Vec<Reading>, String>;

struct TestSource {
    open: fn() -> Result<(), String>,
    behaviour: Behaviour,
    readings: Arc<AtomicU64>,
}

impl TestSource {
    fn leaked(open: fn() -> Result<(), String>, behaviour: Behaviour) -> &'static Self {
        Box::leak(Box::new(TestSource { open, behaviour, readings: Arc::default() }))
    }

    /// Waits until the source has been read this often.
    fn wait_for(&self, readings: u64) {
        while self.readings.load(Ordering::SeqCst) < readings {
            thread::yield_now();
        }
    }
}

impl Source for TestSource {
    fn name(&self) -> &'static str {
        "test"
    }

    fn about(&self) -> &'static str {
        "for tests"
    }

    fn follows_passes(&self) -> bool {
        true
    }

    fn precedes_phases(&self) -> bool {
        true
    }

    fn open(&self, _: &SourceContext) -> Result<Box<dyn SourceReader>, String> {
        (self.open)()?;
        Ok(Box::new(TestReader { behaviour: self.behaviour, readings: self.readings.clone() }))
    }
}

struct TestReader {
    behaviour: Behaviour,
    readings: Arc<AtomicU64>,
}

impl SourceReader for TestReader {
    fn read(&mut self, _: bool) -> Result<Vec<Reading>, String> {
        (self.behaviour)(self.readings.fetch_add(1, Ordering::SeqCst))
    }
}

fn start(folder: &Path, rate_per_s: u32, source: &'static TestSource) -> Sampler {
    let context = SourceContext::of_machine();
    let options = SamplerOptions { rate_per_s, started: context.clock.now() };
    let files = MonitorFiles::new(folder, "chip", rate_per_s);
    Sampler::start(options, context, files, &[source])
}

/// Two devices with the same id, and an energy counter that decreases with each reading.
fn contradictory(number: u64) -> Result<Vec<Reading>, String> {
    let sample = DeviceSample { device: "0".into(), energy_j: Some(1000.0 - number as f64), ..DeviceSample::default() };
    Ok(vec![Reading::Device(Box::new(sample.clone())); if number == 1 { 1 } else { 2 }])
}

fn power(power_w: f64) -> Result<Vec<Reading>, String> {
    Ok(vec![Reading::Ipmi { power_w }])
}

fn hang<T>() -> T {
    loop {
        thread::park();
    }
}

/// Samples a source until it was read this often. Returns its record and the warnings.
fn sample(source: &'static TestSource, readings: u64) -> (SourceRecord, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let sampler = start(folder.path(), 10, source);
    source.wait_for(readings);
    let (record, warnings) = sampler.finish();
    (record.sources["test"].clone(), warnings)
}

fn samples(folder: &Path) -> Vec<Sample> {
    let text = std::fs::read_to_string(folder.join(MONITOR_FILE)).unwrap();
    text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_source_is_read_at_once_when_a_pass_begins_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let source = TestSource::leaked(|| Ok(()), |_| power(1.0));
    let sampler = start(folder.path(), 1, source);
    sampler.wait_for_first_readings();
    assert!(source.readings.load(Ordering::SeqCst) >= 1);
    // Another reading follows only after a tenth of a second.
    while source.readings.load(Ordering::SeqCst) < 2 {
        sampler.follow_pass();
    }
    let (record, warnings) = sampler.finish();
    let samples = samples(folder.path());
    assert!(samples.len() >= 3 && samples.is_sorted_by(|a, b| a.at_s < b.at_s), "{samples:?}");
    assert_eq!((record.sources["test"].readings, warnings.len()), (samples.len() as u64, 0));
}

#[test]
fn a_source_is_read_before_a_phase_and_the_wait_for_one_that_hangs_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let source = TestSource::leaked(|| Ok(()), |number| if number == 3 { hang() } else { power(1.0) });
    let sampler = start(folder.path(), 1, source);
    source.wait_for(1);
    for _ in 0..3 {
        let before = source.readings.load(Ordering::SeqCst);
        sampler.read_before_phase();
        assert!(source.readings.load(Ordering::SeqCst) > before);
    }
    sampler.read_before_phase();
    assert_eq!(source.readings.load(Ordering::SeqCst), 4);
}

#[test]
fn a_source_that_fails_after_some_readings_is_reported_once_and_read_again() {
    let behaviour: Behaviour =
        |number| if (2..4).contains(&number) { Err("the bus fell off".into()) } else { power(1.0) };
    let (record, warnings) = sample(TestSource::leaked(|| Ok(()), behaviour), 6);
    assert!(record.failures == 2 && record.readings >= 4, "{record:?}");
    assert!(record.problem.is_some_and(|problem| problem.starts_with("the bus fell off")));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("monitor `test`: the bus fell off"), "{warnings:?}");
}

#[test]
fn a_source_that_hangs_is_left_behind() {
    let (record, warnings) = sample(TestSource::leaked(|| Ok(()), |n| if n > 0 { hang() } else { power(1.0) }), 2);
    assert_eq!((record.readings, record.failures), (1, 1));
    assert!(warnings[0].contains("and was abandoned (readings: 1; failed: 1)"), "{warnings:?}");
    let (record, warnings) = sample(TestSource::leaked(hang, |_| power(1.0)), 0);
    assert!(record.unavailable.is_some_and(|reason| reason.ends_with("was abandoned")), "{warnings:?}");
    assert_eq!(warnings.len(), 1);
}

#[test]
fn a_source_that_the_machine_lacks_is_recorded_and_no_warning() {
    let (record, warnings) = sample(TestSource::leaked(|| Err("no such\nhardware".into()), |_| power(1.0)), 0);
    assert_eq!((record.unavailable.as_deref(), record.readings, warnings.len()), (Some("no such\\nhardware"), 0, 0));
}

#[test]
fn nonsense_and_panics_are_reported_and_nothing_of_them_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let source = TestSource::leaked(|| Ok(()), |number| power(if number == 0 { f64::NAN } else { -5.0 }));
    let sampler = start(folder.path(), 10, source);
    source.wait_for(2);
    let (record, warnings) = sampler.finish();
    assert_eq!(samples(folder.path()), []);
    assert!(record.sources["test"].refused_values >= 2, "{record:?}");
    assert!(
        warnings[0].starts_with("monitor `test`: it reported an impossible value: `power_w` is NaN"),
        "{warnings:?}"
    );
    let (record, _) = sample(TestSource::leaked(|| Ok(()), |_| panic!("a bug")), 1);
    assert!(record.problem.is_some_and(|problem| problem.starts_with("panicked: a bug")));
}

#[test]
fn contradictory_values_are_recorded_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let source = TestSource::leaked(|| Ok(()), contradictory);
    let sampler = start(folder.path(), 10, source);
    source.wait_for(3);
    let (record, warnings) = sampler.finish();
    let problem = "it reported contradictory values: a reading contains device `0` more than once (the first is used)";
    assert!(record.sources["test"].problem.as_ref().is_some_and(|found| found.contains(problem)), "{record:?}");
    assert!(warnings.len() == 1 && warnings[0].contains(problem), "{warnings:?}");
    let samples = samples(folder.path());
    assert!(samples.is_sorted_by(|a, b| a.at_s < b.at_s), "one device in each reading: {samples:?}");
}

#[test]
fn readings_that_were_due_while_a_source_did_not_answer_are_left_out_and_counted() {
    let behaviour: Behaviour = |number| {
        let clock = MonotonicClock::start();
        while number == 1 && clock.now() < Nanos(350_000_000) {
            thread::yield_now();
        }
        power(1.0)
    };
    let (record, warnings) = sample(TestSource::leaked(|| Ok(()), behaviour), 4);
    assert!(record.late >= 2, "{record:?}");
    assert!(warnings[0].contains("a reading took "), "{warnings:?}");
}

#[test]
fn no_source_is_read_at_a_rate_of_zero() {
    let folder = tempfile::tempdir().unwrap();
    let source = TestSource::leaked(|| Ok(()), |_| power(1.0));
    let (record, warnings) = start(folder.path(), 0, source).finish();
    assert_eq!((record.rate_per_s, record.sources.len(), warnings.len()), (0, 0, 0));
}

#[test]
fn a_thread_that_was_left_behind_writes_nothing_later() {
    let folder = tempfile::tempdir().unwrap();
    let sampler = start(folder.path(), 1, TestSource::leaked(|| Ok(()), |_| power(1.0)));
    let files = sampler.files();
    sampler.finish();
    let before = samples(folder.path()).len();
    lock(&files).write("test", Seconds(9.0), Seconds(0.0), &power(1.0).unwrap());
    assert_eq!(samples(folder.path()).len(), before);
}
