//! Damaged or missing data, weights and models: each error names the file. What can be found without reading samples is
//! refused before anything runs.

mod scripts;

use std::fs;
use std::path::{Path, PathBuf};

use libjpeg_turbo_rs::{PixelFormat, Subsampling};
use tempfile::TempDir;

use crate::support::{self, program};

/// A checkout with a data directory of two classes and three images, in which resnet50 runs on the null engine.
struct ImageCheckout {
    checkout: TempDir,
    data: PathBuf,
}

impl ImageCheckout {
    fn new() -> Self {
        let checkout = support::checkout();
        let data = checkout.path().join("photographs");
        for (name, bytes) in [("circle/1.jpeg", jpeg(1)), ("circle/2.jpeg", jpeg(2)), ("square/3.jpeg", jpeg(3))] {
            fs::create_dir_all(data.join(name).parent().expect("a class")).expect("a folder");
            fs::write(data.join(name), bytes).expect("a file");
        }
        ImageCheckout { checkout, data }
    }

    fn path(&self) -> &Path {
        self.checkout.path()
    }

    /// Replaces text in the case's parameters.yaml.
    fn with_parameter(self, from: &str, to: &str) -> Self {
        let file = self.path().join("configs/resnet50/parameters.yaml");
        let text = fs::read_to_string(&file).expect("parameters");
        assert!(text.contains(from), "{from}");
        fs::write(file, text.replace(from, to)).expect("a file");
        self
    }

    fn run(&self, more: &[&str]) -> (serde_json::Value, Option<i32>) {
        let data = self.data.display().to_string();
        let arguments = [&["--case", "resnet50", "--vendor", "mock", "--data", &data], more].concat();
        program::record(self.path(), &arguments)
    }

    /// Runs the case, which must be refused before anything runs, and returns the error.
    fn refusal(&self, more: &[&str]) -> String {
        let data = self.data.display().to_string();
        let arguments = [&["run", "--case", "resnet50", "--vendor", "mock", "--data", &data], more].concat();
        let output = program::flagperf(self.path(), &arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), self.path().join("result").exists()), (Some(2), false), "{errors}");
        errors.lines().find(|line| line.starts_with("error: ")).expect("an error").to_owned()
    }

    /// Runs the case, which must fail, and returns the reason.
    fn failure_reason(&self) -> String {
        let (record, code) = self.run(&[]);
        assert_eq!((code, record["status"].as_str()), (Some(1), Some("failed")));
        record["failures"][0]["reason"].as_str().expect("a reason").to_owned()
    }
}

/// Returns the bytes of a small JPEG file.
fn jpeg(shade: u8) -> Vec<u8> {
    let pixels: Vec<u8> = (0..260).flat_map(|y| (0..300).flat_map(move |x| [x as u8, y as u8, shade])).collect();
    libjpeg_turbo_rs::compress(&pixels, 300, 260, PixelFormat::Rgb, 75, Subsampling::S420).expect("it encodes")
}

#[test]
fn good_data_runs() {
    let (record, code) = ImageCheckout::new().run(&[]);
    assert_eq!((code, &record["status"]), (Some(0), &"ok".into()), "{}", record["failures"]);
}

#[test]
fn an_empty_dataset_is_named() {
    let checkout = ImageCheckout::new();
    fs::remove_dir_all(checkout.data.join("circle")).expect("the file existed");
    fs::remove_file(checkout.data.join("square/3.jpeg")).expect("the file existed");
    let reason = checkout.refusal(&[]);
    assert!(reason.contains("no samples in `"), "{reason}");
}

#[test]
fn a_class_folder_missing_from_the_class_list_is_named() {
    let checkout = ImageCheckout::new().with_parameter("class_list: null", "class_list: classes.txt");
    fs::write(checkout.data.join("classes.txt"), "circles\nsquare\n").expect("a file");
    let reason = checkout.refusal(&[]);
    assert!(reason.contains("class folder `circle` is not in `") && reason.contains("circles"), "{reason}");
}

#[test]
fn a_path_that_leaves_the_data_directory_is_refused_with_its_line() {
    for escape in ["../photographs", "/etc"] {
        let reason =
            ImageCheckout::new().with_parameter("image_dir: \".\"", &format!("image_dir: \"{escape}\"")).refusal(&[]);
        assert!(
            reason.contains("lib/classification.rhai:10:")
                && reason.contains("resnet50/dataloader.rhai:5")
                && reason.contains("leaves the data directory"),
            "{reason}"
        );
    }
}

#[test]
fn a_link_that_leaves_the_data_directory_is_refused() {
    let checkout = ImageCheckout::new();
    std::os::unix::fs::symlink("/etc", checkout.data.join("triangle")).expect("a link");
    let reason = checkout.refusal(&[]);
    assert!(reason.contains("is outside the data directory") && reason.contains("link"), "{reason}");
}

#[test]
fn a_corrupt_image_fails_the_case_and_is_named() {
    let checkout = ImageCheckout::new();
    fs::write(checkout.data.join("circle/2.jpeg"), &jpeg(2)[..500]).expect("a file");
    let reason = checkout.failure_reason();
    assert!(reason.contains("circle/2.jpeg"), "{reason}");
}

#[test]
fn a_corrupt_image_is_counted_if_the_case_allows_it() {
    let checkout = ImageCheckout::new().with_parameter("bad_samples: fail", "bad_samples: count");
    fs::write(checkout.data.join("circle/2.jpeg"), b"").expect("a file");
    let (record, code) = checkout.run(&["--set", "repeat=1"]);
    assert_eq!(code, Some(0), "{}", record["failures"]);
    let phase = &record["phases"][0];
    assert_eq!((&phase["measured"][0]["samples"], &phase["measured"][0]["failed_samples"]), (&2.into(), &1.into()));
    assert!(phase["failed_samples"][0].to_string().contains("circle/2.jpeg"), "{phase}");
}

#[test]
fn truncated_weights_are_named_with_the_script_line_that_loads_them() {
    let checkout = ImageCheckout::new().with_parameter("weights: null", "weights: cut.safetensors");
    fs::write(checkout.data.join("cut.safetensors"), b"\x40\0\0\0\0\0\0\0{\"conv1").expect("a file");
    let reason = checkout.refusal(&[]);
    assert!(reason.contains("cut.safetensors") && reason.contains("resnet50/model.rhai:"), "{reason}");
}

#[test]
fn a_truncated_model_is_named() {
    let checkout = ImageCheckout::new();
    fs::write(checkout.path().join("cut.onnx"), b"\x08\x08\x3a\xff\xff\x03").expect("a file");
    let reason = checkout.refusal(&["--set", "exist_onnx_path=cut.onnx"]);
    assert!(reason.contains("cut.onnx` is not a complete ONNX model"), "{reason}");
}
