//! Concludes a case from its phases: verdicts, rates, status, FlagPerf's result.

use flagperf_config::{Parameters, Vendor};
use flagperf_core::metric::AgreementLimits;
use flagperf_core::units::Seconds;
use flagperf_plan::CaseSettings;
use flagperf_result::{
    Accuracy, AgreementCheck, AuditCheck, DeviceRecord, FinishInfo, FlopCount, HostRecord, Machine, PhaseRecord,
    Record, Status, hardware_warning, output_time_warnings, padding_warnings, slow_first_pass, verdict_failures,
};

/// Fills in everything in `record` that is derived from its phases. `hosts` are the machines on which they ran, as far as that
/// is known.
pub(super) fn conclude(
    record: &mut Record,
    hosts: Vec<HostRecord>,
    settings: &CaseSettings,
    parameters: &Parameters,
    e2e_time: Seconds,
) {
    record.unit.clone_from(&parameters.unit);
    record.accuracy = Accuracy::judge(&record.phases, parameters.target_accuracy.clone());
    let (limits, cost) = (agreement_limits(settings, parameters), parameters.input_cost);
    record.agreement = AgreementCheck::judge(&record.phases, limits, cost);
    record.hosts = hosts;
    record.audit = AuditCheck::judge(&record.phases, &limits, cost, &record.accuracy);
    record.flops = FlopCount::of(settings).with_rates(record);
    record.warnings.extend(record.flops.difference_warning());
    let peak = record.headline_device().and_then(|device| device.peak.as_ref());
    let beyond_peak = record.flops.beyond_peak_warning(peak);
    record.warnings.extend(beyond_peak);
    record.warnings.extend(measurement_warnings(record));
    record.warnings.extend(padding_warnings(record));
    record.warnings.extend(hardware_warning(record));
    record.warnings.extend(output_time_warnings(record));
    let failures = verdict_failures(record);
    record.failures.extend(failures);
    if record.status == Status::Ok && !record.failures.is_empty() {
        record.status = Status::Failed;
    }
    record.finish_info = FinishInfo::of(record, settings, e2e_time);
    record.provenance.fill_hashes(&record.phases);
}

/// Returns the limits of agreement for the precision of inference: the defaults, with those replaced that the case
/// sets.
fn agreement_limits(settings: &CaseSettings, parameters: &Parameters) -> AgreementLimits {
    let overrides = parameters.agreement.get(settings.precision.name());
    AgreementLimits::default_for(settings.precision).with_overrides(overrides.into_iter().flatten())
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
        warnings.extend(slow_first_pass(measured));
        match measured.failed_samples {
            0 => {}
            1 => warnings.push(format!("{name}: 1 sample could not be read")),
            count => warnings.push(format!("{name}: {count} samples could not be read")),
        }
    }
    warnings
}

/// Returns this machine with the devices of the phases.
pub(super) fn host_record(name: &str, phases: &[PhaseRecord], vendor: &Vendor) -> HostRecord {
    let machine = Machine::detect();
    let devices = DeviceRecord::of_phases(phases, &machine, vendor);
    HostRecord { name: name.to_owned(), machine, devices }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_config::fixture::Checkout;
    use flagperf_core::event::{EngineFacts, FileFacts, ModelFacts};
    use flagperf_core::measure::{Measurement, PassTimes};
    use flagperf_core::step::{Phase, Step};
    use flagperf_core::units::{Bytes, SamplesPerSecond};
    use flagperf_result::{ClockCheck, FileRecord, StepRecord, testing};

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
        let measured = Measurement {
            device_memory_bytes_max: Some(Bytes(memory)),
            throughput_core_samples_per_s: Some(SamplesPerSecond(1e3)),
            multiply_adds_per_sample: Some(multiply_adds),
            ..testing::measurement(phase.measured_step())
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
        let settings = crate::testing::job().settings;
        let hosts = vec![host_record("localhost", &record.phases, &vendor())];
        conclude(&mut record, hosts, &settings, &Parameters::default(), Seconds(1.0));
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
    fn a_worker_whose_clock_differs_from_the_conductors_fails_the_case() {
        let failures = |time: f64, conductor: f64| {
            let mut phase = phase(Phase::Infer, "cpu", "f32", 1, 1);
            let clock = ClockCheck { conductor_s: Seconds(conductor), discrepancy: time / conductor - 1.0 };
            let detail = String::new();
            phase.audit = Some(flagperf_core::measure::AuditReport::default());
            phase.steps =
                vec![StepRecord { step: Step::Inference, detail, time_s: Some(Seconds(time)), clock: Some(clock) }];
            let record = concluded(vec![phase]);
            record.failures.into_iter().map(|failure| failure.reason).collect::<Vec<_>>()
        };
        let expected = "the step took 300.0 s by the worker's clock, but 600.0 s by that of the main process";
        assert_eq!(failures(300.0, 600.0), [expected]);
        assert_eq!(failures(f64::NAN, 600.0).len(), 1);
        assert_eq!(failures(596.0, 600.0), [""; 0], "less than 5 %");
        assert_eq!(failures(0.2, 1.1), [""; 0], "events that arrive late");
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
        let expected = "inference: the first pass's core time was 4.0x that of a later pass; does the engine cache results, or was the machine busy?";
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
            infer.audit = Some(flagperf_core::measure::AuditReport::default());
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
