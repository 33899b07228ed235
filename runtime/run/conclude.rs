//! Concludes a case from its phases: verdicts, rates, status, FlagPerf's result.

use crate::config::{Parameters, Vendor};
use crate::event::FileFacts;
use crate::measure::Measurement;
use crate::metric::AgreementLimits;
use crate::plan::CaseSettings;
use crate::result::{
    Accuracy, AgreementCheck, DeviceRecord, FailureRecord, FinishInfo, FlopCount, HostRecord, Machine,
    OutputTimeVerdict, PeakRecord, PhaseRecord, Record, Status, Verdict,
};
use crate::step::{Phase, Step};
use crate::units::{Bytes, Seconds};

/// Fills in everything in `record` that is derived from its phases.
pub(super) fn conclude(
    record: &mut Record,
    host: &str,
    settings: &CaseSettings,
    parameters: &Parameters,
    vendor: &Vendor,
    e2e_time: Seconds,
) {
    record.unit.clone_from(&parameters.unit);
    record.accuracy = Accuracy::judge(&record.phases, parameters.target_accuracy.clone());
    record.agreement = AgreementCheck::judge(&record.phases, agreement_limits(settings, parameters));
    record.hosts = vec![host_record(host, &record.phases, vendor)];
    let headline = record.headline_phase();
    let core = headline.and_then(|phase| phase.measured.first()?.throughput_core_samples_per_s);
    let counted = headline.and_then(|phase| phase.measured.first()?.multiply_adds_per_sample);
    let peak = record.headline_device().and_then(|device| device.peak.as_ref());
    record.flops = FlopCount::of(settings, counted, core, peak);
    record.warnings.extend(record.flops.difference_warning());
    record.warnings.extend(record.flops.beyond_peak_warning());
    record.warnings.extend(measurement_warnings(record));
    record.failures.extend(exported_model_mismatch(record, settings));
    if record.accuracy.verdict == Verdict::Missed {
        let reason = format!("accuracy check failed: {}", record.accuracy.missed.join("; "));
        record
            .failures
            .push(verdict_failure(reason, "`target_accuracy` in the case's parameters.yaml sets the target"));
    }
    if record.agreement.verdict == Verdict::Missed {
        let reason = format!("inference does not agree with validation: {}", record.agreement.missed.join("; "));
        let hint = "`agreement` in the case's parameters.yaml sets the limits; both sides must run the same model";
        record.failures.push(verdict_failure(reason, hint));
    }
    judge_output_time(record);
    if record.status == Status::Ok && !record.failures.is_empty() {
        record.status = Status::Failed;
    }
    record.finish_info = FinishInfo::of(record, settings, e2e_time);
    record_hashes(record);
}

/// Returns the limits of agreement for the precision of inference: the defaults, with those replaced that the case
/// sets.
fn agreement_limits(settings: &CaseSettings, parameters: &Parameters) -> AgreementLimits {
    let overrides = parameters.agreement.get(settings.precision.name());
    AgreementLimits::default_for(settings.precision).with_overrides(overrides.into_iter().flatten())
}

/// Creates the failure of a case whose phases ran but whose results are not acceptable.
fn verdict_failure(reason: String, hint: &str) -> FailureRecord {
    FailureRecord { phase: None, step: Some(Step::Record), reason, hint: hint.to_owned(), stderr: Vec::new() }
}

/// Adds a warning or a failure for an engine that computes while its outputs are copied, which makes *core* wrong.
fn judge_output_time(record: &mut Record) {
    let judged: Vec<_> = record.phases.iter().flat_map(|phase| &phase.measured).map(OutputTimeVerdict::judge).collect();
    for time in judged {
        match time {
            OutputTimeVerdict::Copying => {}
            OutputTimeVerdict::Slow(text) => record.warnings.push(text),
            OutputTimeVerdict::Computing(text) => {
                record.failures.push(verdict_failure(text, "synchronising the device must wait for every output"));
            }
        }
    }
}

/// Time per step above which a vendor's request to subtract time is a warning.
const VENDOR_TIME_WARNING: Seconds = Seconds(1e-3);

fn measurement_warnings(record: &Record) -> Vec<String> {
    let measured = record.phases.iter().flat_map(|phase| &phase.measured);
    let mut warnings = Vec::new();
    for measured in measured {
        let name = measured.step.name();
        if measured.warmup_steps > 0 && !measured.warmup_steady {
            warnings.push(format!("{name}: warm-up hit its limit before step times settled"));
        }
        if let Some(time) = measured.vendor_time.filter(|time| time.max_s.0 > VENDOR_TIME_WARNING.0) {
            let (sum, max) = (time.sum_s.0, time.max_s.0);
            warnings.push(format!(
                "{name}: the engine asked for up to {max:.4} s per step ({sum:.4} s in total) to be subtracted; \
                 nothing was"
            ));
        }
        if measured.observations > 0 && measured.observations < measured.samples {
            let (observations, samples) = (measured.observations, measured.samples);
            warnings.push(format!("{name}: the evaluator counted {observations} of {samples} samples"));
        }
        warnings.extend(slow_first_pass_warning(measured));
        match measured.failed_samples {
            0 => {}
            1 => warnings.push(format!("{name}: 1 sample could not be read")),
            count => warnings.push(format!("{name}: {count} samples could not be read")),
        }
    }
    warnings
}

/// Ratio of the core time of the first pass to that of a later one above which there is a warning.
const PASS_RATIO_WARNING: f64 = 1.5;
/// Core time of the first pass below which there is no such warning.
const PASS_TIME_MIN: Seconds = Seconds(0.01);

/// Returns a warning when a later pass is much faster than the first. All passes have the same samples, so they take
/// the same time unless the engine caches results.
fn slow_first_pass_warning(measured: &Measurement) -> Option<String> {
    let (first, later) = measured.passes.split_first()?;
    let shortest =
        later.iter().filter(|pass| pass.samples == first.samples).map(|pass| pass.core_s.0).reduce(f64::min)?;
    let factor = first.core_s.0 / shortest;
    (first.core_s.0 > PASS_TIME_MIN.0 && factor > PASS_RATIO_WARNING).then(|| {
        let name = measured.step.name();
        format!(
            "{name}: the first pass's core time was {factor:.1}x that of a later pass; does the engine cache results?"
        )
    })
}

fn host_record(name: &str, phases: &[PhaseRecord], vendor: &Vendor) -> HostRecord {
    let machine = Machine::detect();
    let mut devices = Vec::new();
    for phase in phases {
        let Some(engine) = &phase.engine else { continue };
        let worker = phase.measured.iter().map(|measured| measured.memory_bytes_max).chain(phase.memory_bytes_max);
        let on_device = phase.measured.iter().filter_map(|measured| measured.device_memory_bytes_max);
        let is_cpu = engine.device.starts_with("cpu");
        let used = if is_cpu { largest(worker) } else { largest(on_device) };
        // vendor.yaml lists a processor by its model, or any by the engine's name for it.
        let by_model = is_cpu && vendor.device(&machine.cpu).is_some();
        let detected = if by_model { &machine.cpu } else { &engine.device };
        let total = vendor.device(detected).and_then(|device| device.memory_bytes);
        let peak = vendor.peak(detected, &engine.precision);
        devices.push(DeviceRecord {
            phase: phase.phase,
            name: engine.device.clone(),
            memory_bytes_max: used,
            memory_bytes_total: total.or(is_cpu.then_some(machine.memory_bytes)),
            peak: peak.map(|peak| PeakRecord {
                flops_per_s: peak.flops_per_s,
                precision: engine.precision.clone(),
                source: peak.source,
            }),
        });
    }
    HostRecord { name: name.to_owned(), machine, devices }
}

fn largest(bytes: impl Iterator<Item = Bytes>) -> Option<Bytes> {
    bytes.map(|bytes| bytes.0).max().map(Bytes)
}

/// Copies the hashes from the phases to the provenance.
fn record_hashes(record: &mut Record) {
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

/// Returns a failure when inference should have run the exported model and did not. The workers of the two phases hash
/// the files independently of each other.
fn exported_model_mismatch(record: &Record, settings: &CaseSettings) -> Option<FailureRecord> {
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
    let unexpected = opened.iter().find(|file| !exported.contains(file));
    let (path, _) = unexpected.or_else(|| exported.iter().find(|file| !opened.contains(file)))?;
    Some(FailureRecord {
        phase: Some(Phase::Infer),
        step: Some(Step::Compile),
        reason: format!("inference did not load the files that validation exported: `{path}` differs"),
        hint: "does another program write to the folder of the run?".to_owned(),
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
            multiply_adds_per_sample: Some(multiply_adds),
            ..testing::measurement(step)
        };
        PhaseRecord {
            engine: Some(EngineFacts { device: device.into(), precision: precision.into(), ..Default::default() }),
            model: Some(ModelFacts::default()),
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
    fn headline_figures_are_those_of_the_headline_phase() {
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
    fn a_device_that_matches_cpu_matches_an_engine_whose_device_is_cpu() {
        let cpu =
            "devices: [{name: any, matches: [\"cpu\"], memory_bytes: 5, peak_flops_per_s: {f32: 1.0e12}, source: s}]";
        let text = format!("name: chip\nabout: a\nframeworks: {{}}\ncompilers: {{}}\n{cpu}\n");
        let checkout = Checkout::new().with("vendors/chip/vendor.yaml", &text);
        let vendor = Vendor::read(checkout.root(), "chip").unwrap();
        let host = host_record("localhost", &[phase(Phase::Validate, "cpu", "f32", 1, 1)], &vendor);
        let device = &host.devices[0];
        let peak = device.peak.as_ref().map(|peak| peak.flops_per_s.0);
        assert_eq!((device.memory_bytes_total, peak), (Some(Bytes(5)), Some(1e12)));
    }

    #[test]
    fn memory_is_recorded_per_phase_even_on_the_same_device() {
        let phases = [(Phase::Validate, 4 << 30), (Phase::Infer, 1 << 30)];
        let record = concluded(phases.map(|(half, memory)| phase(half, "chip:0 CHIP-1", "f32", 1, memory)).into());
        assert_eq!(record.finish_info.vendor_usage, Some(1.0));
        assert_eq!(record.hosts[0].devices.len(), 2);
    }

    #[test]
    fn a_model_that_only_its_compiler_reads_does_not_inherit_the_operation_count_of_validation() {
        let mut infer = phase(Phase::Infer, "chip:0 CHIP-1", "f32", 1, 1);
        infer.measured[0].multiply_adds_per_sample = None;
        let record = concluded(vec![phase(Phase::Validate, "chip:0 CHIP-1", "f32", 1_000_000_000, 1), infer]);
        assert_eq!(record.flops.counted_per_sample, None);
    }

    #[test]
    fn a_first_pass_that_is_much_slower_than_a_later_one_is_a_warning() {
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
                .filter(|warning| warning.contains("cache results"))
                .collect::<Vec<_>>()
        };
        let expected =
            "inference: the first pass's core time was 4.0x that of a later pass; does the engine cache results?";
        assert_eq!(warned(&[2.0, 1.9, 0.5], &[8, 8, 8]), [expected]);
        assert_eq!(warned(&[2.0, 1.5], &[8, 8]), [""; 0], "within the variation of a machine");
        assert_eq!(warned(&[0.008, 0.001], &[8, 8]), [""; 0], "too short to be judged");
        assert_eq!(warned(&[2.0, 0.5], &[8, 2]), [""; 0], "a different number of samples");
        assert_eq!(warned(&[2.0], &[8]), [""; 0]);
    }

    #[test]
    fn inference_of_a_model_other_than_the_exported_one_fails_the_case() {
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
        let reason = "inference did not load the files that validation exported: `/run/m.onnx` differs";
        assert_eq!(other.failures[0].reason, reason);
    }
}
