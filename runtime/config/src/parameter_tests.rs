//! Tests of the keys of parameters.yaml that the host reads: what is rejected, with which message, and who may set
//! them.

use serde_json::json;

use super::fixture::{Checkout, set};
use super::{BadSamplePolicy, InputCost, Overrides, Parameters};
use flagperf_core::event::Level;
use flagperf_core::measure::Scenario;

const FILE: &str = "configs/toy/parameters.yaml";
const OVERLAY: &str = "configs/toy/vendor_config/chip_configurations.yaml";

/// Returns the messages of one level for `text` as the case's parameters.yaml.
fn messages(level: Level, text: &str) -> String {
    Checkout::new().with(FILE, text).messages(level, &Overrides::default()).join("\n")
}

fn read(text: &str) -> Parameters {
    let config = Checkout::new().with(FILE, text).load(&Overrides::default()).unwrap();
    Parameters::from_values(&config.cases[0].parameters)
}

#[test]
fn the_parameters_that_the_host_reads_are_typed_and_have_defaults() {
    assert_eq!(read(""), Parameters::default());
    let text = "target_accuracy: {top1: 1, top5: 0.5, perplexity: 30.5}\ntarget_samples: 50000\nagreement: {fp16: {relative_l2: 0.05}}\nbad_samples: COUNT\npreloaded: yes\ntrace: yes\ninput_cost: variable\n\
                keep_f32: [head, norm]\nweights: w.safetensors\nseed: 9223372036854775807\nimage_size: 224\n";
    assert_eq!(
        read(text),
        Parameters {
            forward: None,
            evaluator: None,
            target_accuracy: [("top1", 1.0), ("top5", 0.5), ("perplexity", 30.5)]
                .map(|(m, v)| (m.to_owned(), v))
                .into(),
            target_samples: 50_000,
            target_index: None,
            agreement: [("fp16".to_owned(), [("relative_l2".to_owned(), 0.05)].into())].into(),
            bad_samples: BadSamplePolicy::Count,
            preloaded: true,
            trace: true,
            scenario: Scenario::default(),
            input_cost: InputCost::Variable,
            needs_network: false,
            keep_f32: vec!["head".to_owned(), "norm".to_owned()],
            default_data: None,
            weights: Some("w.safetensors".to_owned()),
            seed: Some(9_223_372_036_854_775_807),
            unit: Parameters::default().unit,
        }
    );
    assert_eq!((messages(Level::Warning, text), messages(Level::Error, text)), (String::new(), String::new()));
}

#[test]
fn a_target_that_is_not_a_number_is_refused_with_its_line_and_the_expected_form() {
    let hint = "  hint: for example `target_accuracy: {top1: 0.76}`, without quotes or percent signs";
    for (text, line, message) in [
        (
            "target_accuracy: {top1: \"0.99\"}",
            1,
            "`target_accuracy`: `top1` must be a number from 0 to 1, not the string `\"0.99\"`",
        ),
        ("target_accuracy: {top1: 99%}", 1, "`target_accuracy`: `top1` must be a number from 0 to 1, not `99%`"),
        (
            "# note\ntarget_accuracy:\n  top5: 0.9\n  top1:\n",
            4,
            "`target_accuracy`: `top1` must be a number from 0 to 1, not null",
        ),
        ("target_accuracy: {top1: [0.9]}", 1, "`target_accuracy`: `top1` must be a number from 0 to 1, not a list"),
        ("target_accuracy: {words: high}", 1, "`target_accuracy`: `words` must be a number, not `high`"),
    ] {
        assert_eq!(messages(Level::Error, text), format!("{FILE}:{line}: {message}\n{hint}"));
    }
    for (text, found) in [("0.99", "`0.99`"), ("[0.99]", "a list"), ("top1", "`top1`"), ("", "null")] {
        assert_eq!(
            messages(Level::Error, &format!("target_accuracy: {text}")),
            format!(
                "{FILE}:1: `target_accuracy` must be a value for each metric, such as `{{top1: 0.76}}`, not {found}"
            )
        );
    }
}

#[test]
fn a_target_outside_the_range_of_its_metric_is_refused() {
    for value in ["1e6", "-0.1", "1.0000001", "76.13"] {
        let error = messages(Level::Error, &format!("target_accuracy: {{top1: {value}}}"));
        let message = format!("{FILE}:1: `target_accuracy`: `top1` must be a number from 0 to 1, not `{value}`");
        assert_eq!(error.lines().next(), Some(message.as_str()));
    }
    for value in [".nan", ".inf", "-.inf"] {
        let error = messages(Level::Error, &format!("target_accuracy: {{f1: {value}}}"));
        assert_eq!(error, format!("{FILE}:1: `{value}` is not a finite number"));
    }
}

#[test]
fn a_target_with_a_name_similar_to_a_metric_is_a_warning() {
    assert_eq!(
        messages(Level::Warning, "target_accuracy: {tpo1: 0.9}"),
        format!(
            "{FILE}:1: `target_accuracy`: only a script can report `tpo1` (nearest metric of the host: `top1`)\n  \
             hint: a metric that no script reports misses its target"
        )
    );
    assert!(messages(Level::Warning, "target_accuracy: {mAP: 0.4}").contains("(nearest metric of the host: `map`)"));
    assert_eq!(messages(Level::Warning, "target_accuracy: {words: 0.4, top10: 0.9, \"accuracy[law]\": 0.2}"), "");
}

#[test]
fn every_other_parameter_of_the_host_is_checked_for_its_type() {
    for (text, message) in [
        ("bad_samples: cuont", "`bad_samples` must be `fail` or `count`, not `cuont`"),
        ("bad_samples: true", "`bad_samples` must be `fail` or `count`, not `true`"),
        ("preloaded: \"true\"", "`preloaded` must be true or false, not the string `\"true\"`"),
        ("preloaded: 1", "`preloaded` must be true or false, not `1`"),
        ("keep_f32: head", "`keep_f32` must be a list of strings such as `[one, two]`, not `head`"),
        ("keep_f32: [1]", "`keep_f32` must be a list of strings such as `[one, two]`, not `1` (element 1)"),
        ("weights: 7", "`weights` must be a string or null, not `7`"),
        ("weights: [a, b]", "`weights` must be a string or null, not a list"),
        ("seed: abc", "`seed` must be a non-negative integer below 2^63, or null, not `abc`"),
        ("seed: -1", "`seed` must be a non-negative integer below 2^63, or null, not `-1`"),
        (
            "seed: 9223372036854775808",
            "`seed` must be a non-negative integer below 2^63, or null, not `9223372036854775808`",
        ),
    ] {
        assert_eq!(messages(Level::Error, text), format!("{FILE}:1: {message}"));
        let (key, value) = text.split_once(": ").unwrap();
        let argument = format!("{key}={value}");
        let refused = Checkout::new().messages(Level::Error, &set(&[&argument]));
        assert_eq!(refused, [format!("--set {argument}: {message}")]);
    }
}

#[test]
fn a_free_parameter_whose_name_is_one_letter_off_one_of_the_host_is_a_warning() {
    let hint = "  hint: `flagperf plan` lists the keys that the host reads";
    for (key, near) in [("preloadde", "preloaded"), ("Seed", "seed"), ("weight", "weights")] {
        let message = format!("{FILE}:1: `{key}` is read only by scripts (nearest key that the host reads: `{near}`)");
        assert_eq!(messages(Level::Warning, &format!("{key}: 1")), format!("{message}\n{hint}"));
    }
    let free = "image_size: 224\nmean: [0.5]\nstd: [0.5]\nclasses: 5\nweight_dir: d\nrandom_seed: 0\neval_weights: w\nside: left\n";
    assert_eq!((messages(Level::Warning, free), messages(Level::Error, free)), (String::new(), String::new()));
}

#[test]
fn a_vendor_cannot_set_keys_that_change_the_rules_of_measuring() {
    let error = |text: &str| Checkout::new().overlay(text).messages(Level::Error, &Overrides::default()).join("\n");
    for key in ["preloaded: true", "bad_samples: count", "keep_f32: [head]", "seed: 1", "weights: mine.safetensors"] {
        let name = key.split(':').next().unwrap();
        assert_eq!(
            error(key),
            format!(
                "{OVERLAY}:1: `{name}` is a case parameter; an overlay cannot change it\n  \
                 hint: delete the line"
            )
        );
    }
    assert_eq!(
        error("flops: 1e12\n"),
        format!(
            "{OVERLAY}:1: `flops` cannot be set by a vendor: it defines what is measured, which is the same for \
             every vendor\n  \
             hint: delete the line"
        )
    );
}

#[test]
fn a_new_key_of_an_overlay_similar_to_a_parameter_is_reported_with_that_parameter() {
    let warning = |text: &str| Checkout::new().overlay(text).messages(Level::Warning, &Overrides::default()).join("\n");
    for key in ["preloadde", "Preloaded"] {
        assert_eq!(
            warning(&format!("{key}: true")),
            format!("{OVERLAY}:1: new key `{key}` of vendor `chip` (nearest: `preloaded`)")
        );
    }
}

#[test]
fn a_parameter_of_the_host_may_be_set_even_if_the_case_does_not_contain_it() {
    let config = Checkout::new().load(&set(&["preloaded=true"])).unwrap();
    let toy = &config.cases[0];
    assert!(Parameters::from_values(&toy.parameters).preloaded);
    assert_eq!(
        (toy.parameters["preloaded"].value.clone(), toy.departures.as_slice()),
        (json!(true), &["preloaded".to_owned()][..])
    );
}

#[test]
fn an_invalid_limit_of_agreement_is_refused_with_its_line() {
    for (text, line, message) in [
        (
            "agreement: 0.05",
            1,
            "`agreement` must be limits by precision, such as `{fp16: {relative_l2: 0.05}}`, not `0.05`",
        ),
        (
            "agreement: {half: {cosine: 1}}",
            1,
            "`agreement`: `half` must be a precision (known: fp32, fp16, bf16, tf32), not `half`",
        ),
        (
            "agreement:\n  fp32: {cosine: 0.9}\n  fp16: {cosin: 0.9}",
            3,
            "`agreement`: `fp16` must be limits by name (known: relative_l2, worst_sample, cosine, correlation, variation, \
             mismatches), not `cosin`",
        ),
        ("agreement: {fp16: {cosine: 1.5}}", 1, "`agreement`: `cosine` must be a number from -1 to 1, not `1.5`"),
        (
            "agreement: {fp16: {relative_l2: 5%}}",
            1,
            "`agreement`: `relative_l2` must be a number of at least 0, not `5%`",
        ),
        ("agreement: {fp16: 0.1}", 1, "`agreement`: `fp16` must be limits such as `{relative_l2: 0.05}`, not `0.1`"),
    ] {
        let found = messages(Level::Error, text);
        assert!(found.starts_with(&format!("{FILE}:{line}: {message}")), "{found}");
    }
}

#[test]
fn a_misspelled_overlay_is_a_warning_with_the_nearest_name() {
    let checkout = Checkout::new().with("configs/toy/vendor_config/CHIP_configurations.yaml", "batch_size: 8\n");
    let warning = checkout.messages(Level::Warning, &Overrides::default()).join("\n");
    let expected = "configs/toy/vendor_config/CHIP_configurations.yaml:1: this file is not read: its name is not that of an overlay of a folder in vendors/";
    assert!(warning.starts_with(expected), "{warning}");
}
