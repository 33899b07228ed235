//! A case on several numbers of devices: sums, efficiency, and what training together costs.

use flagperf_core::measure::Measurement;
use flagperf_core::units::Bytes;
use flagperf_result::{GroupCommunication, Record, Status, Summary, Validity};
use serde::Serialize;

use super::comparable::{BATCH_SIZE, Difference, differences, headline};
use super::comparison::{ComparisonError, Side, result_of_both};

/// The settings that follow from the number of devices.
const OF_SCALE: [&str; 2] = ["batch_size", "eval_batch_size"];

/// A case on several numbers of devices, in the order in which they were given.
#[derive(Clone, Debug, Serialize)]
pub struct ScalingTable {
    pub rows: Vec<ScalingRow>,
}

/// The results of a case on one number of devices.
#[derive(Clone, Debug, Serialize)]
pub struct ScalingRow {
    /// The path of the results.
    pub name: String,
    pub devices: u64,
    /// Samples of a batch on one device.
    pub batch_size: u32,
    /// Sum of the core throughputs of all devices, in samples per second.
    pub throughput_samples_per_s: f64,
    /// The throughput for each device, by that of the first row.
    pub efficiency: f64,
    /// What training together costs; `None` if it is not known of every device, and for one.
    pub communication: Option<GroupCommunication>,
    /// The result of the slowest device alone, by its folder; `None` if that is not known.
    pub slowest: Option<String>,
    /// The worst verdict of its results and its summary.
    pub validity: Validity,
    /// What its summary warns of, and what changed while it was trained.
    pub warnings: Vec<String>,
    /// What differs from the first row beside the numbers of hosts and devices.
    pub differences: Vec<Difference>,
    /// The largest device memory of all results.
    pub device_memory_bytes_max: Option<Bytes>,
    /// Energy of all devices divided by all samples, in joules; `None` unless it is known of each.
    pub device_energy_j_per_sample: Option<f64>,
}

impl ScalingTable {
    /// Makes the table of results on different numbers of devices: those of each in the order of their ranks, with their summary if there are
    /// several. Batches must have the same size on each device or in sum. `anyway` also
    /// compares what is not of the same work.
    ///
    /// # Errors
    /// When a side lacks the result of a device, has one of another side, or is not of the same work as the first.
    pub fn of(sides: &[(Side, Option<Summary>)], anyway: bool) -> Result<Self, ComparisonError> {
        let mut rows: Vec<ScalingRow> = Vec::new();
        for (index, (side, summary)) in sides.iter().enumerate() {
            if let Some(path) = sides[..index].iter().find_map(|(other, _)| result_of_both([other, side])) {
                return Err(ComparisonError::InTwoSides(path.to_owned()));
            }
            let mut row = ScalingRow::of(side, summary.as_ref())?;
            let of_first = rows.first().map(|first| first.throughput_samples_per_s / first.devices as f64);
            let of_device = row.throughput_samples_per_s / row.devices as f64;
            row.efficiency = of_first.map_or(1.0, |first| of_device / first);
            let has_first_size = rows.first().is_none_or(|first| first.batch_size == row.batch_size);
            let first = &sides[0].0.results[0].1;
            let is_of_scale = |difference: &Difference| {
                difference.what == BATCH_SIZE && has_first_size || OF_SCALE.contains(&&*difference.what)
            };
            let found = differences(first, &side.results[0].1);
            row.differences = found.into_iter().filter(|difference| !is_of_scale(difference)).collect();
            let prevented: Vec<_> = row.differences.iter().filter(|difference| difference.prevents).cloned().collect();
            if !prevented.is_empty() && !anyway {
                return Err(ComparisonError::NotComparable(prevented));
            }
            rows.push(row);
        }
        Ok(ScalingTable { rows })
    }
}

impl ScalingRow {
    fn of(side: &Side, summary: Option<&Summary>) -> Result<Self, ComparisonError> {
        let unusable = |reason: String| ComparisonError::Unusable { side: side.name.clone(), reason };
        let records: Vec<&Record> = side.results.iter().map(|(_, record)| record).collect();
        let Some(first) = records.first() else { return Err(unusable("it has no result".to_owned())) };
        let devices = records.len() as u64;
        if first.processes() > 1 && first.processes() != devices {
            let all = first.processes();
            return Err(unusable(format!(
                "it has the results of {devices} of {all} devices: give the folder of the case"
            )));
        }
        if let Some(again) =
            (1..records.len()).find(|i| records[..*i].iter().any(|other| other.place() == records[*i].place()))
        {
            let path = side.results[again].0.display();
            return Err(unusable(format!(
                "`{path}` ran on the same device as another result: give the folder of one case"
            )));
        }
        let mut rows = Vec::new();
        for (path, record) in &side.results {
            let measured = headline(record).filter(|_| record.status == Status::Ok);
            let rate = measured.and_then(|measured| Some((measured, measured.throughput_core_samples_per_s?.0)));
            rows.push(rate.ok_or_else(|| unusable(format!("the result `{}` has no figures", path.display())))?);
        }
        let own: Option<Vec<_>> = records.iter().map(|record| record.communication()).collect();
        let communication = own.and_then(|ranks| GroupCommunication::of(&ranks));
        let slowest = communication.map(|group| side.results[group.slowest_rank as usize].0.display().to_string());
        let samples: u64 = rows.iter().map(|(measured, _)| measured.samples).sum();
        let energy = |(record, (measured, _)): (&&Record, &(&Measurement, f64))| {
            Some(record.headline_phase()?.usage.as_ref()?.device_energy_j_per_sample? * measured.samples as f64)
        };
        let energy: Option<f64> = records.iter().zip(&rows).map(energy).sum();
        let parts = records.iter().filter_map(|record| record.headline_phase()?.training.as_ref());
        let changed = parts.map(|training| training.trained_by.len()).max().unwrap_or(0) > 1;
        let changed = changed.then(|| "it was trained on other numbers of devices before it was resumed".to_owned());
        let warnings = summary.map(|summary| summary.warnings.clone()).unwrap_or_default();
        let verdicts = records.iter().map(|record| record.validity.verdict);
        Ok(ScalingRow {
            validity: verdicts.chain(summary.map(|summary| summary.validity)).max().unwrap_or_default(),
            warnings: warnings.into_iter().chain(changed).collect(),
            differences: Vec::new(),
            name: side.name.clone(),
            devices,
            batch_size: rows[0].0.batch_size,
            throughput_samples_per_s: rows.iter().map(|(_, rate)| rate).sum(),
            efficiency: 1.0,
            communication,
            slowest,
            device_memory_bytes_max: rows
                .iter()
                .filter_map(|(measured, _)| Some(measured.device_memory_bytes_max?.0))
                .max()
                .map(Bytes),
            device_energy_j_per_sample: energy.map(|energy| energy / samples as f64),
        })
    }
}
