//! Operations per sample, declared and counted, and the resulting rates and utilisation.

use serde::{Deserialize, Serialize};

use super::Record;
use flagperf_core::units::{FlopsPerSecond, SamplesPerSecond};
use flagperf_plan::CaseSettings;

/// Factor between declared and counted operations above which there is a warning. Rounding of the declared figure stays
/// below.
const DIFFERENCE_FACTOR: f64 = 1.75;

/// The peak rate of a device, with its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct PeakRecord {
    /// The rate.
    pub flops_per_s: FlopsPerSecond,
    /// The precision to which the rate applies: `f16`.
    pub precision: String,
    /// The data sheet that states the rate.
    pub source: String,
}

/// Floating-point operations per sample, as declared by `flops` and as counted in the graph.
///
/// FlagPerf's `flops` of the convolutional cases counts a multiply-add as one operation (ResNet-50: 4.12e9), that of the
/// language cases as two; peak rates count it as two. A case states which with `flops_per_multiply_add`. The figures
/// derived from `flops` are FlagPerf's, and the figures derived from the counted operations, two per multiply-add, are
/// recorded beside them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct FlopCount {
    /// `flops` as written in the configuration.
    pub declared: String,
    /// Value of `flops`.
    pub declared_per_sample: f64,
    /// Operations that `flops` counts for a multiply-add, 1 or 2, as the case states; `None` when it does not.
    #[serde(default)]
    pub declared_per_multiply_add: Option<u8>,
    /// Operations counted in the graph, two per multiply-add; `None` when a shape is unknown.
    pub counted_per_sample: Option<f64>,
    /// Declared operations per sample times core throughput.
    pub declared_flops_per_s: Option<FlopsPerSecond>,
    /// Counted operations per sample times core throughput.
    pub counted_flops_per_s: Option<FlopsPerSecond>,
    /// Declared rate divided by the device's peak: FlagPerf's `*MFU`, the headline.
    pub declared_mfu: Option<f64>,
    /// Counted rate divided by the device's peak: the counted MFU.
    pub counted_mfu: Option<f64>,
}

impl FlopCount {
    /// Returns the declared operations of a case, without rates.
    pub fn of(settings: &CaseSettings) -> Self {
        FlopCount {
            declared: settings.flops.clone(),
            declared_per_sample: settings.flops_per_sample,
            declared_per_multiply_add: settings.flops_per_multiply_add,
            ..FlopCount::default()
        }
    }

    /// Computes the rates of the headline phase of a record from the declared operations.
    #[must_use]
    pub fn with_rates(&self, record: &Record) -> Self {
        let headline = record.headline_phase();
        let core = headline.and_then(|phase| phase.measured.first()?.throughput_core_samples_per_s);
        let counted = headline.and_then(|phase| phase.measured.first()?.multiply_adds_per_sample);
        self.rates(counted, core, record.headline_device().and_then(|device| device.peak.as_ref()))
    }

    /// Computes the rates from the counted multiply-adds per sample, the core throughput and the device's peak, each `None`
    /// when unknown.
    fn rates(&self, multiply_adds: Option<u64>, core: Option<SamplesPerSecond>, peak: Option<&PeakRecord>) -> Self {
        let counted_per_sample = multiply_adds.map(|count| 2.0 * count as f64);
        let rate = |work: Option<f64>| Some(FlopsPerSecond(work? * core?.0));
        let mfu = |rate: Option<FlopsPerSecond>| Some(rate?.0 / peak.filter(|p| p.flops_per_s.0 > 0.0)?.flops_per_s.0);
        // The training of a case need not declare its operations.
        let declared_flops_per_s = rate(Some(self.declared_per_sample).filter(|declared| *declared != 0.0));
        let counted_flops_per_s = rate(counted_per_sample);
        FlopCount {
            declared: self.declared.clone(),
            declared_per_sample: self.declared_per_sample,
            declared_per_multiply_add: self.declared_per_multiply_add,
            counted_per_sample,
            declared_flops_per_s,
            counted_flops_per_s,
            declared_mfu: mfu(declared_flops_per_s),
            counted_mfu: mfu(counted_flops_per_s),
        }
    }

    /// Returns a warning with the likely cause when a utilisation exceeds 100 %, which no device can reach.
    pub fn beyond_peak_warning(&self, peak: Option<&PeakRecord>) -> Option<String> {
        let percent = |mfu: f64| format!("{:.1} %", 100.0 * mfu);
        let beyond = |mfu: Option<f64>| mfu.filter(|mfu| *mfu > 1.0).map(percent);
        let counted = self.counted_mfu.map_or_else(|| "unknown".to_owned(), percent);
        let figures = match (beyond(self.declared_mfu), beyond(self.counted_mfu)) {
            (None, None) => return None,
            (Some(declared), _) => format!("`*MFU` is {declared} (counted MFU: {counted})"),
            (None, Some(counted)) => format!("the counted MFU is {counted}"),
        };
        if self.counted_mfu.is_some_and(|counted| counted <= 1.0) {
            return Some(format!("{figures}: `flops` declares more operations than the model has"));
        }
        let peak = peak.map(|peak| format!(", {:.3e} in {},", peak.flops_per_s.0, peak.precision)).unwrap_or_default();
        let not_counted = if self.counted_mfu.is_none() { ", `flops` too high" } else { "" };
        Some(format!(
            "{figures}: the peak in vendor.yaml{peak} is too low{not_counted}, or work was done outside *core*"
        ))
    }

    /// Returns a warning when declared and counted operations differ by a factor of 1.75 or more, although both count a
    /// multiply-add as the case states. A case that states nothing is taken to count it as two.
    pub fn difference_warning(&self) -> Option<String> {
        let counted = self.counted_per_sample.filter(|counted| *counted > 0.0 && self.declared_per_sample != 0.0)?;
        let per_multiply_add = self.declared_per_multiply_add.unwrap_or(2);
        let expected = counted * f64::from(per_multiply_add) / 2.0;
        let ratio = self.declared_per_sample / expected;
        if ratio < DIFFERENCE_FACTOR && ratio > DIFFERENCE_FACTOR.recip() {
            return None;
        }
        // Short enough that a summary does not cut it.
        if self.declared_per_multiply_add.is_none() && (2.0 * ratio - 1.0).abs() < 0.1 {
            let reason = "`flops` counts a multiply-add once: state `flops_per_multiply_add: 1` beside it";
            return Some(reason.to_owned());
        }
        Some(format!(
            "`flops` is {ratio:.2} times the {expected:.3e} operations counted (a multiply-add as {per_multiply_add}), \
             and `*MFU` uses it"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEAK: FlopsPerSecond = FlopsPerSecond(1e12);

    fn settings(declared: f64, flops_per_multiply_add: Option<u8>) -> CaseSettings {
        serde_json::from_value(serde_json::json!({
            "batch_size": 1, "flops": "d", "flops_per_sample": declared, "precision": "fp32", "compiler": null,
            "flops_per_multiply_add": flops_per_multiply_add, "num_workers": 1, "log_freq": 1, "repeat": 1,
            "no_validation": false, "exist_onnx_path": null, "exist_compiler_path": null
        }))
        .unwrap()
    }

    fn count(declared: f64, multiply_adds: Option<u64>, peak: f64) -> FlopCount {
        let peak = PeakRecord { flops_per_s: FlopsPerSecond(peak), precision: "f16".into(), source: "sheet".into() };
        FlopCount::of(&settings(declared, None)).rates(multiply_adds, Some(SamplesPerSecond(100.0)), Some(&peak))
    }

    fn difference(declared: f64, per_multiply_add: u8) -> Option<String> {
        let declared = FlopCount::of(&settings(declared, Some(per_multiply_add)));
        declared.rates(Some(4_089_184_256), None, None).difference_warning()
    }

    #[test]
    fn a_difference_that_the_stated_convention_explains_gives_no_warning() {
        assert_eq!((difference(4.12e9, 1), difference(8.2e9, 2)), (None, None));
        assert!(
            difference(4.12e9, 2)
                .unwrap()
                .contains("is 0.50 times the 8.178e9 operations counted (a multiply-add as 2)")
        );
        let warning = difference(8.2e9, 1).unwrap();
        assert!(warning.contains("is 2.01 times the 4.089e9 operations counted (a multiply-add as 1)"), "{warning}");
        assert!(warning.len() <= 95, "two lines of a summary hold it: {warning}");
    }

    #[test]
    fn a_utilisation_above_100_percent_is_a_warning_with_both_figures_and_the_likely_cause() {
        let warning = |declared, counted, flops_per_s| {
            let peak = PeakRecord {
                flops_per_s: FlopsPerSecond(flops_per_s),
                precision: "f16".into(),
                source: "sheet".into(),
            };
            count(declared, counted, flops_per_s).beyond_peak_warning(Some(&peak))
        };
        let multiply_adds = Some(4_089_184_256);
        assert_eq!(warning(4.12e9, multiply_adds, 1e12), None);
        let low_peak = "the peak in vendor.yaml, 5.000e11 in f16, is too low, or work was done outside *core*";
        let beyond = warning(4.12e9, multiply_adds, 5e11).unwrap();
        assert_eq!(beyond, format!("the counted MFU is 163.6 %: {low_peak}"));
        let beyond = warning(6e9, multiply_adds, 5e11).unwrap();
        assert_eq!(beyond, format!("`*MFU` is 120.0 % (counted MFU: 163.6 %): {low_peak}"));
        let declared = "`*MFU` is 200.0 % (counted MFU: 81.8 %): `flops` declares more operations than the model has";
        assert_eq!(warning(2e10, multiply_adds, 1e12).unwrap(), declared);
        assert!(warning(2e10, None, 1e12).unwrap().contains("too low, `flops` too high, or work"));
    }

    #[test]
    fn both_declared_and_counted_rates_are_recorded() {
        let flops = count(4.12e9, Some(4_089_184_256), PEAK.0);
        assert!((flops.declared_mfu.unwrap() - 0.412).abs() < 1e-9);
        assert!((flops.counted_mfu.unwrap() - 0.8178).abs() < 1e-4);
        assert!(flops.difference_warning().unwrap().contains("counts a multiply-add once"));
    }

    #[test]
    fn only_a_declared_figure_far_from_the_counted_one_gives_a_warning() {
        assert_eq!(count(8.2e9, Some(4_100_000_000), PEAK.0).difference_warning(), None);
        assert!(count(8.2e11, Some(4_100_000_000), PEAK.0).difference_warning().unwrap().contains("100.00 times"));
    }

    #[test]
    fn an_unknown_or_zero_peak_gives_no_utilisation() {
        assert_eq!(count(1e9, None, 0.0).declared_mfu, None);
        assert_eq!(FlopCount::of(&settings(1.0, None)).rates(None, None, None).declared_flops_per_s, None);
    }
}
