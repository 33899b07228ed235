//! What was served, as text for Prometheus.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tonic::Code;

use super::generation::GenerationTotals;
use super::model::Model;
use super::statistics::Totals;

/// The number of statuses in gRPC.
const CODES: usize = 17;

/// The answers of a server: over HTTP by the first digit of their status, over gRPC by their status.
#[derive(Debug, Default)]
pub struct AnswerCounts {
    http: [AtomicU64; 6],
    grpc: [AtomicU64; CODES],
}

impl AnswerCounts {
    /// Adds an answer over HTTP.
    pub fn add_http(&self, status: u16) {
        self.http[usize::from(status / 100).min(5)].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds an answer over gRPC.
    pub fn add_grpc(&self, code: Code) {
        self.grpc[(code as usize).min(CODES - 1)].fetch_add(1, Ordering::Relaxed);
    }
}

/// A row of /metrics: name, kind, description, and the value for a model.
type Metric = (&'static str, &'static str, &'static str, fn(&Model, &Totals) -> f64);

/// Nanoseconds as seconds.
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

const METRICS: [Metric; 13] = [
    ("flagperf_requests_total", "counter", "Requests that were answered with outputs", |_, t| t.success.count as f64),
    ("flagperf_failed_requests_total", "counter", "Accepted requests that failed", |_, t| t.fail.count as f64),
    ("flagperf_refused_requests_total", "counter", "Requests refused because the queue was full", |_, t| {
        t.refused as f64
    }),
    (
        "flagperf_cancelled_requests_total",
        "counter",
        "Accepted requests whose client left before the answer",
        |_, t| t.cancelled.count as f64,
    ),
    (
        "flagperf_request_seconds_total",
        "counter",
        "Time from the arrival of a request to its outputs, without writing the answer",
        |_, t| seconds(t.success.nanos),
    ),
    ("flagperf_queue_seconds_total", "counter", "Time that requests waited", |_, t| seconds(t.queue.nanos)),
    ("flagperf_compute_seconds_total", "counter", "Time from the inputs in the worker to its answer", |_, t| {
        seconds(t.batches.values().map(|batch| batch.infer.nanos).sum())
    }),
    ("flagperf_rows_total", "counter", "Rows computed", |_, t| t.rows as f64),
    ("flagperf_runs_total", "counter", "Runs of the model", |_, t| t.runs as f64),
    ("flagperf_worker_restarts_total", "counter", "Lost workers that were started again", |_, t| t.restarts as f64),
    ("flagperf_waiting_requests", "gauge", "Requests that wait", |model, _| model.waiting() as f64),
    ("flagperf_ready_instances", "gauge", "Workers that can run a request", |model, _| model.ready_instances() as f64),
    ("flagperf_instances", "gauge", "Workers", |model, _| f64::from(model.source().settings.instances)),
];

/// A row of /metrics for language models.
type LanguageMetric = (&'static str, &'static str, &'static str, fn(&GenerationTotals) -> f64);

const LANGUAGE_METRICS: [LanguageMetric; 8] = [
    ("flagperf_prompt_tokens_total", "counter", "Tokens of prompts that were read", |t| t.prompt_tokens as f64),
    ("flagperf_answer_tokens_total", "counter", "Tokens of answers", |t| t.answer_tokens as f64),
    ("flagperf_first_tokens_total", "counter", "Answers that have begun", |t| t.first_token.count as f64),
    (
        "flagperf_first_token_seconds_total",
        "counter",
        "Time from the arrival of a request in the queue to its first token",
        |t| seconds(t.first_token.nanos),
    ),
    ("flagperf_next_tokens_total", "counter", "Tokens after the first one of an answer", |t| t.next_token.count as f64),
    ("flagperf_next_token_seconds_total", "counter", "Time from a token to the next", |t| seconds(t.next_token.nanos)),
    ("flagperf_left_answers_total", "counter", "Answers whose client left before their end", |t| t.left as f64),
    ("flagperf_active_rows", "gauge", "Answers that are being written", |t| t.active_rows as f64),
];

/// Writes the metrics of language models.
fn write_language_models(text: &mut String, models: &[Arc<Model>]) {
    let totals = models.iter().filter_map(|model| Some((model.source(), model.text()?.statistics().totals())));
    let totals: Vec<_> = totals.collect();
    for (name, kind, about, value) in LANGUAGE_METRICS.iter().filter(|_| !totals.is_empty()) {
        let _ = write!(text, "# HELP {name} {about}.\n# TYPE {name} {kind}\n");
        for (source, totals) in &totals {
            let (model, version, value) = (&source.name, source.version, value(totals));
            let _ = writeln!(text, "{name}{{model=\"{model}\",version=\"{version}\"}} {value}");
        }
    }
}

/// Returns the text for Prometheus.
pub fn prometheus(models: &[Arc<Model>], answers: &AnswerCounts) -> String {
    let mut text = String::new();
    let totals: Vec<(&Arc<Model>, Totals)> = models.iter().map(|model| (model, model.statistics().totals())).collect();
    for (name, kind, about, value) in METRICS {
        let _ = write!(text, "# HELP {name} {about}.\n# TYPE {name} {kind}\n");
        for (model, totals) in &totals {
            let (source, value) = (model.source(), value(model, totals));
            // A name has neither quotes nor backslashes.
            let _ = writeln!(text, "{name}{{model=\"{}\",version=\"{}\"}} {value}", source.name, source.version);
        }
    }
    write_language_models(&mut text, models);
    text.push_str(&answers_text(answers));
    text
}

fn answers_text(answers: &AnswerCounts) -> String {
    let name = "flagperf_http_answers_total";
    let mut text =
        format!("# HELP {name} Answers over HTTP by the first digit of their status.\n# TYPE {name} counter\n");
    for (digit, count) in answers.http.iter().enumerate().skip(1) {
        let _ = writeln!(text, "{name}{{status=\"{digit}xx\"}} {}", count.load(Ordering::Relaxed));
    }
    let name = "flagperf_grpc_answers_total";
    let _ = write!(text, "# HELP {name} Answers over gRPC by their status.\n# TYPE {name} counter\n");
    for (number, count) in answers.grpc.iter().enumerate() {
        let code = Code::from(i32::try_from(number).unwrap_or(0));
        let count = count.load(Ordering::Relaxed);
        if count > 0 || code == Code::Ok {
            let _ = writeln!(text, "{name}{{code=\"{code:?}\"}} {count}");
        }
    }
    text
}
