//! What a line of a training program reports: one of FlagPerf's `[PerfLog]` lines, or the figures that the case's patterns find.

use flagperf_plan::{LinePatterns, PROGRAM_FIGURES};
use indexmap::IndexMap;
use serde_json::{Map, Value};

/// What FlagPerf's lines begin with; a logger may write something before it.
const PREFIX: &str = "[PerfLog] ";
/// Longest line in bytes that is searched for a report.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Most values, and longest text, of a report.
const VALUES_MAX: usize = 100;
const TEXT_BYTES_MAX: usize = 1000;
/// What precedes the name of a metric in an evaluation, and in the last line.
const EVALUATION_PREFIX: &str = "eval_";
const FINAL_PREFIX: &str = "final_";

/// A report of a training program. Figures are as it prints them; one that is no number is NaN.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Report {
    /// The training, an epoch or the step of this number begins.
    Begin(Option<u64>),
    /// Steps were done.
    Step(StepReport),
    EpochEnd,
    /// The model was evaluated; the time is what the program says it took.
    Evaluation {
        metrics: IndexMap<String, f64>,
        time_s: Option<f64>,
    },
    /// The training ended.
    End,
    /// The last line.
    Finished(IndexMap<String, Value>),
}

/// Figures of the last step. Those that the line lacks are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StepReport {
    /// Steps so far.
    pub step: Option<u64>,
    /// Samples so far.
    pub samples: Option<u64>,
    /// The number of the epoch.
    pub epoch: Option<u64>,
    pub loss: Option<f64>,
    pub learning_rate: Option<f64>,
}

/// Reads the lines of a program.
pub(super) struct Reader {
    patterns: LinePatterns,
}

impl Reader {
    pub fn new(patterns: LinePatterns) -> Self {
        Reader { patterns }
    }

    /// Returns what a line reports, in order; nothing for any other line, also for one that was cut off.
    pub fn read(&self, line: &str) -> Vec<Report> {
        if line.len() > LINE_BYTES_MAX {
            return Vec::new();
        }
        match line.split_once(PREFIX) {
            Some((_, json)) => parse(json).and_then(|line| perf_report(&line)).into_iter().collect(),
            None => self.pattern_reports(line),
        }
    }

    /// A line may have the figures of a step and metrics.
    fn pattern_reports(&self, line: &str) -> Vec<Report> {
        let mut figures = self.patterns.figures(line);
        let [step, samples, loss, learning_rate] = PROGRAM_FIGURES.map(|name| figures.shift_remove(name));
        let count = |figure: Option<f64>| figure.filter(|count| *count >= 0.0).map(|count| count as u64);
        let report = StepReport { step: count(step), samples: count(samples), epoch: None, loss, learning_rate };
        let step = (report != StepReport::default()).then_some(Report::Step(report));
        let evaluation = (!figures.is_empty()).then_some(Report::Evaluation { metrics: figures, time_s: None });
        step.into_iter().chain(evaluation).collect()
    }
}

/// Parses the object of a line. Python writes numbers that are not finite as `NaN` and `Infinity`, which JSON lacks.
fn parse(json: &str) -> Option<Map<String, Value>> {
    let without_nan = || {
        let words = ["-Infinity", "Infinity", "NaN"];
        words.iter().fold(json.to_owned(), |text, word| text.replace(&format!(": {word}"), ": null"))
    };
    serde_json::from_str(json.trim_end()).or_else(|_| serde_json::from_str(without_nan().trim_end())).ok()
}

fn perf_report(line: &Map<String, Value>) -> Option<Report> {
    let none = Map::new();
    let value = line.get("value").and_then(Value::as_object).unwrap_or(&none);
    let figure = |name: &str| value.get(name).map(number);
    let step = || line.get("step")?.as_u64();
    match line.get("event")?.as_str()? {
        "TRAIN_START" | "EPOCH_BEGIN" | "STEP_BEGIN" => Some(Report::Begin(step())),
        "STEP_END" => Some(Report::Step(StepReport {
            step: value.get("global_steps").and_then(Value::as_u64).or_else(step),
            samples: value.get("num_trained_samples").and_then(Value::as_u64),
            epoch: value.get("epoch").and_then(Value::as_u64),
            loss: figure("loss"),
            learning_rate: figure("learning_rate").or_else(|| figure("lr")),
        })),
        "EPOCH_END" => Some(Report::EpochEnd),
        "EVALUATE" | "INIT_EVALUATION" => {
            Some(Report::Evaluation { metrics: metrics(value, EVALUATION_PREFIX), time_s: figure("time") })
        }
        "TRAIN_END" => Some(Report::End),
        "FINISHED" => Some(Report::Finished(short_values(value))),
        _ => None,
    }
}

/// Returns all samples as the last line reports them: their number, or else their rate times the time of the training.
pub(super) fn final_samples(values: &IndexMap<String, Value>) -> Option<u64> {
    let count = |name: &&str| values.get(*name)?.as_u64();
    let positive = |value: &Value| value.as_f64().filter(|number| *number > 0.0);
    let time = || positive(values.get("train_time").or_else(|| values.get("raw_train_time"))?);
    let is_rate =
        |name: &str| name.ends_with("_raw") || (name.starts_with("training_") && name.ends_with("_per_second"));
    let rate = || positive(values.iter().find(|(name, _)| is_rate(name))?.1);
    let samples = || Some((rate()? * time()?).round()).filter(|samples| *samples >= 1.0).map(|samples| samples as u64);
    ["num_trained_samples", "train_samples"].iter().find_map(count).or_else(samples)
}

/// Returns the metrics of the last line, which a program has that prints no evaluation.
pub(super) fn final_metrics(values: &IndexMap<String, Value>) -> IndexMap<String, f64> {
    metrics(values, FINAL_PREFIX)
}

/// Returns the numbers whose names have a prefix, without it.
fn metrics<'v>(values: impl IntoIterator<Item = (&'v String, &'v Value)>, prefix: &str) -> IndexMap<String, f64> {
    let metric = |(name, value): (&String, &Value)| {
        let is_number = value.is_number() || value.is_null();
        Some((name.strip_prefix(prefix).filter(|_| is_number)?.to_owned(), number(value)))
    };
    values.into_iter().filter_map(metric).take(VALUES_MAX).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// Returns the values that are no lists and no objects, as many and as long as a record has room for.
fn short_values(values: &Map<String, Value>) -> IndexMap<String, Value> {
    let is_short = |text: &str| text.len() <= TEXT_BYTES_MAX;
    let is_kept = |value: &Value| !value.is_array() && !value.is_object() && value.as_str().is_none_or(is_short);
    let kept = values.iter().filter(|(name, value)| is_short(name) && is_kept(value));
    kept.take(VALUES_MAX).map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reader(patterns: &[(&str, &str)]) -> Reader {
        let patterns = patterns.iter().map(|(name, pattern)| ((*name).to_owned(), (*pattern).to_owned())).collect();
        Reader::new(LinePatterns::new(&patterns).unwrap())
    }

    fn step(step: u64, loss: f64) -> StepReport {
        StepReport { step: Some(step), loss: Some(loss), ..StepReport::default() }
    }

    #[test]
    fn the_lines_of_flagperf_are_read_whatever_a_logger_writes_before_them() {
        let read = |line: &str| reader(&[]).read(line).pop();
        assert_eq!(read(r#"x [PerfLog] {"event": "TRAIN_START", "metadata": {}}"#), Some(Report::Begin(None)));
        assert_eq!(read(r#"[PerfLog] {"event": "STEP_BEGIN", "step": 3}"#), Some(Report::Begin(Some(3))));
        let line =
            r#"[PerfLog] {"event": "STEP_END", "value": {"loss": 2.5, "global_steps": 3, "num_trained_samples": 96}}"#;
        let expected = StepReport { samples: Some(96), ..step(3, 2.5) };
        assert_eq!(read(line), Some(Report::Step(expected)));
        let line = r#"[PerfLog] {"event": "EVALUATE", "value": {"global_steps": 3, "eval_acc1": 75.5, "time": 1.5}}"#;
        let metrics = IndexMap::from([("acc1".to_owned(), 75.5)]);
        assert_eq!(read(line), Some(Report::Evaluation { metrics, time_s: Some(1.5) }));
        let line = r#"[PerfLog] {"event": "FINISHED", "value": {"e2e_time": 9, "final_acc1": 75.5, "list": [1]}}"#;
        let Some(Report::Finished(values)) = read(line) else { panic!("{line}") };
        assert_eq!(json!(values), json!({"e2e_time": 9, "final_acc1": 75.5}));
        assert_eq!(final_metrics(&values), IndexMap::from([("acc1".to_owned(), 75.5)]));
        let line =
            r#"[PerfLog] {"event": "STEP_END", "value": {"global_steps": 3, "epoch": 2, "lr": 0.5, "loss": 2.5}}"#;
        let expected = StepReport { epoch: Some(2), learning_rate: Some(0.5), ..step(3, 2.5) };
        assert_eq!(read(line), Some(Report::Step(expected)));
    }

    #[test]
    fn the_last_line_counts_the_samples_or_has_their_rate_and_the_time() {
        let samples = |values: Value| final_samples(&serde_json::from_value(values).unwrap());
        assert_eq!(samples(json!({"num_trained_samples": 640, "train_time": 2.0})), Some(640));
        assert_eq!(samples(json!({"train_time": 2.0, "throughput(ips)_raw": 320.1})), Some(640));
        assert_eq!(samples(json!({"raw_train_time": 2.0, "training_images_per_second": 320})), Some(640));
        assert_eq!(samples(json!({"e2e_time": 2.0, "throughput(ips)_raw": 320.0})), None);
        assert_eq!(samples(json!({"train_time": -2.0, "throughput(ips)_raw": -320.0})), None);
    }

    #[test]
    fn a_loss_that_is_not_finite_is_nan_and_a_line_that_is_cut_is_none() {
        let read = |line: &str| reader(&[]).read(line).pop();
        for word in ["NaN", "Infinity", "-Infinity"] {
            let line = format!(r#"[PerfLog] {{"event": "STEP_END", "value": {{"loss": {word}}}, "step": 4}}"#);
            let Some(Report::Step(found)) = read(&line) else { panic!("{line}") };
            assert_eq!((found.step, found.loss.map(f64::is_nan)), (Some(4), Some(true)), "{word}");
        }
        assert_eq!(read(r#"[PerfLog] {"event": "STEP_END", "value": {"lo"#), None);
        assert_eq!(read(r#"[PerfLog] {"event": 7}"#), None);
        assert_eq!(read("[PerfLog] []"), None);
        assert_eq!(read(&"x".repeat(LINE_BYTES_MAX + 1)), None);
    }

    #[test]
    fn named_patterns_find_the_figures_of_other_programs() {
        let reader = reader(&[("step", r"iteration\s+(\d+)/"), ("loss", r"lm loss: (\S+)"), ("top1", r"Acc@1 (\S+)")]);
        let line = " iteration       20/  100 | consumed samples: 320 | lm loss: 1.0E+00 |";
        assert_eq!(reader.read(line), [Report::Step(step(20, 1.0))]);
        let metrics = IndexMap::from([("top1".to_owned(), 71.5)]);
        let evaluation = Report::Evaluation { metrics, time_s: None };
        assert_eq!(reader.read(" * Acc@1 71.5 Acc@5 90"), std::slice::from_ref(&evaluation));
        let line = "iteration 20/ 100 | lm loss: 1.0 | Acc@1 71.5";
        assert_eq!(reader.read(line), [Report::Step(step(20, 1.0)), evaluation]);
        let [Report::Step(found), Report::Evaluation { .. }] = &reader.read("iteration 2/ | lm loss: nan, Acc@1 1")[..]
        else {
            panic!()
        };
        assert!(found.loss.is_some_and(f64::is_nan));
        assert_eq!(reader.read("hello"), []);
    }
}
