//! The lines of a worker, collected as the conductor does, and written to and read from a chain as `events.jsonl` is.

#![no_main]

mod support;

use std::fs;

use flagperf_core::event::{Event, Failure, LINE_BYTES_MAX, ModelFacts};
use flagperf_core::measure::{Nanos, PassReport, StepColumns, StepTimes};
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::{Bytes, Seconds};
use flagperf_result::{ChainReader, EventChain, PhaseCollector, PhaseRecord, ReceivedEvent};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: support::write_seeds(seeds), |text: &str| {
    let mut events = Vec::new();
    let mut collector = PhaseCollector::new(Phase::Infer, Nanos(0));
    for (number, line) in text.lines().enumerate() {
        let Ok(event) = Event::from_line(line) else { break };
        let written = event.to_line();
        assert!(written.len() <= LINE_BYTES_MAX);
        let again = Event::from_line(std::str::from_utf8(&written).expect("JSON is text")).expect("it was written");
        assert_eq!(again.to_line(), written);
        collector.add(ReceivedEvent { at: Nanos(number as u64 * 1_000_000), event: &event });
        events.push(event);
        if collector.contradiction().is_some() {
            break;
        }
    }
    let _ = (collector.missing(1), collector.measurement(), collector.step());
    let (record, warnings) = collector.finish(Nanos(1 << 40), None);
    assert!(warnings.iter().all(|warning| !warning.is_empty()));
    let written = serde_json::to_string(&record).expect("a record is plain data");
    let again: PhaseRecord = serde_json::from_str(&written).expect("it was written");
    assert_eq!(serde_json::to_string(&again).expect("a record is plain data"), written);
    check_chain(&events);
});

/// Writes events to a chain and reads them again: they must be the same.
fn check_chain(events: &[Event]) {
    let path = support::FOLDER.join("events.jsonl");
    let _ = fs::remove_file(&path);
    let mut chain = EventChain::create(&path).expect("a file");
    for event in events {
        chain.push(Seconds(0.5), Phase::Infer, event).expect("a small file");
    }
    let text = fs::read(&path).expect("a file");
    let mut reader = ChainReader::new(&text[..]);
    for event in events.iter().filter(|event| !matches!(event, Event::Progress { .. })) {
        let read = reader.read().expect("it was written").expect("as many events");
        assert_eq!(read.event.to_line(), event.to_line());
    }
    assert!(reader.read().expect("the end").is_none());
    assert_eq!(reader.hash(), chain.hash());
}

fn seeds() -> Vec<Vec<u8>> {
    let times = StepTimes { samples: 2, core_s: Seconds(0.5), ..StepTimes::default() };
    let report = PassReport { step: Step::Inference, ..PassReport::default() };
    let step = Step::Inference;
    let pass = vec![
        Event::Started { pid: 7, run_seed_sha256: "ab".to_owned() },
        Event::StepBegin { step, detail: "inference".to_owned() },
        Event::PassBegin { step, pass: 0 },
        Event::Steps { step, times: StepColumns(vec![times; 4]) },
        Event::PassEnd(Box::new(report)),
        Event::StepEnd { step, time_s: Seconds(2.0) },
        Event::Finished { memory_bytes_max: Bytes(1 << 20) },
    ];
    let others = vec![
        Event::Model(ModelFacts::default()),
        Event::Dataset(Default::default()),
        Event::Engine(Box::default()),
        Event::Sidecar(Box::default()),
        Event::Protected(Default::default()),
        Event::Agreement(Default::default()),
        Event::Audit(Box::default()),
        Event::SampleFailed { sample: "a.jpg".to_owned(), reason: "cut".to_owned() },
        Event::Failed(Failure { step: Some(step), reason: "no".to_owned(), hint: String::new() }),
    ];
    let lines = |events: Vec<Event>| {
        events.iter().map(|event| [&event.to_line()[..], b"\n"].concat()).collect::<Vec<_>>().concat()
    };
    vec![lines(pass), lines(others)]
}
