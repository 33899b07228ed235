//! Tests of the events that the reports of a program become.

use std::sync::{Arc, Mutex};

use serde_json::json;

use super::collector::Collector;
use super::report::{Report, StepReport};
use crate::Emit;
use flagperf_core::event::{Event, Failure, Level};
use flagperf_core::measure::Nanos;
use flagperf_plan::TrainingSettings;

fn settings(target: serde_json::Value) -> TrainingSettings {
    let settings = json!({
        "eval_batch_size": 1, "learning_rate": 0.1, "max_epochs": 2, "eval_interval": 1, "target": target, "hardware": "x",
        "gradient_accumulation_steps": 1,
    });
    serde_json::from_value(settings).unwrap()
}

fn step(step: u64, loss: f64) -> Report {
    Report::Step(StepReport { step: Some(step), loss: Some(loss), ..StepReport::default() })
}

fn evaluation(top1: f64, time_s: Option<f64>) -> Report {
    Report::Evaluation { metrics: [("top1".to_owned(), top1)].into(), time_s }
}

/// Returns the events of reports, each with its second, of a program that was started at second 0 with batches of 8 samples; whether
/// the training was done; and how it ended.
fn collected(target: serde_json::Value, reports: Vec<(u64, Report)>) -> (Vec<Event>, bool, Result<(), Failure>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&events);
    let emit: Emit = Arc::new(move |event| kept.lock().unwrap().push(event));
    let (settings, mut passes) = (settings(target), 0);
    let mut collector = Collector::new(8, &settings, 0, &mut passes, Nanos(0), &emit);
    let mut added = Ok(());
    for (second, report) in reports {
        added = added.and_then(|()| collector.add(Nanos(second * 1_000_000_000), report));
    }
    let is_done = collector.is_done();
    let ended = added.and_then(|()| collector.finish(0));
    let events = std::mem::take(&mut *events.lock().unwrap());
    (events, is_done, ended)
}

/// The samples, the core time and the whole time of each step of the host.
fn steps(events: &[Event]) -> Vec<(u32, f64, f64)> {
    let of_pass = events.iter().filter_map(|event| match event {
        Event::Steps { times, .. } => Some(&times.0),
        _ => None,
    });
    of_pass.flatten().map(|step| (step.samples, step.core_s.0, step.total().0)).collect()
}

/// The epoch of each pass.
fn epochs(events: &[Event]) -> Vec<u32> {
    let epoch = |event: &Event| match event {
        Event::EpochLosses(losses) => Some(losses.epoch),
        _ => None,
    };
    events.iter().filter_map(epoch).collect()
}

fn names(events: &[Event]) -> Vec<String> {
    let name = |event| serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned();
    events.iter().map(name).collect()
}

#[test]
fn the_lines_of_flagperf_become_passes_evaluations_and_an_end() {
    let finished = Report::Finished([("final_top1".to_owned(), json!(0.95))].into());
    let (events, is_done, ended) = collected(
        json!({"top1": 0.9}),
        vec![
            (5, Report::Begin(None)),
            (6, step(1, 2.0)),
            (10, step(5, 1.0)),
            (11, Report::EpochEnd),
            (14, evaluation(0.95, Some(2.0))),
            (15, Report::End),
            (16, finished),
        ],
    );
    assert!(is_done && ended.is_ok());
    let expected = ["pass_begin", "steps", "epoch_losses", "pass_end", "evaluation", "reported", "training_end"];
    assert_eq!(names(&events), expected);
    assert_eq!(steps(&events), [(8, 6.0, 6.0), (32, 4.0, 5.0)]);
    let Some(Event::Evaluation(found)) = events.iter().find(|event| matches!(event, Event::Evaluation(_))) else {
        panic!()
    };
    assert_eq!((found.epochs, found.steps, found.time_s.0), (1, 2, 2.0));
    let Some(Event::TrainingEnd(end)) = events.last() else { panic!("{events:?}") };
    assert_eq!((end.init_s.0, end.train_s.0), (0.0, 14.0), "from the start of the program to the target");
}

#[test]
fn the_clock_starts_with_the_program_and_not_with_its_first_report() {
    let (events, is_done, ended) = collected(json!({}), vec![(9, step(10, 2.0)), (11, step(20, 1.0))]);
    assert!(!is_done && ended.is_ok());
    assert_eq!(steps(&events), [(80, 9.0, 9.0), (80, 2.0, 2.0)]);
    let Some(Event::TrainingEnd(end)) = events.last() else { panic!("{events:?}") };
    assert_eq!((end.init_s.0, end.train_s.0), (0.0, 11.0));
}

#[test]
fn reports_out_of_order_do_not_count_and_are_a_warning() {
    let reports = vec![
        (1, evaluation(0.5, Some(100.0))),
        (2, Report::EpochEnd),
        (3, Report::Begin(Some(1))),
        (4, step(4, 2.0)),
        (5, step(2, 9.0)),
        (6, step(4, 9.0)),
        (7, step(8, 1.0)),
    ];
    let (events, _, ended) = collected(json!({"top1": 0.9}), reports);
    assert!(ended.is_ok());
    assert_eq!(steps(&events), [(32, 4.0, 4.0), (32, 3.0, 3.0)]);
    let warnings: Vec<&Event> = events.iter().filter(|event| matches!(event, Event::Log { .. })).collect();
    let [Event::Log { level: Level::Warning, message, .. }] = warnings[..] else { panic!("{warnings:?}") };
    assert_eq!(message, "the program reported 16 samples after 32; such reports do not count");
    let Some(Event::Evaluation(found)) = events.first() else { panic!("{events:?}") };
    assert_eq!(found.time_s.0, 0.0, "before the training, an evaluation takes none of its time");
}

#[test]
fn a_step_without_a_number_is_the_one_that_the_program_began() {
    let unnumbered = || Report::Step(StepReport { loss: Some(1.0), ..StepReport::default() });
    let reports = vec![(1, Report::Begin(Some(1))), (2, unnumbered()), (3, Report::Begin(Some(20))), (4, unnumbered())];
    assert_eq!(steps(&collected(json!({}), reports).0), [(8, 2.0, 2.0), (152, 2.0, 2.0)]);
}

#[test]
fn a_training_ends_with_an_epoch_too_many() {
    let epoch = |at: u64| vec![(at, Report::Begin(None)), (at, step(at, 1.0)), (at + 1, Report::EpochEnd)];
    assert!(!collected(json!({}), [epoch(1), epoch(3)].concat()).1);
    assert!(collected(json!({}), [epoch(1), epoch(3), epoch(5)].concat()).1);
}

#[test]
fn the_numbers_of_the_epochs_count_them_if_no_end_is_reported() {
    let of_epoch = |number: u64, epoch: u64| {
        let report = StepReport { step: Some(number), epoch: Some(epoch), ..StepReport::default() };
        (number, Report::Step(report))
    };
    let reports = [of_epoch(1, 0), of_epoch(2, 0), of_epoch(3, 1), of_epoch(4, 1), of_epoch(5, 2)];
    assert!(!collected(json!({}), reports[..4].to_vec()).1);
    let (events, is_done, ended) = collected(json!({}), reports.to_vec());
    assert!(is_done && ended.is_ok(), "two epochs are all, and a third one began");
    assert_eq!(steps(&events).len(), 4, "the step of the third one does not count");
    assert_eq!(epochs(&events), [0, 1]);
}

#[test]
fn evaluations_within_an_epoch_and_trainings_without_one_add_no_epoch() {
    let reports = vec![
        (1, step(1, 2.0)),
        (2, evaluation(0.5, None)),
        (3, step(2, 2.0)),
        (4, Report::EpochEnd),
        (5, Report::EpochEnd),
        (6, evaluation(0.5, None)),
    ];
    let (events, _, ended) = collected(json!({"top1": 0.9}), reports);
    assert!(ended.is_ok());
    assert_eq!(epochs(&events), [0, 0]);
    let reports = vec![(1, step(1, 2.0)), (9, evaluation(0.5, Some(8.0)))];
    let (events, ..) = collected(json!({"top1": 0.9}), reports);
    let warning = events.iter().find_map(|event| match event {
        Event::Log { message, .. } => Some(message.as_str()),
        _ => None,
    });
    let expected = "89 % of the time is what the program calls evaluation: only `p_whole` contains it";
    assert_eq!(warning, Some(expected));
}

#[test]
fn what_a_program_does_after_its_training_does_not_count() {
    let reports = vec![(6, step(1, 2.0)), (7, evaluation(0.95, None)), (9, step(2, 1.0)), (10, evaluation(0.5, None))];
    let (events, _, ended) = collected(json!({"top1": 0.9}), reports);
    assert!(ended.is_ok());
    assert_eq!(names(&events), ["pass_begin", "steps", "epoch_losses", "pass_end", "evaluation", "training_end"]);
    let Some(Event::TrainingEnd(end)) = events.last() else { panic!("{events:?}") };
    assert_eq!(end.train_s.0, 7.0);
}

#[test]
fn a_training_without_steps_is_one_that_the_last_line_counts() {
    let values = json!({"train_time": 2.0, "throughput(ips)_raw": 320.0, "final_acc1": 0.75});
    let finished = Report::Finished(serde_json::from_value(values).unwrap());
    let epochs = [6, 7, 8].map(|second| (second, Report::EpochEnd));
    let mut reports = vec![(5, Report::Begin(None)), (9, Report::End), (12, finished)];
    reports.splice(1..1, epochs);
    let (events, is_done, ended) = collected(json!({"acc1": 0.7}), reports);
    assert!(is_done && ended.is_ok(), "{ended:?}");
    assert_eq!(steps(&events), [(640, 9.0, 12.0)]);
}

#[test]
fn what_cannot_be_a_training_is_a_failure() {
    let reason = |target, reports| collected(target, reports).2.unwrap_err().reason;
    assert_eq!(reason(json!({}), Vec::new()), "the program reported nothing");
    let nan = vec![(1, Report::Begin(None)), (2, step(7, f64::NAN))];
    assert_eq!(reason(json!({}), nan), "step 7: the program reported the loss NaN");
    let other = vec![(1, Report::Begin(None)), (2, step(1, 1.0)), (2, evaluation(0.9, None))];
    let expected = "the program reported no metric `acc`, which `target` names (reported: top1)";
    assert_eq!(reason(json!({"acc": 0.5}), other), expected);
    let without_steps = vec![(1, Report::Begin(None)), (2, evaluation(0.99, None))];
    assert_eq!(reason(json!({"top1": 0.9}), without_steps), "the program reported no step");
    let claim = Report::Step(StepReport { samples: Some(1 << 40), ..StepReport::default() });
    let expected = "step 2: the program reported 1099511627776 samples after 8";
    assert_eq!(reason(json!({}), vec![(1, step(1, 1.0)), (2, claim)]), expected);
}

#[test]
fn the_limit_of_reports_is_named() {
    let reports = (0..=1_000_000).map(|_| (1, Report::EpochEnd)).collect();
    let reason = collected(json!({}), reports).2.unwrap_err().reason;
    assert_eq!(reason, "the program made more than 1000000 reports, which is the limit");
}
