//! Records for tests.

use indexmap::IndexMap;

use super::{
    Accuracy, AgreementCheck, AuditCheck, FinishInfo, FlopCount, PhaseRecord, Provenance, Record, Status, Validity,
    ValidityCheck,
};
use flagperf_core::event::{Event, ModelFacts};
use flagperf_core::measure::{
    LatencyBounds, Measurement, Observation, PassReport, PassTimes, StepColumns, StepTimes, ThroughputInterval,
};
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::{Bytes, SamplesPerSecond, Seconds};

/// Creates the interval of a throughput over five passes.
pub fn interval(throughput: f64, relative_half_width: f64) -> ThroughputInterval {
    ThroughputInterval {
        low_samples_per_s: SamplesPerSecond(throughput / (1.0 + relative_half_width)),
        high_samples_per_s: Some(SamplesPerSecond(throughput / (1.0 - relative_half_width))),
        relative_half_width,
        observations: 5,
        of: Observation::Pass,
        degrees_of_freedom: 4,
    }
}

/// Creates the record of a phase that did nothing.
pub fn phase() -> PhaseRecord {
    PhaseRecord::new(Phase::Validate)
}

/// Creates the measurement of a loop of two steps of eight samples, 0.1 s each.
pub fn measurement(step: Step) -> Measurement {
    Measurement {
        step,
        batch_size: 8,
        samples: 16,
        failed_samples: 0,
        padded_samples: 0,
        steps: 2,
        warmup_steps: 3,
        warmup_s: Seconds(0.3),
        warmup_steady: true,
        throughput_whole_samples_per_s: Some(SamplesPerSecond(64.0)),
        throughput_core_samples_per_s: Some(SamplesPerSecond(80.0)),
        throughput_core_interval: None,
        throughput_whole_interval: None,
        step_time_change: None,
        latency: None,
        latency_bounds: LatencyBounds::default(),
        output_copy: None,
        passes: vec![PassTimes::default()],
        accuracy: IndexMap::new(),
        accuracy_unknown: None,
        observations: 16,
        counted: IndexMap::new(),
        non_finite_outputs: 0,
        multiply_adds_per_sample: None,
        state_memory_bytes_max: Bytes(0),
        spans: IndexMap::new(),
        vendor_time: None,
        device_memory_bytes_max: None,
        memory_bytes_max: Bytes(1 << 20),
    }
}

/// Returns the events of a step until the end of its pass number `pass`: one step of two samples in half a second.
pub fn pass_events(step: Step, pass: u32) -> [Event; 4] {
    let times = StepTimes { pass, samples: 2, core_s: Seconds(0.5), ..StepTimes::default() };
    [
        Event::StepBegin { step, detail: String::new() },
        Event::PassBegin { step, pass },
        Event::Steps { step, times: StepColumns(vec![times]) },
        Event::PassEnd(Box::new(PassReport { step, pass, ..PassReport::default() })),
    ]
}

/// Creates the record of a case that validated with random weights and has no compiler.
pub fn record() -> Record {
    let model = ModelFacts { parameters: Some(25_557_032), weights_are_random: true, ..ModelFacts::default() };
    let phases = vec![PhaseRecord { model: Some(model), measured: vec![measurement(Step::Validation)], ..phase() }];
    let mut record = Record {
        schema: Record::SCHEMA,
        unit: flagperf_config::default_unit(),
        run: "run20240703142530".into(),
        case: "resnet50".into(),
        framework: "interpreter".into(),
        training_key: None,
        vendor: "cpu".into(),
        started: "2024-07-03T14:25:30.000+08:00".into(),
        status: Status::Ok,
        validity: ValidityCheck {
            verdict: Validity::Unofficial,
            reasons: vec!["no accuracy: random weights".into()],
            ..ValidityCheck::default()
        },
        failures: Vec::new(),
        warnings: Vec::new(),
        finish_info: FinishInfo {
            vendor: "cpu".into(),
            precision: "fp32".into(),
            batchsize: 8,
            ..FinishInfo::default()
        },
        departures: Vec::new(),
        settings: IndexMap::new(),
        accuracy: Accuracy::judge(&phases, IndexMap::new()),
        agreement: AgreementCheck::default(),
        audit: AuditCheck::default(),
        flops: FlopCount::default(),
        phases,
        hosts: Vec::new(),
        code_variables: Vec::new(),
        host_doubts: Vec::new(),
        device: None,
        monitors: None,
        provenance: Provenance::default(),
    };
    record.finish_info.validation_core = record.phases[0].measured[0].throughput_core_samples_per_s;
    record
}
