//! The figures and verdicts of a record, computed again from its events.

use indexmap::IndexMap;
use serde::de::DeserializeOwned;

use super::CaseReport;
use super::difference::compare;
use super::events::{Replay, ReplayedPhase};
use flagperf_config::{InputCost, default_unit, parse_flops};
use flagperf_core::metric::AgreementLimits;
use flagperf_core::precision::Precision;
use flagperf_core::run_files::RECORD_FILE;
use flagperf_result::{
    Accuracy, AgreementCheck, AuditCheck, FinishInfo, PhaseRecord, Record, SAMPLES_KIND, Status, Validity,
    ValidityCheck, hardware_warning, output_time_warnings, padding_warnings, verdict_failures,
};

/// Compares a record with what its events yield.
pub(super) fn check_figures(record: &Record, replay: &Replay, report: &mut CaseReport) {
    check_phases(record, replay, report);
    check_phase_settings(record, report);
    let replayed = |(index, found): (usize, &PhaseRecord)| match replay.phases.get(index) {
        Some(replayed) => expected_phase(found, replayed),
        None => without_events(found),
    };
    let phases = record.phases.iter().enumerate().map(replayed).collect();
    check_derived(&Record { phases, ..record.clone() }, record, report);
    let peak = record.headline_device().and_then(|device| device.peak.as_ref());
    let derived = [record.flops.difference_warning(), record.flops.beyond_peak_warning(peak), hardware_warning(record)]
        .into_iter()
        .flatten();
    let warnings = replay.phases.iter().flat_map(|phase| phase.warnings.clone());
    for warning in warnings.chain(derived).chain(padding_warnings(record)).chain(output_time_warnings(record)) {
        if !record.warnings.contains(&warning) {
            report.add(RECORD_FILE, "warnings", Some(warning), None);
        }
    }
}

fn check_phases(record: &Record, replay: &Replay, report: &mut CaseReport) {
    if record.phases.len() < replay.phases.len() {
        let count = |count: usize| Some(count.to_string());
        report.add(RECORD_FILE, "number of phases", count(replay.phases.len()), count(record.phases.len()));
    }
    for (index, found) in record.phases.iter().enumerate() {
        let place = format!("phases[{index}]");
        match replay.phases.get(index) {
            Some(replayed) => {
                compare(report, RECORD_FILE, &place, &expected_phase(found, replayed), found);
                if let (Some(failure), Status::Ok) = (&replayed.failure, record.status) {
                    report.add(RECORD_FILE, "status", Some(format!("failed: {failure}")), Some("ok".to_owned()));
                }
            }
            // A worker that was ended before its first event yields no figures.
            None => compare(report, RECORD_FILE, &place, &without_events(found), found),
        }
    }
}

/// Compares the size of batches and the precision that the phases state with the settings.
fn check_phase_settings(record: &Record, report: &mut CaseReport) {
    // Each of the processes that train together has its part of a batch.
    let processes = u32::try_from(record.processes()).unwrap_or(u32::MAX);
    let batch_size = setting(record, "batch_size").and_then(|batch_size: u32| batch_size.checked_div(processes));
    // In place of TF32, a phase may compute in fp32.
    let precision: Option<Precision> = setting(record, "precision").filter(|precision| *precision != Precision::Tf32);
    for (index, phase) in record.phases.iter().enumerate() {
        for (number, measured) in phase.measured.iter().enumerate() {
            let place = format!("phases[{index}].measured[{number}].batch_size");
            compare(report, RECORD_FILE, &place, &batch_size.unwrap_or(measured.batch_size), &measured.batch_size);
        }
        if let Some(engine) = &phase.engine {
            let expected =
                precision.map_or_else(|| engine.precision.clone(), |precision| precision.arithmetic().to_owned());
            compare(report, RECORD_FILE, &format!("phases[{index}].engine.precision"), &expected, &engine.precision);
        }
    }
}

/// Returns the record of a phase as it should be: only the conductor knows how the process ended, what it executed and the
/// samples file.
fn expected_phase(found: &PhaseRecord, replayed: &ReplayedPhase) -> PhaseRecord {
    let mut expected = replayed.record.clone();
    expected.files.extend(found.files.iter().filter(|file| file.what == SAMPLES_KIND).cloned());
    observed(expected, found)
}

fn without_events(found: &PhaseRecord) -> PhaseRecord {
    observed(PhaseRecord::new(found.phase), found)
}

/// Replaces what the conductor observed by what the record says.
fn observed(expected: PhaseRecord, found: &PhaseRecord) -> PhaseRecord {
    PhaseRecord {
        time_s: found.time_s,
        ending: found.ending.clone(),
        conditions: found.conditions.clone(),
        // The samples of the monitors are compared separately.
        usage: found.usage.clone(),
        libraries: found.libraries.clone(),
        observed_memory_bytes_max: found.observed_memory_bytes_max,
        ..expected
    }
}

/// Returns the record with everything computed again that follows from its measurements and settings.
pub fn recomputed(record: &Record) -> Record {
    let mut expected = record.clone();
    for measured in expected.phases.iter_mut().flat_map(|phase| &mut phase.measured) {
        *measured = measured.clone().with_sums();
    }
    let mut expected = derived(&expected, record);
    expected.validity = ValidityCheck::judge(&expected);
    expected
}

/// Computes what follows from the phases of `expected`, and compares it with the record.
pub(super) fn check_derived(expected: &Record, found: &Record, report: &mut CaseReport) {
    let expected = derived(expected, found);
    compare(report, RECORD_FILE, "phases", &expected.phases, &found.phases);
    compare(report, RECORD_FILE, "unit", &expected.unit, &found.unit);
    compare(report, RECORD_FILE, "accuracy", &expected.accuracy, &found.accuracy);
    compare(report, RECORD_FILE, "agreement", &expected.agreement, &found.agreement);
    compare(report, RECORD_FILE, "audit", &expected.audit, &found.audit);
    compare(report, RECORD_FILE, "hosts", &expected.hosts, &found.hosts);
    compare(report, RECORD_FILE, "flops", &expected.flops, &found.flops);
    compare(report, RECORD_FILE, "finish_info", &expected.finish_info, &found.finish_info);
    compare(report, RECORD_FILE, "provenance", &expected.provenance, &found.provenance);
    check_verdict(&expected, found, report);
}

/// Returns a record with the phases of `expected` and with what follows from them and from the settings of `found`.
fn derived(expected: &Record, found: &Record) -> Record {
    let mut expected = expected.clone();
    // A training has its target in training.yaml.
    let target = setting(found, "target").or_else(|| setting(found, "target_accuracy")).unwrap_or_default();
    expected.accuracy = Accuracy::judge(&expected.phases, target);
    let limits = agreement_limits(found);
    let cost = setting::<InputCost>(found, "input_cost").unwrap_or_default();
    expected.audit = AuditCheck::judge(&expected.phases, &limits, cost, &expected.accuracy);
    expected.agreement = AgreementCheck::judge(&expected.phases, limits, cost);
    for host in &mut expected.hosts {
        for device in &mut host.devices {
            let phase = expected.phases.iter().find(|phase| phase.phase == device.phase);
            device.memory_bytes_max = phase.and_then(PhaseRecord::device_memory_used);
        }
    }
    expected.unit = setting(found, "unit").unwrap_or_else(default_unit);
    expected.flops.declared = setting(found, "flops").unwrap_or_default();
    expected.flops.declared_per_multiply_add = setting(found, "flops_per_multiply_add");
    expected.flops.declared_per_sample = match expected.flops.declared.as_str() {
        // The training of a case need not declare its operations.
        "" => 0.0,
        declared => parse_flops(declared).unwrap_or(f64::NAN),
    };
    expected.flops = expected.flops.with_rates(&expected);
    expected.finish_info = FinishInfo {
        compiler: setting(found, "compiler"),
        precision: setting(found, "precision").unwrap_or_default(),
        batchsize: setting(found, "batch_size").unwrap_or_default(),
        e2e_time: found.finish_info.e2e_time,
        ..FinishInfo::default()
    }
    .with_figures(&expected);
    let phases = std::mem::take(&mut expected.phases);
    expected.provenance.fill_hashes(&phases);
    expected.phases = phases;
    expected
}

/// Returns a setting of the record; `None` when it is missing or of another type.
fn setting<T: DeserializeOwned>(record: &Record, key: &str) -> Option<T> {
    serde_json::from_value(record.settings.get(key)?.value.clone()).ok()
}

/// Returns the limits of agreement that the settings of the record give.
fn agreement_limits(record: &Record) -> AgreementLimits {
    let name = record.finish_info.precision.as_str();
    let precision: Precision = serde_json::from_value(name.into()).unwrap_or(Precision::Fp32);
    let overrides: IndexMap<String, IndexMap<String, f64>> = setting(record, "agreement").unwrap_or_default();
    AgreementLimits::default_for(precision).with_overrides(overrides.get(name).into_iter().flatten())
}

fn check_verdict(expected: &Record, found: &Record, report: &mut CaseReport) {
    for failure in verdict_failures(expected) {
        if !found.failures.iter().any(|known| known.reason == failure.reason) {
            report.add(RECORD_FILE, "failures", Some(failure.reason), None);
        }
    }
    let validity = ValidityCheck::judge(found);
    compare(report, RECORD_FILE, "validity", &validity, &found.validity);
    if found.status == Status::Ok && validity.verdict == Validity::Invalid {
        report.add(RECORD_FILE, "status", Some("failed".to_owned()), Some("ok".to_owned()));
    }
}
