//! The two keys for the precision of a case: FlagPerf's `fp16`, and `precision`.

use serde_json::Value;

use super::{ConfigProblem, Finding, Origin, Sourced, Values};
use crate::precision::Precision;

const FP16: &str = "fp16";
const PRECISION: &str = "precision";

/// Makes the two keys agree after a layer has been merged: the key that the layer sets replaces the other.
/// `is_of_layer` states whether an origin belongs to the layer.
///
/// # Errors
/// When the layer sets both keys and they contradict each other.
pub(super) fn reconcile_precision(settings: &mut Values, is_of_layer: impl Fn(&Origin) -> bool) -> Result<(), Finding> {
    let (Some(fp16), Some(precision)) = (settings.get(FP16).cloned(), settings.get(PRECISION).cloned()) else {
        return Ok(());
    };
    let is_half = fp16.value == true;
    let of_fp16 = || {
        let implied = if is_half { Precision::Fp16 } else { Precision::Fp32 };
        Sourced::new(Value::from(implied.name()), fp16.origin.clone())
    };
    if precision.value.is_null() {
        settings.insert(PRECISION.to_owned(), of_fp16());
        return Ok(());
    }
    let states_half = precision.value == Precision::Fp16.name();
    if states_half == is_half {
        return Ok(());
    }
    match (is_of_layer(&precision.origin), is_of_layer(&fp16.origin)) {
        (true, true) => {
            let precision_value = precision.value.as_str().unwrap_or_default().to_owned();
            let problem =
                ConfigProblem::PrecisionConflict { precision: precision_value, fp16: is_half, at: fp16.origin };
            return Err(Finding::error(precision.origin, problem));
        }
        (true, false) => settings.insert(FP16.to_owned(), Sourced::new(Value::from(states_half), precision.origin)),
        _ => settings.insert(PRECISION.to_owned(), of_fp16()),
    };
    Ok(())
}
