//! Data, weights and models that are not what they should be: each is named, and what was measured before is kept.

#[path = "support/program.rs"]
mod program;
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use libjpeg_turbo_rs::{PixelFormat, Subsampling};
use tempfile::TempDir;

/// A checkout with a data directory of two classes and three images, and the arguments to run resnet50 on the null
/// engine there.
struct Site {
    checkout: TempDir,
    data: PathBuf,
}

impl Site {
    fn new() -> Self {
        let checkout = support::checkout();
        let data = checkout.path().join("photographs");
        for (name, bytes) in [("circle/1.jpeg", jpeg(1)), ("circle/2.jpeg", jpeg(2)), ("square/3.jpeg", jpeg(3))] {
            fs::create_dir_all(data.join(name).parent().expect("a class")).expect("a folder");
            fs::write(data.join(name), bytes).expect("a file");
        }
        Site { checkout, data }
    }

    fn path(&self) -> &Path {
        self.checkout.path()
    }

    /// Changes a line of the case's parameters.
    fn parameter(self, from: &str, to: &str) -> Self {
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

    /// Why the case failed; it must have.
    fn reason(&self) -> String {
        let (record, code) = self.run(&[]);
        assert_eq!((code, record["status"].as_str()), (Some(1), Some("failed")));
        record["failures"][0]["reason"].as_str().expect("a reason").to_owned()
    }
}

/// A small JPEG file.
fn jpeg(shade: u8) -> Vec<u8> {
    let pixels: Vec<u8> = (0..260).flat_map(|y| (0..300).flat_map(move |x| [x as u8, y as u8, shade])).collect();
    libjpeg_turbo_rs::compress(&pixels, 300, 260, PixelFormat::Rgb, 75, Subsampling::S420).expect("it encodes")
}

#[test]
fn good_data_runs() {
    let (record, code) = Site::new().run(&[]);
    assert_eq!((code, &record["status"]), (Some(0), &"ok".into()), "{}", record["failures"]);
}

#[test]
fn an_empty_dataset_is_named() {
    let site = Site::new();
    fs::remove_dir_all(site.data.join("circle")).expect("it was there");
    fs::remove_file(site.data.join("square/3.jpeg")).expect("it was there");
    let reason = site.reason();
    assert!(reason.contains("no samples in `"), "{reason}");
}

#[test]
fn a_class_folder_that_the_list_lacks_is_named() {
    let site = Site::new().parameter("class_list: null", "class_list: classes.txt");
    fs::write(site.data.join("classes.txt"), "circles\nsquare\n").expect("a file");
    let reason = site.reason();
    assert!(reason.contains("class folder `circle` is not in `") && reason.contains("circles"), "{reason}");
}

#[test]
fn a_path_out_of_the_data_directory_is_refused_with_its_line() {
    for escape in ["../photographs", "/etc"] {
        let reason = Site::new().parameter("image_dir: \".\"", &format!("image_dir: \"{escape}\"")).reason();
        assert!(
            reason.contains("resnet50/dataloader.rhai:3:") && reason.contains("leaves the data directory"),
            "{reason}"
        );
    }
}

#[test]
fn a_link_out_of_the_data_directory_is_refused() {
    let site = Site::new();
    std::os::unix::fs::symlink("/etc", site.data.join("triangle")).expect("a link");
    let reason = site.reason();
    assert!(reason.contains("leaves the data directory") && reason.contains("link"), "{reason}");
}

#[test]
fn a_corrupt_image_fails_the_case_by_name() {
    let site = Site::new();
    fs::write(site.data.join("circle/2.jpeg"), &jpeg(2)[..500]).expect("a file");
    let reason = site.reason();
    assert!(reason.contains("circle/2.jpeg"), "{reason}");
}

#[test]
fn a_corrupt_image_is_counted_where_the_case_says_so() {
    let site = Site::new().parameter("bad_samples: fail", "bad_samples: count");
    fs::write(site.data.join("circle/2.jpeg"), b"").expect("a file");
    let (record, code) = site.run(&["--set", "repeat=1"]);
    assert_eq!(code, Some(0), "{}", record["failures"]);
    let phase = &record["phases"][0];
    assert_eq!((&phase["measured"][0]["samples"], &phase["measured"][0]["failed_samples"]), (&2.into(), &1.into()));
    assert!(phase["failed_samples"][0].to_string().contains("circle/2.jpeg"), "{phase}");
}

#[test]
fn truncated_weights_are_named_with_the_line_that_loads_them() {
    let site = Site::new().parameter("weights: null", "weights: cut.safetensors");
    fs::write(site.data.join("cut.safetensors"), b"\x40\0\0\0\0\0\0\0{\"conv1").expect("a file");
    let reason = site.reason();
    assert!(reason.contains("cut.safetensors") && reason.contains("resnet50/model.rhai:"), "{reason}");
}

#[test]
fn a_truncated_model_is_named_and_validation_is_kept() {
    let site = Site::new();
    fs::write(site.path().join("cut.onnx"), b"\x08\x08\x3a\xff\xff\x03").expect("a file");
    let (record, code) = site.run(&["--set", "exist_onnx_path=cut.onnx"]);
    assert_eq!(code, Some(1));
    let reason = record["failures"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("cut.onnx"), "{reason}");
    assert!(record["finish_info"]["p_validation_core(qps)"].as_f64().is_some_and(|rate| rate > 0.0), "{record}");
}
