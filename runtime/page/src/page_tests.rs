//! Tests of whole pages: what they contain, that no text of a result is markup, and how large they are.

use std::path::Path;

use flagperf_comparison::Pareto;
use flagperf_core::event::Event;
use flagperf_core::measure::{EpochLosses, Evaluation, Latency, LatencyBounds};
use flagperf_core::run_files::{EVENTS_FILE, MONITOR_FILE};
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::Seconds;
use flagperf_result::{
    EventChain, FailureRecord, HostRecord, Machine, Record, Setting, TrainingRecord, TrainingRound, testing,
};
use flagperf_verify::{CaseReport, Standing};

use super::page::page;
use super::result::{Check, ReadResult};
use super::roofline::Roofline;
use super::words::Language;

/// A text that would be markup in an element, in an attribute, in a style and in SVG.
const HOSTILE: &str =
    "</title></style></svg>\"'><img src=x onerror=alert(1)><script>alert(1)</script>{{ 7*7 }}<!--\u{202e}\x1b[2J";

/// Writes the files of a result of a training whose monitors read a device of this name.
fn write_files(folder: &Path, steps: usize, device: &str) {
    let mut chain = EventChain::create(&folder.join(EVENTS_FILE)).unwrap();
    let loss = (0..steps).map(|step| 1.0 / (1.0 + step as f64)).collect();
    let events = [
        Event::PassBegin { step: Step::Training, pass: 0 },
        Event::EpochLosses(Box::new(EpochLosses { loss, ..EpochLosses::default() })),
    ];
    for event in events {
        chain.push(Seconds(1.0), Phase::Train, &event).unwrap();
    }
    let mut text = "pass,samples,load_wait_s,core_s,output_s,evaluate_s,host_s,outputs\n".to_owned();
    for step in 0..steps {
        let core = 0.01 + 0.001 * ((step * 7919) % 101) as f64 / 101.0 + if step == 5 { 0.5 } else { 0.0 };
        text += &format!("0,8,0.001,{core},0.0,0.0,0.0,0\n");
    }
    std::fs::write(folder.join("samples.train.csv"), text).unwrap();
    let device = serde_json::to_string(device).unwrap();
    let reading = |index: usize| {
        let (at, power) = (1.0 + 0.01 * index as f64, 300 + index % 20);
        format!(
            "{{\"at_s\":{at},\"source\":\"device\",\"device\":{device},\"power_w\":{power},\"clock_mhz\":1400,\"temperature_c\":60,\"memory_used_bytes\":4000000000,\"utilization_share\":0.9}}\n"
        )
    };
    std::fs::write(folder.join(MONITOR_FILE), (0..steps).map(reading).collect::<String>()).unwrap();
}

/// Returns the record of a training in which every text is `text`.
fn record(text: &str) -> Record {
    let mut record = testing::record();
    let evaluation =
        |steps: u64| Evaluation { steps, metrics: [(text.to_owned(), 0.5)].into(), ..Evaluation::default() };
    let round =
        TrainingRound { epochs: 1, evaluations: vec![evaluation(50), evaluation(100)], ..TrainingRound::default() };
    let mut measured = testing::measurement(Step::Training);
    measured.latency = Latency::of(&[Seconds(0.1), Seconds(0.2)]);
    measured.latency_bounds = LatencyBounds { p90_s: Some(Seconds(0.2)), p99_s: None };
    let phase = &mut record.phases[0];
    phase.phase = Phase::Train;
    phase.measured = vec![measured];
    phase.training = Some(TrainingRecord { rounds: vec![round.clone(), round], ..TrainingRecord::default() });
    let machine = Machine { hostname: text.into(), cpu: text.into(), ..Machine::default() };
    record.hosts = vec![HostRecord { name: text.into(), machine, devices: Vec::new() }];
    let setting = Setting { value: text.into(), origin: text.into() };
    record.settings = [(text.to_owned(), setting)].into();
    (record.run, record.case, record.vendor, record.unit) = (text.into(), text.into(), text.into(), text.into());
    (record.started, record.provenance.rustc) = (text.into(), text.into());
    record.provenance.scripts_sha256 = [(text.to_owned(), text.to_owned())].into();
    (record.warnings, record.departures, record.validity.reasons) =
        (vec![text.into()], vec![text.into()], vec![text.into()]);
    record.validity.notes = vec![text.into()];
    let failure =
        FailureRecord { phase: None, step: None, reason: text.into(), hint: text.into(), stderr: vec![text.into()] };
    record.failures = vec![failure];
    record
}

fn wrong(text: &str) -> Check {
    let mut report = CaseReport::new(Path::new("r"));
    report.add(text, text, Some(text.into()), Some(text.into()));
    Check::Verified(Box::new(report))
}

fn result(folder: &Path, text: &str) -> ReadResult {
    ReadResult { path: folder.to_owned(), record: record(text), digest: Some("sha256:ab".to_owned()) }
}

#[test]
fn no_text_of_a_result_is_markup() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path(), 300, HOSTILE);
    for language in [Language::English, Language::Chinese] {
        let results = [(result(folder.path(), HOSTILE), wrong(HOSTILE))];
        let text = page(&results, &[], (&Pareto::default(), &Roofline::default()), language);
        assert!(text.matches("&lt;script&gt;").count() > 20, "the texts are on the page");
        assert!(!text.contains("<script") && !text.contains("<img") && !text.contains("<!--"), "{text}");
        assert!(!text.contains("49") || text.contains("7*7"), "a text is not a template");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n' || c == '\u{202e}'));
        let ends = |name: &str| text.matches(&format!("</{name}>")).count();
        assert_eq!((ends("title") - 1, ends("style"), ends("body")), (ends("svg"), 1, 1));
    }
}

#[test]
fn a_page_has_every_chart_with_its_table_and_nothing_from_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path(), 3000, "GPU-1");
    let text = page(
        &[(result(folder.path(), "top1"), Check::TooLarge)],
        &[],
        (&Pareto::default(), &Roofline::default()),
        Language::English,
    );
    let titles = [
        "Step times",
        "Power",
        "Clock of the device",
        "Temperature",
        "Memory in use",
        "Busy share",
        "Loss",
        "Metrics of the evaluations",
    ];
    for title in titles {
        assert!(text.contains(&format!("<figcaption>{title}</figcaption>")), "{title}");
    }
    assert_eq!(text.matches("<svg ").count(), 10);
    assert_eq!(text.matches("role=\"img\"").count(), text.matches("<summary>Table").count());
    assert!(text.contains("Steps that took longer: 1. The longest took 51"), "the peak is named");
    for outside in ["http:", "https:", "url(", "src=", "@import", "<link"] {
        assert!(!text.contains(outside), "{outside}");
    }
    assert!(text.contains("Not checked here") && text.contains("flagperf verify"));
}

#[test]
fn a_wrong_result_is_marked_before_its_figures() {
    let result = ReadResult { path: "r/record.json".into(), record: testing::record(), digest: None };
    let text = page(&[(result, wrong("a figure"))], &[], (&Pareto::default(), &Roofline::default()), Language::English);
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}"));
    assert!(place("Do not use these figures") < place("expected a figure, found a figure"));
    assert!(place("expected a figure, found a figure") < place("80.0 samples/s core".replace('/', "&#x2f;").as_str()));
    assert!(place("class=\"wrong\">WRONG") < place("<section class=\"result\""), "also in the table of all cases");
}

#[test]
fn a_result_that_was_checked_has_its_standing() {
    let mut report = CaseReport::new(Path::new("r"));
    report.standing = Standing::Consistent;
    let result = ReadResult { path: "r/record.json".into(), record: testing::record(), digest: None };
    let text = page(
        &[(result, Check::Verified(Box::new(report)))],
        &[],
        (&Pareto::default(), &Roofline::default()),
        Language::Chinese,
    );
    assert!(text.contains("<span class=\"badge\">一致（consistent）</span>"), "{text}");
    assert!(!text.contains("class=\"banner wrong\"") && !text.contains("<svg"), "a record alone has no charts");
}

#[test]
fn a_page_of_any_number_of_results_is_below_a_megabyte() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path(), 5000, "GPU-1");
    for number in [4, 12, 24, 100] {
        let results: Vec<_> = (0..number).map(|_| (result(folder.path(), "a"), Check::TooLarge)).collect();
        let length = page(&results, &[], (&Pareto::default(), &Roofline::default()), Language::English).len();
        assert!(length < 1 << 20, "{number} results: {length} bytes");
    }
}

#[test]
fn numbers_of_any_size_are_drawn_or_left_out() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path(), 10, "a");
    let head = "pass,samples,load_wait_s,core_s,output_s,evaluate_s,host_s,outputs\n";
    for core in ["1e9", "1e299", "0", "5e-324", "1.7e308"] {
        let rows = format!("{head}0,8,0,{core},0,0,0,0\n4294967295,8,0,1,0,0,0,0\n9,8,0,{core},0,0,0,0\n");
        std::fs::write(folder.path().join("samples.train.csv"), rows).unwrap();
        let mut result = result(folder.path(), "a");
        let round = &mut result.record.phases[0].training.as_mut().unwrap().rounds[1];
        round.evaluations[0].metrics = [("a".to_owned(), -1e300), ("b".to_owned(), f64::NAN)].into();
        round.evaluations[1].metrics = [("a".to_owned(), 1e300), ("b".to_owned(), f64::MAX)].into();
        let text =
            page(&[(result, Check::TooLarge)], &[], (&Pareto::default(), &Roofline::default()), Language::English);
        assert!(text.contains("<svg") && !text.contains("NaN"), "{core}");
    }
}
