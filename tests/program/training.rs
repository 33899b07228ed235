//! The training of a case from its key to its verified record, with the case `digits` and images that the test draws.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::support::{checkout, program};

const KEY: &str = "digits:interpreter:cpu:1:1:1";
/// Side of an image.
const SIDE: usize = 8;

/// Returns a checkout with images in each of which one line is bright: that of the class, of the first eight rows and two
/// columns.
fn drawn_digits() -> TempDir {
    let checkout = checkout();
    for (part, samples) in [("train", 320), ("val", 40)] {
        let folder = checkout.path().join("datasets/digits/generated").join(part);
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let images = (0..samples).flat_map(|sample| (0..SIDE * SIDE).map(move |pixel| level(sample, pixel)));
        let labels = (0..samples).map(|sample| (sample % 10) as i64);
        let images: Vec<u8> = images.flat_map(f32::to_le_bytes).collect();
        write_npy(&folder.join("images.npy"), "<f4", &format!("({samples}, 1, 8, 8)"), &images);
        write_npy(
            &folder.join("labels.npy"),
            "<i8",
            &format!("({samples},)"),
            &labels.flat_map(i64::to_le_bytes).collect::<Vec<_>>(),
        );
    }
    checkout
}

fn level(sample: usize, pixel: usize) -> f32 {
    let (row, column, class) = (pixel / SIDE, pixel % SIDE, sample % 10);
    let is_bright = if class < SIDE { row == class } else { column == class - SIDE };
    f32::from(u8::from(is_bright)) + 0.3 * ((sample * 37 + pixel * 11) % 17) as f32 / 17.0
}

fn write_npy(path: &Path, dtype: &str, shape: &str, elements: &[u8]) {
    let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    let header = format!("{header:<117}\n");
    fs::write(path, [b"\x93NUMPY\x01\x00", &118u16.to_le_bytes()[..], header.as_bytes(), elements].concat())
        .expect("the temporary folder can be written");
}

fn run(checkout: &Path, arguments: &[&str]) -> (serde_json::Value, Option<i32>) {
    program::record(checkout, &[&["--case", KEY], arguments].concat())
}

#[test]
fn a_training_ends_at_its_target_and_its_record_can_be_verified() {
    let checkout = drawn_digits();
    let (record, code) = run(checkout.path(), &[]);
    assert_eq!(code, Some(0), "{}", record["failures"]);
    assert_eq!(record["accuracy"]["verdict"], "met");
    let round = &record["phases"][0]["training"]["rounds"][0];
    let number = |key: &str| round[key].as_f64().unwrap_or(f64::NAN);
    let epochs = number("epochs");
    assert!(epochs < 20.0, "{round}");
    assert_eq!((number("steps"), number("samples")), (10.0 * epochs, 320.0 * epochs));
    assert_eq!(round["evaluations"].as_array().unwrap().len(), epochs as usize);
    let rates = ["whole", "train", "core"].map(|part| number(&format!("throughput_{part}_samples_per_s")));
    assert!(rates[0] < rates[1] && rates[1] < rates[2], "{rates:?}");
    let losses: Vec<f64> =
        round["epoch_losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect();
    // Chance has the loss ln 10.
    assert!(losses.len() as f64 == epochs && losses.iter().all(|loss| *loss < 2.3), "{losses:?}");
    let reasons = record["validity"]["reasons"].to_string();
    assert!(reasons.contains("no step of the training was computed again by another engine"), "{reasons}");
    let run = format!("result/{}", record["run"].as_str().unwrap_or_default());
    let verified = program::flagperf(checkout.path(), &["verify", &run]);
    let text = [verified.stdout, verified.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(verified.status.code() == Some(0) && text.contains("consistent"), "{text}");
}

#[test]
fn two_trainings_with_the_same_seed_compute_the_same_losses() {
    let checkout = drawn_digits();
    let losses = || {
        run(checkout.path(), &["--set", "max_epochs=2"]).0["phases"][0]["training"]["rounds"][0]["epoch_losses"].clone()
    };
    let first = losses();
    assert!(first.is_array(), "{first}");
    assert_eq!(first, losses());
}

#[test]
fn a_training_with_accumulated_gradients_reaches_its_target() {
    let checkout = drawn_digits();
    let arguments = ["--set", "batch_size=16", "--set", "gradient_accumulation_steps=2"];
    let (record, code) = run(checkout.path(), &arguments);
    assert_eq!((record["accuracy"]["verdict"].as_str(), code), (Some("met"), Some(0)), "{}", record["failures"]);
}

#[test]
fn a_training_that_misses_its_target_or_diverges_fails() {
    let checkout = drawn_digits();
    let (record, code) = run(checkout.path(), &["--set", "max_epochs=1", "--set", "learning_rate=0.0000001"]);
    assert_eq!((record["accuracy"]["verdict"].as_str(), code), (Some("missed"), Some(1)), "{}", record["failures"]);
    let (record, code) = run(checkout.path(), &["--set", "learning_rate=1e30"]);
    let reason = record["failures"][0]["reason"].as_str().unwrap_or_default().to_owned();
    assert_eq!(code, Some(1));
    assert!(reason.starts_with("step ") && reason.contains("the loss is"), "{reason}");
}
