//! Work of a sample, declared and counted, and the rates and utilisation that follow.

use serde::{Deserialize, Serialize};

use crate::units::{FlopsPerSecond, SamplesPerSecond};

/// Declared and counted work that differ by more than this factor are reported; rounding of the declared figure is not.
const DIFFERENCE: f64 = 1.75;

/// The peak rate of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// The rate.
    pub flops_per_s: FlopsPerSecond,
    /// The precision that it holds for: `f16`.
    pub precision: String,
    /// The data sheet it comes from.
    pub source: String,
}

/// Floating-point work of one sample, as `flops` declares it and as counted over the graph.
///
/// FlagPerf's `flops` of the convolutional cases counts a multiply-add once (ResNet-50: 4.12e9), that of the language
/// cases twice; peaks count it twice. So the figures made from `flops` are FlagPerf's, and the counted ones, a
/// multiply-add always two operations, stand beside them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlopCount {
    /// `flops` as written.
    pub declared: String,
    /// `flops`, evaluated.
    pub declared_per_sample: f64,
    /// Operations counted over the graph, two for a multiply-add; `None` when a shape is unknown.
    pub counted_per_sample: Option<f64>,
    /// Declared work times core throughput.
    pub declared_flops_per_s: Option<FlopsPerSecond>,
    /// Counted work times core throughput.
    pub counted_flops_per_s: Option<FlopsPerSecond>,
    /// Declared rate over the device's peak: FlagPerf's `*MFU`.
    pub declared_mfu: Option<f64>,
    /// Counted rate over the device's peak.
    pub counted_mfu: Option<f64>,
}

impl FlopCount {
    /// From the declared work, the counted multiply-adds, the core throughput and the device's peak, where known.
    pub fn of(
        (declared, declared_per_sample): (&str, f64),
        multiply_adds: Option<u64>,
        core: Option<SamplesPerSecond>,
        peak: Option<&Peak>,
    ) -> Self {
        let counted_per_sample = multiply_adds.map(|count| 2.0 * count as f64);
        let rate = |work: Option<f64>| Some(FlopsPerSecond(work? * core?.0));
        let mfu = |rate: Option<FlopsPerSecond>| Some(rate?.0 / peak.filter(|p| p.flops_per_s.0 > 0.0)?.flops_per_s.0);
        let declared_flops_per_s = rate(Some(declared_per_sample));
        let counted_flops_per_s = rate(counted_per_sample);
        FlopCount {
            declared: declared.to_owned(),
            declared_per_sample,
            counted_per_sample,
            declared_flops_per_s,
            counted_flops_per_s,
            declared_mfu: mfu(declared_flops_per_s),
            counted_mfu: mfu(counted_flops_per_s),
        }
    }

    /// What a reader should know when more was computed than the device can.
    pub fn beyond_peak(&self) -> Option<String> {
        let mfu = self.counted_mfu.or(self.declared_mfu).filter(|mfu| *mfu > 1.0)?;
        Some(format!(
            "MFU is {:.1} %: the peak in vendor.yaml, or the number of operations, is not that of this run",
            100.0 * mfu
        ))
    }

    /// What a reader should know when declared and counted work differ by a factor of two or more.
    pub fn warning(&self) -> Option<String> {
        let counted = self.counted_per_sample.filter(|counted| *counted > 0.0)?;
        let ratio = self.declared_per_sample / counted;
        if ratio < DIFFERENCE && ratio > DIFFERENCE.recip() {
            return None;
        }
        let (declared, text) = (&self.declared, "the rows `flops` and `*MFU` use the declared figure");
        let once = (2.0 * ratio - 1.0).abs() < 0.1;
        Some(if once {
            format!("`flops: {declared}` counts a multiply-add once, {counted:.3e} operations were counted; {text}")
        } else {
            format!("`flops: {declared}` is {ratio:.2} times the {counted:.3e} operations counted; {text}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEAK: FlopsPerSecond = FlopsPerSecond(1e12);

    fn count(declared: f64, multiply_adds: Option<u64>, peak: f64) -> FlopCount {
        let peak = Peak { flops_per_s: FlopsPerSecond(peak), precision: "f16".into(), source: "sheet".into() };
        FlopCount::of(("d", declared), multiply_adds, Some(SamplesPerSecond(100.0)), Some(&peak))
    }

    #[test]
    fn more_than_the_device_can_is_a_warning() {
        assert_eq!(count(4.12e9, Some(4_089_184_256), PEAK.0).beyond_peak(), None);
        let beyond = count(4.12e9, Some(4_089_184_256), PEAK.0 / 2.0).beyond_peak().unwrap();
        assert!(beyond.starts_with("MFU is 163.6 %: "), "{beyond}");
    }

    #[test]
    fn declared_and_counted_rates_stand_side_by_side() {
        let flops = count(4.12e9, Some(4_089_184_256), PEAK.0);
        assert!((flops.declared_mfu.unwrap() - 0.412).abs() < 1e-9);
        assert!((flops.counted_mfu.unwrap() - 0.8178).abs() < 1e-4);
        assert!(flops.warning().unwrap().contains("counts a multiply-add once"));
    }

    #[test]
    fn a_declared_figure_that_fits_gives_no_warning_and_one_far_off_does() {
        assert_eq!(count(8.2e9, Some(4_100_000_000), PEAK.0).warning(), None);
        assert!(count(8.2e11, Some(4_100_000_000), PEAK.0).warning().unwrap().contains("100.00 times"));
    }

    #[test]
    fn an_unknown_or_zero_peak_gives_no_utilisation() {
        assert_eq!(count(1e9, None, 0.0).declared_mfu, None);
        assert_eq!(FlopCount::of(("1", 1.0), None, None, None).declared_flops_per_s, None);
    }
}
