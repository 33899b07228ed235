//! What follows from a case's phases: verdict, rates, status, FlagPerf's result.

use crate::config::{Parameters, Vendor};
use crate::event::FileFacts;
use crate::measure::Measurement;
use crate::metric::{AgreementLimits, agreement_name};
use crate::plan::Settings;
use crate::result::{
    Accuracy, AgreementCheck, DeviceRecord, FailureRecord, FinishInfo, FlopCount, HostRecord, Machine, OutputTime,
    Peak, PhaseRecord, Record, Status, Verdict,
};
use crate::step::{Phase, Step};
use crate::units::{Bytes, Seconds};

/// Fills in everything of `record` that follows from its phases.
pub(super) fn conclude(
    record: &mut Record,
    host: &str,
    settings: &Settings,
    parameters: &Parameters,
    vendor: &Vendor,
    e2e_time: Seconds,
) {
    record.accuracy = Accuracy::judge(&record.phases, parameters.target_accuracy.clone());
    record.agreement = AgreementCheck::judge(&record.phases, agreement_limits(settings, parameters));
    record.hosts = vec![host_record(host, &record.phases, vendor)];
    let headline = record.headline_phase();
    let core = headline.and_then(|phase| phase.measured.first()?.throughput_core_samples_per_s);
    let counted = headline.and_then(|phase| phase.model.as_ref()?.multiply_adds_per_sample);
    let peak = record.headline_device().and_then(|device| device.peak.as_ref());
    record.flops = FlopCount::of((&settings.flops, settings.flops_per_sample), counted, core, peak);
    record.warnings.extend(record.flops.warning());
    record.warnings.extend(record.flops.beyond_peak());
    record.warnings.extend(unsteady(record));
    record.failures.extend(other_model(record, settings));
    if record.accuracy.verdict == Verdict::Missed {
        let reason = format!("the accuracy gate: {}", record.accuracy.missed.join("; "));
        record.failures.push(gate(reason, "`target_accuracy` is in the case's parameters.yaml"));
    }
    if record.agreement.verdict == Verdict::Missed {
        let reason = format!("inference does not agree with validation: {}", record.agreement.missed.join("; "));
        let hint = "`agreement` in the case's parameters.yaml sets the limits; both sides must run the same model";
        record.failures.push(gate(reason, hint));
    }
    judge_output_time(record);
    if record.status == Status::Ok && !record.failures.is_empty() {
        record.status = Status::Failed;
    }
    record.finish_info = FinishInfo::of(record, settings, e2e_time);
    note_hashes(record);
}

/// The limits of agreement for the type that inference computes in: the case's over the defaults.
fn agreement_limits(settings: &Settings, parameters: &Parameters) -> AgreementLimits {
    let precision = settings.precision();
    let stated = parameters.agreement.get(agreement_name(precision));
    AgreementLimits::of_precision(precision).with(stated.into_iter().flatten())
}

fn gate(reason: String, hint: &str) -> FailureRecord {
    FailureRecord { phase: None, step: Some(Step::Record), reason, hint: hint.to_owned(), stderr: Vec::new() }
}

/// An engine that computes while its outputs are copied has a wrong figure in *core*.
fn judge_output_time(record: &mut Record) {
    let judged: Vec<_> = record.phases.iter().flat_map(|phase| &phase.measured).map(OutputTime::judge).collect();
    for time in judged {
        match time {
            OutputTime::Copying => {}
            OutputTime::Slow(text) => record.warnings.push(text),
            OutputTime::Computing(text) => {
                record.failures.push(gate(text, "synchronising the device must wait for every output"));
            }
        }
    }
}

/// From this much a step, time that a vendor's code asks to have taken off is worth a warning.
const VENDOR_TIME: Seconds = Seconds(1e-3);

fn unsteady(record: &Record) -> Vec<String> {
    let measured = record.phases.iter().flat_map(|phase| &phase.measured);
    let mut warnings = Vec::new();
    for measured in measured {
        let name = measured.step.name();
        if measured.warmup_steps > 0 && !measured.warmup_steady {
            warnings.push(format!("{name}: warm-up ended at its limit, steps were not steady"));
        }
        if let Some(time) = measured.vendor_time.filter(|time| time.max_s.0 > VENDOR_TIME.0) {
            let (sum, max) = (time.sum_s.0, time.max_s.0);
            warnings.push(format!(
                "{name}: the engine asked to have up to {max:.4} s a step taken off ({sum:.4} s in all); nothing was"
            ));
        }
        if measured.observations > 0 && measured.observations < measured.samples {
            let (observations, samples) = (measured.observations, measured.samples);
            warnings.push(format!("{name}: the evaluator counted {observations} of {samples} samples"));
        }
        warnings.extend(faster_later(measured));
        if measured.failed_samples > 0 {
            warnings.push(format!("{name}: {} samples could not be read", measured.failed_samples));
        }
    }
    warnings
}

/// From this factor between the first pass and a later one, the later one is worth a warning.
const FASTER: f64 = 1.5;
/// From this much time of a pass.
const PASS: Seconds = Seconds(0.01);

/// A pass is as long as the first, for every pass has the same samples: an engine that keeps its answers is faster later.
fn faster_later(measured: &Measurement) -> Option<String> {
    let (first, later) = measured.passes.split_first()?;
    let shortest =
        later.iter().filter(|pass| pass.samples == first.samples).map(|pass| pass.core_s.0).reduce(f64::min)?;
    let factor = first.core_s.0 / shortest;
    (first.core_s.0 > PASS.0 && factor > FASTER).then(|| {
        let name = measured.step.name();
        format!("{name}: the first pass took {factor:.1} times as long in core as a later one: does the engine keep answers?")
    })
}

fn host_record(name: &str, phases: &[PhaseRecord], vendor: &Vendor) -> HostRecord {
    let machine = Machine::this();
    let mut devices = Vec::new();
    for phase in phases {
        let Some(engine) = &phase.engine else { continue };
        let worker = phase.measured.iter().map(|measured| measured.memory_bytes_max).chain(phase.memory_bytes_max);
        let on_device = phase.measured.iter().filter_map(|measured| measured.device_memory_bytes_max);
        let is_cpu = engine.device.starts_with("cpu");
        let used = if is_cpu { most(worker) } else { most(on_device) };
        // A processor says its model, not its engine.
        let detected = if is_cpu { &machine.cpu } else { &engine.device };
        let total = vendor.device(detected).and_then(|device| device.memory_bytes);
        let peak = vendor.peak(detected, &engine.precision);
        devices.push(DeviceRecord {
            phase: phase.phase,
            name: engine.device.clone(),
            memory_bytes_max: used,
            memory_bytes_total: total.or(is_cpu.then_some(machine.memory_bytes)),
            peak: peak.map(|peak| Peak {
                flops_per_s: peak.flops_per_s,
                precision: engine.precision.clone(),
                source: peak.source,
            }),
        });
    }
    HostRecord { name: name.to_owned(), machine, devices }
}

fn most(bytes: impl Iterator<Item = Bytes>) -> Option<Bytes> {
    bytes.map(|bytes| bytes.0).max().map(Bytes)
}

/// The hashes that the phases told of.
fn note_hashes(record: &mut Record) {
    let opened = record.phases.iter().filter(|phase| phase.phase == Phase::Infer).flat_map(opened_files);
    let hashed = |file: &FileFacts| (file.path.clone(), file.sha256.clone());
    let weights = record.phases.iter().filter_map(|phase| phase.model.as_ref()).flat_map(|model| &model.weights_files);
    let weights = weights.map(hashed).collect();
    let dataset = record.phases.iter().find_map(|phase| Some(phase.dataset.as_ref()?.index_sha256.clone()));
    record.provenance.model_sha256 = opened.map(hashed).collect();
    record.provenance.weights_sha256 = weights;
    record.provenance.dataset_sha256 = dataset.filter(|hash| !hash.is_empty());
}

fn opened_files(phase: &PhaseRecord) -> impl Iterator<Item = &FileFacts> {
    phase.model.iter().flat_map(|model| model.files.values().flatten())
}

/// Why inference cannot have run what validation exported, when it should have: the worker of each phase hashed the files
/// by itself, and neither told the other.
fn other_model(record: &Record, settings: &Settings) -> Option<FailureRecord> {
    let inference = record.phases.iter().find(|phase| phase.phase == Phase::Infer && phase.model.is_some())?;
    if settings.exist_onnx_path.is_some() || settings.exist_compiler_path.is_some() {
        return None;
    }
    let files = record.phases.iter().flat_map(|phase| &phase.files).filter(|file| file.what == "onnx");
    let mut exported: Vec<(&str, &str)> = files.map(|file| (file.path.as_str(), file.sha256.as_str())).collect();
    let mut opened: Vec<(&str, &str)> =
        opened_files(inference).map(|file| (file.path.as_str(), file.sha256.as_str())).collect();
    exported.sort_unstable();
    opened.sort_unstable();
    let other = opened.iter().find(|file| !exported.contains(file));
    let (path, _) = other.or_else(|| exported.iter().find(|file| !opened.contains(file)))?;
    Some(FailureRecord {
        phase: Some(Phase::Infer),
        step: Some(Step::Compile),
        reason: format!("inference did not open what validation exported: `{path}` differs"),
        hint: "does another program write into the folder of the run?".to_owned(),
        stderr: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture::Checkout;
    use crate::event::{EngineFacts, ModelFacts};
    use crate::measure::{Measurement, PassTimes};
    use crate::result::{FileRecord, testing};
    use crate::units::SamplesPerSecond;

    const PEAK: &str = "devices:
    - {name: Chip 1, matches: [CHIP-1], peak_flops_per_s: {f32: 100.0e12}, source: one}
    - {name: Chip 2, matches: [CHIP-2], peak_flops_per_s: {f32: 200.0e12, f16: 400.0e12}, source: two}
";

    fn vendor() -> Vendor {
        let text = format!("name: chip\nabout: a\nframeworks: {{}}\ncompilers: {{}}\n{PEAK}");
        let checkout = Checkout::new().with("vendors/chip/vendor.yaml", &text);
        Vendor::read(checkout.root(), "chip").unwrap()
    }

    fn phase(phase: Phase, device: &str, precision: &str, multiply_adds: u64, memory: u64) -> PhaseRecord {
        let step = if phase == Phase::Validate { Step::Validation } else { Step::Inference };
        let measured = Measurement {
            device_memory_bytes_max: Some(Bytes(memory)),
            throughput_core_samples_per_s: Some(SamplesPerSecond(1e3)),
            ..testing::measurement(step)
        };
        PhaseRecord {
            engine: Some(EngineFacts { device: device.into(), precision: precision.into(), ..Default::default() }),
            model: Some(ModelFacts { multiply_adds_per_sample: Some(multiply_adds), ..ModelFacts::default() }),
            measured: vec![measured],
            ..PhaseRecord::new(phase)
        }
    }

    fn concluded(phases: Vec<PhaseRecord>) -> Record {
        let mut record = Record { phases, ..testing::record() };
        let settings = crate::run::testing::job().settings;
        conclude(&mut record, "localhost", &settings, &Parameters::default(), &vendor(), Seconds(1.0));
        record
    }

    #[test]
    fn headline_figures_are_of_the_phase_whose_throughput_they_stand_beside() {
        let record = concluded(vec![
            phase(Phase::Validate, "chip:0 CHIP-1", "f32", 1_000_000_000, 1 << 30),
            phase(Phase::Infer, "chip:1 CHIP-2", "f16", 2_000_000_000, 3 << 30),
        ]);
        assert_eq!(record.flops.counted_per_sample, Some(4e9));
        assert_eq!(record.flops.counted_mfu, Some(4e9 * 1e3 / 400e12));
        assert_eq!(record.finish_info.vendor_usage, Some(3.0));
        let record = concluded(vec![phase(Phase::Validate, "chip:0 CHIP-1", "f32", 1_000_000_000, 1 << 30)]);
        assert_eq!((record.flops.counted_per_sample, record.finish_info.vendor_usage), (Some(2e9), Some(1.0)));
        assert_eq!(record.flops.counted_mfu, Some(2e9 * 1e3 / 100e12));
    }

    #[test]
    fn memory_of_validation_is_not_the_memory_of_inference_on_the_same_device() {
        let phases = [(Phase::Validate, 4 << 30), (Phase::Infer, 1 << 30)];
        let record = concluded(phases.map(|(half, memory)| phase(half, "chip:0 CHIP-1", "f32", 1, memory)).into());
        assert_eq!(record.finish_info.vendor_usage, Some(1.0));
        assert_eq!(record.hosts[0].devices.len(), 2);
    }

    #[test]
    fn what_only_its_compiler_reads_has_no_counted_work_of_another_model() {
        let mut infer = phase(Phase::Infer, "chip:0 CHIP-1", "f32", 1, 1);
        infer.model = Some(ModelFacts::default());
        let record = concluded(vec![phase(Phase::Validate, "chip:0 CHIP-1", "f32", 1_000_000_000, 1), infer]);
        assert_eq!(record.flops.counted_per_sample, None);
    }

    #[test]
    fn a_pass_that_is_much_faster_than_the_first_is_a_warning() {
        let warned = |core: &[f64], samples: &[u64]| {
            let pass = |(core, samples): (&f64, &u64)| PassTimes {
                core_s: Seconds(*core),
                samples: *samples,
                ..Default::default()
            };
            let mut phase = phase(Phase::Infer, "cpu", "f32", 1, 1);
            phase.measured[0].passes = core.iter().zip(samples).map(pass).collect();
            concluded(vec![phase])
                .warnings
                .into_iter()
                .filter(|warning| warning.contains("keep answers"))
                .collect::<Vec<_>>()
        };
        let expected =
            "inference: the first pass took 4.0 times as long in core as a later one: does the engine keep answers?";
        assert_eq!(warned(&[2.0, 1.9, 0.5], &[8, 8, 8]), [expected]);
        assert_eq!(warned(&[2.0, 1.5], &[8, 8]), [""; 0], "within what a machine varies by");
        assert_eq!(warned(&[0.008, 0.001], &[8, 8]), [""; 0], "too short to tell");
        assert_eq!(warned(&[2.0, 0.5], &[8, 2]), [""; 0], "of other samples");
        assert_eq!(warned(&[2.0], &[8]), [""; 0]);
    }

    #[test]
    fn inference_of_another_model_than_the_exported_one_fails_the_case() {
        let file = |sha256: &str| FileFacts { path: "/run/m.onnx".into(), sha256: sha256.into(), size_bytes: Bytes(1) };
        let mut validate = phase(Phase::Validate, "cpu", "f32", 1, 1);
        let FileFacts { path, size_bytes, sha256 } = file("ab");
        validate.files = vec![FileRecord { what: "onnx".into(), path, size_bytes, sha256 }];
        let infer = |sha256: &str| {
            let mut infer = phase(Phase::Infer, "cpu", "f32", 1, 1);
            infer.model.as_mut().unwrap().files = [("model".to_owned(), vec![file(sha256)])].into();
            infer
        };
        let same = concluded(vec![validate.clone(), infer("ab")]);
        assert_eq!((same.failures.len(), same.provenance.model_sha256["/run/m.onnx"].as_str()), (0, "ab"));
        let other = concluded(vec![validate, infer("cd")]);
        assert_eq!(other.status, Status::Failed);
        let reason = "inference did not open what validation exported: `/run/m.onnx` differs";
        assert_eq!(other.failures[0].reason, reason);
    }
}
