//! What is measured of operators and limits, with the figures of the data sheet, and how it is printed.

use std::path::Path;
use std::process::ExitCode;

use flagperf_config::Vendor;
use flagperf_core::exit_code;
use flagperf_core::units::Bytes;
use flagperf_microbenchmark::{
    DataSheet, ExchangeFigures, Format, Limit, LimitTimes, LimitValue, OperatorFigures, OperatorTimes, Reason,
};
use flagperf_report::columns;
use indexmap::IndexMap;
use serde::Serialize;

use super::microbenchmark_page::peak_page;
use super::microbenchmark_text::peak_text;
use super::output::{print_mistake, print_result, write_file};

/// Exit code: something was not measured, or does not count.
const EXIT_UNSOUND: u8 = 1;

/// An operator in one format and one shape: what was measured, or why not.
#[derive(Debug, Serialize)]
pub(super) struct OperatorResult {
    pub(super) operator: String,
    pub(super) format: Format,
    pub(super) sizes: IndexMap<String, usize>,
    pub(super) flops: Option<f64>,
    pub(super) figures: Option<OperatorFigures>,
    pub(super) data_sheet: DataSheet,
    pub(super) times: Option<OperatorTimes>,
    pub(super) failure: Option<String>,
}

/// A limit: what was measured, or why not.
#[derive(Debug, Serialize)]
pub(super) struct LimitResult {
    pub(super) limit: &'static str,
    pub(super) row: &'static str,
    pub(super) unit: &'static str,
    /// The device, as its driver names it, or else as the engine does.
    pub(super) device: Option<String>,
    /// The number of these devices that were measured together, and of their hosts.
    pub(super) devices: usize,
    pub(super) hosts: usize,
    pub(super) value: Option<f64>,
    /// The size at which it was reached, and the figures there, if it was measured by an operator.
    pub(super) size: Option<usize>,
    pub(super) figures: Option<OperatorFigures>,
    /// The bytes of the tensors by which it was reached, and the figures of each size, if it is that of several devices.
    pub(super) bytes: Option<Bytes>,
    pub(super) exchange: Vec<ExchangeFigures>,
    /// Why it does not count; empty if it does.
    pub(super) reasons: Vec<Reason>,
    pub(super) data_sheet_value: Option<f64>,
    pub(super) data_sheet: DataSheet,
    pub(super) times: Option<LimitTimes>,
    pub(super) failure: Option<String>,
}

/// How results are printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output<'p> {
    /// As JSON, not as text.
    pub(super) json: bool,
    /// The page that is also written.
    pub(super) page: Option<&'p Path>,
    /// Whether a signal has ended the measurements.
    pub(super) is_interrupted: bool,
}

impl Output<'_> {
    /// Prints results and writes the page.
    pub(super) fn print<T: Serialize>(
        self,
        results: &[T],
        text: String,
        page: fn(&[T], &str) -> String,
        is_sound: bool,
    ) -> anyhow::Result<ExitCode> {
        let code = match (self.is_interrupted, is_sound) {
            (true, _) => exit_code::INTERRUPTED,
            (false, true) => exit_code::OK,
            (false, false) => EXIT_UNSOUND,
        };
        if let Some(path) = self.page
            && let Err(message) = write_file(path, &page(results, &text))
        {
            return Ok(print_mistake(&message));
        }
        let shown = if self.json { format!("{}\n", serde_json::to_string_pretty(results)?) } else { text };
        Ok(print_result(&shown, code))
    }

    /// Prints limits of one device or of several ones that are measured together.
    pub(super) fn print_limits(self, results: &[LimitResult], are_several: bool) -> anyhow::Result<ExitCode> {
        self.print(results, peak_text(results, columns()), peak_page, {
            are_sound(results.iter().map(|result| (result.failure.is_none(), result.reasons.is_empty())), are_several)
        })
    }
}

/// Returns whether limits, of each of which is known whether it was measured and counts, are what was asked for. What one device does not
/// have is no failure, as long as something was measured; several devices have all the limits that are measured with them.
fn are_sound(limits: impl Iterator<Item = (bool, bool)> + Clone, are_several: bool) -> bool {
    let is_allowed = |(is_measured, counts): (bool, bool)| if is_measured { counts } else { !are_several };
    limits.clone().any(|limit| limit == (true, true)) && limits.clone().all(is_allowed)
}

/// Returns what vendor.yaml says of a device in a format.
pub(super) fn data_sheet(vendor: &Vendor, device: Option<&str>, format: Format) -> DataSheet {
    let Some(device) = device.and_then(|name| vendor.device(name)) else { return DataSheet::default() };
    DataSheet {
        device: device.name.clone(),
        flops_per_s: device.peak_flops_per_s.get(format.peak_name()).map(|peak| peak.0),
        bytes_per_s: device.bandwidth_bytes_per_s,
        memory_bytes: device.memory_bytes.map(|bytes| bytes.0 as f64),
        source: device.source.clone(),
    }
}

impl LimitResult {
    /// Returns the limit that follows from what so many hosts measured, or why nothing does.
    pub(super) fn of(
        vendor: &Vendor,
        limit: &Limit,
        hosts: usize,
        measured: Result<Option<LimitTimes>, String>,
    ) -> LimitResult {
        let (times, failure) = measured.map_or_else(|reason| (None, Some(reason)), |times| (times, None));
        let device = times.as_ref().map(|times| times.device_name().unwrap_or(times.device()).to_owned());
        let data_sheet = data_sheet(vendor, device.as_deref(), format_of(limit));
        let found = times.as_ref().and_then(|times| times.value(&data_sheet));
        let value = found.as_ref().map(|found| found.value);
        let LimitValue { size, figures, bytes, exchange, reasons, .. } = found.unwrap_or_default();
        LimitResult {
            limit: limit.name,
            row: limit.row,
            unit: limit.unit(),
            device,
            devices: times.as_ref().map_or(1, LimitTimes::devices),
            hosts,
            value,
            size,
            figures,
            bytes,
            exchange,
            reasons,
            data_sheet_value: limit.data_sheet_value(&data_sheet),
            data_sheet,
            times,
            failure,
        }
    }
}

/// Returns the format in which a limit is measured.
pub(super) fn format_of(limit: &Limit) -> Format {
    limit.operator().map_or(Format::FP32, |(_, format)| format)
}

/// Returns sizes as text: `M=1024 N=1024`.
pub(super) fn sizes_text(sizes: &IndexMap<String, usize>) -> String {
    sizes.iter().map(|(name, size)| format!("{name}={size}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_one_device_lacks_is_no_failure_and_one_that_several_did_not_reach_is() {
        let [measured, failed, uncounted] = [(true, true), (false, true), (true, false)];
        let of_both =
            |limits: &[(bool, bool)]| [false, true].map(|are_several| are_sound(limits.iter().copied(), are_several));
        assert_eq!(of_both(&[measured, failed]), [true, false]);
        assert_eq!(of_both(&[measured]), [true, true]);
        assert_eq!(of_both(&[failed]), [false, false]);
        assert_eq!(of_both(&[measured, uncounted]), [false, false]);
    }
}
