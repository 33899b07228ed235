//! The table of metrics: names and ranges.

use std::ops::RangeInclusive;

/// A family of metrics whose names are a word and a number: `top1`, `top5`.
#[derive(Clone, Debug)]
pub struct Metric {
    /// The word before the number.
    pub family: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// The range of possible values.
    pub range: RangeInclusive<f64>,
    /// Whether every sample is exactly one observation.
    pub counts_samples: bool,
    /// Typical names, for messages.
    pub examples: &'static [&'static str],
}

/// Every metric that the host computes. Scripts may report other metrics with any finite value.
pub const METRICS: &[Metric] = &[Metric {
    family: "top",
    about: "share of samples whose label is among the k best scores",
    range: 0.0..=1.0,
    counts_samples: true,
    examples: &["top1", "top5"],
}];

/// Returns the family of the metric `name`; `None` when only a script can report it.
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| {
        let number = name.strip_prefix(metric.family).unwrap_or_default();
        number.starts_with(|first: char| ('1'..='9').contains(&first)) && number.chars().all(|c| c.is_ascii_digit())
    })
}

/// Returns the range of the metric `name`: all finite values when only a script can report it.
pub fn range(name: &str) -> RangeInclusive<f64> {
    find(name).map_or(f64::MIN..=f64::MAX, |metric| metric.range.clone())
}

/// Returns typical names of metrics, for messages.
pub fn examples() -> impl Iterator<Item = &'static str> {
    METRICS.iter().flat_map(|metric| metric.examples.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_its_family_and_a_number_from_1() {
        for name in ["top1", "top5", "top10"] {
            assert_eq!(range(name), 0.0..=1.0, "{name}");
        }
        for name in ["top", "top0", "top01", "top1a", "Top1", "map", ""] {
            assert!(find(name).is_none(), "{name}");
            assert!(range(name).contains(&1e6) && !range(name).contains(&f64::INFINITY));
        }
    }

    #[test]
    fn families_are_unique_lower_case_and_documented() {
        for metric in METRICS {
            assert!(metric.family.chars().all(|c| c.is_ascii_lowercase()) && !metric.about.is_empty());
            assert_eq!(METRICS.iter().filter(|other| other.family == metric.family).count(), 1);
            assert!(metric.examples.iter().all(|name| find(name).is_some_and(|found| found.family == metric.family)));
        }
    }
}
