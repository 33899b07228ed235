//! FlagPerf's lines: `[PerfLog] ` and one JSON object with the keys `event`, `value` or `other`, `step` and `metadata`, in this order.
//! Differs from what FlagPerf prints in that no payload is lost: SUBMIT_INFO and EPOCH_* have their values, STEP_END has its step.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::{Value, json};

use super::subject::Subject;
use super::{Moment, Stamp, StepFigures};
use crate::TrainingRound;
use flagperf_core::measure::{Evaluation, TrainingProgress};
use flagperf_core::units::{SamplesPerSecond, Seconds};

/// The value of an event. Numbers that are not finite, which JSON lacks, are null.
type Payload = IndexMap<String, Value>;

/// What an event has besides its name.
#[derive(Default, Serialize)]
struct Content {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Payload>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
}

#[derive(Serialize)]
struct Line<'l> {
    event: &'l str,
    #[serde(flatten)]
    content: Content,
    metadata: Metadata,
}

#[derive(Serialize)]
struct Metadata {
    #[serde(flatten)]
    stamp: Stamp,
    time_ms: i64,
    rank: u32,
}

/// Returns the lines for a moment.
pub(super) fn lines(subject: &Subject, moment: &Moment<'_>, stamp: Stamp) -> String {
    let events: Vec<(&str, Content)> = match moment {
        Moment::Begin => vec![
            ("SUBMIT_INFO", value(submission(subject))),
            ("LAUNCH_TRAINING", other(&subject.key)),
            ("INIT_START", Content::default()),
        ],
        Moment::Start(..) => vec![("INIT_END", other("Finish initialization")), ("TRAIN_START", Content::default())],
        Moment::EpochBegin(epoch) => vec![("EPOCH_BEGIN", value(payload([("epoch", (*epoch).into())])))],
        Moment::StepBegin(step) => vec![("STEP_BEGIN", Content { step: Some(*step), ..Content::default() })],
        Moment::StepEnd(figures) => vec![("STEP_END", step_end(subject, figures))],
        Moment::EpochEnd(epoch, loss) => {
            vec![("EPOCH_END", value(payload([("epoch", (*epoch).into()), ("loss", (*loss).into())])))]
        }
        Moment::Evaluation(evaluation) => vec![evaluate(evaluation)],
        Moment::End(round, resumed) => {
            vec![("TRAIN_END", Content::default()), ("FINISHED", value(finished(subject, round, *resumed)))]
        }
        Moment::Abort => Vec::new(),
    };
    let metadata = || Metadata { stamp, time_ms: stamp.time_ms, rank: 0 };
    let lines = events.into_iter().map(|(event, content)| Line { event, content, metadata: metadata() });
    let text = |line| format!("[PerfLog] {}\n", serde_json::to_string(&line).expect("a line is plain data"));
    lines.map(text).collect()
}

fn payload<const N: usize>(entries: [(&str, Value); N]) -> Payload {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn value(payload: Payload) -> Content {
    Content { value: Some(payload), ..Content::default() }
}

fn other(text: &str) -> Content {
    Content { other: Some(text.to_owned()), ..Content::default() }
}

fn submission(subject: &Subject) -> Payload {
    let Subject { vendor, case, config, .. } = subject;
    // In the order of the names, in which a build of serde_json may sort them anyway.
    let config: BTreeMap<&String, &Value> = config.iter().collect();
    payload([
        ("vendor", vendor.as_str().into()),
        ("model", case.as_str().into()),
        ("config_path", format!("configs/{case}/training.yaml").into()),
        ("config", json!(config)),
    ])
}

fn step_end(subject: &Subject, figures: &StepFigures) -> Content {
    let rate = format!("{}s/s", subject.unit);
    let value = payload([
        ("loss", figures.loss.into()),
        ("epoch", figures.epoch.into()),
        ("global_steps", figures.step.into()),
        ("num_trained_samples", figures.samples.into()),
        ("learning_rate", figures.learning_rate.into()),
        ("gradient_norm", figures.gradient_norm.into()),
        (rate.as_str(), figures.samples_per_s.into()),
    ]);
    Content { value: Some(value), other: None, step: Some(figures.step) }
}

/// An evaluation before the first step is FlagPerf's INIT_EVALUATION.
fn evaluate(evaluation: &Evaluation) -> (&'static str, Content) {
    let metrics = evaluation.metrics.iter().map(|(name, value)| (format!("eval_{name}"), Value::from(*value)));
    let steps = [("global_steps".to_owned(), Value::from(evaluation.steps))];
    let time = [("time".to_owned(), Value::from(evaluation.time_s.0))];
    match evaluation.steps {
        0 => ("INIT_EVALUATION", value(time.into_iter().chain(metrics).collect())),
        _ => ("EVALUATE", value(steps.into_iter().chain(metrics).chain(time).collect())),
    }
}

/// The times and the work include the part before a training was resumed; the rates are those of what was measured since then.
fn finished(subject: &Subject, round: &TrainingRound, resumed: Option<TrainingProgress>) -> Payload {
    let part = resumed.unwrap_or_default();
    let resumed = resumed.map(|part| ("resumed_after_step".to_owned(), part.steps.into()));
    // FlagPerf counts images per second, and everything else as samples per second.
    let unit = if subject.unit == "image" { "ips" } else { "sps" };
    let train = round.train_s.unwrap_or(Seconds(f64::NAN)) + part.train_s;
    let earlier_samples = part.steps.saturating_mul(subject.batch_size);
    let rate = |rate: Option<SamplesPerSecond>| Value::from(rate.map(|rate| rate.0));
    let times = payload([
        ("e2e_time", (round.init_s.0 + train.0).into()),
        ("train_time", train.0.into()),
        ("train_no_eval_time", (train.0 - round.evaluation_s.0).into()),
        ("pure_training_computing_time", round.core_s.0.into()),
    ]);
    let rates = [
        ("raw", round.throughput_whole_samples_per_s),
        ("no_eval", round.throughput_train_samples_per_s),
        ("pure_compute", round.throughput_core_samples_per_s),
    ];
    let rates = rates.into_iter().map(|(name, found)| (format!("throughput({unit})_{name}"), rate(found)));
    let metrics = round.final_metrics().into_iter().flatten();
    let metrics = metrics.map(|(name, value)| (format!("final_{name}"), Value::from(*value)));
    let converged = payload([("converged", subject.is_reached(round.final_metrics()).into())]);
    let work = payload([
        ("init_time", round.init_s.0.into()),
        ("num_trained_samples", (earlier_samples + round.samples).into()),
        ("global_steps", (part.steps + round.steps).into()),
    ]);
    times.into_iter().chain(rates).chain(converged).chain(metrics).chain(work).chain(resumed).collect()
}
