//! The measured peaks of a device, which `flagperf peak --json` writes, beside the rates of a record.

use std::path::Path;

use flagperf_core::regular_file::read_regular_text;
use flagperf_microbenchmark::{Limit, OperatorFigures};
use flagperf_page::{Check, ReadResult, Roof, Roofline, RooflinePoint};
use flagperf_result::Record;
use serde::Deserialize;

use super::history::unusable;
use super::microbenchmark_text::value_text;

/// Largest size of the file in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// What is read of a limit in the file.
#[derive(Debug, Deserialize)]
struct MeasuredPeak {
    limit: String,
    value: Option<f64>,
    /// The device, as its driver names it, or else as the engine does.
    device: Option<String>,
    figures: Option<OperatorFigures>,
}

/// The measured peaks of a device.
#[derive(Debug)]
pub(super) struct MeasuredPeaks {
    name: String,
    peaks: Vec<MeasuredPeak>,
}

impl MeasuredPeaks {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or was not written by `flagperf peak --json`.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let name = path.display().to_string();
        let text = read_regular_text(path, BYTES_MAX).map_err(|error| format!("`{name}`: {error}"))?;
        let hint = "\n  hint: `flagperf peak --json` writes it";
        let peaks =
            serde_json::from_str(&text).map_err(|error| format!("`{name}`: not measured peaks: {error}{hint}"))?;
        Ok(MeasuredPeaks { name, peaks })
    }

    /// Returns the share of the measured peak that the headline phase of a record reaches, as a line of text, or why it is unknown.
    pub(super) fn line(&self, record: &Record) -> String {
        format!("measured peak  {}\n", self.share(record).unwrap_or_else(|reason| format!("unknown: {reason}")))
    }

    fn share(&self, record: &Record) -> Result<String, String> {
        let (peak, value) = self.product(record)?;
        let rate = record.flops.counted_flops_per_s.or(record.flops.declared_flops_per_s);
        let rate = rate.ok_or("the operations of the model are unknown")?;
        let (share, reached) = (rate.0 / value * 100.0, value_text(value, "FLOP/s"));
        Ok(format!("{share:.1} % of {reached}, `{}` in `{}`", peak.limit, self.name))
    }

    /// Returns the peak of products in the precision of a record on its device, with its value.
    fn product(&self, record: &Record) -> Result<(&MeasuredPeak, f64), String> {
        let phase = record.headline_phase().and_then(|phase| phase.engine.as_ref());
        let engine = phase.ok_or("nothing was measured")?;
        let is_format = |peak: &&MeasuredPeak| {
            let operator = Limit::find(&peak.limit).ok().and_then(Limit::operator);
            operator.is_some_and(|(row, format)| row.flops.is_some() && format.peak_name() == engine.precision)
        };
        let peak = self.peaks.iter().find(is_format);
        let peak = peak.ok_or_else(|| format!("`{}` has no product in {}", self.name, engine.precision))?;
        let device = peak.device.as_deref().unwrap_or_default();
        let processor = record.hosts.first().map(|host| host.machine.cpu.trim());
        let is_same =
            if engine.runs_on_processor() { processor == Some(device) } else { engine.device.ends_with(device) };
        if device.is_empty() || !is_same {
            return Err(format!("`{}` is of the device `{device}`, and the record of `{}`", self.name, engine.device));
        }
        let value = peak.counted().ok_or_else(|| format!("`{}` in `{}` does not count", peak.limit, self.name))?;
        Ok((peak, value))
    }

    /// Returns the results under the peaks of their devices, with the reasons why others are not.
    pub(super) fn roofline(&self, results: &[(ReadResult, Check)]) -> Roofline {
        let mut found = Roofline::default();
        for (result, check) in results {
            let place = match unusable(check) {
                Some(reason) => Err(reason),
                None => self.add_roof(&mut found.roofs, &result.record).and_then(|roof| {
                    let name = format!("{} {}", result.record.key(), result.place());
                    RooflinePoint::of(&result.record, name.trim_end().to_owned(), roof)
                }),
            };
            match place {
                Ok(point) => found.points.push(point),
                Err(reason) => found.unused.push(format!("{}: {reason}", result.record.key())),
            }
        }
        found
    }

    /// Returns the index of the roof of a record, which is added if it is new.
    fn add_roof(&self, roofs: &mut Vec<Roof>, record: &Record) -> Result<usize, String> {
        let (product, flops_per_s) = self.product(record)?;
        let is_memory = |peak: &&MeasuredPeak| peak.limit == "main_memory-bandwidth" && peak.device == product.device;
        let memory = self.peaks.iter().find(is_memory).and_then(MeasuredPeak::counted);
        let bytes_per_s =
            memory.ok_or_else(|| format!("`{}` has no bandwidth of the device's memory that counts", self.name))?;
        let precision = product.limit.trim_start_matches("computation-").to_owned();
        let roof = Roof { device: product.device.clone().unwrap_or_default(), precision, flops_per_s, bytes_per_s };
        Ok(roofs.iter().position(|known| *known == roof).unwrap_or_else(|| {
            roofs.push(roof);
            roofs.len() - 1
        }))
    }
}

impl MeasuredPeak {
    /// Returns the value, if it counts.
    fn counted(&self) -> Option<f64> {
        let counts = self.figures.as_ref().is_none_or(|figures| figures.reasons.is_empty());
        self.value.filter(|value| counts && *value > 0.0)
    }
}
