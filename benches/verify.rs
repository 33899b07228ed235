//! Measures how fast `flagperf verify` reads a large result: the hashes of its files, and its events.
//!
//!     cargo bench --bench verify -- [MEBIBYTES]
//!
//! Writes a file of that size (1024 by default) and events of a quarter of it into a temporary folder. Prints gigabytes
//! per second of both parts, which run at the same time in `verify`. The files are in the system's cache.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::path::Path;

use flagperf_core::event::Event;
use flagperf_core::measure::{Clock, MonotonicClock, Nanos, PassReport, STEPS_PER_EVENT, StepColumns, StepTimes};
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::{Bytes, Seconds};
use flagperf_result::{ChainReader, EventChain, PhaseCollector, ReceivedEvent, ResultManifest, SampleHashers};

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` appends `--bench`.
    let mebibytes = std::env::args().skip(1).find(|argument| argument != "--bench");
    let bytes = mebibytes.map_or(Ok(1024), |text| text.parse::<u64>())? << 20;
    let (clock, folder) = (MonotonicClock::start(), tempfile::tempdir()?);
    write_file(&folder.path().join("model.onnx"), bytes)?;
    let events = folder.path().join("events.jsonl");
    write_events(&events, bytes / 4)?;
    let size = fs::metadata(&events)?.len();

    let start = clock.now();
    let files = ResultManifest::of_folder(folder.path())?.files;
    let hashed: u64 = files.iter().map(|file| file.size_bytes.0).sum();
    println!("hashes: {:.2} GB/s", hashed as f64 / 1e9 / clock.now().since(start).0);

    let start = clock.now();
    let steps = read_events(&events)?;
    println!("events: {:.2} GB/s, {steps} steps", size as f64 / 1e9 / clock.now().since(start).0);
    Ok(())
}

fn write_file(path: &Path, bytes: u64) -> std::io::Result<()> {
    let piece: Vec<u8> = (0..1 << 20).map(|index: u32| index.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let mut file = File::create(path)?;
    (0..bytes >> 20).try_for_each(|_| file.write_all(&piece))
}

/// Writes one pass of so many steps that the file has about this size.
fn write_events(path: &Path, bytes: u64) -> std::io::Result<()> {
    let step = Step::Inference;
    let time = |index: usize| Seconds(0.02 + (index as f64).sin() * 1e-4);
    let times: Vec<StepTimes> = (0..STEPS_PER_EVENT)
        .map(|index| StepTimes { samples: 256, core_s: time(index), host_s: time(index + 1), ..StepTimes::default() })
        .collect();
    let mut chain = EventChain::create(path)?;
    let mut push = |event: &Event| chain.push(Seconds(1.0), Phase::Infer, event);
    push(&Event::StepBegin { step, detail: "bench".to_owned() })?;
    push(&Event::PassBegin { step, pass: 0 })?;
    while fs::metadata(path)?.len() < bytes {
        push(&Event::Steps { step, times: StepColumns(times.clone()) })?;
    }
    push(&Event::PassEnd(Box::new(PassReport { step, ..PassReport::default() })))?;
    push(&Event::StepEnd { step, time_s: Seconds(1.0) })?;
    push(&Event::Finished { memory_bytes_max: Bytes(1) })
}

/// Reads the events as `verify` does, and returns the number of steps.
fn read_events(path: &Path) -> Result<u64, Box<dyn Error>> {
    let mut reader = ChainReader::new(BufReader::with_capacity(1 << 20, File::open(path)?));
    let mut collector = PhaseCollector::new(Phase::Infer, Nanos(0));
    let mut samples = SampleHashers::default();
    while let Some(read) = reader.read()? {
        samples.add(&read.event)?;
        collector.add(ReceivedEvent { at: read.at, event: &read.event });
    }
    samples.finish(Phase::Infer)?;
    let (record, _) = collector.finish(Nanos(0), None);
    Ok(record.measured.iter().map(|measured| measured.steps).sum())
}
