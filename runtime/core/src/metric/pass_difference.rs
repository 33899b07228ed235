//! How much the outputs of a later pass differ from those of the first pass. All passes run the same samples, so a correct
//! engine returns the same outputs in each.

use serde::{Deserialize, Serialize};

use super::AgreementLimits;
use crate::units::null_is_nan;

/// Factor between the limits of agreement with validation and those between two runs of inference: either of them may differ from
/// validation by the limit.
const LIMIT_FACTOR: f64 = 2.0;

/// How much an output of inference differs between its first pass and the pass that differs most from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct PassDifference {
    /// Index of the pass that differs most from the first one, from 0.
    pub pass: u32,
    /// Number of elements that were compared in that pass: a sample of the output.
    pub elements: u64,
    /// Relative L2 difference: the norm of the difference, divided by the larger of the norms of both passes. NaN when an
    /// element is NaN or infinite, and when the output is missing or has another shape.
    #[serde(deserialize_with = "null_is_nan")]
    #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))]
    pub relative_l2: f64,
    /// Share of elements that differ, for an integer or boolean output; `None` for any other output.
    pub mismatches: Option<f64>,
}

impl PassDifference {
    /// Returns the figure that is judged.
    pub fn judged(&self) -> f64 {
        if self.relative_l2.is_nan() { f64::NAN } else { self.mismatches.unwrap_or(self.relative_l2) }
    }
}

impl AgreementLimits {
    /// Returns the limit for the figure that is judged between two runs of inference, and the name of the limit of agreement
    /// that it follows.
    pub fn between_runs(&self, difference: &PassDifference) -> (&'static str, f64) {
        match difference.mismatches {
            Some(_) => ("mismatches", self.mismatches * LIMIT_FACTOR),
            None => ("relative_l2", self.relative_l2 * LIMIT_FACTOR),
        }
    }

    /// Describes a difference between the first pass and a later one of `passes` that two correct passes cannot have;
    /// `None` for a smaller one.
    pub fn pass_violation(&self, difference: &PassDifference, passes: u32) -> Option<String> {
        let (name, limit) = self.between_runs(difference);
        let (figure, pass) = (difference.judged(), difference.pass + 1);
        if figure.is_nan() {
            return Some(format!(
                "in pass {pass} of {passes}, it has elements that are NaN or infinite, or it is not the same output as in pass 1"
            ));
        }
        (figure > limit).then(|| {
            format!(
                "pass {pass} of {passes} differs from pass 1 by {figure:.2e}, but the limit between two passes is \
                 {limit:.2e}, twice `{name}`: does the engine compute in every run?"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precision::Precision;

    #[test]
    fn a_difference_beyond_twice_the_limit_is_described() {
        let limits = AgreementLimits::default_for(Precision::Fp32);
        let violation = |relative_l2, mismatches| {
            limits.pass_violation(&PassDifference { pass: 3, elements: 8, relative_l2, mismatches }, 6)
        };
        assert_eq!(violation(2e-3, None), None);
        assert_eq!(
            violation(1.0, None).as_deref(),
            Some(
                "pass 4 of 6 differs from pass 1 by 1.00e0, but the limit between two passes is 2.00e-3, twice \
                 `relative_l2`: does the engine compute in every run?"
            )
        );
        assert_eq!(violation(1.0, Some(0.02)), None);
        assert!(
            violation(0.0, Some(0.03)).unwrap().contains("by 3.00e-2, but the limit between two passes is 2.00e-2")
        );
        assert!(violation(f64::NAN, Some(0.0)).unwrap().starts_with("in pass 4 of 6, it has elements that are NaN"));
    }
}
