//! The figures of an operator, from its raw times.

use flagperf_core::measure::Latency;
use flagperf_core::units::Seconds;
use serde::{Deserialize, Serialize};

use super::check::Comparison;
use super::times::{OperatorTimes, Round};

/// By how much reading an output may take longer the first time, as a share of a call.
const DEFERRED_MAX: f64 = 0.5;
/// How many times longer than the slowest call a call with new inputs may take.
const NEW_INPUTS_MAX: f64 = 3.0;

/// The figures of a device's data sheet; `None` where it has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DataSheet {
    /// The device's name in vendor.yaml.
    pub device: String,
    /// Operations per second in the format of the measurement.
    pub flops_per_s: Option<f64>,
    /// Bytes per second of the device's memory.
    pub bytes_per_s: Option<f64>,
    /// The bytes of that memory.
    pub memory_bytes: Option<f64>,
    /// Where the figures are published.
    pub source: String,
}

/// Why a measurement does not count.
pub type Reason = String;

/// The figures of an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorFigures {
    /// The time of a call among calls that are waited for together: the time of all rounds divided by their calls.
    pub call_s: Seconds,
    /// The same of the fastest and the slowest round.
    pub fastest_s: Seconds,
    pub slowest_s: Seconds,
    /// The distribution of the time of a call that is waited for.
    pub latency: Option<Latency>,
    /// The median time of all kernels of a call, as the engine tells it; `None` if it does not.
    pub kernel_s: Option<Seconds>,
    /// Floating-point operations per second of a matrix product.
    pub flops_per_s: Option<f64>,
    /// Bytes of inputs and outputs per second, each counted once, however often the device reads it.
    pub bytes_per_s: f64,
    /// The share of the data sheet's rate: of operations for a matrix product, else of its memory.
    pub peak_share: Option<f64>,
    /// Why the figures do not count; empty if they do.
    pub reasons: Vec<Reason>,
}

impl OperatorFigures {
    /// Computes the figures of an operator that has so many operations, if they are counted.
    pub fn of(times: &OperatorTimes, flops: Option<f64>, sheet: &DataSheet) -> Self {
        let per_call = |round: &Round| round.time_s.0 / round.calls.max(1) as f64;
        let (calls, time) =
            times.rounds.iter().fold((0, 0.0), |(calls, time), round| (calls + round.calls, time + round.time_s.0));
        let call = time / calls.max(1) as f64;
        let extreme = |select: fn(f64, f64) -> f64| Seconds(times.rounds.iter().map(per_call).fold(call, select));
        let bytes_per_s = times.bytes.0 as f64 / call;
        let flops_per_s = flops.map(|flops| flops / call);
        let peak_share = match flops_per_s {
            Some(rate) => sheet.flops_per_s.map(|peak| rate / peak),
            None => sheet.bytes_per_s.filter(|_| times.inputs_on_device).map(|peak| bytes_per_s / peak),
        };
        OperatorFigures {
            call_s: Seconds(call),
            fastest_s: extreme(f64::min),
            slowest_s: extreme(f64::max),
            latency: Latency::of(&times.calls_s),
            kernel_s: Latency::of(&times.kernels_s).map(|times| times.p50_s),
            flops_per_s,
            bytes_per_s,
            peak_share,
            reasons: reasons(times, call, peak_share, sheet),
        }
    }
}

/// What is checked of every measurement.
pub(crate) struct RawChecks<'c> {
    pub comparison: &'c Comparison,
    pub comparison_of_new_inputs: &'c Comparison,
    /// By how much reading an output took longer the first time.
    pub deferred: Seconds,
    /// The time of a call with new inputs, that of a usual call, and that of the slowest.
    pub new_inputs: Seconds,
    pub call: Seconds,
    pub slowest_call: Seconds,
}

fn reasons(times: &OperatorTimes, call: f64, peak_share: Option<f64>, sheet: &DataSheet) -> Vec<Reason> {
    let mut reasons = reasons_of_checks(&RawChecks {
        comparison: &times.comparison,
        comparison_of_new_inputs: &times.comparison_of_new_inputs,
        deferred: times.deferred_s,
        new_inputs: times.new_inputs_s,
        call: Seconds(call),
        slowest_call: Seconds(times.calls_s.iter().fold(call, |slowest, time| slowest.max(time.0))),
    });
    if let Some(share) = peak_share.filter(|share| *share > 1.0) {
        reasons.push(format!(
            "it is faster than the device can be: {:.0} % of the figure in {}",
            share * 100.0,
            sheet.source
        ));
    }
    reasons
}

/// Returns why a measurement does not count, whatever it measured.
pub(crate) fn reasons_of_checks(checks: &RawChecks<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for (what, comparison) in [
        ("the outputs of a measured call", checks.comparison),
        ("the outputs of a call with new inputs", checks.comparison_of_new_inputs),
    ] {
        match &comparison.wrong {
            Some(wrong) => reasons.push(format!("{what} are wrong: {wrong}")),
            None if !comparison.is_right() => reasons.push(format!(
                "{what} differ from the reference by {:.1e} of its largest element (allowed: {:.1e})",
                comparison.error, comparison.limit
            )),
            None => {}
        }
    }
    if checks.deferred.0 > DEFERRED_MAX * checks.call.0 {
        reasons.push(format!(
            "reading outputs took {:.3} ms longer the first time, so the engine computes when they are read (a call: {:.3} ms)",
            checks.deferred.0 * 1e3,
            checks.call.0 * 1e3
        ));
    }
    if checks.new_inputs.0 > NEW_INPUTS_MAX * checks.slowest_call.0 {
        reasons.push(format!(
            "a call with new inputs took {:.3} ms, {:.0} times as long as the slowest with known ones",
            checks.new_inputs.0 * 1e3,
            checks.new_inputs.0 / checks.slowest_call.0
        ));
    }
    reasons
}
