//! What a person sees, drawn into the memory of a test terminal.

use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use flagperf_core::event::{Event, Failure, Level};
use flagperf_core::measure::{EpochLosses, Nanos, QueryColumns, QueryTimes, StepColumns, StepTimes};
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::Seconds;
use flagperf_result::testing;

const SECOND: u64 = 1_000_000_000;

/// Returns a view of a run of these cases whose first one has begun.
fn view(cases: &[&str]) -> View {
    let keys: Vec<CaseKey> = cases.iter().map(|key| key.parse().unwrap()).collect();
    let mut view = View::new(&keys, Nanos(0));
    let folder = Path::new("result/run1");
    view.note(&Notice::RunBegins { folder }, &[], Nanos(0));
    view.note(&Notice::CaseBegins { key: &keys[0], number: 1, count: keys.len() }, &[], Nanos(0));
    view
}

/// Notes an event of the worker on this machine, with the lines of the other displays.
fn note(view: &mut View, event: &Event) {
    let notice = Notice::Event { phase: Phase::Infer, event };
    view.note(&notice, &notice_lines(&notice), Nanos(62 * SECOND));
}

fn progress(step: Step, batch: u64) -> Event {
    Event::Progress {
        step,
        warmup: false,
        pass: 1,
        passes: 4,
        batch,
        batches: 10,
        samples: 8 * (10 + batch),
        elapsed_s: Seconds(0.1 * (10 + batch) as f64),
        repetition: None,
    }
}

fn steps(step: Step, times: impl Iterator<Item = f64>) -> Event {
    let time = |time| StepTimes { core_s: Seconds(time), ..StepTimes::default() };
    Event::Steps { step, times: StepColumns(times.map(time).collect()) }
}

/// A view in the middle of an inference.
fn measured() -> View {
    let mut view = view(&["resnet50:pytorch", "vit:pytorch"]);
    note(&mut view, &Event::StepBegin { step: Step::Inference, detail: "with cpu.rten".into() });
    (1..=5).for_each(|batch| note(&mut view, &progress(Step::Inference, batch)));
    let times = (0..200).map(|step| 0.010 + 0.0005 * f64::from(step * 7 % 5)).chain([0.5]);
    note(&mut view, &steps(Step::Inference, times));
    note(&mut view, &Event::Log { level: Level::Warning, source: "loader".into(), message: "a slow disk".into() });
    view
}

fn monitors(folder: &Path) -> Monitors {
    let place = folder.join("localhost_noderank0");
    std::fs::create_dir_all(&place).unwrap();
    let line = |at: u32| {
        let (power, busy) = (300 + 10 * at, f64::from(at) / 40.0);
        format!(
            "{{\"at_s\":{at}.5,\"source\":\"processor\",\"busy_share\":{busy}}}\n{{\"at_s\":{at}.5,\"source\":\"device\",\"device\":\"0\",\
             \"power_w\":{power}.0,\"temperature_c\":61.0,\"clock_mhz\":1980.0,\"memory_used_bytes\":1610612736}}\n"
        )
    };
    let text: String = (1..=20).map(line).collect();
    std::fs::write(place.join("monitor.jsonl"), format!("{{\"format\":1,\"rate_per_s\":1}}\n{text}{{\"at_s\":"))
        .unwrap();
    let mut monitors = Monitors::default();
    monitors.read(Some(folder));
    monitors
}

/// Draws a view on a terminal of this size, after 65 seconds.
fn screen(view: &View, monitors: &Monitors, (columns, rows): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let picture = Picture { view, monitors, now: Nanos(65 * SECOND), is_ending: false };
    terminal.draw(|frame| draw(frame, &picture)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |row| (0..columns).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    (0..rows).map(|index| format!("{}\n", row(index).trim_end())).collect()
}

#[test]
fn a_terminal_of_80_columns_shows_the_cases_the_progress_the_times_and_the_monitors() {
    let folder = tempfile::tempdir().unwrap();
    insta::assert_snapshot!(screen(&measured(), &monitors(folder.path()), (80, 24)), @r"
    flagperf run  run1                                                          1:05
     case 1 of 2 ───────────────────────────────────────────────────────────────────
    running   resnet50:pytorch  1:05
    waiting   vit:pytorch
     progress ──────────────────────────────────────────────────────────────────────
    inference  █████████████████████████▉       38%
    80.0 samples/s, 2.50 s left  pass 2/4  batch 5/10
     inference: 201 steps, median 11.0 ms ─   since the case began ─────────────────
    ██ █ ██                                  samples/s            80.0 █████
    ██ █ ██                                  power               500 W ▆▆▆▆▆▇▇▇▇████
    ██ █ ██                                  temperature         61 °C █████████████
    ██ █ ██                                  device memory    1.50 GiB █████████████
    ██ █ ██                                  clock            1980 MHz █████████████
    ██ █ ██                                  CPU busy            50.0% ▁▂▂▃▄▄▅▅▆▇▇██
    ██ █ ██
    ██ █ ██
    ██ █ ██
    ██ █ ██
    ██ █ ██
    ██ █ ██
    10.0 ms              18.0 ms, 1 longer
     messages ──────────────────────────────────────────────────────────────────────
    warning: loader: a slow disk
    Ctrl-C ends the run; the report follows
    ");
}

#[test]
fn a_terminal_of_40_columns_has_the_charts_below_each_other() {
    let folder = tempfile::tempdir().unwrap();
    insta::assert_snapshot!(screen(&measured(), &monitors(folder.path()), (40, 15)), @r"
    flagperf run  run1                  1:05
     case 1 of 2 ───────────────────────────
    running   resnet50:pytorch  1:05
    waiting   vit:pytorch
     progress ──────────────────────────────
    inference  ██████████▉  38%
    80.0 samples/s, 2.50 s left  pass 2/4  b
     inference: 201 steps, median 11.0 ms ──
    ██ █ ██
     since the case began ──────────────────
    samples/s            80.0 █████
    power               500 W ▆▆▆▆▆▇▇▇▇█████
     messages ──────────────────────────────
    warning: loader: a slow disk
    Ctrl-C ends the run; the report follows
    ");
}

#[test]
fn every_size_can_be_drawn_and_shows_the_progress_if_it_has_a_few_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (view, monitors) = (measured(), monitors(folder.path()));
    for (columns, rows) in [(1, 1), (2, 40), (3, 2), (10, 5), (20, 9), (39, 11), (64, 12), (200, 3), (300, 100)] {
        let text = screen(&view, &monitors, (columns, rows));
        assert_eq!(text.contains("inference"), columns >= 20 && rows >= 5, "{columns}x{rows}:\n{text}");
    }
}

#[test]
fn a_training_shows_its_loss() {
    let mut view = view(&["digits:pytorch:cpu:1:1:1"]);
    note(&mut view, &Event::StepBegin { step: Step::Training, detail: String::new() });
    note(&mut view, &progress(Step::Training, 5));
    let loss = (1..=20).map(|step| 2.0 / f64::from(step)).collect();
    note(&mut view, &Event::EpochLosses(Box::new(EpochLosses { loss, ..EpochLosses::default() })));
    note(&mut view, &steps(Step::Training, (0..20).map(|step| 0.1 + 0.001 * f64::from(step))));
    insta::assert_snapshot!(screen(&view, &Monitors::default(), (80, 24)), @r"
    flagperf run  run1                                                          1:05
     case ──────────────────────────────────────────────────────────────────────────
    running   digits:pytorch:cpu:1:1:1  1:05
     progress ──────────────────────────────────────────────────────────────────────
    training  ██████████████████████████▎      38%
    80.0 samples/s, at most 2.50 s left  epoch 2/4  batch 5/10
     loss: 0.100 ──────────────────────────   since the case began ─────────────────
    █                                        samples/s            80.0 █
    █
    █
    █▄
    ██▃
    ███▆▄▂
    ███████▇▇▆▆▅▅▄▄▄▄▄▃▃
     training: 20 steps, median 109 ms ────
    ████    ████        ████    ████
    ████▃▃▃▃████▃▃▃▃▃▃▃▃████▃▃▃▃████
    ████████████████████████████████
    ████████████████████████████████
    ████████████████████████████████
    100 ms                    119 ms
     messages ──────────────────────────────────────────────────────────────────────
    loss       0.3598, the mean of 20 steps
    Ctrl-C ends the run; the report follows
    ");
}

#[test]
fn the_times_are_those_of_the_newest_loop_or_trial() {
    let mut view = measured();
    assert_eq!((view.times.of.as_str(), view.times.distribution.total()), ("inference", 201));
    let query = |trial| QueryTimes { trial, ended_s: Seconds(0.25), ..QueryTimes::default() };
    for trial in [0, 1] {
        note(&mut view, &Event::TrialBegin { trial, scheduled: None, queries_per_s: None });
        note(&mut view, &Event::Queries { times: QueryColumns(vec![query(trial); 3]) });
    }
    assert_eq!((view.times.of.as_str(), view.times.distribution.total()), ("trial 2", 3));
    let text = screen(&view, &Monitors::default(), (80, 24));
    assert!(text.contains("trial 2: 3 queries, median 250 ms"), "{text}");
}

#[test]
fn hosts_have_a_line_each_and_their_throughputs_are_added() {
    let mut view = view(&["resnet50:pytorch:2x1"]);
    for replica in ["node1", "node2"] {
        let mut note = |event: &Event| {
            view.note(&Notice::ReplicaEvent { replica, phase: Phase::Infer, event }, &[], Nanos(0));
        };
        note(&Event::StepBegin { step: Step::Inference, detail: String::new() });
        note(&progress(Step::Inference, 5));
    }
    let text = screen(&view, &Monitors::default(), (100, 24));
    assert!(text.contains("2 hosts and devices"), "{text}");
    assert!(text.contains("node1  inference  pass 2/4  batch 5/10  80.0 samples/s"), "{text}");
    assert_eq!(view.throughput.last(), Some(160.0));
    let failure = Failure { step: None, reason: "lost".into(), hint: String::new() };
    view.note(
        &Notice::ReplicaEvent { replica: "node2", phase: Phase::Infer, event: &Event::Failed(failure) },
        &[],
        Nanos(60 * SECOND),
    );
    assert!(screen(&view, &Monitors::default(), (100, 24)).contains("node2  failed  0:05"));
}

#[test]
fn a_case_that_has_ended_shows_its_figure_and_the_next_one_begins_without_its_curves() {
    let mut view = measured();
    let mut record = testing::record();
    (record.case, record.framework) = ("resnet50".to_owned(), "pytorch".to_owned());
    let (path, ends) = (Path::new("record.json"), (None, None, None));
    let (unwritten, digest, unsealed) = ends;
    view.note(
        &Notice::CaseEnds { record: &record, place: None, is_part: false, path, unwritten, digest, unsealed },
        &[],
        Nanos(0),
    );
    assert!(!view.is_running());
    let key = "vit:pytorch".parse().unwrap();
    view.note(&Notice::CaseBegins { key: &key, number: 2, count: 2 }, &[], Nanos(60 * SECOND));
    let text = screen(&view, &Monitors::default(), (80, 24));
    assert!(text.contains("ok        resnet50:pytorch  validation 80.0 samples/s core"), "{text}");
    assert!(text.contains("running   vit:pytorch  0:05") && text.contains("drawn after each pass"), "{text}");
    assert!(!text.contains("samples/s  "), "{text}");
}

#[test]
fn text_from_outside_cannot_control_the_terminal() {
    let mut view = view(&["resnet50:pytorch"]);
    note(&mut view, &Event::StepBegin { step: Step::Inference, detail: "with \x1b]0;title\x07\n".into() });
    note(&mut view, &Event::SampleFailed { sample: "a\n  error: forged".into(), reason: "\x1b[2J".into() });
    let text = screen(&view, &Monitors::default(), (100, 24));
    assert!(
        text.contains(r"with \u{1b}]0;title\u{7}\n") && text.contains(r"`a\n  error: forged` failed: \u{1b}[2J"),
        "{text}"
    );
}

#[test]
fn monitors_are_read_on_as_their_files_grow_and_again_from_the_start_for_the_next_case() {
    let folder = tempfile::tempdir().unwrap();
    let mut monitors = monitors(folder.path());
    let power = |monitors: &Monitors| monitors.places[0].curves[0].fit(100);
    assert_eq!((power(&monitors).len(), monitors.places[0].curves[0].last()), (20, Some(500.0)));
    let file = folder.path().join("localhost_noderank0/monitor.jsonl");
    let rest = "21.5,\"source\":\"device\",\"device\":\"0\",\"power_w\":90.0}\nno sample\n";
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + rest).unwrap();
    monitors.read(Some(folder.path()));
    assert_eq!((power(&monitors).len(), monitors.places[0].curves[0].last()), (21, Some(90.0)));
    let next = tempfile::tempdir().unwrap();
    monitors.read(Some(next.path()));
    assert_eq!(monitors.places.len(), 0);
}

#[test]
fn the_device_that_is_read_after_the_engine_has_chosen_it_replaces_the_first_one() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("h_noderank0");
    std::fs::create_dir(&place).unwrap();
    let line = |device: &str, power: u32| {
        format!("{{\"at_s\":1.0,\"source\":\"device\",\"device\":\"{device}\",\"power_w\":{power}.0}}\n")
    };
    let both = [line("a", 1), line("b", 2)].concat().repeat(10);
    std::fs::write(place.join("monitor.jsonl"), &both).unwrap();
    let mut monitors = Monitors::default();
    monitors.read(Some(folder.path()));
    assert_eq!((monitors.places[0].device.as_str(), monitors.places[0].curves[0].fit(100)), ("a", vec![1.0; 10]));
    std::fs::write(place.join("monitor.jsonl"), both + &line("b", 2).repeat(100)).unwrap();
    monitors.read(Some(folder.path()));
    assert_eq!((monitors.places[0].device.as_str(), monitors.places[0].curves[0].last()), ("b", Some(2.0)));
}
