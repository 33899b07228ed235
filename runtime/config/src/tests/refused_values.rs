//! Tests of values that are refused or replaced, and of files that are missing.

use super::super::Overrides;
use super::super::fixture::{Checkout, HOST, set};
use flagperf_core::event::Level;

#[test]
fn of_several_set_arguments_for_one_key_only_the_last_is_reported() {
    let warnings = Checkout::new().messages(Level::Warning, &set(&["batch_size=4", "repeat=2", "batch_size=16"]));
    let base = "configs/toy/configurations.yaml";
    assert_eq!(
        warnings,
        [
            format!(
                "--set repeat=2: `repeat`: `5` ({base}:6) becomes `2`: a departure from the standard configuration"
            ),
            format!(
                "--set batch_size=16: `batch_size`: `256` ({base}:1) becomes `16`: a departure from the standard configuration"
            ),
        ]
    );
    let errors = Checkout::new().messages(Level::Error, &set(&["batch_size=x", "batch_size=16"]));
    assert_eq!(errors.len(), 1, "a mistake is reported although a later argument replaces it: {errors:?}");
}

#[test]
fn a_missing_overlay_is_noted_and_a_missing_file_of_a_case_has_a_hint() {
    let notes = |checkout: &Checkout| checkout.messages(Level::Info, &Overrides::default()).join("\n");
    let note =
        "configs/toy/configurations.yaml: vendor `chip` has no overlay for case `toy`, so the standard settings apply";
    assert!(notes(&Checkout::new()).contains(note), "{}", notes(&Checkout::new()));
    assert!(!notes(&Checkout::new().overlay("fp16: false\n")).contains("has no overlay"));
    let errors = Checkout::new().without("configs/toy/parameters.yaml").messages(Level::Error, &Overrides::default());
    assert!(errors[0].contains("hint: each case has configurations.yaml and parameters.yaml"), "{errors:?}");
}

#[test]
fn the_element_of_a_list_that_has_the_wrong_type_is_named() {
    let vendor = "name: chip\nabout: a\nframeworks: {frame: {engine: x}}\ncompilers: {own: {engine: sidecar, command: [a, 5]}}\n";
    let errors = |checkout: Checkout| checkout.messages(Level::Error, &Overrides::default()).join("\n");
    let message = errors(Checkout::new().with("vendors/chip/vendor.yaml", vendor));
    assert!(
        message.contains("`compilers.own.command` must be a list of strings")
            && message.contains("not `5` (element 2)"),
        "{message}"
    );
    let message = errors(Checkout::new().with("configs/host.yaml", "VENDOR: chip\nCASES:\n    \"toy:frame\": 7\n"));
    assert!(message.contains("not `7` (of `toy:frame`)"), "{message}");
}

#[test]
fn the_folder_for_results_must_be_a_folder() {
    for path in ["\"\"", "/dev/null", "configs/host.yaml"] {
        let host = format!("{}FLAGPERF_LOG_PATH: {path}\n", HOST);
        let errors = Checkout::new().with("configs/host.yaml", &host).messages(Level::Error, &Overrides::default());
        assert!(
            errors.join("").contains("configs/host.yaml:4: `FLAGPERF_LOG_PATH` must be the folder"),
            "{path}: {errors:?}"
        );
    }
}

#[test]
fn an_invalid_set_argument_is_an_error() {
    let message = |argument: &str| Checkout::new().messages(Level::Error, &set(&[argument])).join("\n");
    assert_eq!(
        message("batch_size"),
        "--set batch_size: `batch_size` is not KEY=VALUE\n  hint: for example --set batch_size=4"
    );
    assert_eq!(
        message("batch_siez=4"),
        "--set batch_siez=4: case `toy` has no key `batch_siez` (nearest: `batch_size`)\n  hint: known keys: \
         batch_size, flops, flops_per_multiply_add, \
         fp16, precision, compiler, num_workers, prefetch, search_loading, decoder, log_freq, repeat, queue_delay_us, no_validation, exist_onnx_path, exist_compiler_path, switches, \
         forward, evaluator, target_accuracy, target_samples, target_index, agreement, bad_samples, unit, preloaded, trace, scenario, input_cost, needs_network, keep_f32, weights, default_data, seed, image_size, threads, level; \
         an option that vendor.yaml does not list is set as ENGINE.OPTION, where ENGINE is a name in vendor.yaml; \
         `flagperf list options` lists those of the engines of this program"
    );
    let part = "target_accuracy.top1=0.5: case `toy` has no key `target_accuracy.top1`";
    let hint = "hint: give the whole value of `target_accuracy`, such as 'target_accuracy={NAME: 0.5}'; known keys: batch_size, ";
    let found = message("target_accuracy.top1=0.5");
    assert!(found.contains(part) && found.contains(hint), "{found}");
    assert_eq!(message("repeat=x"), "--set repeat=x: `repeat` must be a whole number from 1 to 4294967295, not `x`");
    let message_of_list = message("image_size=[1");
    assert!(
        message_of_list.starts_with("--set image_size=[1: while parsing a flow sequence, expected ',' or ']' (check")
    );
    assert!(message("HOSTS=[a]").starts_with("--set HOSTS=[a]: `HOSTS` belongs to host.yaml (`HOSTS`)\n"));
}
