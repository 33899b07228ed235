//! Tests that every event reads back as it was written, including numbers that JSON does not have.

use indexmap::IndexMap;

use flagperf_core::event::{
    DatasetFacts, DecoderFacts, EngineFacts, Event, Failure, GraphProof, GraphRewrite, Level, LoadingSearch,
    LoadingTrial, ModelFacts, Protection, Step,
};
use flagperf_core::measure::{
    AuditReport, EpochLosses, Evaluation, LocalSteps, PassReport, QueryColumns, QueryTimes, ReplayedValue,
    ScenarioReport, SpanTimes, StepColumns, StepReplay, StepTimes, TraceSpan, TrainedBy, TrainingEnd, TrainingProgress,
    TrainingReplay, TrialEnd, VendorTime,
};
use flagperf_core::metric::{Agreement, OutputAgreement, PassDifference};
use flagperf_core::units::{Bytes, SamplesPerSecond, Seconds};

/// Returns the index of the event's kind in [`events`]. The exhaustive match makes sure that a new kind is added there.
fn kind_index(event: &Event) -> usize {
    match event {
        Event::Started { .. } => 0,
        Event::StepBegin { .. } => 1,
        Event::StepEnd { .. } => 2,
        Event::Progress { .. } => 3,
        Event::Model(_) => 4,
        Event::Dataset(_) => 5,
        Event::Engine(_) => 6,
        Event::SampleFailed { .. } => 7,
        Event::Wrote { .. } => 8,
        Event::PassEnd(_) => 9,
        Event::Agreement(_) => 10,
        Event::Log { .. } => 11,
        Event::Failed(_) => 12,
        Event::Finished { .. } => 13,
        Event::Sidecar(_) => 14,
        Event::PassBegin { .. } => 15,
        Event::Steps { .. } => 16,
        Event::Audit(_) => 17,
        Event::Protected(_) => 18,
        Event::Ready { .. } => 19,
        Event::Observed { .. } => 20,
        Event::TrainingDataset(_) => 21,
        Event::EpochLosses(_) => 22,
        Event::Evaluation(_) => 23,
        Event::TrainingEnd(_) => 24,
        Event::TrainingResumed(_) => 25,
        Event::TrainingReplay(_) => 26,
        Event::Reported { .. } => 27,
        Event::Checkpoint { .. } => 28,
        Event::Rewrite(_) => 29,
        Event::Trace { .. } => 30,
        Event::Decoder(_) => 31,
        Event::Loading(_) => 32,
        Event::Queries { .. } => 33,
        Event::TrialEnd(_) => 34,
        Event::Scenario(_) => 35,
        Event::TrialBegin { .. } => 36,
        Event::LocalSteps(_) => 37,
        Event::TrainedBy { .. } => 38,
        Event::TrialProgress { .. } => 39,
    }
}

/// Returns one event of each kind, with `x` as the value of every number that may be non-finite.
fn events(x: f64) -> Vec<Event> {
    let text = || "text".to_owned();
    let step = Step::Inference;
    vec![
        Event::Started { pid: 1, run_seed_sha256: "ab".to_owned() },
        Event::StepBegin { step, detail: text() },
        Event::StepEnd { step, time_s: Seconds(x) },
        Event::Progress {
            step,
            warmup: false,
            pass: 0,
            passes: 1,
            batch: 1,
            batches: 2,
            samples: 3,
            elapsed_s: Seconds(x),
            repetition: None,
        },
        Event::Model(ModelFacts::default()),
        Event::Dataset(DatasetFacts::default()),
        Event::Engine(Box::new(EngineFacts { load_s: Seconds(x), ..EngineFacts::default() })),
        Event::SampleFailed { sample: text(), reason: text() },
        Event::Wrote { what: text(), path: text(), size_bytes: Bytes(1), sha256: text() },
        Event::PassEnd(Box::new(report(x))),
        Event::Agreement(Agreement {
            outputs: IndexMap::from([("scores".to_owned(), agreement(x))]),
            between_passes: IndexMap::from([(
                "scores".to_owned(),
                PassDifference { relative_l2: x, mismatches: Some(x), ..PassDifference::default() },
            )]),
            ..Agreement::default()
        }),
        Event::Log { level: Level::Warning, source: text(), message: text() },
        Event::Failed(Failure { step: None, reason: text(), hint: text() }),
        Event::Finished { memory_bytes_max: Bytes(1) },
        Event::Sidecar(Box::default()),
        Event::PassBegin { step, pass: 3 },
        // Times that are not finite are refused.
        Event::Steps { step, times: StepColumns(vec![StepTimes { core_s: Seconds(0.1), ..StepTimes::default() }]) },
        Event::Audit(Box::new(AuditReport {
            repeated_s: vec![Seconds(x)],
            permuted: IndexMap::from([(
                "scores".to_owned(),
                PassDifference { relative_l2: x, ..PassDifference::default() },
            )]),
            ..AuditReport::default()
        })),
        Event::Protected(Protection::default()),
        Event::Ready { step },
        Event::Observed { facts: serde_json::json!({"run": "a", "phases": [{"time_s": 0.1}], "device": null}) },
        Event::TrainingDataset(DatasetFacts::default()),
        Event::EpochLosses(Box::new(EpochLosses { loss: vec![x], ..EpochLosses::default() })),
        Event::Evaluation(Evaluation {
            metrics: IndexMap::from([("top1".to_owned(), x)]),
            time_s: Seconds(x),
            ..Evaluation::default()
        }),
        Event::TrainingEnd(TrainingEnd { round: 0, train_s: Seconds(x), init_s: Seconds(x) }),
        Event::TrainingResumed(TrainingProgress { train_s: Seconds(x), ..TrainingProgress::default() }),
        Event::TrainingReplay(Box::new(TrainingReplay {
            steps: vec![StepReplay {
                worst: ReplayedValue { name: text(), difference: x, limit: x },
                ..StepReplay::default()
            }],
            ..TrainingReplay::default()
        })),
        Event::Reported { round: 0, values: [(text(), x.into())].into() },
        Event::Checkpoint { name: text(), sha256: text() },
        Event::Rewrite(Box::new(GraphRewrite {
            proof: GraphProof { error: x, limit: x, ..GraphProof::default() },
            ..GraphRewrite::default()
        })),
        Event::Trace {
            spans: vec![TraceSpan {
                row: text(),
                name: text(),
                operator: Some(text()),
                begin_s: Seconds(x),
                time_s: Seconds(x),
            }],
        },
        Event::Decoder(DecoderFacts { mean_difference: x, ..DecoderFacts::default() }),
        Event::Loading(LoadingSearch {
            tried: vec![LoadingTrial { num_workers: 1, prefetch: 2, samples_per_s: SamplesPerSecond(x) }],
            chosen: 0,
        }),
        // Times that are not finite are refused here, too.
        Event::Queries { times: QueryColumns(vec![QueryTimes { ended_s: Seconds(0.1), ..QueryTimes::default() }]) },
        Event::TrialEnd(TrialEnd { queries_per_s: Some(12.5), ..TrialEnd::default() }),
        Event::Scenario(Box::new(ScenarioReport {
            agreement: Agreement {
                outputs: IndexMap::from([("scores".to_owned(), agreement(x))]),
                ..Agreement::default()
            },
            ..ScenarioReport::default()
        })),
        Event::TrialBegin { trial: 1, scheduled: Some(96), queries_per_s: Some(12.5) },
        Event::LocalSteps(LocalSteps { core_s: vec![Seconds(x)], per_update: 4 }),
        Event::TrainedBy { parts: vec![TrainedBy { round: 0, after_step: 3, ranks: 2 }] },
        Event::TrialProgress { trial: 1, answered: 2, elapsed_s: Seconds(x), expected_s: Seconds(x) },
    ]
}

fn agreement(x: f64) -> OutputAgreement {
    OutputAgreement {
        max_abs: x,
        mean_abs: x,
        median_abs: x,
        max_rel: x,
        mean_rel: x,
        median_rel: x,
        relative_l2: x,
        worst_sample: x,
        cosine: Some(x),
        top1_agreement: Some(x),
        variation: Some(x),
        correlation: Some(x),
        mismatches: Some(x),
        ..OutputAgreement::default()
    }
}

fn report(x: f64) -> PassReport {
    let accuracy = IndexMap::from([("top1".to_owned(), x)]);
    let time = Seconds(x);
    PassReport {
        warmup_s: time,
        accuracy,
        spans: IndexMap::from([("span".to_owned(), SpanTimes { total_s: time, ..SpanTimes::default() })]),
        vendor_time: Some(VendorTime { sum_s: time, max_s: time }),
        ..PassReport::default()
    }
}

#[test]
fn every_event_with_non_finite_numbers_reads_back_as_written() {
    for x in [1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let events = events(x);
        assert!(events.iter().enumerate().all(|(index, event)| kind_index(event) == index) && events.len() == 39);
        for event in events {
            let line = String::from_utf8(event.to_line()).unwrap();
            let read = Event::from_line(&line).unwrap_or_else(|error| panic!("{x}: {line}: {error}"));
            assert_eq!(String::from_utf8(read.to_line()).unwrap(), line);
        }
    }
}

#[test]
fn a_nan_metric_reads_back_as_nan() {
    let line = String::from_utf8(Event::PassEnd(Box::new(report(f64::NAN))).to_line()).unwrap();
    let Event::PassEnd(read) = Event::from_line(&line).unwrap() else { panic!("{line}") };
    assert!(read.accuracy["top1"].is_nan() && read.warmup_s.0.is_nan() && read.spans["span"].total_s.0.is_nan());
}
