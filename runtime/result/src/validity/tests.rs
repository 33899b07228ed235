//! Tests of the verdict on a result.

use indexmap::IndexMap;
use serde_json::json;

use super::*;
use crate::{FailureRecord, ImageRecord, Setting, testing};
use flagperf_core::event::{DatasetFacts, EngineFacts, SidecarFacts};
use flagperf_core::measure::{AuditReport, PassTimes};
use flagperf_core::metric::{Agreement, OutputAgreement};
use flagperf_core::units::SamplesPerSecond;
use flagperf_sampling::{MonitorRecord, SourceRecord};

/// What is unknown about every dataset.
const CONTENTS: &str =
    "whether the samples are those of `target_accuracy`: only their names, sizes and classes are compared";

/// Creates a record that meets every rule.
fn official() -> Record {
    let mut record = testing::record();
    record.accuracy.verdict = Verdict::Met;
    record.provenance.git_revision = Some("0123".into());
    record.provenance.git_clean = Some(true);
    set_target(&mut record, 8, Some("ab"));
    let dataset = DatasetFacts { samples: 8, index_sha256: "ab".into(), ..DatasetFacts::default() };
    record.phases[0].dataset = Some(dataset);
    let measured = &mut record.phases[0].measured[0];
    measured.throughput_core_interval = Some(testing::interval(80.0, 0.01));
    measured.passes = vec![PassTimes { whole_s: Seconds(300.0), ..PassTimes::default() }; 2];
    record.phases[0].conditions = Some(DeviceConditions {
        other_processes: Some(Vec::new()),
        throttling: Some(Vec::new()),
        ..DeviceConditions::default()
    });
    record
}

/// Sets the dataset for which the target of a record holds.
fn set_target(record: &mut Record, samples: u64, index: Option<&str>) {
    for (key, value) in [("target_samples", json!(samples)), ("target_index", json!(index))] {
        record.settings.insert(key.into(), Setting { value, origin: "configs/toy/parameters.yaml:1".into() });
    }
}

/// Makes a record one of several devices of a host; `name` is the engine's name of the device, and `id` its id.
fn set_device(record: &mut Record, name: &str, id: Option<&str>) {
    record.device = Some(1);
    let id = id.map(str::to_owned);
    let engine = flagperf_core::event::EngineFacts { device: name.into(), device_id: id, ..Default::default() };
    record.phases[0].engine = Some(engine);
}

/// Makes validation and inference run a sidecar; `reference` is the agreement of validation with the interpreter.
fn use_vendors_engines(record: &mut Record, reference: Option<Agreement>, unseen: Option<Agreement>) {
    let sidecar = Some(SidecarFacts::default());
    record.phases[0].engine = Some(EngineFacts { sidecar, ..EngineFacts::default() });
    let mut inference = record.phases[0].clone();
    inference.measured[0].step = Step::Inference;
    inference.audit = Some(AuditReport { unseen, changed_model: Some(Default::default()), ..AuditReport::default() });
    record.phases.push(inference);
    record.phases[0].agreement = reference;
}

/// Returns the verdict on an official record after a change.
fn after(change: impl FnOnce(&mut Record)) -> String {
    let mut record = official();
    change(&mut record);
    ValidityCheck::judge(&record).line()
}

#[test]
fn a_record_that_meets_every_rule_is_valid() {
    let unknown = vec![CONTENTS.to_owned()];
    assert_eq!(
        ValidityCheck::judge(&official()),
        ValidityCheck { verdict: Validity::Valid, unknown, ..Default::default() }
    );
}

#[test]
fn each_rule_alone_makes_a_result_unofficial() {
    let lines = [
        after(|record| record.phases[0].measured[0].passes[0].whole_s = Seconds(299.9)),
        after(|record| record.phases[0].measured[0].passes[0].whole_s = Seconds(90_000.0)),
        after(|record| record.phases[0].measured.clear()),
        after(|record| record.phases[0].measured[0].warmup_steady = false),
        after(|record| record.phases[0].measured[0].throughput_core_interval = None),
        after(|record| record.phases[0].measured[0].throughput_core_interval = Some(testing::interval(80.0, 0.06))),
        after(|record| record.phases[0].measured[0].throughput_core_interval = Some(testing::interval(80.0, f64::NAN))),
        after(|record| record.accuracy.verdict = Verdict::NoTarget),
        after(|record| {
            record.accuracy.verdict = Verdict::Unknown;
            record.accuracy.unknown = Some("random weights".into());
        }),
        after(|record| set_target(record, 0, None)),
        after(|record| set_target(record, 9, None)),
        after(|record| set_target(record, 8, Some("cd"))),
        after(|record| record.departures = vec!["batch_size=4".into(), "repeat=1".into()]),
        after(|record| record.phases[0].measured[0].failed_samples = 3),
        after(|record| {
            let measured = &mut record.phases[0].measured[0];
            (measured.samples, measured.padded_samples) = (64, 192);
            measured.throughput_core_samples_per_s = Some(SamplesPerSecond(6150.0));
        }),
        after(|record| record.provenance.git_clean = Some(false)),
        after(|record| record.provenance.git_revision = None),
        after(|record| {
            let share = Setting { value: "share".into(), origin: "configs/host.yaml:1".into() };
            record.settings.insert("BUSY_HOST".into(), share);
        }),
        after(|record| record.host_doubts.push("the lock of this host cannot be used".into())),
        after(|record| {
            record.phases[0].conditions.as_mut().unwrap().other_processes = Some(vec!["77 (`python3`)".into()]);
        }),
        after(|record| record.phases[0].conditions.as_mut().unwrap().throttling = Some(vec!["thermal".into()])),
        after(|record| {
            let conditions = record.phases[0].conditions.as_mut().unwrap();
            (conditions.readings, conditions.busy_share_max) = (90, Some(0.0));
        }),
        after(|record| set_device(record, "cpu", None)),
        after(|record| {
            let off = Setting { value: false.into(), origin: "configs/host.yaml:1".into() };
            record.settings.insert("WORKER_PROTECTION".into(), off);
        }),
        after(|record| record.code_variables.push("LD_PRELOAD=/x.so".to_owned())),
        after(|record| {
            let rights = vec!["`-v /:/host` shows it all files of the machine".to_owned()];
            record.provenance.image = Some(ImageRecord { rights, ..ImageRecord::default() });
        }),
        after(|record| record.phases[0].measured[0].step = Step::Inference),
        after(|record| use_vendors_engines(record, None, None)),
        after(|record| {
            let outputs = IndexMap::from([("scores".to_owned(), OutputAgreement::default())]);
            let not_compared = vec!["output `sum` (`f32`) has no row per sample".to_owned()];
            let complete = Agreement { outputs: outputs.clone(), ..Agreement::default() };
            use_vendors_engines(
                record,
                Some(Agreement { outputs, not_compared, ..Agreement::default() }),
                Some(complete),
            );
        }),
        after(|record| {
            let outputs = IndexMap::from([("scores".to_owned(), OutputAgreement::default())]);
            use_vendors_engines(record, Some(Agreement { outputs, ..Agreement::default() }), None);
        }),
        after(|record| {
            record.phases[0].measured[0].step = Step::Inference;
            record.phases[0].audit = Some(AuditReport::default());
            record.agreement.unknown = Some("validation and inference did not both run to their end".to_owned());
        }),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    unofficial: measured for 599 s (official: at least 10 min)
    unofficial: measured for 25.1 h (official: at most 24 h)
    unofficial: nothing was measured
    unofficial: validation: step times were not steady at the end of warm-up
    unofficial: validation: too few steps for a confidence interval
    unofficial: validation: the confidence interval of throughput is ±6.0 % (official: at most 5 %)
    unofficial: validation: the confidence interval of throughput is ±NaN % (official: at most 5 %)
    unofficial: the case sets no `target_accuracy`
    unofficial: no accuracy: random weights
    unofficial: the case does not say which dataset its target is for (`target_samples`)
    unofficial: the dataset has 8 samples, and that of `target_accuracy` has 9
    unofficial: the dataset is not that of `target_accuracy`: its index is ab, and `target_index` is cd
    unofficial: changed by --set: batch_size=4 and 1 more
    unofficial: validation: 3 samples could not be read
    unofficial: validation: 192 of 256 rows were padding, 75.0 % (official: at most 10 %): 24600.0 rows/s were computed for 6150.0 samples/s
    unofficial: the checkout differs from its git revision
    unofficial: the git revision is unknown
    unofficial: other runs could use the host at the same time (`BUSY_HOST: share`)
    unofficial: the lock of this host cannot be used
    unofficial: validate: other processes used the device: 77 (`python3`)
    unofficial: validate: the device was slowed down: thermal
    unofficial: validate: the device was idle in all 90 readings: did the engine use another one?
    unofficial: validation: the workers of the host shared its processor, which is not one of several devices
    unofficial: the workers were not protected from their engines (`WORKER_PROTECTION: false`)
    unofficial: the environment makes workers execute other code: LD_PRELOAD=/x.so
    unofficial: the container did not separate the worker from the machine: `-v /:/host` shows it all files of the machine
    unofficial: inference was not audited
    unofficial: validation and inference both ran engines that the vendor supplies, and flagperf's interpreter computed no outputs of validation
    unofficial: validation and inference both ran engines that the vendor supplies, and flagperf's interpreter computed not every output of validation: output `sum` (`f32`) has no row per sample
    unofficial: validation and inference both ran engines that the vendor supplies, and flagperf's interpreter computed no outputs of inference
    unofficial: the outputs of inference are not known to be right: validation and inference did not both run to their end; inference was not audited with changed weights (official: `--audit full`)
    ");
}

#[test]
fn a_failure_makes_a_result_invalid_whatever_else_it_lacks() {
    let failure = FailureRecord {
        phase: None,
        step: None,
        reason: "accuracy check failed: top1\nmore".into(),
        hint: String::new(),
        stderr: Vec::new(),
    };
    let failed = after(|record| {
        record.status = Status::Failed;
        record.failures.push(failure.clone());
        record.departures.push("repeat=1".into());
    });
    assert_eq!(failed, "invalid: accuracy check failed: top1");
    assert_eq!(after(|record| record.failures.push(failure.clone())), failed, "whatever the status says");
    assert_eq!(after(|record| record.status = Status::Interrupted), "invalid: the run was interrupted");
    assert_eq!(after(|record| record.status = Status::Failed), "invalid: the case failed");
}

#[test]
fn one_of_several_devices_counts_and_one_that_no_monitor_identifies_is_unknown() {
    let unknown = |name: &str, id: Option<&str>| {
        let mut record = official();
        set_device(&mut record, name, id);
        let check = ValidityCheck::judge(&record);
        assert_eq!(check.verdict, Validity::Valid);
        check.unknown
    };
    assert_eq!(unknown("cuda:0 X", Some("GPU-1")), [CONTENTS]);
    assert_eq!(unknown("npu:0", None), [CONTENTS, "validate: which device the worker used"]);
}

#[test]
fn conditions_that_no_monitor_reports_are_unknown_and_no_reason() {
    let mut record = official();
    record.phases[0].conditions = None;
    let check = ValidityCheck::judge(&record);
    assert_eq!(check.verdict, Validity::Valid);
    let unknown = [CONTENTS, "validate: other processes on the device", "validate: throttling of the device"];
    assert_eq!(check.unknown, unknown);
    let source = SourceRecord { unavailable: Some("no driver".to_owned()), ..SourceRecord::default() };
    let sources = [("device".to_owned(), source)].into();
    record.monitors = Some(MonitorRecord { sources, ..MonitorRecord::default() });
    let named = ValidityCheck::judge(&record).unknown;
    assert_eq!(named[1..], unknown[1..].iter().map(|text| format!("{text} (no driver)")).collect::<Vec<_>>());
}
