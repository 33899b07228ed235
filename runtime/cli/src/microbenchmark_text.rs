//! The figures of operators and limits as text.

use flagperf_core::text::one_line;
use flagperf_core::units::Seconds;
use flagperf_microbenchmark::{Format, OperatorFigures};
use flagperf_report::headed_table;

use super::microbenchmark_results::{LimitResult, OperatorResult, sizes_text};

/// The bytes of a GiB.
const GIBI: f64 = (1u64 << 30) as f64;
/// The bytes of a MiB.
const MEBI: f64 = (1u64 << 20) as f64;

/// Returns a table of operators with what is wrong.
pub(super) fn operators_text(results: &[OperatorResult], columns: u16) -> String {
    let head = ["operator", "call", "rate", "kernel", "waited for", "first call", "error"];
    let mut rows = vec![head.map(str::to_owned)];
    for result in results {
        let name = name_text(result);
        let (Some(figures), Some(times)) = (&result.figures, &result.times) else {
            rows.push([name, "-".into(), "-".into(), "-".into(), "-".into(), "-".into(), "-".into()]);
            continue;
        };
        let share = figures.peak_share.map(|share| format!(" ({:.1} %)", share * 100.0));
        rows.push([
            name,
            time_text(figures.call_s.0),
            rate_text(figures, result.format) + share.unwrap_or_default().as_str(),
            known_time(figures.kernel_s),
            known_time(figures.latency.as_ref().map(|latency| latency.p50_s)),
            time_text(times.first_call_s.0),
            format!("{:.1e}", times.comparison.error.max(times.comparison_of_new_inputs.error)),
        ]);
    }
    let mut text = headed_table(rows, columns);
    if let Some(times) = results.iter().find_map(|result| result.times.as_ref()) {
        let device = times.device_name.as_deref().unwrap_or(&times.device);
        text += &format!("device  {}, {} {}\n", one_line(device), one_line(&times.engine), one_line(&times.version));
        if !times.inputs_on_device && times.device != "cpu" {
            text += "inputs  in host memory: each call also copies them to the device\n";
        }
    }
    for result in results {
        let name = name_text(result);
        if let Some(failure) = &result.failure {
            text += &format!("not measured: {name}: {}\n", one_line(failure));
        }
        for reason in result.figures.iter().flat_map(|figures| &figures.reasons) {
            text += &format!("does not count: {name}: {}\n", one_line(reason));
        }
        if let Some(reason) = result.times.as_ref().and_then(|times| times.compared_smaller.as_ref()) {
            text += &format!("note: {name}: {}\n", one_line(reason));
        }
        if let Some(warnings) = result.times.as_ref().map(|times| &times.warnings) {
            warnings.iter().for_each(|warning| text += &format!("note: {name}: {}\n", one_line(warning)));
        }
    }
    text
}

fn known_time(time: Option<Seconds>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| time_text(time.0))
}

/// Returns an operator with its format and the sizes that were given.
pub(super) fn name_text(result: &OperatorResult) -> String {
    let sizes = sizes_text(&result.sizes);
    format!("{}:{} {sizes}", result.operator, result.format.name).trim_end().to_owned()
}

/// Returns a table of limits with what is not measured, and FlagPerf's rows.
pub(super) fn peak_text(results: &[LimitResult], columns: u16) -> String {
    let mut rows = vec![["limit", "measured", "data sheet", "share", "at"].map(str::to_owned)];
    for result in results {
        let Some(value) = result.value else { continue };
        let at = match (result.size, result.bytes) {
            (Some(size), _) if result.unit.ends_with("OP/s") => format!("{size} x {size} x {size}"),
            (Some(size), _) => format!("{size} Mi elements"),
            (None, Some(bytes)) => format!("tensors of {} MiB", digits(bytes.0 as f64 / MEBI)),
            (None, None) => String::new(),
        };
        rows.push([
            result.limit.to_owned(),
            value_text(value, result.unit),
            result.data_sheet_value.map_or_else(|| "-".to_owned(), |value| value_text(value, result.unit)),
            share_text(result.data_sheet_value.map(|sheet| value / sheet)),
            at,
        ]);
    }
    let mut text = headed_table(rows, columns);
    if let Some((result, device)) = results.iter().find_map(|result| Some((result, result.device.as_ref()?))) {
        let several = if result.devices > 1 { format!("{} x ", result.devices) } else { String::new() };
        let hosts = if result.hosts > 1 { format!(", on {} hosts", result.hosts) } else { String::new() };
        text += &format!("device  {several}{}{hosts}\n", one_line(device));
        if result.devices > 1 && result.hosts == 1 && result.times.as_ref().is_some_and(|times| times.device() == "cpu")
        {
            text +=
                "note: the processes share the processor: the figure is that of their memory, and of no interconnect\n";
        }
    }
    for result in results {
        if let Some(failure) = &result.failure {
            text += &format!("not measured: {}: {}\n", result.limit, one_line(failure));
        }
        for reason in &result.reasons {
            text += &format!("does not count: {}: {}\n", result.limit, one_line(reason));
        }
    }
    results.iter().for_each(|result| text += &flagperf_rows(result));
    text
}

/// Returns the rows that FlagPerf prints for a limit, with its spelling.
fn flagperf_rows(result: &LimitResult) -> String {
    let Some(value) = result.value.filter(|_| result.reasons.is_empty()) else { return String::new() };
    let in_units: &[(f64, &str)] = match result.unit {
        "FLOP/s" => &[(1e12, "TFLOPS")],
        "OP/s" => &[(1e12, "TOPS")],
        "B/s" => &[(1e9, "GB/s"), (GIBI, "GiB/s")],
        _ => &[(1e9, "GB"), (GIBI, "GiB")],
    };
    let row =
        |(scale, unit): &(f64, &str)| format!("[FlagPerf Result]Rank 0's {}={:.2}{unit}\n", result.row, value / scale);
    in_units.iter().map(row).collect()
}

/// Returns the rate of operations of a matrix product, or else that of bytes.
pub(super) fn rate_text(figures: &OperatorFigures, format: Format) -> String {
    match figures.flops_per_s {
        Some(rate) => value_text(rate, format.rate_unit()),
        None => value_text(figures.bytes_per_s, "B/s"),
    }
}

/// Returns a value with a decimal prefix and four significant digits.
pub(super) fn value_text(value: f64, unit: &str) -> String {
    let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];
    let (scale, prefix) = prefixes.into_iter().find(|(scale, _)| value >= *scale).unwrap_or((1.0, ""));
    format!("{} {prefix}{unit}", digits(value / scale))
}

/// Returns a time in seconds, ms or µs.
pub(super) fn time_text(seconds: f64) -> String {
    match seconds {
        seconds if seconds >= 1.0 => format!("{} s", digits(seconds)),
        seconds if seconds >= 1e-3 => format!("{} ms", digits(seconds * 1e3)),
        seconds => format!("{} µs", digits(seconds * 1e6)),
    }
}

fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.1}"),
        value if value >= 10.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

fn share_text(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}
