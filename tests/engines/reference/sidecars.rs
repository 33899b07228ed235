//! The Python engines of the vendor `cpu`, ONNX Runtime and torch.compile, through the whole program.

use std::fs;

use libjpeg_turbo_rs::{PixelFormat, Subsampling};

use crate::support::site::Site;
use crate::support::{self, program};

/// Number of pictures that are drawn for the run.
const PICTURES: usize = 6;

/// A small ResNet on images.
#[test]
fn onnx_runtime_in_python_agrees_with_the_interpreter() {
    if support::python().is_none() {
        return;
    }
    let checkout = support::checkout();
    let data = checkout.path().join("pictures");
    fs::create_dir_all(data.join("drawn")).unwrap();
    for index in 0..PICTURES {
        let shade = 40 * index as u8;
        let pixels: Vec<u8> =
            (0..260 * 300).flat_map(|at: usize| [(at % 300) as u8, (at / 300) as u8, shade]).collect();
        let bytes = libjpeg_turbo_rs::compress(&pixels, 300, 260, PixelFormat::Rgb, 75, Subsampling::S420).unwrap();
        fs::write(data.join(format!("drawn/{index}.jpeg")), bytes).unwrap();
    }
    let data = data.display().to_string();
    let mut arguments = vec!["--case", "resnet50", "--data", &data];
    for setting in ["compiler=onnxruntime_py", "batch_size=4", "repeat=1", "size=tiny", "resize=36", "image_size=32"] {
        arguments.extend(["--set", setting]);
    }
    let (record, code) = program::record(checkout.path(), &arguments);
    assert_eq!((code, record["status"].as_str()), (Some(0), Some("ok")), "{}", record["failures"]);
    let inference = &record["phases"][1];
    let agreement = &inference["agreement"];
    assert_eq!(
        (&agreement["samples"], &agreement["outputs"]["output"]["top1_agreement"]),
        (&PICTURES.into(), &1.0.into())
    );
    assert!(agreement["outputs"]["output"]["cosine"].as_f64().is_some_and(|cosine| cosine > 0.999_999), "{agreement}");
    assert_eq!(inference["measured"][0]["padded_samples"], 2);
    assert_eq!(inference["engine"]["device"], "cpu");
}

/// A convolution and a linear layer: torch.compile takes minutes for ResNet-50.
#[test]
fn torch_compile_agrees_with_the_interpreter() {
    if support::python().is_none() {
        return;
    }
    let record = Site::new("{engine: rten}").run_successfully(&["--vendor", "cpu", "--set", "compiler=inductor"]);
    let inference = &record["phases"][1];
    let agreement = &inference["agreement"];
    assert!(agreement["outputs"]["output"]["cosine"].as_f64().is_some_and(|cosine| cosine > 0.999_999), "{agreement}");
    assert_eq!(
        (&inference["engine"]["device"], &inference["measured"][0]["padded_samples"]),
        (&"cpu".into(), &4.into())
    );
}
