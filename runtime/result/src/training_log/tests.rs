//! Tests of the lines of both logs.

use serde_json::{Value, json};

use super::*;
use crate::{Setting, testing};
use flagperf_core::event::{DatasetFacts, Failure};
use flagperf_core::measure::{StepColumns, TrainingEnd};
use flagperf_core::step::Step;

const STARTED_MS: i64 = 1_721_017_000_250;
const PERF: &str = "rank0.out.log";
const MLLOG: &str = "rank0.mllog.log";

fn record() -> Record {
    let settings = [
        ("batch_size", json!(8)),
        ("learning_rate", json!(0.1)),
        ("log_freq", json!(2)),
        ("seed", json!(7)),
        ("target", json!({"top1": 0.9})),
        ("unit", json!("image")),
    ];
    let settings = settings.map(|(key, value)| (key.to_owned(), Setting { value, origin: String::new() }));
    Record {
        case: "digits".into(),
        vendor: "cpu".into(),
        training_key: Some("digits:interpreter:A100:1:1:2".into()),
        started: "2024-07-15T06:16:40.250+02:00".into(),
        settings: settings.into(),
        ..testing::record()
    }
}

/// The events of an epoch of two steps, from `at` seconds to a second later.
fn epoch(round: u32, epoch: u32, at: f64, losses: [f64; 2]) -> Vec<(f64, Event)> {
    let times =
        StepTimes { pass: epoch, samples: 8, core_s: Seconds(0.25), host_s: Seconds(0.25), ..Default::default() };
    let times = StepColumns(vec![times; 2]);
    let columns = EpochLosses {
        round,
        epoch,
        learning_rate: vec![0.1, 0.05],
        loss: losses.to_vec(),
        gradient_norm: vec![1.0, 2.0],
    };
    vec![
        (at, Event::PassBegin { step: Step::Training, pass: epoch }),
        (at + 1.0, Event::Steps { step: Step::Training, times }),
        (at + 1.0, Event::EpochLosses(Box::new(columns))),
    ]
}

fn evaluation(round: u32, epochs: u32, top1: f64) -> Event {
    let metrics = [("top1".to_owned(), top1)].into();
    Event::Evaluation(Evaluation {
        round,
        epochs,
        steps: 2 * u64::from(epochs),
        samples: 5,
        metrics,
        time_s: Seconds(0.5),
    })
}

/// The events of two trainings: the first reaches its target after two epochs, the second fails in its second.
fn events() -> Vec<(f64, Event)> {
    let dataset = |samples| DatasetFacts { samples, ..DatasetFacts::default() };
    let end = TrainingEnd { round: 0, train_s: Seconds(4.0), init_s: Seconds(1.0) };
    let failure = Failure { step: None, reason: "step 3: the loss is NaN".into(), hint: String::new() };
    let mut events = vec![
        (0.5, Event::Started { pid: 1, run_seed_sha256: String::new() }),
        (0.6, Event::TrainingDataset(dataset(17))),
        (0.6, Event::Dataset(dataset(5))),
    ];
    events.extend(epoch(0, 0, 1.0, [2.0, 1.0]));
    events.extend([(2.5, evaluation(0, 1, 0.5)), (2.5, Event::PassEnd(Box::default()))]);
    events.extend(epoch(0, 1, 3.0, [0.5, f64::NAN]));
    events.extend([(4.5, evaluation(0, 2, 0.95)), (5.0, Event::TrainingEnd(end))]);
    events.extend(epoch(1, 0, 6.0, [2.0, 1.0]));
    events.push((7.5, Event::Failed(failure)));
    events
}

/// Returns the text of a file.
fn log(events: &[(f64, Event)], name: &str) -> String {
    let mut log = TrainingLog::new(&record(), "node1");
    let lines = events.iter().flat_map(|(at, event)| log.add(Seconds(*at), event));
    lines.filter(|lines| lines.path.ends_with(name)).map(|lines| lines.text).collect()
}

fn objects(text: &str, prefix: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line.strip_prefix(prefix).unwrap()).unwrap()).collect()
}

fn perf_lines(round: u32) -> Vec<Value> {
    objects(&log(&events(), &format!("round{round}/node1_noderank0/{PERF}")), "[PerfLog] ")
}

fn of_event<'l>(lines: &'l [Value], event: &str) -> Vec<&'l Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

#[test]
fn a_line_has_the_keys_of_flagperf_in_their_order() {
    let text = log(&events(), &format!("round1/node1_noderank0/{PERF}"));
    let line = |event: &str| text.lines().find(|line| line.contains(&format!("\"{event}\""))).unwrap();
    assert_eq!(
        line("INIT_START"),
        format!(
            r#"[PerfLog] {{"event":"INIT_START","metadata":{{"file":"events.jsonl","lineno":1,"time_ms":{},"rank":0}}}}"#,
            STARTED_MS + 500
        )
    );
    assert!(
        line("INIT_END").starts_with(r#"[PerfLog] {"event":"INIT_END","other":"Finish initialization","metadata":"#)
    );
    assert!(line("STEP_BEGIN").starts_with(r#"[PerfLog] {"event":"STEP_BEGIN","step":1,"metadata":"#));
    assert!(line("EPOCH_BEGIN").starts_with(r#"[PerfLog] {"event":"EPOCH_BEGIN","value":{"epoch":1},"metadata":"#));
    let step = r#"[PerfLog] {"event":"STEP_END","value":{"loss":2.0,"epoch":1,"global_steps":1,"num_trained_samples":8,"learning_rate":0.1,"gradient_norm":1.0,"images/s":16.0},"step":1,"metadata":"#;
    assert!(line("STEP_END").starts_with(step), "{}", line("STEP_END"));
}

#[test]
fn the_events_of_a_training_are_in_the_order_of_flagperf() {
    let names: Vec<String> = perf_lines(1).iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect();
    let first = ["SUBMIT_INFO", "LAUNCH_TRAINING", "INIT_START", "INIT_END", "TRAIN_START"];
    let step = ["STEP_BEGIN", "STEP_END"];
    let epoch = |steps: usize| [&["EPOCH_BEGIN"][..], &step.repeat(steps), &["EPOCH_END", "EVALUATE"]].concat();
    assert_eq!(names, [&first[..], &epoch(2), &epoch(1), &["TRAIN_END", "FINISHED"]].concat());
}

#[test]
fn an_epoch_with_an_evaluation_within_it_begins_and_ends_once() {
    let dataset = |samples| DatasetFacts { samples, ..DatasetFacts::default() };
    let mut events = vec![
        (0.5, Event::Started { pid: 1, run_seed_sha256: String::new() }),
        (0.6, Event::TrainingDataset(dataset(35))),
    ];
    // Four steps are an epoch; the second one is cut off.
    for (pass, number) in [(0u32, 0), (1, 0), (2, 1)] {
        events.extend(epoch(0, number, 1.0 + f64::from(pass), [2.0, f64::from(pass)]));
        let steps = 2 * u64::from(pass) + 2;
        let evaluation = Evaluation { epochs: number + 1, steps, ..Evaluation::default() };
        events.push((2.0 + f64::from(pass), Event::Evaluation(evaluation)));
    }
    let end = TrainingEnd { round: 0, train_s: Seconds(4.0), init_s: Seconds(1.0) };
    events.push((5.0, Event::TrainingEnd(end)));
    let lines = objects(&log(&events, &format!("round1/node1_noderank0/{PERF}")), "[PerfLog] ");
    let epochs: Vec<(&str, &Value)> = lines
        .iter()
        .map(|line| (line["event"].as_str().unwrap(), &line["value"]))
        .filter(|(event, _)| ["EPOCH_BEGIN", "EPOCH_END", "EVALUATE"].contains(event))
        .collect();
    let names: Vec<&str> = epochs.iter().map(|(event, _)| *event).collect();
    let expected = ["EPOCH_BEGIN", "EVALUATE", "EPOCH_END", "EVALUATE", "EPOCH_BEGIN", "EVALUATE", "EPOCH_END"];
    assert_eq!(names, expected);
    assert_eq!(epochs[2].1, &json!({"epoch": 1, "loss": 1.25}));
    assert_eq!(epochs[6].1, &json!({"epoch": 2, "loss": 2.0}));
    let steps = of_event(&lines, "STEP_END");
    let numbers: Vec<_> = steps.iter().map(|line| (line["step"].as_u64(), line["value"]["epoch"].as_u64())).collect();
    assert_eq!(numbers, [(1, 1), (2, 1), (4, 1), (6, 2)].map(|(step, epoch)| (Some(step), Some(epoch))));
}

#[test]
fn no_payload_is_lost() {
    let lines = perf_lines(1);
    let value = |event: &str| of_event(&lines, event)[0]["value"].clone();
    let config = json!({"batch_size": 8, "learning_rate": 0.1, "log_freq": 2, "seed": 7, "target": {"top1": 0.9}, "unit": "image"});
    let submission =
        json!({"vendor": "cpu", "model": "digits", "config_path": "configs/digits/training.yaml", "config": config});
    assert_eq!(value("SUBMIT_INFO"), submission);
    assert_eq!(of_event(&lines, "LAUNCH_TRAINING")[0]["other"], "digits:interpreter:A100:1:1:2");
    assert_eq!(value("EPOCH_END"), json!({"epoch": 1, "loss": 1.5}));
    assert_eq!(value("EVALUATE"), json!({"global_steps": 2, "eval_top1": 0.5, "time": 0.5}));
    let finished = json!({
        "e2e_time": 5.0, "train_time": 4.0, "train_no_eval_time": 3.0, "pure_training_computing_time": 1.0,
        "throughput(ips)_raw": 8.0, "throughput(ips)_no_eval": 32.0 / 3.0, "throughput(ips)_pure_compute": 32.0,
        "converged": true, "final_top1": 0.95, "init_time": 1.0, "num_trained_samples": 32, "global_steps": 4,
    });
    assert_eq!(value("FINISHED"), finished);
}

#[test]
fn steps_have_their_own_times_and_what_is_not_finite_is_null() {
    let lines = perf_lines(1);
    let steps = of_event(&lines, "STEP_END");
    let times: Vec<i64> = steps.iter().map(|line| line["metadata"]["time_ms"].as_i64().unwrap() - STARTED_MS).collect();
    assert_eq!(times, [1500, 2000, 4000]);
    assert_eq!(steps[2]["value"]["loss"], Value::Null);
}

#[test]
fn each_repetition_has_its_files_and_a_failed_one_does_not_finish() {
    let lines = perf_lines(2);
    assert_eq!(of_event(&lines, "INIT_START").len(), 1);
    assert_eq!(of_event(&lines, "STEP_END")[0]["step"], 1);
    assert!(of_event(&lines, "FINISHED").is_empty());
    let mllog = log(&events(), &format!("round2/node1_noderank0/{MLLOG}"));
    let last = objects(&mllog, ":::MLLOG ").pop().unwrap();
    assert_eq!((&last["key"], &last["metadata"]["status"]), (&json!("run_stop"), &json!("aborted")));
}

#[test]
fn the_lines_for_mlperf_have_its_keys_in_their_order() {
    let text = log(&events(), &format!("round1/node1_noderank0/{MLLOG}"));
    let last = format!(
        r#":::MLLOG {{"namespace":"","time_ms":{},"event_type":"INTERVAL_END","key":"run_stop","value":null,"metadata":{{"file":"events.jsonl","lineno":13,"status":"success"}}}}"#,
        STARTED_MS + 5000
    );
    assert_eq!(text.lines().last(), Some(last.as_str()));
    let lines = objects(&text, ":::MLLOG ");
    let keys: Vec<&str> = lines.iter().map(|line| line["key"].as_str().unwrap()).collect();
    let submission = ["benchmark", "division", "org", "platform", "status"].map(|key| format!("submission_{key}"));
    let submission: Vec<&str> = submission.iter().map(String::as_str).collect();
    let settings = ["seed", "global_batch_size", "gradient_accumulation_steps", "opt_base_learning_rate"];
    let epoch = ["epoch_start", "epoch_stop", "eval_start", "eval_accuracy", "eval_stop"];
    let expected = [
        &["cache_clear", "init_start"][..],
        &submission,
        &settings,
        &["train_samples", "eval_samples", "init_stop", "run_start"],
        &epoch,
        &epoch,
        &["run_stop"],
    ];
    assert_eq!(keys, expected.concat());
    let accuracy = &lines[lines.len() - 3];
    assert_eq!((&accuracy["value"], &accuracy["metadata"]["epoch_num"]), (&json!(0.95), &json!(2)));
    let times: Vec<i64> = lines.iter().map(|line| line["time_ms"].as_i64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn lines_of_steps_end_at_the_size_limit_and_a_line_says_so() {
    let mut log = TrainingLog::new(&record(), "node1");
    let all = events();
    all[..4].iter().for_each(|(at, event)| drop(log.add(Seconds(*at), event)));
    log.bytes = STEP_BYTES_MAX;
    let text: String =
        all[4..7].iter().flat_map(|(at, event)| log.add(Seconds(*at), event)).map(|lines| lines.text).collect();
    assert!(text.starts_with(STEPS_LEFT_OUT), "{text}");
    assert!(!text.contains("STEP_") && text.contains("EPOCH_END"), "{text}");
    assert_eq!(text.matches(STEPS_LEFT_OUT).count(), 1);
}
