//! The samplers of `scripts/lib/diffusion.rhai` move latents as those of diffusers, and the small size of
//! stable_diffusion_v1_4 makes the image of diffusers' pipeline.

use std::fs;
use std::path::Path;

use flagperf_script::ScriptChoice;
use serde_json::json;

use super::{folder, formula, write_tensors};
use crate::support::cases::case_model;
use crate::support::{self, program};

const CONFIGURATIONS: &str = "batch_size: 1\nflops: 1e3\nfp16: false\ncompiler: rten\nnum_workers: 1\nlog_freq: 1\nrepeat: 1\nno_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n";

/// Runs a case, which must succeed, and returns a metric of both phases.
fn metric(checkout: &Path, arguments: &[&str], name: &str) -> Vec<f64> {
    let (record, code) = program::record(checkout, &[&["--vendor", "cpu"], arguments].concat());
    assert_eq!((code, record["status"].as_str()), (Some(0), Some("ok")), "{}", record["failures"]);
    let phases = record["phases"].as_array().unwrap();
    phases.iter().map(|phase| phase["measured"][0]["accuracy"][name].as_f64().unwrap()).collect()
}

#[test]
fn the_samplers_move_latents_as_those_of_diffusers() {
    let checkout = support::checkout();
    let [scripts, configs] = ["scripts/sampler", "configs/sampler"].map(|path| checkout.path().join(path));
    for path in [&scripts, &configs] {
        fs::create_dir(path).unwrap();
    }
    for script in fs::read_dir(support::root().join("tests/cases/sampler")).unwrap().flatten() {
        fs::copy(script.path(), scripts.join(script.file_name())).unwrap();
    }
    fs::write(configs.join("configurations.yaml"), CONFIGURATIONS).unwrap();
    fs::write(configs.join("parameters.yaml"), "num_inference_steps: 7\nsteps_offset: 1\nscheduler: ddim\n").unwrap();
    let data = folder().join("models");
    for scheduler in ["scheduler=ddim", "scheduler=pndm", "scheduler=euler"] {
        let arguments = ["--case", "sampler", "--data", data.to_str().unwrap(), "--set", scheduler];
        for error in metric(checkout.path(), &arguments, "relative_error") {
            assert!(error <= 1e-5, "{scheduler}: {error:.2e}");
        }
    }
}

/// The settings of the small size of stable_diffusion_v1_4.
pub fn settings(size: &str, image_size: usize) -> serde_json::Value {
    json!({
        "size": size, "image_size": image_size, "batch_size": 1, "prompt_max_len": 77, "text_prefix": "",
        "vae_attention_names": ["to_q", "to_k", "to_v", "to_out.0"],
        "scheduler": "pndm", "steps_offset": 1, "num_inference_steps": 4,
    })
}

#[test]
fn stable_diffusion_makes_the_image_of_diffusers_pipeline() {
    let (checkout, data) = (support::checkout(), tempfile::tempdir().unwrap());
    let model = case_model("stable_diffusion_v1_4", &settings("tiny", 64), &ScriptChoice::default());
    for (graph, file) in [
        ("text_encoder", "text_encoder/model.safetensors"),
        ("unet", "unet/diffusion_pytorch_model.safetensors"),
        ("decoder", "vae/diffusion_pytorch_model.safetensors"),
    ] {
        let path = data.path().join(file);
        fs::create_dir(path.parent().unwrap()).unwrap();
        write_tensors(&path, &formula::weights(&model.graphs[graph]));
    }
    let reference = "stable_diffusion_v1_4_image.safetensors";
    fs::copy(folder().join("models").join(reference), data.path().join(reference)).unwrap();
    let reference = format!("reference={reference}");
    let mut arguments = vec!["--case", "stable_diffusion_v1_4", "--data", data.path().to_str().unwrap()];
    let sizes = ["size=tiny", "image_size=64", "num_inference_steps=4", "scheduler=pndm", "steps_offset=1"];
    let files = [&reference, "weights=unet/diffusion_pytorch_model.safetensors", "text_prefix=\"\""];
    arguments.extend(sizes.into_iter().chain(files).flat_map(|setting| ["--set", setting]));
    for difference in metric(checkout.path(), &arguments, "largest_level_error") {
        assert!(difference <= 1.0, "{difference} levels");
    }
}
