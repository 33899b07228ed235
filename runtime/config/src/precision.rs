//! The two keys for the precision of a case: FlagPerf's `fp16`, and `precision`.

use serde_json::Value;

use super::{Finding, Origin, Sourced, Values};
use flagperf_core::precision::Precision;

const FP16: &str = "fp16";
const PRECISION: &str = "precision";

/// Makes the two keys agree after a layer has been merged: the key that the layer sets replaces the other.
/// `is_of_layer` states whether an origin belongs to the layer.
///
/// # Errors
/// When the layer sets both keys and they contradict each other. The origins of both are beside the finding: other findings
/// about them would mislead.
pub(super) fn reconcile_precision(
    settings: &mut Values,
    is_of_layer: impl Fn(&Origin) -> bool,
) -> Result<(), Box<(Finding, [Origin; 2])>> {
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
            let word = precision.value.as_str().unwrap_or_default();
            let message = format!("`precision: {word}` contradicts `fp16: {is_half}` ({})", fp16.origin);
            let finding = Finding::error(precision.origin.clone(), message).with_hint("set only one of the two");
            return Err(Box::new((finding, [precision.origin, fp16.origin])));
        }
        (true, false) => settings.insert(FP16.to_owned(), Sourced::new(Value::from(states_half), precision.origin)),
        _ => settings.insert(PRECISION.to_owned(), of_fp16()),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::display_value;
    use super::super::fixture::{Checkout, set};
    use flagperf_core::event::Level;

    const OVERLAY: &str = "configs/toy/vendor_config/chip_configurations.yaml";

    #[test]
    fn fp16_and_precision_agree_after_every_layer() {
        let values = |checkout: &Checkout, arguments: &[&str]| {
            let config = checkout.load(&set(arguments)).unwrap();
            let settings = &config.cases[0].settings;
            let shown = |key: &str| format!("{} ({})", display_value(&settings[key].value), settings[key].origin);
            [shown("fp16"), shown("precision")]
        };
        let base = |line: usize| format!("configs/toy/configurations.yaml:{line}");
        let plain = Checkout::new();
        assert_eq!(values(&plain, &[]), [format!("true ({})", base(3)), format!("fp16 ({})", base(3))]);
        for word in ["bf16", "tf32", "fp32"] {
            let argument = format!("precision={word}");
            let origin = format!("--set {argument}");
            assert_eq!(values(&plain, &[&argument]), [format!("false ({origin})"), format!("{word} ({origin})")]);
        }
        let overlay = Checkout::new().overlay("precision: bf16\n");
        assert_eq!(values(&overlay, &[]), [format!("false ({OVERLAY}:1)"), format!("bf16 ({OVERLAY}:1)")]);
        // `fp16: false` does not contradict bf16, and a later `fp16: true` replaces it.
        assert_eq!(values(&overlay, &["fp16=false"])[1], format!("bf16 ({OVERLAY}:1)"));
        let later = "--set fp16=true";
        assert_eq!(values(&overlay, &["fp16=true"]), [format!("true ({later})"), format!("fp16 ({later})")]);
    }

    #[test]
    fn fp16_and_precision_of_one_layer_must_not_contradict_each_other() {
        let message = |checkout: &Checkout, arguments: &[&str]| checkout.messages(Level::Error, &set(arguments));
        let checkout = Checkout::new().overlay("fp16: false\nprecision: fp16\n");
        let expected = format!(
            "{OVERLAY}:2: `precision: fp16` contradicts `fp16: false` ({OVERLAY}:1)\n  hint: set only one of the two"
        );
        assert_eq!(message(&checkout, &[]), [expected], "that line 2 repeats the standard value would mislead");
        let expected = "--set precision=bf16: `precision: bf16` contradicts `fp16: true` (--set fp16=true)\n  hint: set only \
                        one of the two";
        assert_eq!(message(&Checkout::new(), &["precision=bf16", "fp16=true"]), [expected]);
        let expected = "--set precision=half: `precision` must be";
        let refused = message(&Checkout::new(), &["precision=half"]);
        assert!(refused[0].starts_with(expected), "{refused:?}");
    }
}
