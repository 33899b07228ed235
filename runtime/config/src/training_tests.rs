//! Tests of a case that is trained: its key, its files and what a vendor may change.

use serde_json::json;

use super::fixture::{Checkout, case, set};
use super::{CaseConfig, Overrides, Scale, display_value};
use flagperf_core::event::Level;

const TRAINING: &str = "batch_size: 32\nlearning_rate: 0.1\nmax_epochs: 20\ntarget: {top1: 0.9}\n";
const OVERLAY: &str = "configs/toy/vendor_config/chip_training.yaml";

fn checkout() -> Checkout {
    let host = "VENDOR: chip\nCASES:\n    \"toy:frame:A100:1:1:2\": data\n";
    Checkout::new().with("configs/host.yaml", host).with("configs/toy/training.yaml", TRAINING)
}

fn loaded(checkout: &Checkout, overrides: &Overrides) -> CaseConfig {
    let mut cases = checkout.load(overrides).unwrap().cases;
    assert_eq!(cases.len(), 1);
    cases.remove(0)
}

fn value(case: &CaseConfig, key: &str) -> String {
    let found = case.values().find(|(name, _)| *name == key).unwrap().1;
    format!("{} ({})", display_value(&found.value), found.origin)
}

fn errors(checkout: &Checkout) -> Vec<String> {
    checkout.messages(Level::Error, &Overrides::default())
}

#[test]
fn a_training_reads_training_yaml_in_place_of_configurations_yaml() {
    let toy = loaded(&checkout(), &Overrides::default());
    assert_eq!((toy.key.value.scale, toy.key.value.training.as_ref().unwrap().repeat), (Scale::ONE, 2));
    assert_eq!(value(&toy, "batch_size"), "32 (configs/toy/training.yaml:1)");
    assert_eq!(value(&toy, "learning_rate"), "0.1 (configs/toy/training.yaml:2)");
    assert_eq!(value(&toy, "target"), "{\"top1\":0.9} (configs/toy/training.yaml:4)");
    assert_eq!(value(&toy, "eval_batch_size"), "null (default)");
    assert_eq!(value(&toy, "eval_interval"), "1 (default)");
    assert_eq!(value(&toy, "flops"), "null (default)");
    assert_eq!(value(&toy, "precision"), "fp32 (default)");
    assert_eq!(value(&toy, "image_size"), "224 (configs/toy/parameters.yaml:1)");
    assert!(!toy.settings.contains_key("compiler"), "{:?}", toy.settings);
    assert_eq!(toy.settings_file().to_string(), "configs/toy/training.yaml");
}

#[test]
fn a_case_may_be_for_training_only() {
    let only = checkout().without("configs/toy/configurations.yaml");
    loaded(&only, &Overrides::default());
    loaded(&only, &case("toy"));
    let inference = only.messages(Level::Error, &case("toy:frame"));
    let expected = "configs/toy/configurations.yaml: cannot be read: No such file or directory (os error 2)\n  hint: case `toy` is \
                    only for training: `toy:frame:HARDWARE:1:1:1`";
    assert_eq!(inference, [expected]);
    let expected = "configs/toy/training.yaml: cannot be read: No such file or directory (os error 2)\n  hint: case `toy` is only for \
                    inference: `toy:frame`";
    assert_eq!(Checkout::new().messages(Level::Error, &case("toy:frame:A100:1:1:1")), [expected]);
}

#[test]
fn the_key_of_a_training_may_be_given_on_the_command_line() {
    let toy = loaded(&checkout(), &case("toy:frame:H100:1:1:1"));
    assert_eq!(toy.key.value.to_string(), "toy:frame:H100:1:1:1");
    assert_eq!(toy.key.origin.to_string(), "--case toy:frame:H100:1:1:1");
    // Another vendor has other hardware, so the key is not changed for it.
    let other = Overrides { vendor: Some("other".to_owned()), ..Overrides::default() };
    assert_eq!(loaded(&checkout(), &other).key.value.to_string(), "toy:frame:A100:1:1:2");
}

#[test]
fn a_section_of_the_overlay_holds_for_one_size_and_wins_over_the_keys_for_every_size() {
    let overlay = "batch_size: 64\nthreads: 3\nA100x1x8:\n    batch_size: 256\n    learning_rate: 0.8\nA100x1x1:\n    \
                   learning_rate: 0.2\n    threads: 5\n";
    let checkout = checkout().with(OVERLAY, overlay);
    assert_eq!(errors(&checkout), [""; 0]);
    let small = loaded(&checkout, &Overrides::default());
    assert_eq!(value(&small, "batch_size"), format!("64 ({OVERLAY}:1)"));
    assert_eq!(value(&small, "learning_rate"), format!("0.2 ({OVERLAY}:7)"));
    assert_eq!(value(&small, "threads"), format!("5 ({OVERLAY}:8)"));
    let large = loaded(&checkout, &case("toy:frame:A100:1:8:1"));
    assert_eq!(value(&large, "batch_size"), format!("256 ({OVERLAY}:4)"));
    assert_eq!(value(&large, "threads"), format!("3 ({OVERLAY}:2)"));
    let note = format!("{OVERLAY}: the overlay has no section for `H100x1x1` (known: A100x1x8, A100x1x1)");
    assert!(checkout.messages(Level::Info, &case("toy:frame:H100:1:1:1")).contains(&note));
}

#[test]
fn a_vendor_cannot_set_what_is_measured_in_any_section() {
    let overlay = "target: {top1: 0.1}\nmax_epochs: 1\nseed: 1\nimage_size: 8\ncompiler: fast\nH100x2x8:\n    target: {top1: 0.1}\n    \
                   batch_size: 0\nA100x1x1: 5\n";
    let found = errors(&checkout().with(OVERLAY, overlay));
    let delete = "\n  hint: delete the line";
    let owned = |line: usize, key: &str| {
        format!(
            "{OVERLAY}:{line}: `{key}` cannot be set by a vendor: it defines what is measured, which is the same for every \
             vendor{delete}"
        )
    };
    assert_eq!(
        found,
        [
            format!("{OVERLAY}:9: `A100x1x1` must be a section with the keys for that size"),
            owned(1, "target"),
            owned(2, "max_epochs"),
            format!("{OVERLAY}:3: `seed` is a case parameter; an overlay cannot change it{delete}"),
            format!(
                "{OVERLAY}:4: `image_size` is a case parameter (configs/toy/parameters.yaml:1); an overlay cannot change it{delete}"
            ),
            format!("{OVERLAY}:5: `compiler` belongs to configurations.yaml{delete}"),
            owned(7, "target"),
            format!("{OVERLAY}:8: `batch_size` must be a whole number from 1 to 4294967295, not `0`"),
        ]
    );
    let inference = Checkout::new().overlay("max_epochs: 3\n");
    let expected =
        format!("configs/toy/vendor_config/chip_configurations.yaml:1: `max_epochs` belongs to training.yaml{delete}");
    assert_eq!(errors(&inference), [expected]);
}

#[test]
fn a_misspelled_key_in_the_section_of_another_size_is_a_warning() {
    let checkout = checkout().with(OVERLAY, "H100x2x8:\n    batch_sise: 256\n");
    let warnings = checkout.messages(Level::Warning, &Overrides::default());
    let expected = format!("{OVERLAY}:2: new key `batch_sise` of vendor `chip` (nearest: `batch_size`)");
    assert!(warnings.contains(&expected), "{warnings:?}");
}

#[test]
fn a_size_has_one_name() {
    let found = errors(&checkout().with(OVERLAY, "A100x1x1:\n    threads: 3\nA100x01x1:\n    threads: 5\n"));
    assert_eq!(found, [format!("{OVERLAY}:3: `A100x01x1` is not the name of a size\n  hint: write `A100x1x1`")]);
}

#[test]
fn mistakes_in_training_yaml_have_their_line() {
    let text = "batch_size: 32\nlearning_rate: 0\nmax_epoch: 20\ntarget: {top1: 2}\ncompiler: fast\nflops: x\n";
    let found = errors(&checkout().with("configs/toy/training.yaml", text));
    let file = "configs/toy/training.yaml";
    assert_eq!(
        found[0],
        format!("{file}:2: `learning_rate` must be a number greater than 0, such as `0.1` or `3.5e-4`, not `0`")
    );
    assert!(found[1].starts_with(&format!("{file}:3: unknown key `max_epoch` (nearest: `max_epochs`)")), "{found:?}");
    assert_eq!(
        found[2],
        format!(
            "{file}:4: `target`: `top1` must be a number from 0 to 1, not `2`\n  hint: for example `target: {{top1: 0.76}}`, \
             without quotes or percent signs"
        )
    );
    assert!(found[3].starts_with(&format!("{file}:5: unknown key `compiler`")), "{found:?}");
    assert!(found[4].starts_with(&format!("{file}:6: `flops`: `x`")), "{found:?}");
    assert!(found[5].starts_with(&format!("{file}:1: `max_epochs` is missing")), "{found:?}");
}

#[test]
fn a_set_departs_from_training_yaml() {
    let toy = loaded(&checkout(), &set(&["max_epochs=1", "target={top1: 0.5}"]));
    assert_eq!(toy.departures, ["max_epochs", "target"]);
    assert_eq!(toy.settings["target"].value, json!({"top1": 0.5}));
}

#[test]
fn an_overlay_of_a_training_belongs_to_a_vendor() {
    let checkout = checkout().with("configs/toy/vendor_config/chop_training.yaml", "batch_size: 1\n");
    let expected = "configs/toy/vendor_config/chop_training.yaml:1: this file is not read: its name is not that of an overlay of a folder in vendors/ \
                    (nearest: `chip_training.yaml`)";
    assert_eq!(checkout.messages(Level::Warning, &Overrides::default()), [expected]);
}
