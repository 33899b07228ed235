//! Tests that a fault is reported once, at its place and for its cases, without its consequences.

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::tests::{errors, planned, runnable};
use flagperf_config::fixture::{CONFIGURATIONS, Checkout, set};
use flagperf_config::{CaseKey, Overrides};
use flagperf_core::event::Level;

#[test]
fn a_file_of_a_case_that_cannot_be_read_is_the_only_error() {
    let overrides = set(&["image_size=3", "threads=1", "compiler=raw"]);
    let shared = || runnable().without("scripts/toy/forward.rhai");
    for file in ["configurations.yaml", "parameters.yaml", "vendor_config/chip_configurations.yaml"] {
        let path = format!("configs/toy/{file}");
        let twice = errors(&shared().with(&path, "a: 1\na: 2\n"), &overrides);
        assert_eq!(twice, [format!("{path}:2: key `a` is given twice (first on line 1)")]);
        let checkout = shared().without(&path);
        mkfifo(&checkout.path(&path), Mode::S_IRWXU).unwrap();
        let fifo = errors(&checkout, &overrides);
        assert!(fifo.len() == 1 && fifo[0].starts_with(&format!("{path}: cannot be read: ")), "{fifo:#?}");
    }
}

#[test]
fn a_parameter_with_an_invalid_value_does_not_count_as_missing() {
    let checkout = runnable().without("scripts/toy/forward.rhai").with("configs/toy/parameters.yaml", "forward: 5\n");
    let found = errors(&checkout, &Overrides::default());
    assert!(found.len() == 1 && found[0].contains("`forward` must be a shared script"), "{found:#?}");
}

#[test]
fn a_vendor_file_that_cannot_be_read_is_the_only_error() {
    let checkout = runnable().overlay("colour: red\n").with("vendors/chip/vendor.yaml", "name: chip\nname: chip\n");
    let overrides = Overrides { cases: vec!["toy".to_owned()], ..set(&["threads=1"]) };
    let twice = "vendors/chip/vendor.yaml:2: key `name` is given twice (first on line 1)";
    assert_eq!(errors(&checkout, &overrides), [twice]);
    let unlisted = checkout.with("configs/host.yaml", "VENDOR: chip\nCASES: {\"other:frame\": data}\n");
    assert_eq!(errors(&unlisted, &overrides), [twice]);
}

#[test]
fn a_script_that_exists_but_is_no_file_does_not_count_as_missing() {
    let checkout = runnable().without("scripts/toy/dataloader.rhai");
    mkfifo(&checkout.path("scripts/toy/dataloader.rhai"), Mode::S_IRWXU).unwrap();
    assert!(planned(&checkout, &Overrides::default()).is_ok(), "the check of the scripts reports it");
    let missing = errors(&runnable().without("scripts/toy/dataloader.rhai"), &Overrides::default());
    assert_eq!(missing, ["configs/toy/configurations.yaml: case `toy` has no scripts/toy/dataloader.rhai"]);
}

#[test]
fn an_unknown_engine_is_reported_at_its_line_with_a_suggestion() {
    let vendor = std::fs::read_to_string(Checkout::new().path("vendors/chip/vendor.yaml")).unwrap();
    let vendor = vendor.replace("fast: {engine: rten", "fast: {engine: rtn");
    let found = errors(&runnable().with("vendors/chip/vendor.yaml", &vendor), &Overrides::default());
    assert_eq!(
        found,
        ["vendors/chip/vendor.yaml:6: compiler `fast` needs engine `rtn`, which this build does not contain (known: \
          interpreter, plugin, rten, sidecar)\n  hint: did you mean `rten`?"]
    );
}

#[test]
fn a_finding_names_its_cases_wherever_its_place_is() {
    let checkout = runnable()
        .with("configs/host.yaml", "VENDOR: chip\nCASES:\n    \"toy:frame\": data\n    \"toy2:frame\": data\n")
        .with("configs/toy2/configurations.yaml", &CONFIGURATIONS.replace("fp16: true", "fp16: false"))
        .with("configs/toy2/parameters.yaml", "image_size: 224\n");
    for script in ["dataloader", "model", "forward", "evaluator"] {
        std::fs::create_dir_all(checkout.path("scripts/toy2")).unwrap();
        std::fs::write(checkout.path(&format!("scripts/toy2/{script}.rhai")), "").unwrap();
    }
    let plan = planned(&checkout, &set(&["batch_size=256"])).unwrap();
    let [toy, toy2] = ["toy:frame", "toy2:frame"].map(|key| key.parse::<CaseKey>().unwrap());
    // The overlay of `toy` sets another size, so only there the argument is a departure.
    let warned: Vec<_> = plan.findings.iter().filter(|finding| finding.level == Level::Warning).collect();
    assert!(warned.len() == 1 && warned[0].concerns(&toy) && !warned[0].concerns(&toy2), "{warned:#?}");
}
