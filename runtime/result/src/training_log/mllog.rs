//! MLPerf's lines: `:::MLLOG ` and one JSON object, for the compliance checker of `mlperf-logging` in its open division. It knows only
//! the benchmarks of MLPerf, so it has no rules for the name of any other case.

use flagperf_core::measure::{Evaluation, TrainingProgress};
use indexmap::IndexMap;
use serde::Serialize;
use serde_json::Value;

use super::subject::Subject;
use super::{Moment, Stamp};

type Metadata = IndexMap<&'static str, Value>;

#[derive(Serialize)]
struct Line {
    namespace: &'static str,
    time_ms: i64,
    event_type: Kind,
    key: &'static str,
    value: Value,
    metadata: LineMetadata,
}

#[derive(Serialize)]
struct LineMetadata {
    #[serde(flatten)]
    stamp: Stamp,
    #[serde(flatten)]
    own: Metadata,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Kind {
    IntervalStart,
    IntervalEnd,
    PointInTime,
}

/// Returns the lines for a moment.
pub(super) fn lines(subject: &Subject, moment: &Moment<'_>, stamp: Stamp) -> String {
    let none = Metadata::new;
    let start = |key, metadata| line(stamp, Kind::IntervalStart, key, Value::Null, metadata);
    let end = |key, metadata| line(stamp, Kind::IntervalEnd, key, Value::Null, metadata);
    let point = |key, value| line(stamp, Kind::PointInTime, key, value, none());
    let lines = match moment {
        Moment::Begin => {
            let clears = subject.setting("CLEAR_CACHES").cloned().unwrap_or_else(|| false.into());
            vec![point("cache_clear", clears), start("init_start", none())]
        }
        Moment::Start(seed, resumed) => {
            let facts = facts(subject, seed).into_iter().map(|(key, value)| point(key, value));
            facts.chain([end("init_stop", none()), start("run_start", resumed_part(*resumed))]).collect()
        }
        Moment::EpochBegin(epoch) => vec![start("epoch_start", epoch_num(*epoch))],
        Moment::EpochEnd(epoch, _) => vec![end("epoch_stop", epoch_num(*epoch))],
        Moment::StepBegin(_) | Moment::StepEnd(_) => Vec::new(),
        Moment::Evaluation(evaluation) => evaluation_lines(subject, evaluation, stamp),
        Moment::End(round, _) => {
            let is_success = subject.target.is_empty() || subject.is_reached(round.final_metrics());
            vec![end("run_stop", status(if is_success { "success" } else { "aborted" }))]
        }
        Moment::Abort => vec![end("run_stop", status("aborted"))],
    };
    let text = |line| format!(":::MLLOG {}\n", serde_json::to_string(&line).expect("a line is plain data"));
    lines.into_iter().map(text).collect()
}

fn line(stamp: Stamp, event_type: Kind, key: &'static str, value: Value, own: Metadata) -> Line {
    let metadata = LineMetadata { stamp, own };
    Line { namespace: "", time_ms: stamp.time_ms, event_type, key, value, metadata }
}

fn epoch_num(epoch: u64) -> Metadata {
    [("epoch_num", epoch.into())].into()
}

/// States the part of a training before it was resumed, of which there are no lines.
fn resumed_part(resumed: Option<TrainingProgress>) -> Metadata {
    let Some(part) = resumed else { return Metadata::new() };
    [("resumed_after_step", part.steps.into()), ("resumed_after_s", part.train_s.0.into())].into()
}

fn status(status: &'static str) -> Metadata {
    [("status", status.into())].into()
}

/// What MLPerf wants to know before the run starts. The host knows of no submission, so the status is that of research.
fn facts(subject: &Subject, seed: &Value) -> Vec<(&'static str, Value)> {
    let setting = |key: &str| subject.setting(key).cloned();
    let facts = [
        ("submission_benchmark", Some(subject.case.as_str().into())),
        ("submission_division", Some("open".into())),
        ("submission_org", Some(subject.vendor.as_str().into())),
        ("submission_platform", Some(subject.hardware.as_str().into())),
        ("submission_status", Some("research".into())),
        ("seed", Some(seed.clone())),
        ("global_batch_size", Some(subject.global_batch_size.into())),
        ("gradient_accumulation_steps", setting("gradient_accumulation_steps").or(Some(1.into()))),
        ("opt_base_learning_rate", setting("learning_rate")),
        ("train_samples", subject.training_samples.map(Value::from)),
        ("eval_samples", subject.evaluation_samples.map(Value::from)),
    ];
    facts.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// An evaluation begins its time before it was reported. Its figure is the first metric with a target, or else the first.
fn evaluation_lines(subject: &Subject, evaluation: &Evaluation, stamp: Stamp) -> Vec<Line> {
    let metrics = &evaluation.metrics;
    let with_target = subject.target.keys().find_map(|name| metrics.get(name));
    let metadata = epoch_num(evaluation.epochs.into());
    let begin = Stamp { time_ms: stamp.time_ms - (evaluation.time_s.0 * 1e3) as i64, ..stamp };
    let figure = with_target.or_else(|| metrics.values().next()).copied();
    vec![
        line(begin, Kind::IntervalStart, "eval_start", Value::Null, metadata.clone()),
        line(stamp, Kind::PointInTime, "eval_accuracy", figure.into(), metadata.clone()),
        line(stamp, Kind::IntervalEnd, "eval_stop", Value::Null, metadata),
    ]
}
